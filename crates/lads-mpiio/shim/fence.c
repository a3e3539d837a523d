/* Fences, for libraries that order what several processes write by messages alone.
 *
 * What one process writes is certain to be seen by another, or to stay below what another writes
 * over it, only after sync, barrier, sync (MPI 4.0, section 14.6.1). HDF5 and PnetCDF do less: all
 * processes fill a new dataset, they meet in a barrier, and then one writes into what another has
 * filled. On a local file that works. Here, the first write may still be in the buffer of its
 * process.
 *
 * So a file that such a library has opened has fences: before the library calls one of the
 * functions below, this process waits until all that it has written is at the server. (It does not
 * wait until it is durable.) Between two calls of the library the program computes, and what it has
 * written is sent meanwhile. Before a collective read of such a file, all processes do the same:
 * PnetCDF moves data that others have written without a message in between. Nothing is kept of what
 * such a library reads from a file that it may write. The library is known by
 * its name, so one that is linked statically is not: its files need the hint rfs_buffering=false.
 */
#include "shim.h"
#include <link.h>
#include <stdio.h>

/* How many files with fences are open. Other programs pay for a look at it. */
static atomic_int fenced_count;

struct search {
    uintptr_t caller, begin, end;
};

/* Whether the code of a loaded object encloses the caller, and the object is a library that needs
 * fences. */
static int look(struct dl_phdr_info *object, size_t size, void *with)
{
    (void)size;
    struct search *search = with;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t at = object->dlpi_addr + segment->p_vaddr;
        begin = at < begin ? at : begin;
        end = at + segment->p_memsz > end ? at + segment->p_memsz : end;
    }
    if (search->caller < begin || search->caller >= end)
        return 0;
    const char *name = strrchr(object->dlpi_name, '/');
    name = name ? name + 1 : object->dlpi_name;
    if (strncmp(name, "libhdf5", 7) == 0 || strncmp(name, "libpnetcdf", 10) == 0) {
        search->begin = begin;
        search->end = end;
    }
    return 1;
}

void shim_fence_for(struct shim_file *file, uintptr_t caller)
{
    struct search search = {caller, 0, 0};
    dl_iterate_phdr(look, &search);
    file->library = search.begin;
    file->library_end = search.end;
    if (!file->library)
        return;
    fenced_count++;
    /* Others write, and no sync says when: nothing that was read is kept. */
    if (!(file->amode & MPI_MODE_RDONLY))
        rfs_set_hints(file->file, &(rfs_hint){"rfs_read_cache", "false"}, 1);
}

void shim_fence_closed(const struct shim_file *file)
{
    if (file->library)
        fenced_count--;
}

int shim_late(struct shim_file *file)
{
    pthread_mutex_lock(&file->lock);
    int class = file->late_class;
    file->late_class = MPI_SUCCESS;
    pthread_mutex_unlock(&file->lock);
    return class;
}

static void wait_for_writes(struct shim_file *file)
{
    if (!atomic_exchange(&file->is_behind, 0))
        return;
    int class = shim_class(rfs_flush(file->file));
    if (class == MPI_SUCCESS)
        return;
    pthread_mutex_lock(&file->lock);
    if (file->late_class == MPI_SUCCESS) {
        file->late_class = class;
        snprintf(file->late_text, sizeof file->late_text, "%s", rfs_message());
    }
    pthread_mutex_unlock(&file->lock);
}

static void fence(struct shim_file *file, uintptr_t caller)
{
    if (caller >= file->library && caller < file->library_end)
        wait_for_writes(file);
}

void shim_fence_all(struct shim_file *file)
{
    if (!file->library)
        return;
    wait_for_writes(file);
    PMPI_Barrier(file->comm);
}

/* The functions of MPI by which these libraries tell other processes that something is written. A
 * profiler may stand between the shim and the library: the next function of this name is called. */
#define FENCE(name, parameters, arguments)                                        \
    int MPI_##name parameters                                                     \
    {                                                                             \
        static __typeof__(&MPI_##name) next;                                      \
        if (!next)                                                                \
            next = (__typeof__(next))shim_real("MPI_" #name);                     \
        if (fenced_count)                                                         \
            shim_for_each(fence, (uintptr_t)__builtin_return_address(0)); \
        return next arguments;                                                    \
    }

FENCE(Barrier, (MPI_Comm comm), (comm))
FENCE(Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm),
      (data, count, type, root, comm))
FENCE(Reduce,
      (const void *data, void *result, int count, MPI_Datatype type, MPI_Op op, int root,
       MPI_Comm comm),
      (data, result, count, type, op, root, comm))
FENCE(Allreduce,
      (const void *data, void *result, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (data, result, count, type, op, comm))
FENCE(Gather,
      (const void *data, int count, MPI_Datatype type, void *all, int all_count,
       MPI_Datatype all_type, int root, MPI_Comm comm),
      (data, count, type, all, all_count, all_type, root, comm))
FENCE(Gatherv,
      (const void *data, int count, MPI_Datatype type, void *all, const int *counts,
       const int *places, MPI_Datatype all_type, int root, MPI_Comm comm),
      (data, count, type, all, counts, places, all_type, root, comm))
FENCE(Allgather,
      (const void *data, int count, MPI_Datatype type, void *all, int all_count,
       MPI_Datatype all_type, MPI_Comm comm),
      (data, count, type, all, all_count, all_type, comm))
FENCE(Allgatherv,
      (const void *data, int count, MPI_Datatype type, void *all, const int *counts,
       const int *places, MPI_Datatype all_type, MPI_Comm comm),
      (data, count, type, all, counts, places, all_type, comm))
FENCE(Scatterv,
      (const void *all, const int *counts, const int *places, MPI_Datatype all_type, void *data,
       int count, MPI_Datatype type, int root, MPI_Comm comm),
      (all, counts, places, all_type, data, count, type, root, comm))
FENCE(Isend,
      (const void *data, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm,
       MPI_Request *request),
      (data, count, type, target, tag, comm, request))
