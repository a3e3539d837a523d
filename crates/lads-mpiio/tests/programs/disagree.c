/* Processes that do not agree, as a program with a mistake has them: disagree NAME LOCAL.
 *
 * Every call ends on every process, with an error where there must be one, and the file can be used
 * afterwards. NAME is remote, LOCAL is not.
 */
#include "check.h"
#include <string.h>

enum { N = 16 };

static void opening(const char *name, const char *local)
{
    MPI_File file = MPI_FILE_NULL;
    char other[4096];
    int make = MPI_MODE_RDWR | MPI_MODE_CREATE;
    FAILS(MPI_ERR_NOT_SAME, MPI_File_open(MPI_COMM_WORLD, rank == 0 ? name : local, make,
                                          MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_NOT_SAME, MPI_File_open(MPI_COMM_WORLD, rank == 0 ? local : name, make,
                                          MPI_INFO_NULL, &file));
    snprintf(other, sizeof other, "%s%d", name, rank);
    FAILS(MPI_ERR_NOT_SAME, MPI_File_open(MPI_COMM_WORLD, other, make, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_NOT_SAME, MPI_File_open(MPI_COMM_WORLD, name, rank == 0 ? make : MPI_MODE_RDWR,
                                          MPI_INFO_NULL, &file));
    CHECK(file == MPI_FILE_NULL);
    /* Each process alone has one of its own. */
    OK(MPI_File_open(MPI_COMM_SELF, rank == 0 ? name : local, make, MPI_INFO_NULL, &file));
    OK(MPI_File_close(&file));
}

/* Whether the view of all is refused, if that of one is. */
static void refused(MPI_File file, MPI_Datatype etype, MPI_Datatype filetype)
{
    MPI_Datatype own[2] = {rank == 0 ? etype : MPI_INT, rank == 0 ? filetype : MPI_INT};
    int values[N] = {0}, refusals[2], all[2];
    int code = MPI_File_set_view(file, 0, own[0], own[1], "native", MPI_INFO_NULL);
    /* What the library does not refuse, the server does: at the latest a sync fails everywhere. */
    if (code == MPI_SUCCESS) {
        MPI_File_write_at(file, 0, values, rank == 0 ? N : 0, MPI_INT, MPI_STATUS_IGNORE);
        code = MPI_File_sync(file);
    }
    refusals[0] = refusals[1] = code != MPI_SUCCESS;
    MPI_Allreduce(refusals, all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    CHECK(all[0] == 1);
}

static void views(MPI_File file)
{
    MPI_Datatype empty;
    int values[N], read[N] = {0};
    MPI_Type_contiguous(0, MPI_INT, &empty);
    MPI_Type_commit(&empty);
    refused(file, MPI_DOUBLE, MPI_INT);
    refused(file, MPI_DATATYPE_NULL, MPI_INT);
    refused(file, empty, MPI_INT);
    for (int i = 0; i < N; i++)
        values[i] = 100 * rank + i;
    OK(MPI_File_set_view(file, 4 * N * rank, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_all(file, values, N, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all(file, 0, read, N, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(memcmp(values, read, sizeof values) == 0);
    MPI_Type_free(&empty);
}

/* A filetype that goes back. Not every library looks at it; what has failed at the server is not to
 * be used any more, and the close says so, too. */
static void wrong_order(MPI_File *file)
{
    MPI_Datatype back;
    int copies[2] = {1, 1};
    MPI_Aint places[2] = {64, 0};
    MPI_Type_create_hindexed(2, copies, places, MPI_INT, &back);
    MPI_Type_commit(&back);
    refused(*file, MPI_INT, back);
    MPI_File_close(file);
    CHECK(*file == MPI_FILE_NULL);
    MPI_Type_free(&back);
}

static void arguments(MPI_File file)
{
    int value = rank;
    MPI_Offset at;
    FAILS(MPI_ERR_NOT_SAME, MPI_File_set_size(file, rank == 0 ? 100 : 200));
    CHECK(MPI_File_set_size(file, rank == 0 ? 100 : -1) != MPI_SUCCESS);
    FAILS(MPI_ERR_NOT_SAME, MPI_File_set_atomicity(file, rank == 0));
    FAILS(MPI_ERR_NOT_SAME, MPI_File_seek_shared(file, rank, MPI_SEEK_SET));
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    int code = MPI_File_write_ordered(file, &value, rank == 0 ? -1 : 1, MPI_INT, MPI_STATUS_IGNORE);
    CHECK((code == MPI_SUCCESS) == (rank != 0));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == processes - 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    opening(argv[1], argv[2]);
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                     &file));
    views(file);
    arguments(file);
    wrong_order(&file);
    int result = report("disagree");
    MPI_Finalize();
    return result;
}
