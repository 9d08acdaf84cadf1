//! PnetCDF asks what kind of file it is about to open before MPI opens it, and reads its first bytes by itself: of a sealed
//! file those are not the program's. The question is answered here, by the public function that PnetCDF asks it by.

use std::ffi::{CStr, c_char, c_int};
use std::fs::OpenOptions;
use std::sync::Arc;

use gambeson_file::{Extent, Head, SealedFile};
use gambeson_interpose::Function;

use crate::open::path;

/// Stands in front of PnetCDF's function of the same name.
///
/// # Safety
/// The name is a C string or null, and `format` the address of the result or null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncmpi_inq_file_format(name: *const c_char, format: *mut c_int) -> c_int {
    type Real = unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int;
    static REAL: Function = Function::new(c"ncmpi_inq_file_format");
    if !name.is_null() && !format.is_null() {
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        if let Some(version) = version(name) {
            // SAFETY: the caller's promise. Formats are numbered as the versions of the classic format are.
            unsafe { *format = version };
            return 0;
        }
    }
    let Some(address) = REAL.behind(ncmpi_inq_file_format as *const _) else { return NOT_NETCDF };
    // SAFETY: the address is that of PnetCDF's function of this name and prototype.
    unsafe { std::mem::transmute::<*const std::ffi::c_void, Real>(address)(name, format) }
}

/// The version of the classic format that a sealed file begins with; none if it is another or can't be read.
fn version(name: &CStr) -> Option<c_int> {
    let below = gambeson_file::open(path(name), OpenOptions::new().read(true)).ok()?;
    let head = Head::read(below.sealed()).ok()??;
    let keys = Arc::new(gambeson_keys::open().ok()?);
    let mut file = SealedFile::open(&name.to_string_lossy(), below, head, keys).ok()?;
    let mut start = [0; 4];
    file.read(&[Extent { offset: 0, length: start.len() as u64 }], &mut start).ok()?;
    let version = start.strip_prefix(b"CDF")?[0];
    [1, 2, 5].contains(&version).then_some(version.into())
}

/// NC_ENOTNC: what PnetCDF itself says of a file that is none of its own.
const NOT_NETCDF: c_int = -51;
