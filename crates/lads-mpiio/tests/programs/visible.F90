! Whether a process reads what others have written before they met in a barrier: visible NAME. Each program of the
! three interfaces of Fortran fails if a read value is old.
! Compiled three times: through the module mpi, with -DUSE_F08 through mpi_f08, and with -DUSE_MPIF through mpif.h.
program visible
#if defined USE_F08
  use mpi_f08
#elif !defined USE_MPIF
  use mpi
#endif
  implicit none
#ifdef USE_MPIF
  include 'mpif.h'
#endif
  integer, parameter :: rounds = 8
  integer :: rank, processes, ierror, round, wrong, all_wrong
  integer, allocatable :: values(:)
  integer(kind=MPI_OFFSET_KIND) :: place, start
#ifdef USE_F08
  type(MPI_File) :: file
#else
  integer :: file
#endif
  character(len=512) :: name

  wrong = 0
  start = 0
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, processes, ierror)
  call get_command_argument(1, name)
  allocate (values(processes))
  call MPI_File_open(MPI_COMM_WORLD, trim(name), MPI_MODE_RDWR + MPI_MODE_CREATE, &
                     MPI_INFO_NULL, file, ierror)
  place = 4 * rank
  do round = 1, rounds
    values(1) = round
    call MPI_File_write_at(file, place, values, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierror)
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    call MPI_File_read_at(file, start, values, processes, MPI_INTEGER, MPI_STATUS_IGNORE, ierror)
    wrong = wrong + count(values /= round)
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
  end do
  call MPI_File_close(file, ierror)
  call MPI_Allreduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (rank == 0) print '(a, i0, a)', 'visible: ', all_wrong, ' old values'
  call MPI_Finalize(ierror)
end program
