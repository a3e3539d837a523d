/* What is not a file function: the beginning and the end of the program, and libraries that look at a
 * file's name without MPI.
 *
 * At the beginning nothing is done, but it can be told: LADS_RFS_VERBOSE=1 lets the first process say
 * that the shim is in force, `all` lets every process (`lads mpi doctor` counts them).
 *
 * PnetCDF opens the file itself to see its format, under the name without what stands before the
 * first colon; and it finds out by access() whether there is a file to be emptied. Its two functions
 * are answered here for remote names. Others that look for a name without MPI (IOR's access(),
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

/* `lads mpi doctor` reads this line. */
static void tell_in_force(void)
{
    int rank, size, length;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (asked_for() == TELL_NONE || (asked_for() == TELL_FIRST && rank != 0))
        return;
    char library[MPI_MAX_LIBRARY_VERSION_STRING], host[MPI_MAX_PROCESSOR_NAME], line[4096];
    PMPI_Get_library_version(library, &length);
    PMPI_Get_processor_name(host, &length);
    /* MPICH tells how it was built, too; and it has a tab in its first line. */
    library[strcspn(library, ",\n")] = 0;
    for (char *tab = library; (tab = strchr(tab, '\t'));)
        *tab = ' ';
    const char *token = getenv("LADS_RFS_TOKEN_FILE");
    length = snprintf(line, sizeof line,
                      "rfs: lads " LADS_VERSION " in force: process %d of %d on %s, %s, token %s\n",
                      rank, size, host, library, token ? token : "not set");
    tell(line, length, sizeof line);
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
    int code = REAL(Init)(count, arguments);
    if (code == MPI_SUCCESS)
        tell_in_force();
    return code;
}
ALSO_PMPI(Init);

int MPI_Init_thread(int *count, char ***arguments, int required, int *provided)
{
    int code = REAL(Init_thread)(count, arguments, required, provided);
    if (code == MPI_SUCCESS)
        tell_in_force();
    return code;
}
ALSO_PMPI(Init_thread);

int MPI_Finalize(void)
{
    int class = shim_class(rfs_finish());
    if (class != MPI_SUCCESS) {
        shim_complain(rfs_message());
        shim_fail_without_file(class, NULL);
    }
    int code = REAL(Finalize)();
    return class == MPI_SUCCESS ? code : class;
}
ALSO_PMPI(Finalize);

/* Of pnetcdf.h. */
enum { NC_NOERR = 0, NC_ENOENT = -220, NC_NOCLOBBER = 4 };
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
    static const uint8_t alone[16];
    unsigned char start[8] = {0};
    rfs_piece piece = {start, sizeof start};
    uint64_t got = 0;
    rfs_file *file;
    if (rfs_open(name, RFS_READ, alone, NULL, 0, &file) != RFS_OK)
        return NC_ENOENT;
    int is_read = rfs_read(file, 0, &piece, 1, &got) == RFS_OK;
    rfs_close(file);
    *format = format_of(start);
    return is_read ? NC_NOERR : NC_ENOENT;
}

/* The file is removed rather than emptied: there may be none. */
int ncmpi_create(MPI_Comm comm, const char *name, int mode, MPI_Info info, int *id)
{
    __typeof__(&ncmpi_create) real = shim_real("ncmpi_create");
    if (rfs_is_remote(name) && !(mode & NC_NOCLOBBER)) {
        int rank;
        PMPI_Comm_rank(comm, &rank);
        if (rank == 0)
            rfs_delete(name);
        PMPI_Barrier(comm);
    }
    return real(comm, name, mode, info, id);
}
