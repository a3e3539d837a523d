/* Two processes, one of which closes a file long before the other has used the shared pointer for
 * the first time: late NAME. Their servers are two.
 */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_File file;
    MPI_Status status;
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    if (rank == 0) {
        OK(MPI_File_write_shared(file, "first", 5, MPI_BYTE, &status));
        MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        /* Long enough for a close that does not wait. */
        double until = MPI_Wtime() + 0.3;
        while (MPI_Wtime() < until)
            ;
        OK(MPI_File_write_shared(file, "second", 6, MPI_BYTE, &status));
    }
    OK(MPI_File_close(&file));
    MPI_Offset size = 0;
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 11);
    OK(MPI_File_close(&file));
    int code = report("late");
    MPI_Finalize();
    return code;
}
