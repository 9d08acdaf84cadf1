//! The event queue: a wheel of buckets for what comes soon, a heap for what comes late.
//!
//! Events leave in the order of their times, and those of one time in the order in which they were put in. That order
//! does not depend on the width of the buckets, so neither does any result.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Time;

/// The fewest and most buckets of a wheel, powers of two. Few stay in the processor's cache, many hold few events each.
const BUCKETS: [u64; 2] = [1024, 8192];
/// Events that a bucket may hold before there are more buckets.
const CROWD: u64 = 4;

/// A queue of events with their times.
pub struct Wheel<E> {
    now: Time,
    /// The bucket under way, latest first: the next event is the last.
    current: Vec<(Time, E)>,
    /// The number of that bucket, counted from the beginning of time.
    bucket: u64,
    /// A bucket holds 2^shift picoseconds.
    shift: u32,
    buckets: Box<[Vec<(Time, E)>]>,
    /// Memory of buckets that were emptied, the last one first: what is filled next is still in the processor's cache.
    spare: Vec<Vec<(Time, E)>>,
    /// A bit for every bucket that is not empty.
    filled: Box<[u64]>,
    /// The number of buckets less one.
    mask: u64,
    /// What lies beyond the wheel's horizon, and the number of its entry.
    late: BinaryHeap<Reverse<(Time, u64, Ordered<E>)>>,
    entered: u64,
    passed: u64,
    fresh: bool,
}

impl<E: Copy> Wheel<E> {
    /// An empty queue at time 0. With `spacing` between events, on average, a bucket holds about one, or more where most
    /// events lie up to `ahead` in the future, as all of those must fit the wheel. A bad guess costs speed and nothing else.
    #[must_use]
    pub fn new(spacing: Time, ahead: Time) -> Self {
        let wanted = 2 * ahead / (CROWD * spacing.max(1));
        let buckets = wanted.next_power_of_two().clamp(BUCKETS[0], BUCKETS[1]);
        Self {
            now: 0,
            current: Vec::new(),
            bucket: 0,
            shift: spacing.max(2 * ahead / buckets).max(1).ilog2(),
            buckets: std::iter::repeat_with(Vec::new).take(buckets as usize).collect(),
            spare: Vec::new(),
            filled: vec![0; buckets as usize / 64].into(),
            mask: buckets - 1,
            late: BinaryHeap::new(),
            entered: 0,
            passed: 0,
            fresh: false,
        }
    }

    /// The time of the event that left last.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// How many events have left.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Puts an event in, not before the present.
    #[inline]
    pub fn push(&mut self, at: Time, event: E) {
        debug_assert!(at >= self.now, "an event in the past");
        let bucket = at >> self.shift;
        if bucket <= self.bucket {
            // Before those of the same time, which leave first from the end.
            let place = self.current.iter().rposition(|&(time, _)| time > at).map_or(0, |before| before + 1);
            self.current.insert(place, (at, event));
        } else if bucket - self.bucket <= self.mask {
            self.put(bucket, (at, event));
        } else {
            self.entered += 1;
            self.late.push(Reverse((at, self.entered, Ordered(event))));
        }
    }

    /// Takes the next event out, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        if self.current.is_empty() && !self.advance() {
            return None;
        }
        let (at, event) = self.current.pop().expect("the bucket under way is not empty");
        self.now = at;
        self.passed += 1;
        Some((at, event))
    }

    /// Whether the event that left last was the first of a new bucket, and what else is in that.
    #[inline]
    pub fn new_bucket(&mut self) -> Option<&[(Time, E)]> {
        std::mem::take(&mut self.fresh).then_some(&self.current)
    }

    fn put(&mut self, bucket: u64, entry: (Time, E)) {
        let index = (bucket & self.mask) as usize;
        let bucket = &mut self.buckets[index];
        if bucket.capacity() == 0 {
            *bucket = self.spare.pop().unwrap_or_default();
            self.filled[index / 64] |= 1 << (index % 64);
        }
        bucket.push(entry);
    }

    /// Goes to the next bucket that is not empty. Whether there is one.
    fn advance(&mut self) -> bool {
        let next = match self.next_filled() {
            Some(bucket) => bucket,
            None => match self.late.peek() {
                Some(Reverse((at, ..))) => at >> self.shift,
                None => return false,
            },
        };
        self.bucket = next;
        // What has come within the horizon moves before anything else can be put there, so the order of entry stays.
        while let Some(&Reverse((at, _, Ordered(event)))) = self.late.peek() {
            let bucket = at >> self.shift;
            if bucket - self.bucket > self.mask {
                break;
            }
            self.late.pop();
            self.put(bucket, (at, event));
        }
        let index = (next & self.mask) as usize;
        self.filled[index / 64] &= !(1 << (index % 64));
        let emptied = std::mem::replace(&mut self.current, std::mem::take(&mut self.buckets[index]));
        if emptied.capacity() > 0 {
            self.spare.push(emptied);
        }
        if self.current.len() > 1 {
            self.current.reverse();
            self.current.sort_by_key(|&(at, _)| Reverse(at));
        }
        self.fresh = true;
        true
    }

    /// The nearest bucket after this one that is not empty.
    fn next_filled(&self) -> Option<u64> {
        let from = (self.bucket + 1) & self.mask;
        let words = self.filled.len();
        let (first, bit) = (from as usize / 64, from % 64);
        // The word of `from` twice: first its upper bits, at last its lower ones.
        for step in 0..=words {
            let word = (first + step) % words;
            let mut bits = self.filled[word];
            if step == 0 {
                bits &= u64::MAX << bit;
            } else if step == words {
                bits &= !(u64::MAX << bit);
            }
            if bits != 0 {
                let index = word as u64 * 64 + u64::from(bits.trailing_zeros());
                return Some(self.bucket + 1 + (index.wrapping_sub(from) & self.mask));
            }
        }
        None
    }
}

/// An event in the heap, where the number of its entry has decided the order before it is asked.
struct Ordered<E>(E);

impl<E> PartialEq for Ordered<E> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<E> Eq for Ordered<E> {}

impl<E> PartialOrd for Ordered<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Ordered<E> {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Every width of buckets gives the order that a sorted list gives.
    #[test]
    fn order_is_that_of_time_and_then_of_entry() {
        for spacing in [1, 100, 10_000, 1 << 30] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(spacing);
            let mut wheel = Wheel::new(spacing, 0);
            let mut model: Vec<(Time, u32)> = Vec::new();
            for number in 0..20_000_u32 {
                let ahead = match random.random_range(0..4) {
                    0 => 0,
                    1 => random.random_range(0..10),
                    2 => random.random_range(0..100_000),
                    _ => random.random_range(0..1_000_000_000),
                };
                let at = wheel.now() + ahead;
                wheel.push(at, number);
                let place = model.iter().rposition(|&(time, _)| time <= at).map_or(0, |before| before + 1);
                model.insert(place, (at, number));
                if random.random_bool(0.55) {
                    assert_eq!(wheel.pop(), Some(model.remove(0)), "spacing {spacing}");
                    if model.is_empty() {
                        assert_eq!(wheel.pop(), None);
                    }
                }
            }
            while let Some(event) = wheel.pop() {
                assert_eq!(event, model.remove(0));
            }
            assert!(model.is_empty());
            assert_eq!(wheel.passed(), 20_000);
        }
    }
}
