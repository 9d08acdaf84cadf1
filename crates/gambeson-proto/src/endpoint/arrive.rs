//! Taking records in: who sent it, is it authentic, is it next; only then does anything move.

use slotmap::{Key, new_key_type};

use super::host::{Host, Lane, PeerId, Received};
use super::receive::{Landing, Posted, place};
use super::report::{Cause, PeerName, Violation};
use super::send::MESSAGE_COST;
use super::{Endpoint, UNASKED_MAX};
use crate::matching::PostedKey;
use crate::record::{Envelope, Header, Kind, POLICY_HINT_LEN, Payload, message};
use crate::suite::Protection;

new_key_type! {
    /// A message on its way in; its bits are the receiver's id on the wire.
    pub(super) struct MessageKey;
}

/// A message that did not complete with its first record, or waits for its receive.
pub(super) struct Message<H: Host> {
    pub(super) peer: PeerId,
    pub(super) lane: Lane,
    pub(super) tag: u64,
    pub(super) data: Option<u64>,
    /// What each of its records has to have at least.
    pub(super) demanded: Protection,
    pub(super) number: u64,
    pub(super) size: usize,
    /// Bytes that came so far.
    pub(super) got: usize,
    /// Bytes that will come: all, or as many as there is room for.
    pub(super) end: usize,
    pub(super) landing: Landing<H>,
    /// The sender's id, for grant and delivery.
    pub(super) sender_id: u64,
    pub(super) awaits_grant: bool,
    pub(super) wants_delivery: bool,
    /// Credit to be given back when the message finds its receive.
    pub(super) uncredited: usize,
    /// Whether a peek took the message out of matching.
    pub(super) claimed: bool,
}

/// What an authentic, due record did, and what is left to do about it.
enum Taken {
    /// A whole message stands in a posted receive.
    Whole { posted: PostedKey, message: First },
    /// The first part of a message stands in its landing.
    Begun { posted: PostedKey, message: First, got: usize },
    /// A message, or its first part, stands in memory of ours.
    Held { message: First, bytes: Vec<u8>, got: usize },
    /// Further bytes of a message stand in its landing.
    Continued { key: MessageKey, got: usize },
    /// A record without bytes.
    Control(Envelope),
}

/// The words of a [`Kind::Message`], checked.
#[derive(Clone, Copy)]
struct First {
    lane: Lane,
    tag: u64,
    data: Option<u64>,
    demanded: Protection,
    size: usize,
    sender_id: u64,
    awaits_grant: bool,
    wants_delivery: bool,
    cost: usize,
}

enum Refusal {
    Drop(Cause),
    End(Violation),
    Misbehaved(&'static str),
}

impl<H: Host> Endpoint<H> {
    /// Takes in one message of the carrier. Whatever the bytes are, this returns.
    pub fn arrive(&mut self, host: &mut H, record: &mut [u8]) {
        if self.dead {
            return;
        }
        let Some(header) = Header::parse(record) else {
            return self.refuse(host, None, Cause::Malformed);
        };
        let id = match self.sender(&header, record) {
            Ok(id) => id,
            Err((claimed, cause)) => return self.refuse(host, claimed, cause),
        };
        let watch = self.wire.stopwatch.start(host, header.payload_len());
        self.look_at_communicators();
        let opened = self.open(id, &header, record);
        self.wire.counters.crypto_ns += watch.stop(host);
        let taken = match opened {
            Ok(taken) => taken,
            Err(Refusal::Drop(cause)) => return self.refuse(host, Some(id), cause),
            Err(Refusal::End(violation)) => return self.end(host, violation),
            Err(Refusal::Misbehaved(what)) => return self.misbehaved(host, id, what),
        };
        let now_ns = self.now_ns;
        let peer = &mut self.peers[id.0 as usize];
        peer.heard_ns = now_ns;
        peer.asked_ns = None;
        if let Some(link) = &mut peer.link {
            link.receive.accept(header.stamp, 1);
        }
        if !peer.reachable {
            peer.reachable = true;
            host.introduce(id, peer.card.address);
        }
        if let Err(what) = self.follow(host, id, taken) {
            return self.misbehaved(host, id, what);
        }
        self.report(host);
    }

