! Starts MPI through the oldest Fortran bindings and says so.
program start
  implicit none
  include 'mpif.h'
  integer :: rank, provided, error
  character(len=16) :: how
  call get_command_argument(1, how)
  if (how == 'thread') then
    call MPI_INIT_THREAD(MPI_THREAD_FUNNELED, provided, error)
  else
    call MPI_INIT(error)
  end if
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
  print '(a,i0,a)', 'rank ', rank, ' started'
  call MPI_FINALIZE(error)
end program start
