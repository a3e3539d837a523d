/* Remote files, for a layer that speaks MPI. Nothing here knows MPI.
 *
 * Every function may be called by any thread. Every function that returns an int returns RFS_OK or
 * the class of an error; rfs_message() then says more. Positions and lengths are bytes. A position
 * is one in the stream of bytes that the view shows, not one in the file.
 */
#ifndef RFS_H
#define RFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Classes of errors: each but RFS_ERR_FILETYPE, for which every MPI has its own, has a class in MPI 4.0,
 * table 9.4, with the same name. */
enum rfs_error {
    RFS_OK = 0,
    RFS_ERR_OTHER = 1,
    RFS_ERR_ARG = 2,
    RFS_ERR_FILE = 3,
    RFS_ERR_AMODE = 4,
    RFS_ERR_BAD_FILE = 5,
    RFS_ERR_NO_SUCH_FILE = 6,
    RFS_ERR_FILE_EXISTS = 7,
    RFS_ERR_FILE_IN_USE = 8,
    RFS_ERR_ACCESS = 9,
    RFS_ERR_NO_SPACE = 10,
    RFS_ERR_QUOTA = 11,
    RFS_ERR_READ_ONLY = 12,
    RFS_ERR_IO = 13,
    RFS_ERR_NO_MEM = 14,
    RFS_ERR_UNSUPPORTED_OPERATION = 15,
    RFS_ERR_FILETYPE = 16
};

/* How a file is opened. Exactly one of the first three. */
enum rfs_flag {
    RFS_READ = 1,
    RFS_WRITE = 2,
    RFS_READ_WRITE = 3,
    RFS_CREATE = 4,
    RFS_EXCLUSIVE = 8,
    RFS_DELETE_ON_CLOSE = 16
};

/* An open file, seen by this process. */
typedef struct rfs_file rfs_file;

/* Bytes in the memory of the program. */
typedef struct rfs_piece {
    void *bytes;
    size_t length;
} rfs_piece;

/* What the user asks for: hints of an MPI_Info. */
typedef struct rfs_hint {
    const char *key;
    const char *value;
} rfs_hint;

/* The program begins: the time until its first write tells when it may write next. */
void rfs_begin(void);

/* The processes that open a file together. */
typedef struct rfs_group {
    /* The same for all of them, and for no others. */
    uint8_t id[16];
    /* This process among them, and how many they are. */
    uint32_t rank, size;
    /* This process among all of the program: processes use the servers of a name in turn. */
    uint32_t world_rank;
} rfs_group;

/* Whether a name is one of a remote file (rfs:host:port:path, rfs://host:port/path, rfs:host:path)
 * or of a file whose writes are buffered (abt:path): 1 or 0. */
int rfs_is_remote(const char *name);

/* A number by which processes find out that they mean the same file: of the path of a remote file.
 * 0 if the name is not remote. */
uint64_t rfs_digest(const char *name);

/* Opens a file. Unless it is deferred (hint rfs_defer_open), this waits for the server. If the name
 * has several servers, what the group shares about the file, its pointer and its lock, is at the
 * first of them. */
int rfs_open(const char *name, int flags, const rfs_group *group, const rfs_hint *hints,
             size_t hint_count, rfs_file **file);

/* The name of an open file. A path of this host is absolute: it means the same file after the program
 * has changed its working directory. Valid until the file is closed. */
const char *rfs_name(const rfs_file *file);

/* Whether the server of the file keeps what the processes of the group share, the pointer and the lock of
 * atomic mode: 1 or 0. If not, each process has a server of its own: the functions of the shared pointer
 * are for one process of the group only, and the caller keeps accesses in atomic mode apart. */
int rfs_shares(const rfs_file *file);

/* To be called when no process of the group uses the shared pointer any more. Sends what is
 * buffered, makes it durable, closes the file and frees `file`, whatever is returned:
 * the first error that no call has returned before. If closing is deferred (hint
 * rfs_defer_close), it returns at once, and rfs_finish() returns the error. */
int rfs_close(rfs_file *file);

/* Removes a file. */
int rfs_delete(const char *name);

/* Sets the view (RFS_ERR_FILETYPE if its runs are not in order, or overlap in a file that is open for
 * writing): a displacement in bytes, and the filetype as lads-core's view/datatype.rs describes
 * it. Sent to the server with the next request. */
int rfs_set_view(rfs_file *file, uint64_t displacement, const void *filetype,
                 size_t filetype_bytes);

/* Writes the pieces, one after the other, from a position on. When this returns, the memory may be
 * used again. An error may be one of an earlier write. */
int rfs_write(rfs_file *file, uint64_t position, const rfs_piece *pieces, size_t count);

/* Reads into the pieces from a position on. `got`: how many bytes there were before the end of the
 * file. */
int rfs_read(rfs_file *file, uint64_t position, const rfs_piece *pieces, size_t count,
             uint64_t *got);

/* When this returns RFS_OK, everything that was written through `file` is durable at the server. */
int rfs_sync(rfs_file *file);

/* When this returns RFS_OK, everything that was written through `file` is seen by whoever reads at
 * the server. */
int rfs_flush(rfs_file *file);

/* Whether rfs_fence() must be called after writes into the file and before a message to another process (hint
 * rfs_consistency): 1 or 0. */
int rfs_needs_fence(const rfs_file *file);

/* Waits until all data that this process has written is visible to all processes, and all files whose open
 * was deferred are open. The error of a write is returned by the next call on its file. */
void rfs_fence(void);

/* The length of the file in bytes. */
int rfs_get_size(rfs_file *file, uint64_t *size);

/* Cuts the file to a length, or extends it. */
int rfs_set_size(rfs_file *file, uint64_t size);

/* Reserves space for the first bytes of the file; extends it to as many if it is shorter. */
int rfs_preallocate(rfs_file *file, uint64_t size);

/* The first position of the view at the end of the file, or behind it. */
int rfs_get_end(rfs_file *file, uint64_t *position);

/* The place in the file of the byte at a position of the view. */
int rfs_get_offset(rfs_file *file, uint64_t position, uint64_t *offset);

/* Adds to the shared pointer of the group, and tells what it was before; in bytes of the view. */
int rfs_add_shared(rfs_file *file, int64_t bytes, uint64_t *before);

/* Sets the shared pointer of the group. */
int rfs_set_shared(rfs_file *file, uint64_t position);

/* In atomic mode, each read and write is as if it happened at one moment, also to other processes in
 * this mode, and a write has happened when it returns. See rfs_shares(). What was written before is at the
 * server when this returns RFS_OK. */
int rfs_set_atomic(rfs_file *file, int is_atomic);

/* Changes hints of an open file. Unknown keys and values without a meaning are ignored. */
int rfs_set_hints(rfs_file *file, const rfs_hint *hints, size_t hint_count);

/* The hint with this index as it is in force: writes key and value as text with a zero at the end.
 * Returns 1, or 0 if there is none. */
int rfs_get_hint(const rfs_file *file, size_t index, char key[64], char value[256]);

/* How many bytes of this process went to the local disk so far (hint rfs_cache_dir): while a write
 * waited for it, and while the program computed. */
void rfs_get_staged(uint64_t *foreground, uint64_t *background);

/* Waits for everything that was deferred; returns the first error that no call has returned. To be
 * called before the program ends. */
int rfs_finish(void);

/* What the last error of this thread was, for a person. Valid until the next call of this thread. */
const char *rfs_message(void);

#ifdef __cplusplus
}
#endif

#endif