    /// Whether, as far as its header claims, nothing that goes before this record is missing. For
    /// carriers that may complete a later message before an earlier one: a record that is not due
    /// can wait for those that the carrier still has. What is no record of a known peer is due.
    pub fn is_due(&self, record: &[u8]) -> bool {
        let Some(header) = Header::parse(record) else { return true };
        let peer = self.by_connection.get(&header.connection).map(|id| &self.peers[id.0 as usize]);
        match peer.and_then(|peer| peer.link.as_ref()) {
            Some(link) => header.stamp.sequence <= link.receive.expected(),
            None => header.introduced,
        }
    }

    /// The carrier got something for us that it could not hand over whole.
    pub fn oversized(&mut self, host: &mut H) {
        self.refuse(host, None, Cause::Oversized);
    }

    /// Who the record claims to come from: a look-up, or for an introduction its card.
    fn sender(&mut self, header: &Header, record: &[u8]) -> Result<PeerId, (Option<PeerId>, Cause)> {
        let Some((card, hint)) = header.introduction(record) else {
            return self.by_connection.get(&header.connection).copied().ok_or((None, Cause::UnknownConnection));
        };
        let id = self.add_peer_card(card).map_err(|_| (None, Cause::ForeignCard))?;
        if hint != &self.job.keys.policy_hash[..POLICY_HINT_LEN] {
            return Err((Some(id), Cause::OtherPolicy));
        }
        // Our own introduction, sent back to us: we never send it to ourselves.
        if self.is_own(id) {
            return Err((None, Cause::UnknownConnection));
        }
        if !self.connect(id) {
            return Err((Some(id), Cause::ForeignCard));
        }
        match self.by_connection.get(&header.connection) {
            Some(&known) if known == id => Ok(id),
            _ => Err((Some(id), Cause::UnknownConnection)),
        }
    }

