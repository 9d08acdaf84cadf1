//! fid_ep: an endpoint of ours over an endpoint of the core.
//!
//! The core's objects are opened at fi_enable, when the endpoint knows all it is bound to; its
//! address, the card, exists from then on.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gambeson_proto::endpoint::{Lane, PeerId, ReceiveRequest, SendRequest};
use gambeson_proto::identity::CARD_LEN;

use crate::av::Vector;
use crate::carrier::{Incoming, Outgoing, Role, Segments, lane_flag};
use crate::cntr::Counter;
use crate::core::UNREACHABLE;
use crate::cq::Queue;
use crate::domain::{Domain, Member, State, Table, enter, of};
use crate::fid::{self, Errno, Outcome, alive, header, own_process, put, remember_process, size, status};
use crate::live::Live;
use crate::mr::Regions;
use crate::remote::Operation;
use crate::report::refuse;
use crate::unsupported::{self, unsupported};
use crate::{av, cntr, communicators, cq, info, msg, rma, tagged, watchdog, world};
use gambeson_libfabric_sys::{self as sys, fi_addr_t, fi_info, fid_av, fid_cntr, fid_cq, fid_ep};

/// An endpoint, from fi_endpoint to fi_close.
pub(crate) struct Endpoint {
    /// Whether receives may name their source (FI_DIRECTED_RECV); it is ignored otherwise.
    directed: bool,
    /// Flags of the operations that have no flags argument.
    send_flags: u64,
    receive_flags: u64,
    vector: Option<usize>,
    send_queue: Option<Binding>,
    receive_queue: Option<Binding>,
    /// Counters of sends, receives, reads and writes.
    counters: [Option<usize>; 4],
    /// A multi-receive buffer is given back when it has fewer free bytes than this.
    min_multi: usize,
    /// By the vector's fi_addr_t: the peer, once it was addressed.
    peers: Vec<Option<PeerId>>,
    live: Option<Live>,
}

/// How an endpoint reports to a queue.
#[derive(Clone, Copy)]
struct Binding {
    queue: usize,
    /// Completions only of operations that ask for one (FI_SELECTIVE_COMPLETION).
    selective: bool,
}

/// A send in any of its shapes.
pub(crate) struct SendCall {
    pub(crate) lane: Lane,
    pub(crate) to: fi_addr_t,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    pub(crate) memory: Segments,
    pub(crate) context: *mut c_void,
    pub(crate) kind: CallKind,
}

/// A receive in any of its shapes.
pub(crate) struct ReceiveCall {
    pub(crate) lane: Lane,
    pub(crate) from: fi_addr_t,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) memory: Segments,
    pub(crate) context: *mut c_void,
    pub(crate) kind: CallKind,
}

/// A use of a peer's memory in any of its shapes.
pub(crate) struct RemoteCall {
    pub(crate) operation: Operation,
    pub(crate) peer: fi_addr_t,
    pub(crate) offset: u64,
    pub(crate) key: u64,
    pub(crate) memory: Segments,
    pub(crate) context: *mut c_void,
    pub(crate) kind: CallKind,
}

/// Where an operation's flags come from.
#[derive(Clone, Copy)]
pub(crate) enum CallKind {
    /// fi_send and its like: the endpoint's flags.
    Plain,
    /// fi_inject and its like: copied at once, never a completion.
    Inject,
    /// fi_sendmsg and its like: these flags.
    Flags(u64),
}

/// Opens an endpoint in a domain.
pub(crate) fn open(domain: &Arc<Domain>, info: &fi_info, context: *mut c_void) -> Outcome<*mut fid_ep> {
    // SAFETY: the parts of an fi_info are null or valid.
    let (tx, rx) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref()) };
    let caps = if info.caps == 0 { info::CAPS } else { info.caps };
    let endpoint = Endpoint {
        directed: caps & sys::FI_DIRECTED_RECV != 0,
        send_flags: tx.map_or(0, |tx| tx.op_flags),
        receive_flags: rx.map_or(0, |rx| rx.op_flags),
        vector: None,
        send_queue: None,
        receive_queue: None,
        counters: [None; 4],
        min_multi: MIN_MULTI,
        peers: Vec::new(),
        live: None,
    };
    let index = domain.lock().endpoints.insert(endpoint);
    let fid = fid_ep {
        fid: header(sys::FI_CLASS_EP, context, &FID_OPS),
        ops: fid::ptr(&OPS),
        cm: fid::ptr(&CM_OPS),
        msg: fid::ptr(&msg::OPS),
        rma: fid::ptr(&rma::OPS),
        tagged: fid::ptr(&tagged::OPS),
        atomic: fid::ptr(&unsupported::ATOMIC),
        collective: fid::ptr(&unsupported::COLLECTIVE),
    };
    Member::handle(domain, fid, index)
}

