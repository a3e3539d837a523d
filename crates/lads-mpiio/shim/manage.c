/* What is asked and said of a whole file: its size, group, amode, hints, atomicity; sync. */
#include "shim.h"

int MPI_File_get_size(MPI_File handle, MPI_Offset *size)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_get_size)(handle, size);
    uint64_t bytes = 0;
    int class = shim_class(rfs_get_size(file->file, &bytes));
    *size = (MPI_Offset)bytes;
    return shim_fail(file, class, shim_text(class));
}
ALSO_PMPI(File_get_size);

/* Rank 0 does it for all, behind everything that any process has written before. */
static int resize(struct shim_file *file, MPI_Offset size,
                  int (*operation)(rfs_file *, uint64_t))
{
    int64_t bounds[2] = {size, -size};
    PMPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT64_T, MPI_MAX, file->comm);
    if (bounds[0] != -bounds[1])
        return shim_fail(file, MPI_ERR_NOT_SAME, NULL);
    if (size < 0)
        return shim_fail(file, MPI_ERR_ARG, NULL);
    if (file->amode & MPI_MODE_RDONLY)
        return shim_fail(file, MPI_ERR_READ_ONLY, NULL);
    if (file->amode & MPI_MODE_SEQUENTIAL)
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    int own = shim_class(rfs_flush(file->file));
    int class = shim_agree(file->comm, own);
    if (class == MPI_SUCCESS) {
        own = file->rank == 0 ? shim_class(operation(file->file, (uint64_t)size)) : MPI_SUCCESS;
        class = shim_told(file->comm, own);
    }
    return shim_fail(file, class, shim_text(own));
}

int MPI_File_set_size(MPI_File handle, MPI_Offset size)
{
    struct shim_file *file = shim_find(handle);
    return file ? resize(file, size, rfs_set_size) : REAL(File_set_size)(handle, size);
}
ALSO_PMPI(File_set_size);

int MPI_File_preallocate(MPI_File handle, MPI_Offset size)
{
    struct shim_file *file = shim_find(handle);
    return file ? resize(file, size, rfs_preallocate) : REAL(File_preallocate)(handle, size);
}
ALSO_PMPI(File_preallocate);

int MPI_File_get_group(MPI_File handle, MPI_Group *group)
{
    struct shim_file *file = shim_find(handle);
    return file ? PMPI_Comm_group(file->comm, group) : REAL(File_get_group)(handle, group);
}
ALSO_PMPI(File_get_group);

int MPI_File_get_amode(MPI_File handle, int *amode)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_get_amode)(handle, amode);
    *amode = file->amode;
    return MPI_SUCCESS;
}
ALSO_PMPI(File_get_amode);

/* The hints of the program, and over them those that are in force. */
int MPI_File_get_info(MPI_File handle, MPI_Info *info)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_get_info)(handle, info);
    if (file->info == MPI_INFO_NULL)
        PMPI_Info_create(info);
    else
        PMPI_Info_dup(file->info, info);
    char key[64], value[256];
    for (size_t i = 0; rfs_get_hint(file->file, i, key, value); i++)
        PMPI_Info_set(*info, key, value);
    return MPI_SUCCESS;
}
ALSO_PMPI(File_get_info);

/* What was written before must be seen when atomic mode begins. */
int MPI_File_set_atomicity(MPI_File handle, int flag)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_set_atomicity)(handle, flag);
    int bounds[2] = {flag != 0, -(flag != 0)};
    PMPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT, MPI_MAX, file->comm);
    if (bounds[0] != -bounds[1])
        return shim_fail(file, MPI_ERR_NOT_SAME, NULL);
    int own = shim_class(rfs_set_atomic(file->file, flag != 0));
    int class = shim_agree(file->comm, own);
    if (class == MPI_SUCCESS)
        file->is_atomic = flag != 0;
    return shim_fail(file, class, shim_text(own));
}
ALSO_PMPI(File_set_atomicity);

int MPI_File_get_atomicity(MPI_File handle, int *flag)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_get_atomicity)(handle, flag);
    *flag = file->is_atomic;
    return MPI_SUCCESS;
}
ALSO_PMPI(File_get_atomicity);

int MPI_File_sync(MPI_File handle)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_sync)(handle);
    int own = shim_class(rfs_sync(file->file));
    int class = shim_agree(file->comm, own);
    return shim_fail(file, class, shim_text(own));
}
ALSO_PMPI(File_sync);
