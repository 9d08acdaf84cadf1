//! Receiving: posting, cancelling, peeking, claiming; and where a message's bytes land.

use slotmap::{Key, KeyData, new_key_type};

use super::Endpoint;
use super::arrive::{Message, MessageKey};
use super::host::{ClaimId, Host, Lane, PeerId, ReceiveId, ReceiveRequest, Received};
use crate::matching::PostedKey;
use crate::record::{Destination, Envelope, Kind};

new_key_type! {
    /// A multi-receive buffer.
    pub(super) struct MultiKey;
}

/// A receive as the matcher keeps it.
pub(super) enum Posted<H: Host> {
    Single { receive: H::Receive, capacity: usize },
    Multi(MultiKey),
}

impl<H: Host> Posted<H> {
    /// Lends the room that the next message gets, without giving it away.
    pub(super) fn place<'p>(&'p mut self, multis: &'p mut slotmap::SlotMap<MultiKey, Multi<H>>) -> Place<'p, H> {
        match self {
            Posted::Single { receive, capacity } => Place::User { receive, offset: 0, room: *capacity },
            Posted::Multi(key) => {
                let multi = &mut multis[*key];
                let room = multi.capacity - multi.used;
                Place::User { receive: &mut multi.receive, offset: multi.used, room }
            }
        }
    }
}

/// A buffer that takes one message after the other (FI_MULTI_RECV).
pub(super) struct Multi<H: Host> {
    receive: H::Receive,
    capacity: usize,
    /// Bytes given to messages so far.
    used: usize,
    /// With fewer bytes than this free, the buffer is given back.
    min_free: usize,
    /// Messages that have their place but not yet all their bytes.
    landing: usize,
    /// Where it is posted; `None` once it takes no more messages.
    posted: Option<(Lane, PostedKey)>,
}

/// Where a message's bytes go.
pub(super) enum Landing<H: Host> {
    /// Kept here until a receive asks for them.
    Held(Vec<u8>),
    /// Into a posted receive.
    Single { receive: H::Receive, capacity: usize },
    /// Into its place in a multi-receive buffer.
    Multi { key: MultiKey, offset: usize, capacity: usize },
    /// Nowhere: the program discarded the message.
    Discarded,
}

impl<H: Host> Landing<H> {
    pub(super) fn capacity(&self) -> usize {
        match self {
            Landing::Held(bytes) => bytes.len(),
            Landing::Single { capacity, .. } | Landing::Multi { capacity, .. } => *capacity,
            Landing::Discarded => 0,
        }
    }
}

impl<H: Host> Endpoint<H> {
    /// Posts a receive, or completes it at once with a message that waits. The id serves
    /// [`Endpoint::cancel`].
    pub fn receive(&mut self, host: &mut H, request: ReceiveRequest, receive: H::Receive) -> ReceiveId {
        let source = request.source.map(|peer| peer.0);
        let id = match request.multi {
            Some(min_free) => self.receive_multi(host, request, min_free, receive),
            None => {
                let lane = &mut self.lanes[request.lane as usize];
                let waiting = lane.find_unexpected(source, request.tag, request.ignore);
                match waiting.and_then(|key| lane.take_unexpected(key)) {
                    Some(message) => {
                        let landing = Landing::Single { receive, capacity: request.capacity };
                        self.land(host, message, landing);
                        ReceiveId(0)
                    }
                    None => {
                        let posted = Posted::Single { receive, capacity: request.capacity };
                        let key = lane.post(source, request.tag, request.ignore, posted);
                        receive_id(request.lane, key)
                    }
                }
            }
        };
        self.report(host);
        id
    }

    fn receive_multi(
        &mut self,
        host: &mut H,
        request: ReceiveRequest,
        min_free: usize,
        receive: H::Receive,
    ) -> ReceiveId {
        let multi = self.multis.insert(Multi {
            receive,
            capacity: request.capacity,
            used: 0,
            min_free: min_free.max(1),
            landing: 0,
            posted: None,
        });
        let (lane, source) = (request.lane, request.source.map(|peer| peer.0));
        let queue = &mut self.lanes[lane as usize];
        let key = queue.post(source, request.tag, request.ignore, Posted::Multi(multi));
        self.multis[multi].posted = Some((lane, key));
        while self.multis.get(multi).is_some_and(|multi| multi.posted.is_some()) {
            let queue = &mut self.lanes[lane as usize];
            let waiting = queue.find_unexpected(source, request.tag, request.ignore);
            let Some(message) = waiting.and_then(|key| queue.take_unexpected(key)) else { break };
            let size = self.messages[message].size;
            let landing = self.place_in_multi(multi, size);
            self.land(host, message, landing);
        }
        receive_id(lane, key)
    }

