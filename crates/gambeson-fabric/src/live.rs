//! An enabled endpoint: the protocol over the core's endpoint.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::Arc;

use gambeson_proto::endpoint::{
    self as engine, Busy, ClaimId, Host, Lane, PeerId, ReceiveId, ReceiveRequest, SendRequest,
};
use gambeson_proto::identity::{Card, Identity};
use gambeson_proto::ledger::Counters;

use crate::carrier::{Carrier, Done, Incoming, Outgoing};
use crate::core::{self, BATCH, Event, Events, UNREACHABLE, library};
use crate::domain::Domain;
use crate::fid::{Errno, Outcome};
use crate::job::{COUNTERS, Membership};
use crate::report::{refuse, say};
use crate::ring::{self, Buffer, Kind, Store};
use crate::trace::{self, Trace};
use crate::world::StartUp;
use crate::{address, crash, info, listener};
use gambeson_libfabric_sys::{self as sys, fi_addr_t};

/// The protocol as this provider uses it.
pub(crate) type Engine = engine::Endpoint<Carrier>;

/// What an enabled endpoint has.
pub(crate) struct Live {
    pub(crate) engine: Engine,
    pub(crate) carrier: Carrier,
    events: Events,
    membership: &'static Membership,
    address: SocketAddr,
    polls: u32,
    looked_ns: u64,
    ticked_ns: u64,
    published_ns: u64,
    published: [u64; COUNTERS],
    start_up: StartUp,
}

impl Live {
    /// Opens the core's side, and with it the endpoint's address.
    pub(crate) fn new(domain: &Domain, core: &core::Domain) -> Outcome<Self> {
        let membership = domain.membership;
        let refused = |what: &str, error: Errno| {
            refuse(format_args!("can't open an endpoint: {what}: {}", library().describe(error.0)));
            error
        };
        let wants_registration = info::wants_registration(&domain.info);
        let record_capacity = membership.config.record_capacity();
        let store = Store::new(record_capacity, wants_registration.then_some(core))
            .map_err(|error| refused("the core provider does not register its buffers", error))?;
        let endpoint = core
            .endpoint(&domain.info, ring::DEPTH)
            .map_err(|error| refused("the core provider refuses an endpoint", error))?;
        let address = endpoint.name().map_err(|error| refused("the core provider tells no address", error))?;
        let Some(address) = address.filter(|address| !address.ip().is_unspecified() && address.port() != 0) else {
            return Err(refused("the core provider's address is no IP address", Errno(sys::FI_EADDRNOTAVAIL)));
        };
        listener::bound_requests(address);
        crash::watch(endpoint.code());
        let mut seed = zeroize::Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(|_| refused("no random numbers", Errno(sys::FI_EIO)))?;
        let identity = Identity::from_seed(*seed);
        let card = Card { address, public_key: identity.public, rank: membership.rank, host: membership.host };
        let engine = engine::Endpoint::new(membership.config.clone(), Arc::clone(&membership.job), identity, card);
        let mut carrier = Carrier::new(endpoint, store, &domain.info);
        carrier.trace = Trace::begin(membership, engine.public_key());
        carrier.post_receives();
        let now = now_ns();
        let mut live = Live {
            engine,
            carrier,
            events: Events::new(),
            membership,
            address,
            polls: 0,
            looked_ns: now,
            ticked_ns: now,
            published_ns: now,
            published: [0; COUNTERS],
            start_up: StartUp::new(now),
        };
        live.expect_requests();
        Ok(live)
    }

    /// Drives the core and the protocol. Whether anything happened.
    pub(crate) fn pump(&mut self) -> bool {
        if self.carrier.trace.is_none() {
            return self.drive();
        }
        trace::enter(true);
        let moved = self.drive();
        self.leave(!moved);
        moved
    }

