//! Messages of an endpoint to itself. They never leave the process, so nothing is sealed; matching,
//! order and completion are as for any other message.

use slotmap::{Key, KeyData};

use super::Endpoint;
use super::arrive::{Message, MessageKey};
use super::host::{Host, PeerId, Received, SendRequest};
use super::receive::{Landing, place};
use super::send::{Body, MESSAGE_COST, Outgoing, OutgoingKey, State, UserPart};
use crate::record::{Destination, Origin};
use crate::suite::Protection;

impl<H: Host> Endpoint<H> {
    /// Whether a peer is this endpoint.
    pub(super) fn is_own(&self, id: PeerId) -> bool {
        self.own_peer == Some(id)
    }

    /// Delivers or buffers a message to ourselves. `false`: it is too large to be buffered and
    /// nobody receives it yet.
    pub(super) fn send_own(&mut self, host: &mut H, request: &SendRequest, origin: impl Origin) -> bool {
        let &SendRequest { peer, lane, tag, data, len: size, .. } = request;
        if let Some(posted) = self.lanes[lane as usize].find_posted(peer.0, tag) {
            self.count_sent(peer, size);
            let number = self.number_arrival(peer);
            let mut landing = self.claim_posted(lane, posted, size);
            place(&mut self.multis, &mut landing, 0, |into| pour(origin, size, into));
            self.count_received(size);
            let len = size.min(landing.capacity());
            let received = Received { lane, source: peer, tag, data, number, len, offset: 0, overflow: size - len };
            match landing {
                Landing::Single { receive, .. } => host.received(receive, &received),
                Landing::Multi { key, offset, .. } => self.part_done(host, key, &Received { offset, ..received }),
                Landing::Held(_) | Landing::Discarded => unreachable!("a posted receive is the program's"),
            }
            return true;
        }
        let in_all = self.held_bytes + self.messages.len() * MESSAGE_COST + size;
        if size > self.config.eager_max || in_all > self.config.unexpected_limit {
            return false;
        }
        self.count_sent(peer, size);
        let mut bytes = self.spare.take(size);
        origin.copy(&mut bytes);
        self.held_bytes += size;
        self.hold_own(request, Landing::Held(bytes), size, None);
        true
    }

    /// Keeps a send to ourselves until its receive is posted.
    pub(super) fn await_own(&mut self, request: SendRequest, body: Body<H>) {
        self.count_sent(request.peer, request.len);
        let protection = Protection::None;
        let outgoing = Outgoing { request, body, protection, offset: 0, end: request.len, state: State::AwaitsGrant };
        let key = self.outgoing.insert(outgoing);
        self.hold_own(&request, Landing::Held(Vec::new()), 0, Some(key));
    }

    fn hold_own(&mut self, request: &SendRequest, landing: Landing<H>, got: usize, sender: Option<OutgoingKey>) {
        let &SendRequest { peer, lane, tag, data, len: size, .. } = request;
        let number = self.number_arrival(peer);
        let key = self.messages.insert(Message {
            peer,
            lane,
            tag,
            data,
            demanded: Protection::None,
            number,
            size,
            got,
            end: size,
            landing,
            sender_id: sender.map_or(0, |key| key.data().as_ffi()),
            awaits_grant: sender.is_some(),
            wants_delivery: false,
            uncredited: 0,
            claimed: false,
        });
        self.lanes[lane as usize].hold(peer.0, tag, key);
    }

    /// A receive was found for a message that [`Endpoint::await_own`] keeps: its bytes move.
    pub(super) fn fetch_own(&mut self, host: &mut H, key: MessageKey) {
        let message = &mut self.messages[key];
        let sender = OutgoingKey::from(KeyData::from_ffi(message.sender_id));
        let Some(Outgoing { body, .. }) = self.outgoing.remove(sender) else { return };
        let len = message.end;
        message.got = len;
        place(&mut self.multis, &mut message.landing, 0, |into| match &body {
            Body::User(send) => pour(UserPart::<H> { send, offset: 0, len }, len, into),
            Body::Copied(bytes) => pour(&bytes[..len], len, into),
        });
        match body {
            Body::User(send) => host.sent(send),
            Body::Copied(bytes) => self.spare.put(bytes),
        }
    }
}

/// Moves `len` bytes, as many as there is room for.
fn pour(origin: impl Origin, len: usize, into: &mut impl Destination) {
    if let Some(bytes) = origin.contiguous() {
        return into.copy(bytes);
    }
    match into.contiguous(len) {
        Some(into) => origin.copy(into),
        None => {
            let mut bytes = vec![0; len];
            origin.copy(&mut bytes);
            into.copy(&bytes);
        }
    }
}
