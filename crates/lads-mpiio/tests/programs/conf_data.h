/* The part of conf.c that reads and writes. */
#ifndef CONF_DATA_H
#define CONF_DATA_H

#include "check.h"
#include <string.h>

/* Elements of each process in a call. */
enum { N = 64 };

static const char *name;

/* Whether the shim serves the file. What STRICT encloses, not every library obeys for its own files:
 * the rules of MPI_MODE_SEQUENTIAL, and arguments that are wrong. */
static int is_remote;

#define STRICT(statement)                                                                      \
    do {                                                                                       \
        if (is_remote) {                                                                       \
            statement;                                                                         \
        }                                                                                      \
    } while (0)

/* What one process does next must not be seen by another before. */
static void together(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void meet(MPI_File file)
{
    OK(MPI_File_sync(file));
    together();
    OK(MPI_File_sync(file));
}

static MPI_File open_as(int amode)
{
    MPI_File file = MPI_FILE_NULL;
    OK(MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &file));
    return file;
}

/* A new, empty file. */
static MPI_File fresh(void)
{
    MPI_File file = open_as(MPI_MODE_RDWR | MPI_MODE_CREATE);
    OK(MPI_File_set_size(file, 0));
    return file;
}

static void fill(int *values, int first)
{
    for (int i = 0; i < N; i++)
        values[i] = first + i;
}

static int is_filled(const int *values, int first)
{
    for (int i = 0; i < N; i++)
        if (values[i] != first + i)
            return 0;
    return 1;
}

static void independent(void)
{
    MPI_File file = fresh();
    MPI_Status status;
    MPI_Offset at;
    int values[N], back[N] = {0}, count;
    fill(values, 1000 * rank);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at(file, rank * N, values, N, MPI_INT, &status));
    CHECK(bytes_of(&status) == (int)sizeof values);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == N);
    MPI_Get_elements(&status, MPI_INT, &count);
    CHECK(count == N);
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 0);
    meet(file);
    int other = (rank + 1) % processes;
    OK(MPI_File_read_at(file, other * N, back, N, MPI_INT, &status));
    CHECK(is_filled(back, 1000 * other));
    OK(MPI_File_seek(file, rank * N, MPI_SEEK_SET));
    OK(MPI_File_read(file, back, N, MPI_INT, &status));
    CHECK(is_filled(back, 1000 * rank));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == (rank + 1) * N);
    OK(MPI_File_seek(file, -N, MPI_SEEK_CUR));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == rank * N);
    OK(MPI_File_seek(file, -1, MPI_SEEK_END));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == processes * N - 1);
    CHECK(MPI_File_seek(file, -1, MPI_SEEK_SET) != MPI_SUCCESS);
    STRICT(CHECK(MPI_File_write_at(file, -1, values, 1, MPI_INT, &status) != MPI_SUCCESS));
    CHECK(MPI_File_write_at(file, 0, values, -1, MPI_INT, &status) != MPI_SUCCESS);
    /* The end of the file, in the middle of what is asked for, and behind it. */
    OK(MPI_File_read_at(file, processes * N - 3, back, N, MPI_INT, &status));
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == 3);
    OK(MPI_File_read_at(file, processes * N, back, N, MPI_INT, &status));
    CHECK(bytes_of(&status) == 0);
    OK(MPI_File_write_at(file, 0, values, 0, MPI_INT, &status));
    CHECK(bytes_of(&status) == 0);
    OK(MPI_File_close(&file));
}