    fn drive(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..ROUNDS {
            let count = self.carrier.core.poll(&mut self.events);
            moved |= count > 0;
            for event in self.events.iter() {
                settle(&mut self.engine, &mut self.carrier, event);
            }
            // What arrived goes to the program before anything else is done: asking the core again is
            // a system call, and receives are posted anew when nothing arrives, or when few are left.
            if count == 0 || self.carrier.store.few_are_posted() {
                self.carrier.post_receives();
            }
            if count < BATCH {
                break;
            }
        }
        self.engine.progress(&mut self.carrier);
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_TICK) {
            self.tick();
        }
        self.check();
        moved
    }

    /// The address others know this endpoint by.
    pub(crate) fn card(&self) -> &[u8] {
        self.engine.card()
    }

    /// What was completed and is not delivered yet.
    pub(crate) fn done(&mut self) -> &mut Done {
        &mut self.carrier.done
    }

    pub(crate) fn membership(&self) -> &'static Membership {
        self.membership
    }

    /// Completes a send of which nothing has to go out.
    pub(crate) fn sent(&mut self, send: Outgoing) {
        self.carrier.sent(send);
    }

    /// Makes a peer known to the protocol and reachable for the core.
    pub(crate) fn meet(&mut self, card: &[u8], program: fi_addr_t) -> Outcome<PeerId> {
        // The vector took the card in, so its MAC is right.
        let peer = self.engine.add_peer(card).map_err(|_| Errno(sys::FI_EINVAL))?;
        let address = address::of_card(card).ok_or(Errno(sys::FI_EINVAL))?;
        if let Err(error) = self.carrier.reach(peer, address) {
            let why = library().describe(error.0);
            say(format_args!(
                "{} can't be reached: the core provider refuses its address {address} ({why}); all hosts must use the \
                 same address family",
                self.engine.peer_name(peer)
            ));
            return Err(error);
        }
        self.carrier.name(peer, program);
        Ok(peer)
    }

    /// Gives back what is not needed to know a peer again.
    pub(crate) fn part(&mut self, peer: PeerId) {
        self.engine.remove_peer(peer);
        self.carrier.name(peer, UNREACHABLE);
    }

    /// Whether nothing is queued and no message under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    pub(crate) fn begin_close(&mut self) {
        self.engine.begin_close(&mut self.carrier);
    }

    /// Whether the peers know that nothing follows, and nothing is in flight.
    pub(crate) fn is_closed(&self) -> bool {
        self.engine.is_closed() && self.carrier.store.all_sent()
    }

    /// Tells the protocol the time, and the launcher the counters.
    pub(crate) fn tick(&mut self) {
        let now = now_ns();
        if now.wrapping_sub(self.ticked_ns) >= TICK_NS {
            self.ticked_ns = now;
            self.engine.tick(&mut self.carrier, now);
            self.check();
            if !self.start_up.is_over() {
                let counters = self.engine.counters();
                let messages = counters.messages_sent + counters.messages_received;
                self.start_up.look(now, self.membership.config.gap_timeout_ns, messages, self.engine.peers());
            }
        }
        let look_ns = (self.membership.config.gap_timeout_ns / 8).clamp(LOOK_NS_MIN, LOOK_NS_MAX);
        if now.wrapping_sub(self.looked_ns) >= look_ns {
            self.looked_ns = now;
            if !std::mem::take(&mut self.carrier.arrived) {
                self.make_room();
            }
        }
        if now.wrapping_sub(self.published_ns) >= PUBLISH_NS {
            self.published_ns = now;
            self.publish();
        }
    }

    /// A connection that announces a message and stops keeps a receive for ever. When many come from
    /// nobody of this job and nothing arrives, more receives are posted, so that peers have some.
    #[cold]
    fn make_room(&mut self) {
        let strangers = listener::accepted(self.address).saturating_sub(self.engine.links());
        self.carrier.strangers = strangers;
        let capacity = self.membership.config.record_capacity();
        if strangers >= ring::RECEIVES / 2 && self.carrier.store.add_receives(strangers, capacity) {
            say(format_args!(
                "{strangers} open connections come from nobody that proved to be of this job, and nothing arrives: they \
                 may hold the receives, so more were posted"
            ));
            self.carrier.post_receives();
        }
    }

    pub(crate) fn publish(&mut self) {
        let counters = Counters { allocations: gambeson_pages::allocations(), ..self.engine.counters().clone() };
        self.membership.publish(&counters, &mut self.published);
    }

    /// Tells the protocol what the core lost.
    fn check(&mut self) {
        while let Some((peer, Errno(error))) = self.carrier.broken.pop() {
            self.engine.unreachable(&mut self.carrier, peer, &library().describe(error));
        }
    }

    pub(crate) fn send(&mut self, request: SendRequest, send: Outgoing) -> Outcome {
        self.enter();
        let unsent = self.offer(request, send);
        self.check();
        self.leave(false);
        if unsent.is_none() { Ok(()) } else { Err(Errno(sys::FI_EAGAIN)) }
    }

    /// Gives a message to the protocol, and writes that down in a traced job. The send comes back that it does not take.
    pub(crate) fn offer(&mut self, request: SendRequest, mut send: Outgoing) -> Option<Outgoing> {
        send.message = self.write_down(&request);
        let unsent = self.engine.send(&mut self.carrier, request, send).err();
        self.offered(unsent.is_none());
        unsent
    }

    /// The same for bytes that are copied.
    pub(crate) fn offer_copied(&mut self, request: SendRequest, bytes: &[u8]) -> Result<(), Busy> {
        self.write_down(&request);
        let injected = self.engine.inject(&mut self.carrier, request, bytes);
        self.offered(injected.is_ok());
        injected
    }

    fn write_down(&mut self, request: &SendRequest) -> Option<trace::Message> {
        let trace = self.carrier.trace.as_mut()?;
        Some(trace.send(request, self.engine.next_message(request.peer)))
    }

    fn offered(&mut self, taken: bool) {
        if let Some(trace) = &mut self.carrier.trace {
            trace.offered(taken);
        }
    }

    /// The program's time ends and the provider's begins, in a traced job.
    fn enter(&self) {
        if self.carrier.trace.is_some() {
            trace::enter(false);
        }
    }

    fn leave(&mut self, idle: bool) {
        if let Some(trace) = &mut self.carrier.trace {
            trace.name_peers(&self.engine);
            trace::leave(idle);
        }
    }

    pub(crate) fn inject(&mut self, request: SendRequest, send: Outgoing) -> Outcome {
        if request.len > info::INJECT_MAX {
            return Err(Errno(sys::FI_EMSGSIZE));
        }
        self.enter();
        let injected = match Carrier::source(&send, 0, request.len) {
            Some(bytes) => self.offer_copied(request, bytes),
            None => {
                let mut copy = vec![0; request.len];
                Carrier::gather(&send, 0, &mut copy);
                self.offer_copied(request, &copy)
            }
        };
        if injected.is_ok() {
            self.carrier.sent(send);
            self.check();
        }
        self.leave(false);
        injected.map_err(|_| Errno(sys::FI_EAGAIN))
    }

    pub(crate) fn receive(&mut self, request: ReceiveRequest, receive: Incoming) {
        let context = receive.context;
        let id = self.engine.receive(&mut self.carrier, request, receive);
        // SAFETY: FI_CONTEXT is demanded: a context is null or ours to use until its completion is read,
        // which the domain's lock keeps from happening before this.
        unsafe { put_word(context, RECEIVE_WORD, id.0) };
    }

    /// Marks a receive that is not posted, and of which nothing comes until it is cancelled.
    pub(crate) fn keep_apart(&mut self, context: *mut c_void) {
        // SAFETY: as in `receive`.
        unsafe { put_word(context, RECEIVE_WORD, APART) };
    }

    /// Cancels a receive by its context; one that is matched completes as if nothing had been said.
    pub(crate) fn cancel(&mut self, context: *mut c_void) {
        // SAFETY: as in `receive`; the protocol recognises an id that is not valid any more.
        let Some(id) = (unsafe { word(context, RECEIVE_WORD) }) else { return };
        if id == APART {
            return self.carrier.fail(Lane::Tagged, context, 0, sys::FI_ECANCELED);
        }
        if let Some(receive) = self.engine.cancel(ReceiveId(id)) {
            self.carrier.fail(Lane::Tagged, receive.context, 0, sys::FI_ECANCELED);
        }
    }

    /// fi_trecvmsg with FI_PEEK, FI_CLAIM, FI_DISCARD.
    pub(crate) fn probe(&mut self, request: ReceiveRequest, receive: Incoming, flags: u64) -> Outcome {
        let (claims, discards) = (flags & sys::FI_CLAIM != 0, flags & sys::FI_DISCARD != 0);
        if flags & sys::FI_PEEK == 0 {
            return if claims { self.take_claimed(receive, discards) } else { Err(Errno(sys::FI_EBADFLAGS)) };
        }
        let ReceiveRequest { lane, source, tag, ignore, .. } = request;
        let Some((message, claim)) = self.engine.peek(lane, source, tag, ignore, claims || discards) else {
            self.carrier.fail(lane, receive.context, tag, sys::FI_ENOMSG);
            // Not before the answer: that is what was there when the question came, as with core tcp. MPICH keeps
            // messages from the process itself apart and looks here first; a peer's message that comes in between
            // would overtake one of those that the program has seen. But whoever asks in a loop must find it one day.
            self.pump();
            return Ok(());
        };
        match claim {
            Some(claim) if discards => {
                self.discard(claim);
            }
            // SAFETY: FI_CLAIM needs a context of the program's that lasts until the claimed message is taken.
            Some(claim) => unsafe { put_word(receive.context, CLAIM_WORD, claim.0) },
            None => (),
        }
        self.carrier.tell(receive.context, std::ptr::null_mut(), &message);
        Ok(())
    }

    fn discard(&mut self, claim: ClaimId) -> Option<()> {
        let message = self.engine.discard_claimed(&mut self.carrier, claim)?;
        if let Some(trace) = &mut self.carrier.trace {
            trace.received(&message);
        }
        Some(())
    }

    fn take_claimed(&mut self, receive: Incoming, discards: bool) -> Outcome {
        // SAFETY: the program passes the context of its peek.
        let claim = ClaimId(unsafe { word(receive.context, CLAIM_WORD) }.ok_or(Errno(sys::FI_EINVAL))?);
        if discards {
            return self.discard(claim).ok_or(Errno(sys::FI_EINVAL));
        }
        let capacity = receive.memory.total();
        let taken = self.engine.receive_claimed(&mut self.carrier, claim, capacity, receive);
        taken.map_err(|_| Errno(sys::FI_EINVAL))
    }
}

