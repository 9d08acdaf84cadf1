//! The session-key cache: expanded keys of the pairs in use, inline and bounded (session-key-cache
//! paper, section 3; sizes in docs/performance.md).
//!
//! A session keeps the number of its slot, so a hit is one comparison of owner and epoch; a miss
//! derives the key anew from the session's root. There is no other index: slots never move, so the
//! number misleads only when the slot was given to another session, and then owner and epoch
//! differ. Eviction (CLOCK) drops nothing but the expanded key: sequences and epochs are the
//! sessions' own (threat-model rules 2 and 3).

use crate::aead::Context;

/// A bounded set of expanded keys.
pub struct KeyCache {
    slots: Box<[Slot]>,
    hand: usize,
    stats: CacheStats,
}

/// All zero, as a forked child finds it, is an empty slot. Begins a cache line, as contexts of
/// neighbours are used by nobody at the same time.
#[repr(align(64))]
struct Slot {
    context: Context,
    owner: u64,
    epoch: u32,
    used: bool,
}

impl Slot {
    const EMPTY: Slot = Slot { context: Context::NONE, owner: 0, epoch: 0, used: false };

    fn is_of(&self, owner: u64) -> bool {
        self.owner == owner && !self.context.is_none()
    }
}

/// Where a session's key stood last.
#[derive(Clone, Copy, Debug)]
pub struct CacheSlot(u32);

impl Default for CacheSlot {
    fn default() -> Self {
        CacheSlot(u32::MAX)
    }
}

/// What the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Look-ups that found their key.
    pub hits: u64,
    /// Look-ups that had to derive it.
    pub misses: u64,
    /// Keys that made room for others.
    pub evictions: u64,
}

impl KeyCache {
    /// A cache of `capacity` keys, at least one; it never grows.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, u32::MAX as usize);
        let slots = std::iter::repeat_with(|| Slot::EMPTY).take(capacity).collect();
        KeyCache { slots, hand: 0, stats: CacheStats::default() }
    }

    /// The key of `owner` and `epoch`; when it is not there, `make` expands it into its place.
    pub fn get_or_insert(
        &mut self,
        slot: &mut CacheSlot,
        owner: u64,
        epoch: u32,
        make: impl FnOnce(&mut Context),
    ) -> &Context {
        let hint = slot.0 as usize;
        let own = self.slots.get(hint).is_some_and(|entry| entry.is_of(owner));
        let index = if own && self.slots[hint].epoch == epoch {
            self.stats.hits += 1;
            hint
        } else {
            self.stats.misses += 1;
            // The key of the same session's epoch before is of no more use.
            let index = if own { hint } else { self.free_slot() };
            slot.0 = index as u32;
            let entry = &mut self.slots[index];
            // Should `make` unwind, the slot is empty.
            entry.context.wipe();
            make(&mut entry.context);
            (entry.owner, entry.epoch) = (owner, epoch);
            index
        };
        let entry = &mut self.slots[index];
        entry.used = true;
        &entry.context
    }

    /// Drops a session's key.
    pub fn evict(&mut self, slot: &mut CacheSlot, owner: u64) {
        if let Some(entry) = self.slots.get_mut(slot.0 as usize).filter(|entry| entry.is_of(owner)) {
            entry.context.wipe();
        }
        *slot = CacheSlot::default();
    }

    /// What the cache did so far.
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    fn free_slot(&mut self) -> usize {
        loop {
            let index = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let entry = &mut self.slots[index];
            if entry.context.is_none() {
                return index;
            }
            if !std::mem::take(&mut entry.used) {
                self.stats.evictions += 1;
                return index;
            }
        }
    }
}
