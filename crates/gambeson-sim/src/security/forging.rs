//! Tags made without the key: how often one is right by chance, and the alert that so many wrong ones raise (IBA paper,
//! section 6.1, type II).

use std::collections::HashMap;
use std::ops::AddAssign;

use rand::RngCore;
use serde::{Deserialize, Serialize};

/// When wrong tags raise an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertConfig {
    /// Failures of one stream that raise it. Unstated in the paper.
    pub failures: u32,
    /// Among how many packets of the stream, from the first failure on, they are counted. 0: in a row, as in the paper,
    /// where a genuine packet in between begins the count anew.
    pub among: u32,
}

impl AlertConfig {
    /// What is wrong with it, as a sentence with the remedy.
    pub fn validate(&self) -> Result<(), String> {
        if self.failures == 0 {
            return Err(
                "alert.failures is 0, so that there would be an alert without a failure; give at least 1".into()
            );
        }
        if self.among > 0 && self.among < self.failures {
            return Err(format!(
                "alert.failures is {}, which {} packets cannot be; raise alert.among, or give 0 for failures in a row",
                self.failures, self.among
            ));
        }
        Ok(())
    }
}

impl Default for AlertConfig {
    fn default() -> Self {
        AlertConfig { failures: 16, among: 0 }
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
    /// Wrong, and one too many.
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

/// Checks the tags of all streams of a receiver: of what one sender address brings, as genuine packets of others would
/// hide failures even more.
#[derive(Clone, Debug)]
pub struct Authenticator {
    tag_bits: u32,
    alert: AlertConfig,
    failing: HashMap<u64, Failing>,
    stats: ForgingStats,
}

/// A stream since its first failure that counts.
#[derive(Clone, Copy, Debug, Default)]
struct Failing {
    packets: u32,
    failures: u32,
}

impl Authenticator {
    /// A receiver that has seen no failure, with tags of 1 to 64 bits (32 in the place of the ICRC) and a legal
    /// configuration.
    #[must_use]
    pub fn new(tag_bits: u32, alert: AlertConfig) -> Self {
        Authenticator { tag_bits, alert, failing: HashMap::new(), stats: ForgingStats::default() }
    }

    /// Checks a packet; `genuine` says whether its tag was made with the key.
    pub fn check(&mut self, stream: u64, genuine: bool, random: &mut impl RngCore) -> Authenticity {
        let by_chance = !genuine && random.next_u64() >> (u64::BITS - self.tag_bits) == 0;
        let AlertConfig { failures, among } = self.alert;
        if genuine || by_chance {
            if let Some(failing) = self.failing.get_mut(&stream) {
                failing.packets += 1;
                if failing.packets >= among {
                    self.failing.remove(&stream);
                }
            }
            self.stats.genuine += u64::from(genuine);
            self.stats.forged += u64::from(by_chance);
            return if genuine { Authenticity::Genuine } else { Authenticity::Forged };
        }
        self.stats.rejected += 1;
        let failing = self.failing.entry(stream).or_default();
        failing.packets += 1;
        failing.failures += 1;
        let alert = failing.failures >= failures;
        if alert || among > 0 && failing.packets >= among {
            self.failing.remove(&stream);
        }
        self.stats.alerts += u64::from(alert);
        if alert { Authenticity::Alert } else { Authenticity::Rejected }
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
        let mut receiver = Authenticator::new(32, AlertConfig { failures: 3, among: 0 });
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
            let mut receiver = Authenticator::new(bits, AlertConfig::default());
            let tries = 1_000_000;
            for _ in 0..tries {
                receiver.check(1, false, &mut random);
            }
            let expected = f64::from(tries) / f64::from(1 << bits);
            let off = (receiver.stats().forged as f64 - expected) / expected.sqrt();
            assert!(off.abs() < 4.0, "{bits} bits: {off} standard deviations");
        }
    }

    /// A forger that names an honest sender, whose genuine packets come in between.
    #[test]
    fn genuine_packets_hide_failures_in_a_row_and_not_those_among_many() {
        let alerts = |among, genuine: usize| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut receiver = Authenticator::new(32, AlertConfig { failures: 4, among });
            for number in 0..120 {
                receiver.check(1, number % (genuine + 1) != 0, &mut random);
            }
            receiver.stats().alerts
        };
        assert_eq!((alerts(0, 0), alerts(0, 1)), (30, 0));
        // Every other packet is wrong: the fourth is the seventh of them. Every fifth is: in twelve there are three.
        assert_eq!((alerts(12, 1), alerts(12, 4), alerts(16, 4)), (15, 0, 6));
    }

    #[test]
    fn configuration_errors_are_sentences() {
        let check = |failures, among, complaint: &str| {
            let sentence = AlertConfig { failures, among }.validate().expect_err("not legal");
            assert!(sentence.contains(complaint), "{sentence}");
        };
        assert_eq!(AlertConfig::default().validate(), Ok(()));
        check(0, 0, "alert.failures is 0");
        check(16, 15, "15 packets cannot be");
    }
}
