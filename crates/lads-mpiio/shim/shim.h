/* What the parts of the shim share.
 *
 * The shim stands between an MPI program and its MPI library: it defines MPI_File_x and
 * PMPI_File_x. PMPI as well, because the Fortran layers of MPICH and Open MPI call PMPI_File_x
 * across a library boundary: so no Fortran code is needed here. A file with a name that is not
 * remote goes on to the library, whatever is done with it.
 *
 * In reading order: datatype.c, layout.c, memory.c (what is read and written), errors.c, agree.c
 * (what the processes of a file tell each other), table.c (which handles are ours), open.c, view.c,
 * manage.c, transfer.c with transfer.inc, fence.c, outside.c.
 */
#ifndef SHIM_H
#define SHIM_H

#define _GNU_SOURCE
#include "../include/rfs.h"
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Whether the MPI has the large-count forms (MPI_File_read_c, MPI_Type_get_envelope_c). */
#define SHIM_HAS_LARGE_COUNTS (MPI_VERSION >= 4)

/* Whether it has MPI_Type_get_value_index, and so the combiner. */
#define SHIM_HAS_VALUE_INDEX (MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1))

/* The function of the MPI library that the shim stands before. */
#define REAL(name) ((__typeof__(&MPI_##name))shim_real("PMPI_" #name))

/* Defines PMPI_name as the same function as MPI_name. */
#define ALSO_PMPI(name) \
    extern __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name)))

/* Defines a function of MPI-IO: what is ours for a remote file, and the library's for any other. */
#define FORWARD(name, parameters, arguments, ours)           \
    int MPI_##name parameters                                \
    {                                                        \
        struct shim_file *file = shim_find(handle);          \
        return file ? ours : REAL(name) arguments;           \
    }                                                        \
    ALSO_PMPI(name);

/* Everything but the interface is the shim's own. */
#define OWN __attribute__((visibility("hidden")))

/* A split collective that was begun and not ended. */
enum shim_split {
    SPLIT_NONE,
    SPLIT_READ_ALL,
    SPLIT_READ_AT_ALL,
    SPLIT_READ_ORDERED,
    SPLIT_WRITE_ALL,
    SPLIT_WRITE_AT_ALL,
    SPLIT_WRITE_ORDERED
};

/* A remote file that the program has open. */
struct shim_file {
    struct shim_file *next;
    /* What the program holds: a file of the MPI library that stands for the remote one. */
    MPI_File handle;
    rfs_file *file;
    char *name;
    /* A duplicate of the program's: for the agreements between the processes. */
    MPI_Comm comm;
    int rank;
    int amode;
    /* The hints of the program. */
    MPI_Info info;
    MPI_Count etype_bytes;
    /* The filetype has no bytes: nothing can be read or written. */
    int is_view_empty;
    int is_atomic;
    /* The code of the library that has opened the file, if fence.c knows it; else 0. */
    uintptr_t library, library_end;
    /* Something was written that a fence has to wait for. */
    atomic_int is_behind;
    /* This process has moved the shared pointer since it was last set to 0. */
    atomic_int is_shared_moved;
    /* Protects what follows: a program may use a file from several threads. */
    pthread_mutex_t lock;
    /* An error that a fence has met and no call has returned. */
    int late_class;
    char late_text[MPI_MAX_ERROR_STRING];
    /* The individual pointer: in bytes of the view. */
    int64_t pointer;
    enum shim_split split;
    uint64_t split_bytes;
};

/* A datatype, taken apart. */
struct shim_type;

/* Bytes that grow at the end. */
struct shim_bytes {
    unsigned char *bytes;
    size_t length, capacity;
    int is_out_of_memory;
};

/* Pieces of memory, in the order of their bytes. */
struct shim_pieces {
    rfs_piece *list;
    size_t count, capacity;
    int is_out_of_memory;
    /* Not null: the list has this memory only, into which the data is packed. */
    unsigned char *packed;
};

/* datatype.c */
/* Null if it cannot be taken apart. */
OWN struct shim_type *shim_type_of(MPI_Datatype datatype);
OWN void shim_type_free(struct shim_type *type);

/* layout.c */
OWN void shim_type_write(const struct shim_type *type, struct shim_bytes *out);
/* Adds the bytes of copies that begin at an address. Returns 0 if it cannot. */
OWN int shim_type_pieces(const struct shim_type *type, MPI_Count copies, char *at,
                         struct shim_pieces *out);

/* memory.c: these return a class of MPI. */
OWN void shim_pieces_add(struct shim_pieces *pieces, char *at, uint64_t length);
OWN int shim_pieces_of(void *memory, MPI_Count count, MPI_Datatype datatype,
                       struct shim_pieces *pieces);
OWN int shim_pieces_unpack(struct shim_pieces *pieces, void *memory, MPI_Count count,
                           MPI_Datatype datatype);
OWN void shim_pieces_free(struct shim_pieces *pieces);

/* errors.c */
OWN int shim_class(int rfs_error);
/* These give an error to the handler of the file, and return the code for the program. */
OWN int shim_fail(struct shim_file *file, int class, const char *text);
OWN int shim_fail_without_file(int class, const char *text);
/* Tells a person, where a program looks at no code. */
OWN void shim_complain(const char *text);
/* The text for an error, if a function of rfs.h has just returned it; null otherwise. */
OWN const char *shim_text(int class);

/* agree.c: collective over the processes of a file, whatever they return. */
/* The worst class of all processes. */
OWN int shim_agree(MPI_Comm comm, int class);
/* The class that rank 0 has. */
OWN int shim_told(MPI_Comm comm, int class);
/* MPI_ERR_NOT_SAME if not all processes have the same numbers, of which there are at most 4. */
OWN int shim_same(MPI_Comm comm, const int64_t *numbers, int count);
/* The classes of both at once: the worst, or MPI_ERR_NOT_SAME. */
OWN int shim_agree_same(MPI_Comm comm, int class, const int64_t *numbers, int count);

/* table.c */
OWN void *shim_real(const char *name);
OWN struct shim_file *shim_find(MPI_File handle);
OWN int shim_proxy_open(MPI_File *handle);
OWN void shim_table_add(struct shim_file *file);
OWN void shim_table_remove(struct shim_file *file);
/* Does something for every file; none is opened or closed meanwhile. */
OWN void shim_for_each(void (*act)(struct shim_file *file, uintptr_t with), uintptr_t with);

/* fence.c */
/* Finds out whether a file is opened by a library that needs fences, from where it is called. */
OWN void shim_fence_for(struct shim_file *file, uintptr_t caller);
OWN void shim_fence_closed(const struct shim_file *file);
/* Before a collective read: what all processes have written is at the server. */
OWN void shim_fence_all(struct shim_file *file);
/* The class of an error that a fence has met: once. Its text stays in the file. */
OWN int shim_late(struct shim_file *file);

/* outside.c: tells of a file that was opened, if it was asked for. */
OWN void shim_tell_open(const struct shim_file *file);

/* open.c: the hints of an MPI_Info. The caller frees both; null without hints. */
OWN rfs_hint *shim_hints(MPI_Info info, size_t *count);
OWN void shim_hints_free(rfs_hint *hints, size_t count);

#endif
