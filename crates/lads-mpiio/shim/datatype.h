/* A datatype, taken apart: the forms of view/datatype.rs of lads-core. */
#ifndef SHIM_DATATYPE_H
#define SHIM_DATATYPE_H

#include "shim.h"

enum shape { BYTES, RESIZED, VECTOR, INDEXED, STRUCT, SUBARRAY, DARRAY };

struct part {
    uint64_t copies;
    int64_t at;
    struct shim_type *of;
};

struct dimension {
    uint64_t size;
    /* Of a subarray. */
    uint64_t length, start;
    /* Of a darray: 0 block, 1 cyclic, 2 none. */
    unsigned char distribution;
    uint64_t argument, processes;
};

struct shim_type {
    enum shape shape;
    MPI_Count begin, extent, size;
    /* All its bytes are one run, from `first` on. */
    int is_run;
    MPI_Count first;
    /* What it is made of, but for a struct. */
    struct shim_type *of;
    /* Of a vector. */
    uint64_t count, copies;
    int64_t stride;
    /* Of an indexed type (without `of`) and a struct. */
    size_t part_count;
    struct part *parts;
    /* Of an array. */
    int is_fortran;
    uint64_t rank;
    size_t dimension_count;
    struct dimension *dimensions;
};

#endif
