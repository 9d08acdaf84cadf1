//! fi_read over messages: the reader posts a receive and sends a request; the owner of the memory
//! answers with a message, which lands where the reader wants it. Requests and answers are sealed
//! like everything else and have a lane of their own.
//!
//! ```text
//! request, tag REQUEST:  key u64 | offset u64 | length u64 | id u64     little endian
//! answer,  tag id:       the bytes; or none, and the error number as remote data
//! ```

use std::ffi::c_void;

use gambeson_proto::endpoint::{Host, Lane, PeerId, ReceiveRequest, Received, SendRequest};

use crate::carrier::{Carrier, Completion, Incoming, Outgoing, Role, Segments};
use crate::core::UNREACHABLE;
use crate::endpoint::{CallKind, ReadCall, read};
use crate::fid::{Errno, Outcome, size};
use crate::live::Live;
use crate::mr::Regions;
use crate::sys::{self, fi_addr_t, fid_ep, iovec};
use crate::unsupported::unsupported;

/// Requests that can arrive between two looks; more wait in the protocol.
const SLOTS: usize = 8;
const REQUEST_LEN: usize = 32;
/// The tag of requests; ids never get there.
const REQUEST: u64 = u64::MAX;

/// What an endpoint knows of reads.
pub(crate) struct Remote {
    /// Where requests arrive.
    slots: Box<[[u8; REQUEST_LEN]; SLOTS]>,
    /// Requests that arrived: who asks, in which slot, and how many bytes.
    asked: Vec<(PeerId, usize, usize)>,
    /// Keys of memory that answers were made of.
    pub(crate) answered: Vec<u64>,
    next_id: u64,
}

impl Remote {
    pub(crate) fn new() -> Self {
        let slots = Box::new([[0; REQUEST_LEN]; SLOTS]);
        Remote { slots, asked: Vec::new(), answered: Vec::new(), next_id: 1 }
    }

    /// A request arrived.
    pub(crate) fn ask(&mut self, slot: usize, message: &Received) {
        self.asked.push((message.source, slot, message.len));
    }

    /// Whether there is something for [`Live::serve`].
    pub(crate) fn has_work(&self) -> bool {
        !self.asked.is_empty() || !self.answered.is_empty()
    }
}

impl Carrier {
    /// The answer to a read of ours arrived.
    pub(crate) fn read_done(&mut self, receive: &Incoming, message: &Received) {
        let error = match message.data {
            Some(error) => i32::try_from(error).unwrap_or(sys::FI_EIO),
            // The owner sends what was asked for, or says why not.
            None if message.len != receive.memory.total() || message.overflow > 0 => sys::FI_EIO,
            None => 0,
        };
        self.done.sent += 1;
        if receive.completion || error != 0 {
            self.done.sends.push(Completion {
                context: receive.context,
                flags: sys::FI_RMA | sys::FI_READ,
                len: 0,
                buffer: std::ptr::null_mut(),
                data: 0,
                tag: 0,
                source: UNREACHABLE,
                overflow: 0,
                error,
            });
        }
    }
}

impl Live {
    /// Makes the endpoint ready for requests.
    pub(crate) fn expect_requests(&mut self) {
        for slot in 0..SLOTS {
            self.expect_request(slot);
        }
    }

    fn expect_request(&mut self, slot: usize) {
        let base = self.carrier.remote.slots[slot].as_mut_ptr();
        let memory = Segments::one(base.cast(), REQUEST_LEN);
        let receive = Incoming { memory, context: std::ptr::null_mut(), completion: false, role: Role::Request(slot) };
        let request = ReceiveRequest {
            lane: Lane::Service,
            source: None,
            tag: REQUEST,
            ignore: 0,
            capacity: REQUEST_LEN,
            multi: None,
        };
        self.engine.receive(&mut self.carrier, request, receive);
    }

