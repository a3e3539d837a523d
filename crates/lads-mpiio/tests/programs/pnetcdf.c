/* PnetCDF on a file: pnetcdf write NAME, pnetcdf read NAME, pnetcdf new NAME, pnetcdf behind NAME.
 *
 * The writer makes a variable of fixed size, collectively and by processes alone, and one with
 * records, by requests that are done together. First all processes fill the variable, each a part
 * that others write; at last the header grows, and PnetCDF moves what is behind it. The reader may
 * have another number of processes.
 */
#include "check.h"
#include <pnetcdf.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 3, ROWS = 24, COLUMNS = 30 };

#define DONE(call) CHECK((call) == NC_NOERR)

static int value_at(int record, int row, int column)
{
    return 10000 * record + 100 * row + column;
}

/* The rows of a process: those of all are all rows. */
static int first_row(int of)
{
    return ROWS * of / processes;
}

static void fill(int *values, int record)
{
    int first = first_row(rank), count = first_row(rank + 1) - first;
    for (int i = 0; i < count * COLUMNS; i++)
        values[i] = value_at(record, first + i / COLUMNS, i % COLUMNS);
}

static void define(int file, int *fixed, int *records)
{
    int dimensions[3], old;
    DONE(ncmpi_set_fill(file, NC_FILL, &old));
    DONE(ncmpi_def_dim(file, "record", NC_UNLIMITED, &dimensions[0]));
    DONE(ncmpi_def_dim(file, "row", ROWS, &dimensions[1]));
    DONE(ncmpi_def_dim(file, "column", COLUMNS, &dimensions[2]));
    DONE(ncmpi_def_var(file, "fixed", NC_INT, 2, dimensions + 1, fixed));
    DONE(ncmpi_def_var(file, "records", NC_DOUBLE, 3, dimensions, records));
    DONE(ncmpi_put_att_text(file, NC_GLOBAL, "title", 4, "test"));
    DONE(ncmpi_enddef(file));
}

/* Attributes that do not fit before the data. */
static void grow_header(int file)
{
    char text[5000];
    memset(text, 'x', sizeof text);
    DONE(ncmpi_redef(file));
    DONE(ncmpi_put_att_text(file, NC_GLOBAL, "text", sizeof text, text));
    DONE(ncmpi_enddef(file));
}