/// Does what a completion of the core asks for.
fn settle(engine: &mut Engine, carrier: &mut Carrier, event: Event) {
    let (Event::Done { context, .. } | Event::Failed { context, .. }) = event;
    // SAFETY: the core gives each context back once.
    let Some(buffer) = (unsafe { Buffer::from_context(context) }) else { return };
    if buffer.kind() != Kind::Receive {
        if let Event::Failed { error, .. } = event {
            carrier.broken.push((buffer.peer(), Errno(error)));
        }
        return carrier.store.give(buffer);
    }
    carrier.arrived = true;
    if let Some(order) = &mut carrier.order {
        order.returned(buffer.number());
    }
    match event {
        Event::Done { len, .. } => arrived(engine, carrier, buffer, len),
        Event::Failed { error, .. } => {
            if error == sys::FI_ETRUNC {
                engine.oversized(carrier);
            }
            carrier.store.give(buffer);
        }
    }
    while let Some(order) = &mut carrier.order
        && let Some((mut buffer, len)) = order.release(|buffer, len| engine.is_due(&buffer.as_mut()[..len]))
    {
        engine.arrive(carrier, &mut buffer.as_mut()[..len]);
        carrier.store.give(buffer);
    }
}

/// Brings a record to the protocol, or keeps it until its turn where the core mixes them up.
fn arrived(engine: &mut Engine, carrier: &mut Carrier, mut buffer: Buffer, len: usize) {
    let len = len.min(buffer.capacity());
    match &mut carrier.order {
        Some(order) if order.may_wait(buffer.number()) && !engine.is_due(&buffer.as_mut()[..len]) => {
            order.hold(buffer.number(), buffer, len);
        }
        _ => {
            engine.arrive(carrier, &mut buffer.as_mut()[..len]);
            carrier.store.give(buffer);
        }
    }
}

