/* What is asked and said of a whole file: its size, group, amode, hints, atomicity; sync. */
#include "shim.h"

static int get_size(struct shim_file *file, MPI_Offset *size)
{
    uint64_t bytes = 0;
    int class = shim_class(rfs_get_size(file->file, &bytes));
    *size = (MPI_Offset)bytes;
    return shim_fail(file, class, shim_text(class));
}

FORWARD(File_get_size, (MPI_File handle, MPI_Offset *size), (handle, size), get_size(file, size))

/* The class of the error in a size that the program wants. */
static int size_class(const struct shim_file *file, MPI_Offset size)
{
    if (size < 0)
        return MPI_ERR_ARG;
    if (file->amode & MPI_MODE_RDONLY)
        return MPI_ERR_READ_ONLY;
    return file->amode & MPI_MODE_SEQUENTIAL ? MPI_ERR_UNSUPPORTED_OPERATION : MPI_SUCCESS;
}

/* Rank 0 changes the size for all, after everything that any process has written before is at the
 * server. */
static int resize(struct shim_file *file, MPI_Offset size,
                  int (*operation)(rfs_file *, uint64_t))
{
    int64_t wanted = size;
    int class = shim_agree_same(file->comm, size_class(file, size), &wanted, 1);
    if (class != MPI_SUCCESS)
        return shim_fail(file, class, NULL);
    char text[MPI_MAX_ERROR_STRING];
    int own = shim_class(rfs_flush(file->file));
    class = shim_agree_text(file->comm, own, shim_text(own), text);
    if (class != MPI_SUCCESS)
        return shim_fail(file, class, text);
    own = file->rank == 0 ? shim_class(operation(file->file, (uint64_t)size)) : MPI_SUCCESS;
    return shim_fail_together(file, own, shim_text(own));
}

FORWARD(File_set_size, (MPI_File handle, MPI_Offset size), (handle, size),
        resize(file, size, rfs_set_size))
FORWARD(File_preallocate, (MPI_File handle, MPI_Offset size), (handle, size),
        resize(file, size, rfs_preallocate))

FORWARD(File_get_group, (MPI_File handle, MPI_Group *group), (handle, group),
        PMPI_Comm_group(file->comm, group))

static int get_amode(const struct shim_file *file, int *amode)
{
    *amode = file->amode;
    return MPI_SUCCESS;
}

FORWARD(File_get_amode, (MPI_File handle, int *amode), (handle, amode), get_amode(file, amode))

/* The hints of the program, and over them those that are in force. */
static int get_info(const struct shim_file *file, MPI_Info *info)
{
    if (file->info == MPI_INFO_NULL)
        PMPI_Info_create(info);
    else
        PMPI_Info_dup(file->info, info);
    char key[64], value[256];
    for (size_t i = 0; rfs_get_hint(file->file, i, key, value); i++)
        PMPI_Info_set(*info, key, value);
    return MPI_SUCCESS;
}

FORWARD(File_get_info, (MPI_File handle, MPI_Info *info), (handle, info), get_info(file, info))

/* What was written before must be seen when atomic mode begins: rfs_set_atomic flushes it. */
static int set_atomicity(struct shim_file *file, int flag)
{
    int64_t is_atomic = flag != 0;
    int class = shim_same(file->comm, &is_atomic, 1);
    if (class != MPI_SUCCESS)
        return shim_fail(file, class, NULL);
    char text[MPI_MAX_ERROR_STRING];
    if (is_atomic && shim_shares_nothing(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, SHIM_NOTHING_SHARED);
    int own = shim_class(rfs_set_atomic(file->file, flag != 0));
    class = shim_agree_text(file->comm, own, shim_text(own), text);
    if (class == MPI_SUCCESS)
        file->is_atomic = flag != 0;
    return shim_fail(file, class, text);
}

FORWARD(File_set_atomicity, (MPI_File handle, int flag), (handle, flag),
        set_atomicity(file, flag))

static int get_atomicity(const struct shim_file *file, int *flag)
{
    *flag = file->is_atomic;
    return MPI_SUCCESS;
}

FORWARD(File_get_atomicity, (MPI_File handle, int *flag), (handle, flag),
        get_atomicity(file, flag))

static int sync_file(struct shim_file *file)
{
    int own = shim_class(rfs_sync(file->file));
    return shim_fail_together(file, own, shim_text(own));
}

FORWARD(File_sync, (MPI_File handle), (handle), sync_file(file))
