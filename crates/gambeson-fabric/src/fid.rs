//! What libfabric's objects have in common: a C struct that the caller reads, with ours behind it.
//!
//! The C part lives in the C library's memory, not on the secret pages: a forked child may still
//! follow its pointers (fi_close is an inline function), and then has to reach code that refuses.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use gambeson_libfabric_sys as sys;

/// An error number of libfabric, positive; negated where C sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

pub(crate) type Outcome<T = ()> = Result<T, Errno>;

/// What an entry point of type `int` returns.
pub(crate) fn status(outcome: Outcome) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(Errno(error)) => -error,
    }
}

/// What an entry point of type `ssize_t` returns.
pub(crate) fn size(outcome: Outcome<usize>) -> isize {
    match outcome {
        Ok(size) => size as isize,
        Err(Errno(error)) => -(error as isize),
    }
}

/// Refuses in a forked child, which has no keys and whose memory of us is gone.
pub(crate) fn alive() -> Outcome {
    if gambeson_pages::alive() { Ok(()) } else { Err(Errno(sys::FI_EPERM)) }
}

/// Refuses in a child that shares its parent's memory (vfork, clone with CLONE_VM): but for its number
/// it is its parent. The guard notes when such a child may exist; until then no system call asks.
pub(crate) fn own_process() -> Outcome {
    // SAFETY: null or a flag of the guard's, which is never unloaded.
    let shared = unsafe { MEMORY_WAS_SHARED.load(Ordering::Relaxed).as_ref() };
    if shared.is_some_and(|shared| !shared.load(Ordering::Relaxed)) {
        return Ok(());
    }
    // SAFETY: getpid has no preconditions.
    if unsafe { libc::getpid() } == PROCESS.load(Ordering::Relaxed) { Ok(()) } else { Err(Errno(sys::FI_EPERM)) }
}

/// Remembers which process this is, when its first endpoint is opened.
pub(crate) fn remember_process() {
    // SAFETY: a C string; the guard stands in LD_PRELOAD, so its symbol is global.
    let flag = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"gambeson_memory_was_shared".as_ptr()) };
    MEMORY_WAS_SHARED.store(flag.cast(), Ordering::Relaxed);
    // SAFETY: getpid has no preconditions.
    let own = unsafe { libc::getpid() };
    // A child that shares this memory stays one, whatever it opens.
    let _ = PROCESS.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
}

static PROCESS: AtomicI32 = AtomicI32::new(0);
static MEMORY_WAS_SHARED: AtomicPtr<AtomicBool> = AtomicPtr::new(ptr::null_mut());

/// A libfabric object: `F` is what libfabric defines, `B` what we need to find the rest.
#[repr(C)]
pub(crate) struct Object<F, B> {
    pub(crate) fid: F,
    pub(crate) body: B,
}

impl<F, B> Object<F, B> {
    /// Allocates an object that C can keep. It lives until [`Object::free`].
    pub(crate) fn allocate(fid: F, body: B) -> Outcome<*mut F> {
        const { assert!(align_of::<Object<F, B>>() <= 16) };
        // SAFETY: malloc takes any size.
        let object: *mut Self = unsafe { libc::malloc(size_of::<Self>()) }.cast();
        if object.is_null() {
            return Err(Errno(sys::FI_ENOMEM));
        }
        // SAFETY: malloc gave memory of this size, aligned for everything up to 16 bytes.
        unsafe { object.write(Object { fid, body }) };
        Ok(object.cast())
    }

    /// Our part of an object.
    ///
    /// # Safety
    /// `fid` came from [`Object::allocate`] with the same types and was not freed.
    pub(crate) unsafe fn body<'a>(fid: *mut F) -> &'a B {
        // SAFETY: the caller promises that the object is ours and alive.
        unsafe { &(*fid.cast::<Self>()).body }
    }

    /// Gives the memory back without dropping the body.
    ///
    /// # Safety
    /// As for [`Object::body`]; nobody uses the object any more.
    pub(crate) unsafe fn free(fid: *mut F) {
        // SAFETY: the object came from malloc.
        unsafe { libc::free(fid.cast()) };
    }
}

/// The common beginning of every object.
pub(crate) fn header(class: u32, context: *mut c_void, ops: &'static sys::fi_ops) -> sys::fid {
    sys::fid { fclass: class as usize, context, ops: ptr(ops) }
}

/// A table as C wants it. Nobody writes to it.
pub(crate) fn ptr<T>(table: &'static T) -> *mut T {
    (table as *const T).cast_mut()
}

/// Whether an object has this table, and hence is of that kind and this provider's.
///
/// # Safety
/// `fid` is null or an open object.
pub(crate) unsafe fn has_table(fid: *const sys::fid, table: &'static sys::fi_ops) -> bool {
    // SAFETY: promised by the caller.
    unsafe { fid.as_ref() }.is_some_and(|fid| std::ptr::eq(fid.ops, table))
}

/// An out-parameter of an entry point.
///
/// # Safety
/// `place` is null or the caller's to be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Errno(sys::FI_EINVAL));
    }
    // SAFETY: promised by the caller.
    unsafe { place.write(value) };
    Ok(())
}
