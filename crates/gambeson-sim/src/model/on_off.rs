//! The synthetic stream of keys in one adapter, and what a cache hits of it (SKC paper, sections 4.1 and 4.4, Fig. 8
//! and 9); and the means of ON and OFF from a trace, as the paper's own were not published with it.
//!
//! Each key is ON and OFF for exponential times and sends at the same rate while it is ON. Only the order of packets
//! matters. How many packets an ON has and how those of active keys mix, the paper does not say: both are parameters.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::markov::active_share;
use crate::security::{CacheConfig, KeyCache};
use crate::time::Time;

/// A stream of keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConfig {
    /// Keys, 1,000 to 10,000 in the paper.
    pub keys: u32,
    /// Mean OFF by mean ON.
    pub off_over_on: f64,
    /// Packets that a key sends in an ON, on average. Shorter ONs and OFFs at the same ratio, as LU has them, are
    /// fewer packets. Unstated in the paper.
    pub packets_per_on: f64,
    /// Packets of one key in a row: those of a message. Unstated in the paper.
    pub run: u32,
}

impl StreamConfig {
    /// What is wrong with it, as a sentence with the remedy.
    pub fn validate(&self) -> Result<(), String> {
        if self.keys == 0 {
            return Err("the stream has 0 keys; give at least 1".into());
        }
        if !(0.0..=1e9).contains(&self.off_over_on) {
            return Err(format!("off_over_on is {}; give the ratio of two times, 0 to 1e9", self.off_over_on));
        }
        if !(1e-3..=1e12).contains(&self.packets_per_on) {
            return Err(format!("packets_per_on is {}; give 0.001 to 1e12", self.packets_per_on));
        }
        if self.run == 0 {
            return Err("run is 0; a message has at least 1 packet".into());
        }
        Ok(())
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        StreamConfig { keys: 1000, off_over_on: 7.67, packets_per_on: 100.0, run: 1 }
    }
}

/// The keys of packets in their order, without end. Begins in the steady state.
#[derive(Debug)]
pub struct KeyStream<'r, R> {
    active: Vec<u32>,
    idle: Vec<u32>,
    /// Rates in units of the mean ON: that of an idle key to become active, and of an active one to begin a run.
    wakes: f64,
    sends: f64,
    run: u32,
    /// The key of the run under way and what is left of it.
    current: u32,
    left: u32,
    random: &'r mut R,
}

impl<'r, R: Rng> KeyStream<'r, R> {
    /// The stream of a legal configuration.
    pub fn new(config: &StreamConfig, random: &'r mut R) -> Self {
        let share = active_share(config.off_over_on);
        let (mut active, mut idle) = (Vec::new(), Vec::new());
        for key in 0..config.keys {
            if random.random::<f64>() < share { active.push(key) } else { idle.push(key) }
        }
        KeyStream {
            active,
            idle,
            wakes: 1.0 / config.off_over_on.max(1e-9),
            sends: config.packets_per_on / f64::from(config.run),
            run: config.run,
            current: 0,
            left: 0,
            random,
        }
    }

    fn any(list: &[u32], random: &mut R) -> usize {
        random.random_range(0..list.len())
    }
}

impl<R: Rng> Iterator for KeyStream<'_, R> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.left == 0 {
            let active = self.active.len() as f64;
            let (send, sleep, wake) = (active * self.sends, active, self.idle.len() as f64 * self.wakes);
            let drawn = self.random.random::<f64>() * (send + sleep + wake);
            if drawn < send {
                self.current = self.active[Self::any(&self.active, self.random)];
                self.left = self.run;
            } else if drawn < send + sleep {
                let key = self.active.swap_remove(Self::any(&self.active, self.random));
                self.idle.push(key);
            } else if !self.idle.is_empty() {
                let key = self.idle.swap_remove(Self::any(&self.idle, self.random));
                self.active.push(key);
            }
        }
        self.left -= 1;
        Some(u64::from(self.current))
    }
}

/// The share of `packets` whose keys a cache has, after so many others that fill it.
#[must_use]
pub fn hit_rate(cache: &CacheConfig, keys: impl Iterator<Item = u64>, warm_up: u64, packets: u64) -> f64 {
    let mut cache = KeyCache::new(cache);
    let mut hits = 0;
    for (number, key) in (0..warm_up + packets).zip(keys) {
        if cache.find(key).is_some() {
            hits += u64::from(number >= warm_up);
        } else {
            cache.insert(key, 0, 0);
        }
    }
    hits as f64 / packets.max(1) as f64
}

/// The share of a million packets of a stream whose keys a cache has, after as many that fill it.
#[must_use]
pub fn streamed_hit_rate(cache: &CacheConfig, stream: &StreamConfig) -> f64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    hit_rate(cache, KeyStream::new(stream, &mut random), 1_000_000, 1_000_000)
}

/// ON and OFF of a process in a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Mean length of an ON.
    pub on: f64,
    /// Mean length of an OFF.
    pub off: f64,
    /// Standard deviation of an OFF by its mean; 1 would be exponential.
    pub off_variation: f64,
    /// Packets of an ON, on average.
    pub packets_per_on: f64,
    /// OFFs counted.
    pub samples: u64,
}

