/* The view, and the pointers into it: MPI_File_set_view, _seek, _get_position and their shared
 * forms. The program counts in etypes, rfs.h in bytes of the view.
 */
#include "shim.h"

static int is_sequential(const struct shim_file *file)
{
    return (file->amode & MPI_MODE_SEQUENTIAL) != 0;
}

/* The data representations, of which the last is converted. */
static const char *const DATAREPS[] = {"native", "internal", EXTERNAL32};

/* The known representation of this name; null if there is none. */
static const char *known_datarep(const char *name)
{
    for (size_t i = 0; name && i < sizeof DATAREPS / sizeof *DATAREPS; i++)
        if (strcmp(name, DATAREPS[i]) == 0)
            return DATAREPS[i];
    return NULL;
}

int shim_is_external(const struct shim_file *file)
{
    return strcmp(file->datarep, EXTERNAL32) == 0;
}

MPI_Count shim_bytes_in_file(const char *datarep, MPI_Datatype datatype)
{
    MPI_Count bytes = -1;
    if (strcmp(datarep, EXTERNAL32) != 0) {
        PMPI_Type_size_x(datatype, &bytes);
        return bytes;
    }
    struct shim_type *type = shim_type_of(datatype);
    if (type)
        bytes = shim_external_bytes(type);
    shim_type_free(type);
    return bytes;
}

/* The text for an error in the displacement of a view; null if it is right. */
static const char *displacement_error(const struct shim_file *file, MPI_Offset displacement)
{
    int is_current = displacement == MPI_DISPLACEMENT_CURRENT;
    if (is_current != is_sequential(file))
        return "the displacement of a view must be MPI_DISPLACEMENT_CURRENT if and only if the file is "
               "open with MPI_MODE_SEQUENTIAL";
    return displacement < 0 && !is_current ? "the displacement of a view is negative" : NULL;
}

