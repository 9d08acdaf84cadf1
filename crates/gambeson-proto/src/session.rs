//! One direction of a pair: its sequence, its epochs and the key of each (threat-model rule 2).
//!
//! The sequence counts records, from zero, and is never reset. An epoch is a key: it ends when it
//! has sealed as much as a key should, and the next begins with the next record. Since records are
//! taken in strictly consecutive order, the first record of an epoch states by its own sequence
//! what the last of the epoch before was; a deletion across the change shows like any other.

use crate::aead::Context;
use crate::key_cache::{CacheSlot, KeyCache};
use crate::key_schedule::Root;
use crate::suite::{Protection, Suite};

/// Sequences stay below this: the bit above tells a payload's nonce from its envelope's.
const SEQUENCE_LIMIT: u64 = 1 << 63;

/// How much one key may seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochLimits {
    /// Records.
    pub records: u64,
    /// Blocks of 16 bytes.
    pub blocks: u64,
}

impl Default for EpochLimits {
    fn default() -> Self {
        EpochLimits { records: 1 << 32, blocks: 1 << 34 }
    }
}

/// Epoch and sequence of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Which key.
    pub epoch: u32,
    /// Which nonce.
    pub sequence: u64,
}

/// Sequences or epochs are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// The epoch is neither the current nor the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRefused;

/// The sending end of a direction.
pub struct SendSession {
    keys: Keys,
    limits: EpochLimits,
    next: Stamp,
    /// Sealed in this epoch so far.
    records: u64,
    blocks: u64,
    slot: CacheSlot,
}

/// The receiving end of a direction.
pub struct ReceiveSession {
    keys: Keys,
    expected: Stamp,
    slot: CacheSlot,
    /// The next epoch's key, kept apart until a record proves that the epoch has begun, so that
    /// forged headers neither displace the current key nor cost more than one derivation.
    ahead: Option<Box<Context>>,
}

struct Keys {
    root: Root,
    suite: Suite,
    protection: Protection,
}

impl Keys {
    fn epoch(&self, epoch: u32) -> Context {
        self.root.epoch(epoch, self.suite, self.protection)
    }
}

impl SendSession {
    /// A direction at its beginning.
    pub fn new(root: Root, suite: Suite, protection: Protection, limits: EpochLimits) -> Self {
        let keys = Keys { root, suite, protection };
        SendSession { keys, limits, next: Stamp::default(), records: 0, blocks: 0, slot: CacheSlot::default() }
    }

    /// Takes `count` consecutive sequence numbers for records of `bytes` bytes in all, in one
    /// epoch; the epoch changes first when a limit would be passed. What is taken is used up.
    pub fn take(&mut self, count: u64, bytes: usize) -> Result<Stamp, Exhausted> {
        let blocks = (bytes as u64).div_ceil(16) + count;
        let full = self.records + count > self.limits.records || self.blocks + blocks > self.limits.blocks;
        if full && self.records > 0 {
            self.advance_epoch()?;
        }
        let sequence = self.next.sequence.checked_add(count).filter(|sequence| *sequence < SEQUENCE_LIMIT);
        let stamp = self.next;
        self.next.sequence = sequence.ok_or(Exhausted)?;
        self.records += count;
        self.blocks += blocks;
        Ok(stamp)
    }

    /// Begins the next epoch: the next record has a new key.
    pub fn advance_epoch(&mut self) -> Result<(), Exhausted> {
        self.next.epoch = self.next.epoch.checked_add(1).ok_or(Exhausted)?;
        (self.records, self.blocks) = (0, 0);
        Ok(())
    }

    /// The key of an epoch.
    pub fn context<'c>(&mut self, cache: &'c mut KeyCache, epoch: u32) -> &'c Context {
        let owner = self.keys.root.connection_id();
        cache.get_or_insert(&mut self.slot, owner, epoch, || self.keys.epoch(epoch))
    }

    /// Names the direction on the wire.
    pub fn connection_id(&self) -> u64 {
        self.keys.root.connection_id()
    }

    /// The sequence that the next record gets.
    pub fn next_sequence(&self) -> u64 {
        self.next.sequence
    }

    /// How often the key changed.
    pub fn rekeys(&self) -> u64 {
        self.next.epoch.into()
    }

    /// Drops the expanded key, not the sequence.
    pub fn evict(&mut self, cache: &mut KeyCache) {
        cache.evict(&mut self.slot, self.keys.root.connection_id());
    }
}

impl ReceiveSession {
    /// A direction at its beginning.
    pub fn new(root: Root, suite: Suite, protection: Protection) -> Self {
        let keys = Keys { root, suite, protection };
        ReceiveSession { keys, expected: Stamp::default(), slot: CacheSlot::default(), ahead: None }
    }

    /// The key for a record that claims `epoch`: the current one or the next.
    pub fn context<'c>(&'c mut self, cache: &'c mut KeyCache, epoch: u32) -> Result<&'c Context, EpochRefused> {
        let current = self.expected.epoch;
        if epoch == current {
            let owner = self.keys.root.connection_id();
            let keys = &self.keys;
            return Ok(cache.get_or_insert(&mut self.slot, owner, epoch, || keys.epoch(epoch)));
        }
        if current.checked_add(1) != Some(epoch) {
            return Err(EpochRefused);
        }
        let keys = &self.keys;
        Ok(self.ahead.get_or_insert_with(|| Box::new(keys.epoch(epoch))))
    }

    /// The sequence that the next record must have.
    pub fn expected(&self) -> u64 {
        self.expected.sequence
    }

    /// Takes `count` records from `stamp` on as received. Only for what is authentic and expected.
    pub fn accept(&mut self, stamp: Stamp, count: u64) {
        debug_assert_eq!(stamp.sequence, self.expected.sequence, "records are taken in order");
        if stamp.epoch != self.expected.epoch {
            self.ahead = None;
        }
        self.expected = Stamp { epoch: stamp.epoch, sequence: stamp.sequence + count };
    }

    /// Names the direction on the wire.
    pub fn connection_id(&self) -> u64 {
        self.keys.root.connection_id()
    }

    /// Drops the expanded keys, not the sequence.
    pub fn evict(&mut self, cache: &mut KeyCache) {
        cache.evict(&mut self.slot, self.keys.root.connection_id());
        self.ahead = None;
    }
}
