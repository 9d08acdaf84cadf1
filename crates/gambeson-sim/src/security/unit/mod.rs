//! The adapter's security unit: when a packet that enters now leaves, sealed or opened.

mod stats;

pub use stats::UnitStats;

use crate::security::calendar::Calendar;
use crate::security::config::{KeyLevel, Placement, SecurityConfig};
use crate::security::gcm::GcmTiming;
use crate::security::key_cache::KeyCache;
use crate::security::prefetch::PrefetchBuffer;
use crate::security::stack_distance::StackDistances;
use crate::time::{self, Time};

/// One packet through the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Identifier of the key it is under: the partition's or the pair's.
    pub key: u64,
    /// Bytes to seal or open.
    pub bytes: u32,
    /// The local process that sends or gets it, counted from 0 on its node.
    pub owner: u32,
    /// Whether that process is on its CPU now. `false` for a packet that arrives loads its frequent keys; `true` for
    /// every packet that leaves.
    pub running: bool,
}

/// A security unit. One serves both directions of its adapter, as in the SKC paper's Fig. 1; packets that wait for a
/// key let others by, those under one key stay in order.
#[derive(Clone, Debug)]
pub struct Unit {
    place: Place,
    pipeline: Calendar,
    stats: UnitStats,
}

#[derive(Clone, Debug)]
enum Place {
    Off,
    Host { packet: Time, byte_fs: u64 },
    Adapter(Box<Hardware>),
    Coprocessor(Box<Hardware>, Bus),
}

/// What the adapter and the coprocessor have in common.
#[derive(Clone, Debug)]
struct Hardware {
    gcm: GcmTiming,
    cache: Option<KeyCache>,
    access: Time,
    prefetch: Option<PrefetchBuffer>,
    prefetch_interval: Time,
    memory: Memory,
    /// How much of the fetch the first AES block hides.
    overlap: Time,
    /// Keys that a prefetch is about to load; kept to save allocations.
    wanted: Vec<u64>,
    /// Which keys are looked up, where somebody wants to know.
    observed: Option<StackDistances>,
}

/// The memory of keys: `outstanding` accesses at a time, each of which has a time from which on it is free.
#[derive(Clone, Debug)]
struct Memory {
    access: Time,
    free: Vec<Time>,
}

#[derive(Clone, Debug)]
struct Bus {
    calendar: Calendar,
    driver: Time,
    transaction: Time,
    byte_fs: u64,
}

impl Unit {
    /// A unit with empty caches, of a legal configuration.
    #[must_use]
    pub fn new(config: &SecurityConfig) -> Self {
        let place = match (config.level, config.placement) {
            (KeyLevel::None, _) => Place::Off,
            (_, Placement::Host) => {
                Place::Host { packet: time::from_ns(config.host.packet_ns), byte_fs: femtoseconds(config.host.byte_ns) }
            }
            (_, Placement::Adapter) => Place::Adapter(Box::new(Hardware::new(config))),
            (_, Placement::Coprocessor) => {
                let bus = Bus {
                    calendar: Calendar::default(),
                    driver: time::from_ns(config.bus.driver_ns),
                    transaction: time::from_ns(config.bus.transaction_ns),
                    byte_fs: femtoseconds(8.0 / config.bus.rate_gbps),
                };
                Place::Coprocessor(Box::new(Hardware::new(config)), bus)
            }
        };
        Unit { place, pipeline: Calendar::default(), stats: UnitStats::default() }
    }

    /// When a packet that enters at `now` leaves. Calls come in the order of `now`.
    pub fn pass(&mut self, now: Time, pass: Pass) -> Time {
        let Unit { place, pipeline, stats } = self;
        let leaves = match place {
            Place::Off => return now,
            Place::Host { packet, byte_fs } => {
                let taken = *packet + transfer(*byte_fs, pass.bytes);
                stats.busy += taken;
                pipeline.reserve(now, now, taken) + taken
            }
            Place::Adapter(hardware) => hardware.pass(now, now, pass, pipeline, stats),
            Place::Coprocessor(hardware, bus) => {
                let there = bus.cross(now, now + bus.driver, pass.bytes, stats);
                let done = hardware.pass(now, there, pass, pipeline, stats);
                bus.cross(now, done, pass.bytes, stats)
            }
        };
        stats.packets += 1;
        stats.bytes += u64::from(pass.bytes);
        stats.latency += leaves - now;
        leaves
    }

    /// What the unit did since it was made or the figures were cleared.
    #[must_use]
    pub fn stats(&self) -> &UnitStats {
        &self.stats
    }

    /// From now on notes which keys are looked up in hardware.
    pub fn observe(&mut self) {
        if let Place::Adapter(hardware) | Place::Coprocessor(hardware, _) = &mut self.place {
            hardware.observed = Some(StackDistances::default());
        }
    }

