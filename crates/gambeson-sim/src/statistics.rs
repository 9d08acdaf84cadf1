//! Counts, means, spreads and quantiles of times, in constant space.

use serde::{Deserialize, Serialize};

use crate::time::{self, Time};

/// Buckets for each factor of two.
const STEPS: usize = 16;

/// A distribution of times: exact count, mean, deviation, extremes; quantiles within 1/16.
#[derive(Clone, Debug)]
pub struct Distribution {
    count: u64,
    sum: u128,
    /// Sum of squares, in square nanoseconds.
    squares: f64,
    min: Time,
    max: Time,
    buckets: Vec<u64>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { count: 0, sum: 0, squares: 0.0, min: Time::MAX, max: 0, buckets: vec![0; 64 * STEPS] }
    }
}

impl Distribution {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: Time) {
        self.count += 1;
        self.sum += u128::from(value);
        let ns = time::to_ns(value);
        self.squares += ns * ns;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.buckets[bucket(value)] += 1;
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean in nanoseconds; 0 without any.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 / time::NS as f64 }
    }

    /// What a report shows.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mean = self.mean_ns();
        let variance = if self.count < 2 { 0.0 } else { (self.squares / self.count as f64 - mean * mean).max(0.0) };
        Summary {
            count: self.count,
            mean_ns: mean,
            deviation_ns: variance.sqrt(),
            min_ns: if self.count == 0 { 0.0 } else { time::to_ns(self.min) },
            p50_ns: self.quantile(0.5),
            p99_ns: self.quantile(0.99),
            max_ns: time::to_ns(self.max),
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && count > 0 {
                return time::to_ns(upper(index).clamp(self.min, self.max));
            }
        }
        0.0
    }
}

/// The bucket of a value: the exponent and the four bits after the first.
fn bucket(value: Time) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let exponent = value.ilog2() as usize;
    (exponent - 3) * STEPS + ((value >> (exponent - 4)) as usize & (STEPS - 1))
}

/// The largest value of a bucket.
fn upper(index: usize) -> Time {
    if index < STEPS {
        return index as Time;
    }
    let (exponent, step) = (index / STEPS + 3, index % STEPS);
    (((STEPS + step + 1) as u128) << (exponent - 4)).min(u128::from(Time::MAX)) as Time - 1
}

/// A distribution in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Summary {
    /// Values.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub deviation_ns: f64,
    /// Least.
    pub min_ns: f64,
    /// Half are no greater, within 1/16.
    pub p50_ns: f64,
    /// 99 of 100 are no greater, within 1/16.
    pub p99_ns: f64,
    /// Greatest.
    pub max_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_values() {
        let mut distribution = Distribution::default();
        (1..=1000).for_each(|value| distribution.add(value * time::NS));
        let summary = distribution.summary();
        assert_eq!((summary.count, summary.min_ns, summary.max_ns), (1000, 1.0, 1000.0));
        assert!((summary.mean_ns - 500.5).abs() < 1e-9);
        assert!((summary.deviation_ns - 288.675).abs() < 0.01);
        assert!((summary.p50_ns / 500.0 - 1.0).abs() < 0.07 && (summary.p99_ns / 990.0 - 1.0).abs() < 0.07);
    }

    #[test]
    fn buckets_cover_all_times() {
        for value in (0..63).map(|bit| 1_u64 << bit).chain([0, 15, 16, 17, 1000, Time::MAX / 2]) {
            assert!(upper(bucket(value)) >= value);
            assert!(bucket(value) == 0 || upper(bucket(value) - 1) < value);
        }
    }
}
