/* What the parts of the shim share.
 *
 * The shim stands between an MPI program and its MPI library: it defines MPI_File_x and
 * PMPI_File_x. PMPI as well, because the Fortran layers of MPICH and Open MPI call PMPI_File_x
 * across a library boundary: so no Fortran code is needed here. A file with a name that is not
 * remote goes on to the library, whatever is done with it.
 *
 * In reading order: datatype.c, external.c, layout.c, memory.c (what is read and written), errors.c, agree.c and
 * shared.c (what the processes of a file agree on and share), table.c (which handles are ours), open.c, view.c,
 * manage.c, transfer.c with transfer.inc, pending.c, fence.c, outside.c.
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

/* The data representation that is converted. */
#define EXTERNAL32 "external32"

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
    /* The view, as the program has set it: where it begins, and its datatypes. */
    MPI_Offset displacement;
    MPI_Datatype etype, filetype;
    /* The name of the data representation of the view; not null. */
    const char *datarep;
    /* The filetype has no bytes: nothing can be read or written. */
    int is_view_empty;
    int is_atomic;
    /* Each process of the file has a server of its own: a server shares nothing between them. */
    int is_apart;
    /* At least one process of the file has the hint rfs_consistency=local. */
    int is_fenced;
    /* The memory of shared.c; null if the processes of the file run on several hosts. */
    struct shim_shared *shared;
    /* This process has moved the shared pointer since it was last set to 0. */
    atomic_int is_shared_moved;
    /* Protects what follows: a program may use a file from several threads. */
    pthread_mutex_t lock;
    /* The individual pointer: in bytes of the view. */
    int64_t pointer;
    enum shim_split split;
    uint64_t split_bytes;
    /* Of a split collective read. */
    struct shim_read *split_read;
};

/* A read that is pending. */
struct shim_read;

/* What the processes of a file share on one host. */
struct shim_shared;

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
/* The datatype as external32 lays it out in the file; null if it has no such form. */
OWN struct shim_type *shim_external_type_of(MPI_Datatype datatype);
OWN void shim_type_free(struct shim_type *type);
/* Whether the program must not free it. */
OWN int shim_is_predefined(MPI_Datatype datatype);
OWN MPI_Count shim_type_extent(const struct shim_type *type);

/* layout.c */
OWN void shim_type_write(const struct shim_type *type, struct shim_bytes *out);
/* Adds the bytes of copies that begin at an address. Returns 0 if it cannot. */
OWN int shim_type_pieces(const struct shim_type *type, MPI_Count copies, char *at,
                         struct shim_pieces *out);

/* external.c */
enum shim_direction { TO_FILE, FROM_FILE };
/* The bytes of a datatype in external32; -1 if it has no such form. */
OWN MPI_Count shim_external_bytes(const struct shim_type *type);
/* Converts between memory and data in external32. Returns the number of bytes of memory. */
OWN uint64_t shim_external_convert(const struct shim_type *type, uint64_t copies,
                                   const struct shim_pieces *pieces, unsigned char *external,
                                   uint64_t external_bytes, enum shim_direction direction);

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
/* Gives the worst error of all processes of the file to each, with its text. Collective. */
OWN int shim_fail_together(struct shim_file *file, int own, const char *own_text);
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
/* The worst class of all processes, and the text of the first of them that has one for it. */
OWN int shim_agree_text(MPI_Comm comm, int own, const char *own_text,
                        char text[MPI_MAX_ERROR_STRING]);

/* shared.c */
OWN extern const char *const SHIM_NOTHING_SHARED;
/* Rank 0 makes the shared memory of a group of processes, the others join it, and when all have, rank 0
 * removes its name. */
OWN void shim_shared_make(struct shim_file *file, const uint8_t group[16]);
OWN void shim_shared_join(struct shim_file *file, const uint8_t group[16]);
OWN void shim_shared_hide(const uint8_t group[16]);
OWN void shim_shared_leave(struct shim_file *file);
/* Whether the processes of the file have neither a shared pointer nor a lock. */
OWN int shim_shares_nothing(const struct shim_file *file);
/* Adds to the shared pointer, in bytes of the view. Returns a class. */
OWN int shim_pointer_add(struct shim_file *file, int64_t bytes, uint64_t *before);
OWN int shim_pointer_set(struct shim_file *file, int64_t position);
/* Around each access: keeps those of atomic mode apart, unless the server does. */
OWN void shim_lock(struct shim_file *file);
OWN void shim_unlock(struct shim_file *file);

/* table.c */
OWN void *shim_real(const char *name);
OWN struct shim_file *shim_find(MPI_File handle);
OWN int shim_proxy_open(MPI_File *handle);
OWN void shim_table_add(struct shim_file *file);
OWN void shim_table_remove(struct shim_file *file);

/* fence.c: to be called after each change of a file that others must see when they receive a message. */
OWN void shim_changed(const struct shim_file *file);

/* pending.c: waits until no thread reads from the file. */
OWN void shim_reads_wait(const struct shim_file *file);

/* outside.c: tells of a file that was opened, if it was asked for. */
OWN void shim_tell_open(const struct shim_file *file);

/* view.c: the bytes of a datatype in the file, by the data representation; -1 if it has no form there. */
OWN MPI_Count shim_bytes_in_file(const char *datarep, MPI_Datatype datatype);
OWN int shim_is_external(const struct shim_file *file);
OWN void shim_release_datatypes(struct shim_file *file);

/* open.c: what MPI_File_open adds to the amode of remote files on this thread, and whether such a file
 * existed that must be new. */
extern OWN __thread int shim_extra_amode, shim_has_existed;

/* open.c: the hints of an MPI_Info. The caller frees both; null without hints. */
OWN rfs_hint *shim_hints(MPI_Info info, size_t *count);
OWN void shim_hints_free(rfs_hint *hints, size_t count);

#endif
