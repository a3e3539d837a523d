/* Random datatypes, and where their bytes lie, found without MPI-IO. */
#ifndef RANDOM_TYPES_H
#define RANDOM_TYPES_H

#include "check.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

/* Another stream of numbers for each key. */
static void seed(uint64_t key)
{
    state = key * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 20; i++)
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
}

/* ROMIO takes filetypes with blocks without copies for ones that are not in order. */
static int has_empty_blocks;

static unsigned below(unsigned limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 20) % limit);
}

/* Copies in a block. */
static int some(unsigned limit)
{
    return has_empty_blocks ? (int)below(limit) : 1 + (int)below(limit - 1);
}

static MPI_Datatype replaced(MPI_Datatype old, MPI_Datatype new)
{
    MPI_Type_free(&old);
    return new;
}

static MPI_Datatype vector(MPI_Datatype old, MPI_Aint extent)
{
    MPI_Datatype new;
    int copies = 1 + (int)below(3);
    if (below(2))
        MPI_Type_vector(1 + (int)below(4), copies, copies + (int)below(3), old, &new);
    else
        MPI_Type_create_hvector(1 + (int)below(4), copies, copies * extent + (int)below(9), old,
                                &new);
    return new;
}

static MPI_Datatype indexed(MPI_Datatype old, MPI_Aint extent)
{
    int copies[4], places[4], at = (int)below(3), count = 1 + (int)below(4);
    MPI_Aint byte_places[4];
    int form = (int)below(4), block = 1 + (int)below(2);
    for (int i = 0; i < count; i++) {
        copies[i] = form < 2 ? some(3) : block;
        places[i] = at;
        byte_places[i] = at * extent + i;
        at += copies[i] + (int)below(3);
    }
    /* A type without bytes has nothing to try. */
    copies[0] = copies[0] ? copies[0] : (count > 1 && places[1] == places[0] ? 0 : 1);
    MPI_Datatype new;
    switch (form) {
    case 0: MPI_Type_indexed(count, copies, places, old, &new); break;
    case 1: MPI_Type_create_hindexed(count, copies, byte_places, old, &new); break;
    case 2: MPI_Type_create_indexed_block(count, block, places, old, &new); break;
    default: MPI_Type_create_hindexed_block(count, block, byte_places, old, &new);
    }
    return new;
}

static MPI_Datatype structure(MPI_Datatype old, MPI_Aint extent)
{
    MPI_Datatype types[3] = {MPI_SHORT_INT, old, MPI_CHAR}, new;
    int copies[3] = {1 + (int)below(2), 1 + (int)below(2), some(4)};
    MPI_Aint first = copies[0] * 8 + (int)below(5);
    MPI_Aint places[3] = {0, first, first + copies[1] * extent + (int)below(3)};
    MPI_Type_create_struct(3, copies, places, types, &new);
    return new;
}

static MPI_Datatype subarray(MPI_Datatype old)
{
    int sizes[3], lengths[3], starts[3], dimensions = 1 + (int)below(3);
    for (int i = 0; i < dimensions; i++) {
        sizes[i] = 1 + (int)below(4);
        lengths[i] = 1 + (int)below((unsigned)sizes[i]);
        starts[i] = (int)below((unsigned)(sizes[i] - lengths[i] + 1));
    }
    MPI_Datatype new;
    MPI_Type_create_subarray(dimensions, sizes, lengths, starts,
                             below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old, &new);
    return new;
}

