/* An access to a file, from its arguments to its end: transfer.c and pending.c. */
#ifndef SHIM_TRANSFER_H
#define SHIM_TRANSFER_H

#include "shim.h"

enum place { INDIVIDUAL, EXPLICIT, SHARED, ORDERED };

enum kind { WRITE, READ, READ_TOGETHER };

struct access {
    enum kind kind;
    enum place place;
    MPI_Offset offset;
    void *memory;
    MPI_Count count;
    MPI_Datatype datatype;
};

/* The numbers of bytes that an access has moved. */
struct moved {
    /* In the file, at positions of the view. */
    uint64_t in_file;
    /* In memory, which MPI_Get_count divides by the size of a datatype. */
    uint64_t in_memory;
};

/* An access whose place is known. */
struct work {
    struct access access;
    uint64_t position, bytes;
    /* The memory of the program. */
    struct shim_pieces pieces;
    /* The datatype, and a buffer with the data in external32; else null. */
    struct shim_type *type;
    unsigned char *external;
    struct moved moved;
    /* The datatype is a copy. */
    int owns_datatype;
    int class;
    char text[MPI_MAX_ERROR_STRING];
};

/* transfer.c */
/* Reads or writes. Any thread may do it: no function of the MPI is called. */
OWN void shim_work_run(struct shim_file *file, struct work *work);
/* Does what is left, and frees what the work has. Returns a code, after the error handler. */
OWN int shim_work_finish(struct shim_file *file, struct work *work);
/* So that MPI_Get_count returns the number of these bytes. */
OWN void shim_status(MPI_Status *status, uint64_t bytes);

/* pending.c: takes over a work. */
/* Returns a class. */
OWN int shim_read_start(struct shim_file *file, const struct work *work, MPI_Request *request);
/* Null if there is no memory. */
OWN struct shim_read *shim_read_begin(struct shim_file *file, const struct work *work);
/* Returns a code, and the number of bytes in memory. */
OWN int shim_read_end(struct shim_read *read, uint64_t *bytes);

#endif
