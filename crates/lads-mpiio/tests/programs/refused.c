/* Errors as the MPI in use gives them for its own files: refused NAME LOCAL.
 *
 * The same is done with a remote file and with a local one, and must have the same class. Also: an error
 * that only one process meets has its reason on all of them.
 */
#include "check.h"
#include <stdint.h>
#include <string.h>

static MPI_File remote, local;

static void open_both(char **names, int amode)
{
    OK(MPI_File_open(MPI_COMM_WORLD, names[1], amode, MPI_INFO_NULL, &remote));
    OK(MPI_File_open(MPI_COMM_WORLD, names[2], amode, MPI_INFO_NULL, &local));
}

static void close_both(void)
{
    OK(MPI_File_close(&remote));
    OK(MPI_File_close(&local));
}

/* Whether a filetype is refused. Of one that only overlaps, every MPI but Open MPI reads. */
static void filetype(MPI_Datatype type, int is_refused)
{
    MPI_Type_commit(&type);
    int own = MPI_File_set_view(local, 0, MPI_INT, type, "native", MPI_INFO_NULL);
    int code = MPI_File_set_view(remote, 0, MPI_INT, type, "native", MPI_INFO_NULL);
    if (is_refused)
        CHECK(code != MPI_SUCCESS && class_of(code) == class_of(own));
    else
        CHECK(code == MPI_SUCCESS);
    MPI_Type_free(&type);
}

static void filetypes(int is_writable)
{
    int copies[2] = {1, 1};
    MPI_Aint back[2] = {64, 0}, same[2] = {0, 0}, apart[2] = {0, 64};
    MPI_Datatype type;
    MPI_Type_create_hvector(3, 2, 4, MPI_INT, &type);
    filetype(type, is_writable);
    MPI_Type_create_hindexed(2, copies, same, MPI_INT, &type);
    filetype(type, is_writable);
    MPI_Type_create_hindexed(2, copies, back, MPI_INT, &type);
    filetype(type, 1);
    MPI_Type_create_hindexed(2, copies, apart, MPI_INT, &type);
    filetype(type, 0);
}

static int handled;

/* Gives another code to the program. */
static void change(MPI_File *file, int *code, ...)
{
    (void)file;
    handled++;
    *code = MPI_ERR_QUOTA;
}

/* The default handler of files is released by the program, and is the first that an error reaches. */
static void default_handler(const char *missing)
{
    MPI_Errhandler handler;
    MPI_File none;
    OK(MPI_File_create_errhandler(change, &handler));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, handler));
    OK(MPI_Errhandler_free(&handler));
    MPI_File_open(MPI_COMM_WORLD, missing, MPI_MODE_RDONLY, MPI_INFO_NULL, &none);
    CHECK(handled == 1);
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
}

static void handlers(char **names)
{
    MPI_Errhandler handler;
    MPI_File none;
    OK(MPI_File_create_errhandler(change, &handler));
    OK(MPI_File_set_errhandler(remote, handler));
    OK(MPI_File_set_errhandler(local, handler));
    char byte = 0;
    handled = 0;
    int own = class_of(MPI_File_write_at(local, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
    int is_changed = own == MPI_ERR_QUOTA;
    CHECK(handled == 1);
    int class = class_of(MPI_File_write_at(remote, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(handled == 2 && class == (is_changed ? MPI_ERR_QUOTA : MPI_ERR_READ_ONLY));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, handler));
    char missing[4096];
    snprintf(missing, sizeof missing, "%s.none", names[1]);
    class = class_of(MPI_File_open(MPI_COMM_WORLD, missing, MPI_MODE_RDONLY, MPI_INFO_NULL, &none));
    CHECK(handled == 3 && class == (is_changed ? MPI_ERR_QUOTA : MPI_ERR_NO_SUCH_FILE));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    OK(MPI_File_set_errhandler(remote, MPI_ERRORS_RETURN));
    OK(MPI_File_set_errhandler(local, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&handler));
}

/* Only rank 0 meets the error. */
static void reason(const char *name, int amode, const char *expected)
{
    MPI_File none;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    int code = MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &none);
    CHECK(code != MPI_SUCCESS);
    MPI_Error_string(code, text, &length);
    CHECK(strstr(text, expected) != NULL);
}

/* Positions and sizes at the end of what an MPI_Offset can be. */
static void limits(void)
{
    const MPI_Offset most = INT64_MAX;
    MPI_Offset at = -1, size = -1;
    int value = 1;
    MPI_File file = remote;
    OK(MPI_File_set_size(file, 10));
    OK(MPI_File_preallocate(file, 0));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 10);
    int code = MPI_File_set_view(file, -1, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), length;
    char text[MPI_MAX_ERROR_STRING] = "";
    MPI_Error_string(code, text, &length);
    CHECK(class_of(code) == MPI_ERR_ARG && strstr(text, "displacement") != NULL);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    FAILS(MPI_ERR_ARG, MPI_File_write_at(file, most / 2, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_File_read_at(file, most / 4, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_File_seek(file, most, MPI_SEEK_SET));
    FAILS(MPI_ERR_ARG, MPI_File_get_byte_offset(file, most, &at));
    OK(MPI_File_seek(file, most / 4, MPI_SEEK_SET));
    FAILS(MPI_ERR_ARG, MPI_File_write(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == most / 4);
    FAILS(MPI_ERR_ARG, MPI_File_seek_shared(file, most, MPI_SEEK_SET));
    OK(MPI_File_seek_shared(file, most / 4, MPI_SEEK_SET));
    FAILS(MPI_ERR_ARG, MPI_File_write_shared(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_File_write_ordered(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == most / 4);
    /* No process has too many bytes, but all of them together. */
    MPI_Datatype row;
    MPI_Type_contiguous(1 << 30, MPI_DOUBLE, &row);
    MPI_Type_commit(&row);
    if (processes > 1)
        FAILS(MPI_ERR_ARG,
              MPI_File_write_ordered(file, &value, (1 << 30) - 1, row, MPI_STATUS_IGNORE));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == most / 4);
    MPI_Type_free(&row);
    OK(MPI_File_sync(file));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 10);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    int modes[3] = {MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_MODE_WRONLY, MPI_MODE_RDONLY};
    char missing[4096];
    snprintf(missing, sizeof missing, "%s.none", argv[1]);
    default_handler(missing);
    for (int i = 0; i < 3; i++) {
        open_both(argv, modes[i]);
        filetypes(modes[i] != MPI_MODE_RDONLY);
        if (modes[i] == MPI_MODE_RDONLY)
            handlers(argv);
        if (i == 0)
            limits();
        close_both();
    }
    reason(missing, MPI_MODE_RDONLY, "No such file");
    reason(argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, "File exists");
    int code = report("refused");
    MPI_Finalize();
    return code;
}
