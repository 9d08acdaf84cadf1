//! One peer of an endpoint: its card, its two sessions, and what waits to be sent to it.

use std::collections::VecDeque;

use super::arrive::MessageKey;
use super::host::{Host, Lane, PeerId};
use super::report::PeerName;
use super::send::OutgoingKey;
use super::wire::Stuck;
use crate::communicators::{Identifiers, Table, WishNumber};
use crate::identity::Card;
use crate::key_cache::CacheSlot;
use crate::policy::Policy;
use crate::record::Envelope;
use crate::session::{ReceiveSession, SendSession};
use crate::suite::Protection;

/// One peer. It stays for as long as the endpoint lives, since its sequences must never start anew.
pub(super) struct Peer<H: Host> {
    pub(super) id: PeerId,
    pub(super) card: Card,
    pub(super) name: PeerName,
    /// Keys of both directions, made when the first record goes either way.
    pub(super) link: Option<Box<Link>>,
    /// Whether the carrier can reach the peer.
    pub(super) reachable: bool,
    /// Bytes that may still be sent to the peer unasked.
    pub(super) credit: usize,
    /// Bytes that the peer sent unasked and may not send again until it gets credit.
    pub(super) spent: usize,
    /// Of these, bytes whose room is free again.
    pub(super) owed: usize,
    /// Records of our own making, before everything else.
    pub(super) control: VecDeque<Envelope>,
    /// Granted messages, whose data goes out in turn with the queue.
    pub(super) granted: VecDeque<OutgoingKey>,
    /// Messages in the order in which they were sent; the first may be half out.
    pub(super) queue: VecDeque<OutgoingKey>,
    /// Bytes that were copied for messages in the queue.
    pub(super) copied: usize,
    /// A sealed record that goes out before anything else.
    pub(super) stuck: Option<Stuck<H::Buffer>>,
    /// Whether the peer is on the list of those with work to go on with.
    pub(super) dirty: bool,
    /// The message whose next bytes come unasked.
    pub(super) incoming: Option<MessageKey>,
    /// Messages that were sent to the peer: the number of the next.
    pub(super) messages_sent: u64,
    /// Messages of the peer that have begun to arrive.
    pub(super) messages_arrived: u64,
    /// When the last authentic record came, in the ticks' time.
    pub(super) heard_ns: u64,
    /// When the peer was asked for its position and has not been heard since.
    pub(super) asked_ns: Option<u64>,
    /// Whether our last record is out or queued.
    pub(super) final_sent: bool,
    /// Whether the peer said that it sends nothing more.
    pub(super) final_received: bool,
}

/// The sessions of a pair of endpoints.
pub(super) struct Link {
    pub(super) protection: Protection,
    pub(super) send: SendSession,
    pub(super) receive: ReceiveSession,
    /// Whether our card went out with a record.
    pub(super) introduced: bool,
    /// Where the cache has keys of another protection than the pair's: for what is sent, and for what arrives.
    pub(super) slots: [CacheSlot; 2],
    /// Whether frames have privacy although the policy asks for less, because a communicator asks for more: those that are
    /// sent, and those that arrive.
    pub(super) raised: [bool; 2],
    /// What messages have that nothing is asked for: those that are sent, and those that arrive.
    pub(super) unasked: [Protection; 2],
    /// What the wishes of communicators come to between the two, by their numbers.
    pub(super) wishes: Vec<Protection>,
    /// The communicators that both are in.
    pub(super) with: Identifiers,
}

impl Link {
    /// Works out what the communicators' wishes come to.
    pub(super) fn follow(&mut self, communicators: &Table, policy: &Policy, own: &Card, peer: &Card) {
        // Nobody asks for what number 0 stands for; it has a place here, so that numbers are indices.
        self.wishes.clear();
        self.wishes.push(self.protection);
        while let Some(wish) = WishNumber::try_from(self.wishes.len()).ok().and_then(|next| communicators.wish(next)) {
            let least = policy.decide_communicator(wish.class.as_deref(), super::place(own), super::place(peer));
            self.wishes.push(wish.protection.min(least.protection));
        }
        self.with = communicators.with(&peer.public_key);
        for (raised, wishes) in self.raised.iter_mut().zip(communicators.shared(&peer.public_key)) {
            *raised |= wishes.iter().any(|&wish| self.wishes[usize::from(wish)] < self.protection);
        }
        self.unasked = self.raised.map(|raised| self.frame(raised && communicators.has_hidden()));
    }

    /// How all of a record but its payload is protected.
    pub(super) fn frame(&self, raised: bool) -> Protection {
        if raised { Protection::Privacy } else { self.protection }
    }

    /// How the payload of a message to the peer is protected.
    pub(super) fn sends(&self, communicators: &Table, lane: Lane, tag: u64) -> Protection {
        if lane != Lane::Tagged {
            return self.frame(self.raised[0]);
        }
        let ([one, other], foreign) = communicators.send(tag, &self.with);
        self.wished(0, one, foreign).min(self.wished(0, other, foreign))
    }

    /// What a message of the peer's has to have at least.
    pub(super) fn demands(&self, communicators: &Table, lane: Lane, tag: u64) -> Protection {
        if lane != Lane::Tagged {
            return self.frame(self.raised[1]);
        }
        let (wish, foreign) = communicators.demand(tag, &self.with);
        self.wished(1, wish, foreign)
    }

    fn wished(&self, direction: usize, wish: WishNumber, foreign: bool) -> Protection {
        let unasked = self.unasked[direction];
        if wish == 0 {
            return unasked;
        }
        let wished = self.wishes.get(usize::from(wish)).copied().unwrap_or(Protection::Privacy);
        if foreign { wished.min(unasked) } else { wished }
    }
}

impl<H: Host> Peer<H> {
    pub(super) fn new(id: PeerId, card: Card, name: PeerName, credit: usize, now_ns: u64) -> Self {
        Peer {
            id,
            card,
            name,
            link: None,
            reachable: false,
            credit,
            spent: 0,
            owed: 0,
            control: VecDeque::new(),
            granted: VecDeque::new(),
            queue: VecDeque::new(),
            copied: 0,
            stuck: None,
            dirty: false,
            incoming: None,
            messages_sent: 0,
            messages_arrived: 0,
            heard_ns: now_ns,
            asked_ns: None,
            final_sent: false,
            final_received: false,
        }
    }

    /// Whether a new message may go out at once, with nothing before it.
    pub(super) fn is_clear(&self) -> bool {
        self.stuck.is_none() && self.queue.is_empty() && self.control.is_empty()
    }

    /// Whether a record went out to the peer or an authentic one came from it. Having its keys says
    /// nothing: anybody can bring us a copy of its introduction to another endpoint.
    pub(super) fn has_talked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.send.next_sequence() > 0 || link.receive.expected() > 0)
    }

    /// Whether nothing waits to be sent to the peer.
    pub(super) fn is_idle(&self) -> bool {
        self.is_clear() && self.granted.is_empty()
    }
}
