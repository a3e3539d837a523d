/* Nonblocking reads, and split collective reads: a thread reads while the program goes on.
 *
 * The thread calls no function of the MPI, whatever the level of threads is. So the generalized request of a
 * read is completed by the program's own call of MPI_Wait, MPI_Test and the like, before the library sees the
 * request: these functions are defined here, and cost a look at a number if no read is pending. What takes the
 * MPI, such as unpacking, is done there too.
 */
#include "transfer.h"
#include <sched.h>
#include <signal.h>

/* As many as a client may ask for at a time (CLIENT_READS_MAX). */
enum { WORKERS_MAX = 4 };

enum state { RUNNING, READ_IN, FINISHED };

struct shim_read {
    struct shim_read *next;
    /* The next one that no thread has begun. */
    struct shim_read *queued;
    struct shim_file *file;
    struct work work;
    /* MPI_REQUEST_NULL: of a split collective. */
    MPI_Request request;
    enum state state;
    /* For the program, when it is finished. */
    int code;
};

/* Protects everything below, and the states of reads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct shim_read *reads, *queue_first, *queue_last;
static int worker_count, idle_count;
/* Reads that a call of the program has not waited for. Other programs pay for a look at it. */
static atomic_int pending_count;

static void *work(void *none)
{
    (void)none;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!queue_first) {
            idle_count++;
            pthread_cond_wait(&changed, &lock);
            idle_count--;
        }
        struct shim_read *read = queue_first;
        queue_first = read->queued;
        pthread_mutex_unlock(&lock);
        shim_work_run(read->file, &read->work);
        pthread_mutex_lock(&lock);
        read->state = READ_IN;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

/* Returns whether there is a thread that will read. The signals of the program are for its own threads. */
static int has_worker(void)
{
    if (idle_count > 0 || worker_count == WORKERS_MAX)
        return 1;
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        pthread_detach(thread);
        worker_count++;
    }
    return worker_count > 0;
}

static void queue(struct shim_read *read)
{
    pthread_mutex_lock(&lock);
    read->next = reads;
    reads = read;
    pending_count++;
    int is_queued = has_worker();
    if (is_queued && queue_first)
        queue_last->queued = read;
    else if (is_queued)
        queue_first = read;
    if (is_queued)
        queue_last = read;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (is_queued)
        return;
    /* No thread can be started. */
    shim_work_run(read->file, &read->work);
    pthread_mutex_lock(&lock);
    read->state = READ_IN;
    pthread_mutex_unlock(&lock);
}

static struct shim_read *begun(struct shim_file *file, const struct work *work)
{
    struct shim_read *read = calloc(1, sizeof *read);
    if (!read)
        return NULL;
    read->file = file;
    read->work = *work;
    read->request = MPI_REQUEST_NULL;
    return read;
}

static void forget(struct shim_read *read)
{
    pthread_mutex_lock(&lock);
    struct shim_read **at = &reads;
    while (*at != read)
        at = &(*at)->next;
    *at = read->next;
    pending_count--;
    pthread_mutex_unlock(&lock);
    free(read);
}

/* Does what is left of a read whose bytes have arrived. */
static void finish(struct shim_read *read)
{
    read->code = shim_work_finish(read->file, &read->work);
    pthread_mutex_lock(&lock);
    read->state = FINISHED;
    pthread_mutex_unlock(&lock);
    if (read->request != MPI_REQUEST_NULL)
        PMPI_Grequest_complete(read->request);
}

static void wait_for(struct shim_read *read)
{
    pthread_mutex_lock(&lock);
    while (read->state == RUNNING)
        pthread_cond_wait(&changed, &lock);
    int is_left = read->state == READ_IN;
    pthread_mutex_unlock(&lock);
    if (is_left)
        finish(read);
}