impl Endpoint {
    fn live(&mut self) -> Outcome<&mut Live> {
        self.live.as_mut().ok_or(Errno(sys::FI_EOPBADSTATE))
    }

    /// Drives the core and the protocol. Whether anything happened.
    pub(crate) fn pump(&mut self) -> bool {
        self.live.as_mut().is_some_and(Live::pump)
    }

    /// Hands what was completed to the queues and counters it belongs to.
    pub(crate) fn deliver(&mut self, queues: &mut Table<Queue>, counters: &mut Table<Counter>) {
        let Some(live) = &mut self.live else { return };
        let done = live.done();
        if !done.sends.is_empty() {
            match self.send_queue {
                Some(binding) => queues[binding.queue].extend(done.sends.drain(..)),
                None => done.sends.clear(),
            }
        }
        if !done.receives.is_empty() {
            match self.receive_queue {
                Some(binding) => queues[binding.queue].extend(done.receives.drain(..)),
                None => done.receives.clear(),
            }
        }
        let completed = [&mut done.sent, &mut done.received, &mut done.read, &mut done.written];
        for (counter, completed) in self.counters.iter().zip(completed) {
            let completed = std::mem::take(completed);
            if let Some(counter) = counter.filter(|_| completed > 0) {
                counters[counter].add(completed);
            }
        }
    }

    /// The peer that an address stands for; made known to the protocol when first addressed.
    fn peer(&mut self, vectors: &Table<Vector>, to: fi_addr_t) -> Outcome<PeerId> {
        let index = usize::try_from(to).map_err(|_| Errno(sys::FI_EINVAL))?;
        match self.peers.get(index) {
            Some(&Some(peer)) => Ok(peer),
            _ => self.meet(vectors, to, index),
        }
    }

    #[cold]
    fn meet(&mut self, vectors: &Table<Vector>, to: fi_addr_t, index: usize) -> Outcome<PeerId> {
        let vector = self.vector.ok_or(Errno(sys::FI_ENOAV))?;
        let card = vectors[vector].card(to).ok_or(Errno(sys::FI_EINVAL))?;
        let peer = self.live()?.meet(card, to)?;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
        Ok(peer)
    }

    /// The vector forgets an address.
    pub(crate) fn forget(&mut self, address: fi_addr_t) {
        let known = usize::try_from(address).ok().and_then(|index| self.peers.get_mut(index)).and_then(Option::take);
        if let (Some(peer), Some(live)) = (known, &mut self.live) {
            live.part(peer);
        }
    }

    fn send(&mut self, vectors: &Table<Vector>, call: SendCall) -> Outcome {
        let SendCall { lane, to, tag, data, memory, context, kind } = call;
        if memory.total() > info::MAX_MESSAGE {
            return Err(Errno(sys::FI_EMSGSIZE));
        }
        let (flags, inject) = match kind {
            CallKind::Plain => (self.send_flags, false),
            CallKind::Inject => (0, true),
            CallKind::Flags(flags) => (flags, flags & sys::FI_INJECT != 0),
        };
        let selective = self.send_queue.is_none_or(|binding| binding.selective);
        let wanted = !matches!(kind, CallKind::Inject) && (!selective || flags & sys::FI_COMPLETION != 0);
        let completion = wanted.then_some(lane_flag(lane) | sys::FI_SEND);
        let send = Outgoing { memory, context, completion, role: Role::Program, message: None };
        if world::is_call(lane, tag, memory.total()) {
            return self.answer(vectors, to, send);
        }
        if communicators::is_watched() && lane == Lane::Tagged {
            communicators::sends(tag);
        }
        let peer = self.peer(vectors, to)?;
        let live = self.live()?;
        let delivery = flags & sys::FI_DELIVERY_COMPLETE != 0;
        let request = SendRequest { peer, lane, tag, data, len: memory.total(), delivery };
        if inject && !delivery { live.inject(request, send) } else { live.send(request, send) }
    }

    /// A message of the guard's roll call: its address is looked at, and nothing is sent.
    #[cold]
    fn answer(&mut self, vectors: &Table<Vector>, to: fi_addr_t, send: Outgoing) -> Outcome {
        let card = vectors[self.vector.ok_or(Errno(sys::FI_ENOAV))?].card(to).ok_or(Errno(sys::FI_EINVAL))?;
        let live = self.live()?;
        world::answer(card, live.membership());
        live.sent(send);
        Ok(())
    }

