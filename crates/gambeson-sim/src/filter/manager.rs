//! The subnet manager's part of SIF, and the adapter that reports to it.

use std::collections::{BTreeMap, VecDeque};

use super::config::FilterConfig;
use crate::time::{self, Time};

/// The filter of `port` is to be turned on for `key` at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enable {
    /// The ingress port.
    pub port: u32,
    /// The invalid key.
    pub key: u16,
    /// When the port knows.
    pub at: Time,
}

/// The subnet manager: one trap after the other, each for an invalid key and the ingress port that it is laid to.
///
/// Which port that is, the caller says: the one of the packet's source address, which an attacker may have spoofed, or
/// the one that the packet's mark tells.
#[derive(Clone, Debug)]
pub struct Manager {
    processing: Time,
    update: Time,
    holdoff: Time,
    queue: usize,
    /// When the traps that are waiting or in work are done.
    pending: VecDeque<Time>,
    /// Until when repeated traps are ignored.
    registered: BTreeMap<(u32, u16), Time>,
    stats: ManagerStats,
}

/// What the manager did so far: traps = registered + repeated + lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagerStats {
    /// Traps that came.
    pub traps: u64,
    /// Those that turned a filter on or gave it one more key.
    pub registered: u64,
    /// Those for what was registered just before.
    pub repeated: u64,
    /// Those that found the queue full.
    pub lost: u64,
}

impl Manager {
    /// A manager that knows of no attack.
    #[must_use]
    pub fn new(config: &FilterConfig) -> Self {
        Manager {
            processing: time::from_ns(config.processing_us * 1e3),
            update: time::from_ns(config.update_us * 1e3),
            holdoff: time::from_ns(config.holdoff_us * 1e3),
            queue: config.queue as usize,
            pending: VecDeque::new(),
            registered: BTreeMap::new(),
            stats: ManagerStats::default(),
        }
    }

    /// A trap arrives: a packet under `key`, sent through `port`, reached an adapter that does not have the key.
    /// Calls come in the order of `now`.
    pub fn trap(&mut self, now: Time, key: u16, port: u32) -> Option<Enable> {
        self.stats.traps += 1;
        while self.pending.front().is_some_and(|&done| done <= now) {
            self.pending.pop_front();
        }
        if self.pending.len() >= self.queue {
            self.stats.lost += 1;
            return None;
        }
        let done = self.pending.back().map_or(now, |&last| last.max(now)) + self.processing;
        self.pending.push_back(done);
        let at = done + self.update;
        let until = self.registered.entry((port, key)).or_insert(0);
        if done < *until {
            self.stats.repeated += 1;
            return None;
        }
        *until = at + self.holdoff;
        self.stats.registered += 1;
        Some(Enable { port, key, at })
    }

    /// What the manager did so far.
    #[must_use]
    pub fn stats(&self) -> &ManagerStats {
        &self.stats
    }
}

/// An adapter's traps, at most one in a while.
#[derive(Clone, Copy, Debug)]
pub struct Reporter {
    interval: Time,
    next: Time,
}

impl Reporter {
    /// An adapter that sent no trap yet.
    #[must_use]
    pub fn new(config: &FilterConfig) -> Self {
        Reporter { interval: time::from_ns(config.trap_interval_us * 1e3), next: 0 }
    }

    /// Whether a packet under a key that the adapter does not have, at `now`, is reported.
    pub fn reports(&mut self, now: Time) -> bool {
        let reports = now >= self.next;
        if reports {
            self.next = now + self.interval;
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PortFilter, Scheme};
    use super::*;
    use crate::time::US;

    fn config() -> FilterConfig {
        FilterConfig { scheme: Scheme::StatefulIngress, queue: 2, ..FilterConfig::default() }
    }

    /// Traps (time, key, port) and when the port will know, if the manager acts.
    fn check(manager: &mut Manager, traps: &[(Time, u16, u32, Option<Time>)]) {
        for &(now, key, port, at) in traps {
            let enable = at.map(|at| Enable { port, key, at });
            assert_eq!(manager.trap(now, key, port), enable, "key {key} of port {port} at {now}");
        }
    }

    #[test]
    fn traps_are_worked_off_one_by_one() {
        let mut manager = Manager::new(&config());
        check(
            &mut manager,
            &[
                (0, 7, 1, Some(6 * US)),
                (0, 8, 1, Some(11 * US)),
                (0, 9, 1, None),
                (5 * US, 7, 1, None),
                (20 * US, 7, 2, Some(26 * US)),
                // 100 us after port 1 knew of key 7 it may be told again.
                (100 * US, 7, 1, None),
                (101 * US, 7, 1, Some(111 * US)),
            ],
        );
        assert_eq!(*manager.stats(), ManagerStats { traps: 7, registered: 4, repeated: 2, lost: 1 });
    }

    #[test]
    fn an_adapter_reports_once_in_a_while() {
        let mut reporter = Reporter::new(&config());
        let reports: Vec<bool> =
            [0, US, 10 * US - 1, 10 * US, 11 * US, 30 * US].map(|now| reporter.reports(now)).into();
        assert_eq!(reports, [true, false, false, true, false, true]);
    }

    #[test]
    fn a_flood_is_stopped_at_its_port_until_it_ends() {
        let config = FilterConfig { queue: 64, ..config() };
        let (mut manager, mut reporter) = (Manager::new(&config), Reporter::new(&config));
        let mut port = PortFilter::new(&config, true).expect("an ingress port");
        let mut enable: Option<Enable> = None;
        let mut arrived = 0;
        // A packet of 256 bytes at 2.5 Gb/s every 819.2 ns, 2 us to the victim and as long for the trap.
        for packet in 0..10_000 {
            let now = packet * 819_200;
            if let Some(due) = enable.take_if(|enable| enable.at <= now) {
                port.enable(due.at, due.key);
            }
            if port.check(now, 77, false).passes {
                arrived += 1;
                if reporter.reports(now + 2 * US) {
                    enable = manager.trap(now + 4 * US, 77, 3).or(enable);
                }
            }
        }
        // 10 us of the flood came through, no more.
        assert_eq!(arrived, 13);
        assert_eq!(port.violations(), 10_000 - 13);
        let later = 10_000 * 819_200 + 1000 * US;
        assert_eq!(port.check(later, 1, true).delay, 0, "the filter is off again");
    }
}
