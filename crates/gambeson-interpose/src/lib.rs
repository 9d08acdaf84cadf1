//! Finds the function behind a stand-in of the same name, for libraries that are put in front of MPI's.

pub mod connections;

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The function behind a stand-in, looked up once.
#[derive(Debug)]
pub struct Function {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Function {
    /// The function of this name, which nobody looks up yet.
    pub const fn new(name: &'static CStr) -> Self {
        Function { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The next function of the name after `ours`.
    #[inline]
    pub fn behind(&self, ours: *const c_void) -> Option<*const c_void> {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find(ours) } else { Some(known.cast_const()) }
    }

    #[cold]
    fn find(&self, ours: *const c_void) -> Option<*const c_void> {
        let found = next(self.name, ours)?;
        self.address.store(found.cast_mut(), Ordering::Relaxed);
        Some(found)
    }
}

/// The next function of this name that lies in another object than `ours`.
///
/// mpi4py loads its MPI library for itself alone, out of the reach of `RTLD_NEXT`; then every
/// loaded object is asked in turn what it would have found without us.
pub fn next(name: &CStr, ours: *const c_void) -> Option<*const c_void> {
    // SAFETY: dlsym takes any handle constant and a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let next = next.cast_const();
    let own = place(ours).map(|info| info.dli_fbase);
    let other = |address: &*const c_void| place(*address).map(|info| info.dli_fbase) != own;
    if !next.is_null() && other(&next) {
        return Some(next);
    }
    loaded(|_| true).into_iter().filter_map(|object| symbol(&object, name)).find(other)
}

/// An object of the MPI library. A program that was linked with the library may have a copy of its own, which
/// the library then uses too, so the program is asked first.
pub fn object(name: &CStr) -> Option<*const c_void> {
    // SAFETY: dlsym takes any handle constant and a C string.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast_const();
    if global.is_null() { loaded(|_| true).into_iter().find_map(|object| symbol(&object, name)) } else { Some(global) }
}

/// The names of the loaded objects that `wanted` picks, in the order they were loaded.
pub fn loaded(wanted: fn(&CStr) -> bool) -> Vec<CString> {
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
pub fn symbol(object: &CStr, name: &CStr) -> Option<*const c_void> {
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

/// The file of the loaded object that an address lies in.
pub fn file_of(address: *const c_void) -> Option<PathBuf> {
    let name = place(address).map(|info| info.dli_fname).filter(|name| !name.is_null())?;
    // SAFETY: the name is a C string that lives as long as the object is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(OsString::from_vec(name.to_bytes().to_vec()).into())
}

/// The loaded object that an address lies in.
fn place(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: dladdr takes any address and fills in what it knows.
    (unsafe { libc::dladdr(address, &raw mut info) } != 0).then_some(info)
}