    fn receive(&mut self, vectors: &Table<Vector>, call: ReceiveCall) -> Outcome {
        let ReceiveCall { lane, from, tag, ignore, memory, context, kind } = call;
        let flags = match kind {
            CallKind::Flags(flags) => flags,
            _ => self.receive_flags,
        };
        let source = match from {
            UNREACHABLE => None,
            from if self.directed => Some(self.peer(vectors, from)?),
            _ => None,
        };
        if communicators::is_probe(lane, tag, memory.total()) {
            let live = self.live()?;
            communicators::probed(tag, source.map(|peer| live.engine.peer_card(peer).public_key));
            live.keep_apart(context);
            return Ok(());
        }
        let selective = self.receive_queue.is_none_or(|binding| binding.selective);
        let completion = !selective || flags & sys::FI_COMPLETION != 0;
        let min_multi = self.min_multi;
        let live = self.live()?;
        if flags & (sys::FI_PEEK | sys::FI_CLAIM | sys::FI_DISCARD) != 0 {
            let receive = Incoming { memory, context, completion: true, role: Role::Program };
            return live.probe(ReceiveRequest { lane, source, tag, ignore, capacity: 0, multi: None }, receive, flags);
        }
        let multi = (lane == Lane::Message && flags & sys::FI_MULTI_RECV != 0).then_some(min_multi);
        let request = ReceiveRequest { lane, source, tag, ignore, capacity: memory.total(), multi };
        live.receive(request, Incoming { memory, context, completion, role: Role::Program });
        Ok(())
    }
}

impl Endpoint {
    fn remote(&mut self, vectors: &Table<Vector>, call: &RemoteCall) -> Outcome {
        if call.memory.total() > info::MAX_MESSAGE {
            return Err(Errno(sys::FI_EMSGSIZE));
        }
        let flags = match call.kind {
            CallKind::Flags(flags) => flags,
            _ => self.send_flags,
        };
        let selective = self.send_queue.is_none_or(|binding| binding.selective);
        let wanted = !selective || flags & sys::FI_COMPLETION != 0;
        let completion = wanted && !matches!(call.kind, CallKind::Inject);
        let peer = self.peer(vectors, call.peer)?;
        self.live()?.remote(peer, call, completion)
    }

    /// Does what peers ask of this process's memory.
    pub(crate) fn serve(&mut self, regions: &mut Regions) {
        if let Some(live) = self.live.as_mut().filter(|live| live.carrier.remote.has_work()) {
            live.serve(regions);
        }
    }
}

impl State {
    /// Tells every endpoint the time.
    pub(crate) fn tick_all(&mut self) {
        for endpoint in 0..self.endpoints.end() {
            if self.endpoints.has(endpoint) {
                if let Some(live) = &mut self.endpoints[endpoint].live {
                    live.tick();
                }
                self.deliver(endpoint);
            }
        }
    }
}

/// A send that came in through any of libfabric's functions.
///
/// # Safety
/// `ep` is an open endpoint of ours.
pub(crate) unsafe fn send(ep: *mut fid_ep, call: SendCall) -> isize {
    // SAFETY: promised by the caller.
    let sent = own_process().and_then(|()| unsafe {
        enter(ep, |state, index| {
            let sent = state.endpoints[index].send(&state.vectors, call);
            state.deliver(index);
            sent
        })
    });
    size(sent.map(|()| 0))
}

/// A receive that came in through any of libfabric's functions.
///
/// # Safety
/// As for [`send`].
pub(crate) unsafe fn receive(ep: *mut fid_ep, call: ReceiveCall) -> isize {
    // SAFETY: promised by the caller.
    let received = unsafe {
        enter(ep, |state, index| {
            let received = state.endpoints[index].receive(&state.vectors, call);
            state.deliver(index);
            received
        })
    };
    size(received.map(|()| 0))
}

/// A use of a peer's memory that came in through any of libfabric's functions.
///
/// # Safety
/// As for [`send`].
pub(crate) unsafe fn remote(ep: *mut fid_ep, call: &RemoteCall) -> isize {
    // SAFETY: promised by the caller.
    let asked = own_process().and_then(|()| unsafe {
        enter(ep, |state, index| {
            let asked = state.endpoints[index].remote(&state.vectors, call);
            state.deliver(index);
            asked
        })
    });
    size(asked.map(|()| 0))
}

