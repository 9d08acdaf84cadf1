//! Packets, and the table of those under way.

use crate::time::Time;

/// No packet.
pub(super) const NONE: u32 = u32::MAX;

/// A packet under way.
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
    /// The port whose buffer it is in.
    pub(super) port: u32,
    /// The port it waits for.
    pub(super) out: u32,
    pub(super) next: u32,
    pub(super) next_in: u32,
    /// Its length on the link.
    pub bytes: u16,
    /// Partition key.
    pub p_key: u16,
    /// Class of traffic.
    pub class: u8,
    /// Lane of the buffer it is in, and of the one it goes to.
    pub(super) lane: u8,
    pub(super) out_lane: u8,
    /// Links it has crossed.
    pub hops: u8,
    /// The process on its node that sends it, and the one that gets it.
    pub owners: [u16; 2],
    /// Whether the traffic wants to hear when its last byte has left the adapter.
    pub last: bool,
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
    /// Whether to call [`Traffic::left`](super::Traffic::left).
    pub last: bool,
}

impl Packet {
    pub(super) fn new(now: Time, send: &Send) -> Self {
        let &Send { from, to, claimed, bytes, token, key, p_key, class, owners, last } = send;
        Packet {
            created: now,
            key,
            from,
            to,
            claimed: claimed.unwrap_or(from),
            token,
            mark: 0,
            port: from,
            out: from,
            next: NONE,
            next_in: NONE,
            bytes,
            p_key,
            class,
            lane: 0,
            out_lane: 0,
            hops: 0,
            owners,
            last,
        }
    }
}

/// A table whose places are used anew.
#[derive(Default)]
pub(super) struct Packets {
    places: Vec<Packet>,
    free: Vec<u32>,
}

impl Packets {
    pub(super) fn put(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = packet;
                place
            }
            None => {
                self.places.push(packet);
                self.places.len() as u32 - 1
            }
        }
    }

    pub(super) fn take(&mut self, place: u32) -> Packet {
        self.free.push(place);
        self.places[place as usize]
    }

    /// Packets under way.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl std::ops::Index<u32> for Packets {
    type Output = Packet;

    #[inline]
    fn index(&self, place: u32) -> &Packet {
        &self.places[place as usize]
    }
}

impl std::ops::IndexMut<u32> for Packets {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut Packet {
        &mut self.places[place as usize]
    }
}
