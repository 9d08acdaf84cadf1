//! The output side of a port: what waits there, on which lanes, and the credit for the buffer at the other end.

use super::packet::NONE;
use crate::time::Time;

/// Never.
pub(super) const NEVER: Time = Time::MAX;

/// One output: a cache line.
#[repr(align(64))]
pub(super) struct Port {
    /// When the packet that is being sent is over.
    pub(super) free_at: Time,
    /// When somebody looks after this port next.
    pub(super) wake_at: Time,
    /// Time in which it sent, in all.
    pub(super) busy: Time,
    /// The port at the other end of the link.
    pub(super) peer: u32,
    /// The switch there.
    pub(super) next_switch: u32,
    /// How many bytes more the lane whose turn it is may send.
    pub(super) budget: i32,
    /// Its first lane; most have one alone.
    pub(super) lane: Lane,
    /// Lanes on which something waits.
    pub(super) filled: u16,
    /// Those whose first packet found too little credit when it was looked at last.
    pub(super) blocked: u16,
    /// The lane whose turn it is.
    pub(super) turn: u8,
    /// Which of the fabric's rates the link has.
    pub(super) rate: u8,
}

impl Port {
    pub(super) fn new(peer: u32, next_switch: u32, lane: Lane, rate: u8) -> Self {
        let (free_at, wake_at, busy) = (0, NEVER, 0);
        Self { free_at, wake_at, busy, peer, next_switch, budget: 0, lane, filled: 0, blocked: 0, turn: 0, rate }
    }
}

/// Credit on its way back to an output: a cache line that the neighbours write, as the output itself seldom needs it.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct Returning {
    /// When it arrives.
    at: [Time; AT_HAND],
    /// What the others do not hold: when it arrives, for which lane, bytes.
    more: Vec<(Time, u8, u16)>,
    bytes: [u16; AT_HAND],
    /// What [`Port::blocked`] says.
    pub(super) waited_for: u16,
    lane: [u8; AT_HAND],
    count: u8,
}

const AT_HAND: usize = 3;

impl Returning {
    /// Adds what arrives at `at`; `count` is told what has arrived meanwhile.
    #[inline]
    pub(super) fn push(&mut self, now: Time, at: Time, lane: u8, bytes: u16, count: impl FnMut(u8, u16)) {
        if usize::from(self.count) == AT_HAND {
            self.collect(now, count);
            if usize::from(self.count) == AT_HAND {
                return self.more.push((at, lane, bytes));
            }
        }
        let place = usize::from(self.count);
        (self.at[place], self.lane[place], self.bytes[place]) = (at, lane, bytes);
        self.count += 1;
    }

    /// Has what has arrived counted, by lane and bytes. When that is done makes no difference, as long as it is before too
    /// little is found.
    #[inline]
    pub(super) fn collect(&mut self, now: Time, mut count: impl FnMut(u8, u16)) {
        let mut kept = 0;
        for place in 0..usize::from(self.count) {
            let (at, lane, bytes) = (self.at[place], self.lane[place], self.bytes[place]);
            if at <= now {
                count(lane, bytes);
            } else {
                (self.at[kept], self.lane[kept], self.bytes[kept]) = (at, lane, bytes);
                kept += 1;
            }
        }
        self.count = kept as u8;
        if !self.more.is_empty() {
            self.more.retain(|&(at, lane, bytes)| {
                let there = at <= now;
                if there {
                    count(lane, bytes);
                }
                !there
            });
        }
    }

    /// When the next of what has not been counted arrives.
    pub(super) fn soonest(&self) -> Option<Time> {
        self.all().map(|(at, ..)| at).min()
    }

    /// When it arrives, for which lane, bytes.
    pub(super) fn all(&self) -> impl Iterator<Item = (Time, u8, u16)> {
        let at_hand = (0..usize::from(self.count)).map(|place| (self.at[place], self.lane[place], self.bytes[place]));
        at_hand.chain(self.more.iter().copied())
    }

    /// Reads its line of memory.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.at[0]
    }
}

/// One lane of an output.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    /// Room in the buffer at the other end.
    pub(super) credit: u32,
    /// Bytes that wait here, or will before long.
    pub(super) queued: u32,
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Lane {
    pub(super) fn new(credit: u32) -> Self {
        Self { credit, queued: 0, first: NONE, last: NONE }
    }
}

/// Where the lanes of a port are: the first in its own line of memory, the others in a table.
#[inline]
pub(super) fn lane<'l>(
    port: &'l mut Port,
    others: &'l mut [Lane],
    index: usize,
    lanes: usize,
    lane: usize,
) -> &'l mut Lane {
    if lane == 0 { &mut port.lane } else { &mut others[index * (lanes - 1) + lane - 1] }
}

/// The packets of one input's lane, where they wait in one queue.
#[derive(Clone, Copy)]
pub(super) struct Input {
    pub(super) first: u32,
    pub(super) last: u32,
}
