//! fi_read, fi_write and their like: each shape becomes one request (see `remote`).

use std::ffi::c_void;

use crate::carrier::{Segments, with_memory};
use crate::endpoint::{CallKind, RemoteCall, remote};
use crate::fid::{Errno, size};
use crate::remote::{INLINE, Operation};
use crate::unsupported::unsupported;
use gambeson_libfabric_sys::{self as sys, fi_addr_t, fi_msg_rma, fid_ep, iovec};

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    len: usize,
    _: *mut c_void,
    peer: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (operation, kind, memory) = (Operation::Read, CallKind::Plain, Segments::one(buffer, len));
    // SAFETY: an endpoint of ours.
    unsafe { remote(ep, &RemoteCall { operation, peer, offset, key, memory, context, kind }) }
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (operation, kind) = (Operation::Read, CallKind::Plain);
    // SAFETY: an endpoint of ours, and `count` vectors.
    unsafe {
        with_memory(Segments::several(iov, count), |memory| {
            remote(ep, &RemoteCall { operation, peer, offset, key, memory, context, kind })
        })
    }
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: an endpoint of ours, and the program's message.
    unsafe { message(ep, &*msg, flags, Operation::Read) }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buffer: *const c_void,
    len: usize,
    _: *mut c_void,
    peer: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (operation, kind, memory) = (Operation::Write, CallKind::Plain, Segments::one(buffer.cast_mut(), len));
    // SAFETY: an endpoint of ours.
    unsafe { remote(ep, &RemoteCall { operation, peer, offset, key, memory, context, kind }) }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (operation, kind) = (Operation::Write, CallKind::Plain);
    // SAFETY: an endpoint of ours, and `count` vectors.
    unsafe {
        with_memory(Segments::several(iov, count), |memory| {
            remote(ep, &RemoteCall { operation, peer, offset, key, memory, context, kind })
        })
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    if flags & sys::FI_REMOTE_CQ_DATA != 0 {
        return size(Err(Errno(sys::FI_ENOSYS)));
    }
    // SAFETY: an endpoint of ours, and the program's message.
    unsafe { message(ep, &*msg, flags, Operation::Write) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    len: usize,
    peer: fi_addr_t,
    offset: u64,
    key: u64,
) -> isize {
    if len > INLINE {
        return size(Err(Errno(sys::FI_EMSGSIZE)));
    }
    let (operation, kind, memory) = (Operation::Write, CallKind::Inject, Segments::one(buffer.cast_mut(), len));
    let context = std::ptr::null_mut();
    // SAFETY: an endpoint of ours.
    unsafe { remote(ep, &RemoteCall { operation, peer, offset, key, memory, context, kind }) }
}

/// # Safety
/// `ep` is an open endpoint of ours, and the message has the vectors that it counts.
unsafe fn message(ep: *mut fid_ep, msg: &fi_msg_rma, flags: u64, operation: Operation) -> isize {
    if msg.rma_iov_count != 1 {
        return size(Err(Errno(sys::FI_EINVAL)));
    }
    // SAFETY: promised by the caller.
    unsafe {
        let sys::fi_rma_iov { addr: offset, key, .. } = *msg.rma_iov;
        let (peer, context, kind) = (msg.addr, msg.context, CallKind::Flags(flags));
        with_memory(Segments::several(msg.msg_iov, msg.iov_count), |memory| {
            remote(ep, &RemoteCall { operation, peer, offset, key, memory, context, kind })
        })
    }
}

pub(crate) static OPS: sys::fi_ops_rma = sys::fi_ops_rma {
    size: size_of::<sys::fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    // A write that tells its target something would need a completion there; MPI libraries do not ask for it.
    writedata: unsupported(),
    injectdata: unsupported(),
};
