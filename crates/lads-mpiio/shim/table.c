/* Which files of the program are remote.
 *
 * A program that opens a remote file holds an open file of its MPI library all the same: an empty
 * one in memory that has no name any more. So whatever the shim leaves alone works on it, with no
 * code here: error handlers, and conversion to Fortran and back. It is open for reading only: a write
 * that passed the shim by would fail, and not vanish.
 */
#include "shim.h"
#include <stdio.h>
#include <unistd.h>

static struct shim_file *files;
static pthread_rwlock_t files_lock = PTHREAD_RWLOCK_INITIALIZER;

/* What a doctor looks for, to see whether the shim is in force: the version of this interface. */
int rfs_shim_version(void);
int rfs_shim_version(void)
{
    return 1;
}

void *shim_real(const char *name)
{
    void *real = dlsym(RTLD_NEXT, name);
    if (!real) {
        fprintf(stderr, "rfs: the MPI library has no %s\n", name);
        abort();
    }
    return real;
}

struct shim_file *shim_find(MPI_File handle)
{
    pthread_rwlock_rdlock(&files_lock);
    struct shim_file *file = files;
    while (file && file->handle != handle)
        file = file->next;
    pthread_rwlock_unlock(&files_lock);
    return file;
}

void shim_table_add(struct shim_file *file)
{
    pthread_rwlock_wrlock(&files_lock);
    file->next = files;
    files = file;
    pthread_rwlock_unlock(&files_lock);
}

void shim_table_remove(struct shim_file *file)
{
    pthread_rwlock_wrlock(&files_lock);
    struct shim_file **at = &files;
    while (*at != file)
        at = &(*at)->next;
    *at = file->next;
    pthread_rwlock_unlock(&files_lock);
}

/* A class of MPI. The communicator has one process: no hidden collectives. */
int shim_proxy_open(MPI_File *handle)
{
    const char *elsewhere = getenv("TMPDIR");
    const char *places[] = {"/dev/shm", elsewhere ? elsewhere : "/tmp"};
    char name[4096];
    int descriptor = -1;
    for (size_t i = 0; i < 2 && descriptor < 0; i++) {
        snprintf(name, sizeof name, "%s/rfs-XXXXXX", places[i]);
        descriptor = mkstemp(name);
    }
    if (descriptor < 0)
        return MPI_ERR_IO;
    close(descriptor);
    int code = REAL(File_open)(MPI_COMM_SELF, name, MPI_MODE_RDONLY, MPI_INFO_NULL, handle);
    unlink(name);
    return code == MPI_SUCCESS ? MPI_SUCCESS : MPI_ERR_IO;
}
