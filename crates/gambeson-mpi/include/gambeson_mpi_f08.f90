! Sealed files for programs that `use mpi_f08`. Compile gambeson_mpi.f90 before it, where it is said what this does.

module gambeson_mpi_f08
  use mpi_f08, only: MPI_File, MPI_Datatype, MPI_Info, MPI_OFFSET_KIND
  use gambeson_mpi, only: with_integers => MPIX_File_set_encryption_map
  implicit none
  private
  public :: MPIX_File_set_encryption_map

contains

  subroutine MPIX_File_set_encryption_map(fh, disp, etype, filetype, datarep, key_label, suite, block_size, info, &
    ierror)
    type(MPI_File), intent(in) :: fh
    integer(kind=MPI_OFFSET_KIND), intent(in) :: disp
    type(MPI_Datatype), intent(in) :: etype, filetype
    character(len=*), intent(in) :: datarep, key_label, suite
    integer, intent(in) :: block_size
    type(MPI_Info), intent(in) :: info
    integer, optional, intent(out) :: ierror
    integer :: status

    call with_integers(fh%MPI_VAL, disp, etype%MPI_VAL, filetype%MPI_VAL, datarep, key_label, suite, block_size, &
      info%MPI_VAL, status)
    if (present(ierror)) ierror = status
  end subroutine MPIX_File_set_encryption_map

end module gambeson_mpi_f08
