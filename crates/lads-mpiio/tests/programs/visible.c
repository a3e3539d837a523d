/* Whether a process reads what others have written before it received a message: visible HOW NAME.
 *
 * In each round, each thread writes a value in its place, and then the processes exchange messages. HOW is the
 * kind of message: barrier, ordered (writes and reads are collective), sync, atomic (mode), ring, ibarrier, put,
 * or threads, of which two send messages at the same time.
 */
#include "check.h"
#include <pthread.h>
#include <string.h>

enum { ROUNDS = 8, PROCESSES_MAX = 8, THREADS = 2 };

static const char *how;
static MPI_File file;
static MPI_Win window;

/* A thread, its communicator, and the place of its first process in the file. */
struct thread {
    MPI_Comm comm;
    int first, wrong;
};

static int is(const char *name)
{
    return strcmp(how, name) == 0;
}

/* Each process hears of its left neighbour. */
static void ring(MPI_Comm comm)
{
    int right = (rank + 1) % processes, left = (rank + processes - 1) % processes;
    if (rank % 2 == 0)
        MPI_Send(NULL, 0, MPI_BYTE, right, 0, comm);
    MPI_Recv(NULL, 0, MPI_BYTE, left, 0, comm, MPI_STATUS_IGNORE);
    if (rank % 2 == 1)
        MPI_Send(NULL, 0, MPI_BYTE, right, 0, comm);
}

/* Each process hears of all, by messages that it puts into the memory of others. */
static void put(void)
{
    int one = 1;
    MPI_Win_fence(0, window);
    for (int to = 0; to < processes; to++)
        MPI_Put(&one, 1, MPI_INT, to, rank, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
}

static void exchange(MPI_Comm comm)
{
    MPI_Request request;
    if (is("ring") || is("threads")) {
        ring(comm);
    } else if (is("ibarrier")) {
        MPI_Ibarrier(comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (is("put")) {
        put();
    } else {
        MPI_Barrier(comm);
    }
}

static void write_value(int place, int value)
{
    if (is("ordered")) {
        MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
        MPI_File_write_ordered(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    } else {
        MPI_File_write_at(file, place, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    }
    if (is("sync"))
        MPI_File_sync(file);
}

static void read_values(int place, int values[], int count)
{
    if (is("sync"))
        MPI_File_sync(file);
    if (is("ordered"))
        MPI_File_read_at_all(file, place, values, count, MPI_INT, MPI_STATUS_IGNORE);
    else
        MPI_File_read_at(file, place, values, count, MPI_INT, MPI_STATUS_IGNORE);
}

static void *work(void *argument)
{
    struct thread *thread = argument;
    int is_ring = is("ring") || is("threads"), left = (rank + processes - 1) % processes;
    for (int round = 1; round <= ROUNDS; round++) {
        int values[PROCESSES_MAX] = {0};
        write_value(thread->first + rank, round);
        exchange(thread->comm);
        read_values(thread->first, values, processes);
        for (int i = 0; i < processes; i++)
            thread->wrong += values[i] != round && (!is_ring || i == left);
        MPI_Barrier(thread->comm);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int level, *memory;
    how = argv[1];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    OK(MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    if (is("atomic"))
        OK(MPI_File_set_atomicity(file, 1));
    if (is("put"))
        MPI_Win_allocate(PROCESSES_MAX * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                         &memory, &window);
    struct thread threads[THREADS];
    pthread_t others[THREADS];
    int count = is("threads") && level == MPI_THREAD_MULTIPLE ? THREADS : 1;
    for (int i = 0; i < count; i++) {
        threads[i] = (struct thread){MPI_COMM_NULL, i * PROCESSES_MAX, 0};
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
    }
    for (int i = 1; i < count; i++)
        pthread_create(&others[i], NULL, work, &threads[i]);
    work(&threads[0]);
    for (int i = 0; i < count; i++) {
        if (i > 0)
            pthread_join(others[i], NULL);
        MPI_Comm_free(&threads[i].comm);
        CHECK(threads[i].wrong == 0);
    }
    if (is("put"))
        MPI_Win_free(&window);
    OK(MPI_File_close(&file));
    int code = report("visible");
    MPI_Finalize();
    return code;
}
