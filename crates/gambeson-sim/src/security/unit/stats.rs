//! What a unit counts.

use std::ops::AddAssign;

use crate::time::Time;

/// What a unit did so far; sums over units with `+=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitStats {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Keys looked up in hardware; each is a cache hit, a prefetch hit or a miss.
    pub lookups: u64,
    /// Keys that had a place in the cache.
    pub cache_hits: u64,
    /// Keys that had one in the prefetch buffer.
    pub prefetch_hits: u64,
    /// Keys that had to be fetched while their packet waited.
    pub misses: u64,
    /// Hits on keys that were still on their way.
    pub late_hits: u64,
    /// Keys that made room for others in the cache.
    pub evictions: u64,
    /// Keys that were loaded into the prefetch buffer.
    pub prefetched: u64,
    /// Those of them that made room for others unused.
    pub prefetched_unused: u64,
    /// Time that packets waited for their keys, in all.
    pub key_wait: Time,
    /// Time that packets spent in the unit, in all.
    pub latency: Time,
    /// Time that the pipeline (on the host: the CPU) was taken.
    pub busy: Time,
    /// Time that the bus before a coprocessor was taken.
    pub bus_busy: Time,
}

impl UnitStats {
    /// The share of look-ups that found their key in the cache or in the buffer; 1 if there were none.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        if self.lookups == 0 { 1.0 } else { (self.cache_hits + self.prefetch_hits) as f64 / self.lookups as f64 }
    }
}

impl AddAssign for UnitStats {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.lookups += other.lookups;
        self.cache_hits += other.cache_hits;
        self.prefetch_hits += other.prefetch_hits;
        self.misses += other.misses;
        self.late_hits += other.late_hits;
        self.evictions += other.evictions;
        self.prefetched += other.prefetched;
        self.prefetched_unused += other.prefetched_unused;
        self.key_wait += other.key_wait;
        self.latency += other.latency;
        self.busy += other.busy;
        self.bus_busy += other.bus_busy;
    }
}
