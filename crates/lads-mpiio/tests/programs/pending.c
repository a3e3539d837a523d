/* Nonblocking reads that are pending: pending NAME GO, on one process or more.
 *
 * The server's answers are held until the file GO exists. The program makes it when it has begun to read:
 * a read that is not pending would wait for ever.
 */
#include "check.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 1 << 20, PARTS = 6 };

static int *values, *back;

static int has_part(int part)
{
    int length = N / PARTS, is_right = 1;
    for (int i = part * length; i < (part + 1) * length; i++)
        is_right = is_right && back[i] == 3 * i;
    memset(back + part * length, 0, (size_t)length * sizeof *back);
    return is_right;
}

static void read_part(MPI_File file, int part, MPI_Request *request)
{
    MPI_Offset length = N / PARTS;
    OK(MPI_File_iread_at(file, part * length * (MPI_Offset)sizeof *back, back + part * length,
                         (int)length, MPI_INT, request));
}

static int count_of(MPI_Status *status)
{
    int count = -1;
    MPI_Get_count(status, MPI_INT, &count);
    return count;
}

/* The program goes on while the first read is held; so does one that ends a split collective. */
static void held(MPI_File file, const char *go)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 1;
    read_part(file, 0, &request);
    OK(MPI_Test(&request, &flag, &status));
    CHECK(!flag);
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(!flag);
    OK(MPI_File_read_at_all_begin(file, 0, back + N / PARTS, N / PARTS, MPI_INT));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        close(open(go, O_CREAT | O_WRONLY, 0644));
    OK(MPI_Wait(&request, &status));
    CHECK(request == MPI_REQUEST_NULL && count_of(&status) == N / PARTS);
    CHECK(has_part(0));
    OK(MPI_File_read_at_all_end(file, back + N / PARTS, &status));
    CHECK(count_of(&status) == N / PARTS);
    CHECK(memcmp(back + N / PARTS, values, N / PARTS * sizeof *back) == 0);
}

/* Each function that waits or tests, with another request among those of reads. */
static void several(MPI_File file)
{
    MPI_Request requests[PARTS + 1];
    MPI_Status statuses[PARTS + 1], status;
    int indices[PARTS + 1], seen[PARTS + 1] = {0}, index, flag, done, message = 0;
    for (int way = 0; way < 6; way++) {
        int other = (rank + 1) % processes, from = (rank + processes - 1) % processes, left;
        OK(MPI_Irecv(&message, 1, MPI_INT, from, way, MPI_COMM_WORLD, &requests[PARTS]));
        for (int part = 0; part < PARTS; part++)
            read_part(file, part, &requests[part]);
        OK(MPI_Send(&way, 1, MPI_INT, other, way, MPI_COMM_WORLD));
        memset(seen, 0, sizeof seen);
        for (left = PARTS + 1, flag = 0; left > 0;) {
            done = 0;
            switch (way) {
            case 0:
                OK(MPI_Waitall(PARTS + 1, requests, statuses));
                left = 0;
                break;
            case 1:
                OK(MPI_Testall(PARTS + 1, requests, &flag, statuses));
                left = flag ? 0 : left;
                break;
            case 2:
                OK(MPI_Waitany(PARTS + 1, requests, &index, &status));
                seen[index]++;
                left--;
                break;
            case 3:
                OK(MPI_Testany(PARTS + 1, requests, &index, &flag, &status));
                left -= flag;
                break;
            case 4:
                OK(MPI_Waitsome(PARTS + 1, requests, &done, indices, statuses));
                CHECK(done > 0);
                left -= done;
                break;
            default:
                OK(MPI_Testsome(PARTS + 1, requests, &done, indices, statuses));
                left -= done;
            }
        }
        for (int part = 0; part < PARTS; part++) {
            CHECK(requests[part] == MPI_REQUEST_NULL && has_part(part));
            if (way < 2)
                CHECK(count_of(&statuses[part]) == N / PARTS);
            if (way == 2)
                CHECK(seen[part] == 1);
        }
        CHECK(message == way);
    }
}

/* The end of the file, a datatype that is freed meanwhile, and a file pointer. */
static void others(MPI_File file)
{
    MPI_Request request, second;
    MPI_Status status;
    MPI_Datatype type;
    MPI_Offset at = -1;
    OK(MPI_Type_vector(N / 4, 1, 2, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_File_iread_at(file, 0, back, 1, type, &request));
    OK(MPI_Type_free(&type));
    OK(MPI_Wait(&request, &status));
    int is_right = 1;
    for (int i = 0; i < N / 4; i++)
        is_right = is_right && back[2 * i] == 3 * i;
    CHECK(is_right);
    OK(MPI_File_seek(file, (N - 10) * (MPI_Offset)sizeof *back, MPI_SEEK_SET));
    OK(MPI_File_iread(file, back, 4, MPI_INT, &request));
    OK(MPI_File_iread(file, back + 4, 100, MPI_INT, &second));
    OK(MPI_Wait(&second, &status));
    CHECK(count_of(&status) == 6);
    OK(MPI_Wait(&request, &status));
    CHECK(count_of(&status) == 4);
    CHECK(memcmp(back, values + N - 10, 10 * sizeof *back) == 0);
    OK(MPI_File_get_position(file, &at));
    CHECK(at == N * (MPI_Offset)sizeof *back);
    OK(MPI_File_iread_at(file, 0, back, 4, MPI_INT, &request));
    OK(MPI_Request_free(&request));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    values = malloc(N * sizeof *values);
    back = calloc(N, sizeof *back);
    for (int i = 0; i < N; i++)
        values[i] = 3 * i;
    MPI_File file;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "rfs_read_cache", "false");
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file));
    if (rank == 0)
        OK(MPI_File_write_at(file, 0, values, N, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_sync(file));
    held(file, argv[2]);
    several(file);
    others(file);
    OK(MPI_File_close(&file));
    MPI_Info_free(&info);
    free(values);
    free(back);
    int code = report("pending");
    MPI_Finalize();
    return code;
}
