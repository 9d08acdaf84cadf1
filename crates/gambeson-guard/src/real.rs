//! Finds the MPI library's own function behind a stand-in.

use std::ffi::{CString, c_int, c_void};

pub(crate) use gambeson_interpose::{loaded, object, symbol};

/// The next function of this name after ours. A function of large counts (MPI 4, `..._c`) that
/// an MPI lacks is the one of small counts, whose arguments have the same places.
pub(crate) fn function(name: &str, ours: *const c_void) -> Option<*const c_void> {
    let find = |name: &str| gambeson_interpose::next(&CString::new(name).expect("a name holds no zero"), ours);
    find(name).or_else(|| find(name.strip_suffix("_c")?))
}

/// Whether MPI was started for threads that all may call it.
pub(crate) fn threads_are_multiple() -> bool {
    type Query = unsafe extern "C" fn(*mut c_int) -> c_int;
    let Some(address) = function("PMPI_Query_thread", std::ptr::null()) else {
        return false;
    };
    let mut provided: c_int = 0;
    // SAFETY: the address is that of the MPI library's function of this name and prototype.
    unsafe { std::mem::transmute::<*const c_void, Query>(address)(&raw mut provided) };
    THREAD_MULTIPLE.contains(&provided)
}

/// Whether the program uses the MPI library through the standard ABI.
pub(crate) fn is_of_standard_abi() -> bool {
    let library = function("PMPI_Comm_rank", std::ptr::null()).and_then(gambeson_interpose::file_of);
    let name = library.as_ref().and_then(|path| path.file_name());
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"libmpi_abi."))
}

/// MPI_THREAD_MULTIPLE in MPICH and Open MPI alike, and in the standard ABI.
const THREAD_MULTIPLE: [c_int; 2] = [3, 4096];
