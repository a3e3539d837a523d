/* What is not a file function: the beginning and the end of the program, and libraries that look at a
 * file's name without MPI.
 *
 * At the beginning it is seen whether the shim is for this MPI, and it can be told: LADS_RFS_VERBOSE=1
 * lets the first process say that the shim is in force, `all` lets every process (`lads mpi doctor`
 * counts them). At the end, the first process says what went to local disks.
 *
 * PnetCDF opens the file itself to see its format, under the name without what stands before the
 * first colon; and it finds out by access() whether there is a file to be emptied, or one in the way. Its
 * two functions are answered here for remote names. Others that look for a name without MPI (IOR's access(),
 * serial HDF5 and netCDF) are not: they need a name of the file system.
 */
#include "shim.h"
#include <stdio.h>
#include <unistd.h>

/* What a person has asked for in LADS_RFS_VERBOSE. */
static enum { TELL_NONE, TELL_FIRST, TELL_ALL } asked_for(void)
{
    const char *asked = getenv("LADS_RFS_VERBOSE");
    if (!asked || !*asked || strcmp(asked, "0") == 0)
        return TELL_NONE;
    return strcmp(asked, "all") == 0 ? TELL_ALL : TELL_FIRST;
}

/* In one piece, so that the lines of many processes do not mix. */
static void tell(const char *line, int length, size_t room)
{
    size_t bytes = (size_t)length < room ? (size_t)length : room - 1;
    /* If it cannot be told, nobody can be told. */
    ssize_t written = write(STDERR_FILENO, line, bytes);
    (void)written;
}

/* The longest name of a library in bytes: of MPICH and the standard ABI. The library may not be the
 * one that this was compiled for, so MPI_MAX_LIBRARY_VERSION_STRING may be too short. */
#define LIBRARY_BYTES_MAX 8192

/* What the MPI library is, in a few words: MPICH tells how it was built, too, and has many blanks. */
static void name_library(char library[LIBRARY_BYTES_MAX])
{
    int length;
    PMPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = 0;
    char *to = library;
    for (const char *from = library; *from; from++) {
        int is_blank = *from == ' ' || *from == '\t';
        if (!is_blank || (to > library && to[-1] != ' '))
            *to++ = is_blank ? ' ' : *from;
    }
    *to = 0;
}

/* A shim for another MPI would give that library handles that mean nothing there. So it says what is
 * wrong, and ends the program. The standard ABI has no name of its own. */
static void end_if_foreign(const char *library)
{
#if defined OMPI_MAJOR_VERSION
    const char *own = "Open MPI";
    int is_foreign = strstr(library, "MPICH") || strstr(library, "Intel(R) MPI");
#elif defined MPICH_VERSION
    const char *own = "MPICH";
    int is_foreign = strstr(library, "Open MPI") != NULL;
#else
    const char *own = "the standard ABI";
    int is_foreign = 0;
#endif
    if (!is_foreign)
        return;
    char line[1024];
    int length = snprintf(line, sizeof line,
                          "rfs: this program uses %s, but LD_PRELOAD has the shim for %s: "
                          "`lads mpi env PROGRAM` prints the right one\n",
                          library, own);
    tell(line, length, sizeof line);
    _exit(1);
}

/* `lads mpi doctor` reads this line. */
static void tell_in_force(const char *library)
{
    int rank, size, length;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (asked_for() == TELL_NONE || (asked_for() == TELL_FIRST && rank != 0))
        return;
    char host[MPI_MAX_PROCESSOR_NAME], line[4096];
    PMPI_Get_processor_name(host, &length);
    const char *token = getenv("LADS_RFS_TOKEN_FILE");
    length = snprintf(line, sizeof line,
                      "rfs: lads " LADS_VERSION " in force: process %d of %d on %s, %s, token %s\n",
                      rank, size, host, library, token && *token ? token : "not set");
    tell(line, length, sizeof line);
}

static int begin(int code)
{
    if (code == MPI_SUCCESS) {
        rfs_begin();
        char library[LIBRARY_BYTES_MAX];
        name_library(library);
        end_if_foreign(library);
        tell_in_force(library);
    }
    return code;
}

void shim_tell_open(const struct shim_file *file)
{
    if (file->rank != 0 || asked_for() == TELL_NONE)
        return;
    char line[4096], key[64], value[256];
    size_t length = (size_t)snprintf(line, sizeof line, "rfs: %s is open:", file->name);
    for (size_t i = 0; length < sizeof line && rfs_get_hint(file->file, i, key, value); i++)
        length += (size_t)snprintf(line + length, sizeof line - length, " %s=%s", key, value);
    length = length < sizeof line - 1 ? length : sizeof line - 2;
    line[length] = '\n';
    tell(line, (int)length + 1, sizeof line);
}