unsafe extern "C" fn cancel(fid: *mut sys::fid, context: *mut c_void) -> isize {
    // SAFETY: an endpoint of ours.
    let cancelled = unsafe {
        enter(fid.cast::<fid_ep>(), |state, index| {
            state.endpoints[index].live()?.cancel(context);
            state.deliver(index);
            Ok(())
        })
    };
    size(cancelled.map(|()| 0))
}

unsafe extern "C" fn bind(fid: *mut sys::fid, other: *mut sys::fid, flags: u64) -> c_int {
    status((|| {
        alive()?;
        // SAFETY: an endpoint of ours and an open object of the program's.
        let ((domain, index), class) =
            unsafe { (of(fid.cast::<fid_ep>()), other.as_ref().ok_or(Errno(sys::FI_EINVAL))?.fclass as u32) };
        let mut state = domain.lock();
        let state = &mut *state;
        let endpoint = &mut state.endpoints[index];
        if endpoint.live.is_some() {
            return Err(Errno(sys::FI_EOPBADSTATE));
        }
        let place = |ours: bool, place: (&Arc<Domain>, usize)| {
            if ours && Arc::ptr_eq(place.0, domain) { Ok(place.1) } else { Err(Errno(sys::FI_EDOMAIN)) }
        };
        match class {
            sys::FI_CLASS_CQ => {
                // SAFETY: an open queue; read as ours only if its table is ours.
                let queue = unsafe { place(cq::is_ours(other), cq_member(other)?)? };
                let binding = Binding { queue, selective: flags & sys::FI_SELECTIVE_COMPLETION != 0 };
                if flags & sys::FI_SEND != 0 {
                    endpoint.send_queue = Some(binding);
                }
                if flags & sys::FI_RECV != 0 {
                    endpoint.receive_queue = Some(binding);
                }
                state.queues[queue].bind(index);
            }
            sys::FI_CLASS_AV => {
                // SAFETY: an open vector; read as ours only if its table is ours.
                let vector = unsafe { place(av::is_ours(other), av_member(other)?)? };
                endpoint.vector = Some(vector);
                state.vectors[vector].bind(index);
            }
            sys::FI_CLASS_CNTR => {
                // SAFETY: an open counter; read as ours only if its table is ours.
                let counter = unsafe { place(cntr::is_ours(other), cntr_member(other)?)? };
                let kinds = [sys::FI_SEND, sys::FI_RECV, sys::FI_READ, sys::FI_WRITE];
                for (bound, kind) in endpoint.counters.iter_mut().zip(kinds) {
                    if flags & kind != 0 {
                        *bound = Some(counter);
                    }
                }
                state.counters[counter].bind(index);
            }
            // Nothing of an endpoint's is reported through an event queue.
            sys::FI_CLASS_EQ => (),
            _ => return Err(Errno(sys::FI_EINVAL)),
        }
        Ok(())
    })())
}

/// The member behind a queue, if it is ours.
///
/// # Safety
/// `fid` is an open object.
unsafe fn cq_member<'a>(fid: *mut sys::fid) -> Outcome<(&'a Arc<Domain>, usize)> {
    // SAFETY: promised by the caller.
    if unsafe { cq::is_ours(fid) } { Ok(unsafe { of(fid.cast::<fid_cq>()) }) } else { Err(Errno(sys::FI_EINVAL)) }
}

/// As [`cq_member`], of an address vector.
///
/// # Safety
/// `fid` is an open object.
unsafe fn av_member<'a>(fid: *mut sys::fid) -> Outcome<(&'a Arc<Domain>, usize)> {
    // SAFETY: promised by the caller.
    if unsafe { av::is_ours(fid) } { Ok(unsafe { of(fid.cast::<fid_av>()) }) } else { Err(Errno(sys::FI_EINVAL)) }
}

/// As [`cq_member`], of a counter.
///
/// # Safety
/// `fid` is an open object.
unsafe fn cntr_member<'a>(fid: *mut sys::fid) -> Outcome<(&'a Arc<Domain>, usize)> {
    // SAFETY: promised by the caller.
    if unsafe { cntr::is_ours(fid) } { Ok(unsafe { of(fid.cast::<fid_cntr>()) }) } else { Err(Errno(sys::FI_EINVAL)) }
}

