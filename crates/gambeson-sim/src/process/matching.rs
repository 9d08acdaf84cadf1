//! Messages under way and at their receivers: MPI's matching by source, tag and communicator, and rendezvous.
//!
//! Two messages from one rank to another match in the order they were sent even where the fabric lets one overtake the
//! other: each carries its number in that order, and one that comes too early is held.

use crate::trace::{ANY_SOURCE, ANY_TAG, Context};

const NONE: u32 = u32::MAX;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message that was sent without asking.
    Eager,
    /// Asks whether a long message may come.
    Request,
    /// Answers that it may.
    Clear,
    /// The long message.
    Payload,
}

/// A message from its send until nobody needs it any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// Index of the process that sends it.
    pub(super) from: u32,
    /// Index of the process it is for.
    pub(super) to: u32,
    /// The rank that sends it.
    pub(super) source: u32,
    pub(super) kind: Kind,
    /// The length of the program's message.
    pub(super) bytes: u32,
    pub(super) tag: i32,
    pub(super) context: Context,
    /// The record of the send.
    pub(super) record: u32,
    /// The request of the sender.
    pub(super) send_slot: u32,
    /// The request of the receiver, once known.
    pub(super) receive_slot: u32,
    /// What has still to happen: [`INJECT`], [`ARRIVE`], [`MATCH`].
    pub(super) waits: u8,
    pub(super) order: u32,
    pub(super) stamp: u64,
    pub(super) next: u32,
}

/// A flight that has not left yet.
pub(super) const INJECT: u8 = 1;
/// A flight that has not arrived yet.
pub(super) const ARRIVE: u8 = 2;
/// A flight that no receive has taken yet.
pub(super) const MATCH: u8 = 4;

impl Flight {
    pub(super) fn new(kind: Kind, from: u32, to: u32, bytes: u32) -> Self {
        let waits = match kind {
            Kind::Eager | Kind::Request => INJECT | ARRIVE | MATCH,
            Kind::Clear | Kind::Payload => INJECT | ARRIVE,
        };
        Self {
            from,
            to,
            source: 0,
            kind,
            bytes,
            tag: 0,
            context: Context::program(0),
            record: 0,
            send_slot: 0,
            receive_slot: 0,
            waits,
            order: 0,
            stamp: 0,
            next: NONE,
        }
    }
}

/// All messages, under the numbers the fabric knows them by.
#[derive(Debug, Default)]
pub(super) struct Flights {
    all: Vec<Flight>,
    free: Vec<u32>,
    stamps: u64,
}

impl Flights {
    pub(super) fn add(&mut self, flight: Flight) -> u32 {
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = flight;
            return id;
        }
        self.all.push(flight);
        self.all.len() as u32 - 1
    }

    pub(super) fn flight(&mut self, id: u32) -> &mut Flight {
        &mut self.all[id as usize]
    }

    /// Notes that one of the things a flight waits for has happened; after the last its number is free.
    pub(super) fn done(&mut self, id: u32, what: u8) {
        let flight = &mut self.all[id as usize];
        assert!(flight.waits & what != 0, "message {id} is told of twice, or after its end");
        flight.waits &= !what;
        if flight.waits == 0 {
            self.free.push(id);
        }
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

/// A receive that waits for its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) from: u32,
    pub(super) tag: i32,
    pub(super) context: Context,
    pub(super) slot: u32,
    pub(super) record: u32,
}

impl Posted {
    fn takes(&self, flight: &Flight) -> bool {
        self.context == flight.context
            && (self.from == flight.source || self.from == ANY_SOURCE)
            && (self.tag == flight.tag || self.tag == ANY_TAG)
    }
}

/// What a process has exchanged with a rank.
#[derive(Debug)]
struct Peer {
    rank: u32,
    sent: u32,
    arrived: u32,
    /// Arrived and not received, in order: a list through [`Flight::next`].
    first: u32,
    last: u32,
    /// Arrived before others that were sent earlier.
    held: Vec<u32>,
}