    /// Authenticates a record, checks that it is next, and puts its payload where it belongs. On
    /// any refusal nothing has moved.
    fn open(&mut self, id: PeerId, header: &Header, record: &mut [u8]) -> Result<Taken, Refusal> {
        let peer = &mut self.peers[id.0 as usize];
        let Some(link) = peer.link.as_mut() else {
            return Err(Refusal::Drop(Cause::UnknownConnection));
        };
        let expected = link.receive.expected();
        // The header claims; a claim of more than is due has to be proved, one of less is refused.
        if link.raised[1] && !header.mode.raised {
            return Err(Refusal::Drop(Cause::Unprotected));
        }
        let frame = link.frame(header.mode.raised);
        let protection = header.mode.apart.unwrap_or(frame);
        if protection < frame {
            return Err(Refusal::Drop(Cause::Malformed));
        }
        let context = link.receive.context_of(&mut link.slots[1], &mut self.wire.cache, header.stamp.epoch, frame);
        let context = context.map_err(|_| Refusal::Drop(Cause::Epoch))?;
        let envelope = header.open_frame(context, frame, record).ok_or(Refusal::Drop(Cause::BadTag))?;
        if header.stamp.sequence < expected {
            return Err(Refusal::Drop(Cause::Replay));
        }
        if header.stamp.sequence > expected {
            let (peer, came) = (peer.name.clone(), header.stamp.sequence);
            return Err(Refusal::End(Violation::Gap { peer, expected, came }));
        }
        let envelope = envelope.ok_or(Refusal::Misbehaved("sent a record of an unknown kind"))?;
        let bad = Refusal::Drop(Cause::BadTag);
        let below = |demanded: Protection, name: &PeerName| {
            if protection <= demanded {
                return Ok(());
            }
            let (peer, came) = (name.clone(), protection);
            Err(Refusal::End(Violation::Unprotected { peer, came, demanded }))
        };
        let demanded = match envelope.kind {
            Kind::Message => {
                let lane = First::lane(envelope.flags).map_err(Refusal::Misbehaved)?;
                let demanded = link.demands(&self.communicators, lane, envelope.tag);
                below(demanded, &peer.name)?;
                demanded
            }
            _ => frame,
        };
        let context = link.receive.context_of(&mut link.slots[1], &mut self.wire.cache, header.stamp.epoch, protection);
        let context = context.map_err(|_| Refusal::Drop(Cause::Epoch))?;
        let payload = header.payload(context, protection, record);
        let len = payload.len();
        match envelope.kind {
            Kind::Message => {
                let message = First::check(&envelope, len, demanded).map_err(Refusal::Misbehaved)?;
                if peer.spent + message.cost > self.config.peer_credit {
                    return Err(Refusal::Misbehaved("sent more than it had credit for"));
                }
                let posted = self.lanes[message.lane as usize].find_posted(id.0, message.tag);
                match posted {
                    Some(posted) => {
                        let value = self.lanes[message.lane as usize].posted_mut(posted);
                        let value = value.expect("the receive was found a moment ago");
                        into_posted(&mut self.multis, value, payload).ok_or(bad)?;
                        if len == message.size {
                            Ok(Taken::Whole { posted, message })
                        } else {
                            Ok(Taken::Begun { posted, message, got: len })
                        }
                    }
                    None => {
                        // A message that awaits its grant may announce any size.
                        let held = self.held_bytes + self.messages.len() * MESSAGE_COST;
                        let in_all = held.saturating_add(message.size);
                        let buffered = message.size <= self.config.eager_max && in_all <= self.config.unexpected_limit;
                        let room = if message.awaits_grant && !buffered { len } else { message.size };
                        let mut landing = Landing::<H>::Held(self.spare.take(room));
                        let placed = place(&mut self.multis, &mut landing, 0, |into| payload.deliver(into));
                        let Landing::Held(bytes) = landing else { unreachable!("made a moment ago") };
                        if placed.is_none() {
                            self.spare.put(bytes);
                            return Err(bad);
                        }
                        Ok(Taken::Held { message, bytes, got: len })
                    }
                }
            }
            Kind::More | Kind::Data => {
                let data = envelope.kind == Kind::Data;
                let key =
                    if data { Some(MessageKey::from(slotmap::KeyData::from_ffi(envelope.id))) } else { peer.incoming };
                let found = key.and_then(|key| self.messages.get_mut(key).map(|message| (key, message)));
                let found = found.filter(|(_, message)| {
                    message.peer == id
                        && !message.awaits_grant
                        && (!data || envelope.tag == message.got as u64)
                        && len <= message.end - message.got
                        && len > 0
                });
                let Some((key, message)) = found else {
                    return Err(Refusal::Misbehaved("sent bytes of a message that does not expect them"));
                };
                below(message.demanded, &peer.name)?;
                let got = message.got;
                let placed = place(&mut self.multis, &mut message.landing, got, |into| payload.deliver(into));
                placed.ok_or(bad)?;
                Ok(Taken::Continued { key, got: len })
            }
            Kind::Request | Kind::Answer | Kind::Cancel | Kind::Control | Kind::Put | Kind::Get | Kind::End => {
                Err(Refusal::Misbehaved("sent a record of a link to an endpoint of messages"))
            }
            _ if len > 0 => Err(Refusal::Misbehaved("sent a payload where none belongs")),
            _ => Ok(Taken::Control(envelope)),
        }
    }