    /// What [`Unit::observe`] noted.
    #[must_use]
    pub fn stack_distances(&self) -> Option<&StackDistances> {
        match &self.place {
            Place::Adapter(hardware) | Place::Coprocessor(hardware, _) => hardware.observed.as_ref(),
            Place::Off | Place::Host { .. } => None,
        }
    }

    /// Clears the figures, not the caches: the end of the warm-up.
    pub fn clear_stats(&mut self) {
        self.stats = UnitStats::default();
    }
}

impl Hardware {
    fn new(config: &SecurityConfig) -> Self {
        let gcm = GcmTiming::new(&config.gcm);
        Hardware {
            gcm,
            cache: config.cache.as_ref().map(KeyCache::new),
            access: config.cache.map_or(0, |cache| time::from_ns(cache.access_ns)),
            prefetch: config.prefetch.as_ref().map(PrefetchBuffer::new),
            prefetch_interval: config.prefetch.map_or(0, |prefetch| time::from_ns(prefetch.interval_ns)),
            memory: Memory {
                access: time::from_ns(config.memory.access_ns + config.memory.unwrap_ns),
                free: vec![0; config.memory.outstanding as usize],
            },
            overlap: if config.memory.overlap_first_block { gcm.first_block } else { 0 },
            wanted: Vec::new(),
            observed: None,
        }
    }

    /// `now` is the time of the call, `enters` that at which the packet is here.
    fn pass(&mut self, now: Time, enters: Time, pass: Pass, pipeline: &mut Calendar, stats: &mut UnitStats) -> Time {
        let looked_up = enters + self.access;
        let key_at = self.look_up(looked_up, pass, stats);
        stats.key_wait += key_at - enters;
        if !pass.running {
            self.prefetch(looked_up, pass.owner, stats);
        }
        let ready = key_at.saturating_sub(self.overlap).max(looked_up);
        let taken = self.gcm.occupancy(pass.bytes);
        stats.busy += taken;
        pipeline.reserve(now, ready, taken) + self.gcm.latency(pass.bytes)
    }

    /// When the key is there, if it is looked for until `at`.
    fn look_up(&mut self, at: Time, pass: Pass, stats: &mut UnitStats) -> Time {
        stats.lookups += 1;
        if let Some(observed) = &mut self.observed {
            observed.access(pass.key);
        }
        let Some(cache) = &mut self.cache else {
            stats.misses += 1;
            return self.memory.fetch(at, 1, 0);
        };
        if let Some(ready) = cache.find(pass.key) {
            stats.cache_hits += 1;
            stats.late_hits += u64::from(ready > at);
            return ready.max(at);
        }
        let ready = match self.prefetch.as_mut().and_then(|buffer| buffer.take(pass.key)) {
            Some(ready) => {
                stats.prefetch_hits += 1;
                stats.late_hits += u64::from(ready > at);
                ready.max(at)
            }
            None => {
                stats.misses += 1;
                self.memory.fetch(at, 1, 0)
            }
        };
        if let Some(evicted) = cache.insert(pass.key, pass.owner, ready) {
            stats.evictions += 1;
            if let Some(buffer) = &mut self.prefetch {
                buffer.evicted(evicted);
            }
        }
        ready
    }

    /// Loads the frequent keys of a process that is not running; behind the fetch that its packet may have begun.
    fn prefetch(&mut self, at: Time, owner: u32, stats: &mut UnitStats) {
        let (Some(cache), Some(buffer)) = (&self.cache, &mut self.prefetch) else { return };
        self.wanted.clear();
        self.wanted.extend(buffer.wanted(owner, |key| cache.contains(key)));
        if self.wanted.is_empty() {
            return;
        }
        let last = self.memory.fetch(at, self.wanted.len() as u64, self.prefetch_interval);
        let first = last - self.prefetch_interval * (self.wanted.len() as u64 - 1);
        for (number, &key) in self.wanted.iter().enumerate() {
            stats.prefetched += 1;
            stats.prefetched_unused += buffer.hold(key, owner, first + self.prefetch_interval * number as u64);
        }
    }
}

impl Memory {
    /// When the last of `keys` read in one burst, `interval` apart, is there and opened.
    fn fetch(&mut self, at: Time, keys: u64, interval: Time) -> Time {
        let taken = self.access + interval * (keys - 1);
        match self.free.iter_mut().min_by_key(|free| **free) {
            None => at + taken,
            Some(free) => {
                *free = at.max(*free) + taken;
                *free
            }
        }
    }
}

impl Bus {
    fn cross(&mut self, now: Time, ready: Time, bytes: u32, stats: &mut UnitStats) -> Time {
        let taken = self.transaction + transfer(self.byte_fs, bytes);
        stats.bus_busy += taken;
        self.calendar.reserve(now, ready, taken) + taken
    }
}

fn femtoseconds(ns: f64) -> u64 {
    (ns * 1e6).round() as u64
}

fn transfer(byte_fs: u64, bytes: u32) -> Time {
    (byte_fs * u64::from(bytes) + 500) / 1000
}

#[cfg(test)]
mod tests;
