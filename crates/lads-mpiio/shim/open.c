/* MPI_File_open, _close and _delete. */
#include "shim.h"
#include <stdio.h>
#include <sys/random.h>

rfs_hint *shim_hints(MPI_Info info, size_t *count)
{
    *count = 0;
    int keys = 0;
    if (info == MPI_INFO_NULL || PMPI_Info_get_nkeys(info, &keys) != MPI_SUCCESS || keys == 0)
        return NULL;
    rfs_hint *hints = calloc((size_t)keys, sizeof *hints);
    for (int i = 0; hints && i < keys; i++) {
        char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
        int is_there = 0;
        PMPI_Info_get_nthkey(info, i, key);
        PMPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &is_there);
        rfs_hint hint = {strdup(key), is_there ? strdup(value) : NULL};
        if (hint.key && hint.value) {
            hints[(*count)++] = hint;
        } else {
            free((void *)hint.key);
            free((void *)hint.value);
        }
    }
    return hints;
}

void shim_hints_free(rfs_hint *hints, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((void *)hints[i].key);
        free((void *)hints[i].value);
    }
    free(hints);
}

/* The class of the error in an amode (MPI 4.0, section 14.2.1). */
static int amode_class(int amode)
{
    int ways = !!(amode & MPI_MODE_RDONLY) + !!(amode & MPI_MODE_WRONLY) + !!(amode & MPI_MODE_RDWR);
    int is_made = (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)) != 0;
    int is_wrong = ways != 1 || (is_made && amode & MPI_MODE_RDONLY) ||
                   (amode & MPI_MODE_SEQUENTIAL && amode & MPI_MODE_RDWR) ||
                   (amode & MPI_MODE_EXCL && !(amode & MPI_MODE_CREATE));
    return is_wrong ? MPI_ERR_AMODE : MPI_SUCCESS;
}

/* DELETE_ON_CLOSE is not passed on: rank 0 deletes the file, when all have closed it. */
static int flags_of(int amode, int is_first)
{
    int flags = amode & MPI_MODE_RDONLY   ? RFS_READ
                : amode & MPI_MODE_WRONLY ? RFS_WRITE
                                          : RFS_READ_WRITE;
    if (amode & MPI_MODE_CREATE)
        flags |= RFS_CREATE;
    if (amode & MPI_MODE_EXCL && is_first)
        flags |= RFS_EXCLUSIVE;
    return flags;
}

static int remote_open(struct shim_file *file, const uint8_t id[16])
{
    int size, world_rank;
    PMPI_Comm_size(file->comm, &size);
    PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    rfs_group group = {{0}, (uint32_t)file->rank, (uint32_t)size, (uint32_t)world_rank};
    memcpy(group.id, id, sizeof group.id);
    size_t count;
    rfs_hint *hints = shim_hints(file->info, &count);
    int flags = flags_of(file->amode, file->rank == 0);
    int class = shim_class(rfs_open(file->name, flags, &group, hints, count, &file->file));
    shim_hints_free(hints, count);
    return class;
}

/* Rank 0 opens first: it makes the file, and fails if the file must not exist. Returns the class of this
 * process. */
static int open_in_turn(struct shim_file *file, const uint8_t group[16], const char **text)
{
    int class = MPI_SUCCESS;
    if (file->rank == 0) {
        class = remote_open(file, group);
        *text = shim_text(class);
        shim_shared_make(file, group);
    }
    int first = shim_told(file->comm, class);
    if (first != MPI_SUCCESS || file->rank == 0)
        return first;
    class = remote_open(file, group);
    *text = shim_text(class);
    shim_shared_join(file, group);
    return class;
}

/* With MPI_MODE_APPEND, all pointers are at the end. */
static int to_the_end(struct shim_file *file)
{
    uint64_t end[2] = {0, MPI_SUCCESS};
    if (file->rank == 0) {
        int class = shim_class(rfs_get_end(file->file, &end[0]));
        if (class == MPI_SUCCESS)
            class = shim_pointer_set(file, (int64_t)end[0]);
        end[1] = (uint64_t)class;
    }
    PMPI_Bcast(end, 2, MPI_UINT64_T, 0, file->comm);
    file->pointer = (int64_t)end[0];
    file->is_shared_moved = 1;
    return (int)end[1];
}

