/* Parallel HDF5 on a file: hdf5 write NAME, hdf5 read NAME, hdf5 behind NAME.
 *
 * The writer makes a contiguous and a chunked dataset of ROWS by COLUMNS, which hold their own
 * indices, and a dataset that grows. Half of the rows are written collectively, the others by each
 * process alone. The reader may have another number of processes: it reads what others wrote. With
 * `behind`, processes read what others have just written, and what they have read before.
 */
#include "check.h"
#include <hdf5.h>
#include <string.h>

enum { ROWS = 48, COLUMNS = 40, GROWN = 1000 };

static const hsize_t SIZE[2] = {ROWS, COLUMNS};

static int value_at(int row, int column)
{
    return 1000 * row + column;
}

/* The rows of this process: every so many-th one, in one half of the columns. */
struct share {
    int first_row, first_column, columns;
};

static hsize_t rows_of(struct share share)
{
    return (hsize_t)((ROWS - share.first_row + processes - 1) / processes);
}

static hid_t selected(hid_t dataset, struct share share)
{
    hsize_t start[2] = {(hsize_t)share.first_row, (hsize_t)share.first_column};
    hsize_t stride[2] = {(hsize_t)processes, 1}, block[2] = {1, (hsize_t)share.columns};
    hsize_t count[2] = {rows_of(share), 1};
    hid_t space = H5Dget_space(dataset);
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block) >= 0);
    return space;
}

static hid_t transfer_as(H5FD_mpio_xfer_t way)
{
    hid_t properties = H5Pcreate(H5P_DATASET_XFER);
    CHECK(H5Pset_dxpl_mpio(properties, way) >= 0);
    return properties;
}

/* Writes the share, or reads and compares it. */
static void move(hid_t dataset, struct share share, H5FD_mpio_xfer_t way, int is_write)
{
    int values[ROWS * COLUMNS], expected[ROWS * COLUMNS];
    int rows = (int)rows_of(share), count = rows * share.columns;
    for (int i = 0; i < count; i++)
        expected[i] = value_at(share.first_row + i / share.columns * processes,
                               share.first_column + i % share.columns);
    hsize_t length = (hsize_t)count;
    hid_t space = selected(dataset, share), memory = H5Screate_simple(1, &length, NULL);
    hid_t how = transfer_as(way);
    memcpy(values, expected, sizeof values);
    if (is_write) {
        CHECK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, how, values) >= 0);
    } else {
        memset(values, 0xff, sizeof values);
        CHECK(H5Dread(dataset, H5T_NATIVE_INT, memory, space, how, values) >= 0);
        CHECK(memcmp(values, expected, (size_t)count * sizeof *values) == 0);
    }
    H5Pclose(how);
    H5Sclose(memory);
    H5Sclose(space);
}

static void move_all(hid_t dataset, int is_write)
{
    struct share left = {rank, 0, COLUMNS / 2}, right = {rank, COLUMNS / 2, COLUMNS / 2};
    move(dataset, left, H5FD_MPIO_COLLECTIVE, is_write);
    move(dataset, right, H5FD_MPIO_INDEPENDENT, is_write);
}

static hid_t made(hid_t file, const char *name, int is_chunked)
{
    hsize_t chunk[2] = {7, 9};
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    /* No time of day in the file: two files with the same content are equal. */
    H5Pset_obj_track_times(properties, 0);
    if (is_chunked)
        H5Pset_chunk(properties, 2, chunk);
    hid_t space = H5Screate_simple(2, SIZE, NULL);
    hid_t dataset =
        H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    CHECK(dataset >= 0);
    H5Sclose(space);
    H5Pclose(properties);
    return dataset;
}

/* A dataset without a limit that is extended twice; process 0 alone writes it. */
static void grow(hid_t file)
{
    hsize_t size = GROWN / 2, limit = H5S_UNLIMITED, chunk = 64;
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(properties, 0);
    H5Pset_chunk(properties, 1, &chunk);
    hid_t space = H5Screate_simple(1, &size, &limit);
    hid_t dataset =
        H5Dcreate2(file, "grown", H5T_IEEE_F64LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    H5Sclose(space);
    size = GROWN;
    CHECK(H5Dset_extent(dataset, &size) >= 0);
    double values[GROWN];
    for (int i = 0; i < GROWN; i++)
        values[i] = i * 0.5;
    if (rank == 0)
        CHECK(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    H5Pclose(properties);
}

static void write_file(hid_t access, const char *name)
{
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    CHECK(file >= 0);
    const char *names[2] = {"contiguous", "chunked"};
    for (int i = 0; i < 2; i++) {
        hid_t dataset = made(file, names[i], i);
        move_all(dataset, 1);
        CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
        H5Dclose(dataset);
    }
    grow(file);
    CHECK(H5Fclose(file) >= 0);
}

static void read_file(hid_t access, const char *name)
{
    hid_t file = H5Fopen(name, H5F_ACC_RDONLY, access);
    CHECK(file >= 0);
    const char *names[2] = {"contiguous", "chunked"};
    for (int i = 0; i < 2; i++) {
        hid_t dataset = H5Dopen2(file, names[i], H5P_DEFAULT);
        move_all(dataset, 0);
        H5Dclose(dataset);
    }
    double values[GROWN] = {0};
    hid_t dataset = H5Dopen2(file, "grown", H5P_DEFAULT);
    CHECK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    int is_right = 1;
    for (int i = 0; i < GROWN; i++)
        is_right = is_right && values[i] == i * 0.5;
    CHECK(is_right);
    H5Dclose(dataset);
    CHECK(H5Fclose(file) >= 0);
}

static void read_alone(hid_t dataset, hid_t alone, int *values)
{
    CHECK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, alone, values) >= 0);
}

/* One process writes all of a dataset, the others have read it just before and read it again: nothing may be
 * kept. At last all read it together. */
static void read_again(hid_t access, const char *name)
{
    int values[ROWS * COLUMNS], expected[ROWS * COLUMNS];
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t dataset = made(file, "again", 0);
    hid_t together = transfer_as(H5FD_MPIO_COLLECTIVE), alone = transfer_as(H5FD_MPIO_INDEPENDENT);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < ROWS * COLUMNS; i++)
            expected[i] = 10000 * round + i;
        int is_writer = rank == round % processes;
        if (!is_writer)
            read_alone(dataset, alone, values);
        MPI_Barrier(MPI_COMM_WORLD);
        if (is_writer)
            CHECK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, alone, expected) >= 0);
        MPI_Barrier(MPI_COMM_WORLD);
        read_alone(dataset, alone, values);
        CHECK(memcmp(values, expected, sizeof values) == 0);
        CHECK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, together, values) >= 0);
        CHECK(memcmp(values, expected, sizeof values) == 0);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    H5Pclose(together);
    H5Pclose(alone);
    H5Dclose(dataset);
    CHECK(H5Fclose(file) >= 0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    if (strcmp(argv[1], "write") == 0)
        write_file(access, argv[2]);
    else if (strcmp(argv[1], "read") == 0)
        read_file(access, argv[2]);
    else
        read_again(access, argv[2]);
    H5Pclose(access);
    H5close();
    int result = report("hdf5");
    MPI_Finalize();
    return result;
}
