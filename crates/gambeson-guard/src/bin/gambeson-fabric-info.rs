//! Asks a libfabric which providers it offers: what `gambeson doctor` runs in a process of its own.
//!
//! `gambeson-fabric-info LIBFABRIC [version]` prints `version MAJOR.MINOR` and a line `provider NAME` for
//! each that fi_getinfo reports under the environment it is given, unless the version is enough.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::ptr;

/// The head of struct fi_info (fi_getinfo(3)), which every libfabric 1 and 2 shares.
#[repr(C)]
struct Info {
    next: *mut Info,
    caps_to_domain: [u64; 12],
    fabric: *const FabricAttributes,
}

/// The head of struct fi_fabric_attr.
#[repr(C)]
struct FabricAttributes {
    fabric: *const c_void,
    name: *const c_char,
    provider: *const c_char,
}

type Version = unsafe extern "C" fn() -> u32;
type GetInfo = unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const c_void, *mut *mut Info) -> c_int;

fn main() -> ExitCode {
    let Some(path) = env::args_os().nth(1).and_then(|path| CString::new(path.as_bytes()).ok()) else {
        eprintln!("usage: gambeson-fabric-info LIBFABRIC");
        return ExitCode::from(64);
    };
    // SAFETY: dlopen takes a C string; what the library's constructors do is the library's own.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    let (Some(version), Some(getinfo)) = (symbol(library, c"fi_version"), symbol(library, c"fi_getinfo")) else {
        eprintln!("{} is no libfabric", path.to_string_lossy());
        return ExitCode::from(69);
    };
    // SAFETY: both are libfabric's functions of these names and prototypes.
    let (version, getinfo) = unsafe {
        (std::mem::transmute::<*mut c_void, Version>(version), std::mem::transmute::<*mut c_void, GetInfo>(getinfo))
    };
    // SAFETY: fi_version has no preconditions.
    let number = unsafe { version() };
    println!("version {}.{}", number >> 16, number & 0xffff);
    if env::args_os().nth(2).is_some_and(|wanted| wanted == "version") {
        return ExitCode::SUCCESS;
    }
    let mut info = ptr::null_mut();
    // SAFETY: hints, node and service may be null, and info is written only on success.
    if unsafe { getinfo(number, ptr::null(), ptr::null(), 0, ptr::null(), &raw mut info) } == 0 {
        for name in names(info) {
            println!("provider {name}");
        }
    }
    ExitCode::SUCCESS
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    if library.is_null() {
        return None;
    }
    // SAFETY: the handle is dlopen's and stays open.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The names in a list that fi_getinfo made, which is not freed: the process ends.
fn names(mut info: *const Info) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    // SAFETY: the list is libfabric's, ends in null, and nobody changes it.
    while let Some(entry) = unsafe { info.as_ref() } {
        // SAFETY: as above; a provider fills in its fabric attributes and its name.
        if let Some(fabric) = unsafe { entry.fabric.as_ref() }
            && !fabric.provider.is_null()
        {
            // SAFETY: the name is a C string of libfabric's.
            names.insert(unsafe { CStr::from_ptr(fabric.provider) }.to_string_lossy().into_owned());
        }
        info = entry.next;
    }
    names
}
