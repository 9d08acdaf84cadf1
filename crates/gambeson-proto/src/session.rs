//! One direction of a pair: its sequence, its epochs and the key of each (threat-model rule 2).
//!
//! The sequence counts records, from zero, and is never reset. An epoch is a key: it ends when it
//! has sealed as much as a key should, and the next begins with the next record. Since records are
//! taken in strictly consecutive order, the first record of an epoch states by its own sequence
//! what the last of the epoch before was; a deletion across the change shows like any other. For
//! the same reason every epoch has a record: one that sealed nothing does not end.
//!
//! Nothing resets a sequence: no new epoch, no eviction from the key cache, no removal of the peer
//! (a session goes on when its peer comes back). What was taken cannot be put back.
//!
//! A header that is not authenticated moves nothing. It may claim the current epoch or the next;
//! the next one's key is derived once and kept until it is needed, however many forgeries come.

use gambeson_pages::PageBox;

use crate::aead::Context;
use crate::key_cache::{CacheSlot, KeyCache};
use crate::key_schedule::Root;
use crate::suite::{Protection, Suite};

/// Sequences stay below this: the bit above tells a payload's nonce from its envelope's.
const SEQUENCE_LIMIT: u64 = 1 << 63;

/// How much one key may seal before the next takes its place. Nothing raises that above
/// [`EpochLimits::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochLimits {
    /// Records, up to 2^32.
    pub records: u64,
    /// Blocks of 16 bytes, up to 2^34.
    pub blocks: u64,
}

impl EpochLimits {
    fn allow(&self, records: u64, blocks: u64) -> bool {
        records <= self.records && blocks <= self.blocks
    }
}

impl Default for EpochLimits {
    fn default() -> Self {
        EpochLimits { records: 1 << 32, blocks: 1 << 34 }
    }
}

/// What a pair without protection has in place of a key. Whatever would use it panics.
static NO_KEY: Context = Context::NONE;

/// Epoch and sequence of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Which key.
    pub epoch: u32,
    /// Which nonce.
    pub sequence: u64,
}

/// Sequences or epochs are used up, or more was asked for at once than any key may seal.
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
}

/// The receiving end of a direction.
pub struct ReceiveSession {
    keys: Keys,
    expected: Stamp,
    /// The next epoch's key, kept apart until a record proves that the epoch has begun, so that
    /// forged headers neither displace the current key nor cost more than one derivation, but where frames have two
    /// protections in turn.
    ahead: Option<PageBox<Context>>,
}

struct Keys {
    root: Root,
    /// Where the cache has the key of the epoch.
    slot: CacheSlot,
    suite: Suite,
    protection: Protection,
    /// Of a receiving end: what the key of the next epoch that is kept is for.
    ahead: Protection,
}

/// Tells the owner of integrity's key in the cache from that of privacy's; ids are uniformly random.
const INTEGRITY: u64 = 0x696e_7465_6772_6974;

impl Keys {
    fn new(root: Root, suite: Suite, protection: Protection) -> Self {
        Keys { root, slot: CacheSlot::default(), suite, protection, ahead: protection }
    }

    /// The key of an epoch, from the cache.
    fn cached<'c>(
        &mut self,
        other: &mut CacheSlot,
        cache: &'c mut KeyCache,
        epoch: u32,
        protection: Protection,
    ) -> &'c Context {
        let owner = self.owner(protection);
        let Keys { root, slot, suite, .. } = self;
        let slot = if protection == self.protection { slot } else { other };
        cache.get_or_insert(slot, owner, epoch, |context| root.install(epoch, *suite, protection, context))
    }

    fn owner(&self, protection: Protection) -> u64 {
        let mark = if protection == Protection::Integrity { INTEGRITY } else { 0 };
        self.root.connection_id() ^ mark
    }

    fn evict(&mut self, cache: &mut KeyCache) {
        let owner = self.owner(self.protection);
        cache.evict(&mut self.slot, owner);
    }
}

impl SendSession {
    /// A direction at its beginning.
    pub fn new(root: Root, suite: Suite, protection: Protection, limits: EpochLimits) -> Self {
        let keys = Keys::new(root, suite, protection);
        let most = EpochLimits::default();
        let limits = EpochLimits { records: limits.records.min(most.records), blocks: limits.blocks.min(most.blocks) };
        SendSession { keys, limits, next: Stamp::default(), records: 0, blocks: 0 }
    }

