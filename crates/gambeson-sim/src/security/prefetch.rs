//! The prefetch buffer and the lists of frequent keys that fill it (SKC paper, section 3.3).
//!
//! A message for a process that is not on its CPU hints that the scheduler will run it soon, so the keys which that
//! process used before they were evicted are brought into a small buffer beside the cache. The lists change when a key
//! is evicted, off the packets' critical path.

use super::config::{BufferReplacement, ListOrder, PrefetchConfig};
use super::key_cache::Evicted;
use crate::time::Time;

/// The buffer, oldest key first, and one list for each local process.
#[derive(Clone, Debug)]
pub(super) struct PrefetchBuffer {
    config: PrefetchConfig,
    held: Vec<Held>,
    lists: Vec<FrequentKeys>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    key: u64,
    owner: u32,
    ready: Time,
}

impl PrefetchBuffer {
    pub(super) fn new(config: &PrefetchConfig) -> Self {
        PrefetchBuffer { config: *config, held: Vec::new(), lists: Vec::new() }
    }

    /// Takes a key out of the buffer, to be moved to the cache; the time at which it is there.
    pub(super) fn take(&mut self, key: u64) -> Option<Time> {
        let at = self.held.iter().position(|held| held.key == key)?;
        Some(self.held.remove(at).ready)
    }

    pub(super) fn contains(&self, key: u64) -> bool {
        self.held.iter().any(|held| held.key == key)
    }

    /// Notes a key that left the cache in its owner's list.
    pub(super) fn evicted(&mut self, evicted: Evicted) {
        let owner = evicted.owner as usize;
        if owner >= self.lists.len() {
            self.lists.resize_with(owner + 1, FrequentKeys::default);
        }
        let len = if self.config.list_len == 0 { self.config.entries } else { self.config.list_len };
        self.lists[owner].note(evicted.key, evicted.uses, self.config.order, len as usize);
    }

    /// The keys that an arrival for `owner` should bring in, those that `cached` has and the buffer's own left out, up
    /// to the limit of an arrival; first come first.
    pub(super) fn wanted<'a>(
        &'a self,
        owner: u32,
        cached: impl Fn(u64) -> bool + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        let limit = if self.config.keys == 0 { self.config.entries } else { self.config.keys.min(self.config.entries) };
        let list = self.lists.get(owner as usize).map_or(&[][..], |list| &list.keys);
        list.iter().map(|&(key, _)| key).take(limit as usize).filter(move |&key| !cached(key) && !self.contains(key))
    }

    /// Gives a key that is on its way a place. Returns how many keys had to go unused for it.
    pub(super) fn hold(&mut self, key: u64, owner: u32, ready: Time) -> u64 {
        let before = self.held.len();
        if before >= self.config.entries as usize {
            if self.config.replacement == BufferReplacement::Flush {
                self.held.retain(|held| held.owner == owner);
            }
            if self.held.len() >= self.config.entries as usize {
                self.held.remove(0);
            }
        }
        let gone = before - self.held.len();
        self.held.push(Held { key, owner, ready });
        gone as u64
    }
}

/// A process's frequent keys with their uses, the ones to fetch first in front.
#[derive(Clone, Debug, Default)]
struct FrequentKeys {
    keys: Vec<(u64, u32)>,
}

impl FrequentKeys {
    fn note(&mut self, key: u64, uses: u32, order: ListOrder, len: usize) {
        let mut entry = (key, uses);
        if let Some(at) = self.keys.iter().position(|&(other, _)| other == key) {
            entry.1 = self.keys.remove(at).1.saturating_add(uses);
        } else if self.keys.len() >= len {
            self.keys.pop();
        }
        let at = match order {
            ListOrder::Recent => 0,
            // Of equally used ones the latest comes first.
            ListOrder::Frequent => self.keys.iter().position(|&(_, other)| other <= entry.1).unwrap_or(self.keys.len()),
        };
        self.keys.insert(at, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(config: PrefetchConfig, evictions: &[(u64, u32, u32)]) -> PrefetchBuffer {
        let mut buffer = PrefetchBuffer::new(&config);
        for &(key, owner, uses) in evictions {
            buffer.evicted(Evicted { key, owner, uses });
        }
        buffer
    }

    fn check(config: PrefetchConfig, evictions: &[(u64, u32, u32)], cached: &[u64], wanted: &[u64]) {
        let buffer = buffer(config, evictions);
        let found: Vec<u64> = buffer.wanted(0, |key| cached.contains(&key)).collect();
        assert_eq!(found, wanted, "{config:?} {evictions:?}");
    }

    #[test]
    fn the_list_has_its_order_and_its_length() {
        let recent = PrefetchConfig { entries: 3, ..PrefetchConfig::default() };
        let frequent = PrefetchConfig { order: ListOrder::Frequent, ..recent };
        let evictions = [(1, 0, 9), (2, 0, 1), (3, 0, 5), (9, 1, 1), (4, 0, 2), (2, 0, 2)];
        check(recent, &evictions, &[], &[2, 4, 3]);
        // 2 was dropped with one use when 4 came, and came back with two.
        check(frequent, &evictions, &[], &[1, 3, 2]);
        check(PrefetchConfig { list_len: 2, ..recent }, &evictions, &[], &[2, 4]);
        check(PrefetchConfig { list_len: 9, entries: 9, ..frequent }, &evictions, &[], &[1, 3, 2, 4]);
        check(PrefetchConfig { keys: 1, ..recent }, &evictions, &[], &[2]);
        check(recent, &evictions, &[2, 3], &[4]);
        check(recent, &[], &[], &[]);
    }

    #[test]
    fn a_full_buffer_makes_room() {
        let config = PrefetchConfig { entries: 2, ..PrefetchConfig::default() };
        let mut oldest = buffer(config, &[]);
        assert_eq!([oldest.hold(1, 0, 10), oldest.hold(2, 0, 20), oldest.hold(3, 1, 30)], [0, 0, 1]);
        assert_eq!([oldest.take(1), oldest.take(2), oldest.take(3), oldest.take(3)], [None, Some(20), Some(30), None]);
        let mut flush = buffer(PrefetchConfig { replacement: BufferReplacement::Flush, ..config }, &[]);
        assert_eq!([flush.hold(1, 0, 10), flush.hold(2, 0, 20), flush.hold(3, 1, 30)], [0, 0, 2]);
        assert_eq!([flush.hold(4, 1, 40), flush.hold(5, 1, 50)], [0, 1]);
        assert!(!flush.contains(3) && flush.contains(4) && flush.contains(5));
    }

    #[test]
    fn keys_in_the_buffer_are_not_wanted_again() {
        let mut buffer = buffer(PrefetchConfig::default(), &[(1, 0, 1), (2, 0, 1)]);
        buffer.hold(2, 0, 5);
        assert_eq!(buffer.wanted(0, |_| false).collect::<Vec<_>>(), [1]);
    }
}
