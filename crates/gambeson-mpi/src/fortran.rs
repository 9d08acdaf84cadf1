//! Fortran's handles, which are integers, as the library's own functions turn them into C's (MPI-4.1 section 19.3.4).

use std::ffi::{CStr, c_int};

use gambeson_interpose::next;

use crate::mpi::Mpi;

pub(crate) fn file(mpi: &Mpi, handle: c_int) -> usize {
    convert(mpi, [c"PMPI_File_f2c", c"PMPI_File_fromint"], handle)
}

pub(crate) fn datatype(mpi: &Mpi, handle: c_int) -> usize {
    convert(mpi, [c"PMPI_Type_f2c", c"PMPI_Type_fromint"], handle)
}

pub(crate) fn info(mpi: &Mpi, handle: c_int) -> usize {
    convert(mpi, [c"PMPI_Info_f2c", c"PMPI_Info_fromint"], handle)
}

/// By the first of these functions that the library has. Where it has none, they are macros for the same number.
fn convert(mpi: &Mpi, names: [&CStr; 2], handle: c_int) -> usize {
    let found = names.into_iter().find_map(|name| next(name, convert as *const _));
    let Some(address) = found else { return mpi.abi.handle(handle as usize) };
    // SAFETY: functions of these names take an integer and give a handle, which is an `int` or a pointer.
    let convert = unsafe { std::mem::transmute::<*const _, unsafe extern "C" fn(c_int) -> usize>(address) };
    // SAFETY: any integer may be asked for; one that is no handle gives the null handle.
    unsafe { convert(handle) }
}
