//! fi_read and fi_write over messages. The initiator posts a receive for the answer and sends a
//! request; the owner of the memory answers. All of it is sealed like everything else and has a
//! lane of its own.
//!
//! ```text
//! request, tag REQUEST:   operation | key | offset | length | id, u64 each, little endian;
//!                         then the bytes of a small write
//! bulk,    tag id | BULK: the bytes of a larger write
//! answer,  tag id:        the bytes of a read, nothing for a write; or an error number as remote data
//! ```
//!
//! A write is complete when the bytes stand in the owner's memory. The owner has to be driven, as
//! with any core provider whose progress is manual.

use std::collections::VecDeque;

use gambeson_proto::endpoint::{Host, Lane, PeerId, ReceiveRequest, Received, SendRequest};

use crate::carrier::{Carrier, Completion, Incoming, Outgoing, Role, Segments};
use crate::core::UNREACHABLE;
use crate::endpoint::RemoteCall;
use crate::fid::{Errno, Outcome};
use crate::info;
use crate::live::Live;
use crate::mr::{Access, Regions};
use gambeson_libfabric_sys as sys;

/// What is asked of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Operation {
    Read = 1,
    Write = 2,
}

/// What an endpoint knows of remote operations.
pub(crate) struct Remote {
    /// Where requests arrive.
    slots: [Vec<u8>; SLOTS],
    /// Requests that arrived: who asks, in which slot, and how many bytes.
    asked: VecDeque<(PeerId, usize, usize)>,
    /// Larger writes whose bytes arrived.
    landed: VecDeque<Bulk>,
    /// Keys of memory that answers were made of.
    answered: Vec<u64>,
    /// Where requests are made.
    scratch: Vec<u8>,
    next_id: u64,
}

/// A larger write to memory of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bulk {
    peer: PeerId,
    id: u64,
    /// The memory's key, or why it was refused.
    target: Outcome<u64>,
}

impl Remote {
    pub(crate) fn new() -> Self {
        let slots = std::array::from_fn(|_| vec![0; SLOT_LEN]);
        let scratch = vec![0; SLOT_LEN];
        Remote { slots, asked: VecDeque::new(), landed: VecDeque::new(), answered: Vec::new(), scratch, next_id: 1 }
    }

    /// Whether there is something for [`Live::serve`].
    pub(crate) fn has_work(&self) -> bool {
        !(self.asked.is_empty() && self.landed.is_empty() && self.answered.is_empty())
    }
}

impl Carrier {
    /// A send of ours is out.
    pub(crate) fn remote_sent(&mut self, role: Role) {
        if let Role::Answer(key) = role {
            self.remote.answered.push(key);
        }
    }

    /// Something of the service lane arrived.
    pub(crate) fn remote_received(&mut self, receive: &Incoming, message: &Received) {
        match receive.role {
            Role::Request(slot) => self.remote.asked.push_back((message.source, slot, message.len)),
            Role::Landing(bulk) => self.remote.landed.push_back(bulk),
            Role::Initiator(operation) => self.remote_done(operation, receive, message),
            Role::Program | Role::Answer(_) | Role::Service => {}
        }
    }

