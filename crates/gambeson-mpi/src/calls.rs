//! The routines of MPI that are stood in front of, by their MPI and their PMPI names: Fortran's bindings call either.
//!
//! Every argument is a machine word, of which the callee reads the half it needs. Files that are not sealed, and calls
//! that the MPI library makes itself, go straight on to the library.

use std::ffi::{CStr, c_int, c_void};

use gambeson_interpose::Function;

use crate::completion::{begin, complete, end, outcome, start};
use crate::engine::Who::{All, Alone};
use crate::file::Direction::{Read, Write};
use crate::file::{Place, Request};
use crate::handles::sealed;
use crate::memory::Memory;
use crate::mpi::{Inside, Mpi};
use crate::{control, open, plain};

/// A routine: what is done for a sealed file, and the library's function for any other.
macro_rules! stand_in {
    ($name:ident($first:ident $(, $argument:ident)*) |$file:ident| $handled:expr, $lacks:expr) => {
        stand_in!(@any $name($first $(, $argument)*) sealed($first).map(|$file| $handled), $lacks);
    };
    (@any $name:ident($($argument:ident),+) $handled:expr, $lacks:expr $(, $after:expr)?) => {
        /// Stands in front of the MPI function of the same name.
        ///
        /// # Safety
        /// As the MPI standard demands of the function's callers.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub(crate) unsafe extern "C" fn $name($($argument: usize),+) -> c_int {
            type Real = unsafe extern "C" fn($(stand_in!(@word $argument)),+) -> c_int;
            static REAL: Function = Function::new(name(concat!(stringify!($name), "\0")));
            if let Some(status) = $handled {
                return status;
            }
            let Some(address) = REAL.behind($name as *const c_void) else {
                return $lacks;
            };
            let _inside = Inside::enter();
            // SAFETY: the address is that of the MPI library's function of this name, which takes
            // these arguments, a word each, and they are the caller's own.
            let status = unsafe { std::mem::transmute::<*const c_void, Real>(address)($($argument),+) };
            $($after(status);)?
            status
        }
    };
    (@word $argument:ident) => { usize };
}

/// Data-access routines: direction, place, who calls, how it is completed, and the names for counts of 32 and 64 bits.
macro_rules! access {
    ($($direction:ident $place:ident $who:ident $completion:ident: $small:ident $profiling:ident, $large:ident $large_profiling:ident;)+) => {
        $(
            access!(@routine $direction $place $who $completion $small c_int no_library);
            access!(@routine $direction $place $who $completion $profiling c_int no_library);
            access!(@routine $direction $place $who $completion $large i64 $small);
            access!(@routine $direction $place $who $completion $large_profiling i64 $profiling);
        )+
    };
    (@routine $direction:ident explicit $who:ident begin $name:ident $count:ident $small:ident) => {
        stand_in!($name(file, offset, buffer, count, datatype) |handle| {
            let place = Place::Explicit(offset as i64);
            let memory = Memory { address: buffer, count: (count as $count).into(), datatype };
            // SAFETY: the caller's buffer.
            unsafe { begin(&handle, Request { direction: $direction, place, who: $who, memory }) }
        }, access!(@lacks $count $small count file offset buffer count datatype));
    };
    (@routine $direction:ident explicit $who:ident $completion:ident $name:ident $count:ident $small:ident) => {
        stand_in!($name(file, offset, buffer, count, datatype, result) |handle| {
            let place = Place::Explicit(offset as i64);
            let memory = Memory { address: buffer, count: (count as $count).into(), datatype };
            // SAFETY: the caller's buffer, and where its status or request is.
            unsafe { $completion(&handle, Request { direction: $direction, place, who: $who, memory }, result) }
        }, access!(@lacks $count $small count file offset buffer count datatype result));
    };
    (@routine $direction:ident $place:ident $who:ident begin $name:ident $count:ident $small:ident) => {
        stand_in!($name(file, buffer, count, datatype) |handle| {
            let memory = Memory { address: buffer, count: (count as $count).into(), datatype };
            // SAFETY: the caller's buffer.
            unsafe { begin(&handle, Request { direction: $direction, place: Place::$place, who: $who, memory }) }
        }, access!(@lacks $count $small count file buffer count datatype));
    };
    (@routine $direction:ident $place:ident $who:ident $completion:ident $name:ident $count:ident $small:ident) => {
        stand_in!($name(file, buffer, count, datatype, result) |handle| {
            let memory = Memory { address: buffer, count: (count as $count).into(), datatype };
            // SAFETY: the caller's buffer, and where its status or request is.
            unsafe { $completion(&handle, Request { direction: $direction, place: Place::$place, who: $who, memory }, result) }
        }, access!(@lacks $count $small count file buffer count datatype result));
    };
    // An MPI before version 4 lacks the large count; its own routine has the arguments in the same places. A program
    // that looks whether the large one is there finds ours.
    (@lacks c_int $small:ident $count:ident $($argument:ident)+) => { no_library() };
    (@lacks i64 $small:ident $count:ident $($argument:ident)+) => {
        if c_int::try_from($count as i64).is_ok() {
            // SAFETY: the caller's arguments.
            unsafe { $small($($argument),+) }
        } else {
            too_many()
        }
    };
}