/* The first process of a grid has a share, whatever the sizes are. */
static MPI_Datatype darray(MPI_Datatype old)
{
    static const int ways[3] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
    int sizes[2], distributions[2], arguments[2], grid[2], all = 1;
    for (int i = 0; i < 2; i++) {
        distributions[i] = ways[below(3)];
        grid[i] = distributions[i] == MPI_DISTRIBUTE_NONE ? 1 : 1 + (int)below(2);
        sizes[i] = 2 * grid[i] + (int)below(4);
        arguments[i] = distributions[i] == MPI_DISTRIBUTE_CYCLIC && below(2)
                           ? 1 + (int)below(2)
                           : MPI_DISTRIBUTE_DFLT_DARG;
        all *= grid[i];
    }
    MPI_Datatype new;
    /* Open MPI 4.1 refuses some. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Type_create_darray(all, (int)below((unsigned)all), 2, sizes, distributions,
                                      arguments, grid, below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN,
                                      old, &new);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (code != MPI_SUCCESS)
        MPI_Type_dup(old, &new);
    return new;
}

static MPI_Datatype resized(MPI_Datatype old)
{
    MPI_Aint begin, extent, first, length;
    MPI_Datatype new;
    MPI_Type_get_extent(old, &begin, &extent);
    MPI_Type_get_true_extent(old, &first, &length);
    MPI_Type_create_resized(old, 0, first + length + (int)below(20), &new);
    return new;
}

static MPI_Datatype grown(MPI_Datatype old)
{
    MPI_Aint begin, extent;
    MPI_Datatype new;
    MPI_Type_get_extent(old, &begin, &extent);
    switch (below(7)) {
    case 0: return replaced(old, vector(old, extent));
    case 1: return replaced(old, indexed(old, extent));
    case 2: return replaced(old, structure(old, extent));
    case 3: return replaced(old, subarray(old));
    case 4: return replaced(old, darray(old));
    case 5: return replaced(old, resized(old));
    default: MPI_Type_contiguous(1 + (int)below(3), old, &new); return replaced(old, new);
    }
}

/* For each byte of a copy of the type from its origin on: its place in the stream, or -1. It is
 * unpacked three times: a byte holds the low or the high half of a place, or that there is one. */
static int32_t *places_of(MPI_Datatype type, MPI_Aint extent, int size)
{
    int32_t *places = malloc((size_t)extent * sizeof *places);
    unsigned char *packed = malloc((size_t)size), *memory = malloc((size_t)extent);
    for (MPI_Aint i = 0; i < extent; i++)
        places[i] = 0;
    for (int part = 0; part < 3; part++) {
        int at = 0;
        for (int i = 0; i < size; i++)
            packed[i] = part == 2 ? 1 : (unsigned char)(i >> (8 * part));
        memset(memory, 0, (size_t)extent);
        MPI_Unpack(packed, size, &at, memory, 1, type, MPI_COMM_SELF);
        for (MPI_Aint i = 0; i < extent; i++)
            places[i] = part < 2 ? places[i] | memory[i] << (8 * part) : memory[i] ? places[i] : -1;
    }
    free(packed);
    free(memory);
    return places;
}

/* Whether the bytes lie in the order of the stream, each once: a filetype must (MPI 4.0, 14.3). */
static int is_in_order(MPI_Datatype type, MPI_Aint extent, int size)
{
    int32_t *places = places_of(type, extent, size), next = 0;
    for (MPI_Aint i = 0; i < extent; i++)
        if (places[i] == next)
            next++;
        else if (places[i] >= 0)
            next = INT32_MIN;
    free(places);
    return next == size;
}

/* A random datatype with bytes, of at most so many from its first to its last. */
static MPI_Datatype random_type(MPI_Aint limit)
{
    static MPI_Datatype leaves[6];
    leaves[0] = MPI_BYTE, leaves[1] = MPI_INT, leaves[2] = MPI_DOUBLE;
    leaves[3] = MPI_DOUBLE_INT, leaves[4] = MPI_SHORT_INT, leaves[5] = MPI_2INT;
    for (;;) {
        MPI_Datatype type;
        MPI_Type_dup(leaves[below(6)], &type);
        for (unsigned levels = below(4); levels > 0; levels--)
            type = grown(type);
        MPI_Aint begin, extent, first, length;
        int size;
        MPI_Type_commit(&type);
        MPI_Type_size(type, &size);
        MPI_Type_get_extent(type, &begin, &extent);
        MPI_Type_get_true_extent(type, &first, &length);
        if (size > 0 && first >= 0 && first + length <= extent && extent <= limit && begin == 0 &&
            is_in_order(type, extent, size))
            return type;
        MPI_Type_free(&type);
    }
}

#endif