int MPI_Init(int *count, char ***arguments)
{
    return begin(REAL(Init)(count, arguments));
}
ALSO_PMPI(Init);

int MPI_Init_thread(int *count, char ***arguments, int required, int *provided)
{
    return begin(REAL(Init_thread)(count, arguments, required, provided));
}
ALSO_PMPI(Init_thread);

/* Together: all processes have the variable, or none. */
static void tell_staged(void)
{
    int rank;
    uint64_t own[2] = {0, 0}, all[2] = {0, 0};
    if (asked_for() == TELL_NONE)
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    rfs_get_staged(&own[0], &own[1]);
    PMPI_Reduce(own, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank != 0 || all[0] + all[1] == 0)
        return;
    char line[256];
    int length = snprintf(line, sizeof line,
                          "rfs: staged on local disks: %llu bytes while writing, %llu bytes while "
                          "computing\n",
                          (unsigned long long)all[0], (unsigned long long)all[1]);
    tell(line, length, sizeof line);
}

int MPI_Finalize(void)
{
    int class = shim_class(rfs_finish());
    tell_staged();
    if (class != MPI_SUCCESS) {
        shim_complain(rfs_message());
        shim_fail_without_file(class, NULL);
    }
    int code = REAL(Finalize)();
    return class == MPI_SUCCESS ? code : class;
}
ALSO_PMPI(Finalize);

/* Of pnetcdf.h. */
enum { NC_NOERR = 0, NC_EEXIST = -35, NC_ENOENT = -220, NC_NOCLOBBER = 4 };
enum {
    NC_FORMAT_UNKNOWN = -1,
    NC_FORMAT_CLASSIC = 1,
    NC_FORMAT_CDF2 = 2,
    NC_FORMAT_NETCDF4 = 3,
    NC_FORMAT_CDF5 = 5
};

int ncmpi_inq_file_format(const char *name, int *format);
int ncmpi_create(MPI_Comm comm, const char *name, int mode, MPI_Info info, int *id);

static int format_of(const unsigned char start[8])
{
    if (memcmp(start, "\211HDF\r\n\032\n", 8) == 0)
        return NC_FORMAT_NETCDF4;
    int is_classic = memcmp(start, "CDF", 3) == 0;
    switch (is_classic ? start[3] : 0) {
    case 1: return NC_FORMAT_CLASSIC;
    case 2: return NC_FORMAT_CDF2;
    case 5: return NC_FORMAT_CDF5;
    default: return NC_FORMAT_UNKNOWN;
    }
}

int ncmpi_inq_file_format(const char *name, int *format)
{
    if (!rfs_is_remote(name)) {
        __typeof__(&ncmpi_inq_file_format) real = shim_real("ncmpi_inq_file_format");
        return real(name, format);
    }
    static const rfs_group alone = {.size = 1};
    unsigned char start[8] = {0};
    rfs_piece piece = {start, sizeof start};
    uint64_t got = 0;
    rfs_file *file;
    if (rfs_open(name, RFS_READ, &alone, NULL, 0, &file) != RFS_OK)
        return NC_ENOENT;
    int is_read = rfs_read(file, 0, &piece, 1, &got) == RFS_OK;
    rfs_close(file);
    *format = format_of(start);
    return is_read ? NC_NOERR : NC_ENOENT;
}

/* A file that must be emptied is removed: there may be none. PnetCDF finds out by access() whether one that
 * must be new exists, under a part of its name: so MPI_File_open gets MPI_MODE_EXCL in addition, which no
 * other program can get ahead of. */
int ncmpi_create(MPI_Comm comm, const char *name, int mode, MPI_Info info, int *id)
{
    __typeof__(&ncmpi_create) real = shim_real("ncmpi_create");
    if (!name || !rfs_is_remote(name))
        return real(comm, name, mode, info, id);
    if (mode & NC_NOCLOBBER) {
        shim_extra_amode = MPI_MODE_EXCL;
        shim_has_existed = 0;
    } else {
        int rank;
        PMPI_Comm_rank(comm, &rank);
        if (rank == 0)
            rfs_delete(name);
        PMPI_Barrier(comm);
    }
    int status = real(comm, name, mode, info, id);
    int has_existed = shim_extra_amode && shim_has_existed;
    shim_extra_amode = 0;
    return has_existed ? NC_EEXIST : status;
}
