//! Libraries that are looked for when they are first needed: nothing of ours needs them to be there.

use std::ffi::{CStr, c_void};
use std::mem::{size_of, transmute_copy};
use std::ptr::NonNull;

/// A library that stays for the life of the process.
pub(super) struct Library {
    handle: NonNull<c_void>,
    name: &'static CStr,
}

#[allow(unsafe_code)]
impl Library {
    /// Loads it; `package` is what to install where it is missing.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn open(name: &'static CStr, package: &str) -> Result<Self, String> {
        // SAFETY: the name is a C string, and the constructors of these libraries ask for nothing. It is never closed.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let missing = || format!("this host has no {}; install {package}", name.to_string_lossy());
        Ok(Library { handle: NonNull::new(handle).ok_or_else(missing)?, name })
    }

    /// One of its functions.
    ///
    /// # Errors
    /// A sentence: it has none of this name.
    ///
    /// # Safety
    /// `F` is the type of a pointer to that function.
    pub(super) unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open, and the name a C string.
        let address = NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) });
        let address = address.ok_or_else(|| {
            format!("{} has no {}: it is of another kind", self.name.to_string_lossy(), name.to_string_lossy())
        })?;
        // SAFETY: the caller says that this is what is there; the sizes are equal.
        Ok(unsafe { transmute_copy(&address) })
    }
}
