/* Reading and writing: 29 functions, and as many with large counts, are six forms of one call.
 *
 * A write is buffered below, so it is complete when the call returns, and so is a read: the requests
 * of nonblocking calls are generalized requests that are complete when they are made. That is legal
 * at every level of threads, and Wait and Test of the library work on them.
 */
#include "shim.h"

enum place { INDIVIDUAL, EXPLICIT, SHARED, ORDERED };

enum kind { WRITE, READ, READ_TOGETHER };

struct access {
    enum kind kind;
    enum place place;
    MPI_Offset offset;
    void *memory;
    MPI_Count count;
    MPI_Datatype datatype;
};

/* The class of an error in the arguments, and the number of bytes in the file that they mean. */
static int access_class(const struct shim_file *file, const struct access *access,
                        MPI_Count *bytes)
{
    *bytes = 0;
    if (access->count < 0)
        return MPI_ERR_COUNT;
    if (access->datatype == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    if (access->kind == WRITE && file->amode & MPI_MODE_RDONLY)
        return MPI_ERR_READ_ONLY;
    if (access->kind != WRITE && file->amode & MPI_MODE_WRONLY)
        return MPI_ERR_ACCESS;
    int is_any_place = access->place == SHARED || access->place == ORDERED;
    if (file->amode & MPI_MODE_SEQUENTIAL && !is_any_place)
        return MPI_ERR_UNSUPPORTED_OPERATION;
    if (access->place == EXPLICIT && access->offset < 0)
        return MPI_ERR_ARG;
    MPI_Count size = shim_bytes_in_file(file->datarep, access->datatype);
    if (size < 0 && shim_is_external(file))
        return MPI_ERR_CONVERSION;
    if (size < 0 || (size > 0 && access->count > INT64_MAX / size))
        return MPI_ERR_COUNT;
    if (size * access->count % file->etype_bytes != 0 ||
        (file->is_view_empty && size * access->count > 0))
        return MPI_ERR_ARG;
    *bytes = size * access->count;
    return MPI_SUCCESS;
}

/* Each process begins where those of lower rank end. One process moves the pointer for all, and sends
 * the position where it was: the last one, which knows how many bytes all have, unless only the server of
 * rank 0 has the pointer. A process with an error takes part with no bytes. */
static int ordered_place(struct shim_file *file, MPI_Count bytes, uint64_t *position)
{
    int size;
    PMPI_Comm_size(file->comm, &size);
    int mover = shim_shares_nothing(file) ? 0 : size - 1;
    int64_t own = bytes, all = 0;
    int is_known = PMPI_Scan(&own, &all, 1, MPI_INT64_T, MPI_SUM, file->comm) == MPI_SUCCESS;
    uint64_t before = (uint64_t)(all - own);
    if (mover == 0)
        is_known = PMPI_Reduce(&own, &all, 1, MPI_INT64_T, MPI_SUM, 0, file->comm) == MPI_SUCCESS &&
                   is_known;
    uint64_t moved[2] = {0, MPI_ERR_OTHER};
    if (file->rank == mover && is_known)
        moved[1] = (uint64_t)shim_pointer_add(file, all, &moved[0]);
    if (PMPI_Bcast(moved, 2, MPI_UINT64_T, mover, file->comm) != MPI_SUCCESS || !is_known)
        return MPI_ERR_OTHER;
    file->is_shared_moved = 1;
    *position = moved[0] + before;
    return (int)moved[1];
}

static int place_of(struct shim_file *file, const struct access *access, MPI_Count bytes,
                    uint64_t *position)
{
    int64_t begin, end;
    switch (access->place) {
    case EXPLICIT:
        if (__builtin_mul_overflow(access->offset, file->etype_bytes, &begin) ||
            __builtin_add_overflow(begin, bytes, &end))
            return MPI_ERR_ARG;
        *position = (uint64_t)begin;
        return MPI_SUCCESS;
    case SHARED:
        if (shim_shares_nothing(file))
            return MPI_ERR_UNSUPPORTED_OPERATION;
        file->is_shared_moved = 1;
        return shim_pointer_add(file, bytes, position);
    case ORDERED:
        return ordered_place(file, bytes, position);
    case INDIVIDUAL:
        break;
    }
    pthread_mutex_lock(&file->lock);
    *position = (uint64_t)file->pointer;
    int is_beyond = __builtin_add_overflow(file->pointer, bytes, &end);
    if (!is_beyond)
        file->pointer = end;
    pthread_mutex_unlock(&file->lock);
    return is_beyond ? MPI_ERR_ARG : MPI_SUCCESS;
}

/* After a short read the individual pointer is where the file ends, as with ROMIO. */
static void step_back(struct shim_file *file, const struct access *access, int64_t bytes)
{
    if (access->place != INDIVIDUAL || bytes == 0)
        return;
    pthread_mutex_lock(&file->lock);
    file->pointer -= bytes;
    pthread_mutex_unlock(&file->lock);
}

/* The numbers of bytes that an access has moved. */
struct moved {
    /* In the file, at positions of the view. */
    uint64_t in_file;
    /* In memory, which MPI_Get_count divides by the size of a datatype. */
    uint64_t in_memory;
};

/* Writes or reads pieces of data as it is in the file. Of a write, either everything is taken or nothing.
 */
static int move_pieces(struct shim_file *file, enum kind kind, uint64_t position,
                       const rfs_piece *pieces, size_t count, uint64_t *done)
{
    shim_lock(file);
    int class;
    if (kind == WRITE) {
        class = shim_class(rfs_write(file->file, position, pieces, count));
        file->is_behind = 1;
    } else {
        class = shim_class(rfs_read(file->file, position, pieces, count, done));
    }
    shim_unlock(file);
    return class;
}

/* The same through a buffer with the data in external32. */
static int move_external(struct shim_file *file, const struct access *access, uint64_t position,
                         uint64_t bytes, const struct shim_pieces *pieces, struct moved *moved)
{
    struct shim_type *type = shim_type_of(access->datatype);
    unsigned char *external = malloc(bytes);
    rfs_piece whole = {external, bytes};
    uint64_t copies = (uint64_t)access->count;
    int class = type && external ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (class == MPI_SUCCESS && access->kind == WRITE)
        moved->in_memory = shim_external_convert(type, copies, pieces, external, bytes, TO_FILE);
    if (class == MPI_SUCCESS)
        class = move_pieces(file, access->kind, position, &whole, 1, &moved->in_file);
    if (class == MPI_SUCCESS && access->kind != WRITE)
        moved->in_memory = shim_external_convert(type, copies, pieces, external, moved->in_file,
                                                 FROM_FILE);
    free(external);
    shim_type_free(type);
    return class;
}

static int move_bytes(struct shim_file *file, const struct access *access, uint64_t position,
                      uint64_t bytes, struct moved *moved)
{
    struct shim_pieces pieces = {0};
    int class = shim_pieces_of(access->memory, access->count, access->datatype, &pieces);
    *moved = (struct moved){bytes, bytes};
    if (class == MPI_SUCCESS && shim_is_external(file)) {
        class = move_external(file, access, position, bytes, &pieces, moved);
    } else if (class == MPI_SUCCESS) {
        class = move_pieces(file, access->kind, position, pieces.list, pieces.count,
                            &moved->in_file);
        moved->in_memory = moved->in_file;
    }
    if (class == MPI_SUCCESS && access->kind != WRITE)
        class = shim_pieces_unpack(&pieces, access->memory, access->count, access->datatype);
    shim_pieces_free(&pieces);
    if (class != MPI_SUCCESS)
        *moved = (struct moved){0, 0};
    return class;
}

/* Returns a code, after the error handler. */
static int transfer(struct shim_file *file, const struct access *access, uint64_t *done)
{
    MPI_Count bytes;
    uint64_t position = 0;
    *done = 0;
    const char *text = NULL;
    if (access->kind == READ_TOGETHER)
        shim_fence_all(file);
    int refused = access_class(file, access, &bytes), class = MPI_SUCCESS;
    if (refused == MPI_SUCCESS && (refused = shim_late(file)) != MPI_SUCCESS) {
        bytes = 0;
        text = file->late_text;
    }
    /* The others must not wait for this process for ever. */
    if (refused == MPI_SUCCESS || access->place == ORDERED)
        class = place_of(file, access, bytes, &position);
    if (refused != MPI_SUCCESS)
        return shim_fail(file, refused, text);
    if (class == MPI_SUCCESS && bytes > 0) {
        struct moved moved;
        class = move_bytes(file, access, position, (uint64_t)bytes, &moved);
        step_back(file, access, (int64_t)bytes - (int64_t)moved.in_file);
        *done = moved.in_memory;
    }
    int is_impossible = access->place == SHARED && shim_shares_nothing(file);
    return shim_fail(file, class, is_impossible ? SHIM_NOTHING_SHARED : shim_text(class));
}

/* So that MPI_Get_count works. Both libraries keep the number of bytes, whatever the datatype. */
static void tell(MPI_Status *status, uint64_t bytes)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)bytes);
    PMPI_Status_set_cancelled(status, 0);
}

