//! Packets sent again by somebody who captured them: the paper's time stamps and a window of sequences beside them
//! (IBA paper, section 6.2).
//!
//! A stamp is fresh for at least a whole tick and as long again as clocks may differ, and the same packet as often as
//! it comes: the stamps bound a replay in time, not in number. A window takes each sequence once.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::time::{self, Time};

const WORD: u64 = u64::BITS as u64;

/// What a receiver does against packets that were sent again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayConfig {
    /// The defence.
    pub defence: ReplayDefence,
    /// The unit of time stamps. The paper has a second.
    pub tick_ms: f64,
    /// Ticks by which a stamp may differ from the receiver's clock. Unstated in the paper; with 0 every packet under
    /// way at a tick is lost.
    pub tolerance: u64,
    /// Bits of a stamp: what the marks leave of the field, 24 in the paper's example.
    pub stamp_bits: u32,
    /// How far behind the highest one a sequence may be, in sequences; rounded up to 64.
    pub window: u32,
}

/// The defences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayDefence {
    /// None: an authentic packet is taken as often as it comes.
    #[default]
    None,
    /// The sender's time, covered by the tag.
    Timestamps,
    /// The sender's sequence, covered by the tag, once each.
    SequenceWindow,
}

impl ReplayConfig {
    /// What is wrong with it, as a sentence with the remedy.
    pub fn validate(&self) -> Result<(), String> {
        if !(1e-6..=1e9).contains(&self.tick_ms) {
            return Err(format!("replay.tick_ms is {}; give 1e-6 to 1e9 milliseconds", self.tick_ms));
        }
        if !(1..=63).contains(&self.stamp_bits) {
            return Err(format!("replay.stamp_bits is {}; give 1 to 63", self.stamp_bits));
        }
        if self.tolerance >= 1 << (self.stamp_bits - 1) {
            return Err(format!(
                "replay.tolerance of {} ticks spans all stamps of {} bits, so that every one would be fresh; give fewer",
                self.tolerance, self.stamp_bits
            ));
        }
        if !(1..=65_536).contains(&self.window) {
            return Err(format!("replay.window is {}; give 1 to 65536 sequences", self.window));
        }
        Ok(())
    }
}

impl Default for ReplayConfig {
    fn default() -> Self {
        ReplayConfig { defence: ReplayDefence::default(), tick_ms: 1000.0, tolerance: 1, stamp_bits: 24, window: 64 }
    }
}

/// A receiver's defence, over all of its streams.
#[derive(Clone, Debug)]
pub struct ReplayGuard {
    defence: ReplayDefence,
    tick: Time,
    tolerance: u64,
    stamp_mask: u64,
    words: usize,
    streams: HashMap<(u64, u32), Window>,
}

impl ReplayGuard {
    /// A receiver that has seen nothing, of a legal configuration.
    #[must_use]
    pub fn new(config: &ReplayConfig) -> Self {
        ReplayGuard {
            defence: config.defence,
            tick: time::from_ns(config.tick_ms * 1e6).max(1),
            tolerance: config.tolerance,
            stamp_mask: (1 << config.stamp_bits) - 1,
            words: config.window.div_ceil(u64::BITS) as usize,
            streams: HashMap::new(),
        }
    }

    /// What a sender stamps a packet with.
    #[must_use]
    pub fn stamp(&self, now: Time) -> u64 {
        (now / self.tick) & self.stamp_mask
    }

    /// Whether an authentic packet is taken that arrives at `now`; `stream` is its queue pair, and its sender where
    /// several have that.
    pub fn accepts(&mut self, now: Time, stream: (u64, u32), sequence: u64, stamp: u64) -> bool {
        match self.defence {
            ReplayDefence::None => true,
            ReplayDefence::Timestamps => {
                let ahead = stamp.wrapping_sub(self.stamp(now)) & self.stamp_mask;
                ahead.min((self.stamp_mask + 1) - ahead) <= self.tolerance
            }
            ReplayDefence::SequenceWindow => {
                self.streams.entry(stream).or_insert_with(|| Window::new(self.words)).accepts(sequence)
            }
        }
    }
}

/// The sequences seen of the last `64 x words`, in a ring of bits.
#[derive(Clone, Debug)]
struct Window {
    /// One more than the highest sequence seen.
    next: u64,
    seen: Box<[u64]>,
}

