/* A datatype, taken apart: the forms of view/datatype.rs of lads-core. */
#ifndef SHIM_DATATYPE_H
#define SHIM_DATATYPE_H

#include "shim.h"

enum shape { BYTES, RESIZED, VECTOR, INDEXED, STRUCT, SUBARRAY, DARRAY };

/* What a predefined datatype consists of. */
enum element_kind {
    /* It is not predefined, or has no form in external32. */
    UNKNOWN,
    OPAQUE,
    SIGNED,
    UNSIGNED,
    /* With the format of IEEE for its size. */
    FLOATING,
    /* A long double of C. */
    LONG_DOUBLE
};

struct element {
    enum element_kind kind;
    /* The number of values, and the bytes of each in external32. */
    unsigned char values, external;
};

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
    /* Of a predefined datatype; one that has two kinds of values has them as its parts. */
    struct element element;
    int is_pair;
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

/* external.c */
OWN struct element shim_element_of(MPI_Datatype datatype);
/* The element of a datatype that MPI_Type_create_f90_x made from these numbers. */
OWN struct element shim_element_of_f90(int combiner, int64_t first, int64_t second);

#endif
