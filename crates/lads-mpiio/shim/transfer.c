/* Reading and writing: 29 functions, and as many with large counts, are six forms of one call.
 *
 * A write is buffered below, so it is complete when the call returns: the request of a nonblocking write is
 * a generalized request that is complete when it is made. Reads are pending (pending.c).
 */
#include "transfer.h"
#include <stdio.h>

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
    uint64_t before = (uint64_t)all - (uint64_t)own;
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

/* Finds the memory of an access; for external32, makes a buffer, which has the data of a write. */
static int prepare(struct shim_file *file, struct work *work)
{
    struct access *access = &work->access;
    int class = shim_pieces_of(access->memory, access->count, access->datatype, &work->pieces);
    work->moved = (struct moved){work->bytes, work->bytes};
    if (class != MPI_SUCCESS || !shim_is_external(file))
        return class;
    work->type = shim_type_of(access->datatype);
    work->external = malloc(work->bytes);
    if (!work->type || !work->external)
        return MPI_ERR_NO_MEM;
    if (access->kind == WRITE)
        work->moved.in_memory =
            shim_external_convert(work->type, (uint64_t)access->count, &work->pieces,
                                  work->external, work->bytes, TO_FILE);
    return class;
}

/* Of a write, either everything is taken or nothing. */
void shim_work_run(struct shim_file *file, struct work *work)
{
    rfs_piece whole = {work->external, work->bytes};
    const rfs_piece *pieces = work->external ? &whole : work->pieces.list;
    size_t count = work->external ? 1 : work->pieces.count;
    shim_lock(file);
    if (work->access.kind == WRITE) {
        work->class = shim_class(rfs_write(file->file, work->position, pieces, count));
        shim_changed(file);
    } else {
        work->class =
            shim_class(rfs_read(file->file, work->position, pieces, count, &work->moved.in_file));
    }
    shim_unlock(file);
    /* The text is of this thread's last call. */
    const char *text = shim_text(work->class);
    if (text)
        snprintf(work->text, sizeof work->text, "%s", text);
}

/* Brings what was read into the memory of the program. */
static int unpack(struct work *work)
{
    struct access *access = &work->access;
    struct moved *moved = &work->moved;
    moved->in_memory = moved->in_file;
    if (work->external)
        moved->in_memory =
            shim_external_convert(work->type, (uint64_t)access->count, &work->pieces,
                                  work->external, moved->in_file, FROM_FILE);
    return shim_pieces_unpack(&work->pieces, access->memory, access->count, access->datatype);
}

int shim_work_finish(struct shim_file *file, struct work *work)
{
    if (work->class == MPI_SUCCESS && work->access.kind != WRITE)
        work->class = unpack(work);
    if (work->class != MPI_SUCCESS)
        work->moved = (struct moved){0, 0};
    shim_pieces_free(&work->pieces);
    shim_type_free(work->type);
    free(work->external);
    if (work->owns_datatype)
        PMPI_Type_free(&work->access.datatype);
    step_back(file, &work->access, (int64_t)work->bytes - (int64_t)work->moved.in_file);
    return shim_fail(file, work->class, work->text);
}

/* Checks an access, finds its place, and prepares it. Returns a code, after the error handler. If there is
 * nothing to move, the work has no bytes. */
static int begin_work(struct shim_file *file, const struct access *access, struct work *work)
{
    MPI_Count bytes;
    *work = (struct work){.access = *access};
    int refused = access_class(file, access, &bytes), class = MPI_SUCCESS;
    /* The others must not wait for this process for ever. */
    if (refused == MPI_SUCCESS || access->place == ORDERED)
        class = place_of(file, access, bytes, &work->position);
    if (refused != MPI_SUCCESS)
        return shim_fail(file, refused, NULL);
    if (class != MPI_SUCCESS) {
        int is_impossible = access->place == SHARED && shim_shares_nothing(file);
        return shim_fail(file, class, is_impossible ? SHIM_NOTHING_SHARED : shim_text(class));
    }
    work->bytes = (uint64_t)bytes;
    if (bytes == 0)
        return MPI_SUCCESS;
    work->class = prepare(file, work);
    return work->class == MPI_SUCCESS ? MPI_SUCCESS : shim_work_finish(file, work);
}

