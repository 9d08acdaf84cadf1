//! Loads libmpi into this process and finds which of the two ABIs it speaks.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The ABI of a loaded library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Mpich,
    OpenMpi,
}

/// Loads the library and keeps it for the life of the process.
///
/// Its symbols become global, for the plug-ins of Open MPI and because [`symbol`] looks names up
/// the way a program linked with MPI would: a preloaded library that stands in for an MPI
/// function is met here too.
///
/// # Errors
/// The dynamic loader's own words.
pub(crate) fn load(path: &Path) -> Result<Flavour, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "the path holds a zero byte".to_string())?;
    // SAFETY: `name` is a C string. Loading runs the library's constructors, which is what
    // starting any MPI program does; it happens before this process has a second thread.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        return Err(loader_error());
    }
    if symbol(c"MPI_Init_thread").is_none() {
        return Err(format!("{} is not an MPI library: it has no MPI_Init_thread", path.display()));
    }
    Ok(match symbol(c"ompi_mpi_comm_world") {
        Some(_) => Flavour::OpenMpi,
        None => Flavour::Mpich,
    })
}

/// The address of a global symbol.
pub(crate) fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string, and dlsym has no other precondition.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

fn loader_error() -> String {
    // SAFETY: dlerror returns null or a C string that stays valid until the next dl* call of this
    // thread; it is copied at once.
    unsafe {
        let message = libc::dlerror();
        match message.is_null() {
            true => "unknown error of the dynamic loader".into(),
            false => CStr::from_ptr(message).to_string_lossy().into_owned(),
        }
    }
}
