/* A server, or what leads to it, that is killed while a program writes: lost NAME FILE. The file has
 * its number. Or while the program does nothing with the file: lost NAME FILE idle.
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

static pid_t number_in(const char *name)
{
    int number = 0;
    FILE *file = fopen(name, "r");
    if (!file || fscanf(file, "%d", &number) != 1 || number <= 1)
        exit(2);
    fclose(file);
    return number;
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
    MPI_Offset size;
    if (argc > 3)
        kill(number_in(argv[2]), SIGKILL);
    /* The thread of the program is the first that meets what is gone. */
    while (argc > 3 && error == MPI_SUCCESS)
        error = MPI_File_get_size(file, &size);
    for (long i = 0; error == MPI_SUCCESS; i++) {
        if (i == 10)
            kill(number_in(argv[2]), SIGKILL);
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
