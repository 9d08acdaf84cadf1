//! How long commits take: what everybody waits for who is given a key.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Up to how many seconds a commit took that is counted in a class; those that took longer are a class of their own.
pub const BOUNDS: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Commits by how long they took.
#[derive(Debug, Default)]
pub struct Commits {
    classes: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Commits {
    pub(super) fn took(&self, time: Duration) {
        let class = BOUNDS.iter().position(|&bound| time.as_secs_f64() <= bound).unwrap_or(BOUNDS.len());
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How many there were in each class, those of [`BOUNDS`] and one more.
    pub fn classes(&self) -> [u64; BOUNDS.len() + 1] {
        std::array::from_fn(|class| self.classes[class].load(Ordering::Relaxed))
    }

    /// How many seconds they took in all.
    pub fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_once() {
        let commits = Commits::default();
        for micros in [0, 100, 101, 4_999_999, 5_000_000, 5_000_001] {
            commits.took(Duration::from_micros(micros));
        }
        let classes = commits.classes();
        assert_eq!((classes[0], classes[1], classes[13], classes[14], classes.iter().sum::<u64>()), (2, 1, 2, 1, 6));
        assert!((commits.seconds() - 15.000_201).abs() < 1e-9);
    }
}
