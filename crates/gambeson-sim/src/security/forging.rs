//! Tags made without the key: how often one is right by chance, and the alert that so many wrong ones raise (IBA paper,
//! section 6.1, type II).

use std::collections::HashMap;
use std::ops::AddAssign;

use rand::RngCore;
use serde::{Deserialize, Serialize};

/// A receiver's tags and its alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForgingConfig {
    /// Bits of a tag: 32 in the place of the ICRC.
    pub tag_bits: u32,
    /// Failures in a row, of one stream, that raise an alert. Unstated in the paper.
    pub alert_after: u32,
}

impl ForgingConfig {
    /// What is wrong with it, as a sentence with the remedy.
    pub fn validate(&self) -> Result<(), String> {
        if !(1..=64).contains(&self.tag_bits) {
            return Err(format!("forging.tag_bits is {}; give 1 to 64, the paper has 32", self.tag_bits));
        }
        if self.alert_after == 0 {
            return Err(
                "forging.alert_after is 0, so that there would be an alert without a failure; give at least 1".into()
            );
        }
        Ok(())
    }
}

impl Default for ForgingConfig {
    fn default() -> Self {
        ForgingConfig { tag_bits: 32, alert_after: 16 }
    }
}

/// What becomes of a packet's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authenticity {
    /// Right, and made with the key.
    Genuine,
    /// Right by chance.
    Forged,
    /// Wrong.
    Rejected,
    /// Wrong, and one too many in a row.
    Alert,
}

impl Authenticity {
    /// Whether the receiver takes the packet.
    #[must_use]
    pub fn accepted(self) -> bool {
        matches!(self, Authenticity::Genuine | Authenticity::Forged)
    }
}

/// What a receiver saw; sums with `+=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgingStats {
    /// Packets under a tag of the key.
    pub genuine: u64,
    /// Packets that were taken for such.
    pub forged: u64,
    /// Packets under a wrong tag, those that raised an alert among them.
    pub rejected: u64,
    /// Alerts.
    pub alerts: u64,
}

impl AddAssign for ForgingStats {
    fn add_assign(&mut self, other: Self) {
        self.genuine += other.genuine;
        self.forged += other.forged;
        self.rejected += other.rejected;
        self.alerts += other.alerts;
    }
}

/// Checks the tags of all streams of a receiver.
///
/// Failures count in a row: genuine packets in between hide them, as with the paper's rule, so a stream should be what
/// one sender address brings, not all that arrives.
#[derive(Clone, Debug)]
pub struct Authenticator {
    tag_bits: u32,
    alert_after: u32,
    failures: HashMap<u64, u32>,
    stats: ForgingStats,
}

impl Authenticator {
    /// A receiver that has seen no failure, of a legal configuration.
    #[must_use]
    pub fn new(config: &ForgingConfig) -> Self {
        Authenticator {
            tag_bits: config.tag_bits,
            alert_after: config.alert_after,
            failures: HashMap::new(),
            stats: ForgingStats::default(),
        }
    }

    /// Checks a packet; `genuine` says whether its tag was made with the key.
    pub fn check(&mut self, stream: u64, genuine: bool, random: &mut impl RngCore) -> Authenticity {
        let by_chance = !genuine && random.next_u64() >> (u64::BITS - self.tag_bits) == 0;
        if genuine || by_chance {
            // A stream that never failed has no entry to reset.
            if let Some(failures) = self.failures.get_mut(&stream) {
                *failures = 0;
            }
            self.stats.genuine += u64::from(genuine);
            self.stats.forged += u64::from(by_chance);
            return if genuine { Authenticity::Genuine } else { Authenticity::Forged };
        }
        self.stats.rejected += 1;
        let failures = self.failures.entry(stream).or_insert(0);
        *failures += 1;
        if *failures < self.alert_after {
            return Authenticity::Rejected;
        }
        *failures = 0;
        self.stats.alerts += 1;
        Authenticity::Alert
    }

    /// What the receiver saw so far.
    #[must_use]
    pub fn stats(&self) -> &ForgingStats {
        &self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn failures_in_a_row_raise_an_alert() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut receiver = Authenticator::new(&ForgingConfig { alert_after: 3, ..ForgingConfig::default() });
        let mut check = |stream, genuine, expected| {
            let found = receiver.check(stream, genuine, &mut random);
            assert_eq!(found, expected);
            assert_eq!(found.accepted(), expected == Authenticity::Genuine);
        };
        use Authenticity::{Alert, Genuine, Rejected};
        for (stream, genuine, expected) in [
            (1, false, Rejected),
            (1, false, Rejected),
            (2, false, Rejected),
            (1, true, Genuine),
            (1, false, Rejected),
            (1, false, Rejected),
            (1, false, Alert),
            (1, false, Rejected),
            (2, true, Genuine),
        ] {
            check(stream, genuine, expected);
        }
        let mut sum = *receiver.stats();
        sum += *receiver.stats();
        assert_eq!(sum, ForgingStats { genuine: 4, forged: 0, rejected: 14, alerts: 2 });
    }

    #[test]
    fn a_short_tag_is_forged_as_often_as_it_says() {
        for bits in [1, 4, 8] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(bits));
            let mut receiver = Authenticator::new(&ForgingConfig { tag_bits: bits, ..ForgingConfig::default() });
            let tries = 1_000_000;
            for _ in 0..tries {
                receiver.check(1, false, &mut random);
            }
            let expected = f64::from(tries) / f64::from(1 << bits);
            let off = (receiver.stats().forged as f64 - expected) / expected.sqrt();
            assert!(off.abs() < 4.0, "{bits} bits: {off} standard deviations");
        }
    }

    #[test]
    fn configuration_errors_are_sentences() {
        let check = |tag_bits, alert_after, complaint: &str| {
            let sentence = ForgingConfig { tag_bits, alert_after }.validate().expect_err("not legal");
            assert!(sentence.contains(complaint), "{sentence}");
        };
        assert_eq!(ForgingConfig::default().validate(), Ok(()));
        check(0, 1, "tag_bits is 0");
        check(65, 1, "tag_bits is 65");
        check(32, 0, "alert_after is 0");
    }
}