    /// Does what an accepted record asks for.
    fn follow(&mut self, host: &mut H, id: PeerId, taken: Taken) -> Result<(), &'static str> {
        match taken {
            Taken::Whole { posted, message } => self.whole(host, id, posted, message),
            Taken::Begun { posted, message, got } => {
                let landing = self.claim_posted(message.lane, posted, message.size);
                self.peers[id.0 as usize].spent += message.cost;
                self.owe(id, message.cost);
                let capacity = landing.capacity();
                let number = self.number_arrival(id);
                let key = self.messages.insert(message.begin(id, number, got, landing));
                self.begun(key, id);
                if message.awaits_grant {
                    self.grant(key, id, capacity);
                    if self.messages[key].got == self.messages[key].end {
                        self.complete(host, key);
                    }
                }
                self.pump(host, id);
            }
            Taken::Held { message, bytes, got } => {
                self.peers[id.0 as usize].spent += message.cost;
                let room = bytes.len();
                self.held_bytes += room;
                let counters = &mut self.wire.counters;
                counters.unexpected_max = counters.unexpected_max.max(self.held_bytes as u64);
                let number = self.number_arrival(id);
                let mut held = message.begin(id, number, got, Landing::Held(bytes));
                // While there is plenty of room the sender may go on at once; after that it has to
                // wait until its messages have found their receives.
                if self.held_bytes + self.messages.len() * MESSAGE_COST <= self.config.unexpected_limit {
                    self.owe(id, message.cost);
                } else {
                    held.uncredited = message.cost;
                }
                let key = self.messages.insert(held);
                self.lanes[message.lane as usize].hold(id.0, message.tag, key);
                // A small message that asks only because its sender's credit was short is let through
                // to where it is buffered: programs send a few of those before anybody receives.
                if message.awaits_grant && room == message.size {
                    self.grant(key, id, room);
                }
                self.begun(key, id);
                self.stored(key, id);
                self.pump(host, id);
            }
            Taken::Continued { key, got } => {
                let message = &mut self.messages[key];
                message.got += got;
                if message.got == message.end {
                    let peer = &mut self.peers[id.0 as usize];
                    if peer.incoming == Some(key) {
                        peer.incoming = None;
                    }
                    if matches!(self.messages[key].landing, Landing::Held(_)) {
                        self.stored(key, id);
                    } else {
                        self.complete(host, key);
                    }
                    self.pump(host, id);
                }
            }
            Taken::Control(envelope) => return self.control(host, id, &envelope),
        }
        Ok(())
    }

    /// The way of nearly every message: whole, and its receive was posted.
    fn whole(&mut self, host: &mut H, id: PeerId, posted: PostedKey, message: First) {
        let First { lane, tag, data, size, .. } = message;
        let number = self.number_arrival(id);
        self.count_received(size);
        let landing = self.claim_posted(lane, posted, size);
        let capacity = landing.capacity();
        let len = size.min(capacity);
        let received = Received { lane, source: id, tag, data, number, len, offset: 0, overflow: size - len };
        match landing {
            Landing::Single { receive, .. } => host.received(receive, &received),
            Landing::Multi { key, offset, .. } => self.part_done(host, key, &Received { offset, ..received }),
            Landing::Held(_) | Landing::Discarded => unreachable!("a posted receive is the program's"),
        }
        let peer = &mut self.peers[id.0 as usize];
        peer.spent += message.cost;
        if message.awaits_grant {
            let grant = Envelope { id: message.sender_id, ..Envelope::new(Kind::Grant) };
            peer.control.push_back(grant);
        }
        if message.wants_delivery {
            peer.control.push_back(Envelope { id: message.sender_id, ..Envelope::new(Kind::Delivered) });
        }
        self.owe(id, message.cost);
        if !self.peers[id.0 as usize].control.is_empty() {
            self.pump(host, id);
        }
    }

    fn begun(&mut self, key: MessageKey, id: PeerId) {
        let message = &self.messages[key];
        if !message.awaits_grant && message.got < message.end {
            self.peers[id.0 as usize].incoming = Some(key);
        }
    }

    /// A message may stand whole in memory of ours. That is delivery: what is left is to receive it.
    fn stored(&mut self, key: MessageKey, id: PeerId) {
        let message = &mut self.messages[key];
        if message.got == message.size && !message.awaits_grant && std::mem::take(&mut message.wants_delivery) {
            let notice = Envelope { id: message.sender_id, ..Envelope::new(Kind::Delivered) };
            self.peers[id.0 as usize].control.push_back(notice);
        }
    }