    /// Takes a receive back. `None`: it is done, or its message is landing and will complete it.
    pub fn cancel(&mut self, id: ReceiveId) -> Option<H::Receive> {
        let lane = match id.0 & LANE_ID {
            0 => Lane::Message,
            TAGGED_ID => Lane::Tagged,
            _ => Lane::Service,
        };
        let key = PostedKey::from(KeyData::from_ffi(id.0 & !LANE_ID));
        match self.lanes[lane as usize].take_posted(key)? {
            Posted::Single { receive, .. } => Some(receive),
            Posted::Multi(key) => {
                let multi = &mut self.multis[key];
                multi.posted = None;
                if multi.landing > 0 {
                    return None;
                }
                self.multis.remove(key).map(|multi| multi.receive)
            }
        }
    }

    /// The message that a receive with these words would get now. With `claim` it is taken out of
    /// matching, for [`Endpoint::receive_claimed`] or [`Endpoint::discard_claimed`].
    pub fn peek(
        &mut self,
        lane: Lane,
        source: Option<PeerId>,
        tag: u64,
        ignore: u64,
        claim: bool,
    ) -> Option<(Received, Option<ClaimId>)> {
        let queue = &mut self.lanes[lane as usize];
        let found = queue.find_unexpected(source.map(|peer| peer.0), tag, ignore)?;
        let key = *queue.unexpected(found)?;
        let mut claimed = None;
        if claim {
            queue.take_unexpected(found);
            self.messages[key].claimed = true;
            claimed = Some(ClaimId(key.data().as_ffi()));
        }
        let message = &self.messages[key];
        Some((message.received(message.size, 0), claimed))
    }

    /// Receives a claimed message. The receive comes back when there is no such claim.
    pub fn receive_claimed(
        &mut self,
        host: &mut H,
        claim: ClaimId,
        capacity: usize,
        receive: H::Receive,
    ) -> Result<(), H::Receive> {
        let Some(key) = self.claimed(claim) else { return Err(receive) };
        self.land(host, key, Landing::Single { receive, capacity });
        self.report(host);
        Ok(())
    }

    /// Drops a claimed message and tells which it was. `None`: there is no such claim.
    pub fn discard_claimed(&mut self, host: &mut H, claim: ClaimId) -> Option<Received> {
        let key = self.claimed(claim)?;
        let message = self.messages[key].received(0, 0);
        self.land(host, key, Landing::Discarded);
        self.report(host);
        Some(message)
    }

    fn claimed(&mut self, claim: ClaimId) -> Option<MessageKey> {
        let key = MessageKey::from(KeyData::from_ffi(claim.0));
        let message = self.messages.get_mut(key).filter(|message| message.claimed)?;
        message.claimed = false;
        Some(key)
    }

    /// Gives a message of `size` bytes its place in a multi-receive buffer, and closes the buffer
    /// when too little is left.
    pub(super) fn place_in_multi(&mut self, key: MultiKey, size: usize) -> Landing<H> {
        let multi = &mut self.multis[key];
        let (offset, free) = (multi.used, multi.capacity - multi.used);
        multi.used += size.min(free);
        multi.landing += 1;
        if multi.capacity - multi.used < multi.min_free
            && let Some((lane, posted)) = multi.posted.take()
        {
            self.lanes[lane as usize].take_posted(posted);
        }
        Landing::Multi { key, offset, capacity: free }
    }

    /// Where a message that was just matched to a posted receive goes, and the receive with it.
    pub(super) fn claim_posted(&mut self, lane: Lane, key: PostedKey, size: usize) -> Landing<H> {
        let queue = &mut self.lanes[lane as usize];
        if let Some(&mut Posted::Multi(multi)) = queue.posted_mut(key) {
            return self.place_in_multi(multi, size);
        }
        match queue.take_posted(key) {
            Some(Posted::Single { receive, capacity }) => Landing::Single { receive, capacity },
            _ => unreachable!("the receive was found a moment ago"),
        }
    }

    /// A held message has found its receive: its bytes move, its room is free, its rest is asked for.
    pub(super) fn land(&mut self, host: &mut H, key: MessageKey, mut landing: Landing<H>) {
        let message = &mut self.messages[key];
        let Landing::Held(held) = &message.landing else { unreachable!("a message that waits is held") };
        let bytes = &held[..message.got];
        place(&mut self.multis, &mut landing, 0, |into| into.copy(bytes));
        let capacity = landing.capacity();
        if let Landing::Held(held) = std::mem::replace(&mut message.landing, landing) {
            self.held_bytes -= held.len();
            self.spare.put(held);
        }
        let (id, cost) = (message.peer, std::mem::take(&mut message.uncredited));
        if message.awaits_grant {
            message.awaits_grant = false;
            message.end = message.got.max(message.size.min(capacity));
            let (end, data, sender_id) = (message.end as u64, key.data().as_ffi(), message.sender_id);
            if self.is_own(id) {
                self.fetch_own(host, key);
            } else {
                let grant = Envelope { size: end, data, id: sender_id, ..Envelope::new(Kind::Grant) };
                self.peers[id.0 as usize].control.push_back(grant);
            }
        }
        let whole = self.messages[key].got == self.messages[key].end;
        self.owe(id, cost);
        if whole {
            self.complete(host, key);
        }
        self.pump(host, id);
    }