/* Returns a code, after the error handler. */
static int transfer(struct shim_file *file, const struct access *access, uint64_t *done)
{
    struct work work;
    *done = 0;
    int code = begin_work(file, access, &work);
    if (code != MPI_SUCCESS || work.bytes == 0)
        return code;
    shim_work_run(file, &work);
    code = shim_work_finish(file, &work);
    *done = work.moved.in_memory;
    return code;
}

void shim_status(MPI_Status *status, uint64_t bytes)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    /* Both libraries keep the number of bytes, whatever the datatype. */
    PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)bytes);
    PMPI_Status_set_cancelled(status, 0);
}

/* On a local file, the processes of a collective read exchange messages before they read, so programs such as
 * PnetCDF read what others have written collectively. A nonblocking read must not wait for others. */
static void meet(struct shim_file *file, const struct access *access)
{
    if (access->kind == READ_TOGETHER && file->is_fenced && !(file->amode & MPI_MODE_RDONLY))
        PMPI_Barrier(file->comm);
}

static int blocking(struct shim_file *file, struct access access, MPI_Status *status)
{
    uint64_t done;
    meet(file, &access);
    int code = transfer(file, &access, &done);
    shim_status(status, done);
    return code;
}

static int query(void *done, MPI_Status *status)
{
    shim_status(status, *(uint64_t *)done);
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

/* A request that is complete. */
static int completed(struct shim_file *file, uint64_t bytes, MPI_Request *request)
{
    uint64_t *done = malloc(sizeof *done);
    if (!done)
        return shim_fail(file, MPI_ERR_NO_MEM, NULL);
    *done = bytes;
    PMPI_Grequest_start(query, free_done, cancel, done, request);
    return PMPI_Grequest_complete(*request);
}

/* The program may free a datatype before the read is complete. */
static void own_datatype(struct work *work)
{
    work->owns_datatype =
        work->pieces.packed &&
        PMPI_Type_dup(work->access.datatype, &work->access.datatype) == MPI_SUCCESS;
}

static int begin_read(struct shim_file *file, const struct access *access, MPI_Request *request)
{
    struct work work;
    int code = begin_work(file, access, &work);
    if (code != MPI_SUCCESS)
        return code;
    if (work.bytes == 0)
        return completed(file, 0, request);
    own_datatype(&work);
    int class = shim_read_start(file, &work, request);
    if (class == MPI_SUCCESS)
        return MPI_SUCCESS;
    work.class = class;
    return shim_work_finish(file, &work);
}

/* The error of a write, or in arguments, is returned at once; that of a read by the call that waits for it. */
static int nonblocking(struct shim_file *file, struct access access, MPI_Request *request)
{
    *request = MPI_REQUEST_NULL;
    if (access.kind != WRITE)
        return begin_read(file, &access, request);
    uint64_t done;
    int code = transfer(file, &access, &done);
    return code == MPI_SUCCESS ? completed(file, done, request) : code;
}

/* One split collective at a time (MPI 4.0, section 14.4.5). */
static int begin(struct shim_file *file, enum shim_split split, struct access access)
{
    if (file->split != SPLIT_NONE)
        return shim_fail(file, MPI_ERR_OTHER, "another split collective of the file is pending");
    struct work work;
    meet(file, &access);
    file->split_bytes = 0;
    file->split_read = NULL;
    int code = access.kind == WRITE ? transfer(file, &access, &file->split_bytes)
                                    : begin_work(file, &access, &work);
    if (code == MPI_SUCCESS && access.kind != WRITE && work.bytes > 0) {
        own_datatype(&work);
        file->split_read = shim_read_begin(file, &work);
        if (!file->split_read) {
            work.class = MPI_ERR_NO_MEM;
            code = shim_work_finish(file, &work);
        }
    }
    if (code == MPI_SUCCESS)
        file->split = split;
    return code;
}

static int end(struct shim_file *file, enum shim_split split, MPI_Status *status)
{
    if (file->split != split)
        return shim_fail(file, MPI_ERR_OTHER, "no such split collective of the file is pending");
    int code = MPI_SUCCESS;
    file->split = SPLIT_NONE;
    if (file->split_read)
        code = shim_read_end(file->split_read, &file->split_bytes);
    file->split_read = NULL;
    shim_status(status, file->split_bytes);
    return code;
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