/// The receives and the arrived messages of a process.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    posted: Vec<Posted>,
    /// By rank.
    peers: Vec<Peer>,
}

impl Mailbox {
    fn peer(&mut self, rank: u32) -> &mut Peer {
        let place = self.peers.binary_search_by_key(&rank, |peer| peer.rank);
        let place = place.unwrap_or_else(|place| {
            self.peers.insert(place, Peer { rank, sent: 0, arrived: 0, first: NONE, last: NONE, held: Vec::new() });
            place
        });
        &mut self.peers[place]
    }

    /// The number of the next message to a rank.
    pub(super) fn number(&mut self, flight: &mut Flight, to: u32) {
        let peer = self.peer(to);
        flight.order = peer.sent;
        peer.sent = peer.sent.wrapping_add(1);
    }

    /// A message has arrived: `matches` gets the messages that receives take now, with the slots of those.
    pub(super) fn arrive(&mut self, flights: &mut Flights, id: u32, matches: &mut Vec<(u32, u32)>) {
        let Flight { source, order, .. } = *flights.flight(id);
        let peer = self.peer(source);
        if order != peer.arrived {
            return peer.held.push(id);
        }
        let mut id = id;
        loop {
            self.deliver(flights, id, matches);
            let peer = self.peer(source);
            let next = peer.arrived;
            match peer.held.iter().position(|&held| flights.all[held as usize].order == next) {
                Some(place) => id = peer.held.swap_remove(place),
                None => return,
            }
        }
    }

    fn deliver(&mut self, flights: &mut Flights, id: u32, matches: &mut Vec<(u32, u32)>) {
        let flight = *flights.flight(id);
        let posted = self.posted.iter().position(|posted| posted.takes(&flight));
        let taken = posted.map(|place| self.posted.remove(place));
        let peer = self.peer(flight.source);
        peer.arrived = peer.arrived.wrapping_add(1);
        if let Some(posted) = taken {
            return matches.push((id, posted.slot));
        }
        match peer.last {
            NONE => peer.first = id,
            last => flights.all[last as usize].next = id,
        }
        peer.last = id;
        flights.stamps += 1;
        let stamp = flights.stamps;
        let flight = flights.flight(id);
        flight.stamp = stamp;
        flight.next = NONE;
    }

    /// A receive begins: the message it takes, if one is there; else it is posted.
    pub(super) fn receive(&mut self, flights: &mut Flights, receive: Posted) -> Option<u32> {
        let find = |peer: &Peer| {
            let mut before = NONE;
            let mut id = peer.first;
            while id != NONE {
                let flight = &flights.all[id as usize];
                if receive.takes(flight) {
                    return Some((flight.stamp, before, id));
                }
                (before, id) = (id, flight.next);
            }
            None
        };
        let found = if receive.from == ANY_SOURCE {
            self.peers.iter().enumerate().filter_map(|(place, peer)| Some((find(peer)?, place))).min()
        } else {
            let place = self.peers.binary_search_by_key(&receive.from, |peer| peer.rank);
            place.ok().and_then(|place| Some((find(&self.peers[place])?, place)))
        };
        let Some(((_, before, id), place)) = found else {
            self.posted.push(receive);
            return None;
        };
        let peer = &mut self.peers[place];
        let next = flights.flight(id).next;
        match before {
            NONE => peer.first = next,
            before => flights.flight(before).next = next,
        }
        if peer.last == id {
            peer.last = before;
        }
        Some(id)
    }

    /// Receives that no message has come for.
    pub(super) fn posted(&self) -> &[Posted] {
        &self.posted
    }

