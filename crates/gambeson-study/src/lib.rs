//! Studies with the simulator, each made of many runs: sweeps with their tables, pictures and pages, and advice on a
//! session-key cache. The command line and the Python package share them, and so the folders that they write.
#![forbid(unsafe_code)]

pub mod advise;
mod error;
pub mod lines;
pub mod pool;
pub mod sweep;

pub use error::Error;

/// Results of another version are not taken for this one's.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Nanoseconds as people write them.
#[must_use]
pub fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e4 => format!("{ns:.0} ns"),
        _ if ns < 1e7 => format!("{:.1} us", ns / 1e3),
        _ if ns < 1e10 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}
