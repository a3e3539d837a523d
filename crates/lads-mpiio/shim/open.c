/* MPI_File_open, _close and _delete. */
#include "shim.h"
#include <stdio.h>
#include <sys/random.h>

static const char *const ANOTHER = "another process of the file has failed";

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

/* Whether all have the same amode. Their names are not compared: they may be different names of one
 * file, and of different servers that have it. */
static int common_amode_class(MPI_Comm comm, int amode)
{
    int bounds[2] = {amode, -amode};
    PMPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT, MPI_MAX, comm);
    return bounds[0] == -bounds[1] ? amode_class(amode) : MPI_ERR_NOT_SAME;
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

static int remote_open(struct shim_file *file, const uint8_t group[16])
{
    size_t count;
    rfs_hint *hints = shim_hints(file->info, &count);
    int flags = flags_of(file->amode, file->rank == 0);
    int class = shim_class(rfs_open(file->name, flags, group, hints, count, &file->file));
    shim_hints_free(hints, count);
    return class;
}

/* Rank 0 opens first: it makes the file, and fails if it should not be there. */
static int open_in_turn(struct shim_file *file, const char **text)
{
    uint8_t group[16];
    int class = MPI_SUCCESS;
    if (file->rank == 0 && getrandom(group, sizeof group, 0) != sizeof group)
        class = MPI_ERR_OTHER;
    PMPI_Bcast(group, sizeof group, MPI_BYTE, 0, file->comm);
    if (file->rank == 0 && class == MPI_SUCCESS) {
        class = remote_open(file, group);
        *text = shim_text(class);
    }
    int first = shim_told(file->comm, class);
    if (first != MPI_SUCCESS)
        return first;
    if (file->rank != 0) {
        class = remote_open(file, group);
        *text = shim_text(class);
    }
    return class;
}

/* With MPI_MODE_APPEND, all pointers are at the end. */
static int to_the_end(struct shim_file *file)
{
    uint64_t end = 0;
    int class = shim_class(rfs_get_end(file->file, &end));
    if (class == MPI_SUCCESS && file->rank == 0)
        class = shim_class(rfs_set_shared(file->file, end));
    file->pointer = (int64_t)end;
    file->is_shared_moved = 1;
    return class;
}

static void discard(struct shim_file *file)
{
    if (file->file)
        rfs_close(file->file);
    if (file->comm != MPI_COMM_NULL)
        PMPI_Comm_free(&file->comm);
    if (file->info != MPI_INFO_NULL)
        PMPI_Info_free(&file->info);
    pthread_mutex_destroy(&file->lock);
    free(file->name);
    free(file);
}

static struct shim_file *new_file(MPI_Comm comm, const char *name, int amode, MPI_Info info)
{
    struct shim_file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->handle = MPI_FILE_NULL;
    file->name = strdup(name);
    file->amode = amode;
    file->etype_bytes = 1;
    file->info = MPI_INFO_NULL;
    if (info != MPI_INFO_NULL)
        PMPI_Info_dup(info, &file->info);
    PMPI_Comm_dup(comm, &file->comm);
    PMPI_Comm_rank(file->comm, &file->rank);
    pthread_mutex_init(&file->lock, NULL);
    return file;
}

static int open_remote(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *handle)
{
    const char *text = NULL;
    int class = common_amode_class(comm, amode);
    if (class != MPI_SUCCESS)
        return shim_fail_without_file(class, NULL);
    struct shim_file *file = new_file(comm, name, amode, info);
    if (!file)
        return shim_fail_without_file(MPI_ERR_NO_MEM, NULL);
    int own = open_in_turn(file, &text);
    /* The text is of this thread's last call: it is kept before there is another. */
    char kept[MPI_MAX_ERROR_STRING];
    snprintf(kept, sizeof kept, "%s", text ? text : ANOTHER);
    if (own == MPI_SUCCESS && amode & MPI_MODE_APPEND)
        own = to_the_end(file);
    if (own == MPI_SUCCESS)
        own = shim_proxy_open(&file->handle);
    class = shim_agree(file->comm, own);
    if (class != MPI_SUCCESS) {
        if (file->handle != MPI_FILE_NULL)
            REAL(File_close)(&file->handle);
        discard(file);
        return shim_fail_without_file(class, kept);
    }
    shim_table_add(file);
    shim_tell_open(file);
    *handle = file->handle;
    return MPI_SUCCESS;
}

int MPI_File_open(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *handle)
{
    if (!name || !rfs_is_remote(name))
        return REAL(File_open)(comm, name, amode, info, handle);
    *handle = MPI_FILE_NULL;
    int is_between_groups = 0;
    if (comm == MPI_COMM_NULL)
        return shim_fail_without_file(MPI_ERR_COMM, NULL);
    PMPI_Comm_test_inter(comm, &is_between_groups);
    if (is_between_groups)
        return shim_fail_without_file(MPI_ERR_COMM, NULL);
    return open_remote(comm, name, amode, info, handle);
}
ALSO_PMPI(File_open);

int MPI_File_close(MPI_File *handle)
{
    struct shim_file *file = shim_find(*handle);
    if (!file)
        return REAL(File_close)(handle);
    int own = shim_class(rfs_close(file->file));
    file->file = NULL;
    char text[MPI_MAX_ERROR_STRING];
    snprintf(text, sizeof text, "%s", own == MPI_SUCCESS ? ANOTHER : rfs_message());
    /* This is the barrier too before the file is deleted. */
    int class = shim_agree(file->comm, own);
    if (file->amode & MPI_MODE_DELETE_ON_CLOSE) {
        int deleted = file->rank == 0 ? shim_class(rfs_delete(file->name)) : MPI_SUCCESS;
        deleted = shim_told(file->comm, deleted);
        class = class == MPI_SUCCESS ? deleted : class;
    }
    /* The handle is out of the table before the library may give it to another file. */
    shim_table_remove(file);
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
