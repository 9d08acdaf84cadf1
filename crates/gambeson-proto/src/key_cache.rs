//! The session-key cache: expanded keys of the pairs in use, inline and bounded (session-key-cache
//! paper, section 3).
//!
//! A session keeps the number of its slot, so a hit is one comparison of owner and epoch; a miss
//! derives the key anew from the session's root. There is no other index: slots never move, so the
//! number misleads only when the slot was given to another session, and then owner and epoch
//! differ. Eviction (CLOCK) drops nothing but the expanded key: sequences and epochs are the
//! sessions' own (threat-model rules 2 and 3).

use gambeson_pages::{PageSlice, wipeable};

use crate::aead::Context;

/// A bounded set of expanded keys.
pub struct KeyCache {
    slots: PageSlice<Slot>,
    hand: usize,
    stats: CacheStats,
}

wipeable! {
    /// All zero, as a forked child finds it, is an empty slot. Begins a cache line, as contexts of
    /// neighbours are used by nobody at the same time.
    #[repr(align(64))]
    struct Slot {
        context: Context,
        owner: u64,
        epoch: u32,
        used: bool,
    }
}

impl Slot {
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
        KeyCache { slots: PageSlice::zeroed(capacity), hand: 0, stats: CacheStats::default() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;

    /// The key that an owner has in an epoch, as far as these tests are concerned.
    fn make(owner: u64, epoch: u32) -> impl FnOnce(&mut Context) {
        move |context| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&owner.to_le_bytes());
            key[8..12].copy_from_slice(&epoch.to_le_bytes());
            context.install(Suite::Aes256Gcm, &key, [0; 12]);
        }
    }

    fn check(cache: &mut KeyCache, slot: &mut CacheSlot, owner: u64, epoch: u32) {
        let mut right = Context::NONE;
        make(owner, epoch)(&mut right);
        let found = cache.get_or_insert(slot, owner, epoch, make(owner, epoch));
        assert_eq!(found.mac(0, b""), right.mac(0, b""), "owner {owner}, epoch {epoch}");
    }

    fn stats(hits: u64, misses: u64, evictions: u64) -> CacheStats {
        CacheStats { hits, misses, evictions }
    }

    #[test]
    fn a_key_is_derived_once_while_there_is_room() {
        let mut cache = KeyCache::new(4);
        let mut slots = [CacheSlot::default(); 4];
        for _ in 0..3 {
            for (owner, slot) in slots.iter_mut().enumerate() {
                check(&mut cache, slot, owner as u64, 0);
            }
        }
        assert_eq!(cache.stats(), stats(8, 4, 0));
    }

    #[test]
    fn a_new_epoch_takes_the_place_of_the_one_before() {
        let mut cache = KeyCache::new(2);
        let (mut one, mut two) = (CacheSlot::default(), CacheSlot::default());
        check(&mut cache, &mut two, 2, 0);
        for epoch in 0..10 {
            check(&mut cache, &mut one, 1, epoch);
        }
        check(&mut cache, &mut two, 2, 0);
        assert_eq!(cache.stats(), stats(1, 11, 0));
    }

    #[test]
    fn what_is_in_use_stays_longer_than_what_is_not() {
        let mut cache = KeyCache::new(3);
        let mut slots = [CacheSlot::default(); 20];
        for owner in 1..20 {
            check(&mut cache, &mut slots[owner], owner as u64, 0);
            check(&mut cache, &mut slots[0], 0, 0);
        }
        // The first round of the hand finds everything used; afterwards owner 0 is always spared.
        let CacheStats { misses, evictions, .. } = cache.stats();
        assert!(misses <= 21 && evictions == misses - 3, "{:?}", cache.stats());
    }

    #[test]
    fn an_evicted_key_makes_room_and_is_derived_again() {
        let mut cache = KeyCache::new(1);
        let (mut one, mut two) = (CacheSlot::default(), CacheSlot::default());
        check(&mut cache, &mut one, 1, 0);
        // A stranger's number does not evict.
        let mut stray = one;
        cache.evict(&mut stray, 2);
        check(&mut cache, &mut one, 1, 0);
        cache.evict(&mut one, 1);
        assert!(cache.slots[0].context.is_none());
        check(&mut cache, &mut two, 2, 0);
        check(&mut cache, &mut one, 1, 0);
        assert_eq!(cache.stats(), stats(1, 3, 1));
    }

    #[test]
    fn a_key_that_could_not_be_made_is_not_found_later() {
        let mut cache = KeyCache::new(1);
        let mut slot = CacheSlot::default();
        check(&mut cache, &mut slot, 1, 0);
        let attempt = std::panic::AssertUnwindSafe(|| {
            cache.get_or_insert(&mut slot, 1, 1, |_| panic!("no key"));
        });
        assert!(std::panic::catch_unwind(attempt).is_err());
        check(&mut cache, &mut slot, 1, 0);
        assert_eq!(cache.stats(), stats(0, 3, 0));
    }

    #[test]
    fn a_slot_never_leads_to_another_owners_or_epochs_key() {
        for seed in 0..20_u64 {
            let mut state = seed;
            let mut random = move |below: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % below
            };
            let mut cache = KeyCache::new(1 + seed as usize % 7);
            let mut slots = [CacheSlot::default(); 12];
            let mut epochs = [0; 12];
            let mut asked = 0;
            for _ in 0..500 {
                let at = random(12) as usize;
                match random(10) {
                    0 => epochs[at] += 1,
                    1 => cache.evict(&mut slots[at], at as u64),
                    // Numbers from anywhere are no more than misses.
                    2 => slots[at] = slots[random(12) as usize],
                    _ => {
                        check(&mut cache, &mut slots[at], at as u64, epochs[at]);
                        asked += 1;
                    }
                }
            }
            let CacheStats { hits, misses, evictions } = cache.stats();
            assert!(hits + misses == asked && evictions <= misses, "seed {seed}");
        }
    }
}
