//! What surrounds the protocol in this provider: the program's memory, the core provider's
//! messages, and the completions that wait for the queues.

use std::ffi::c_void;
use std::net::SocketAddr;

use gambeson_proto::endpoint::{Alert, Busy, Host, Lane, PeerId, Received, Violation};

use crate::core::{self, Info, UNREACHABLE};
use crate::fid::{Errno, size};
use crate::info;
use crate::order::Order;
use crate::remote::{Bulk, Operation, Remote};
use crate::report::{say, stop};
use crate::ring::{Buffer, Store};
use crate::trace::{self, Trace};
use gambeson_libfabric_sys::{self as sys, fi_addr_t, iovec};

/// Segments of the program's memory that one operation may have.
pub(crate) const SEGMENTS: usize = 4;

/// The program's memory of one operation.
#[derive(Clone, Copy)]
pub(crate) struct Segments {
    segments: [(*mut u8, usize); SEGMENTS],
    count: usize,
    total: usize,
}

/// What a program handed over with a send.
pub(crate) struct Outgoing {
    pub(crate) memory: Segments,
    pub(crate) context: *mut c_void,
    /// Flags of the completion; `None` when none is wanted.
    pub(crate) completion: Option<u64>,
    pub(crate) role: Role,
    /// Which it is, in a traced job.
    pub(crate) message: Option<trace::Message>,
}

/// What a program handed over with a receive.
pub(crate) struct Incoming {
    pub(crate) memory: Segments,
    pub(crate) context: *mut c_void,
    /// Whether a completion is wanted.
    pub(crate) completion: bool,
    pub(crate) role: Role,
}

/// What an operation is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The program's own message.
    Program,
    /// A request for memory of ours arrives, in this slot.
    Request(usize),
    /// The bytes of a larger write to memory of ours arrive.
    Landing(Bulk),
    /// The answer to an operation of ours arrives.
    Initiator(Operation),
    /// The answer to a read goes out, from the memory of this key.
    Answer(u64),
    /// Anything else that goes out in the service lane.
    Service,
}

/// An entry of a completion queue, in libfabric's words.
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buffer: *mut u8,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) source: fi_addr_t,
    /// Bytes that did not fit, of an entry with FI_ETRUNC.
    pub(crate) overflow: usize,
    /// Zero, or what went wrong.
    pub(crate) error: i32,
}

// SAFETY: the pointers are the program's and are only handed back to it.
unsafe impl Send for Completion {}
// SAFETY: as above; the memory behind them is used under the domain's lock.
unsafe impl Send for Segments {}
// SAFETY: as above.
unsafe impl Send for Outgoing {}
// SAFETY: as above.
unsafe impl Send for Incoming {}

/// What happened since the queues were last served.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) sends: Vec<Completion>,
    pub(crate) receives: Vec<Completion>,
    /// Operations that were completed, wanted or not: counters count them all.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) read: u64,
    pub(crate) written: u64,
}

/// The core's side of an endpoint.
pub(crate) struct Carrier {
    // Closed before the buffers it writes into are freed.
    pub(crate) core: core::Endpoint,
    pub(crate) store: Store,
    pub(crate) done: Done,
    /// For cores whose completions overtake each other.
    pub(crate) order: Option<Order>,
    inject_size: usize,
    /// By peer: how the core and how the program address it.
    routes: Vec<Route>,
    pub(crate) remote: Remote,
    /// Peers whose records the core lost for good.
    pub(crate) broken: Vec<(PeerId, Errno)>,
    /// Whether the core brought anything since this was last cleared.
    pub(crate) arrived: bool,
    /// Open connections to us that no peer accounts for, as last counted.
    pub(crate) strangers: usize,
    /// What is written down of the messages, in a traced job.
    pub(crate) trace: Option<Box<Trace>>,
}

#[derive(Clone, Copy)]
struct Route {
    core: fi_addr_t,
    program: fi_addr_t,
}

impl Carrier {
    pub(crate) fn new(core: core::Endpoint, store: Store, info: &Info) -> Self {
        let order = info::completions_overtake(info).then(Order::default);
        let inject_size = info::core_inject_size(info);
        let done = Done::default();
        let remote = Remote::new();
        Carrier {
            core,
            store,
            done,
            order,
            inject_size,
            routes: Vec::new(),
            remote,
            broken: Vec::new(),
            arrived: false,
            strangers: 0,
            trace: None,
        }
    }

