/* Random filetypes and memory types against plain arithmetic: views NAME SEED COUNT EXPECTED.
 *
 * In each round every process writes through a view of its own with random datatypes, and reads it
 * back. Where the bytes lie in the file is found without a shim and without MPI-IO: one copy of the
 * filetype is unpacked from bytes that carry their place in the stream. Processes have parts of the
 * file of their own. Rank 0 writes what the file must be to EXPECTED, for whoever compares.
 */
#include "random_types.h"

/* Each process has so many bytes of the file. */
enum { SHARE = 1 << 16 };

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
    seed(64 * strtoull(argv[2], NULL, 0) + (unsigned)rank);
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
