/* The state that the processes of a file share: the shared pointer, and the lock of atomic mode.
 *
 * If all of them run on one host, the state is in a page of memory that they map: an access through
 * the shared pointer costs no message. Otherwise the state is at the server of the file. If each
 * process has a server of its own (abt:, or started through ssh), processes of several hosts share
 * nothing: all of them get an error. Their collective calls use the pointer at the server of rank 0.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

struct shim_shared {
    _Atomic int64_t pointer;
    /* Of processes that have no lock at a server. It is robust: if its owner has died, the next
     * process gets it. */
    pthread_mutex_t lock;
};

const char *const SHIM_NOTHING_SHARED =
    "processes on several hosts, each with a separate server (abt:, or started through ssh), have no "
    "shared pointer, except in collective calls, and no atomic mode: start a server that listens "
    "(lads rfs serve --listen)";

/* The identifier of the group is random: no other program has a file of this name. */
static void name_of(const uint8_t group[16], char name[64])
{
    char *to = name + sprintf(name, "/dev/shm/lads-");
    for (size_t i = 0; i < 16; i++)
        to += sprintf(to, "%02x", group[i]);
}

static struct shim_shared *mapped(int descriptor)
{
    int flags = descriptor < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *at = mmap(NULL, sizeof(struct shim_shared), PROT_READ | PROT_WRITE, flags, descriptor, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int begin_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    int error = pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return error == 0;
}

void shim_shared_make(struct shim_file *file, const uint8_t group[16])
{
    char name[64];
    int size, descriptor = -1;
    PMPI_Comm_size(file->comm, &size);
    name_of(group, name);
    if (size > 1) {
        descriptor = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (descriptor < 0)
            return;
    }
    if (descriptor < 0 || ftruncate(descriptor, sizeof(struct shim_shared)) == 0)
        file->shared = mapped(descriptor);
    if (file->shared && !begin_lock(&file->shared->lock))
        shim_shared_leave(file);
    if (descriptor >= 0)
        close(descriptor);
}

void shim_shared_join(struct shim_file *file, const uint8_t group[16])
{
    char name[64];
    name_of(group, name);
    int descriptor = open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0)
        return;
    /* One that rank 0 could not make large enough must not be touched. */
    if (lseek(descriptor, 0, SEEK_END) == (off_t)sizeof(struct shim_shared))
        file->shared = mapped(descriptor);
    close(descriptor);
}

void shim_shared_hide(const uint8_t group[16])
{
    char name[64];
    name_of(group, name);
    unlink(name);
}

void shim_shared_leave(struct shim_file *file)
{
    if (file->shared)
        munmap(file->shared, sizeof(struct shim_shared));
    file->shared = NULL;
}

int shim_shares_nothing(const struct shim_file *file)
{
    return !file->shared && file->is_apart;
}

int shim_pointer_add(struct shim_file *file, int64_t bytes, uint64_t *before)
{
    /* The sum of the bytes of several processes was beyond the largest number. */
    if (bytes < 0)
        return MPI_ERR_ARG;
    if (!file->shared)
        return shim_class(rfs_add_shared(file->file, bytes, before));
    int64_t old = atomic_load(&file->shared->pointer), new;
    do {
        if (__builtin_add_overflow(old, bytes, &new))
            return MPI_ERR_ARG;
    } while (!atomic_compare_exchange_weak(&file->shared->pointer, &old, new));
    *before = (uint64_t)old;
    return MPI_SUCCESS;
}

int shim_pointer_set(struct shim_file *file, int64_t position)
{
    if (!file->shared)
        return shim_class(rfs_set_shared(file->file, (uint64_t)position));
    atomic_store(&file->shared->pointer, position);
    return MPI_SUCCESS;
}

/* Whether an access has to wait for this lock. */
static int has_lock(const struct shim_file *file)
{
    return file->is_atomic && file->is_apart;
}

void shim_lock(struct shim_file *file)
{
    if (has_lock(file) && pthread_mutex_lock(&file->shared->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&file->shared->lock);
}

void shim_unlock(struct shim_file *file)
{
    if (has_lock(file))
        pthread_mutex_unlock(&file->shared->lock);
}
