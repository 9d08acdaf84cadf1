//! The session-key cache: fully or n-way associative, exact LRU, with the time at which each key is there (SKC paper,
//! section 3.1).
//!
//! A key takes its place when it is asked for, and the packets behind wait for the same fetch; so an entry carries its
//! arrival. Storage grows with the keys that come, so that a cache that is never used costs nothing.

use super::config::CacheConfig;
use crate::time::Time;

/// A cache of keys, told apart by 64-bit identifiers.
#[derive(Clone, Debug)]
pub struct KeyCache {
    store: Store,
}

/// A key that made room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its identifier.
    pub key: u64,
    /// The process that it was brought in for.
    pub owner: u32,
    /// How often it was used while it was in.
    pub uses: u32,
}

impl KeyCache {
    /// An empty cache of `config.capacity()` entries, at least one.
    #[must_use]
    pub fn new(config: &CacheConfig) -> Self {
        let capacity = config.capacity().max(1);
        let full = config.ways == 0 || config.ways >= capacity;
        let store = if full { Store::Full(Full::new(capacity)) } else { Store::Sets(Sets::new(capacity, config.ways)) };
        KeyCache { store }
    }

    /// When the key is or was there, `None` when it is not and was not asked for. Makes it the most recent of its set.
    #[inline]
    pub fn find(&mut self, key: u64) -> Option<Time> {
        match &mut self.store {
            Store::Full(full) => full.find(key),
            Store::Sets(sets) => sets.find(key),
        }
    }

    /// Whether the key has a place, without a trace in the order.
    #[must_use]
    pub fn contains(&self, key: u64) -> bool {
        match &self.store {
            Store::Full(full) => full.position(key).is_ok(),
            Store::Sets(sets) => sets.set(key).iter().any(|way| way.is(key)),
        }
    }

    /// Gives a key that has none a place, from `ready` on; the least recent of its set makes room.
    pub fn insert(&mut self, key: u64, owner: u32, ready: Time) -> Option<Evicted> {
        match &mut self.store {
            Store::Full(full) => full.insert(key, owner, ready),
            Store::Sets(sets) => sets.insert(key, owner, ready),
        }
    }
}

#[derive(Clone, Debug)]
enum Store {
    Full(Full),
    Sets(Sets),
}

