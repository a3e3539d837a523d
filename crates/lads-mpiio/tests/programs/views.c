/* Random filetypes and memory types against plain arithmetic: views NAME SEED COUNT EXPECTED.
 *
 * In each round every process writes through a view of its own with random datatypes, and reads it
 * back. Where the bytes lie in the file is found without a shim and without MPI-IO: one copy of the
 * filetype is unpacked from bytes that carry their place in the stream. Processes have parts of the
 * file of their own. Rank 0 writes what the file must be to EXPECTED, for whoever compares.
 */
#include "check.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Each process has so many bytes of the file. */
enum { SHARE = 1 << 16 };

static uint64_t state;

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

/* Puts bytes of the stream, from a position on, where the view shows them. */
static void expect(unsigned char *share, MPI_Datatype filetype, int displacement, int position,
                   const unsigned char *bytes, int count)
{
    MPI_Aint begin, extent;
    int size;
    MPI_Type_get_extent(filetype, &begin, &extent);
    MPI_Type_size(filetype, &size);
    int32_t *places = places_of(filetype, extent, size);
    for (int copy = position / size; copy <= (position + count) / size; copy++)
        for (MPI_Aint i = 0; i < extent; i++) {
            int at = copy * size + places[i] - position;
            if (places[i] >= 0 && at >= 0 && at < count)
                share[displacement + copy * extent + i] = bytes[at];
        }
    free(places);
}

/* Memory for copies of a datatype, filled with a byte. */
static unsigned char *memory_for(MPI_Datatype type, int count, int byte, size_t *length)
{
    MPI_Aint begin, extent;
    MPI_Type_get_extent(type, &begin, &extent);
    *length = (size_t)extent * (size_t)count;
    unsigned char *memory = malloc(*length);
    memset(memory, byte, *length);
    return memory;
}

/* How many copies of the memory type fit in the part of the process. */
static int copies_that_fit(MPI_Datatype filetype, MPI_Datatype memory, int displacement,
                           int position)
{
    MPI_Aint begin, extent;
    int size, one;
    MPI_Type_get_extent(filetype, &begin, &extent);
    MPI_Type_size(filetype, &size);
    MPI_Type_size(memory, &one);
    MPI_Aint stream = (SHARE - displacement) / extent * size - position;
    return stream / one > 4 ? 1 + (int)below(4) : (int)(stream / one);
}

static void one_round(MPI_File file, unsigned char *share)
{
    has_empty_blocks = 0;
    MPI_Datatype filetype = random_type(4096);
    has_empty_blocks = 1;
    MPI_Datatype memory = random_type(2048);
    MPI_Status status;
    int displacement = (int)below(100), position = (int)below(300), one;
    int count = copies_that_fit(filetype, memory, displacement, position);
    size_t length;
    unsigned char *bytes = memory_for(memory, count, 0, &length);
    unsigned char *back = memory_for(memory, count, 0, &length);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)below(256);
    MPI_Type_size(memory, &one);
    unsigned char *packed = malloc((size_t)(count * one) + 1), *again = malloc((size_t)(count * one) + 1);
    int at = 0;
    MPI_Pack(bytes, count, memory, packed, count * one, &at, MPI_COMM_SELF);
    expect(share, filetype, displacement, position, packed, count * one);
    OK(MPI_File_set_view(file, (MPI_Offset)rank * SHARE + displacement, MPI_BYTE, filetype, "native",
                         MPI_INFO_NULL));
    if (below(2)) {
        OK(MPI_File_write_at_all(file, position, bytes, count, memory, &status));
    } else {
        OK(MPI_File_seek(file, position, MPI_SEEK_SET));
        OK(MPI_File_write_all(file, bytes, count, memory, &status));
    }
    CHECK(bytes_of(&status) == count * one);
    OK(MPI_File_read_at(file, position, back, count, memory, &status));
    CHECK(bytes_of(&status) == count * one);
    at = 0;
    MPI_Pack(back, count, memory, again, count * one, &at, MPI_COMM_SELF);
    CHECK(memcmp(packed, again, (size_t)(count * one)) == 0);
    free(bytes);
    free(back);
    free(packed);
    free(again);
    MPI_Type_free(&filetype);
    MPI_Type_free(&memory);
}

/* Rank 0 compares the file with what it must be, and keeps that for others to compare. */
static void compare(MPI_File file, const unsigned char *share, const char *expected)
{
    size_t length = (size_t)processes * SHARE;
    unsigned char *all = malloc(length), *found = calloc(1, length);
    MPI_Gather(share, SHARE, MPI_BYTE, all, SHARE, MPI_BYTE, 0, MPI_COMM_WORLD);
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_sync(file));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    if (rank == 0) {
        OK(MPI_File_read_at(file, 0, found, (int)length, MPI_BYTE, MPI_STATUS_IGNORE));
        CHECK(memcmp(all, found, length) == 0);
        FILE *out = fopen(expected, "wb");
        CHECK(out && fwrite(all, 1, length, out) == length && fclose(out) == 0);
    }
    free(all);
    free(found);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 5)
        MPI_Abort(MPI_COMM_WORLD, 2);
    state = strtoull(argv[2], NULL, 0) * 0x9e3779b97f4a7c15u + (unsigned)rank + 1;
    for (int i = 0; i < 20; i++)
        below(2);
    unsigned char *share = calloc(1, SHARE);
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_size(file, (MPI_Offset)processes * SHARE));
    for (int i = 0; i < atoi(argv[3]); i++)
        one_round(file, share);
    compare(file, share, argv[4]);
    OK(MPI_File_close(&file));
    free(share);
    int result = report("views");
    MPI_Finalize();
    return result;
}
