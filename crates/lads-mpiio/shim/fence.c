/* Fences: by default, data that a process has written is visible to another process after any message of MPI
 * between them.
 *
 * MPI requires sync, barrier, sync (MPI 4.0, section 14.6.1). Many programs and libraries use only the barrier,
 * or another message, because a local file system needs no more. So each function of MPI by which another
 * process may hear of a write is defined here, and first waits until all data that this process has written is
 * visible. Receives are included: a receive that is posted lets a synchronous send return. MPI_Wait and the
 * like are not: they complete an operation that an earlier call has begun. The functions are listed in
 * messages.inc, which is generated from the prototypes in mpi.h when the shim is built
 * (lads-shims/src/messages.rs).
 *
 * Files with the hint rfs_consistency=mpi need no fence.
 */
#include "shim.h"

/* The number of writes so far. */
static _Atomic uint64_t write_count;
/* The number of the last write; 0 after a fence. A write has a number of its own, so that a fence does not
 * clear the number of a write that it may have missed. */
static _Atomic uint64_t last_unfenced;

void shim_changed(const struct shim_file *file)
{
    if (rfs_needs_fence(file->file))
        last_unfenced = ++write_count;
}

/* Threads that send messages at the same time all wait: each may have heard of the write. So the number is
 * cleared behind the wait, not before it. */
static void fence(void)
{
    uint64_t last = atomic_load_explicit(&last_unfenced, memory_order_relaxed);
    if (!last)
        return;
    rfs_fence();
    atomic_compare_exchange_strong(&last_unfenced, &last, 0);
}

/* Defines a function that is called name. A profiler may stand between the shim and the library: the next
 * function of this name is called. */
#define FENCED(name, parameters, arguments)                                     \
    int name parameters                                                         \
    {                                                                           \
        static _Atomic(int(*) parameters) next_function;                        \
        if (!next_function)                                                     \
            next_function = (int(*) parameters)shim_real(#name);                \
        fence();                                                                \
        return next_function arguments;                                         \
    }

/* The Fortran layers of MPICH and Open MPI call PMPI_x. */
#define MESSAGE(name, parameters, arguments) \
    FENCED(name, parameters, arguments)      \
    FENCED(P##name, parameters, arguments)

#include "messages.inc"
