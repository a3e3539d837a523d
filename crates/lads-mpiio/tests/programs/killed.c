/* A program that is killed while its data waits on the local disk: killed NAME MIB.
 *
 * It writes a first MiB and waits for it, says so, and waits for a line. Then it writes MIB more,
 * says so, and waits to be killed, or for a line, after which it ends as it should. MiB number n is
 * full of n.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 20 };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    static unsigned char bytes[SIZE];
    MPI_File file;
    MPI_Status status;
    if (MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)
        != MPI_SUCCESS)
        return 1;
    int count = atoi(argv[2]);
    for (int i = 0; i <= count; i++) {
        memset(bytes, i + 1, SIZE);
        if (MPI_File_write(file, bytes, SIZE, MPI_BYTE, &status) != MPI_SUCCESS)
            return 2;
        if (i == 0) {
            if (MPI_File_sync(file) != MPI_SUCCESS)
                return 3;
            printf("first\n");
            fflush(stdout);
            getchar();
        }
    }
    printf("all\n");
    fflush(stdout);
    getchar();
    return MPI_File_close(&file) != MPI_SUCCESS || MPI_Finalize() != MPI_SUCCESS;
}