unsafe extern "C" fn control(fid: *mut sys::fid, command: c_int, argument: *mut c_void) -> c_int {
    status((|| {
        alive()?;
        let ep: *mut fid_ep = fid.cast();
        match u32::try_from(command).map_err(|_| Errno(sys::FI_EINVAL))? {
            // SAFETY: an endpoint of ours.
            sys::FI_ENABLE => unsafe { enable(ep) },
            command @ (sys::FI_GETOPSFLAG | sys::FI_SETOPSFLAG) => {
                let flags: *mut u64 = argument.cast();
                // SAFETY: an endpoint of ours, and the program's flags.
                unsafe {
                    enter(ep, |state, index| {
                        let endpoint = &mut state.endpoints[index];
                        let given = *flags.as_ref().ok_or(Errno(sys::FI_EINVAL))?;
                        let of_side = match given & (sys::FI_SEND | sys::FI_RECV) {
                            sys::FI_SEND => &mut endpoint.send_flags,
                            sys::FI_RECV => &mut endpoint.receive_flags,
                            _ => return Err(Errno(sys::FI_EINVAL)),
                        };
                        if command == sys::FI_SETOPSFLAG {
                            *of_side = given & !(sys::FI_SEND | sys::FI_RECV);
                        } else {
                            *flags = *of_side;
                        }
                        Ok(())
                    })
                }
            }
            _ => Err(Errno(sys::FI_ENOSYS)),
        }
    })())
}

/// Opens the core's side, and with it the endpoint's address.
///
/// # Safety
/// `ep` is an open endpoint of ours.
unsafe fn enable(ep: *mut fid_ep) -> Outcome {
    remember_process();
    // SAFETY: promised by the caller.
    let (domain, index) = unsafe { of(ep) };
    let mut state = domain.lock();
    let State { core, endpoints, .. } = &mut *state;
    let endpoint = &mut endpoints[index];
    if endpoint.live.is_some() {
        return Ok(());
    }
    if endpoint.vector.is_none() {
        return Err(Errno(sys::FI_ENOAV));
    }
    if endpoint.send_queue.is_none() && endpoint.receive_queue.is_none() {
        return Err(Errno(sys::FI_ENOCQ));
    }
    let core = core.as_ref().ok_or(Errno(sys::FI_EOPBADSTATE))?;
    let membership = domain.membership;
    // The launcher must know of this process before a byte leaves it.
    membership.endpoint_opens().map_err(|sentence| {
        refuse(sentence);
        Errno(sys::FI_EACCES)
    })?;
    let live = Live::new(domain, core).inspect_err(|_| {
        membership.endpoint_closed();
    })?;
    endpoint.live = Some(live);
    watchdog::begin(domain);
    Ok(())
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    status((|| {
        if alive().is_err() {
            return Ok(());
        }
        let ep: *mut fid_ep = fid.cast();
        // SAFETY: an endpoint of ours.
        let (domain, index) = unsafe { of(ep) };
        let domain = Arc::clone(domain);
        let mut state = domain.lock();
        let was_live = state.endpoints[index].live.is_some();
        if was_live {
            finish(&mut state, index);
        }
        let endpoint = state.endpoints.remove(index).expect("closed once");
        unbind(&mut state, index);
        drop(endpoint);
        drop(state);
        if was_live && domain.membership.endpoint_closed() {
            watchdog::end();
        }
        // SAFETY: the program gives it up.
        unsafe { Member::free(ep) };
        Ok(())
    })())
}

/// Sends what is queued, exchanges final sequences with the peers, and gives up on those that say
/// nothing for a while.
fn finish(state: &mut State, index: usize) {
    settle(state, index, Live::is_idle);
    live_of(state, index).begin_close();
    settle(state, index, Live::is_closed);
    live_of(state, index).publish();
}

/// Drives everything until `done` or until nothing has moved for a while.
fn settle(state: &mut State, index: usize, done: fn(&Live) -> bool) {
    let mut moved_at = Instant::now();
    while moved_at.elapsed() < CLOSE_PATIENCE {
        let moved = state.pump_all();
        if done(live_of(state, index)) {
            return;
        }
        if moved {
            moved_at = Instant::now();
        } else {
            // Peers may be endpoints of this process, in other domains.
            watchdog::pump_all();
            std::thread::sleep(CLOSE_PAUSE);
        }
    }
}

fn live_of(state: &mut State, index: usize) -> &mut Live {
    state.endpoints[index].live.as_mut().expect("the caller checked that it is enabled")
}

/// Nothing knows the endpoint any more.
fn unbind(state: &mut State, index: usize) {
    state.queues.iter_mut().for_each(|queue| queue.unbind(index));
    state.counters.iter_mut().for_each(|counter| counter.unbind(index));
    state.vectors.iter_mut().for_each(|vector| vector.unbind(index));
}

