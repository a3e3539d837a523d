/* A server that is killed while a program writes: lost NAME PID.
 *
 * The program gets errors of the right class, from every call, in time, and goes on.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 1 << 20 };

static int class_of(int error)
{
    int class;
    MPI_Error_class(error, &class);
    return class;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    static char bytes[SIZE];
    MPI_File file;
    MPI_Status status;
    if (MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)
        != MPI_SUCCESS)
        return 1;
    int error = MPI_SUCCESS;
    for (long i = 0; error == MPI_SUCCESS; i++) {
        if (i == 10)
            kill(atoi(argv[2]), SIGKILL);
        error = MPI_File_write(file, bytes, SIZE, MPI_BYTE, &status);
    }
    int classes[] = {class_of(error), class_of(MPI_File_read_at(file, 0, bytes, 1, MPI_BYTE, &status)),
                     class_of(MPI_File_sync(file)), class_of(MPI_File_close(&file))};
    int failures = 0;
    for (int i = 0; i < 4; i++)
        failures += classes[i] != MPI_ERR_IO;
    printf("lost: %d of 4 calls had another error than MPI_ERR_IO\n", failures);
    MPI_Finalize();
    return failures;
}
