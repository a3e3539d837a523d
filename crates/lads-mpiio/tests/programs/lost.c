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

enum { WAIT, TEST, WAITALL, TESTALL, WAITANY, TESTANY, WAITSOME, TESTSOME, WAYS };

/* Calls a function that waits or tests. Stores the codes of the requests that it has completed. */
static void complete(int way, MPI_Request requests[2], int codes[2])
{
    int flag = 1, index = 0, count = 2, indices[2] = {0, 1}, code = MPI_SUCCESS;
    MPI_Status statuses[2];
    switch (way) {
    case WAIT:
    case TEST:
        for (index = 0; index < 2; index++)
            if (requests[index] != MPI_REQUEST_NULL)
                codes[index] = way == WAIT ? MPI_Wait(&requests[index], statuses)
                                           : MPI_Test(&requests[index], &flag, statuses);
        return;
    case WAITANY:
    case TESTANY:
        code = way == WAITANY ? MPI_Waitany(2, requests, &index, statuses)
                              : MPI_Testany(2, requests, &index, &flag, statuses);
        if (flag && index != MPI_UNDEFINED)
            codes[index] = code;
        return;
    case WAITALL:
        code = MPI_Waitall(2, requests, statuses);
        break;
    case TESTALL:
        code = MPI_Testall(2, requests, &flag, statuses);
        break;
    case WAITSOME:
        code = MPI_Waitsome(2, requests, &count, indices, statuses);
        break;
    default:
        code = MPI_Testsome(2, requests, &count, indices, statuses);
    }
    for (int i = 0; flag && count != MPI_UNDEFINED && i < count; i++)
        codes[indices[i]] = code == MPI_ERR_IN_STATUS ? statuses[i].MPI_ERROR : code;
}

/* The class of the error of a pending read, beside a message that arrives. */
static int class_of_read(MPI_File file, int way)
{
    static char byte;
    int sent = 1, received = 0, codes[2] = {MPI_ERR_OTHER, MPI_SUCCESS};
    MPI_Request requests[2];
    MPI_Irecv(&received, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
    MPI_Send(&sent, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
    if (MPI_File_iread_at(file, 0, &byte, 1, MPI_BYTE, &requests[1]) != MPI_SUCCESS)
        return -1;
    while (requests[0] != MPI_REQUEST_NULL || requests[1] != MPI_REQUEST_NULL)
        complete(way, requests, codes);
    return codes[0] == MPI_SUCCESS ? class_of(codes[1]) : -1;
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
    int failures = 0;
    for (int way = 0; way < WAYS; way++) {
        int class = class_of_read(file, way);
        failures += class != MPI_ERR_IO;
        if (class != MPI_ERR_IO)
            printf("lost: a pending read has class %d by way %d\n", class, way);
    }
    int classes[] = {class_of(error), class_of(MPI_File_read_at(file, 0, bytes, 1, MPI_BYTE, &status)),
                     class_of(MPI_File_sync(file)), class_of(MPI_File_close(&file))};
    for (int i = 0; i < 4; i++)
        failures += classes[i] != MPI_ERR_IO;
    printf("lost: %d calls had another error than MPI_ERR_IO\n", failures);
    MPI_Finalize();
    return failures;
}