static void write_file(const char *name)
{
    int file, fixed, records, values[RECORDS][ROWS * COLUMNS], requests[RECORDS];
    int statuses[RECORDS];
    DONE(ncmpi_create(MPI_COMM_WORLD, name, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    define(file, &fixed, &records);
    MPI_Offset first = first_row(rank), rows = first_row(rank + 1) - first;
    MPI_Offset start[3] = {0, first, 0}, count[3] = {1, rows, COLUMNS / 2};
    MPI_Offset stride[2] = {1, 2};
    /* Every second column by all together, the others by each process alone. */
    fill(values[0], 0);
    int half[ROWS * COLUMNS];
    for (int parity = 0; parity < 2; parity++) {
        for (int i = 0; i < rows * COLUMNS / 2; i++)
            half[i] = values[0][2 * i + parity];
        start[2] = parity;
        if (parity == 1)
            DONE(ncmpi_begin_indep_data(file));
        DONE((parity ? ncmpi_put_vars_int : ncmpi_put_vars_int_all)(file, fixed, start + 1,
                                                                   count + 1, stride, half));
    }
    DONE(ncmpi_end_indep_data(file));
    start[2] = 0;
    count[2] = COLUMNS;
    for (int i = 0; i < RECORDS; i++) {
        fill(values[i], i);
        start[0] = i;
        DONE(ncmpi_iput_vara_int(file, records, start, count, values[i], &requests[i]));
    }
    DONE(ncmpi_wait_all(file, RECORDS, requests, statuses));
    grow_header(file);
    DONE(ncmpi_close(file));
}

static void read_file(const char *name)
{
    int file, fixed, records, values[ROWS * COLUMNS], expected[ROWS * COLUMNS];
    MPI_Offset length;
    char title[8] = "";
    DONE(ncmpi_open(MPI_COMM_WORLD, name, NC_NOWRITE, MPI_INFO_NULL, &file));
    DONE(ncmpi_get_att_text(file, NC_GLOBAL, "title", title));
    CHECK(strcmp(title, "test") == 0);
    DONE(ncmpi_inq_varid(file, "fixed", &fixed));
    DONE(ncmpi_inq_varid(file, "records", &records));
    DONE(ncmpi_inq_dimlen(file, 0, &length));
    CHECK(length == RECORDS);
    MPI_Offset first = first_row(rank), rows = first_row(rank + 1) - first;
    MPI_Offset start[3] = {0, first, 0}, count[3] = {1, rows, COLUMNS};
    size_t bytes = (size_t)rows * COLUMNS * sizeof(int);
    for (int i = 0; i < RECORDS; i++) {
        fill(expected, i);
        start[0] = i;
        memset(values, 0xff, sizeof values);
        DONE(ncmpi_get_vara_int_all(file, records, start, count, values));
        CHECK(memcmp(values, expected, bytes) == 0);
    }
    fill(expected, 0);
    memset(values, 0xff, sizeof values);
    DONE(ncmpi_begin_indep_data(file));
    DONE(ncmpi_get_vara_int(file, fixed, start + 1, count + 1, values));
    DONE(ncmpi_end_indep_data(file));
    CHECK(memcmp(values, expected, bytes) == 0);
    DONE(ncmpi_close(file));
}

/* A file that exists stays as it is. */
static void new_file(const char *name)
{
    int file;
    CHECK(ncmpi_create(MPI_COMM_WORLD, name, NC_NOCLOBBER, MPI_INFO_NULL, &file) == NC_EEXIST);
    char other[4096];
    snprintf(other, sizeof other, "%s.new", name);
    DONE(ncmpi_create(MPI_COMM_WORLD, other, NC_NOCLOBBER, MPI_INFO_NULL, &file));
    DONE(ncmpi_close(file));
    CHECK(ncmpi_create(MPI_COMM_WORLD, other, NC_NOCLOBBER, MPI_INFO_NULL, &file) == NC_EEXIST);
}

enum { LONG = 1 << 19 };

/* All processes write their parts, and then read what their neighbours have written. Each part is read
 * before it is written again: nothing of it may be kept. */
static void write_behind(const char *name)
{
    int file, dimension, variable;
    static int values[LONG], read[LONG];
    int neighbour = (rank + 1) % processes;
    DONE(ncmpi_create(MPI_COMM_WORLD, name, NC_CLOBBER, MPI_INFO_NULL, &file));
    DONE(ncmpi_def_dim(file, "all", (MPI_Offset)LONG * processes, &dimension));
    DONE(ncmpi_def_var(file, "values", NC_INT, 1, &dimension, &variable));
    DONE(ncmpi_enddef(file));
    MPI_Offset own = (MPI_Offset)LONG * rank, other = (MPI_Offset)LONG * neighbour, count = LONG;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < LONG; i++)
            values[i] = 1000 * round + rank;
        DONE(ncmpi_put_vara_int_all(file, variable, &own, &count, values));
        DONE(ncmpi_get_vara_int_all(file, variable, &other, &count, read));
        int is_right = 1;
        for (int i = 0; i < LONG; i++)
            is_right = is_right && read[i] == 1000 * round + neighbour;
        CHECK(is_right);
        /* The next round must not overtake a reader. */
        MPI_Barrier(MPI_COMM_WORLD);
    }
    DONE(ncmpi_close(file));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (strcmp(argv[1], "write") == 0)
        write_file(argv[2]);
    else if (strcmp(argv[1], "read") == 0)
        read_file(argv[2]);
    else if (strcmp(argv[1], "new") == 0)
        new_file(argv[2]);
    else
        write_behind(argv[2]);
    int result = report("pnetcdf");
    MPI_Finalize();
    return result;
}