    /// All bytes of a message stand where they belong.
    pub(super) fn complete(&mut self, host: &mut H, key: MessageKey) {
        let Some(message) = self.messages.remove(key) else { return };
        if message.wants_delivery {
            let notice = Envelope { id: message.sender_id, ..Envelope::new(Kind::Delivered) };
            self.peers[message.peer.0 as usize].control.push_back(notice);
        }
        self.count_received(message.size);
        let received = message.received(message.landing.capacity(), 0);
        match message.landing {
            Landing::Single { receive, .. } => host.received(receive, &received),
            Landing::Multi { key, offset, .. } => self.part_done(host, key, &Received { offset, ..received }),
            Landing::Discarded | Landing::Held(_) => {}
        }
    }

    /// A message stands whole in its place in a multi-receive buffer.
    pub(super) fn part_done(&mut self, host: &mut H, key: MultiKey, received: &Received) {
        let multi = &mut self.multis[key];
        multi.landing -= 1;
        host.received_part(&multi.receive, received);
        if multi.landing == 0
            && multi.posted.is_none()
            && let Some(multi) = self.multis.remove(key)
        {
            host.multi_done(multi.receive);
        }
    }
}

impl<H: Host> Message<H> {
    /// The message as its completion tells it, in a place of `capacity` bytes.
    pub(super) fn received(&self, capacity: usize, offset: usize) -> Received {
        let len = self.size.min(capacity);
        let (lane, source, tag, data, number) = (self.lane, self.peer, self.tag, self.data, self.number);
        Received { lane, source, tag, data, number, len, offset, overflow: self.size - len }
    }
}

/// Lends the place of a message's bytes from `got` on.
pub(super) fn place<H: Host, R>(
    multis: &mut slotmap::SlotMap<MultiKey, Multi<H>>,
    landing: &mut Landing<H>,
    got: usize,
    with: impl FnOnce(&mut Place<'_, H>) -> R,
) -> R {
    let mut place = match landing {
        Landing::Held(bytes) => Place::Held(&mut bytes[got..]),
        Landing::Single { receive, capacity } => {
            Place::User { receive, offset: got, room: capacity.saturating_sub(got) }
        }
        Landing::Multi { key, offset, capacity } => Place::User {
            receive: &mut multis[*key].receive,
            offset: *offset + got,
            room: capacity.saturating_sub(got),
        },
        Landing::Discarded => Place::Held(&mut []),
    };
    with(&mut place)
}

/// Room for a message's next bytes.
pub(super) enum Place<'p, H: Host> {
    Held(&'p mut [u8]),
    User { receive: &'p mut H::Receive, offset: usize, room: usize },
}

impl<H: Host> Destination for Place<'_, H> {
    fn contiguous(&mut self, len: usize) -> Option<&mut [u8]> {
        match self {
            Place::Held(bytes) => bytes.get_mut(..len),
            Place::User { receive, offset, room } => {
                if len <= *room {
                    H::sink(receive, *offset, len)
                } else {
                    None
                }
            }
        }
    }

    fn copy(&mut self, from: &[u8]) {
        match self {
            Place::Held(bytes) => {
                let len = from.len().min(bytes.len());
                bytes[..len].copy_from_slice(&from[..len]);
            }
            Place::User { receive, offset, room } => {
                let from = &from[..from.len().min(*room)];
                if from.is_empty() {
                    return;
                }
                match H::sink(receive, *offset, from.len()) {
                    Some(into) => into.copy_from_slice(from),
                    None => H::scatter(receive, *offset, from),
                }
            }
        }
    }
}

/// The lane's bits in a [`ReceiveId`]: the top bits of the slot, which no table gets to.
const LANE_ID: u64 = 3 << 30;
const TAGGED_ID: u64 = 1 << 30;
const SERVICE_ID: u64 = 2 << 30;

fn receive_id(lane: Lane, key: PostedKey) -> ReceiveId {
    let id = key.data().as_ffi();
    assert_eq!(id & LANE_ID, 0, "fewer than 2^30 receives are posted");
    ReceiveId(match lane {
        Lane::Message => id,
        Lane::Tagged => id | TAGGED_ID,
        Lane::Service => id | SERVICE_ID,
    })
}
