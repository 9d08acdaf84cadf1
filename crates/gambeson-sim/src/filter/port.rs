//! The filter of one switch port.

use std::ops::AddAssign;

use super::config::{FilterConfig, Scheme};
use crate::time::{self, Time};

/// What a port does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Time that the look-up took.
    pub delay: Time,
    /// Whether the packet goes on.
    pub passes: bool,
}

/// What the filter of a port did so far; sums over ports with `+=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterStats {
    /// Packets that came by.
    pub packets: u64,
    /// Look-ups in a table.
    pub lookups: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets under an invalid key that went through, as the filter was off or did not know the key yet.
    pub leaked: u64,
    /// How often the manager turned the filter on.
    pub enabled: u64,
    /// How often there were more invalid keys than valid ones, so that the valid table took over.
    pub switched_over: u64,
    /// How often the filter went off as the violation counter stood still.
    pub timed_out: u64,
}

impl AddAssign for FilterStats {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.lookups += other.lookups;
        self.dropped += other.dropped;
        self.leaked += other.leaked;
        self.enabled += other.enabled;
        self.switched_over += other.switched_over;
        self.timed_out += other.timed_out;
    }
}

/// The filter of a switch port.
#[derive(Clone, Debug)]
pub struct PortFilter {
    lookup: Time,
    valid_keys: usize,
    timeout: Time,
    table: Table,
    /// Ingress P_Key Violation Counter.
    violations: u64,
    /// When it changed last, or the filter was turned on.
    changed: Time,
    stats: FilterStats,
}

/// What is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Table {
    /// Nothing: a stateful filter without an attack.
    Off,
    /// Invalid_P_Key_Table, in order.
    Invalid(Vec<u16>),
    /// P_Key_Table; `stateful` is one that took over from the other and goes off again.
    Valid { stateful: bool },
}

impl PortFilter {
    /// The filter of a port, `None` if the scheme has none there; `ingress` is a port that a node is connected to.
    #[must_use]
    pub fn new(config: &FilterConfig, ingress: bool) -> Option<Self> {
        let stateful = config.scheme == Scheme::StatefulIngress;
        config.filters(ingress).then(|| PortFilter {
            lookup: time::from_ns(config.lookup_ns),
            valid_keys: config.valid_keys as usize,
            timeout: time::from_ns(config.timeout_us * 1e3),
            table: if stateful { Table::Off } else { Table::Valid { stateful: false } },
            violations: 0,
            changed: 0,
            stats: FilterStats::default(),
        })
    }

    /// What happens to a packet that comes in at `now` under `p_key`; `valid` says whether the port's P_Key_Table has
    /// the key. Calls come in the order of `now`.
    pub fn check(&mut self, now: Time, p_key: u16, valid: bool) -> Verdict {
        self.expire(now);
        self.stats.packets += 1;
        let passes = match &self.table {
            Table::Off => {
                self.stats.leaked += u64::from(!valid);
                return Verdict { delay: 0, passes: true };
            }
            Table::Invalid(keys) => keys.binary_search(&p_key).is_err(),
            Table::Valid { .. } => valid,
        };
        self.stats.lookups += 1;
        if passes {
            self.stats.leaked += u64::from(!valid);
        } else {
            self.stats.dropped += 1;
            self.violations += 1;
            self.changed = now;
        }
        Verdict { delay: self.lookup, passes }
    }

    /// Registers an invalid key, as the manager demands, and turns the filter on if it is off. Of no effect where
    /// every packet is looked up anyway.
    pub fn enable(&mut self, now: Time, p_key: u16) {
        self.expire(now);
        if self.table == Table::Off {
            self.table = Table::Invalid(Vec::new());
            self.changed = now;
            self.stats.enabled += 1;
        }
        let Table::Invalid(keys) = &mut self.table else { return };
        if let Err(at) = keys.binary_search(&p_key) {
            keys.insert(at, p_key);
            if keys.len() > self.valid_keys {
                self.table = Table::Valid { stateful: true };
                self.stats.switched_over += 1;
            }
        }
    }

    /// Ingress P_Key Violation Counter: packets dropped since the filter was turned on.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// Keys in the table that is looked up beside the P_Key_Table: min(p', p) of Table 1.
    #[must_use]
    pub fn invalid_keys(&self) -> usize {
        if let Table::Invalid(keys) = &self.table { keys.len() } else { 0 }
    }

    /// What the filter did so far.
    #[must_use]
    pub fn stats(&self) -> &FilterStats {
        &self.stats
    }