    /// The answer to an operation of ours arrived.
    fn remote_done(&mut self, operation: Operation, receive: &Incoming, message: &Received) {
        let error = match message.data {
            // "No error" is no answer: success has no remote data.
            Some(error) => i32::try_from(error).ok().filter(|error| *error != 0).unwrap_or(sys::FI_EIO),
            // The owner sends what was asked for, or says why not.
            None if message.len != receive.memory.total() || message.overflow > 0 => sys::FI_EIO,
            None => 0,
        };
        let flag = match operation {
            Operation::Read => {
                self.done.read += 1;
                sys::FI_READ
            }
            Operation::Write => {
                self.done.written += 1;
                sys::FI_WRITE
            }
        };
        if receive.completion || error != 0 {
            self.done.sends.push(Completion {
                context: receive.context,
                flags: sys::FI_RMA | flag,
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
        self.expect(None, REQUEST, Segments::one(base.cast(), SLOT_LEN), Role::Request(slot));
    }

    fn expect(&mut self, source: Option<PeerId>, tag: u64, memory: Segments, role: Role) {
        let receive = Incoming { memory, context: std::ptr::null_mut(), completion: false, role };
        let capacity = memory.total();
        let request = ReceiveRequest { lane: Lane::Service, source, tag, ignore: 0, capacity, multi: None };
        self.engine.receive(&mut self.carrier, request, receive);
    }

    /// Does what peers ask of the domain's registered memory.
    pub(crate) fn serve(&mut self, regions: &mut Regions) {
        // In the order of their arrival: the last of two writes to a place is what stays there.
        while let Some((peer, slot, len)) = self.carrier.remote.asked.pop_front() {
            let mut request = std::mem::take(&mut self.carrier.remote.slots[slot]);
            self.serve_one(regions, peer, &request[..len]);
            std::mem::swap(&mut self.carrier.remote.slots[slot], &mut request);
            self.expect_request(slot);
        }
        while let Some(Bulk { peer, id, target }) = self.carrier.remote.landed.pop_front() {
            if let Ok(key) = target {
                regions.unpin(key);
            }
            self.answer(peer, id, NOTHING, Role::Service, target.err());
        }
        // Last, so that memory whose bytes are out can be closed right away.
        for key in self.carrier.remote.answered.drain(..) {
            regions.unpin(key);
        }
    }

    fn serve_one(&mut self, regions: &mut Regions, peer: PeerId, request: &[u8]) {
        let Some((header, bytes)) = request.split_first_chunk::<HEADER_LEN>() else { return };
        let [operation, key, offset, len, id] = words(header);
        let refused = match operation {
            _ if id & BULK != 0 => return,
            READ => match regions.pin(key, offset, len, Access::Read) {
                Ok((base, len)) => {
                    let memory = Segments::one(base.cast(), len);
                    return self.answer(peer, id, memory, Role::Answer(key), None);
                }
                Err(error) => error,
            },
            WRITE if bytes.is_empty() && len > 0 => {
                let target = regions.pin(key, offset, len, Access::Write);
                let memory = match target {
                    Ok((base, len)) => Segments::one(base.cast(), len),
                    // Its bytes follow all the same, and have to go somewhere: nowhere.
                    Err(_) => NOTHING,
                };
                let bulk = Bulk { peer, id, target: target.map(|_| key) };
                return self.expect(Some(peer), id | BULK, memory, Role::Landing(bulk));
            }
            WRITE if bytes.len() as u64 == len => match regions.pin(key, offset, len, Access::Write) {
                Ok((base, len)) => {
                    // SAFETY: the program registered the memory for this, and keeps it while it is registered.
                    unsafe { base.copy_from_nonoverlapping(bytes.as_ptr(), len) };
                    regions.unpin(key);
                    return self.answer(peer, id, NOTHING, Role::Service, None);
                }
                Err(error) => error,
            },
            _ => Errno(sys::FI_EINVAL),
        };
        self.answer(peer, id, NOTHING, Role::Service, Some(refused));
    }

    fn answer(&mut self, peer: PeerId, id: u64, memory: Segments, role: Role, error: Option<Errno>) {
        let (len, data) = (memory.total(), error.map(|Errno(error)| error as u64));
        let request = SendRequest { peer, lane: Lane::Service, tag: id, data, len, delivery: false };
        let answer = Outgoing { memory, context: std::ptr::null_mut(), completion: None, role, message: None };
        if let Some(unsent) = self.offer(request, answer) {
            // A million messages wait for that peer, which takes none: this answer is lost, and its operation never ends.
            self.carrier.sent(unsent);
        }
    }

    /// Asks something of a peer's memory.
    pub(crate) fn remote(&mut self, peer: PeerId, call: &RemoteCall, completion: bool) -> Outcome {
        let (operation, memory, context) = (call.operation, call.memory, call.context);
        let (id, len) = (self.carrier.remote.next_id, memory.total());
        let mut request = std::mem::take(&mut self.carrier.remote.scratch);
        for (into, word) in request.chunks_exact_mut(8).zip([operation as u64, call.key, call.offset, len as u64, id]) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        let inline = operation == Operation::Write && len <= INLINE;
        let request_len = HEADER_LEN + if inline { len } else { 0 };
        let bulk = Outgoing { memory, context, completion: None, role: Role::Service, message: None };
        if inline {
            Carrier::gather(&bulk, 0, &mut request[HEADER_LEN..request_len]);
        }
        let (lane, source) = (Lane::Service, Some(peer));
        let into = if operation == Operation::Read { memory } else { NOTHING };
        let receive = Incoming { memory: into, context, completion, role: Role::Initiator(operation) };
        let capacity = into.total();
        let expected = ReceiveRequest { lane, source, tag: id, ignore: 0, capacity, multi: None };
        let posted = self.engine.receive(&mut self.carrier, expected, receive);
        let asked = SendRequest { peer, lane, tag: REQUEST, data: None, len: request_len, delivery: false };
        let injected = self.offer_copied(asked, &request[..request_len]);
        self.carrier.remote.scratch = request;
        if injected.is_err() {
            self.engine.cancel(posted);
            return Err(Errno(sys::FI_EAGAIN));
        }
        self.carrier.remote.next_id += 1;
        if operation == Operation::Write && !inline {
            let bytes = SendRequest { peer, lane, tag: id | BULK, data: None, len, delivery: false };
            let unsent = self.offer(bytes, bulk);
            assert!(unsent.is_none(), "there is room for a send where there was room for an injection");
        }
        Ok(())
    }
}

fn words(header: &[u8; HEADER_LEN]) -> [u64; 5] {
    std::array::from_fn(|word| u64::from_le_bytes(header[8 * word..8 * word + 8].try_into().expect("eight bytes")))
}

const READ: u64 = Operation::Read as u64;
const WRITE: u64 = Operation::Write as u64;

const NOTHING: Segments = Segments::NOTHING;
/// Requests that can arrive between two looks; more wait in the protocol.
const SLOTS: usize = 8;
const HEADER_LEN: usize = 40;
/// Writes up to this size, in bytes, go with their request; all that can be injected do.
pub(crate) const INLINE: usize = info::INJECT_MAX;
const SLOT_LEN: usize = HEADER_LEN + INLINE;
/// The tag of requests; ids never get there.
const REQUEST: u64 = u64::MAX;
/// Tells the bytes of a write of the peer's from the answer to an operation of ours.
const BULK: u64 = 1 << 63;