static int blocking(struct shim_file *file, struct access access, MPI_Status *status)
{
    uint64_t done;
    int code = transfer(file, &access, &done);
    tell(status, done);
    return code;
}

static int query(void *done, MPI_Status *status)
{
    tell(status, *(uint64_t *)done);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int free_done(void *done)
{
    free(done);
    return MPI_SUCCESS;
}

static int cancel(void *done, int is_complete)
{
    (void)done;
    (void)is_complete;
    return MPI_SUCCESS;
}

/* An error is told at once, and not by the request. */
static int nonblocking(struct shim_file *file, struct access access, MPI_Request *request)
{
    uint64_t *done = malloc(sizeof *done);
    *request = MPI_REQUEST_NULL;
    if (!done)
        return shim_fail(file, MPI_ERR_NO_MEM, NULL);
    int code = transfer(file, &access, done);
    if (code != MPI_SUCCESS) {
        free(done);
        return code;
    }
    PMPI_Grequest_start(query, free_done, cancel, done, request);
    return PMPI_Grequest_complete(*request);
}

/* One split collective at a time (MPI 4.0, section 14.4.5). */
static int begin(struct shim_file *file, enum shim_split split, struct access access)
{
    if (file->split != SPLIT_NONE)
        return shim_fail(file, MPI_ERR_OTHER, "a split collective of the file is not ended");
    int code = transfer(file, &access, &file->split_bytes);
    if (code == MPI_SUCCESS)
        file->split = split;
    return code;
}

static int end(struct shim_file *file, enum shim_split split, MPI_Status *status)
{
    if (file->split != split)
        return shim_fail(file, MPI_ERR_OTHER, "no such split collective was begun");
    file->split = SPLIT_NONE;
    tell(status, file->split_bytes);
    return MPI_SUCCESS;
}

#define ACCESS(KIND, PLACE, OFFSET) \
    ((struct access){KIND, PLACE, OFFSET, (void *)(uintptr_t)memory, count, datatype})

/* With its arguments expanded: the name is made by NAME. */
#define EXPAND(form, ...) form(__VA_ARGS__)

#define BLOCKING(name, DATA, KIND, PLACE)                                                  \
    FORWARD(name,                                                                               \
           (MPI_File handle, DATA memory, COUNT count, MPI_Datatype datatype,                  \
            MPI_Status *status),                                                               \
           (handle, memory, count, datatype, status),                                          \
           blocking(file, ACCESS(KIND, PLACE, 0), status))
#define BLOCKING_AT(name, DATA, KIND)                                                      \
    FORWARD(name,                                                                               \
           (MPI_File handle, MPI_Offset offset, DATA memory, COUNT count,                      \
            MPI_Datatype datatype, MPI_Status *status),                                        \
           (handle, offset, memory, count, datatype, status),                                  \
           blocking(file, ACCESS(KIND, EXPLICIT, offset), status))
#define NONBLOCKING(name, DATA, KIND, PLACE)                                               \
    FORWARD(name,                                                                               \
           (MPI_File handle, DATA memory, COUNT count, MPI_Datatype datatype,                  \
            MPI_Request *request),                                                             \
           (handle, memory, count, datatype, request),                                         \
           nonblocking(file, ACCESS(KIND, PLACE, 0), request))
#define NONBLOCKING_AT(name, DATA, KIND)                                                   \
    FORWARD(name,                                                                               \
           (MPI_File handle, MPI_Offset offset, DATA memory, COUNT count,                      \
            MPI_Datatype datatype, MPI_Request *request),                                      \
           (handle, offset, memory, count, datatype, request),                                 \
           nonblocking(file, ACCESS(KIND, EXPLICIT, offset), request))
#define BEGIN(name, DATA, KIND, PLACE, SPLIT)                                              \
    FORWARD(name, (MPI_File handle, DATA memory, COUNT count, MPI_Datatype datatype),           \
           (handle, memory, count, datatype),                                                  \
           begin(file, SPLIT, ACCESS(KIND, PLACE, 0)))
#define BEGIN_AT(name, DATA, KIND, SPLIT)                                                  \
    FORWARD(name,                                                                               \
           (MPI_File handle, MPI_Offset offset, DATA memory, COUNT count,                      \
            MPI_Datatype datatype),                                                            \
           (handle, offset, memory, count, datatype),                                          \
           begin(file, SPLIT, ACCESS(KIND, EXPLICIT, offset)))
#define END(name, DATA, SPLIT)                                                                 \
    FORWARD(name, (MPI_File handle, DATA memory, MPI_Status *status),                           \
           (handle, memory, status), end(file, SPLIT, status))

#define COUNT int
#define NAME(name) File_##name
#include "transfer.inc"
#undef COUNT
#undef NAME

#if SHIM_HAS_LARGE_COUNTS
#define COUNT MPI_Count
#define NAME(name) File_##name##_c
#include "transfer.inc"
#undef COUNT
#undef NAME
#endif

END(File_read_all_end, void *, SPLIT_READ_ALL)
END(File_read_at_all_end, void *, SPLIT_READ_AT_ALL)
END(File_read_ordered_end, void *, SPLIT_READ_ORDERED)
END(File_write_all_end, const void *, SPLIT_WRITE_ALL)
END(File_write_at_all_end, const void *, SPLIT_WRITE_AT_ALL)
END(File_write_ordered_end, const void *, SPLIT_WRITE_ORDERED)