    /// The first message that no receive has taken.
    pub(super) fn unexpected<'f>(&self, flights: &'f Flights) -> Option<&'f Flight> {
        self.peers.iter().find(|peer| peer.first != NONE).map(|peer| &flights.all[peer.first as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Post {
        mailbox: Mailbox,
        senders: Vec<Mailbox>,
        flights: Flights,
    }

    impl Post {
        fn new() -> Self {
            let senders = (0..4).map(|_| Mailbox::default()).collect();
            Self { mailbox: Mailbox::default(), senders, flights: Flights::default() }
        }

        fn send(&mut self, source: u32, tag: i32, context: Context) -> u32 {
            let mut flight = Flight { source, tag, context, ..Flight::new(Kind::Eager, source, 9, 1) };
            self.senders[source as usize].number(&mut flight, 9);
            self.flights.add(flight)
        }

        fn arrive(&mut self, id: u32) -> Vec<(u32, u32)> {
            let mut matches = Vec::new();
            self.mailbox.arrive(&mut self.flights, id, &mut matches);
            matches
        }

        fn receive(&mut self, from: u32, tag: i32, context: Context, slot: u32) -> Option<u32> {
            self.mailbox.receive(&mut self.flights, Posted { from, tag, context, slot, record: 0 })
        }
    }

    const WORLD: Context = Context::program(0);

    #[test]
    fn a_message_never_overtakes_another_it_could_be_taken_for() {
        let mut it = Post::new();
        let [first, second, third] = [5, 5, 6].map(|tag| it.send(1, tag, WORLD));
        assert!(it.arrive(third).is_empty() && it.arrive(second).is_empty());
        assert_eq!(it.receive(1, 6, WORLD, 1), None, "what came too early is not there yet");
        assert_eq!(it.arrive(first), [(third, 1)], "the first frees the others, and the receive takes its own");
        assert_eq!(it.receive(1, 5, WORLD, 2), Some(first));
        assert_eq!(it.receive(1, ANY_TAG, WORLD, 3), Some(second));
    }

    #[test]
    fn any_source_takes_what_arrived_first() {
        let mut it = Post::new();
        let late = it.send(0, 1, WORLD);
        let early = it.send(3, 1, WORLD);
        let other = it.send(2, 2, WORLD);
        for id in [other, early, late] {
            assert!(it.arrive(id).is_empty());
        }
        assert_eq!(it.receive(ANY_SOURCE, 1, WORLD, 1), Some(early));
        assert_eq!(it.receive(ANY_SOURCE, ANY_TAG, WORLD, 1), Some(other));
        assert_eq!(it.receive(ANY_SOURCE, 1, WORLD, 1), Some(late));
        assert!(it.mailbox.unexpected(&it.flights).is_none());
    }

    #[test]
    fn receives_take_messages_in_the_order_they_were_posted_and_communicators_are_apart() {
        let mut it = Post::new();
        let other = Context::collective(0);
        assert_eq!(it.receive(1, 5, other, 1), None);
        assert_eq!(it.receive(ANY_SOURCE, ANY_TAG, WORLD, 2), None);
        assert_eq!(it.receive(1, 5, WORLD, 3), None);
        let ids = [0; 3].map(|_| it.send(1, 5, WORLD));
        assert_eq!(it.arrive(ids[0]), [(ids[0], 2)]);
        assert_eq!(it.arrive(ids[1]), [(ids[1], 3)]);
        assert!(it.arrive(ids[2]).is_empty());
        let collective = it.send(1, 5, other);
        assert_eq!(it.arrive(collective), [(collective, 1)]);
    }

    #[test]
    fn a_number_is_free_when_all_has_happened() {
        let mut flights = Flights::default();
        let id = flights.add(Flight::new(Kind::Eager, 0, 1, 1));
        flights.done(id, ARRIVE);
        flights.done(id, MATCH);
        assert_eq!(flights.under_way(), 1);
        flights.done(id, INJECT);
        assert_eq!(flights.under_way(), 0);
        assert_eq!(flights.add(Flight::new(Kind::Clear, 0, 1, 1)), id);
    }
}
