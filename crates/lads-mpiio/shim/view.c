/* The view, and the pointers into it: MPI_File_set_view, _seek, _get_position and their shared
 * forms. The program counts in etypes, rfs.h in bytes of the view.
 */
#include "shim.h"

static int is_sequential(const struct shim_file *file)
{
    return (file->amode & MPI_MODE_SEQUENTIAL) != 0;
}

/* The class of an error in the arguments of a view. */
static int view_class(const struct shim_file *file, MPI_Offset displacement, MPI_Datatype etype,
                      MPI_Datatype filetype, const char *datarep)
{
    if (etype == MPI_DATATYPE_NULL || filetype == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    if (!datarep || (strcmp(datarep, "native") != 0 && strcmp(datarep, "internal") != 0))
        return MPI_ERR_UNSUPPORTED_DATAREP;
    int is_current = displacement == MPI_DISPLACEMENT_CURRENT;
    if (is_current != is_sequential(file) || (displacement < 0 && !is_current))
        return MPI_ERR_ARG;
    MPI_Count etype_bytes, bytes;
    PMPI_Type_size_x(etype, &etype_bytes);
    PMPI_Type_size_x(filetype, &bytes);
    return etype_bytes <= 0 || bytes % etype_bytes != 0 ? MPI_ERR_ARG : MPI_SUCCESS;
}

/* What the processes have to know of each other to set a view, found out at once. */
struct agreement {
    int class, is_shared_moved, etype_bytes, less_etype_bytes;
};

static struct agreement agree(const struct shim_file *file, int class, MPI_Datatype etype)
{
    int bytes = 0;
    if (class == MPI_SUCCESS)
        PMPI_Type_size(etype, &bytes);
    struct agreement own = {class, file->is_shared_moved, bytes, -bytes}, all = own;
    PMPI_Allreduce(&own, &all, 4, MPI_INT, MPI_MAX, file->comm);
    if (all.class == MPI_SUCCESS && all.etype_bytes != -all.less_etype_bytes)
        all.class = MPI_ERR_NOT_SAME;
    return all;
}

/* The shared pointer, in bytes of the view, as rank 0 finds it. */
static int shared_pointer(struct shim_file *file, uint64_t *pointer)
{
    *pointer = 0;
    int class = MPI_SUCCESS;
    if (file->rank == 0)
        class = shim_class(rfs_add_shared(file->file, 0, pointer));
    PMPI_Bcast(pointer, 1, MPI_UINT64_T, 0, file->comm);
    return shim_told(file->comm, class);
}

/* Where MPI_DISPLACEMENT_CURRENT is: at the shared pointer, by the view that ends now. */
static int current(struct shim_file *file, MPI_Offset *displacement)
{
    uint64_t pointer;
    int class = shared_pointer(file, &pointer);
    if (class == MPI_SUCCESS)
        PMPI_File_get_byte_offset(file->handle, (MPI_Offset)pointer / file->etype_bytes,
                                  displacement);
    return class;
}

/* Sets the shared pointer for all. */
static int move_shared(struct shim_file *file, uint64_t pointer)
{
    int class = MPI_SUCCESS;
    if (file->rank == 0)
        class = shim_class(rfs_set_shared(file->file, pointer));
    return shim_told(file->comm, class);
}

/* A filetype without bytes (a process that has no part of the data) is none for the server. */
static int send_view(struct shim_file *file, MPI_Offset displacement, MPI_Datatype filetype)
{
    MPI_Count bytes;
    PMPI_Type_size_x(filetype, &bytes);
    struct shim_type *type = shim_type_of(bytes ? filetype : MPI_BYTE);
    if (!type)
        return MPI_ERR_TYPE;
    struct shim_bytes tree = {0};
    shim_type_write(type, &tree);
    shim_type_free(type);
    int class = tree.is_out_of_memory ? MPI_ERR_NO_MEM
                                      : shim_class(rfs_set_view(file->file, (uint64_t)displacement,
                                                                tree.bytes, tree.length));
    free(tree.bytes);
    file->is_view_empty = bytes == 0;
    return class;
}

static void take_hints(struct shim_file *file, MPI_Info info)
{
    size_t count;
    rfs_hint *hints = shim_hints(info, &count);
    if (count > 0 && file->info == MPI_INFO_NULL)
        PMPI_Info_create(&file->info);
    for (size_t i = 0; i < count; i++)
        PMPI_Info_set(file->info, hints[i].key, hints[i].value);
    rfs_set_hints(file->file, hints, count);
    shim_hints_free(hints, count);
}

/* One agreement between the processes, and no message to the server but if the shared pointer was
 * moved: the view travels with the next request. */
int MPI_File_set_view(MPI_File handle, MPI_Offset displacement, MPI_Datatype etype,
                      MPI_Datatype filetype, const char *datarep, MPI_Info info)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_set_view)(handle, displacement, etype, filetype, datarep, info);
    int own = view_class(file, displacement, etype, filetype, datarep);
    struct agreement all = agree(file, own, etype);
    if (all.class != MPI_SUCCESS)
        return shim_fail(file, all.class, NULL);
    if (is_sequential(file))
        all.class = current(file, &displacement);
    if (all.class == MPI_SUCCESS)
        all.class = send_view(file, displacement, filetype);
    if (all.class != MPI_SUCCESS)
        return shim_fail(file, all.class, shim_text(all.class));
    /* What the program asks of its view, the library answers. It knows "native" for certain. */
    int code = REAL(File_set_view)(handle, displacement, etype, filetype, "native", MPI_INFO_NULL);
    if (code != MPI_SUCCESS)
        return code;
    PMPI_Type_size_x(etype, &file->etype_bytes);
    if (info != MPI_INFO_NULL)
        take_hints(file, info);
    pthread_mutex_lock(&file->lock);
    file->pointer = 0;
    file->is_shared_moved = 0;
    pthread_mutex_unlock(&file->lock);
    if (all.is_shared_moved)
        all.class = move_shared(file, 0);
    return shim_fail(file, all.class, shim_text(all.class));
}
ALSO_PMPI(File_set_view);

