//! How a routine hands back what it did: a status, a request, the begin and end of a split collective, or an error.

use std::ffi::{c_int, c_void};

use crate::error::Failure;
use crate::file::{Direction, Request, Sealed};
use crate::mpi::{Inside, Mpi};

/// A blocking routine.
///
/// # Safety
/// The program's buffer is as the request says, and `status` is where its status is, or to be ignored.
pub(crate) unsafe fn complete(file: &Sealed, request: Request, status: usize) -> c_int {
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    unsafe {
        let done = file.access(request);
        finish(file, done, status)
    }
}

/// A nonblocking routine: done at once, with a request that is complete already (MPI-4.1 section 13.2).
///
/// # Safety
/// As for `complete`, with `request` where the program's request is to be.
pub(crate) unsafe fn start(file: &Sealed, request: Request, handle: usize) -> c_int {
    let _inside = Inside::enter();
    let mpi = file.mpi;
    // SAFETY: the caller's promise.
    let started = unsafe { file.access(request) }.and_then(|bytes| {
        let mut made = 0_usize;
        let state = Box::into_raw(Box::new(bytes)).cast();
        // SAFETY: the state is freed by `free`, which the library calls once.
        let status = unsafe { (mpi.call.grequest_start)(query, free, cancel, state, &raw mut made) };
        mpi.check(status, "MPI_Grequest_start")?;
        let made = mpi.abi.handle(made);
        // SAFETY: the request was just made.
        mpi.check(unsafe { (mpi.call.grequest_complete)(made) }, "MPI_Grequest_complete")?;
        Ok(made)
    });
    // SAFETY: the caller's promise.
    unsafe { mpi.abi.write_handle(handle, *started.as_ref().unwrap_or(&mpi.abi.request_null)) };
    outcome(file, started.map(|_| ()))
}

/// The first half of a split collective.
///
/// # Safety
/// As for `complete`; the buffer is the program's to keep until the end.
pub(crate) unsafe fn begin(file: &Sealed, request: Request) -> c_int {
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    let begun = unsafe { file.begin(request) };
    outcome(file, begun)
}

/// The second half.
///
/// # Safety
/// `status` is where the program's status is, or to be ignored.
pub(crate) unsafe fn end(file: &Sealed, direction: Direction, status: usize) -> c_int {
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    unsafe { finish(file, file.end(direction), status) }
}

/// Success, or the error code of a failure once the file's error handler has been called.
pub(crate) fn outcome(file: &Sealed, done: Result<(), Failure>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(failure) => failure.raise(file.mpi, file.file),
    }
}

/// # Safety
/// As for `end`.
unsafe fn finish(file: &Sealed, done: Result<usize, Failure>, status: usize) -> c_int {
    // SAFETY: the caller's promise.
    outcome(file, done.and_then(|bytes| unsafe { fill(file.mpi, status, bytes) }))
}

/// # Safety
/// As for `end`.
unsafe fn fill(mpi: &Mpi, status: usize, bytes: usize) -> Result<(), Failure> {
    if status == mpi.abi.status_ignore {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe {
        mpi.check((mpi.call.status_set_elements)(status, mpi.abi.byte, bytes as i64), "MPI_Status_set_elements")?;
        mpi.check((mpi.call.status_set_cancelled)(status, 0), "MPI_Status_set_cancelled")
    }
}

/// What a status says of such a request.
unsafe extern "C" fn query(state: *mut c_void, status: usize) -> c_int {
    let Ok(mpi) = Mpi::get() else { return 0 };
    // SAFETY: the state is the number that `start` left, and the status the library's.
    match unsafe { fill(mpi, status, *state.cast::<usize>()) } {
        Ok(()) => 0,
        Err(failure) => failure.class,
    }
}

unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: `start` made it, and the library calls this once.
    drop(unsafe { Box::from_raw(state.cast::<usize>()) });
    0
}

unsafe extern "C" fn cancel(_state: *mut c_void, _complete: c_int) -> c_int {
    // It is complete.
    0
}
