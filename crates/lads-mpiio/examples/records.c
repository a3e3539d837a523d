/* Writes and reads records through the shared pointer of a file: records BYTES COUNT NAME. It prints the
 * seconds that COUNT calls of each function take, with the sync after the writes.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int code, const char *what)
{
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "records: cannot %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

struct function {
    const char *name;
    int (*write)(MPI_File, const void *, int, MPI_Datatype, MPI_Status *);
    int (*read)(MPI_File, void *, int, MPI_Datatype, MPI_Status *);
};

static void measure(MPI_File file, struct function function, char *record, int bytes, int count)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    must(MPI_File_seek_shared(file, 0, MPI_SEEK_SET), "seek");
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int i = 0; i < count; i++)
        must(function.write ? function.write(file, record, bytes, MPI_BYTE, MPI_STATUS_IGNORE)
                            : function.read(file, record, bytes, MPI_BYTE, MPI_STATUS_IGNORE),
             function.name);
    if (function.write)
        must(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s=%.9f\n", function.name, MPI_Wtime() - begun);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 4) {
        fprintf(stderr, "usage: records BYTES COUNT NAME\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int bytes = atoi(argv[1]), count = atoi(argv[2]);
    char *record = malloc((size_t)bytes + 1);
    memset(record, 'x', (size_t)bytes);
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, argv[3], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file),
         "open the file");
    const struct function functions[] = {
        {"write_shared", MPI_File_write_shared, NULL},
        {"read_shared", NULL, MPI_File_read_shared},
        {"write_ordered", MPI_File_write_ordered, NULL},
        {"read_ordered", NULL, MPI_File_read_ordered},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        measure(file, functions[i], record, bytes, count);
    must(MPI_File_close(&file), "close the file");
    free(record);
    MPI_Finalize();
    return 0;
}