static int query(void *state, MPI_Status *status)
{
    const struct shim_read *read = state;
    shim_status(status, read->work.moved.in_memory);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int free_read(void *state)
{
    forget(state);
    return MPI_SUCCESS;
}

static int cancel(void *state, int is_complete)
{
    (void)state;
    (void)is_complete;
    return MPI_SUCCESS;
}

int shim_read_start(struct shim_file *file, const struct work *work, MPI_Request *request)
{
    struct shim_read *read = begun(file, work);
    if (!read)
        return MPI_ERR_NO_MEM;
    PMPI_Grequest_start(query, free_read, cancel, read, request);
    read->request = *request;
    queue(read);
    return MPI_SUCCESS;
}

struct shim_read *shim_read_begin(struct shim_file *file, const struct work *work)
{
    struct shim_read *read = begun(file, work);
    if (read)
        queue(read);
    return read;
}

int shim_read_end(struct shim_read *read, uint64_t *bytes)
{
    wait_for(read);
    int code = read->code;
    *bytes = read->work.moved.in_memory;
    forget(read);
    return code;
}

/* The pending read of a request; null for other requests. */
static struct shim_read *read_of(MPI_Request request)
{
    pthread_mutex_lock(&lock);
    struct shim_read *read = reads;
    while (read && (request == MPI_REQUEST_NULL || read->request != request))
        read = read->next;
    pthread_mutex_unlock(&lock);
    return read;
}

/* Finishes the reads of these requests whose bytes have arrived, or waits for all of them. Returns the number
 * of the requests that are reads, and how many of these are not finished. */
static int finish_those(int count, const MPI_Request requests[], int is_waiting, int *left)
{
    int found = 0;
    *left = 0;
    for (int i = 0; i < count; i++) {
        struct shim_read *read = read_of(requests[i]);
        if (!read)
            continue;
        found++;
        pthread_mutex_lock(&lock);
        int is_running = read->state == RUNNING;
        pthread_mutex_unlock(&lock);
        if (is_waiting || !is_running)
            wait_for(read);
        else
            ++*left;
    }
    return found;
}

/* The codes of finished reads among these requests; null if none has failed. The caller frees them. */
static int *failed_codes(int count, const MPI_Request requests[])
{
    int *codes = NULL;
    for (int i = 0; i < count; i++) {
        struct shim_read *read = read_of(requests[i]);
        if (!read || read->state != FINISHED || read->code == MPI_SUCCESS)
            continue;
        if (!codes)
            codes = calloc((size_t)count, sizeof *codes);
        if (codes)
            codes[i] = read->code;
    }
    return codes;
}

/* The code of a call that has completed one request. */
static int code_of_one(int code, int *codes, int is_complete, int index)
{
    if (code == MPI_SUCCESS && codes && is_complete && index != MPI_UNDEFINED)
        code = codes[index];
    free(codes);
    return code;
}

/* The code of a call that has completed several; `indices` is null if they are all. */
static int code_of_several(int code, int *codes, int count, const int *indices,
                           MPI_Status statuses[])
{
    int has_failed = 0;
    for (int i = 0; codes && code == MPI_SUCCESS && i < count; i++)
        has_failed |= codes[indices ? indices[i] : i] != MPI_SUCCESS;
    for (int i = 0; has_failed && statuses != MPI_STATUSES_IGNORE && i < count; i++)
        statuses[i].MPI_ERROR = codes[indices ? indices[i] : i];
    free(codes);
    return has_failed ? MPI_ERR_IN_STATUS : code;
}

/* Until one of several requests is complete, of which some are reads: other requests need the library. */
static void pause_for(int count, const MPI_Request requests[], int reads_left)
{
    int active = 0;
    for (int i = 0; i < count; i++)
        active += requests[i] != MPI_REQUEST_NULL;
    if (active > reads_left || reads_left == 0) {
        sched_yield();
        return;
    }
    pthread_mutex_lock(&lock);
    int is_any = 0;
    while (!is_any) {
        for (struct shim_read *read = reads; read; read = read->next)
            for (int i = 0; i < count; i++)
                is_any |= read->request == requests[i] && read->state != RUNNING;
        if (!is_any)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    int left;
    if (!pending_count || !finish_those(1, request, 1, &left))
        return REAL(Wait)(request, status);
    int *codes = failed_codes(1, request);
    return code_of_one(REAL(Wait)(request, status), codes, 1, 0);
}
ALSO_PMPI(Wait);

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    int left;
    if (!pending_count || !finish_those(1, request, 0, &left))
        return REAL(Test)(request, flag, status);
    int *codes = failed_codes(1, request);
    int code = REAL(Test)(request, flag, status);
    return code_of_one(code, codes, *flag, 0);
}
ALSO_PMPI(Test);

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status *statuses)
{
    int left;
    if (!pending_count || !finish_those(count, requests, 1, &left))
        return REAL(Waitall)(count, requests, statuses);
    int *codes = failed_codes(count, requests);
    int code = REAL(Waitall)(count, requests, statuses);
    return code_of_several(code, codes, count, NULL, statuses);
}
ALSO_PMPI(Waitall);

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status *statuses)
{
    int left;
    if (!pending_count || !finish_those(count, requests, 0, &left))
        return REAL(Testall)(count, requests, flag, statuses);
    int *codes = failed_codes(count, requests);
    int code = REAL(Testall)(count, requests, flag, statuses);
    return code_of_several(code, codes, *flag ? count : 0, NULL, statuses);
}
ALSO_PMPI(Testall);

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    int left;
    if (!pending_count || !finish_those(count, requests, 0, &left))
        return REAL(Testany)(count, requests, index, flag, status);
    int *codes = failed_codes(count, requests);
    int code = REAL(Testany)(count, requests, index, flag, status);
    return code_of_one(code, codes, *flag, *index);
}
ALSO_PMPI(Testany);

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    int left, flag = 0, code = MPI_SUCCESS;
    if (!pending_count || !finish_those(count, requests, 0, &left))
        return REAL(Waitany)(count, requests, index, status);
    while (code == MPI_SUCCESS && !flag) {
        finish_those(count, requests, 0, &left);
        int *codes = failed_codes(count, requests);
        code = REAL(Testany)(count, requests, index, &flag, status);
        code = code_of_one(code, codes, flag, *index);
        if (code == MPI_SUCCESS && !flag)
            pause_for(count, requests, left);
    }
    return code;
}
ALSO_PMPI(Waitany);

