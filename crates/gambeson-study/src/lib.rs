//! Studies with the simulator, each made of many runs: sweeps with their tables, pictures and pages, and advice on a
//! session-key cache. The command line and the Python package share them, and so the folders that they write.
#![forbid(unsafe_code)]

pub mod advise;
mod chart;
mod error;
pub mod figures;
pub mod lines;
pub mod pool;
pub mod sweep;

pub use error::Error;

pub use gambeson_sim::VERSION;

/// Writes a file beside its name and then under it, so that nobody ever finds half of it.
///
/// # Errors
/// A sentence, when it cannot be written.
fn replace(path: &std::path::Path, content: &[u8]) -> Result<(), Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, content)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|error| Error::unwritable(path, &error))
}

/// A value that is a number in an experiment's file.
fn number(value: &str) -> Option<f64> {
    value.replace('_', "").parse().ok().filter(|number: &f64| number.is_finite())
}

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