/* Views in which processes have every so many-th block, and memory with holes. */
static void views(void)
{
    MPI_File file = fresh();
    MPI_Status status;
    MPI_Datatype blocks, filetype, holes, etype, is_now;
    MPI_Offset at, displacement;
    MPI_Aint extent;
    char datarep[MPI_MAX_DATAREP_STRING];
    int values[N], back[2 * N], spread[2 * N];
    MPI_Type_contiguous(4, MPI_INT, &blocks);
    MPI_Type_create_resized(blocks, 0, 16 * processes, &filetype);
    MPI_Type_commit(&filetype);
    MPI_Type_vector(N, 1, 2, MPI_INT, &holes);
    MPI_Type_commit(&holes);
    fill(values, 1000 * rank);
    OK(MPI_File_set_view(file, 8 + 16 * rank, MPI_INT, filetype, "native", MPI_INFO_NULL));
    OK(MPI_File_get_view(file, &displacement, &etype, &is_now, datarep));
    CHECK(displacement == 8 + 16 * rank);
    CHECK(etype == MPI_INT);
    CHECK(strcmp(datarep, "native") == 0);
    MPI_Type_free(&is_now);
    OK(MPI_File_get_byte_offset(file, 5, &at));
    CHECK(at == 8 + 16 * rank + 16 * processes + 4);
    OK(MPI_File_get_type_extent(file, MPI_INT, &extent));
    CHECK(extent == 4);
    OK(MPI_File_write_all(file, values, N, MPI_INT, &status));
    CHECK(bytes_of(&status) == (int)sizeof values);
    meet(file);
    memset(back, 0xff, sizeof back);
    OK(MPI_File_read_at_all(file, 0, back, 1, holes, &status));
    CHECK(bytes_of(&status) == (int)sizeof values);
    int is_right = 1;
    for (int i = 0; i < N; i++)
        is_right = is_right && back[2 * i] == values[i] && (i == N - 1 || back[2 * i + 1] == -1);
    CHECK(is_right);
    memset(spread, 0, sizeof spread);
    for (int i = 0; i < N; i++)
        spread[2 * i] = 5000 + 1000 * rank + i;
    OK(MPI_File_write_at_all(file, 0, spread, 1, holes, &status));
    meet(file);
    OK(MPI_File_set_view(file, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 4 * processes, back, 1, MPI_INT, &status));
    CHECK(back[0] == 5004);
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 0);
    CHECK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "unheard-of", MPI_INFO_NULL) !=
          MPI_SUCCESS);
    CHECK(MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_INT, "native", MPI_INFO_NULL) != MPI_SUCCESS);
    CHECK(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native",
                            MPI_INFO_NULL) != MPI_SUCCESS);
    MPI_Type_free(&blocks);
    MPI_Type_free(&filetype);
    MPI_Type_free(&holes);
    OK(MPI_File_close(&file));
}

static void collective(void)
{
    MPI_File file = fresh();
    MPI_Status status;
    MPI_Offset at;
    int values[N], back[N] = {0};
    fill(values, 100 * rank);
    OK(MPI_File_set_view(file, 4 * N * rank, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_all(file, values, N / 2, MPI_INT, &status));
    OK(MPI_File_write_all(file, values + N / 2, N / 2, MPI_INT, &status));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == N);
    meet(file);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_all(file, back, N, MPI_INT, &status));
    CHECK(is_filled(back, 100 * rank));
    OK(MPI_File_close(&file));
}

