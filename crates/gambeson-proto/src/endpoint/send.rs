//! Sending: small messages in one record, larger ones in several, the largest when they are granted.

use slotmap::{Key, KeyData, new_key_type};

use super::host::{Busy, Host, PeerId, SendRequest};
use super::peer::Peer;
use super::wire::{Emitted, Wire};
use super::{Endpoint, Lane};
use crate::record::{Envelope, Kind, Origin, message};
use crate::suite::Protection;

new_key_type! {
    /// A message on its way out; its bits are the sender's id on the wire.
    pub(super) struct OutgoingKey;
}

/// Credit that every message takes besides its bytes: the room its envelope needs at the receiver.
pub(super) const MESSAGE_COST: usize = 128;

/// Messages that may wait for one peer before the program is asked to try again. A program may have
/// that many sends outstanding before anybody receives, and none of them may block it.
const QUEUE_MAX: usize = 1 << 20;
/// Bytes that may be copied for one peer, for as long as its messages wait.
const COPIED_MAX: usize = 1 << 30;

/// A message that did not go out in one record at once.
pub(super) struct Outgoing<H: Host> {
    pub(super) request: SendRequest,
    pub(super) body: Body<H>,
    /// How its bytes are protected: fixed when it was sent.
    pub(super) protection: Protection,
    /// Bytes sealed so far.
    pub(super) offset: usize,
    /// Bytes to seal: all, or as many as the receiver has room for.
    pub(super) end: usize,
    pub(super) state: State,
}

pub(super) enum Body<H: Host> {
    User(H::Send),
    Copied(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In the peer's queue, no record out yet.
    Queued,
    /// In the peer's queue, its first record out, the others follow unasked.
    Unasked,
    /// Its first record is out; the receiver will say when it has a buffer.
    AwaitsGrant,
    /// Among the peer's granted messages; the receiver's id is known.
    Granted(u64),
    /// All is out; the receiver will say when it is delivered.
    AwaitsDelivery,
}

impl<H: Host> Endpoint<H> {
    /// Sends a message. [`Host::sent`] follows, perhaps before this returns. The send comes back
    /// when too many messages wait for that peer: try again after progress.
    pub fn send(&mut self, host: &mut H, request: SendRequest, send: H::Send) -> Result<(), H::Send> {
        if self.is_own(request.peer) {
            if self.send_own(host, &request, UserPart::<H> { send: &send, offset: 0, len: request.len }) {
                host.sent(send);
            } else {
                self.await_own(request, Body::User(send));
            }
        } else {
            match self.at_once(host, &request, |offset, len| UserPart::<H> { send: &send, offset, len }) {
                Some(gone) if gone == request.len => host.sent(send),
                None if self.waiting(request.peer) >= QUEUE_MAX => return Err(send),
                gone => self.enqueue(host, request, Body::User(send), gone),
            }
        }
        self.report(host);
        Ok(())
    }

    /// Sends bytes that are the program's again at once; no completion follows (fi_inject).
    pub fn inject(&mut self, host: &mut H, request: SendRequest, bytes: &[u8]) -> Result<(), Busy> {
        if self.is_own(request.peer) {
            if !self.send_own(host, &request, bytes) {
                let body = Body::Copied(self.spare.copy(bytes));
                self.await_own(request, body);
            }
        } else {
            let gone = self.at_once(host, &request, |offset, len| &bytes[offset..offset + len]);
            let copied = self.peers[request.peer.0 as usize].copied + bytes.len();
            match gone {
                Some(gone) if gone == request.len => {}
                None if self.waiting(request.peer) >= QUEUE_MAX || copied > COPIED_MAX => return Err(Busy),
                gone => {
                    self.peers[request.peer.0 as usize].copied = copied;
                    let body = Body::Copied(self.spare.copy(bytes));
                    self.enqueue(host, request, body, gone);
                }
            }
        }
        self.report(host);
        Ok(())
    }

    /// The way of nearly every message: sealed from where it stands, nothing before it, no table
    /// touched. How many bytes are out; `None` when not even a record without bytes is.
    fn at_once<O: Origin>(
        &mut self,
        host: &mut H,
        request: &SendRequest,
        part: impl Fn(usize, usize) -> O,
    ) -> Option<usize> {
        self.look_at_communicators();
        if self.dead || !self.connect(request.peer) {
            return None;
        }
        let protection = self.protection_of(request);
        let peer = &mut self.peers[request.peer.0 as usize];
        let cost = MESSAGE_COST + request.len;
        if request.len > self.config.eager_max || request.delivery || peer.credit < cost || !peer.is_clear() {
            return None;
        }
        let first = self.config.first_of(request.len);
        let envelope = first_envelope(request, 0, 0);
        if self.wire.emit(host, peer, envelope, protection, first, part(0, first)) == Emitted::Blocked {
            return None;
        }
        peer.credit -= cost;
        let mut gone = first;
        while gone < request.len {
            let len = (request.len - gone).min(self.config.record_payload);
            let more = Envelope::new(Kind::More);
            if self.wire.emit(host, peer, more, protection, len, part(gone, len)) == Emitted::Blocked {
                break;
            }
            gone += len;
        }
        if gone == request.len {
            self.count_sent(request.peer, request.len);
        }
        Some(gone)
    }

