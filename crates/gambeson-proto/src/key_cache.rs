//! The session-key cache: expanded keys of the pairs in use, inline and bounded (session-key-cache
//! paper, section 3; sizes in docs/performance.md).
//!
//! A session keeps the number of its slot, so a hit is one comparison; a miss derives the key anew
//! from the session's root. Eviction (CLOCK) drops nothing but the expanded key.

use crate::aead::Context;

/// A bounded set of expanded keys.
pub struct KeyCache {
    slots: Box<[Slot]>,
    hand: usize,
    stats: CacheStats,
}

struct Slot {
    owner: u64,
    epoch: u32,
    used: bool,
    context: Option<Context>,
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
        let slot = || Slot { owner: 0, epoch: 0, used: false, context: None };
        let slots = std::iter::repeat_with(slot).take(capacity.max(1)).collect();
        KeyCache { slots, hand: 0, stats: CacheStats::default() }
    }

    /// The key of `owner` and `epoch`, derived with `make` when it is not there.
    pub fn get_or_insert(
        &mut self,
        slot: &mut CacheSlot,
        owner: u64,
        epoch: u32,
        make: impl FnOnce() -> Context,
    ) -> &Context {
        let index = slot.0 as usize;
        let hit = self
            .slots
            .get(index)
            .is_some_and(|entry| entry.owner == owner && entry.epoch == epoch && entry.context.is_some());
        let index = if hit {
            self.stats.hits += 1;
            index
        } else {
            self.stats.misses += 1;
            let index = self.free_slot();
            slot.0 = index as u32;
            self.slots[index] = Slot { owner, epoch, used: true, context: Some(make()) };
            index
        };
        let entry = &mut self.slots[index];
        entry.used = true;
        entry.context.as_ref().expect("the slot was found or filled")
    }

    /// Drops a session's key.
    pub fn evict(&mut self, slot: &mut CacheSlot, owner: u64) {
        if let Some(entry) = self.slots.get_mut(slot.0 as usize).filter(|entry| entry.owner == owner) {
            entry.context = None;
            entry.used = false;
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