static void discard(struct shim_file *file)
{
    if (file->file)
        rfs_close(file->file);
    shim_shared_leave(file);
    shim_release_datatypes(file);
    if (file->comm != MPI_COMM_NULL)
        PMPI_Comm_free(&file->comm);
    if (file->info != MPI_INFO_NULL)
        PMPI_Info_free(&file->info);
    pthread_mutex_destroy(&file->lock);
    free(file->name);
    free(file);
}

/* Null if there is no memory. */
static struct shim_file *new_file(MPI_Comm comm, const char *name, int amode, MPI_Info info)
{
    struct shim_file *file = calloc(1, sizeof *file);
    char *kept = strdup(name);
    if (!file || !kept) {
        free(file);
        free(kept);
        return NULL;
    }
    file->handle = MPI_FILE_NULL;
    file->name = kept;
    file->amode = amode;
    file->etype_bytes = 1;
    file->etype = file->filetype = MPI_BYTE;
    file->datarep = "native";
    file->info = MPI_INFO_NULL;
    if (info != MPI_INFO_NULL)
        PMPI_Info_dup(info, &file->info);
    file->comm = MPI_COMM_NULL;
    PMPI_Comm_rank(comm, &file->rank);
    pthread_mutex_init(&file->lock, NULL);
    return file;
}

/* Replaces the name that the program gave by the one that does not depend on the working directory. */
static int keep_name(struct shim_file *file)
{
    char *kept = strdup(rfs_name(file->file));
    if (!kept)
        return MPI_ERR_NO_MEM;
    free(file->name);
    file->name = kept;
    return MPI_SUCCESS;
}

/* What a process does after its file is open. */
static int complete(struct shim_file *file)
{
    file->is_apart = !rfs_shares(file->file);
    int class = keep_name(file);
    return class == MPI_SUCCESS ? shim_proxy_open(&file->handle) : class;
}

/* Everything that may fail. Returns the class of all processes, with its text. */
static int open_together(struct shim_file *file, char text[MPI_MAX_ERROR_STRING])
{
    uint8_t group[16] = {0};
    int own = MPI_SUCCESS;
    if (file->rank == 0 && getrandom(group, sizeof group, 0) != sizeof group)
        own = MPI_ERR_OTHER;
    int class = shim_told(file->comm, own);
    if (class != MPI_SUCCESS)
        return class;
    PMPI_Bcast(group, sizeof group, MPI_BYTE, 0, file->comm);
    const char *reason = NULL;
    own = open_in_turn(file, group, &reason);
    /* The text is of this thread's last call: it is kept before there is another. */
    char own_text[MPI_MAX_ERROR_STRING];
    snprintf(own_text, sizeof own_text, "%s", reason ? reason : "");
    if (own == MPI_SUCCESS)
        own = complete(file);
    int is_one_host = !shim_agree(file->comm, !file->shared);
    if (file->rank == 0)
        shim_shared_hide(group);
    if (!is_one_host)
        shim_shared_leave(file);
    class = shim_agree_text(file->comm, own, own_text, text);
    if (class != MPI_SUCCESS)
        return class;
    file->is_fenced = shim_agree(file->comm, rfs_needs_fence(file->file));
    return file->amode & MPI_MODE_APPEND ? to_the_end(file) : MPI_SUCCESS;
}

/* A communicator of its own for a file. MPI_Comm_dup would copy the attributes of the program's. ROMIO
 * keeps one there, with a count that is not safe when another thread opens a file meanwhile: MPICH 5.0
 * then frees it twice in MPI_Finalize. */
static int own_communicator(MPI_Comm comm, MPI_Comm *own)
{
    MPI_Group group;
    if (PMPI_Comm_group(comm, &group) != MPI_SUCCESS)
        return MPI_ERR_COMM;
    int code = PMPI_Comm_create(comm, group, own);
    PMPI_Group_free(&group);
    return code == MPI_SUCCESS ? MPI_SUCCESS : MPI_ERR_COMM;
}

