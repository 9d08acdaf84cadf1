//! The run queue of a processor, as Linux 2.6's O(1) scheduler keeps it: active and expired arrays of priorities.
//!
//! Processes have the same nice value; those that sleep get up to five priorities more, those that only compute five
//! less. Who has used up its time slice waits until all others have, unless it counts as interactive and nobody has
//! waited for too long. Above these priorities there is one that only schedulers give: the boost.

use std::collections::VecDeque;

use crate::time::{S, Time};

/// How much sleep counts.
const SLEEP_MAX: Time = S;
/// Priorities between a process that only sleeps and one that only computes.
const BONUS_MAX: Time = 10;
/// From this many priorities above the middle on, a process is interactive.
const INTERACTIVE: usize = 1 + (BONUS_MAX as usize / 2 - 2);
/// The boost, and the eleven priorities.
const LEVELS: usize = 2 + BONUS_MAX as usize;

/// What the scheduler knows of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// How much it slept lately: grows while it is blocked, shrinks while it runs.
    pub(super) slept: Time,
    /// What remains of its time slice.
    pub(super) slice: Time,
    /// Whether it goes before all others.
    pub(super) boosted: bool,
}

impl Standing {
    /// Its priority: the boost is 0, the least 11.
    pub(super) fn level(&self) -> usize {
        if self.boosted { 0 } else { 1 + (BONUS_MAX - self.slept * BONUS_MAX / SLEEP_MAX) as usize }
    }

    pub(super) fn sleep(&mut self, time: Time) {
        self.slept = (self.slept + time).min(SLEEP_MAX);
    }

    pub(super) fn run(&mut self, time: Time) {
        self.slept = self.slept.saturating_sub(time);
        self.slice = self.slice.saturating_sub(time);
    }
}

#[derive(Debug, Default)]
struct Array([VecDeque<u32>; LEVELS]);

/// The processes that could run on a processor and don't.
#[derive(Debug, Default)]
pub(super) struct RunQueue {
    active: Array,
    expired: Array,
    ready: usize,
    /// When the first of the expired expired.
    expired_since: Option<Time>,
}

impl RunQueue {
    /// A process that has some of its slice left.
    pub(super) fn push(&mut self, process: u32, level: usize) {
        self.active.0[level].push_back(process);
        self.ready += 1;
    }

    /// A process whose time slice is over.
    pub(super) fn expire(&mut self, process: u32, level: usize, now: Time) {
        let starving = self.expired_since.is_some_and(|since| now - since > SLEEP_MAX * (self.ready as Time + 1));
        if level <= INTERACTIVE && !starving {
            return self.push(process, level);
        }
        self.expired.0[level].push_back(process);
        self.expired_since.get_or_insert(now);
        self.ready += 1;
    }

    /// The next to run.
    pub(super) fn pop(&mut self) -> Option<u32> {
        if self.ready == 0 {
            return None;
        }
        self.ready -= 1;
        if let Some(process) = self.active.0.iter_mut().find_map(VecDeque::pop_front) {
            return Some(process);
        }
        std::mem::swap(&mut self.active, &mut self.expired);
        self.expired_since = None;
        self.active.0.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Takes out a process whose priority changes.
    pub(super) fn remove(&mut self, process: u32) {
        for queue in self.active.0.iter_mut().chain(&mut self.expired.0) {
            if let Some(place) = queue.iter().position(|&other| other == process) {
                queue.remove(place);
                self.ready -= 1;
                return;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MS;

    #[test]
    fn sleepers_rise_and_workers_sink() {
        let mut standing = Standing::default();
        assert_eq!(standing.level(), 11);
        standing.sleep(500 * MS);
        assert_eq!(standing.level(), 6);
        standing.sleep(20 * S);
        assert_eq!(standing.level(), 1);
        standing.run(300 * MS);
        assert_eq!(standing.level(), 4);
        standing.boosted = true;
        assert_eq!(standing.level(), 0);
    }

    #[test]
    fn the_expired_wait_for_the_others_and_the_interactive_do_not() {
        let mut queue = RunQueue::default();
        queue.push(1, 6);
        queue.push(2, 3);
        queue.expire(3, 11, 0);
        queue.expire(4, 2, 0);
        queue.push(5, 0);
        queue.push(6, 11);
        queue.remove(6);
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [5, 4, 2, 1, 3]);
        assert!(queue.is_empty());
        queue.expire(1, 11, 0);
        queue.push(3, 11);
        queue.expire(2, 1, 4 * S);
        assert_eq!(queue.pop(), Some(3), "an interactive process does not keep the others waiting for ever");
    }
}
