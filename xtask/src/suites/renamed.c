/* Opens each file of an MPI program under another name: the last part of its own name behind the
 * prefix in LADS_SUITE_PREFIX. Preloaded before the shim, so that test programs whose names of
 * files are constants use remote files.
 *
 * MPI_File_x and PMPI_File_x: the Fortran layers of some MPIs call the latter. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stores the name to open in `to`, which has room for `size` bytes. */
static const char *renamed(const char *name, char *to, size_t size)
{
    const char *prefix = getenv("LADS_SUITE_PREFIX");
    const char *last = strrchr(name, '/');
    if (prefix == NULL || strncmp(name, prefix, strlen(prefix)) == 0)
        return name;
    snprintf(to, size, "%s%s", prefix, last == NULL ? name : last + 1);
    return to;
}

static void *next(const char *symbol)
{
    void *function = dlsym(RTLD_NEXT, symbol);
    if (function == NULL) {
        fprintf(stderr, "no library has %s\n", symbol);
        abort();
    }
    return function;
}

#define OPEN(symbol)                                                                               \
    int symbol(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file)           \
    {                                                                                              \
        int (*open)(MPI_Comm, const char *, int, MPI_Info, MPI_File *) = next(#symbol);            \
        char to[4096];                                                                             \
        return open(comm, renamed(name, to, sizeof to), mode, info, file);                         \
    }

#define DELETE(symbol)                                                                             \
    int symbol(const char *name, MPI_Info info)                                                    \
    {                                                                                              \
        int (*delete_file)(const char *, MPI_Info) = next(#symbol);                                \
        char to[4096];                                                                             \
        return delete_file(renamed(name, to, sizeof to), info);                                    \
    }

OPEN(MPI_File_open)
OPEN(PMPI_File_open)
DELETE(MPI_File_delete)
DELETE(PMPI_File_delete)