/* The class of an error in the arguments of a view. */
static int view_class(const struct shim_file *file, MPI_Offset displacement, MPI_Datatype etype,
                      MPI_Datatype filetype, const char *datarep)
{
    if (etype == MPI_DATATYPE_NULL || filetype == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    if (!known_datarep(datarep))
        return MPI_ERR_UNSUPPORTED_DATAREP;
    if (displacement_error(file, displacement))
        return MPI_ERR_ARG;
    MPI_Count etype_bytes = shim_bytes_in_file(datarep, etype);
    MPI_Count bytes = shim_bytes_in_file(datarep, filetype);
    if (etype_bytes < 0 || bytes < 0)
        return MPI_ERR_CONVERSION;
    return etype_bytes <= 0 || bytes % etype_bytes != 0 ? MPI_ERR_ARG : MPI_SUCCESS;
}

/* Whether the arguments of all processes are right. */
static int arguments_class(const struct shim_file *file, MPI_Offset displacement,
                           MPI_Datatype etype, MPI_Datatype filetype, const char *datarep)
{
    int class = view_class(file, displacement, etype, filetype, datarep);
    int64_t numbers[2] = {0, 0};
    if (class == MPI_SUCCESS) {
        numbers[0] = shim_bytes_in_file(datarep, etype);
        numbers[1] = strcmp(datarep, EXTERNAL32) == 0;
    }
    return shim_agree_same(file->comm, class, numbers, 2);
}

/* The shared pointer, in bytes of the view, as rank 0 finds it. */
static int shared_pointer(struct shim_file *file, uint64_t *pointer)
{
    *pointer = 0;
    int class = MPI_SUCCESS;
    if (file->rank == 0)
        class = shim_pointer_add(file, 0, pointer);
    PMPI_Bcast(pointer, 1, MPI_UINT64_T, 0, file->comm);
    return shim_told(file->comm, class);
}

/* The place in the file of a position of the view. */
static int offset_of(struct shim_file *file, int64_t position, MPI_Offset *offset)
{
    uint64_t found = 0;
    int class = shim_class(rfs_get_offset(file->file, (uint64_t)position, &found));
    *offset = (MPI_Offset)found;
    return class;
}

/* Where MPI_DISPLACEMENT_CURRENT is: at the shared pointer, by the view that ends now. */
static int current(struct shim_file *file, MPI_Offset *displacement)
{
    uint64_t pointer;
    int class = shared_pointer(file, &pointer);
    if (class == MPI_SUCCESS)
        class = offset_of(file, (int64_t)pointer, displacement);
    return class;
}

/* Sets the shared pointer for all. */
static int move_shared(struct shim_file *file, int64_t pointer)
{
    int class = MPI_SUCCESS;
    if (file->rank == 0)
        class = shim_pointer_set(file, pointer);
    return shim_told(file->comm, class);
}

/* A filetype without bytes (a process that has no part of the data) is none for the server. */
static int send_view(struct shim_file *file, MPI_Offset displacement, MPI_Datatype filetype,
                     const char *datarep)
{
    MPI_Count bytes = shim_bytes_in_file(datarep, filetype);
    MPI_Datatype sent = bytes ? filetype : MPI_BYTE;
    int is_external = strcmp(datarep, EXTERNAL32) == 0;
    struct shim_type *type = is_external ? shim_external_type_of(sent) : shim_type_of(sent);
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

/* A reference to a datatype for as long as the program may free its own. */
static MPI_Datatype kept(MPI_Datatype datatype)
{
    MPI_Datatype copy = datatype;
    if (!shim_is_predefined(datatype))
        PMPI_Type_dup(datatype, &copy);
    return copy;
}

static void release(MPI_Datatype datatype)
{
    if (datatype != MPI_DATATYPE_NULL && !shim_is_predefined(datatype))
        PMPI_Type_free(&datatype);
}

void shim_release_datatypes(struct shim_file *file)
{
    release(file->etype);
    release(file->filetype);
}

/* The datatypes of MPI_File_get_view. */
static void keep_datatypes(struct shim_file *file, MPI_Datatype etype, MPI_Datatype filetype)
{
    shim_release_datatypes(file);
    file->etype = kept(etype);
    file->filetype = kept(filetype);
}

/* What a process does for itself to set a view. */
static int set_own_view(struct shim_file *file, MPI_Offset displacement, MPI_Datatype etype,
                        MPI_Datatype filetype, const char *datarep)
{
    int class = send_view(file, displacement, filetype, datarep);
    if (class != MPI_SUCCESS)
        return class;
    keep_datatypes(file, etype, filetype);
    file->displacement = displacement;
    file->datarep = known_datarep(datarep);
    file->etype_bytes = shim_bytes_in_file(datarep, etype);
    pthread_mutex_lock(&file->lock);
    file->pointer = 0;
    pthread_mutex_unlock(&file->lock);
    return class;
}

/* Two agreements between the processes: if the view of one is refused, all know it. There is no
 * message to the server but if the shared pointer was moved: the view travels with the next
 * request. */
static int set_view(struct shim_file *file, MPI_Offset displacement, MPI_Datatype etype,
                    MPI_Datatype filetype, const char *datarep, MPI_Info info)
{
    int class = arguments_class(file, displacement, etype, filetype, datarep);
    if (class == MPI_ERR_ARG)
        return shim_fail(file, class, displacement_error(file, displacement));
    if (class == MPI_SUCCESS && is_sequential(file))
        class = current(file, &displacement);
    if (class != MPI_SUCCESS)
        return shim_fail(file, class, shim_text(class));
    int own = set_own_view(file, displacement, etype, filetype, datarep);
    struct {
        int class, is_shared_moved;
    } all = {own, file->is_shared_moved};
    PMPI_Allreduce(MPI_IN_PLACE, &all, 2, MPI_INT, MPI_MAX, file->comm);
    if (all.class != MPI_SUCCESS)
        return shim_fail_together(file, own, shim_text(own));
    if (info != MPI_INFO_NULL)
        take_hints(file, info);
    file->is_shared_moved = 0;
    class = all.is_shared_moved ? move_shared(file, 0) : MPI_SUCCESS;
    return shim_fail(file, class, shim_text(class));
}

FORWARD(File_set_view,
        (MPI_File handle, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
         const char *datarep, MPI_Info info),
        (handle, displacement, etype, filetype, datarep, info),
        set_view(file, displacement, etype, filetype, datarep, info))

static int get_view(const struct shim_file *file, MPI_Offset *displacement, MPI_Datatype *etype,
                    MPI_Datatype *filetype, char *datarep)
{
    *displacement = file->displacement;
    *etype = kept(file->etype);
    *filetype = kept(file->filetype);
    strcpy(datarep, file->datarep);
    return MPI_SUCCESS;
}

FORWARD(File_get_view,
        (MPI_File handle, MPI_Offset *displacement, MPI_Datatype *etype, MPI_Datatype *filetype,
         char *datarep),
        (handle, displacement, etype, filetype, datarep),
        get_view(file, displacement, etype, filetype, datarep))

static int get_byte_offset(struct shim_file *file, MPI_Offset offset, MPI_Offset *displacement)
{
    int64_t position;
    if (is_sequential(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    if (offset < 0 || __builtin_mul_overflow(offset, file->etype_bytes, &position))
        return shim_fail(file, MPI_ERR_ARG, NULL);
    int class = offset_of(file, position, displacement);
    return shim_fail(file, class, shim_text(class));
}

FORWARD(File_get_byte_offset, (MPI_File handle, MPI_Offset offset, MPI_Offset *displacement),
        (handle, offset, displacement), get_byte_offset(file, offset, displacement))

/* The extent of a datatype in the file. */
static int get_type_extent(struct shim_file *file, MPI_Datatype datatype, MPI_Count *extent)
{
    MPI_Count begin;
    if (datatype == MPI_DATATYPE_NULL)
        return shim_fail(file, MPI_ERR_TYPE, NULL);
    if (!shim_is_external(file)) {
        PMPI_Type_get_extent_x(datatype, &begin, extent);
        return MPI_SUCCESS;
    }
    struct shim_type *type = shim_external_type_of(datatype);
    if (!type)
        return shim_fail(file, MPI_ERR_CONVERSION, NULL);
    *extent = shim_type_extent(type);
    shim_type_free(type);
    return MPI_SUCCESS;
}

static int get_short_extent(struct shim_file *file, MPI_Datatype datatype, MPI_Aint *extent)
{
    MPI_Count wide = 0;
    int code = get_type_extent(file, datatype, &wide);
    *extent = (MPI_Aint)wide;
    return code;
}

FORWARD(File_get_type_extent, (MPI_File handle, MPI_Datatype datatype, MPI_Aint *extent),
        (handle, datatype, extent), get_short_extent(file, datatype, extent))
#if SHIM_HAS_LARGE_COUNTS
FORWARD(File_get_type_extent_c, (MPI_File handle, MPI_Datatype datatype, MPI_Count *extent),
        (handle, datatype, extent), get_type_extent(file, datatype, extent))
#endif

static int set_info(struct shim_file *file, MPI_Info info)
{
    if (info == MPI_INFO_NULL)
        return shim_fail(file, MPI_ERR_INFO, NULL);
    take_hints(file, info);
    return MPI_SUCCESS;
}

FORWARD(File_set_info, (MPI_File handle, MPI_Info info), (handle, info), set_info(file, info))

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
    int64_t distance;
    if (class == MPI_SUCCESS && (__builtin_mul_overflow(offset, file->etype_bytes, &distance) ||
                                 __builtin_add_overflow(*pointer, distance, pointer) || *pointer < 0))
        class = MPI_ERR_ARG;
    return class;
}

static int seek(struct shim_file *file, MPI_Offset offset, int whence)
{
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

FORWARD(File_seek, (MPI_File handle, MPI_Offset offset, int whence), (handle, offset, whence),
        seek(file, offset, whence))

static int get_position(struct shim_file *file, MPI_Offset *offset)
{
    if (is_sequential(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    pthread_mutex_lock(&file->lock);
    *offset = file->pointer / file->etype_bytes;
    pthread_mutex_unlock(&file->lock);
    return MPI_SUCCESS;
}

FORWARD(File_get_position, (MPI_File handle, MPI_Offset *offset), (handle, offset),
        get_position(file, offset))

/* Rank 0 moves the pointer for all, to a place that it finds. */
static int seek_shared(struct shim_file *file, MPI_Offset offset, int whence)
{
    if (is_sequential(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    int64_t asked_for[2] = {offset, whence}, pointer = 0;
    int class = shim_same(file->comm, asked_for, 2);
    if (class != MPI_SUCCESS)
        return shim_fail(file, class, NULL);
    if (file->rank == 0) {
        uint64_t from = 0;
        if (whence == MPI_SEEK_CUR)
            class = shim_pointer_add(file, 0, &from);
        if (class == MPI_SUCCESS)
            class = target(file, offset, whence, (int64_t)from, &pointer);
    }
    class = shim_told(file->comm, class);
    if (class == MPI_SUCCESS)
        class = move_shared(file, pointer);
    file->is_shared_moved = 1;
    return shim_fail(file, class, shim_text(class));
}

FORWARD(File_seek_shared, (MPI_File handle, MPI_Offset offset, int whence),
        (handle, offset, whence), seek_shared(file, offset, whence))

static int get_position_shared(struct shim_file *file, MPI_Offset *offset)
{
    if (is_sequential(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, NULL);
    if (shim_shares_nothing(file))
        return shim_fail(file, MPI_ERR_UNSUPPORTED_OPERATION, SHIM_NOTHING_SHARED);
    uint64_t pointer = 0;
    int class = shim_pointer_add(file, 0, &pointer);
    *offset = (MPI_Offset)pointer / file->etype_bytes;
    return shim_fail(file, class, shim_text(class));
}

FORWARD(File_get_position_shared, (MPI_File handle, MPI_Offset *offset), (handle, offset),
        get_position_shared(file, offset))
