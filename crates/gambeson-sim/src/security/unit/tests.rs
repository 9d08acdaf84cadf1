//! Packets through a unit, against latencies worked out by hand.

use super::*;
use crate::security::{CacheConfig, MemoryConfig, PrefetchConfig};
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
