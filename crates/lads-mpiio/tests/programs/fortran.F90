! Whether files opened by Fortran reach the shim: fortran NAME.
! Compiled three times: through the module mpi, with -DUSE_F08 through mpi_f08, and with -DUSE_MPIF
! through mpif.h.
#ifdef USE_F08
#define HANDLE(kind) type(kind)
#define STATUS type(MPI_Status) :: status
#else
#define HANDLE(kind) integer
#define STATUS integer :: status(MPI_STATUS_SIZE)
#endif
program fortran
#if defined USE_F08
  use mpi_f08
#elif !defined USE_MPIF
  use mpi
#endif
  implicit none
#ifdef USE_MPIF
  include 'mpif.h'
#endif
  integer, parameter :: n = 100
  integer :: rank, processes, ierror, count, failures, all_failures, i
  HANDLE(MPI_File) :: file
  HANDLE(MPI_Datatype) :: filetype
  HANDLE(MPI_Request) :: request
  STATUS
  integer :: values(n), back(n)
  integer(kind=MPI_OFFSET_KIND) :: displacement, size, position
  character(len=512) :: name

  failures = 0
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, processes, ierror)
  call get_command_argument(1, name)
  values = [(1000 * rank + i, i = 1, n)]
  call MPI_File_open(MPI_COMM_WORLD, trim(name), MPI_MODE_RDWR + MPI_MODE_CREATE, &
                     MPI_INFO_NULL, file, ierror)
  call expect(ierror == MPI_SUCCESS)
  displacement = 0
  call MPI_File_set_size(file, displacement, ierror)
  call expect(ierror == MPI_SUCCESS)
  call MPI_Type_create_subarray(2, [10 * processes, 10], [10, 10], [10 * rank, 0], &
                                MPI_ORDER_FORTRAN, MPI_INTEGER, filetype, ierror)
  call MPI_Type_commit(filetype, ierror)
  call MPI_File_set_view(file, displacement, MPI_INTEGER, filetype, 'native', MPI_INFO_NULL, ierror)
  call expect(ierror == MPI_SUCCESS)
  call MPI_File_write_all(file, values, n, MPI_INTEGER, status, ierror)
  call expect(ierror == MPI_SUCCESS)
  call MPI_Get_count(status, MPI_INTEGER, count, ierror)
  call expect(count == n)
  call MPI_File_sync(file, ierror)
  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  call MPI_File_sync(file, ierror)
  call MPI_File_get_size(file, size, ierror)
  call expect(size == 4 * n * processes)
  position = 0
  back = 0
  call MPI_File_iread_at(file, position, back, n, MPI_INTEGER, request, ierror)
  call MPI_Wait(request, status, ierror)
  call expect(all(back == values))
  call MPI_Get_count(status, MPI_INTEGER, count, ierror)
  call expect(count == n)
  call MPI_File_get_position(file, position, ierror)
  call expect(position == n)
  call MPI_File_close(file, ierror)
  call expect(ierror == MPI_SUCCESS .and. file == MPI_FILE_NULL)
  call MPI_Type_free(filetype, ierror)
  call MPI_Allreduce(failures, all_failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (rank == 0) print '(a, i0, a)', 'fortran: ', all_failures, ' failures'
  call MPI_Finalize(ierror)
  if (all_failures > 0) stop 1

contains

  subroutine expect(holds)
    logical, intent(in) :: holds
    if (.not. holds) failures = failures + 1
  end subroutine expect

end program fortran