/// A word of a program's fi_context.
///
/// # Safety
/// `context` is null or an fi_context.
unsafe fn word(context: *mut c_void, index: usize) -> Option<u64> {
    // SAFETY: promised by the caller.
    (!context.is_null()).then(|| unsafe { context.cast::<u64>().add(index).read() })
}

/// Writes a word of a program's fi_context.
///
/// # Safety
/// As for [`word`].
unsafe fn put_word(context: *mut c_void, index: usize, value: u64) {
    if !context.is_null() {
        // SAFETY: promised by the caller.
        unsafe { context.cast::<u64>().add(index).write(value) };
    }
}

/// Time for the protocol's timers; milliseconds are exact enough.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is ours. This clock exists since Linux 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Words of an fi_context that hold our ids.
const RECEIVE_WORD: usize = 0;
const CLAIM_WORD: usize = 1;
/// The id of a receive that is kept apart; no id has all bits of the lane.
const APART: u64 = u64::MAX;
/// Batches of core completions that one call handles at most.
const ROUNDS: usize = 4;
/// Calls between looks at the clock.
const POLLS_PER_TICK: u32 = 256;
/// Time between two ticks of the protocol, and between two copies of the counters, in ns.
const TICK_NS: u64 = 4_000_000;
const PUBLISH_NS: u64 = 250_000_000;
/// Time between two looks whether strangers hold the receives, in ns: some part of the gap time-out.
const LOOK_NS_MIN: u64 = 250_000_000;
const LOOK_NS_MAX: u64 = 4_000_000_000;
