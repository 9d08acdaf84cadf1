! A file with a map, through the binding that the preprocessor is told: what encryption_map.c does, in Fortran.
#include "gambeson_mpi.f90"
#if defined(F08)
#include "gambeson_mpi_f08.f90"
#define HANDLE(kind) type(kind)
#else
#define HANDLE(kind) integer
#endif
program encryption_map
#if defined(F08)
  use mpi_f08
  use gambeson_mpi_f08
#elif defined(USE_MPI)
  use mpi
  use gambeson_mpi
#else
  use gambeson_mpi
#endif
  implicit none
#if defined(MPIF)
  include 'mpif.h'
#endif
  HANDLE(MPI_File) :: file
  HANDLE(MPI_Datatype) :: part, filetype
  integer, parameter :: n = 1000
  integer :: error, status, class, rank, ranks, next
  integer(kind=MPI_ADDRESS_KIND) :: lower, extent
  integer(kind=MPI_OFFSET_KIND) :: at
  character :: mine(n), found(n)
  character(len=4096) :: name
  character(len=11) :: how

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, name)
  lower = 0
  extent = 100 * ranks
  call MPI_Type_contiguous(50, MPI_BYTE, part, error)
  call MPI_Type_create_resized(part, lower, extent, filetype, error)
  call MPI_Type_commit(filetype, error)
  call MPI_File_open(MPI_COMM_WORLD, trim(name), ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, file, error)
  at = 100 * rank
  call MPIX_File_set_encryption_map(file, at, MPI_BYTE, filetype, 'native', 'trial', ' ', 4096, MPI_INFO_NULL, status)
  call MPI_Error_class(status, class, error)
  mine = achar(iachar('a') + rank)
  at = n * rank
  call MPI_File_write_at_all(file, at, mine, n, MPI_CHARACTER, MPI_STATUS_IGNORE, error)
  call MPI_File_sync(file, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  next = mod(rank + 1, ranks)
  at = n * next
  call MPI_File_read_at(file, at, found, n, MPI_CHARACTER, MPI_STATUS_IGNORE, error)
  call MPI_File_close(file, error)
  how = 'failed'
  if (class == MPI_SUCCESS) how = 'laid'
  if (class == MPI_ERR_UNSUPPORTED_OPERATION) how = 'unsupported'
  print '(a, i0, 4a)', 'rank ', rank, ': map ', trim(how), ', ', &
    trim(merge('right', 'wrong', all(found == achar(iachar('a') + next))))
  call MPI_Type_free(part, error)
  call MPI_Type_free(filetype, error)
  call MPI_Finalize(error)
end program encryption_map
