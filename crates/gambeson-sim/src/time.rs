//! Simulated time: picoseconds since the beginning, which hold a byte of the fastest link and 213 days.

/// A point in simulated time or a length of it, in picoseconds.
pub type Time = u64;

/// A nanosecond.
pub const NS: Time = 1_000;
/// A microsecond.
pub const US: Time = 1_000 * NS;
/// A millisecond.
pub const MS: Time = 1_000 * US;
/// A second.
pub const S: Time = 1_000 * MS;

/// Nanoseconds, rounded to a picosecond.
#[must_use]
pub fn from_ns(ns: f64) -> Time {
    (ns * NS as f64).round() as Time
}

/// In nanoseconds.
#[must_use]
pub fn to_ns(time: Time) -> f64 {
    time as f64 / NS as f64
}
