//! The adapter's security unit: when a packet that enters now leaves, sealed or opened.

use std::ops::AddAssign;

use super::calendar::Calendar;
use super::config::{KeyLevel, Placement, SecurityConfig};
use super::gcm::GcmTiming;
use super::key_cache::KeyCache;
use super::prefetch::PrefetchBuffer;
use super::stack_distance::StackDistances;
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
mod tests {
    use super::super::{CacheConfig, MemoryConfig, PrefetchConfig};
    use super::*;
    use crate::time::{NS, US};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    const GCM_256: Time = 107_407;
    const TAKEN_256: Time = 59_259;
    const LOOK_UP: Time = 3 * NS;
    const FETCH: Time = 2500 * NS;

    fn packet(key: u64) -> Pass {
        Pass { key, bytes: 256, owner: 0, running: true }
    }

    fn arrival(key: u64, owner: u32) -> Pass {
        Pass { key, bytes: 256, owner, running: false }
    }

    fn skc(entries: u32) -> SecurityConfig {
        SecurityConfig { cache: Some(CacheConfig::of_entries(entries)), ..SecurityConfig::skc_paper() }
    }

    /// Packets at their times, with the latency that each must have.
    fn check(config: &SecurityConfig, passes: &[(Time, Pass, Time)]) -> UnitStats {
        config.validate().expect("a legal configuration");
        let mut unit = Unit::new(config);
        for (number, &(now, pass, latency)) in passes.iter().enumerate() {
            assert_eq!(unit.pass(now, pass) - now, latency, "packet {number}: {pass:?}");
        }
        let stats = *unit.stats();
        assert_eq!(stats.lookups, stats.cache_hits + stats.prefetch_hits + stats.misses);
        unit.clear_stats();
        assert_eq!(*unit.stats(), UnitStats::default());
        stats
    }

    #[test]
    fn no_security_takes_no_time() {
        assert_eq!(check(&SecurityConfig::default(), &[(0, packet(1), 0), (0, packet(2), 0)]), UnitStats::default());
    }

    #[test]
    fn iba_preset_adds_160_ns_without_load() {
        let pass = |bytes| Pass { bytes, ..packet(1) };
        let passes = [(0, pass(64), 160 * NS), (US, pass(1024), 160 * NS), (2 * US, pass(256), 160 * NS)];
        check(&SecurityConfig::iba_paper(), &passes);
    }