    /// Answers requests from the domain's registered memory.
    pub(crate) fn serve(&mut self, regions: &mut Regions) {
        for key in self.carrier.remote.answered.drain(..) {
            regions.unpin(key);
        }
        while let Some((peer, slot, len)) = self.carrier.remote.asked.pop() {
            let [key, offset, wanted, id] = words(&self.carrier.remote.slots[slot]);
            self.expect_request(slot);
            if len != REQUEST_LEN || id == REQUEST {
                continue;
            }
            let nothing = Segments::one(std::ptr::null_mut(), 0);
            let (memory, answers, data) = match regions.pin(key, offset, wanted) {
                Ok((base, len)) => (Segments::one(base.cast(), len), Some(key), None),
                Err(Errno(error)) => (nothing, None, Some(error as u64)),
            };
            let len = memory.total();
            let request = SendRequest { peer, lane: Lane::Service, tag: id, data, len, delivery: false };
            let answer =
                Outgoing { memory, context: std::ptr::null_mut(), completion: None, role: Role::Answer(answers) };
            if let Err(refused) = self.engine.send(&mut self.carrier, request, answer) {
                // A million messages wait for that peer: it does not take them. Its read fails with it.
                self.carrier.sent(refused);
            }
        }
    }

    /// Asks a peer for memory of its.
    pub(crate) fn read(&mut self, peer: PeerId, call: &ReadCall, completion: bool) -> Outcome {
        let id = self.carrier.remote.next_id;
        let (memory, context) = (call.memory, call.context);
        let capacity = memory.total();
        let (lane, source) = (Lane::Service, Some(peer));
        let receive = Incoming { memory, context, completion, role: Role::Answer(None) };
        let expected = ReceiveRequest { lane, source, tag: id, ignore: 0, capacity, multi: None };
        let posted = self.engine.receive(&mut self.carrier, expected, receive);
        let mut request = [0; REQUEST_LEN];
        for (into, word) in request.chunks_exact_mut(8).zip([call.key, call.offset, capacity as u64, id]) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        let asked = SendRequest { peer, lane, tag: REQUEST, data: None, len: REQUEST_LEN, delivery: false };
        if self.engine.inject(&mut self.carrier, asked, &request).is_err() {
            self.engine.cancel(posted);
            return Err(Errno(sys::FI_EAGAIN));
        }
        self.carrier.remote.next_id += 1;
        Ok(())
    }
}

fn words(request: &[u8; REQUEST_LEN]) -> [u64; 4] {
    std::array::from_fn(|word| u64::from_le_bytes(request[8 * word..8 * word + 8].try_into().expect("eight bytes")))
}

unsafe extern "C" fn read_one(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let memory = Segments::one(buffer, len);
    // SAFETY: an endpoint of ours.
    unsafe { read(ep, &ReadCall { from, offset, key, memory, context, kind: CallKind::Plain }) }
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an endpoint of ours, and `count` vectors.
    unsafe {
        match Segments::several(iov, count) {
            Ok(memory) => read(ep, &ReadCall { from, offset, key, memory, context, kind: CallKind::Plain }),
            Err(error) => size(Err(error)),
        }
    }
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const sys::fi_msg_rma, flags: u64) -> isize {
    // SAFETY: an endpoint of ours, and a message with the vectors that it counts.
    unsafe {
        let msg = &*msg;
        match Segments::several(msg.msg_iov, msg.iov_count) {
            Ok(memory) if msg.rma_iov_count == 1 => {
                let sys::fi_rma_iov { addr: offset, key, .. } = *msg.rma_iov;
                let (from, context, kind) = (msg.addr, msg.context, CallKind::Flags(flags));
                read(ep, &ReadCall { from, offset, key, memory, context, kind })
            }
            Ok(_) => size(Err(Errno(sys::FI_EINVAL))),
            Err(error) => size(Err(error)),
        }
    }
}

pub(crate) static OPS: sys::fi_ops_rma = sys::fi_ops_rma {
    size: size_of::<sys::fi_ops_rma>(),
    read: Some(read_one),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: unsupported(),
    writev: unsupported(),
    writemsg: unsupported(),
    inject: unsupported(),
    writedata: unsupported(),
    injectdata: unsupported(),
};
