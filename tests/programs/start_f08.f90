! Starts MPI through the Fortran 2008 bindings and says so.
program start
  use mpi_f08
  implicit none
  integer :: rank, provided
  character(len=16) :: how
  call get_command_argument(1, how)
  if (how == 'thread') then
    call MPI_Init_thread(MPI_THREAD_FUNNELED, provided)
  else
    call MPI_Init()
  end if
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  print '(a,i0,a)', 'rank ', rank, ' started'
  call MPI_Finalize()
end program start
