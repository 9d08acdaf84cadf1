! Sealed files in Fortran: which bytes are sealed under which label. What the arguments are is in gambeson_mpi.h.
!
! Compile this file with the program, by the same compiler. Module gambeson_mpi is for `use mpi` and mpif.h, and
! gambeson_mpi_f08 for `use mpi_f08`. The function proper is looked up at run time: nothing has to be linked, and in a
! job that `gambeson run` did not start there is an error of the class MPI_ERR_UNSUPPORTED_OPERATION.

module gambeson_mpi
  use, intrinsic :: iso_c_binding
  use mpi, only: MPI_OFFSET_KIND, MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_call_errhandler
  implicit none
  private
  public :: MPIX_File_set_encryption_map

  abstract interface
    integer(c_int) function set_map(fh, disp, etype, filetype, datarep, key_label, suite, block_size, info) bind(c)
      import
      integer(c_int), value :: fh, etype, filetype, block_size, info
      integer(c_int64_t), value :: disp
      character(kind=c_char), intent(in) :: datarep(*), key_label(*), suite(*)
    end function set_map
  end interface

  interface
    type(c_funptr) function dlsym(handle, name) bind(c)
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
    end function dlsym
  end interface

contains

  ! Blank strings stand for what is taken by default, as NULL does in C.
  subroutine MPIX_File_set_encryption_map(fh, disp, etype, filetype, datarep, key_label, suite, block_size, info, &
    ierror)
    integer, intent(in) :: fh, etype, filetype, block_size, info
    integer(kind=MPI_OFFSET_KIND), intent(in) :: disp
    character(len=*), intent(in) :: datarep, key_label, suite
    integer, intent(out) :: ierror
    procedure(set_map), pointer :: loaded
    type(c_funptr) :: address
    integer :: ignored

    ! A null handle stands for all loaded objects.
    address = dlsym(c_null_ptr, c_string('MPIX_File_set_encryption_map_f'))
    if (c_associated(address)) then
      call c_f_procpointer(address, loaded)
      ierror = loaded(fh, int(disp, c_int64_t), etype, filetype, c_string(datarep), c_string(key_label), &
        c_string(suite), block_size, info)
    else
      ierror = MPI_ERR_UNSUPPORTED_OPERATION
      call MPI_File_call_errhandler(fh, ierror, ignored)
    end if
  end subroutine MPIX_File_set_encryption_map

  pure function c_string(text)
    character(len=*), intent(in) :: text
    character(kind=c_char, len=len_trim(text) + 1) :: c_string

    c_string = trim(text)//c_null_char
  end function c_string

end module gambeson_mpi
