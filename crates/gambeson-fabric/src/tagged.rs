//! fi_tsend, fi_trecv and their like: each shape becomes one request.

use std::ffi::c_void;

use gambeson_proto::endpoint::Lane;

use crate::carrier::{Segments, with_memory};
use crate::endpoint::{CallKind, ReceiveCall, SendCall, receive, send};
use gambeson_libfabric_sys::{self as sys, fi_addr_t, fi_msg_tagged, fid_ep, iovec};

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let memory = Segments::one(buffer, len);
    // SAFETY: an endpoint of ours.
    unsafe { receive(ep, ReceiveCall { lane: LANE, from, tag, ignore, memory, context, kind: CallKind::Plain }) }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an endpoint of ours, and `count` vectors.
    unsafe {
        with_memory(Segments::several(iov, count), |memory| {
            receive(ep, ReceiveCall { lane: LANE, from, tag, ignore, memory, context, kind: CallKind::Plain })
        })
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: an endpoint of ours, and a message with `iov_count` vectors.
    unsafe {
        let msg = &*msg;
        with_memory(Segments::of_message(msg.msg_iov, msg.iov_count, flags), |memory| {
            let (from, context, kind) = (msg.addr, msg.context, CallKind::Flags(flags));
            receive(ep, ReceiveCall { lane: LANE, from, tag: msg.tag, ignore: msg.ignore, memory, context, kind })
        })
    }
}

unsafe extern "C" fn send_one(
    ep: *mut fid_ep,
    buffer: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let memory = Segments::one(buffer.cast_mut(), len);
    // SAFETY: an endpoint of ours.
    unsafe { send(ep, SendCall { lane: LANE, to, tag, data: None, memory, context, kind: CallKind::Plain }) }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an endpoint of ours, and `count` vectors.
    unsafe {
        with_memory(Segments::several(iov, count), |memory| {
            send(ep, SendCall { lane: LANE, to, tag, data: None, memory, context, kind: CallKind::Plain })
        })
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: an endpoint of ours, and a message with `iov_count` vectors.
    unsafe {
        let msg = &*msg;
        with_memory(Segments::of_message(msg.msg_iov, msg.iov_count, flags), |memory| {
            let data = (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
            let (to, context, kind) = (msg.addr, msg.context, CallKind::Flags(flags));
            send(ep, SendCall { lane: LANE, to, tag: msg.tag, data, memory, context, kind })
        })
    }
}

unsafe extern "C" fn inject(ep: *mut fid_ep, buffer: *const c_void, len: usize, to: fi_addr_t, tag: u64) -> isize {
    let (memory, context) = (Segments::one(buffer.cast_mut(), len), std::ptr::null_mut());
    // SAFETY: an endpoint of ours.
    unsafe { send(ep, SendCall { lane: LANE, to, tag, data: None, memory, context, kind: CallKind::Inject }) }
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (memory, data) = (Segments::one(buffer.cast_mut(), len), Some(data));
    // SAFETY: an endpoint of ours.
    unsafe { send(ep, SendCall { lane: LANE, to, tag, data, memory, context, kind: CallKind::Plain }) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    let (memory, data, context) = (Segments::one(buffer.cast_mut(), len), Some(data), std::ptr::null_mut());
    // SAFETY: an endpoint of ours.
    unsafe { send(ep, SendCall { lane: LANE, to, tag, data, memory, context, kind: CallKind::Inject }) }
}

const LANE: Lane = Lane::Tagged;

pub(crate) static OPS: sys::fi_ops_tagged = sys::fi_ops_tagged {
    size: size_of::<sys::fi_ops_tagged>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send_one),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};
