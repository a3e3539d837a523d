/* What is not a file function: the end of the program, and libraries that look at a file's name
 * without MPI.
 *
 * PnetCDF opens the file itself to see its format, under the name without what stands before the
 * first colon; and it finds out by access() whether there is a file to be emptied. Its two functions
 * are answered here for remote names. Others that look for a name without MPI (IOR's access(),
 * serial HDF5 and netCDF) are not: they need a name of the file system.
 */
#include "shim.h"

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