/// Fibonacci hashing: the upper bits depend on all bits of the identifier, however those are numbered.
#[inline]
fn hash(key: u64) -> u64 {
    (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// One set of all entries: a hash table of places (open addressing) over a list from the most to the least recent.
#[derive(Clone, Debug)]
struct Full {
    capacity: usize,
    /// Numbers of slots, or `NONE`; a power of two, at least twice as many as there are slots.
    index: Vec<u32>,
    shift: u32,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    ready: Time,
    owner: u32,
    uses: u32,
    newer: u32,
    older: u32,
}

const NONE: u32 = u32::MAX;

impl Full {
    fn new(capacity: u32) -> Self {
        Full { capacity: capacity as usize, index: Vec::new(), shift: 0, slots: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// Where in the index the key is, or where it would go.
    #[inline]
    fn position(&self, key: u64) -> Result<usize, usize> {
        if self.index.is_empty() {
            return Err(0);
        }
        let mut at = self.home(key);
        loop {
            match self.index[at] {
                NONE => return Err(at),
                slot if self.slots[slot as usize].key == key => return Ok(at),
                _ => at = (at + 1) & (self.index.len() - 1),
            }
        }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        (hash(key) >> self.shift) as usize
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<Time> {
        let at = self.position(key).ok()?;
        let number = self.index[at];
        if number != self.newest {
            self.unlink(number);
            self.link_newest(number);
        }
        let slot = &mut self.slots[number as usize];
        slot.uses += 1;
        Some(slot.ready)
    }

    fn insert(&mut self, key: u64, owner: u32, ready: Time) -> Option<Evicted> {
        let slot = Slot { key, ready, owner, uses: 1, newer: NONE, older: NONE };
        let (number, evicted) = if self.slots.len() < self.capacity {
            self.slots.push(slot);
            (self.slots.len() as u32 - 1, None)
        } else {
            let number = self.oldest;
            self.unlink(number);
            let old = std::mem::replace(&mut self.slots[number as usize], slot);
            self.forget(old.key, number);
            (number, Some(Evicted { key: old.key, owner: old.owner, uses: old.uses }))
        };
        self.link_newest(number);
        if self.index.len() < 2 * self.slots.len() {
            self.grow();
        } else {
            let at = self.empty_place(key);
            self.index[at] = number;
        }
        evicted
    }

    fn empty_place(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while self.index[at] != NONE {
            at = (at + 1) & (self.index.len() - 1);
        }
        at
    }

    fn grow(&mut self) {
        let len = (2 * self.slots.len()).next_power_of_two().max(8);
        self.shift = u64::BITS - len.trailing_zeros();
        self.index.clear();
        self.index.resize(len, NONE);
        for number in 0..self.slots.len() {
            let at = self.empty_place(self.slots[number].key);
            self.index[at] = number as u32;
        }
    }

    /// Takes a slot's number out of the index and moves up what was pushed on by it.
    fn forget(&mut self, key: u64, number: u32) {
        let mask = self.index.len() - 1;
        let mut hole = self.home(key);
        while self.index[hole] != number {
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.index[at];
            if next == NONE {
                break;
            }
            let home = self.home(self.slots[next as usize].key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = next;
                hole = at;
            }
        }
        self.index[hole] = NONE;
    }

    #[inline]
    fn unlink(&mut self, number: u32) {
        let Slot { newer, older, .. } = self.slots[number as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    #[inline]
    fn link_newest(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        (slot.newer, slot.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = number,
            newest => self.slots[newest as usize].newer = number,
        }
        self.newest = number;
    }
}

/// Sets of a few ways each, searched one by one; a stamp tells the order.
///
/// The set follows from a hash of the identifier, as hardware that numbers keys one after the other would spread them.
#[derive(Clone, Debug)]
struct Sets {
    capacity: usize,
    ways: usize,
    stamp: u64,
    entries: Vec<Way>,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    key: u64,
    ready: Time,
    /// 0: empty.
    stamp: u64,
    owner: u32,
    uses: u32,
}

impl Way {
    const EMPTY: Way = Way { key: 0, ready: 0, stamp: 0, owner: 0, uses: 0 };

    #[inline]
    fn is(&self, key: u64) -> bool {
        self.key == key && self.stamp != 0
    }
}

impl Sets {
    fn new(capacity: u32, ways: u32) -> Self {
        Sets { capacity: capacity as usize, ways: ways as usize, stamp: 0, entries: Vec::new() }
    }

    #[inline]
    fn first_way(&self, key: u64) -> usize {
        let sets = (self.capacity / self.ways) as u64;
        // The upper half of the product spreads a hash evenly over any number of sets.
        let set = ((u128::from(hash(key)) * u128::from(sets)) >> 64) as usize;
        set * self.ways
    }

    fn set(&self, key: u64) -> &[Way] {
        let first = self.first_way(key);
        self.entries.get(first..first + self.ways).unwrap_or(&[])
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<Time> {
        let first = self.first_way(key);
        let way = self.entries.get_mut(first..first + self.ways)?.iter_mut().find(|way| way.is(key))?;
        self.stamp += 1;
        way.stamp = self.stamp;
        way.uses += 1;
        Some(way.ready)
    }

    fn insert(&mut self, key: u64, owner: u32, ready: Time) -> Option<Evicted> {
        if self.entries.is_empty() {
            self.entries = vec![Way::EMPTY; self.capacity];
        }
        self.stamp += 1;
        let new = Way { key, ready, stamp: self.stamp, owner, uses: 1 };
        let first = self.first_way(key);
        let set = &mut self.entries[first..first + self.ways];
        let way = set.iter_mut().min_by_key(|way| way.stamp).expect("a set has at least one way");
        let old = std::mem::replace(way, new);
        (old.stamp != 0).then_some(Evicted { key: old.key, owner: old.owner, uses: old.uses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// LRU as the textbook has it: a list per set, the most recent first.
    struct Textbook {
        ways: usize,
        sets: Vec<Vec<u64>>,
    }

    impl Textbook {
        /// Whether `key` hit, and what it put out.
        fn access(&mut self, set: usize, key: u64) -> (bool, Option<u64>) {
            let set = &mut self.sets[set];
            let found = set.iter().position(|&other| other == key);
            if let Some(at) = found {
                set.remove(at);
            }
            set.insert(0, key);
            let evicted = if set.len() > self.ways { set.pop() } else { None };
            (found.is_some(), evicted)
        }
    }

    fn check(entries: u32, ways: u32, keys: u64, accesses: u64) {
        let seed = (u64::from(entries) << 32) | u64::from(ways);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut cache = KeyCache::new(&CacheConfig { ways, ..CacheConfig::of_entries(entries) });
        let set_of = |cache: &KeyCache, key| match &cache.store {
            Store::Full(_) => 0,
            Store::Sets(sets) => sets.first_way(key) / sets.ways,
        };
        let ways = if ways == 0 { entries } else { ways } as usize;
        let mut textbook = Textbook { ways, sets: vec![Vec::new(); entries as usize / ways] };
        for access in 0..accesses {
            // Identifiers that share their low or their high bits, and some locality.
            let key = (random.random_range(0..keys).min(random.random_range(0..keys))) << (access % 2 * 40);
            let (hit, evicted) = textbook.access(set_of(&cache, key), key);
            assert_eq!(cache.contains(key), hit, "seed {seed}, access {access}");
            let found = cache.find(key);
            assert_eq!(found.is_some(), hit, "seed {seed}, access {access}");
            if found.is_none() {
                let out = cache.insert(key, key as u32, access);
                assert_eq!(out.map(|out| out.key), evicted, "seed {seed}, access {access}");
                assert!(out.is_none_or(|out| out.owner == out.key as u32 && out.uses > 0));
            }
        }
    }

    #[test]
    fn every_hit_and_every_eviction_is_the_textbooks() {
        for entries in [1, 2, 3, 6, 10, 64, 1000] {
            check(entries, 0, 3 * u64::from(entries), 20_000);
        }
        for ways in [1, 2, 4, 8, 16, 32, 64] {
            check(64, ways, 200, 20_000);
        }
        check(12, 4, 30, 20_000);
    }

    #[test]
    fn an_entry_remembers_its_arrival_and_its_uses() {
        for ways in [0, 1] {
            let mut cache = KeyCache::new(&CacheConfig { ways, ..CacheConfig::of_entries(1) });
            assert_eq!(cache.find(7), None);
            assert_eq!(cache.insert(7, 3, 2500), None);
            assert_eq!(cache.find(7), Some(2500));
            assert_eq!(cache.find(7), Some(2500));
            assert_eq!(cache.insert(8, 4, 5000), Some(Evicted { key: 7, owner: 3, uses: 3 }));
        }
    }
}