impl Window {
    fn new(words: usize) -> Self {
        Window { next: 0, seen: vec![0; words].into() }
    }

    fn accepts(&mut self, sequence: u64) -> bool {
        let words = self.seen.len() as u64;
        let (word, bit) = (sequence / WORD, 1 << (sequence % WORD));
        let newest = self.next.saturating_sub(1) / WORD;
        if word + words <= newest {
            return false;
        }
        // Words that the window newly reaches hold what is too old by now.
        for stale in newest + 1..=word.min(newest + words) {
            self.seen[(stale % words) as usize] = 0;
        }
        let seen = &mut self.seen[(word % words) as usize];
        let new = *seen & bit == 0;
        *seen |= bit;
        self.next = self.next.max(sequence + 1);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{MS, S};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::collections::BTreeSet;

    fn guard(defence: ReplayDefence) -> ReplayGuard {
        ReplayGuard::new(&ReplayConfig { defence, ..ReplayConfig::default() })
    }

    /// A packet sent at a time with a sequence, and whether it is taken at each of the times that it arrives at.
    fn check(guard: &mut ReplayGuard, sent: Time, sequence: u64, arrivals: &[(Time, bool)]) {
        let stamp = guard.stamp(sent);
        for &(now, taken) in arrivals {
            assert_eq!(guard.accepts(now, (1, 0), sequence, stamp), taken, "sequence {sequence} at {now}");
        }
    }

    #[test]
    fn a_stamp_is_fresh_for_its_tick_and_the_tolerance() {
        let mut stamps = guard(ReplayDefence::Timestamps);
        check(&mut stamps, 900 * MS, 0, &[(900 * MS, true), (1100 * MS, true), (1999 * MS, true), (2000 * MS, false)]);
        // A stamp of 24 bits is fresh again after 194 days.
        check(&mut stamps, 0, 0, &[((1 << 24) * S, true), ((1 << 23) * S, false), (((1 << 24) - 1) * S, true)]);
    }

    #[test]
    fn a_window_takes_each_sequence_once() {
        let mut window = guard(ReplayDefence::SequenceWindow);
        check(&mut window, 0, 0, &[(0, true), (0, false)]);
        check(&mut window, 0, 100, &[(0, true), (0, false)]);
        check(&mut window, 0, 99, &[(0, true), (S, false)]);
        check(&mut window, 0, 63, &[(0, false)]);
        assert!(window.accepts(0, (2, 0), 100, 0) && window.accepts(0, (1, 7), 100, 0), "other streams");
        check(&mut guard(ReplayDefence::None), 0, 0, &[(0, true), (900 * S, true)]);
    }

    #[test]
    fn a_window_never_takes_twice_and_takes_all_that_is_near() {
        for seed in 0..60 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let width = [64, 128, 1024][seed as usize % 3];
            let config = ReplayConfig { window: width, defence: ReplayDefence::SequenceWindow, ..Default::default() };
            let mut guard = ReplayGuard::new(&config);
            let (mut seen, mut highest) = (BTreeSet::new(), 0u64);
            for _ in 0..4000 {
                let jump = if random.random_ratio(1, 100) { 5000 } else { 40 };
                let sequence = (highest + random.random_range(0..jump)).saturating_sub(random.random_range(0..90));
                let taken = guard.accepts(0, (7, 0), sequence, 0);
                let new = seen.insert(sequence);
                assert!(!taken || new, "seed {seed}: {sequence} was taken twice");
                let near = sequence + u64::from(width) - 63 > highest;
                assert!(taken || !new || !near, "seed {seed}: {sequence} was refused behind {highest}");
                highest = highest.max(sequence);
            }
        }
    }

    #[test]
    fn configuration_errors_are_sentences() {
        let check = |config: ReplayConfig, complaint: &str| {
            let sentence = config.validate().expect_err("not legal");
            assert!(sentence.contains(complaint), "{sentence}");
        };
        let legal = ReplayConfig::default();
        assert_eq!(legal.validate(), Ok(()));
        check(ReplayConfig { tick_ms: 0.0, ..legal }, "tick_ms is 0");
        check(ReplayConfig { stamp_bits: 64, ..legal }, "stamp_bits is 64");
        check(ReplayConfig { stamp_bits: 1, ..legal }, "spans all stamps");
        check(ReplayConfig { window: 0, ..legal }, "window is 0");
    }
}