    /// Makes a peer reachable for the core. Does nothing when it is.
    pub(crate) fn reach(&mut self, peer: PeerId, address: SocketAddr) -> Result<(), Errno> {
        if self.route(peer).core == UNREACHABLE {
            self.route(peer).core = self.core.insert(address)?;
        }
        Ok(())
    }

    /// How the program's address vector names a peer from now on.
    pub(crate) fn name(&mut self, peer: PeerId, program: fi_addr_t) {
        self.route(peer).program = program;
    }

    /// Gives the buffers that the core does not have to it again, as receives.
    pub(crate) fn post_receives(&mut self) {
        while let Some(mut buffer) = self.store.idle() {
            let number = self.order.as_mut().map(Order::posted);
            buffer.set_number(number.unwrap_or(0));
            let span = buffer.span(buffer.capacity());
            let context = buffer.lend();
            // SAFETY: the store outlives the core's endpoint.
            if unsafe { self.core.receive(span, context) }.is_err() {
                // SAFETY: the core refused it, so it is ours still. It is tried again later.
                self.store.give(unsafe { Buffer::from_context(context) }.expect("lent just now"));
                if let (Some(order), Some(number)) = (&mut self.order, number) {
                    order.returned(number);
                }
                break;
            }
        }
    }

    /// A completion of a receive operation that brings no message: cancelled, nothing there ...
    pub(crate) fn fail(&mut self, lane: Lane, context: *mut c_void, tag: u64, error: i32) {
        let flags = lane_flag(lane) | sys::FI_RECV;
        let nothing = Completion {
            context,
            flags,
            len: 0,
            buffer: std::ptr::null_mut(),
            data: 0,
            tag,
            source: UNREACHABLE,
            overflow: 0,
            error,
        };
        self.done.receives.push(nothing);
    }

    /// The completion that tells of a message.
    pub(crate) fn tell(&mut self, context: *mut c_void, buffer: *mut u8, message: &Received) {
        let mut flags = lane_flag(message.lane) | sys::FI_RECV;
        if message.data.is_some() {
            flags |= sys::FI_REMOTE_CQ_DATA;
        }
        let source = self.route(message.source).program;
        self.done.receives.push(Completion {
            context,
            flags,
            len: message.len,
            buffer,
            data: message.data.unwrap_or(0),
            tag: message.tag,
            source,
            overflow: message.overflow,
            error: if message.overflow > 0 { sys::FI_ETRUNC } else { 0 },
        });
    }

    fn route(&mut self, peer: PeerId) -> &mut Route {
        let index = peer.0 as usize;
        if index >= self.routes.len() {
            self.routes.resize(index + 1, Route { core: UNREACHABLE, program: UNREACHABLE });
        }
        &mut self.routes[index]
    }

    /// Notes what the core says of a record that it did not take.
    fn refused(&mut self, peer: PeerId, error: Errno) {
        if error.0 != sys::FI_EAGAIN && error.0 != sys::FI_ENOMEM {
            self.broken.push((peer, error));
        }
    }
}

impl Host for Carrier {
    type Send = Outgoing;
    type Receive = Incoming;
    type Buffer = Buffer;

    fn source(send: &Outgoing, offset: usize, len: usize) -> Option<&[u8]> {
        let (base, len) = send.memory.find(offset, len)?;
        // SAFETY: the program keeps the memory of a send until its completion.
        Some(unsafe { std::slice::from_raw_parts(base, len) })
    }

    fn gather(send: &Outgoing, offset: usize, into: &mut [u8]) {
        send.memory.walk(offset, into.len(), |base, at, len| {
            // SAFETY: as above; the walk stays inside both.
            unsafe { base.copy_to_nonoverlapping(into[at..].as_mut_ptr(), len) };
        });
    }

    fn sink(receive: &mut Incoming, offset: usize, len: usize) -> Option<&mut [u8]> {
        let (base, len) = receive.memory.find(offset, len)?;
        // SAFETY: the program leaves the memory of a receive alone until its completion.
        Some(unsafe { std::slice::from_raw_parts_mut(base, len) })
    }

    fn scatter(receive: &mut Incoming, offset: usize, from: &[u8]) {
        receive.memory.walk(offset, from.len(), |base, at, len| {
            // SAFETY: as above; the walk stays inside both.
            unsafe { base.copy_from_nonoverlapping(from[at..].as_ptr(), len) };
        });
    }