access! {
    Read explicit Alone complete: MPI_File_read_at PMPI_File_read_at, MPI_File_read_at_c PMPI_File_read_at_c;
    Read explicit All complete: MPI_File_read_at_all PMPI_File_read_at_all, MPI_File_read_at_all_c PMPI_File_read_at_all_c;
    Write explicit Alone complete: MPI_File_write_at PMPI_File_write_at, MPI_File_write_at_c PMPI_File_write_at_c;
    Write explicit All complete: MPI_File_write_at_all PMPI_File_write_at_all, MPI_File_write_at_all_c PMPI_File_write_at_all_c;
    Read explicit Alone start: MPI_File_iread_at PMPI_File_iread_at, MPI_File_iread_at_c PMPI_File_iread_at_c;
    Read explicit All start: MPI_File_iread_at_all PMPI_File_iread_at_all, MPI_File_iread_at_all_c PMPI_File_iread_at_all_c;
    Write explicit Alone start: MPI_File_iwrite_at PMPI_File_iwrite_at, MPI_File_iwrite_at_c PMPI_File_iwrite_at_c;
    Write explicit All start: MPI_File_iwrite_at_all PMPI_File_iwrite_at_all, MPI_File_iwrite_at_all_c PMPI_File_iwrite_at_all_c;
    Read explicit All begin: MPI_File_read_at_all_begin PMPI_File_read_at_all_begin, MPI_File_read_at_all_begin_c PMPI_File_read_at_all_begin_c;
    Write explicit All begin: MPI_File_write_at_all_begin PMPI_File_write_at_all_begin, MPI_File_write_at_all_begin_c PMPI_File_write_at_all_begin_c;

    Read Individual Alone complete: MPI_File_read PMPI_File_read, MPI_File_read_c PMPI_File_read_c;
    Read Individual All complete: MPI_File_read_all PMPI_File_read_all, MPI_File_read_all_c PMPI_File_read_all_c;
    Write Individual Alone complete: MPI_File_write PMPI_File_write, MPI_File_write_c PMPI_File_write_c;
    Write Individual All complete: MPI_File_write_all PMPI_File_write_all, MPI_File_write_all_c PMPI_File_write_all_c;
    Read Individual Alone start: MPI_File_iread PMPI_File_iread, MPI_File_iread_c PMPI_File_iread_c;
    Read Individual All start: MPI_File_iread_all PMPI_File_iread_all, MPI_File_iread_all_c PMPI_File_iread_all_c;
    Write Individual Alone start: MPI_File_iwrite PMPI_File_iwrite, MPI_File_iwrite_c PMPI_File_iwrite_c;
    Write Individual All start: MPI_File_iwrite_all PMPI_File_iwrite_all, MPI_File_iwrite_all_c PMPI_File_iwrite_all_c;
    Read Individual All begin: MPI_File_read_all_begin PMPI_File_read_all_begin, MPI_File_read_all_begin_c PMPI_File_read_all_begin_c;
    Write Individual All begin: MPI_File_write_all_begin PMPI_File_write_all_begin, MPI_File_write_all_begin_c PMPI_File_write_all_begin_c;

    Read Shared Alone complete: MPI_File_read_shared PMPI_File_read_shared, MPI_File_read_shared_c PMPI_File_read_shared_c;
    Write Shared Alone complete: MPI_File_write_shared PMPI_File_write_shared, MPI_File_write_shared_c PMPI_File_write_shared_c;
    Read Shared Alone start: MPI_File_iread_shared PMPI_File_iread_shared, MPI_File_iread_shared_c PMPI_File_iread_shared_c;
    Write Shared Alone start: MPI_File_iwrite_shared PMPI_File_iwrite_shared, MPI_File_iwrite_shared_c PMPI_File_iwrite_shared_c;
    Read Ordered All complete: MPI_File_read_ordered PMPI_File_read_ordered, MPI_File_read_ordered_c PMPI_File_read_ordered_c;
    Write Ordered All complete: MPI_File_write_ordered PMPI_File_write_ordered, MPI_File_write_ordered_c PMPI_File_write_ordered_c;
    Read Ordered All begin: MPI_File_read_ordered_begin PMPI_File_read_ordered_begin, MPI_File_read_ordered_begin_c PMPI_File_read_ordered_begin_c;
    Write Ordered All begin: MPI_File_write_ordered_begin PMPI_File_write_ordered_begin, MPI_File_write_ordered_begin_c PMPI_File_write_ordered_begin_c;
}

