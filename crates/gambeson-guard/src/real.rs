//! Finds the MPI library's own function behind a stand-in.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// The next function of this name after ours. A function of large counts (MPI 4, `..._c`) that
/// an MPI lacks is the one of small counts, whose arguments have the same places.
pub(crate) fn function(name: &str, ours: *const c_void) -> Option<*const c_void> {
    let find = |name: &str| next(&CString::new(name).expect("a name holds no zero"), ours);
    find(name).or_else(|| find(name.strip_suffix("_c")?))
}

/// An object of the MPI library. A program that was linked with the library may have a copy of its own, which
/// the library then uses too, so the program is asked first.
pub(crate) fn object(name: &CStr) -> Option<*const c_void> {
    // SAFETY: dlsym takes any handle constant and a C string.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast_const();
    if global.is_null() { loaded(|_| true).into_iter().find_map(|object| symbol(&object, name)) } else { Some(global) }
}

/// mpi4py loads its MPI library for itself alone, out of the reach of `RTLD_NEXT`; then every
/// loaded object is asked in turn what it would have found without us.
fn next(name: &CStr, ours: *const c_void) -> Option<*const c_void> {
    // SAFETY: dlsym takes any handle constant and a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let next = next.cast_const();
    if !next.is_null() && next != ours {
        return Some(next);
    }
    loaded(|_| true).into_iter().filter_map(|object| symbol(&object, name)).find(|&address| address != ours)
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
    provided == THREAD_MULTIPLE
}

/// MPI_THREAD_MULTIPLE in MPICH and Open MPI alike.
const THREAD_MULTIPLE: c_int = 3;

/// The names of the loaded objects that `wanted` picks, in the order they were loaded.
pub(crate) fn loaded(wanted: fn(&CStr) -> bool) -> Vec<CString> {
    struct Search {
        wanted: fn(&CStr) -> bool,
        found: Vec<CString>,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid info and the pointer it was given, which is
        // the `Search` below, borrowed by nobody else meanwhile.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: the name is a C string that lives as long as the object is loaded.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            if !name.is_empty() && (search.wanted)(name) {
                search.found.push(name.to_owned());
            }
        }
        0
    }
    let mut search = Search { wanted, found: Vec::new() };
    // SAFETY: `visit` keeps to the contract of dl_iterate_phdr and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// What a loaded object finds under a name, in itself or in what it depends on.
pub(crate) fn symbol(object: &CStr, name: &CStr) -> Option<*const c_void> {
    // SAFETY: RTLD_NOLOAD runs no constructor; the handle keeps the object loaded. It is never
    // closed, so the address stays good.
    let address = unsafe {
        let handle = libc::dlopen(object.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if handle.is_null() {
            return None;
        }
        libc::dlsym(handle, name.as_ptr().cast::<c_char>())
    };
    (!address.is_null()).then_some(address.cast_const())
}
