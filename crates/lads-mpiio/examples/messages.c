/* Measures how long a message waits after a write: messages ROW BYTES PHASES NAME. In each phase, every
 * process writes BYTES bytes, then there are two barriers. With ROW, the processes write rows of as many
 * bytes in turn; with 0, each writes a part of its own. The first process prints the medians in seconds,
 * the rate of everything together, and how often a process waited for the data of another one.
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
    fprintf(stderr, "messages: cannot %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static long long conflicts_of(MPI_File file)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1] = "0";
    int is_there;
    must(MPI_File_get_info(file, &info), "get the hints");
    MPI_Info_get(info, "rfs_conflicts", MPI_MAX_INFO_VAL, value, &is_there);
    MPI_Info_free(&info);
    return is_there ? atoll(value) : 0;
}

int main(int argc, char **argv)
{
    int rank, count;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    if (argc != 5 || atoi(argv[3]) < 1) {
        fprintf(stderr, "usage: messages ROW BYTES PHASES NAME\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int row = atoi(argv[1]), bytes = atoi(argv[2]), phases = atoi(argv[3]);
    char *data = malloc((size_t)bytes + 1);
    memset(data, 'a' + rank % 26, (size_t)bytes);
    double *first = calloc((size_t)phases, sizeof *first), *second = calloc((size_t)phases, sizeof *second);
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, argv[4], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file),
         "open the file");
    MPI_Offset at = 0;
    if (row > 0) {
        MPI_Datatype type, rows;
        MPI_Type_contiguous(row, MPI_BYTE, &type);
        MPI_Type_create_resized(type, 0, (MPI_Aint)row * count, &rows);
        MPI_Type_commit(&rows);
        must(MPI_File_set_view(file, (MPI_Offset)row * rank, MPI_BYTE, rows, "native", MPI_INFO_NULL),
             "set the view");
        MPI_Type_free(&rows);
        MPI_Type_free(&type);
    } else {
        at = (MPI_Offset)bytes * rank;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int phase = 0; phase < phases; phase++) {
        must(MPI_File_write_at(file, at, data, bytes, MPI_BYTE, MPI_STATUS_IGNORE), "write");
        double before = MPI_Wtime();
        MPI_Barrier(MPI_COMM_WORLD);
        double between = MPI_Wtime();
        MPI_Barrier(MPI_COMM_WORLD);
        first[phase] = between - before;
        second[phase] = MPI_Wtime() - between;
        if (row == 0)
            /* The next phase begins with nothing to be sent. */
            must(MPI_File_sync(file), "sync");
    }
    must(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - begun;
    long long conflicts = conflicts_of(file), all = 0;
    MPI_Reduce(&conflicts, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("first=%.9f\nsecond=%.9f\n", median(first, phases), median(second, phases));
        printf("bytes_per_second=%.1f\nconflicts=%lld\n", (double)bytes * count * phases / seconds, all);
    }
    must(MPI_File_close(&file), "close the file");
    free(data);
    free(first);
    free(second);
    MPI_Finalize();
    return 0;
}
