/* Several threads of a process that use files at once: threads NAME.
 *
 * All write records at the individual pointer and at the shared pointer of common files, and each
 * has files of its own meanwhile. No record may be lost, torn or written over another.
 */
#include "check.h"
#include <pthread.h>
#include <string.h>

enum { THREADS = 4, RECORDS = 40, LENGTH = 50, ROUNDS = 5 };

/* Records of one process in a file. */
enum { ALL = THREADS * RECORDS };

static const char *name;
static MPI_File own_place, shared_place;
static int failures[THREADS];

static void open_own(int thread, int round)
{
    char own[4096];
    int values[LENGTH], back[LENGTH] = {0}, failed = 0;
    MPI_File file;
    snprintf(own, sizeof own, "%s.%d.%d", name, rank, thread);
    for (int i = 0; i < LENGTH; i++)
        values[i] = i + round;
    failed |= MPI_File_open(MPI_COMM_SELF, own, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                            &file);
    failed |= MPI_File_write_at(file, round, values, LENGTH, MPI_INT, MPI_STATUS_IGNORE);
    failed |= MPI_File_read_at(file, round, back, LENGTH, MPI_INT, MPI_STATUS_IGNORE);
    failed |= MPI_File_close(&file);
    failures[thread] += failed || memcmp(values, back, sizeof values) != 0;
}

static void *work(void *argument)
{
    int thread = *(int *)argument, record[LENGTH];
    for (int i = 0; i < RECORDS; i++) {
        MPI_Request request;
        for (int k = 0; k < LENGTH; k++)
            record[k] = rank * ALL + thread * RECORDS + i;
        int failed = MPI_File_write(own_place, record, LENGTH, MPI_INT, MPI_STATUS_IGNORE);
        failed |= MPI_File_iwrite_shared(shared_place, record, LENGTH, MPI_INT, &request);
        failed |= MPI_Wait(&request, MPI_STATUS_IGNORE);
        failures[thread] += failed != MPI_SUCCESS;
        if (i % (RECORDS / ROUNDS) == 0)
            open_own(thread, i);
    }
    return NULL;
}

/* Each record is there once and whole. */
static void check_records(MPI_File file, int count, int first)
{
    static char seen[1 << 16];
    int record[LENGTH];
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < count; i++) {
        OK(MPI_File_read_at(file, i * LENGTH, record, LENGTH, MPI_INT, MPI_STATUS_IGNORE));
        int is_whole = 1;
        for (int k = 1; k < LENGTH; k++)
            is_whole = is_whole && record[k] == record[0];
        CHECK(is_whole && record[0] >= first && record[0] < first + count);
        if (is_whole && record[0] >= first && record[0] < first + count)
            CHECK(!seen[record[0] - first]++);
    }
}

static MPI_File opened(const char *ending, MPI_Offset displacement)
{
    char full[4096];
    MPI_File file;
    snprintf(full, sizeof full, "%s.%s", name, ending);
    OK(MPI_File_open(MPI_COMM_WORLD, full, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    OK(MPI_File_set_view(file, displacement, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    return file;
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    CHECK(level == MPI_THREAD_MULTIPLE);
    name = argv[1];
    own_place = opened("own", (MPI_Offset)sizeof(int) * LENGTH * ALL * rank);
    shared_place = opened("shared", 0);
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(failures[i] == 0);
    }
    OK(MPI_File_sync(shared_place));
    MPI_Barrier(MPI_COMM_WORLD);
    check_records(own_place, ALL, rank * ALL);
    check_records(shared_place, ALL * processes, 0);
    OK(MPI_File_close(&own_place));
    OK(MPI_File_close(&shared_place));
    int result = report("threads");
    MPI_Finalize();
    return result;
}
