! Writes a file that the first argument names, through the binding that the preprocessor is told: explicit offsets,
! collectively through a view, nonblocking, and reads it back. Every rank says whether it found what was written.
#if defined(F08)
#define HANDLE(kind) type(kind)
#else
#define HANDLE(kind) integer
#endif
program files
#if defined(F08)
  use mpi_f08
#elif defined(USE_MPI)
  use mpi
#endif
  implicit none
#if defined(MPIF)
  include 'mpif.h'
#endif
  HANDLE(MPI_File) :: file
  HANDLE(MPI_Request) :: request
  HANDLE(MPI_Datatype) :: every
#if defined(F08)
  type(MPI_Status) :: status
#else
  integer :: status(MPI_STATUS_SIZE)
#endif
  integer, parameter :: n = 1000
  integer :: error, rank, ranks, i, count
  integer :: mine(n), found(n)
  integer(kind=MPI_OFFSET_KIND) :: at
  character(len=4096) :: name

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, name)
  mine = [(rank * n + i, i = 1, n)]
  call MPI_File_open(MPI_COMM_WORLD, trim(name), ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, file, error)
  if (error /= MPI_SUCCESS) stop 1
  ! One integer of each rank in turn.
  call MPI_Type_vector(n, 1, ranks, MPI_INTEGER, every, error)
  call MPI_Type_commit(every, error)
  at = 4 * rank
  call MPI_File_set_view(file, at, MPI_INTEGER, every, 'native', MPI_INFO_NULL, error)
  call MPI_File_write_all(file, mine, n, MPI_INTEGER, status, error)
  call MPI_Get_count(status, MPI_INTEGER, count, error)
  if (count /= n) stop 2
  at = 0
  call MPI_File_sync(file, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_File_iread_at(file, at, found, n, MPI_INTEGER, request, error)
  call MPI_Wait(request, status, error)
  call MPI_Get_count(status, MPI_INTEGER, count, error)
  if (count /= n .or. any(found /= mine)) stop 3
  at = 4_MPI_OFFSET_KIND * n * ranks
  call MPI_File_set_view(file, at, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, error)
  at = n * rank
  call MPI_File_write_at(file, at, mine, n, MPI_INTEGER, MPI_STATUS_IGNORE, error)
  call MPI_File_write_ordered_begin(file, mine, n, MPI_INTEGER, error)
  call MPI_File_write_ordered_end(file, mine, status, error)
  found = 0
  call MPI_File_read_at_all(file, at, found, n, MPI_INTEGER, status, error)
  if (any(found /= mine)) stop 4
  call MPI_File_close(file, error)
  call MPI_Type_free(every, error)
  print '(a, i0, a)', 'rank ', rank, ' found what was written'
  call MPI_Finalize(error)
end program files
