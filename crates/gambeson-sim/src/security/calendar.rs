//! Who has a resource when, for one that serves a packet at a time: packets ask in the order of their calls, though
//! some will be ready later than those behind them, as they wait for a key.

use std::collections::VecDeque;

use crate::time::Time;

/// The busy times from now on, in order, none touching the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Calendar {
    busy: VecDeque<(Time, Time)>,
    longest: Time,
}

impl Calendar {
    /// The resource for `length` from the first time on at which it is free, not before `ready`; `now` is the time of
    /// the call and never goes back, `ready` is not before it.
    ///
    /// A gap counts only if the longest packet so far would fit. So whoever is ready no earlier also begins no
    /// earlier, and packets under one key stay in order.
    pub(super) fn reserve(&mut self, now: Time, ready: Time, length: Time) -> Time {
        while self.busy.front().is_some_and(|&(_, end)| end <= now) {
            self.busy.pop_front();
        }
        self.longest = self.longest.max(length);
        let mut at = self.busy.partition_point(|&(_, end)| end <= ready);
        let mut start = ready;
        while let Some(&(begin, end)) = self.busy.get(at) {
            if begin >= start + self.longest {
                break;
            }
            start = end;
            at += 1;
        }
        self.insert(at, start, start + length);
        start
    }

    /// Enters a busy time before the one at `at`, as one with its neighbours if they touch.
    fn insert(&mut self, at: usize, start: Time, end: Time) {
        let joins_before = at > 0 && self.busy[at - 1].1 == start;
        let joins_after = self.busy.get(at).is_some_and(|&(begin, _)| begin == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.busy[at - 1].1 = self.busy[at].1;
                self.busy.remove(at);
            }
            (true, false) => self.busy[at - 1].1 = end,
            (false, true) => self.busy[at].0 = start,
            (false, false) => self.busy.insert(at, (start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_packet_that_waits_for_its_key_lets_others_by() {
        let mut calendar = Calendar::default();
        assert_eq!(calendar.reserve(0, 2500, 60), 2500);
        assert_eq!(calendar.reserve(10, 10, 60), 10);
        assert_eq!(calendar.reserve(20, 20, 60), 70);
        assert_eq!(calendar.reserve(30, 2480, 10), 2560, "the gap before 2500 is too short for the longest");
        assert_eq!(calendar.reserve(2700, 2700, 60), 2700);
        assert_eq!(calendar.busy.len(), 1, "the past is forgotten");
    }

    #[test]
    fn busy_times_never_overlap_and_ready_order_is_kept() {
        for seed in 0..50 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut calendar = Calendar::default();
            let (mut now, mut taken, mut longest) = (0, Vec::new(), 0);
            for _ in 0..2000 {
                now += random.random_range(0..40);
                let ready = now + if random.random_ratio(1, 4) { random.random_range(0..1000) } else { 0 };
                let length = random.random_range(1..60);
                let start = calendar.reserve(now, ready, length);
                longest = longest.max(length);
                // Nobody who asked before, and was not ready later, begins later.
                assert!(taken.iter().all(|&(r, s, _): &(Time, Time, Time)| r > ready || s <= start), "seed {seed}");
                assert!(start >= ready, "seed {seed}");
                taken.push((ready, start, length));
            }
            taken.sort_by_key(|&(_, start, _)| start);
            assert!(taken.windows(2).all(|pair| pair[0].1 + pair[0].2 <= pair[1].1), "seed {seed}");
        }
    }
}
