//! What a slot, and the entry table, say of one share.
//!
//! ```text
//!  nonce 24 | tag 16 | generation u64 | length u32 | epoch u16 | suite u8 | flags u8, zero | zero 8
//! ```
//! All zero is a hole: nobody wrote the share, and it reads as zeros. A hole is believed only where the tree says so.

use super::FileSuite;
use super::codec::Reader;
use super::geometry::BLOCK_LEN_MAX;
use crate::aead::{TAG_LEN, Tag};

/// Bytes of an entry.
pub const ENTRY_LEN: usize = 64;
/// Bytes of a nonce.
pub const NONCE_LEN: usize = 24;
/// 24 random bytes.
pub type Nonce = [u8; NONCE_LEN];

/// How a share is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it was sealed with.
    pub nonce: Nonce,
    /// What authenticates it; zero under a suite without integrity.
    pub tag: Tag,
    /// The session that wrote it.
    pub generation: u64,
    /// Bytes from the share's start that are sealed, at least one. Those behind are zeros that nobody wrote.
    pub length: u32,
    /// Which of the region's keys.
    pub epoch: u16,
    /// The region's suite.
    pub suite: FileSuite,
}

/// What 64 bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Nobody wrote the share.
    Hole,
    /// Somebody did.
    Entry(Entry),
    /// Nothing that a writer leaves.
    Malformed,
}

impl Entry {
    /// Its bytes.
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..24].copy_from_slice(&self.nonce);
        bytes[24..40].copy_from_slice(&self.tag);
        bytes[40..48].copy_from_slice(&self.generation.to_be_bytes());
        bytes[48..52].copy_from_slice(&self.length.to_be_bytes());
        bytes[52..54].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[54] = self.suite as u8;
        bytes
    }

    /// What bytes are.
    pub fn decode(bytes: &[u8; ENTRY_LEN]) -> Decoded {
        if *bytes == HOLE {
            return Decoded::Hole;
        }
        Self::parse(bytes).map_or(Decoded::Malformed, Decoded::Entry)
    }

    fn parse(bytes: &[u8; ENTRY_LEN]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let entry = Entry {
            nonce: reader.array()?,
            tag: reader.array()?,
            generation: reader.u64()?,
            length: reader.u32()?,
            epoch: reader.u16()?,
            suite: FileSuite::from_number(reader.u8()?)?,
        };
        (reader.0 == [0; 9] && entry.is_legal()).then_some(entry)
    }

    pub(super) fn is_legal(&self) -> bool {
        self.generation > 0
            && (1..=BLOCK_LEN_MAX).contains(&self.length)
            && (self.suite.has_integrity() || self.tag == [0; TAG_LEN])
    }
}

impl Decoded {
    /// The entry, if there is one.
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            Decoded::Entry(entry) => Some(entry),
            _ => None,
        }
    }
}

/// The bytes of a hole.
pub const HOLE: [u8; ENTRY_LEN] = [0; ENTRY_LEN];
