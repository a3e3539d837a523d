/* Places and counts that do not fit into an int: large NAME [all].
 *
 * The file has holes, so it takes little room. With `all`, more than 2 GiB are written by one call.
 */
#include "check.h"
#include <string.h>
#include <sys/mman.h>

static const MPI_Count GIB = 1 << 30;

static MPI_Count elements_of(MPI_Status *status)
{
    MPI_Count count = -2;
    MPI_Get_elements_x(status, MPI_BYTE, &count);
    return count;
}

/* Blocks 3 GiB apart, and positions in etypes beyond 2^31. */
static void places(MPI_File file)
{
    MPI_Datatype far;
    MPI_Status status;
    MPI_Offset at, size;
    int values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8] = {0};
    MPI_Type_create_hvector(4, 2, 3 * GIB, MPI_INT, &far);
    MPI_Type_commit(&far);
    OK(MPI_File_set_view(file, 4096, MPI_INT, far, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at(file, 0, values, 8, MPI_INT, &status));
    OK(MPI_File_read_at(file, 0, back, 8, MPI_INT, &status));
    CHECK(memcmp(values, back, sizeof values) == 0);
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 4096 + 9 * GIB + 8);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, (4096 + 9 * GIB) / 4, back, 8, MPI_INT, &status));
    CHECK(elements_of(&status) == 8 && back[0] == 7 && back[1] == 8);
    OK(MPI_File_seek(file, 3 * GIB, MPI_SEEK_SET));
    OK(MPI_File_write(file, values, 8, MPI_INT, &status));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 3 * GIB + 8);
    OK(MPI_File_seek(file, -8, MPI_SEEK_END));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 3 * GIB);
    OK(MPI_File_seek_shared(file, 3 * GIB + 1, MPI_SEEK_SET));
    OK(MPI_File_read_shared(file, back, 1, MPI_INT, &status));
    CHECK(back[0] == 2);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 3 * GIB + 2);
    MPI_Type_free(&far);
}

/* 3 GiB are asked for where the file ends after 32 bytes: of the memory no more is used. */
static void counts(MPI_File file)
{
    MPI_Status status;
    MPI_Datatype block;
    char *memory = mmap(NULL, 3 * (size_t)GIB, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    MPI_Type_contiguous((int)GIB, MPI_BYTE, &block);
    MPI_Type_commit(&block);
    OK(MPI_File_read_at(file, 3 * GIB, memory, 3, block, &status));
    CHECK(elements_of(&status) == 32 && memory[28] == 8);
    memset(memory, 0, 32);
#if MPI_VERSION >= 4
    OK(MPI_File_read_at_c(file, 3 * GIB, memory, 3 * GIB, MPI_BYTE, &status));
    CHECK(elements_of(&status) == 32 && memory[28] == 8);
#endif
    MPI_Type_free(&block);
    munmap(memory, 3 * (size_t)GIB);
}

/* The same MiB of memory, again and again. */
static void bytes(MPI_File file)
{
    enum { MIB = 1 << 20, COUNT = 2304 };
    static char memory[MIB], back[MIB];
    MPI_Datatype block, again;
    MPI_Status status;
    MPI_Offset size;
    for (int i = 0; i < MIB; i++)
        memory[i] = (char)(i / 7);
    MPI_Type_contiguous(MIB, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, 0, &again);
    MPI_Type_commit(&again);
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at(file, 0, memory, COUNT, again, &status));
    CHECK(elements_of(&status) == (MPI_Count)COUNT * MIB);
    OK(MPI_File_read_at(file, (MPI_Offset)(COUNT - 1) * MIB, back, MIB, MPI_BYTE, &status));
    CHECK(memcmp(memory, back, MIB) == 0);
    OK(MPI_File_get_size(file, &size));
    CHECK(size == (MPI_Offset)COUNT * MIB);
    MPI_Type_free(&again);
    MPI_Type_free(&block);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc < 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                     &file));
    places(file);
    counts(file);
    if (argc == 3)
        bytes(file);
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_close(&file));
    int result = report("large");
    MPI_Finalize();
    return result;
}
