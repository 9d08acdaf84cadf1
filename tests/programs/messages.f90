! A Fortran program with the mpi_f08 bindings: a ring, strided sections, collectives.
program messages
  use mpi_f08
  implicit none
  integer :: rank, ranks, left, right, k, n, total
  integer, parameter :: sizes(6) = [0, 1, 100, 5000, 70000, 400000]
  integer, allocatable :: outgoing(:), incoming(:)
  real(8) :: matrix(300, 400), column(400)
  type(MPI_Status) :: status
  type(MPI_Request) :: requests(2)
  type(MPI_Datatype) :: row

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  do n = 1, size(sizes)
    allocate (outgoing(sizes(n)), incoming(sizes(n)))
    outgoing = [(k*3 + rank, k=1, sizes(n))]
    incoming = -1
    call MPI_Irecv(incoming, sizes(n), MPI_INTEGER, left, n, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(outgoing, sizes(n), MPI_INTEGER, right, n, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    if (any(incoming /= [(k*3 + left, k=1, sizes(n))])) then
      print *, 'rank', rank, 'got wrong data for', sizes(n), 'integers'
      call MPI_Abort(MPI_COMM_WORLD, 1)
    end if
    deallocate (outgoing, incoming)
  end do

  ! A row of a Fortran array is strided: one element of every column.
  call MPI_Type_vector(400, 1, 300, MPI_DOUBLE_PRECISION, row)
  call MPI_Type_commit(row)
  matrix = rank
  matrix(7, :) = [(real(100*rank + k, 8), k=1, 400)]
  call MPI_Sendrecv(matrix(7, 1), 1, row, right, 50, column, 400, MPI_DOUBLE_PRECISION, left, 50, MPI_COMM_WORLD, status)
  if (any(column /= [(real(100*left + k, 8), k=1, 400)])) call MPI_Abort(MPI_COMM_WORLD, 2)
  call MPI_Type_free(row)

  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (total /= ranks*(ranks - 1)/2) call MPI_Abort(MPI_COMM_WORLD, 3)
  call MPI_Bcast(matrix, size(matrix), MPI_DOUBLE_PRECISION, ranks - 1, MPI_COMM_WORLD)
  if (matrix(1, 1) /= ranks - 1) call MPI_Abort(MPI_COMM_WORLD, 4)
  if (rank == 0) print '(a)', 'all ok'
  call MPI_Finalize()
end program
