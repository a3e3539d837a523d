/* Relative names of files of this host, and a program that changes its working directory: chdir
 * DIRECTORY. In the directory are two, there and other. Each file is opened in there, and closed in
 * other, which has a file of the same name.
 */
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes a file with one byte. */
static void make(const char *name)
{
    int made = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    CHECK(made >= 0 && write(made, "x", 1) == 1);
    close(made);
}

/* The length of a file; -1 if there is none. */
static long length_of(const char *name)
{
    struct stat status;
    return stat(name, &status) == 0 ? (long)status.st_size : -1;
}

static void enter(const char *directory)
{
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(chdir(directory) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static MPI_Info hints(int is_deferred)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "rfs_defer_open", is_deferred ? "true" : "false");
    MPI_Info_set(info, "rfs_defer_close", is_deferred ? "true" : "false");
    return info;
}

/* What is written goes into the file that was opened. */
static void writing(MPI_Info info, const char *name, const char *path)
{
    MPI_File file;
    int values[64] = {rank};
    enter("there");
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file));
    enter("../other");
    OK(MPI_File_write_at(file, rank * (MPI_Offset)sizeof values, values, 64, MPI_INT,
                         MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    OK(MPI_File_close(&file));
    enter("..");
    char there[64], other[64];
    snprintf(there, sizeof there, "there/%s", path);
    snprintf(other, sizeof other, "other/%s", path);
    CHECK(length_of(there) == (long)sizeof values * processes);
    CHECK(length_of(other) == 1);
}

/* A file is deleted that is still being closed, or is deleted when it is closed. */
static void deleting(MPI_Info info)
{
    MPI_File file;
    int amode = MPI_MODE_RDWR | MPI_MODE_CREATE;
    enter("there");
    OK(MPI_File_open(MPI_COMM_WORLD, "abt:gone", amode | MPI_MODE_DELETE_ON_CLOSE, info, &file));
    enter("../other");
    OK(MPI_File_close(&file));
    enter("..");
    CHECK(length_of("there/gone") == -1);
    CHECK(length_of("other/gone") == 1);
    enter("there");
    OK(MPI_File_open(MPI_COMM_WORLD, "abt:gone", amode, info, &file));
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        OK(MPI_File_delete("abt:gone", info));
    enter("..");
    CHECK(length_of("there/gone") == -1);
    CHECK(length_of("other/gone") == 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    CHECK(chdir(argv[1]) == 0);
    if (rank == 0) {
        CHECK(mkdir("there", 0755) == 0 && mkdir("other", 0755) == 0);
        make("other/file");
        make("other/gone");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int is_deferred = 0; is_deferred < 2; is_deferred++) {
        MPI_Info info = hints(is_deferred);
        writing(info, "abt:file", "file");
        MPI_Info_set(info, "rfs_abt", "true");
        writing(info, "file", "file");
        deleting(info);
        MPI_Info_free(&info);
    }
    int code = report("chdir");
    MPI_Finalize();
    return code;
}
