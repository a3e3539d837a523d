/* Processes that write and read the same bytes in atomic mode: apart NAME.
 *
 * Each write fills the whole with one number, in two halves that are not one after the other in the
 * file. Whoever reads finds one number everywhere.
 */
#include "check.h"
#include <string.h>

/* Several frames, so that others have time to come between. */
enum { ROUNDS = 8, HALF = 3 << 20 };

int main(int argc, char **argv)
{
    static unsigned char own[2 * HALF], back[2 * HALF];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_File file;
    MPI_Datatype halves;
    OK(MPI_Type_vector(2, HALF, 2 * HALF, MPI_BYTE, &halves));
    OK(MPI_Type_commit(&halves));
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, halves, "native", MPI_INFO_NULL));
    OK(MPI_File_set_atomicity(file, 1));
    int mixed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        memset(own, 1 + rank + processes * round, sizeof own);
        OK(MPI_File_write_at(file, 0, own, sizeof own, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(file, 0, back, sizeof back, MPI_BYTE, MPI_STATUS_IGNORE));
        mixed += memcmp(back, back + 1, sizeof back - 1) != 0;
    }
    CHECK(mixed == 0);
    OK(MPI_File_close(&file));
    MPI_Type_free(&halves);
    int code = report("apart");
    MPI_Finalize();
    return code;
}