    /// A stateful filter whose violation counter stood still goes off: table flushed, counter reset.
    fn expire(&mut self, now: Time) {
        if matches!(self.table, Table::Invalid(_) | Table::Valid { stateful: true })
            && now - self.changed >= self.timeout
        {
            self.table = Table::Off;
            self.violations = 0;
            self.stats.timed_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{NS, US};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    const LOOKED_UP: Verdict = Verdict { delay: 5 * NS, passes: true };
    const DROPPED: Verdict = Verdict { delay: 5 * NS, passes: false };
    const UNTOUCHED: Verdict = Verdict { delay: 0, passes: true };

    fn port(scheme: Scheme) -> PortFilter {
        PortFilter::new(&FilterConfig { scheme, valid_keys: 2, timeout_us: 10.0, ..FilterConfig::default() }, true)
            .expect("an ingress port has a filter")
    }

    /// Packets at their times under a key below 100 if valid, with what becomes of each.
    fn check(filter: &mut PortFilter, packets: &[(Time, u16, Verdict)]) {
        for &(now, key, verdict) in packets {
            assert_eq!(filter.check(now, key, key < 100), verdict, "key {key} at {now}");
        }
    }

    #[test]
    fn static_schemes_look_every_packet_up() {
        for scheme in [Scheme::DuplicateTable, Scheme::Ingress] {
            let mut filter = port(scheme);
            check(&mut filter, &[(0, 1, LOOKED_UP), (1, 101, DROPPED), (US, 2, LOOKED_UP), (S_LATER, 101, DROPPED)]);
            filter.enable(S_LATER, 1);
            check(&mut filter, &[(S_LATER, 1, LOOKED_UP)]);
            assert_eq!((filter.violations(), filter.stats().enabled, filter.stats().timed_out), (2, 0, 0));
        }
        assert!(PortFilter::new(&FilterConfig { scheme: Scheme::Ingress, ..FilterConfig::default() }, false).is_none());
    }

    const S_LATER: Time = 1_000_000 * US;

    #[test]
    fn a_stateful_filter_knows_only_the_keys_it_was_told() {
        let mut filter = port(Scheme::StatefulIngress);
        check(&mut filter, &[(0, 101, UNTOUCHED), (US, 1, UNTOUCHED)]);
        filter.enable(2 * US, 101);
        check(&mut filter, &[(2 * US, 101, DROPPED), (3 * US, 102, LOOKED_UP), (4 * US, 1, LOOKED_UP)]);
        assert_eq!((filter.violations(), filter.invalid_keys()), (1, 1));
        // Ten microseconds after the last violation it is off, not before.
        check(&mut filter, &[(12 * US - 1, 1, LOOKED_UP), (12 * US, 101, UNTOUCHED)]);
        assert_eq!((filter.violations(), filter.invalid_keys()), (0, 0));
        let stats =
            FilterStats { packets: 7, lookups: 4, dropped: 1, leaked: 3, enabled: 1, switched_over: 0, timed_out: 1 };
        assert_eq!(*filter.stats(), stats);
    }

    #[test]
    fn more_invalid_keys_than_valid_ones_bring_the_valid_table_in() {
        let mut filter = port(Scheme::StatefulIngress);
        for key in [101, 102, 102] {
            filter.enable(0, key);
        }
        check(&mut filter, &[(0, 103, LOOKED_UP)]);
        filter.enable(US, 103);
        check(&mut filter, &[(US, 999, DROPPED), (US, 1, LOOKED_UP), (US, 101, DROPPED)]);
        assert_eq!((filter.stats().switched_over, filter.invalid_keys()), (1, 0));
        // Violations keep it on; ten microseconds without one turn it off and forget all keys.
        check(&mut filter, &[(9 * US, 999, DROPPED), (18 * US, 1, LOOKED_UP), (19 * US, 101, UNTOUCHED)]);
        filter.enable(20 * US, 101);
        check(&mut filter, &[(20 * US, 102, LOOKED_UP)]);
        let mut sum = *filter.stats();
        sum += *filter.stats();
        assert_eq!((sum.enabled, sum.timed_out), (4, 2));
    }

    #[test]
    fn valid_keys_always_pass_and_known_invalid_ones_never() {
        for seed in 0..200 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let scheme = [Scheme::DuplicateTable, Scheme::Ingress, Scheme::StatefulIngress][seed as usize % 3];
            let mut filter = port(scheme);
            let (mut now, mut told) = (0, None);
            for _ in 0..1000 {
                now += random.random_range(0..3 * US);
                let key = random.random_range(90..110);
                if random.random_ratio(1, 8) && key >= 100 {
                    filter.enable(now, key);
                    told = Some((now, key));
                }
                let verdict = filter.check(now, key, key < 100);
                assert!(key >= 100 || verdict.passes, "seed {seed}: a valid key was dropped");
                assert!(told != Some((now, key)) || !verdict.passes, "seed {seed}: a key just registered passed");
                assert!(filter.invalid_keys() <= 2, "seed {seed}: the table outgrew the valid one");
            }
            let stats = filter.stats();
            assert_eq!(stats.packets, 1000);
            assert!(stats.dropped > 0 && stats.lookups >= stats.dropped, "seed {seed}");
        }
    }
}