    fn inject_size(&self) -> usize {
        self.inject_size
    }

    fn inject(&mut self, peer: PeerId, record: &[u8]) -> Result<(), Busy> {
        let to = self.route(peer).core;
        self.core.inject(to, record).map_err(|error| {
            self.refused(peer, error);
            Busy
        })
    }

    fn buffer(&mut self, len: usize) -> Option<Buffer> {
        self.store.take(len)
    }

    fn transmit(&mut self, peer: PeerId, mut buffer: Buffer, len: usize) -> Result<(), Buffer> {
        let to = self.route(peer).core;
        buffer.set_peer(peer);
        let span = buffer.span(len);
        let context = buffer.lend();
        // SAFETY: the store outlives the core's endpoint.
        unsafe { self.core.send(to, span, context) }.map_err(|error| {
            self.refused(peer, error);
            // SAFETY: the core refused it, so it is ours still.
            unsafe { Buffer::from_context(context) }.expect("lent just now")
        })
    }

    fn introduce(&mut self, peer: PeerId, address: SocketAddr) {
        if let Err(error) = self.reach(peer, address) {
            self.broken.push((peer, error));
        }
    }

    fn sent(&mut self, send: Outgoing) {
        if let (Some(trace), Some(message)) = (&mut self.trace, send.message) {
            trace.sent(message, send.memory.total());
        }
        if send.role != Role::Program {
            return self.remote_sent(send.role);
        }
        self.done.sent += 1;
        if let Some(flags) = send.completion {
            self.done.sends.push(Completion {
                context: send.context,
                flags,
                len: 0,
                buffer: std::ptr::null_mut(),
                data: 0,
                tag: 0,
                source: UNREACHABLE,
                overflow: 0,
                error: 0,
            });
        }
    }

    fn received(&mut self, receive: Incoming, message: &Received) {
        if let Some(trace) = &mut self.trace {
            trace.received(message);
        }
        if receive.role != Role::Program {
            return self.remote_received(&receive, message);
        }
        self.done.received += 1;
        if receive.completion || message.overflow > 0 {
            self.tell(receive.context, receive.memory.base(0), message);
        }
    }

    fn received_part(&mut self, receive: &Incoming, message: &Received) {
        if let Some(trace) = &mut self.trace {
            trace.received(message);
        }
        self.done.received += 1;
        if receive.completion || message.overflow > 0 {
            self.tell(receive.context, receive.memory.base(message.offset), message);
        }
    }

    fn multi_done(&mut self, receive: Incoming) {
        self.done.receives.push(Completion {
            context: receive.context,
            flags: sys::FI_MULTI_RECV,
            len: 0,
            buffer: receive.memory.base(0),
            data: 0,
            tag: 0,
            source: UNREACHABLE,
            overflow: 0,
            error: 0,
        });
    }

    fn clock_ns(&self) -> u64 {
        // SAFETY: a time of this type may be all zero.
        let mut now: libc::timespec = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live time, and every Linux has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn alert(&mut self, alert: &Alert) {
        say(alert);
    }

    fn violation(&mut self, violation: &Violation) {
        match violation {
            Violation::Silent { .. } if self.strangers > 0 => stop(format_args!(
                "{violation}. {} open connections to this rank come from nobody that proved to be of this job: they may \
                 hold the receives in which the messages would arrive",
                self.strangers
            )),
            _ => stop(violation),
        }
    }
}

impl Segments {
    /// No memory.
    pub(crate) const NOTHING: Self = Segments { segments: [(std::ptr::null_mut(), 0); SEGMENTS], count: 0, total: 0 };

    /// One piece of memory.
    pub(crate) fn one(base: *mut c_void, len: usize) -> Self {
        let mut segments = [(std::ptr::null_mut(), 0); SEGMENTS];
        segments[0] = (base.cast(), len);
        Segments { segments, count: 1, total: len }
    }