/* Requests of files and of messages, waited for together. */
static void nonblocking(void)
{
    MPI_File file = fresh();
    MPI_Request requests[4];
    MPI_Status statuses[4];
    int values[N], back[N] = {0}, sent = rank, received = -1, is_done = 0;
    int next = (rank + 1) % processes, previous = (rank + processes - 1) % processes;
    fill(values, 100 * rank);
    OK(MPI_File_set_view(file, 8 * N * rank, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_iwrite_at(file, 0, values, N, MPI_INT, &requests[0]));
    MPI_Irecv(&received, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&sent, 1, MPI_INT, next, 0, MPI_COMM_WORLD, &requests[2]);
    OK(MPI_File_iwrite(file, values, 0, MPI_INT, &requests[3]));
    OK(MPI_Waitall(4, requests, statuses));
    CHECK(bytes_of(&statuses[0]) == (int)sizeof values);
    CHECK(bytes_of(&statuses[3]) == 0);
    CHECK(received == previous);
    OK(MPI_File_iwrite_all(file, values, N, MPI_INT, &requests[0]));
    OK(MPI_Wait(&requests[0], &statuses[0]));
    CHECK(requests[0] == MPI_REQUEST_NULL);
    OK(MPI_File_iwrite_at_all(file, N, values, N, MPI_INT, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    meet(file);
    OK(MPI_File_iread_at(file, N, back, N, MPI_INT, &requests[0]));
    while (!is_done)
        MPI_Test(&requests[0], &is_done, &statuses[0]);
    CHECK(bytes_of(&statuses[0]) == (int)sizeof values);
    CHECK(is_filled(back, 100 * rank));
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    memset(back, 0, sizeof back);
    OK(MPI_File_iread(file, back, N / 2, MPI_INT, &requests[0]));
    OK(MPI_File_iread(file, back + N / 2, N / 2, MPI_INT, &requests[1]));
    int which;
    OK(MPI_Waitany(2, requests, &which, &statuses[0]));
    OK(MPI_Waitall(2, requests, statuses));
    CHECK(is_filled(back, 100 * rank));
    OK(MPI_File_iread_all(file, back, N, MPI_INT, &requests[0]));
    OK(MPI_Wait(&requests[0], &statuses[0]));
    CHECK(is_filled(back, 100 * rank));
    OK(MPI_File_iread_at_all(file, 0, back, N, MPI_INT, &requests[0]));
    OK(MPI_Wait(&requests[0], &statuses[0]));
    CHECK(is_filled(back, 100 * rank));
    OK(MPI_File_close(&file));
}

static void split(void)
{
    MPI_File file = fresh();
    MPI_Status status;
    int values[N], back[N] = {0};
    fill(values, 100 * rank);
    OK(MPI_File_set_view(file, 8 * N * rank, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_all_begin(file, values, N, MPI_INT));
    OK(MPI_File_write_all_end(file, values, &status));
    CHECK(bytes_of(&status) == (int)sizeof values);
    OK(MPI_File_write_at_all_begin(file, N, values, N / 2, MPI_INT));
    OK(MPI_File_write_at_all_end(file, values, &status));
    CHECK(bytes_of(&status) == (int)sizeof values / 2);
    meet(file);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_all_begin(file, back, N, MPI_INT));
    CHECK(MPI_File_read_at_all_begin(file, 0, back, N, MPI_INT) != MPI_SUCCESS);
    OK(MPI_File_read_all_end(file, back, &status));
    CHECK(is_filled(back, 100 * rank));
    memset(back, 0, sizeof back);
    OK(MPI_File_read_at_all_begin(file, 0, back, N, MPI_INT));
    OK(MPI_File_read_at_all_end(file, back, &status));
    CHECK(is_filled(back, 100 * rank));
    OK(MPI_File_close(&file));
}

#if MPI_VERSION >= 4
/* The forms with large counts, and datatypes that only they can take apart. They are too
 * much for the ROMIO of MPICH 4.0, with which a remote file shares its view. */
static void large(void)
{
    MPI_File file = fresh();
    MPI_Status status;
    MPI_Request request;
    MPI_Datatype filetype, halves;
    MPI_Offset at;
    int values[N], back[N], row[4];
    fill(values, 100 * rank);
#if MPI_VERSION > 4 || MPI_SUBVERSION > 0
    MPI_Count large_sizes[2] = {16, 4 * processes}, large_lengths[2] = {16, 4};
    MPI_Count large_starts[2] = {0, 4 * rank};
    MPI_Type_create_subarray_c(2, large_sizes, large_lengths, large_starts, MPI_ORDER_C, MPI_INT,
                               &filetype);
#else
    int sizes[2] = {16, 4 * processes}, lengths[2] = {16, 4}, starts[2] = {0, 4 * rank};
    MPI_Type_create_subarray(2, sizes, lengths, starts, MPI_ORDER_C, MPI_INT, &filetype);
#endif
    MPI_Type_commit(&filetype);
    MPI_Type_vector_c(2, 8, N / 2, MPI_INT, &halves);
    MPI_Type_commit(&halves);
    OK(MPI_File_set_view(file, 0, MPI_INT, filetype, "native", MPI_INFO_NULL));
    OK(MPI_File_write_all_c(file, values, 16, MPI_INT, &status));
    CHECK(bytes_of(&status) == 64);
    OK(MPI_File_write_at_all_c(file, 16, values + 16, 16, MPI_INT, &status));
    OK(MPI_File_iwrite_at_c(file, 32, values + 32, 16, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_File_write_at_all_begin_c(file, 48, values + 48, 16, MPI_INT));
    OK(MPI_File_write_at_all_end(file, values + 48, &status));
    CHECK(bytes_of(&status) == 64);
    meet(file);
    OK(MPI_File_read_at_c(file, 0, back, N, MPI_INT, &status));
    CHECK(is_filled(back, 100 * rank));
    OK(MPI_File_iread_at_all_c(file, 0, back, N, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    CHECK(is_filled(back, 100 * rank));
    memset(back, 0, sizeof back);
    STRICT(OK(MPI_File_read_at_c(file, 0, back, 1, halves, &status)));
    STRICT(CHECK(back[7] == 100 * rank + 7 && back[N / 2] == 100 * rank + 8 && back[8] == 0));
    MPI_Type_free(&halves);
    MPI_Type_free(&filetype);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at_c(file, 4 * rank + 4 * processes, row, 4, MPI_INT, &status));
    CHECK(row[0] == 100 * rank + 4);
    together();
    OK(MPI_File_write_ordered_c(file, values, 2, MPI_INT, &status));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 2 * processes);
    OK(MPI_File_close(&file));
}
#endif

#endif