int MPI_File_set_info(MPI_File handle, MPI_Info info)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_set_info)(handle, info);
    if (info == MPI_INFO_NULL)
        return shim_fail(file, MPI_ERR_INFO, NULL);
    take_hints(file, info);
    return MPI_SUCCESS;
}
ALSO_PMPI(File_set_info);

/* Where a seek goes, in bytes of the view, from a pointer. */
static int target(struct shim_file *file, MPI_Offset offset, int whence, int64_t from,
                  int64_t *pointer)
{
    uint64_t end = 0;
    int class = MPI_SUCCESS;
    switch (whence) {
    case MPI_SEEK_SET: *pointer = 0; break;
    case MPI_SEEK_CUR: *pointer = from; break;
    case MPI_SEEK_END:
        class = shim_class(rfs_get_end(file->file, &end));
        /* The end may lie inside an etype: the pointer is then behind it. */
        *pointer = ((int64_t)end + file->etype_bytes - 1) / file->etype_bytes * file->etype_bytes;
        break;
    default: return MPI_ERR_ARG;
    }
    *pointer += offset * file->etype_bytes;
    return class == MPI_SUCCESS && *pointer < 0 ? MPI_ERR_ARG : class;
}

int MPI_File_seek(MPI_File handle, MPI_Offset offset, int whence)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_seek)(handle, offset, whence);
    if (is_sequential(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    int64_t pointer = 0;
    pthread_mutex_lock(&file->lock);
    int class = target(file, offset, whence, file->pointer, &pointer);
    if (class == MPI_SUCCESS)
        file->pointer = pointer;
    pthread_mutex_unlock(&file->lock);
    return shim_fail(file, class, shim_text(class));
}
ALSO_PMPI(File_seek);

int MPI_File_get_position(MPI_File handle, MPI_Offset *offset)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_get_position)(handle, offset);
    if (is_sequential(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    pthread_mutex_lock(&file->lock);
    *offset = file->pointer / file->etype_bytes;
    pthread_mutex_unlock(&file->lock);
    return MPI_SUCCESS;
}
ALSO_PMPI(File_get_position);

/* All processes ask for the same (MPI 4.0, section 14.4.4). */
static int is_same(struct shim_file *file, MPI_Offset offset, int whence)
{
    int64_t bounds[4] = {offset, -offset, whence, -whence};
    PMPI_Allreduce(MPI_IN_PLACE, bounds, 4, MPI_INT64_T, MPI_MAX, file->comm);
    return bounds[0] == -bounds[1] && bounds[2] == -bounds[3];
}

int MPI_File_seek_shared(MPI_File handle, MPI_Offset offset, int whence)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_seek_shared)(handle, offset, whence);
    if (is_sequential(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    if (!is_same(file, offset, whence))
        return shim_fail(file, MPI_ERR_NOT_SAME, NULL);
    int64_t pointer = 0;
    int class = MPI_SUCCESS;
    if (file->rank == 0) {
        uint64_t from = 0;
        if (whence == MPI_SEEK_CUR)
            class = shim_class(rfs_add_shared(file->file, 0, &from));
        if (class == MPI_SUCCESS)
            class = target(file, offset, whence, (int64_t)from, &pointer);
    }
    class = shim_told(file->comm, class);
    if (class == MPI_SUCCESS)
        class = move_shared(file, (uint64_t)pointer);
    file->is_shared_moved = 1;
    return shim_fail(file, class, shim_text(class));
}
ALSO_PMPI(File_seek_shared);

int MPI_File_get_position_shared(MPI_File handle, MPI_Offset *offset)
{
    struct shim_file *file = shim_find(handle);
    if (!file)
        return REAL(File_get_position_shared)(handle, offset);
    if (is_sequential(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    uint64_t pointer = 0;
    int class = shim_class(rfs_add_shared(file->file, 0, &pointer));
    *offset = (MPI_Offset)pointer / file->etype_bytes;
    return shim_fail(file, class, shim_text(class));
}
ALSO_PMPI(File_get_position_shared);