    /// Several pieces.
    ///
    /// # Safety
    /// `iov` points to `count` vectors, or `count` is zero.
    pub(crate) unsafe fn several(iov: *const iovec, count: usize) -> Result<Self, Errno> {
        if count > SEGMENTS {
            return Err(Errno(sys::FI_EINVAL));
        }
        let mut memory = Segments { segments: [(std::ptr::null_mut(), 0); SEGMENTS], count, total: 0 };
        for (index, segment) in memory.segments[..count].iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            let vector = unsafe { &*iov.add(index) };
            *segment = (vector.iov_base.cast(), vector.iov_len);
            memory.total = memory.total.checked_add(vector.iov_len).ok_or(Errno(sys::FI_EMSGSIZE))?;
        }
        Ok(memory)
    }

    /// The pieces of a message. A peek and a discard have none, whatever their vectors say.
    ///
    /// # Safety
    /// As for [`Segments::several`].
    pub(crate) unsafe fn of_message(iov: *const iovec, count: usize, flags: u64) -> Result<Self, Errno> {
        if flags & (sys::FI_PEEK | sys::FI_DISCARD) != 0 {
            return Ok(Segments::NOTHING);
        }
        // SAFETY: promised by the caller.
        unsafe { Segments::several(iov, count) }
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Where the first piece has its byte `offset`.
    pub(crate) fn base(&self, offset: usize) -> *mut u8 {
        self.segments[0].0.wrapping_add(offset)
    }

    /// Where `len` bytes from `offset` on lie, if in one piece.
    pub(crate) fn find(&self, mut offset: usize, len: usize) -> Option<(*mut u8, usize)> {
        if len == 0 {
            return Some((std::ptr::NonNull::dangling().as_ptr(), 0));
        }
        for &(base, size) in &self.segments[..self.count] {
            if offset < size {
                return (len <= size - offset).then(|| (base.wrapping_add(offset), len));
            }
            offset -= size;
        }
        None
    }

    /// Visits the pieces of `len` bytes from `offset` on: memory, position among the bytes, size.
    fn walk(&self, mut offset: usize, len: usize, mut visit: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        for &(base, size) in &self.segments[..self.count] {
            if offset >= size {
                offset -= size;
                continue;
            }
            let part = (size - offset).min(len - done);
            if part > 0 {
                visit(base.wrapping_add(offset), done, part);
            }
            done += part;
            offset = 0;
        }
    }
}

/// Does the work of an entry point on the memory it was given, if that is acceptable.
pub(crate) fn with_memory(memory: Result<Segments, Errno>, work: impl FnOnce(Segments) -> isize) -> isize {
    match memory {
        Ok(memory) => work(memory),
        Err(error) => size(Err(error)),
    }
}

/// How completions name a lane.
pub(crate) fn lane_flag(lane: Lane) -> u64 {
    match lane {
        Lane::Message => sys::FI_MSG,
        Lane::Tagged => sys::FI_TAGGED,
        Lane::Service => sys::FI_RMA,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(parts: &mut [Vec<u8>]) -> Segments {
        let vectors: Vec<iovec> =
            parts.iter_mut().map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() }).collect();
        // SAFETY: the vectors are alive for the call.
        unsafe { Segments::several(vectors.as_ptr(), vectors.len()) }.unwrap()
    }

    #[test]
    fn pieces_are_gathered_and_scattered_at_any_offset() {
        let mut parts = [vec![0, 1, 2], vec![], vec![3, 4], vec![5, 6, 7, 8]];
        let memory = segments(&mut parts);
        let send =
            Outgoing { memory, context: std::ptr::null_mut(), completion: None, role: Role::Program, message: None };
        for offset in 0..9 {
            for len in 0..=9 - offset {
                let expected: Vec<u8> = (offset as u8..(offset + len) as u8).collect();
                let mut into = vec![0xFF; len];
                Carrier::gather(&send, offset, &mut into);
                assert_eq!(into, expected, "{len} bytes at {offset}");
                if let Some(bytes) = Carrier::source(&send, offset, len) {
                    assert_eq!(bytes, expected, "{len} contiguous bytes at {offset}");
                }
            }
        }
        assert!(Carrier::source(&send, 2, 2).is_none());
        assert_eq!(Carrier::source(&send, 5, 4), Some(&[5, 6, 7, 8][..]));
        let mut receive = Incoming { memory, context: std::ptr::null_mut(), completion: true, role: Role::Program };
        Carrier::scatter(&mut receive, 1, &[10, 11, 12, 13, 14]);
        assert_eq!(parts.concat(), [0, 10, 11, 12, 13, 14, 6, 7, 8]);
    }
}
