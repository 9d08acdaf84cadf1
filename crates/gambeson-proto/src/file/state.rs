//! What the header says of the file's contents: it changes at every open and close.
//!
//! ```text
//!  serial u64 | generation u64 | status u8 | size u64 | root 32 | closed generation u64
//!  | base u64
//! ```

use super::codec::Reader;
use super::{Digest, context};

/// Bytes of a state.
pub const STATE_LEN: usize = 73;

/// Whether somebody is writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Closed: size and root are those of all that is there.
    Closed = 1,
    /// Open, or never closed: size and root are those of the last close.
    Open = 2,
}

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Counts what was written of the header: of two copies the one of the greater serial counts.
    pub serial: u64,
    /// The session: raised by every opening for writing, from 1 on, and by every sync.
    pub generation: u64,
    /// Whether somebody is writing.
    pub status: Status,
    /// The program's bytes, as of the last close.
    pub size: u64,
    /// The root of the tree over the entries, as of the last close.
    pub root: Digest,
    /// The generation of the last close; 0 for a file that never was closed. A closed file's generation.
    pub closed: u64,
    /// Sessions that are open, or never were closed, are of later generations than this one. A closed file's generation.
    pub base: u64,
}

impl State {
    /// Its bytes.
    pub fn encode(&self) -> [u8; STATE_LEN] {
        let mut bytes = [0; STATE_LEN];
        bytes[..8].copy_from_slice(&self.serial.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.generation.to_be_bytes());
        bytes[16] = self.status as u8;
        bytes[17..25].copy_from_slice(&self.size.to_be_bytes());
        bytes[25..57].copy_from_slice(&self.root);
        bytes[57..65].copy_from_slice(&self.closed.to_be_bytes());
        bytes[65..].copy_from_slice(&self.base.to_be_bytes());
        bytes
    }

    /// The state that bytes are, if they are one.
    pub fn decode(bytes: &[u8; STATE_LEN]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let state = State {
            serial: reader.u64()?,
            generation: reader.u64()?,
            status: match reader.u8()? {
                1 => Status::Closed,
                2 => Status::Open,
                _ => return None,
            },
            size: reader.u64()?,
            root: reader.array()?,
            closed: reader.u64()?,
            base: reader.u64()?,
        };
        state.is_legal().then_some(state)
    }

    /// Whether its numbers agree with each other.
    pub fn is_legal(&self) -> bool {
        let generations = match self.status {
            Status::Closed => self.closed == self.generation && self.base == self.generation,
            Status::Open => self.closed < self.generation && self.base < self.generation,
        };
        self.serial > 0 && self.generation > 0 && generations && i64::try_from(self.size).is_ok()
    }

    /// What a label signs of it, for a table.
    pub fn message(&self, table: &Digest) -> Vec<u8> {
        context::state(table, &self.encode())
    }
}