    /// How the bytes of a message are protected; `None` before the keys of its pair are made.
    fn protection_of(&self, request: &SendRequest) -> Option<Protection> {
        let link = self.peers[request.peer.0 as usize].link.as_ref()?;
        Some(link.sends(&self.communicators, request.lane, request.tag))
    }

    fn waiting(&self, peer: PeerId) -> usize {
        self.peers[peer.0 as usize].queue.len()
    }

    /// Keeps a message until the rest of it can go out; `gone` bytes are, if it has begun.
    fn enqueue(&mut self, host: &mut H, request: SendRequest, body: Body<H>, gone: Option<usize>) {
        let (offset, end) = (gone.unwrap_or(0), request.len);
        let state = if gone.is_some() { State::Unasked } else { State::Queued };
        // Without keys nothing will be sealed: the peer's own is unusable, and the job ends.
        let protection = self.protection_of(&request).unwrap_or_default();
        let key = self.outgoing.insert(Outgoing { request, body, protection, offset, end, state });
        self.peers[request.peer.0 as usize].queue.push_back(key);
        self.count_sent(request.peer, request.len);
        self.pump(host, request.peer);
    }

    /// Sends what waits for a peer, until nothing does or the carrier or the credit is used up.
    pub(super) fn pump(&mut self, host: &mut H, id: PeerId) {
        if self.dead {
            return;
        }
        let index = id.0 as usize;
        if !self.wire.unstick(host, &mut self.peers[index]) {
            return;
        }
        loop {
            let peer = &mut self.peers[index];
            if let Some(&envelope) = peer.control.front() {
                if self.wire.emit(host, peer, envelope, None, 0, &[][..]) == Emitted::Blocked {
                    return self.wire.mark(peer);
                }
                peer.control.pop_front();
                continue;
            }
            // A granted message and the queue take turns, so that a long message does not hold up
            // the short ones behind it.
            let granted = peer.granted.front().copied();
            let queued = peer.queue.front().copied();
            if granted.is_none() && queued.is_none() {
                return;
            }
            let mut went = false;
            for key in [granted, queued].into_iter().flatten() {
                match self.advance(host, index, key) {
                    Advance::Went => went = true,
                    Advance::Blocked => return self.wire.mark(&mut self.peers[index]),
                    Advance::NoCredit => {}
                }
            }
            if !went {
                return;
            }
        }
    }

    /// Seals the next record of a message.
    fn advance(&mut self, host: &mut H, index: usize, key: OutgoingKey) -> Advance {
        let peer = &mut self.peers[index];
        let outgoing = &mut self.outgoing[key];
        let (went, state) = match outgoing.state {
            State::Queued => match begin(&mut self.wire, host, peer, outgoing, key, &self.config) {
                Ok(state) => (true, state),
                Err(stop) => return stop,
            },
            State::Unasked => {
                let len = (outgoing.end - outgoing.offset).min(self.config.record_payload);
                let envelope = Envelope::new(Kind::More);
                (send_part(&mut self.wire, host, peer, outgoing, envelope, len), State::Unasked)
            }
            State::Granted(receiver) => {
                let len = (outgoing.end - outgoing.offset).min(self.config.record_payload);
                let envelope = Envelope { tag: outgoing.offset as u64, id: receiver, ..Envelope::new(Kind::Data) };
                (send_part(&mut self.wire, host, peer, outgoing, envelope, len), outgoing.state)
            }
            State::AwaitsGrant | State::AwaitsDelivery => unreachable!("the message is in no queue"),
        };
        if !went {
            return Advance::Blocked;
        }
        outgoing.state = state;
        match state {
            State::AwaitsGrant => {
                peer.queue.pop_front();
            }
            _ if outgoing.offset == outgoing.end => {
                let from = if matches!(state, State::Granted(_)) { &mut peer.granted } else { &mut peer.queue };
                from.pop_front();
                self.finish(host, key);
            }
            _ => {}
        }
        Advance::Went
    }

    /// All bytes of a message are sealed.
    fn finish(&mut self, host: &mut H, key: OutgoingKey) {
        if self.outgoing[key].request.delivery {
            self.outgoing[key].state = State::AwaitsDelivery;
        } else {
            self.complete_send(host, key);
        }
    }