/// ON and OFF out of the times between a process's packets: those longer than `threshold` are OFFs, the others are
/// part of an ON. In picoseconds; sums over processes come from chaining their gaps. `None` without an OFF or an ON.
#[must_use]
pub fn fit(gaps: impl Iterator<Item = Time>, threshold: Time) -> Option<Fit> {
    let (mut on, mut off, mut off_squares, mut packets, mut samples) = (0.0, 0.0, 0.0, 0u64, 0u64);
    for gap in gaps {
        packets += 1;
        if gap > threshold {
            off += gap as f64;
            off_squares += gap as f64 * gap as f64;
            samples += 1;
        } else {
            on += gap as f64;
        }
    }
    if samples == 0 || on == 0.0 {
        return None;
    }
    let count = samples as f64;
    let mean = off / count;
    let variance = (off_squares / count - mean * mean).max(0.0);
    Some(Fit {
        on: on / count,
        off: mean,
        off_variation: variance.sqrt() / mean,
        packets_per_on: packets as f64 / count,
        samples,
    })
}

#[cfg(test)]
mod tests {
    use super::super::markov::exponential;
    use super::*;
    use crate::time::US;

    fn rate(stream: StreamConfig, cache: CacheConfig, seed: u64) -> f64 {
        stream.validate().expect("a legal stream");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        hit_rate(&cache, KeyStream::new(&stream, &mut random), 500_000, 300_000)
    }

    fn check(stream: StreamConfig, entries: u32, expected: std::ops::Range<f64>) {
        let found = rate(stream, CacheConfig::of_entries(entries), 1);
        assert!(expected.contains(&found), "{stream:?}, {entries} entries: {found}");
    }

    #[test]
    fn a_cache_for_all_active_keys_hits_and_a_smaller_one_does_not() {
        let stream = StreamConfig::default();
        // About 115 of 1,000 keys are active, each for 100 packets.
        check(stream, 128, 0.93..1.0);
        check(stream, 1000, 0.9999..1.1);
        check(stream, 60, 0.4..0.6);
        check(StreamConfig { keys: 10_000, ..stream }, 128, 0.05..0.15);
        // Fewer packets an ON are fewer hits: LU in Fig. 8.
        check(StreamConfig { packets_per_on: 3.0, ..stream }, 128, 0.5..0.85);
        // Those of one message hit whatever happens.
        check(StreamConfig { keys: 10_000, run: 4, ..stream }, 1, 0.74..0.77);
    }

    #[test]
    fn without_off_the_keys_are_uniform() {
        // Least recently used is no better than any other choice then: entries by keys.
        check(StreamConfig { keys: 1000, off_over_on: 0.0, ..StreamConfig::default() }, 250, 0.24..0.26);
    }

    #[test]
    fn sixteen_ways_are_about_as_good_as_all() {
        let stream = StreamConfig { keys: 3000, ..StreamConfig::default() };
        let rates = [1, 4, 16, 32, 0].map(|ways| rate(stream, CacheConfig { ways, ..CacheConfig::of_entries(512) }, 2));
        assert!(rates[0] < rates[1] && rates[1] < rates[2], "{rates:?}");
        assert!((rates[3] - rates[4]).abs() < 0.02 && (rates[2] - rates[4]).abs() < 0.05, "{rates:?}");
    }

    #[test]
    fn a_stream_is_its_seeds() {
        let keys = |seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            KeyStream::new(&StreamConfig::default(), &mut random).take(1000).collect::<Vec<_>>()
        };
        assert_eq!(keys(7), keys(7));
        assert_ne!(keys(7), keys(8));
    }

    #[test]
    fn the_fit_finds_the_means_again() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut gaps = Vec::new();
        for _ in 0..20_000 {
            gaps.extend([US; 40]);
            gaps.push(20 * US + (exponential(&mut random) * (300 * US) as f64) as Time);
        }
        let fit = fit(gaps.into_iter(), 10 * US).expect("there are both");
        assert!((fit.on / (40 * US) as f64 - 1.0).abs() < 1e-9);
        assert!((fit.off / (320 * US) as f64 - 1.0).abs() < 0.03, "{fit:?}");
        assert!((fit.off_variation - 300.0 / 320.0).abs() < 0.03, "{fit:?}");
        assert_eq!((fit.packets_per_on, fit.samples), (41.0, 20_000));
        assert_eq!(super::fit([US; 5].into_iter(), 10 * US), None);
    }

    #[test]
    fn configuration_errors_are_sentences() {
        let check = |config: StreamConfig, complaint: &str| {
            let sentence = config.validate().expect_err("not legal");
            assert!(sentence.contains(complaint), "{sentence}");
        };
        let legal = StreamConfig::default();
        check(StreamConfig { keys: 0, ..legal }, "0 keys");
        check(StreamConfig { off_over_on: -1.0, ..legal }, "off_over_on is -1");
        check(StreamConfig { packets_per_on: 0.0, ..legal }, "packets_per_on is 0");
        check(StreamConfig { run: 0, ..legal }, "run is 0");
    }
}