static int open_remote(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *handle)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    struct shim_file *file = new_file(comm, name, amode, info);
    int64_t numbers[1] = {amode};
    int class = shim_agree_same(comm, file ? amode_class(amode) : MPI_ERR_NO_MEM, numbers, 1);
    if (class == MPI_SUCCESS)
        class = own_communicator(comm, &file->comm);
    if (class == MPI_SUCCESS)
        class = open_together(file, text);
    shim_has_existed |= class == MPI_ERR_FILE_EXISTS;
    if (class == MPI_SUCCESS) {
        /* The open may be deferred, and create the file. */
        shim_changed(file);
        shim_table_add(file);
        shim_tell_open(file);
        *handle = file->handle;
        return MPI_SUCCESS;
    }
    if (file && file->handle != MPI_FILE_NULL)
        REAL(File_close)(&file->handle);
    if (file)
        discard(file);
    return shim_fail_without_file(class, text);
}

/* Whether all processes mean the same file: none a remote one, or all one with the same path. It is
 * asked for local files too: where one process has the name of a remote file and another that of a
 * local one, each would wait for the other for ever. */
static int name_class(MPI_Comm comm, const char *name)
{
    int64_t digest = name ? (int64_t)rfs_digest(name) : 0;
    return shim_same(comm, &digest, 1);
}

/* Whether a hint asks for buffers in front of a file of this host, as the name abt:... does. */
static int has_buffers_asked_for(MPI_Info info)
{
    char value[8];
    int is_there = 0;
    if (info != MPI_INFO_NULL)
        PMPI_Info_get(info, "rfs_abt", sizeof value - 1, value, &is_there);
    return is_there && (strcmp(value, "true") == 0 || strcmp(value, "enable") == 0);
}

__thread int shim_extra_amode, shim_has_existed;

int MPI_File_open(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *handle)
{
    char buffered[MPI_MAX_INFO_VAL + 4096];
    if (name && !rfs_is_remote(name) && has_buffers_asked_for(info)) {
        snprintf(buffered, sizeof buffered, "abt:%s", name);
        name = buffered;
    }
    int is_remote = name && rfs_is_remote(name), is_between_groups = 0;
    if (comm != MPI_COMM_NULL)
        PMPI_Comm_test_inter(comm, &is_between_groups);
    int class = comm == MPI_COMM_NULL || is_between_groups ? MPI_ERR_COMM : name_class(comm, name);
    if (!is_remote && (class == MPI_SUCCESS || class == MPI_ERR_COMM))
        return REAL(File_open)(comm, name, amode, info, handle);
    *handle = MPI_FILE_NULL;
    if (class != MPI_SUCCESS)
        return shim_fail_without_file(class, NULL);
    return open_remote(comm, name, amode | shim_extra_amode, info, handle);
}
ALSO_PMPI(File_open);

int MPI_File_close(MPI_File *handle)
{
    struct shim_file *file = shim_find(*handle);
    if (!file)
        return REAL(File_close)(handle);
    /* Another process may still move the shared pointer, which ends with the last that has it. */
    int own = shim_agree(file->comm, MPI_SUCCESS);
    /* A program that has not waited for a read is wrong; the thread must not find the file gone. */
    shim_reads_wait(file);
    /* From here on nobody finds it, and the library may give the handle to another file. */
    shim_table_remove(file);
    int closed = shim_class(rfs_close(file->file));
    file->file = NULL;
    const char *own_text = closed == MPI_SUCCESS ? NULL : rfs_message();
    own = closed == MPI_SUCCESS ? own : closed;
    /* This is the barrier too before the file is deleted. */
    char text[MPI_MAX_ERROR_STRING];
    int class = shim_agree_text(file->comm, own, own_text, text);
    if (file->amode & MPI_MODE_DELETE_ON_CLOSE) {
        char reason[MPI_MAX_ERROR_STRING];
        own = file->rank == 0 ? shim_class(rfs_delete(file->name)) : MPI_SUCCESS;
        int deleted = shim_agree_text(file->comm, own, shim_text(own), reason);
        if (class == MPI_SUCCESS) {
            class = deleted;
            memcpy(text, reason, sizeof text);
        }
    }
    int code = shim_fail(file, class, text);
    REAL(File_close)(&file->handle);
    *handle = MPI_FILE_NULL;
    discard(file);
    return code;
}
ALSO_PMPI(File_close);

int MPI_File_delete(const char *name, MPI_Info info)
{
    if (!name || !rfs_is_remote(name))
        return REAL(File_delete)(name, info);
    int class = shim_class(rfs_delete(name));
    return shim_fail_without_file(class, shim_text(class));
}
ALSO_PMPI(File_delete);