    #[test]
    fn a_miss_costs_the_memory_and_a_hit_the_cache() {
        let miss = LOOK_UP + FETCH + GCM_256;
        let hit = LOOK_UP + GCM_256;
        let stats = check(
            &skc(2),
            &[
                (0, packet(1), miss),
                (10 * US, packet(1), hit),
                (20 * US, packet(2), miss),
                (30 * US, packet(1), hit),
                (40 * US, packet(3), miss),
                (50 * US, packet(2), miss),
            ],
        );
        assert_eq!((stats.cache_hits, stats.misses, stats.evictions), (2, 4, 2));
        assert_eq!((stats.packets, stats.bytes, stats.busy), (6, 6 * 256, 6 * TAKEN_256));
        assert_eq!(stats.key_wait, 6 * LOOK_UP + 4 * FETCH);
        assert!((stats.hit_rate() - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn without_a_cache_every_packet_fetches() {
        let config = SecurityConfig { cache: None, ..SecurityConfig::skc_paper() };
        let stats = check(&config, &[(0, packet(1), FETCH + GCM_256), (10 * US, packet(1), FETCH + GCM_256)]);
        assert_eq!(stats.misses, 2);
    }

    #[test]
    fn a_serial_memory_makes_the_second_miss_wait() {
        let mut config = skc(4);
        config.memory.outstanding = 1;
        let miss = LOOK_UP + FETCH + GCM_256;
        check(&config, &[(0, packet(1), miss), (0, packet(2), miss + FETCH)]);
        config.memory.outstanding = 2;
        check(&config, &[(0, packet(1), miss), (0, packet(2), miss + TAKEN_256), (0, packet(3), miss + FETCH)]);
    }

    #[test]
    fn a_wrapped_key_costs_its_opening_and_the_first_block_may_hide_a_part() {
        let mut config = skc(4);
        config.memory = MemoryConfig { unwrap_ns: 50.0, ..config.memory };
        check(&config, &[(0, packet(1), LOOK_UP + FETCH + 50 * NS + GCM_256)]);
        config.memory.overlap_first_block = true;
        // 12 cycles at 270 MHz.
        let miss = LOOK_UP + FETCH + 50 * NS + GCM_256 - 44_444;
        check(&config, &[(0, packet(1), miss), (10 * US, packet(1), LOOK_UP + GCM_256)]);
    }

    #[test]
    fn packets_behind_a_miss_wait_for_the_same_fetch_and_others_pass_by() {
        let miss = LOOK_UP + FETCH + GCM_256;
        let passes = [
            (0, packet(2), miss),
            (10 * US, packet(1), miss),
            (10 * US + 100 * NS, packet(1), miss - 100 * NS + TAKEN_256),
            (10 * US + 200 * NS, packet(2), LOOK_UP + GCM_256),
        ];
        let stats = check(&skc(4), &passes);
        assert_eq!((stats.misses, stats.cache_hits, stats.late_hits), (2, 2, 1));
    }

    #[test]
    fn the_pipeline_limits_the_throughput() {
        let hit = LOOK_UP + GCM_256;
        let passes = [
            (0, packet(1), hit + FETCH),
            (10 * US, packet(1), hit),
            (10 * US, packet(1), hit + TAKEN_256),
            (10 * US, packet(1), hit + 2 * TAKEN_256),
        ];
        check(&skc(4), &passes);
    }

    #[test]
    fn an_arrival_for_a_process_off_its_cpu_brings_its_keys_back() {
        let config = SecurityConfig { prefetch: Some(PrefetchConfig::default()), ..skc(2) };
        let (miss, hit) = (LOOK_UP + FETCH + GCM_256, LOOK_UP + GCM_256);
        let other = |key| Pass { owner: 1, ..packet(key) };
        let passes = [
            // Process 0 has keys 1 to 3 and fills the cache, process 1 has 11 and 12 and puts them out.
            (0, packet(1), miss),
            (10 * US, packet(2), miss),
            (20 * US, packet(3), miss),
            (30 * US, other(11), miss),
            (40 * US, other(12), miss),
            // A message for process 0 under key 3 is a miss itself; it brings 2 and 1, which were evicted as 3 was.
            (50 * US, arrival(3, 0), miss),
            (60 * US, packet(2), hit),
            (70 * US, packet(1), hit),
            // The two moved to the cache and put out 12 and 3.
            (80 * US, packet(3), miss),
        ];
        let stats = check(&config, &passes);
        assert_eq!((stats.prefetch_hits, stats.prefetched, stats.prefetched_unused), (2, 2, 0));
        let without = SecurityConfig { prefetch: None, ..config };
        let late: Vec<_> = passes.iter().map(|&(at, pass, _)| (at, pass, miss)).collect();
        assert_eq!(check(&without, &late).misses, 9);
    }

    #[test]
    fn a_prefetched_key_may_still_be_on_its_way() {
        let config = SecurityConfig { prefetch: Some(PrefetchConfig::default()), ..skc(1) };
        let miss = LOOK_UP + FETCH + GCM_256;
        let passes = [
            (0, packet(1), miss),
            (10 * US, packet(2), miss),
            (20 * US, packet(3), miss),
            (30 * US, arrival(3, 0), LOOK_UP + GCM_256),
            // 2 was asked for at 30 us and 3 ns, 1 comes 20 ns behind it.
            (31 * US, packet(2), FETCH + LOOK_UP - US + GCM_256),
            (31 * US, packet(1), FETCH + LOOK_UP - US + 20 * NS + GCM_256 + TAKEN_256 - 20 * NS),
        ];
        let stats = check(&config, &passes);
        assert_eq!((stats.prefetch_hits, stats.late_hits), (2, 2));
    }

    #[test]
    fn a_coprocessor_crosses_the_bus_twice_and_the_host_pays_by_the_byte() {
        let mut config = skc(2);
        config.placement = Placement::Coprocessor;
        // 256 bytes at 8.5 Gb/s are 240.941 ns.
        let crossing = 200 * NS + 240_941;
        let hit = 500 * NS + 2 * crossing + LOOK_UP + GCM_256;
        let stats = check(&config, &[(0, packet(1), hit + FETCH), (10 * US, packet(1), hit)]);
        assert_eq!(stats.bus_busy, 4 * crossing);
        config.placement = Placement::Host;
        let cost = 87 * NS + 24_320;
        let stats = check(&config, &[(0, packet(1), cost), (0, packet(1), 2 * cost), (US, packet(1), cost)]);
        assert_eq!((stats.busy, stats.lookups), (3 * cost, 0));
    }

    #[test]
    fn packets_of_a_key_stay_in_order_and_equal_input_gives_equal_output() {
        let run = |seed: u64| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let ways = [0, 1, 2][seed as usize % 3];
            let mut config = SecurityConfig { prefetch: Some(PrefetchConfig::default()), ..skc(8) };
            config.cache.as_mut().expect("there is one").ways = ways;
            config.memory.outstanding = seed as u32 % 4;
            let mut unit = Unit::new(&config);
            let (mut now, mut last, mut all) = (0, [0; 40], Vec::new());
            for _ in 0..5000 {
                now += random.random_range(0..200 * NS);
                let key = random.random_range(0..40);
                let (bytes, running) = (random.random_range(1..4096), random.random());
                let leaves = unit.pass(now, Pass { key, bytes, owner: key as u32 % 3, running });
                assert!(leaves > last[key as usize], "seed {seed}: a packet overtook another of its key");
                last[key as usize] = leaves;
                all.push(leaves);
            }
            let mut sum = *unit.stats();
            sum += *unit.stats();
            assert_eq!(sum.packets, 10_000);
            (all, *unit.stats())
        };
        for seed in 0..24 {
            assert_eq!(run(seed), run(seed), "seed {seed}");
        }
    }
}