unsafe extern "C" fn getname(fid: *mut sys::fid, name: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: an endpoint of ours, and a buffer of the size that the program says.
    status(unsafe {
        enter(fid.cast::<fid_ep>(), |state, index| copy_card(state.endpoints[index].live()?.card(), name, len))
    })
}

/// Hands a card to a program that says how much room it has; it learns how much it needs.
///
/// # Safety
/// `len` is null or the size of `name` in bytes.
pub(crate) unsafe fn copy_card(card: &[u8], name: *mut c_void, len: *mut usize) -> Outcome {
    // SAFETY: promised by the caller.
    let room = *unsafe { len.as_ref() }.ok_or(Errno(sys::FI_EINVAL))?;
    let part = card.len().min(room);
    if part > 0 && name.is_null() {
        return Err(Errno(sys::FI_EINVAL));
    }
    // SAFETY: at most `room` bytes.
    unsafe {
        if part > 0 {
            name.cast::<u8>().copy_from_nonoverlapping(card.as_ptr(), part);
        }
        put(len, CARD_LEN)?;
    }
    if part < card.len() { Err(Errno(sys::FI_ETOOSMALL)) } else { Ok(()) }
}

unsafe extern "C" fn getopt(
    fid: *mut sys::fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: an endpoint of ours, and a buffer of the size that the program says.
    status(unsafe {
        enter(fid.cast::<fid_ep>(), |state, index| {
            let endpoint = &state.endpoints[index];
            let found = match (level as u32, name as u32) {
                (sys::FI_OPT_ENDPOINT, sys::FI_OPT_MIN_MULTI_RECV) => endpoint.min_multi,
                (sys::FI_OPT_ENDPOINT, sys::FI_OPT_MAX_MSG_SIZE | sys::FI_OPT_MAX_TAGGED_SIZE) => info::MAX_MESSAGE,
                (sys::FI_OPT_ENDPOINT, sys::FI_OPT_INJECT_MSG_SIZE | sys::FI_OPT_INJECT_TAGGED_SIZE) => {
                    info::INJECT_MAX
                }
                _ => return Err(Errno(sys::FI_ENOPROTOOPT)),
            };
            let room = *len.as_ref().ok_or(Errno(sys::FI_EINVAL))?;
            put(len, size_of::<usize>())?;
            if room < size_of::<usize>() { Err(Errno(sys::FI_ETOOSMALL)) } else { put(value.cast(), found) }
        })
    })
}

unsafe extern "C" fn setopt(fid: *mut sys::fid, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int {
    // SAFETY: an endpoint of ours, and a value of the size that the program says.
    status(unsafe {
        enter(fid.cast::<fid_ep>(), |state, index| {
            if (level as u32, name as u32) != (sys::FI_OPT_ENDPOINT, sys::FI_OPT_MIN_MULTI_RECV) {
                return Err(Errno(sys::FI_ENOPROTOOPT));
            }
            if len != size_of::<usize>() || value.is_null() {
                return Err(Errno(sys::FI_EINVAL));
            }
            state.endpoints[index].min_multi = value.cast::<usize>().read_unaligned();
            Ok(())
        })
    })
}

static FID_OPS: sys::fi_ops = sys::fi_ops {
    size: size_of::<sys::fi_ops>(),
    close: Some(close),
    bind: Some(bind),
    control: Some(control),
    ops_open: unsupported(),
    tostr: unsupported(),
    ops_set: unsupported(),
};

static OPS: sys::fi_ops_ep = sys::fi_ops_ep {
    size: size_of::<sys::fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: unsupported(),
    rx_ctx: unsupported(),
    rx_size_left: unsupported(),
    tx_size_left: unsupported(),
    export_xpu: unsupported(),
};

static CM_OPS: sys::fi_ops_cm = sys::fi_ops_cm {
    size: size_of::<sys::fi_ops_cm>(),
    setname: unsupported(),
    getname: Some(getname),
    getpeer: unsupported(),
    connect: unsupported(),
    listen: unsupported(),
    accept: unsupported(),
    reject: unsupported(),
    shutdown: unsupported(),
    join: unsupported(),
};

/// Default of FI_OPT_MIN_MULTI_RECV, in bytes.
const MIN_MULTI: usize = 16384;
/// How long a close waits for peers that say nothing.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
const CLOSE_PAUSE: Duration = Duration::from_micros(50);