    fn complete_send(&mut self, host: &mut H, key: OutgoingKey) {
        match self.outgoing.remove(key) {
            Some(Outgoing { body: Body::User(send), .. }) => host.sent(send),
            Some(Outgoing { body: Body::Copied(bytes), request, .. }) => {
                self.peers[request.peer.0 as usize].copied -= bytes.len();
                self.spare.put(bytes);
            }
            None => {}
        }
    }

    /// The receiver has a buffer for the rest of a message.
    pub(super) fn granted(&mut self, host: &mut H, id: PeerId, grant: &Envelope) -> Result<(), &'static str> {
        let key = OutgoingKey::from(KeyData::from_ffi(grant.id));
        let outgoing = self.outgoing.get_mut(key).filter(|outgoing| outgoing.request.peer == id);
        let outgoing = outgoing.filter(|outgoing| outgoing.state == State::AwaitsGrant);
        let outgoing = outgoing.ok_or("granted a message that does not wait for it")?;
        outgoing.end = outgoing.end.min(usize::try_from(grant.size).unwrap_or(usize::MAX));
        outgoing.state = State::Granted(grant.data);
        if outgoing.offset >= outgoing.end {
            self.finish(host, key);
        } else {
            self.peers[id.0 as usize].granted.push_back(key);
        }
        Ok(())
    }

    /// The receiver has a message in its buffer.
    pub(super) fn delivered(&mut self, host: &mut H, id: PeerId, notice: &Envelope) -> Result<(), &'static str> {
        let key = OutgoingKey::from(KeyData::from_ffi(notice.id));
        let outgoing = self.outgoing.get(key).filter(|outgoing| outgoing.request.peer == id);
        if outgoing.is_none_or(|outgoing| outgoing.state != State::AwaitsDelivery) {
            return Err("reported the delivery of a message that does not wait for it");
        }
        self.complete_send(host, key);
        Ok(())
    }
}

enum Advance {
    Went,
    Blocked,
    NoCredit,
}

/// Seals the first record of a message: all of it, its first part with the rest to follow unasked,
/// or its first part with a request for a grant.
fn begin<H: Host>(
    wire: &mut Wire,
    host: &mut H,
    peer: &mut Peer<H>,
    outgoing: &mut Outgoing<H>,
    key: OutgoingKey,
    config: &super::Config,
) -> Result<State, Advance> {
    let size = outgoing.end;
    let unasked = size <= config.eager_max && peer.credit >= MESSAGE_COST + size;
    let room = peer.credit.checked_sub(MESSAGE_COST);
    let Some(room) = room else {
        wire.counters.credits_stalled += 1;
        return Err(Advance::NoCredit);
    };
    let first = if unasked { config.first_of(size) } else { size.min(config.request_payload).min(room) };
    let cost = MESSAGE_COST + if unasked { size } else { first };
    let flags = if unasked { 0 } else { message::GRANT };
    let envelope = first_envelope(&outgoing.request, flags, key.data().as_ffi());
    if !send_part(wire, host, peer, outgoing, envelope, first) {
        return Err(Advance::Blocked);
    }
    peer.credit -= cost;
    Ok(if unasked { State::Unasked } else { State::AwaitsGrant })
}

fn send_part<H: Host>(
    wire: &mut Wire,
    host: &mut H,
    peer: &mut Peer<H>,
    outgoing: &mut Outgoing<H>,
    envelope: Envelope,
    len: usize,
) -> bool {
    let (offset, protection) = (outgoing.offset, Some(outgoing.protection));
    let emitted = match &outgoing.body {
        Body::User(send) => wire.emit(host, peer, envelope, protection, len, UserPart::<H> { send, offset, len }),
        Body::Copied(bytes) => wire.emit(host, peer, envelope, protection, len, &bytes[offset..offset + len]),
    };
    if emitted == Emitted::Sealed {
        outgoing.offset += len;
    }
    emitted == Emitted::Sealed
}

fn first_envelope(request: &SendRequest, mut flags: u8, id: u64) -> Envelope {
    flags |= match request.lane {
        Lane::Message => 0,
        Lane::Tagged => message::TAGGED,
        Lane::Service => message::SERVICE,
    };
    if request.data.is_some() {
        flags |= message::DATA;
    }
    if request.delivery {
        flags |= message::DELIVERY;
    }
    let (size, data) = (request.len as u64, request.data.unwrap_or(0));
    Envelope { kind: Kind::Message, flags, tag: request.tag, size, data, id }
}

/// Bytes of a program's send.
pub(super) struct UserPart<'s, H: Host> {
    pub(super) send: &'s H::Send,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl<H: Host> Origin for UserPart<'_, H> {
    fn contiguous(&self) -> Option<&[u8]> {
        H::source(self.send, self.offset, self.len)
    }

    fn copy(&self, into: &mut [u8]) {
        match self.contiguous() {
            Some(bytes) => into.copy_from_slice(bytes),
            None => H::gather(self.send, self.offset, into),
        }
    }
}
