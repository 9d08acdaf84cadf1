//! Packets, and the table of those under way.

use crate::memory;
use crate::time::Time;
use crate::transport::Transport;

/// No packet.
pub(super) const NONE: u32 = u32::MAX;

/// A packet, as the traffic sees it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// When it was handed to the adapter.
    pub created: Time,
    /// The key that it is sealed under.
    pub key: u64,
    /// Who sends it.
    pub from: u32,
    /// Who gets it.
    pub to: u32,
    /// Who its headers say sends it.
    pub claimed: u32,
    /// Whatever the traffic wants to know it by.
    pub token: u32,
    /// What its switches write into it for whoever traces it.
    pub mark: u64,
    /// Its length on the link.
    pub bytes: u16,
    /// Partition key.
    pub p_key: u16,
    /// Class of traffic.
    pub class: u8,
    /// Links it has crossed.
    pub hops: u32,
    /// The process on its node that sends it, and the one that gets it.
    pub owners: [u16; 2],
}

/// What switches need of a packet under way: a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Header {
    pub(super) mark: u64,
    pub(super) to: u32,
    /// The port that sent it last.
    pub(super) sender: u32,
    /// The port whose buffer it is in, and the switch of that; none while it is at its sender.
    pub(super) port: u32,
    pub(super) switch: u32,
    /// The port it waits for.
    pub(super) out: u32,
    pub(super) next: u32,
    pub(super) next_in: u32,
    pub(super) token: u32,
    pub(super) bytes: u16,
    pub(super) p_key: u16,
    /// Switches yet to come that have it leave by the same port of theirs, and that port.
    pub(super) leg: u16,
    pub(super) leg_port: u16,
    /// The group of a dragonfly by way of which adaptive routing has it go, once that is decided.
    pub(super) via: u32,
    /// Lane of the buffer it is in, and of the one it goes to.
    pub(super) lane: u8,
    pub(super) out_lane: u8,
    pub(super) class: u8,
    pub(super) hops: u32,
    /// Length of the acknowledgement that its receiver's adapter sends back; 0 for none.
    pub(super) acknowledgement: u16,
    /// Whether the traffic wants to hear when its last byte has left the adapter, or its acknowledgement is there.
    pub(super) last: bool,
    /// Whether it is such an acknowledgement.
    pub(super) acknowledges: bool,
}

const _: () = assert!(size_of::<Header>() == 64, "one cache line");

/// What only its ends need.
#[derive(Clone, Copy)]
struct Body {
    created: Time,
    key: u64,
    from: u32,
    claimed: u32,
    owners: [u16; 2],
}

/// What the traffic says of a packet that it sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Send {
    /// The sending node.
    pub from: u32,
    /// The receiving node, another one.
    pub to: u32,
    /// The node that the headers name as the sender, where that is not the truth.
    pub claimed: Option<u32>,
    /// Its length on the link.
    pub bytes: u16,
    /// Whatever the traffic wants to know it by.
    pub token: u32,
    /// The key that it is sealed under.
    pub key: u64,
    /// Partition key.
    pub p_key: u16,
    /// Class of traffic.
    pub class: u8,
    /// The process on its node that sends it, and the one that gets it.
    pub owners: [u16; 2],
    /// What its queue pairs promise. Its headers are in `bytes` already.
    pub transport: Transport,
    /// Whether it asks for an acknowledgement, as the last packet of a message does, if its service has them.
    pub acknowledge: bool,
    /// Whether to call [`Traffic::left`](super::Traffic::left).
    pub last: bool,
}

/// A table whose places are used anew.
#[derive(Default)]
pub(super) struct Packets {
    headers: Vec<Header>,
    bodies: Vec<Body>,
    free: Vec<u32>,
}

impl Packets {
    pub(super) fn put(&mut self, now: Time, send: &Send) -> u32 {
        let &Send { from, to, claimed, bytes, token, key, p_key, class, owners, transport, acknowledge, last } = send;
        let header = Header {
            mark: 0,
            to,
            sender: from,
            port: NONE,
            switch: NONE,
            out: from,
            next: NONE,
            next_in: NONE,
            token,
            bytes,
            p_key,
            leg: 0,
            leg_port: 0,
            via: NONE,
            lane: 0,
            out_lane: 0,
            class,
            hops: 0,
            acknowledgement: if acknowledge { transport.acknowledgement() as u16 } else { 0 },
            last,
            acknowledges: false,
        };
        let body = Body { created: now, key, from, claimed: claimed.unwrap_or(from), owners };
        match self.free.pop() {
            Some(place) => {
                self.headers[place as usize] = header;
                self.bodies[place as usize] = body;
                place
            }
            None => {
                if self.headers.len() == self.headers.capacity() {
                    memory::reserve(&mut self.headers, 1);
                }
                self.headers.push(header);
                self.bodies.push(body);
                self.headers.len() as u32 - 1
            }
        }
    }

    /// The answer to a packet, from the node that got it to the one that it says it is from.
    pub(super) fn acknowledge(&mut self, now: Time, packet: &Packet, bytes: u16, last: bool) -> u32 {
        let &Packet { to, claimed, token, key, p_key, class, owners, .. } = packet;
        let send = Send {
            from: to,
            to: claimed,
            bytes,
            token,
            key,
            p_key,
            class,
            owners: [owners[1], owners[0]],
            last,
            ..Send::default()
        };
        let answer = self.put(now, &send);
        self[answer].acknowledges = true;
        answer
    }

    /// All of a packet.
    pub(super) fn whole(&self, place: u32) -> Packet {
        let Header { mark, to, token, bytes, p_key, class, hops, .. } = self[place];
        let Body { created, key, from, claimed, owners } = self.bodies[place as usize];
        Packet { created, key, from, to, claimed, token, mark, bytes, p_key, class, hops, owners }
    }

    pub(super) fn take(&mut self, place: u32) -> Packet {
        self.free.push(place);
        self.whole(place)
    }

    /// Packets under way.
    pub(super) fn len(&self) -> usize {
        self.headers.len() - self.free.len()
    }
}

impl std::ops::Index<u32> for Packets {
    type Output = Header;

    #[inline]
    fn index(&self, place: u32) -> &Header {
        &self.headers[place as usize]
    }
}

impl std::ops::IndexMut<u32> for Packets {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut Header {
        &mut self.headers[place as usize]
    }
}