int MPI_Testsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses)
{
    int left;
    if (!pending_count || !finish_those(count, requests, 0, &left))
        return REAL(Testsome)(count, requests, done, indices, statuses);
    int *codes = failed_codes(count, requests);
    int code = REAL(Testsome)(count, requests, done, indices, statuses);
    return code_of_several(code, codes, *done == MPI_UNDEFINED ? 0 : *done, indices, statuses);
}
ALSO_PMPI(Testsome);

int MPI_Waitsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses)
{
    int left, code = MPI_SUCCESS;
    if (!pending_count || !finish_those(count, requests, 0, &left))
        return REAL(Waitsome)(count, requests, done, indices, statuses);
    for (*done = 0; code == MPI_SUCCESS && *done == 0;) {
        code = MPI_Testsome(count, requests, done, indices, statuses);
        if (code == MPI_SUCCESS && *done == 0) {
            finish_those(count, requests, 0, &left);
            pause_for(count, requests, left);
        }
    }
    return code;
}
ALSO_PMPI(Waitsome);

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    int left;
    if (pending_count)
        finish_those(1, &request, 0, &left);
    return REAL(Request_get_status)(request, flag, status);
}
ALSO_PMPI(Request_get_status);

#if SHIM_HAS_VALUE_INDEX
/* The forms of MPI 4.1 for several requests. */
#define GET_STATUS(name, parameters, arguments)                     \
    int MPI_Request_get_status_##name parameters                    \
    {                                                               \
        int left;                                                   \
        if (pending_count)                                          \
            finish_those(count, requests, 0, &left);                \
        return REAL(Request_get_status_##name) arguments;           \
    }                                                               \
    ALSO_PMPI(Request_get_status_##name);

GET_STATUS(all, (int count, const MPI_Request requests[], int *flag, MPI_Status *statuses),
           (count, requests, flag, statuses))
GET_STATUS(any,
           (int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status),
           (count, requests, index, flag, status))
GET_STATUS(some,
           (int count, const MPI_Request requests[], int *done, int indices[],
            MPI_Status *statuses),
           (count, requests, done, indices, statuses))
#endif

int MPI_Request_free(MPI_Request *request)
{
    int left;
    if (pending_count)
        finish_those(1, request, 1, &left);
    return REAL(Request_free)(request);
}
ALSO_PMPI(Request_free);

void shim_reads_wait(const struct shim_file *file)
{
    pthread_mutex_lock(&lock);
    struct shim_read *read = reads;
    while (read)
        if (read->file == file && read->state == RUNNING) {
            pthread_cond_wait(&changed, &lock);
            read = reads;
        } else {
            read = read->next;
        }
    pthread_mutex_unlock(&lock);
}