    /// Takes `count` consecutive sequence numbers for records of `bytes` bytes in all, in one
    /// epoch; the epoch changes first when a limit would be passed. What is taken is used up.
    ///
    /// On failure nothing has changed. A single request above the session's own limits gets an
    /// epoch to itself, above the default limits it is refused.
    pub fn take(&mut self, count: u64, bytes: usize) -> Result<Stamp, Exhausted> {
        assert!(count > 0, "a stamp without a record would be the next one's twin");
        let sequence = self.next.sequence;
        let after = sequence.checked_add(count).filter(|after| *after <= SEQUENCE_LIMIT).ok_or(Exhausted)?;
        // Every record has two blocks more: one that masks the tag, one begun by its last bytes.
        let blocks = (bytes as u64).div_ceil(16).saturating_add(count.saturating_mul(2));
        if !EpochLimits::default().allow(count, blocks) {
            return Err(Exhausted);
        }
        if !self.limits.allow(self.records + count, self.blocks + blocks) {
            self.advance_epoch()?;
        }
        self.next.sequence = after;
        self.records += count;
        self.blocks += blocks;
        Ok(Stamp { epoch: self.next.epoch, sequence })
    }

    /// Begins the next epoch, unless this one has no record yet: the next record has a new key.
    pub fn advance_epoch(&mut self) -> Result<(), Exhausted> {
        if self.records > 0 {
            self.next.epoch = self.next.epoch.checked_add(1).ok_or(Exhausted)?;
            (self.records, self.blocks) = (0, 0);
        }
        Ok(())
    }

    /// The key of an epoch.
    pub fn context<'c>(&mut self, cache: &'c mut KeyCache, epoch: u32) -> &'c Context {
        self.context_of(&mut CacheSlot::default(), cache, epoch, self.keys.protection)
    }

    /// The key of an epoch for a protection that may be another than the direction's own; `slot` is where the cache has
    /// that.
    pub fn context_of<'c>(
        &mut self,
        slot: &mut CacheSlot,
        cache: &'c mut KeyCache,
        epoch: u32,
        protection: Protection,
    ) -> &'c Context {
        if protection == Protection::None {
            return &NO_KEY;
        }
        self.keys.cached(slot, cache, epoch, protection)
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

    /// Drops the expanded keys, not the sequence.
    pub fn evict(&mut self, cache: &mut KeyCache) {
        self.keys.evict(cache);
    }
}

impl ReceiveSession {
    /// A direction at its beginning.
    pub fn new(root: Root, suite: Suite, protection: Protection) -> Self {
        let keys = Keys::new(root, suite, protection);
        ReceiveSession { keys, expected: Stamp::default(), ahead: None }
    }

    /// The key for a record that claims `epoch`: the current one or the next.
    pub fn context<'c>(&'c mut self, cache: &'c mut KeyCache, epoch: u32) -> Result<&'c Context, EpochRefused> {
        self.context_of(&mut CacheSlot::default(), cache, epoch, self.keys.protection)
    }

    /// The same for a protection that may be another than the direction's own; `slot` is where the cache has that.
    pub fn context_of<'c>(
        &'c mut self,
        slot: &mut CacheSlot,
        cache: &'c mut KeyCache,
        epoch: u32,
        protection: Protection,
    ) -> Result<&'c Context, EpochRefused> {
        let current = self.expected.epoch;
        let is_next = current.checked_add(1) == Some(epoch);
        if epoch != current && !is_next {
            return Err(EpochRefused);
        }
        if protection == Protection::None {
            return Ok(&NO_KEY);
        }
        if !is_next {
            return Ok(self.keys.cached(slot, cache, epoch, protection));
        }
        if self.keys.ahead != protection {
            (self.ahead, self.keys.ahead) = (None, protection);
        }
        let keys = &self.keys;
        let ahead = self.ahead.get_or_insert_with(|| {
            let mut ahead = PageBox::zeroed();
            keys.root.install(epoch, keys.suite, protection, &mut ahead);
            ahead
        });
        Ok(ahead)
    }

    /// The sequence that the next record must have.
    pub fn expected(&self) -> u64 {
        self.expected.sequence
    }

    /// Takes `count` records from `stamp` on as received. Only for what is authentic and expected.
    pub fn accept(&mut self, stamp: Stamp, count: u64) {
        assert_eq!(stamp.sequence, self.expected.sequence, "records are taken in order");
        match stamp.epoch.checked_sub(self.expected.epoch) {
            Some(0) => {}
            Some(1) => self.ahead = None,
            _ => panic!("epochs are taken in order"),
        }
        self.expected = Stamp { epoch: stamp.epoch, sequence: stamp.sequence + count };
    }

    /// Names the direction on the wire.
    pub fn connection_id(&self) -> u64 {
        self.keys.root.connection_id()
    }

    /// Drops the expanded keys, not the sequence.
    pub fn evict(&mut self, cache: &mut KeyCache) {
        self.keys.evict(cache);
        self.ahead = None;
    }
}

#[cfg(test)]
mod tests;
