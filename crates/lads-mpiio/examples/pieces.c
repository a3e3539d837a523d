/* Writes a file in many pieces: pieces KIND BYTES PIECES TIMES NAME. KIND is how PIECES pieces of
 * BYTES bytes each of a process lie in the file, TIMES times:
 *
 *   apart     those of all processes in turn; a process writes all of its pieces in one call
 *   together  one behind the other; a process writes all of its pieces in one call
 *   single    one behind the other; each piece is a call
 *
 * It prints how many bytes per second there were from the opening of the file until it was closed.
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
    fprintf(stderr, "pieces: cannot %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The pieces of a process that lie apart, until the first one of the next time. */
static void set_view(MPI_File file, int bytes, int pieces, int rank, int processes)
{
    MPI_Datatype apart, filetype;
    MPI_Type_vector(pieces, bytes, bytes * processes, MPI_BYTE, &apart);
    MPI_Type_create_resized(apart, 0, (MPI_Aint)bytes * processes * pieces, &filetype);
    MPI_Type_commit(&filetype);
    must(MPI_File_set_view(file, (MPI_Offset)rank * bytes, MPI_BYTE, filetype, "native",
                           MPI_INFO_NULL),
         "set the view");
    MPI_Type_free(&apart);
    MPI_Type_free(&filetype);
}

int main(int argc, char **argv)
{
    int rank, processes;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 6) {
        if (rank == 0)
            fprintf(stderr, "pieces apart|together|single BYTES PIECES TIMES NAME\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const char *kind = argv[1];
    int bytes = atoi(argv[2]), pieces = atoi(argv[3]), times = atoi(argv[4]);
    int is_single = strcmp(kind, "single") == 0;
    MPI_Offset all = (MPI_Offset)bytes * pieces * times;
    char *memory = malloc((size_t)bytes * pieces);
    if (!memory)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(memory, rank + 1, (size_t)bytes * pieces);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    must(MPI_File_open(MPI_COMM_WORLD, argv[5], MPI_MODE_WRONLY | MPI_MODE_CREATE, MPI_INFO_NULL,
                       &file),
         "open the file");
    if (strcmp(kind, "apart") == 0)
        set_view(file, bytes, pieces, rank, processes);
    else
        must(MPI_File_seek(file, rank * all, MPI_SEEK_SET), "go to its part");
    for (int i = 0; i < (is_single ? times * pieces : times); i++) {
        char *from = is_single ? memory + (size_t)(i % pieces) * bytes : memory;
        int count = is_single ? bytes : bytes * pieces;
        if (is_single)
            must(MPI_File_write(file, from, count, MPI_BYTE, MPI_STATUS_IGNORE), "write");
        else
            must(MPI_File_write_all(file, from, count, MPI_BYTE, MPI_STATUS_IGNORE), "write");
    }
    must(MPI_File_close(&file), "close the file");
    double seconds = MPI_Wtime() - start, slowest;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("pieces: processes=%d bytes=%lld seconds=%.6f bytes_per_second=%.0f\n", processes,
               (long long)all * processes, slowest, all * processes / slowest);
    free(memory);
    MPI_Finalize();
    return 0;
}
