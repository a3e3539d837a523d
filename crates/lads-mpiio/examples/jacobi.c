/* The three-dimensional Jacobi relaxation of the RFS paper (section 4): jacobi NX NY NZ ITERATIONS
 * EVERY NAME. Each process has NX x NY x NZ cells; after every EVERY iterations, all write the array
 * together to one file, NAME.0, NAME.1 and so on, in the order of its rows. The last dimension is
 * divided first: with two processes, too, each has a part of every row, as with four in the paper.
 *
 * Nothing here knows of remote files: NAME may be one (rfs:host:port:path). With "nowhere" the array
 * is only copied into memory as it lies in the file: no file can be written faster.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A process's part of the array, with a layer of ghost cells around it. */
struct part {
    int cells[3], with_ghosts[3];
    int grid[3], place[3];
    /* Of each dimension: the neighbours below and above, and a face of cells. */
    int neighbours[3][2];
    MPI_Datatype faces[3];
    MPI_Datatype in_memory, in_file;
    MPI_Comm comm;
    double *now, *next;
    /* Of "nowhere". */
    void *copy;
};

static size_t at(const struct part *part, int x, int y, int z)
{
    return ((size_t)x * part->with_ghosts[1] + y) * part->with_ghosts[2] + z;
}

static MPI_Datatype box(const int sizes[3], const int lengths[3], const int starts[3])
{
    MPI_Datatype type;
    MPI_Type_create_subarray(3, sizes, lengths, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void divide(struct part *part)
{
    const int periods[3] = {0, 0, 0}, ones[3] = {1, 1, 1}, zeros[3] = {0, 0, 0};
    int processes, rank, all[3], start[3];
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_Dims_create(processes, 3, part->grid);
    int most = part->grid[0];
    part->grid[0] = part->grid[2];
    part->grid[2] = most;
    MPI_Cart_create(MPI_COMM_WORLD, 3, part->grid, periods, 0, &part->comm);
    MPI_Comm_rank(part->comm, &rank);
    MPI_Cart_coords(part->comm, rank, 3, part->place);
    for (int i = 0; i < 3; i++) {
        part->with_ghosts[i] = part->cells[i] + 2;
        all[i] = part->cells[i] * part->grid[i];
        start[i] = part->cells[i] * part->place[i];
        MPI_Cart_shift(part->comm, i, 1, &part->neighbours[i][0], &part->neighbours[i][1]);
    }
    for (int i = 0; i < 3; i++) {
        int face[3] = {part->cells[0], part->cells[1], part->cells[2]};
        face[i] = 1;
        part->faces[i] = box(part->with_ghosts, face, zeros);
    }
    part->in_memory = box(part->with_ghosts, part->cells, ones);
    part->in_file = box(all, part->cells, start);
}

static void end(struct part *part)
{
    for (int i = 0; i < 3; i++)
        MPI_Type_free(&part->faces[i]);
    MPI_Type_free(&part->in_memory);
    MPI_Type_free(&part->in_file);
    MPI_Comm_free(&part->comm);
    free(part->now);
    free(part->next);
    free(part->copy);
}

/* The array is 0 but for one side, which stays 1. */
static void begin(struct part *part)
{
    size_t count = (size_t)part->with_ghosts[0] * part->with_ghosts[1] * part->with_ghosts[2];
    part->now = calloc(count, sizeof(double));
    part->next = calloc(count, sizeof(double));
    if (!part->now || !part->next)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (part->place[0] == 0)
        for (int y = 0; y < part->with_ghosts[1]; y++)
            for (int z = 0; z < part->with_ghosts[2]; z++)
                part->now[at(part, 0, y, z)] = part->next[at(part, 0, y, z)] = 1;
}

/* The first cell of the layer at this distance from the lower ghosts in one dimension. */
static double *layer(const struct part *part, int dimension, int distance)
{
    int start[3] = {1, 1, 1};
    start[dimension] = distance;
    return part->now + at(part, start[0], start[1], start[2]);
}

static void exchange(struct part *part)
{
    for (int i = 0; i < 3; i++) {
        int last = part->cells[i], below = part->neighbours[i][0], above = part->neighbours[i][1];
        MPI_Sendrecv(layer(part, i, 1), 1, part->faces[i], below, i, layer(part, i, last + 1), 1,
                     part->faces[i], above, i, part->comm, MPI_STATUS_IGNORE);
        MPI_Sendrecv(layer(part, i, last), 1, part->faces[i], above, i, layer(part, i, 0), 1,
                     part->faces[i], below, i, part->comm, MPI_STATUS_IGNORE);
    }
}

static void relax(struct part *part)
{
    const double *now = part->now;
    for (int x = 1; x <= part->cells[0]; x++)
        for (int y = 1; y <= part->cells[1]; y++)
            for (int z = 1; z <= part->cells[2]; z++)
                part->next[at(part, x, y, z)] =
                    (now[at(part, x - 1, y, z)] + now[at(part, x + 1, y, z)] +
                     now[at(part, x, y - 1, z)] + now[at(part, x, y + 1, z)] +
                     now[at(part, x, y, z - 1)] + now[at(part, x, y, z + 1)]) / 6;
    double *old = part->now;
    part->now = part->next;
    part->next = old;
}

static void must(int code, const char *what)
{
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "jacobi: cannot %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void snapshot(struct part *part, const char *name, int number)
{
    char full[4096];
    MPI_File file;
    snprintf(full, sizeof full, "%s.%d", name, number);
    must(MPI_File_open(part->comm, full, MPI_MODE_WRONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file),
         "open a snapshot");
    must(MPI_File_set_view(file, 0, MPI_DOUBLE, part->in_file, "native", MPI_INFO_NULL),
         "set its view");
    must(MPI_File_write_all(file, part->now, 1, part->in_memory, MPI_STATUS_IGNORE), "write it");
    must(MPI_File_close(&file), "close it");
}

static void copy(struct part *part)
{
    int size, position = 0;
    MPI_Pack_size(1, part->in_memory, part->comm, &size);
    if (!part->copy)
        part->copy = malloc(size);
    must(part->copy ? MPI_SUCCESS : MPI_ERR_NO_MEM, "copy a snapshot");
    must(MPI_Pack(part->now, 1, part->in_memory, part->copy, size, &position, part->comm),
         "copy a snapshot");
}

int main(int argc, char **argv)
{
    double start, computing = 0, writing = 0, writing_first = 0;
    struct part part = {0};
    int rank, processes, snapshots = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 7) {
        if (rank == 0)
            fprintf(stderr, "jacobi NX NY NZ ITERATIONS EVERY NAME\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 0; i < 3; i++)
        part.cells[i] = atoi(argv[1 + i]);
    int iterations = atoi(argv[4]), every = atoi(argv[5]);
    divide(&part);
    begin(&part);
    MPI_Barrier(MPI_COMM_WORLD);
    double first = MPI_Wtime();
    for (int i = 1; i <= iterations; i++) {
        start = MPI_Wtime();
        exchange(&part);
        relax(&part);
        computing += MPI_Wtime() - start;
        if (every <= 0 || i % every != 0)
            continue;
        /* What a process waits for others is computing, not writing. */
        start = MPI_Wtime();
        MPI_Barrier(MPI_COMM_WORLD);
        double met = MPI_Wtime();
        computing += met - start;
        if (strcmp(argv[6], "nowhere") == 0)
            copy(&part);
        else
            snapshot(&part, argv[6], snapshots);
        writing += MPI_Wtime() - met;
        if (++snapshots == 1)
            writing_first = writing;
    }
    double own[4] = {writing, computing, MPI_Wtime() - first, writing - writing_first};
    double slowest[4];
    MPI_Reduce(own, slowest, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    double each = 8.0 * part.cells[0] * part.cells[1] * part.cells[2] * processes;
    double bytes = each * snapshots, later = bytes - each;
    if (rank == 0)
        printf("jacobi: processes=%d snapshots=%d bytes=%.0f write_seconds=%.6f "
               "visible_bytes_per_second=%.0f later_bytes_per_second=%.0f compute_seconds=%.6f "
               "total_seconds=%.6f\n",
               processes, snapshots, bytes, slowest[0], slowest[0] > 0 ? bytes / slowest[0] : 0,
               slowest[3] > 0 ? later / slowest[3] : 0, slowest[1], slowest[2]);
    end(&part);
    MPI_Finalize();
    return 0;
}
