/* Two processes, of which the second has a slow line: behind NAME, or behind NAME lost if that line is
 * cut while it writes.
 *
 * What the second has written is on its way when both call a function that is collective.
 */
#include "check.h"
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 4 << 20 };

static unsigned char *bytes, *back;

static MPI_File fresh(const char *name)
{
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    OK(MPI_File_set_size(file, 0));
    return file;
}

static void write_behind(MPI_File file, int value)
{
    memset(bytes, value, LENGTH);
    if (rank == 1)
        OK(MPI_File_write_at(file, 5, bytes, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
}

static MPI_Offset size_of(MPI_File file)
{
    MPI_Offset size = -1;
    OK(MPI_File_get_size(file, &size));
    return size;
}

/* The size is changed after everything that any process has written before. */
static void sizes(const char *name)
{
    MPI_File file = fresh(name);
    write_behind(file, 1);
    OK(MPI_File_set_size(file, 5));
    CHECK(size_of(file) == 5);
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(size_of(file) == 5);
    MPI_Barrier(MPI_COMM_WORLD);
    write_behind(file, 2);
    OK(MPI_File_preallocate(file, 10));
    CHECK(size_of(file) == LENGTH + 5);
    OK(MPI_File_close(&file));
}

/* Whether a process reads only this value. */
static int has_only(MPI_File file, int reader, int value)
{
    int is_right = 1;
    if (rank == reader) {
        memset(back, 0xff, LENGTH);
        OK(MPI_File_read_at(file, 5, back, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
        is_right = back[0] == value && memcmp(back, back + 1, LENGTH - 1) == 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return is_right;
}

/* What was written before atomic mode is seen in it; and what is written in it, at once: nothing is kept of what
 * was read, also by a process whose server has no locks. */
static void atomic_mode(const char *name)
{
    MPI_File file = fresh(name);
    write_behind(file, 3);
    OK(MPI_File_set_atomicity(file, 1));
    for (int reader = 0; reader < 2; reader++)
        CHECK(has_only(file, reader, 3));
    write_behind(file, 4);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int reader = 0; reader < 2; reader++)
        CHECK(has_only(file, reader, 4));
    memset(bytes, 5, LENGTH);
    if (rank == 0)
        OK(MPI_File_write_at(file, 5, bytes, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(has_only(file, 1, 5));
    OK(MPI_File_set_atomicity(file, 0));
    CHECK(has_only(file, 0, 5));
    OK(MPI_File_close(&file));
}

/* Whether both processes have an error of the same class and with the same text, which is not empty. */
static void same_error(int code)
{
    char text[MPI_MAX_ERROR_STRING] = "", other[MPI_MAX_ERROR_STRING] = "";
    int length = 0, class = class_of(code), first = class;
    CHECK(code != MPI_SUCCESS);
    MPI_Error_string(code, text, &length);
    memcpy(other, text, sizeof other);
    MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(other, MPI_MAX_ERROR_STRING, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(class == first && length > 0 && strcmp(text, other) == 0);
    CHECK(strstr(text, "server") != NULL);
}

static void lost(const char *name)
{
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    if (rank == 1)
        MPI_File_write_at(file, 5, bytes, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE);
    same_error(MPI_File_sync(file));
    same_error(MPI_File_set_size(file, 7));
    same_error(MPI_File_preallocate(file, 7));
    same_error(MPI_File_set_atomicity(file, 1));
    same_error(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    bytes = malloc(LENGTH);
    back = malloc(LENGTH);
    if (argc > 2) {
        lost(argv[1]);
    } else {
        sizes(argv[1]);
        atomic_mode(argv[1]);
    }
    free(bytes);
    free(back);
    int code = report("behind");
    MPI_Finalize();
    return code;
}