/// The ends of split collectives.
macro_rules! ends {
    ($($direction:ident: $name:ident $profiling:ident;)+) => {
        $(ends!(@one $direction $name); ends!(@one $direction $profiling);)+
    };
    (@one $direction:ident $name:ident) => {
        // SAFETY: where the caller's status is.
        stand_in!($name(file, buffer, status) |handle| unsafe { end(&handle, $direction, status) }, no_library());
    };
}

ends! {
    Read: MPI_File_read_at_all_end PMPI_File_read_at_all_end;
    Write: MPI_File_write_at_all_end PMPI_File_write_at_all_end;
    Read: MPI_File_read_all_end PMPI_File_read_all_end;
    Write: MPI_File_write_all_end PMPI_File_write_all_end;
    Read: MPI_File_read_ordered_end PMPI_File_read_ordered_end;
    Write: MPI_File_write_ordered_end PMPI_File_write_ordered_end;
}

/// Routines about a file as a whole, each a function of `control`.
macro_rules! control {
    ($($function:ident($($argument:ident: $kind:ty),*): $name:ident $profiling:ident;)+) => {
        $(control!(@one $name $function $($argument $kind)*); control!(@one $profiling $function $($argument $kind)*);)+
    };
    (@one $name:ident $function:ident $($argument:ident $kind:ty)*) => {
        stand_in!($name(file $(, $argument)*) |handle| {
            // SAFETY: the addresses are the caller's own.
            outcome(&handle, unsafe { control::$function(&handle $(, $argument as $kind)*) })
        }, no_library());
    };
}

control! {
    set_view(displacement: i64, etype: usize, filetype: usize, representation: *const _, info: usize): MPI_File_set_view PMPI_File_set_view;
    view(displacement: *mut i64, etype: usize, filetype: usize, representation: *mut _): MPI_File_get_view PMPI_File_get_view;
    seek(offset: i64, whence: c_int): MPI_File_seek PMPI_File_seek;
    seek_shared(offset: i64, whence: c_int): MPI_File_seek_shared PMPI_File_seek_shared;
    position(offset: *mut i64): MPI_File_get_position PMPI_File_get_position;
    position_shared(offset: *mut i64): MPI_File_get_position_shared PMPI_File_get_position_shared;
    byte_offset(offset: i64, displacement: *mut i64): MPI_File_get_byte_offset PMPI_File_get_byte_offset;
    size(size: *mut i64): MPI_File_get_size PMPI_File_get_size;
    set_size(size: i64): MPI_File_set_size PMPI_File_set_size;
    preallocate(size: i64): MPI_File_preallocate PMPI_File_preallocate;
    mode(mode: *mut c_int): MPI_File_get_amode PMPI_File_get_amode;
    set_atomicity(atomic: c_int): MPI_File_set_atomicity PMPI_File_set_atomicity;
    atomicity(atomic: *mut c_int): MPI_File_get_atomicity PMPI_File_get_atomicity;
    sync(): MPI_File_sync PMPI_File_sync;
}

/// The routines that make and end handles.
macro_rules! handles {
    ($($opens:ident $closes:ident;)+) => {
        $(
            // SAFETY: the addresses are the caller's own.
            stand_in!(@any $opens(communicator, name, mode, info, file) unsafe {
                open::open(communicator, name as *const _, mode as c_int, info, file as *mut usize)
            }, no_library(), |status| if status == 0 {
                // SAFETY: as above, and the library has opened the file.
                unsafe { plain::opened(name as *const _, mode as c_int, file as *const usize) }
            });
            // SAFETY: as above.
            stand_in!(@any $closes(file) unsafe { open::close(file as *mut usize) }, no_library());
        )+
    };
}

handles! {
    MPI_File_open MPI_File_close;
    PMPI_File_open PMPI_File_close;
}

/// Deleting a file.
macro_rules! deletes {
    ($($name:ident)+) => {
        $(stand_in!(@any $name(name, info) None::<c_int>, no_library(), |_done| {
            // SAFETY: the name is the caller's own.
            unsafe { open::deleted(name as *const _) }
        });)+
    };
}

deletes! { MPI_File_delete PMPI_File_delete }

const fn name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with its only zero"),
    }
}

/// What a caller finds that has no MPI library: PyMPI_ERR_UNAVAILABLE of mpi4py, which is its own word for that.
fn no_library() -> c_int {
    -1_431_655_766
}

/// More elements than a count of the MPI library can say.
fn too_many() -> c_int {
    Mpi::get().map_or_else(|_| no_library(), |mpi| mpi.abi.class.argument)
}
