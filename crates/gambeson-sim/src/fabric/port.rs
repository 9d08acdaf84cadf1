//! The output side of a port: what waits there, on which lanes, and the credit for the buffer at the other end.

use super::packet::NONE;
use crate::time::Time;

/// Never.
pub(super) const NEVER: Time = Time::MAX;

/// One output: a cache line.
#[repr(align(64))]
pub(super) struct Port {
    /// The port at the other end of the link.
    pub(super) peer: u32,
    /// When the packet that is being sent is over.
    pub(super) free_at: Time,
    /// When somebody looks after this port next.
    pub(super) wake_at: Time,
    /// Time in which it sent, in all.
    pub(super) busy: Time,
    /// Lanes on which something waits.
    pub(super) filled: u16,
    /// Those whose first packet found too little credit when it was looked at last.
    pub(super) blocked: u16,
    /// The lane whose turn it is, and how many bytes more it may send in this turn.
    pub(super) turn: u8,
    pub(super) budget: i32,
    /// Credit on its way back: when it arrives, for which lane, bytes.
    pub(super) returning: Vec<(Time, u8, u16)>,
}

impl Port {
    pub(super) fn new(peer: u32) -> Self {
        Self {
            peer,
            free_at: 0,
            wake_at: NEVER,
            busy: 0,
            filled: 0,
            blocked: 0,
            turn: 0,
            budget: 0,
            returning: Vec::new(),
        }
    }
}

/// One lane of an output.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    /// Room in the buffer at the other end.
    pub(super) credit: u32,
    /// Bytes that wait here.
    pub(super) queued: u32,
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Lane {
    pub(super) fn new(credit: u32) -> Self {
        Self { credit, queued: 0, first: NONE, last: NONE }
    }
}

/// The packets of one input's lane, where they wait in one queue.
#[derive(Clone, Copy)]
pub(super) struct Input {
    pub(super) first: u32,
    pub(super) last: u32,
}