    fn grant(&mut self, key: MessageKey, id: PeerId, capacity: usize) {
        let message = &mut self.messages[key];
        message.awaits_grant = false;
        message.end = message.got.max(message.size.min(capacity));
        let (size, data) = (message.end as u64, key.data().as_ffi());
        let grant = Envelope { size, data, id: message.sender_id, ..Envelope::new(Kind::Grant) };
        self.peers[id.0 as usize].control.push_back(grant);
    }

    /// Room that a peer's unasked bytes took is free again; the peer learns of it now and then.
    pub(super) fn owe(&mut self, id: PeerId, cost: usize) {
        let peer = &mut self.peers[id.0 as usize];
        peer.owed += cost;
        if peer.owed >= self.config.peer_credit / 4 {
            let credit = std::mem::take(&mut peer.owed);
            peer.spent -= credit;
            peer.control.push_back(Envelope { size: credit as u64, ..Envelope::new(Kind::Credit) });
        }
    }

    fn control(&mut self, host: &mut H, id: PeerId, envelope: &Envelope) -> Result<(), &'static str> {
        let index = id.0 as usize;
        match envelope.kind {
            Kind::Grant => self.granted(host, id, envelope)?,
            Kind::Delivered => self.delivered(host, id, envelope)?,
            Kind::Credit => {
                let peer = &mut self.peers[index];
                let credit = usize::try_from(envelope.size).ok().and_then(|size| peer.credit.checked_add(size));
                let credit = credit.filter(|credit| *credit <= self.config.peer_credit);
                peer.credit = credit.ok_or("gave back more credit than there is")?;
            }
            Kind::Query => self.answer(id),
            Kind::Position => self.position(id, envelope.size)?,
            Kind::Final => self.peers[index].final_received = true,
            Kind::Message | Kind::More | Kind::Data => unreachable!("these carry bytes"),
            Kind::Request | Kind::Answer | Kind::Cancel | Kind::Control | Kind::Put | Kind::Get | Kind::End => {
                unreachable!("these are refused above")
            }
        }
        self.pump(host, id);
        Ok(())
    }
}

impl First {
    fn check(envelope: &Envelope, payload: usize, demanded: Protection) -> Result<Self, &'static str> {
        let flag = |bit: u8| envelope.flags & bit != 0;
        let awaits_grant = flag(message::GRANT);
        let size = usize::try_from(envelope.size).map_err(|_| "sent a message of impossible size")?;
        if payload > size || payload > UNASKED_MAX || (!awaits_grant && size > UNASKED_MAX) {
            return Err("sent a message whose size does not fit its first part");
        }
        let unasked = if awaits_grant { payload } else { size };
        Ok(First {
            lane: First::lane(envelope.flags)?,
            tag: envelope.tag,
            data: flag(message::DATA).then_some(envelope.data),
            demanded,
            size,
            sender_id: envelope.id,
            awaits_grant,
            wants_delivery: flag(message::DELIVERY),
            cost: MESSAGE_COST + unasked,
        })
    }

    fn lane(flags: u8) -> Result<Lane, &'static str> {
        match (flags & message::TAGGED != 0, flags & message::SERVICE != 0) {
            (false, false) => Ok(Lane::Message),
            (true, false) => Ok(Lane::Tagged),
            (false, true) => Ok(Lane::Service),
            (true, true) => Err("sent a message of two kinds"),
        }
    }

    fn begin<H: Host>(self, peer: PeerId, number: u64, got: usize, landing: Landing<H>) -> Message<H> {
        let First { lane, tag, data, demanded, size, sender_id, awaits_grant, wants_delivery, .. } = self;
        Message {
            peer,
            lane,
            tag,
            data,
            demanded,
            number,
            size,
            got,
            end: size,
            landing,
            sender_id,
            awaits_grant,
            wants_delivery,
            uncredited: 0,
            claimed: false,
        }
    }
}

/// Opens a message's first bytes into the receive that it matches; the receive stays posted.
fn into_posted<H: Host>(
    multis: &mut slotmap::SlotMap<super::receive::MultiKey, super::receive::Multi<H>>,
    posted: &mut Posted<H>,
    payload: Payload<'_>,
) -> Option<()> {
    let mut lent = posted.place(multis);
    payload.deliver(&mut lent)
}
