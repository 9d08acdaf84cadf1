//! Work on chunks of a file, on several cores.

use std::io::IsTerminal;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Bytes that a thread takes at once.
pub(super) const CHUNK: u64 = 1 << 20;

/// A bar at a terminal, in bytes.
pub(super) fn progress(doing: &str, bytes: u64) -> ProgressBar {
    let progress = if std::io::stderr().is_terminal() { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
    let style =
        ProgressStyle::with_template("{prefix:10} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    progress.with_style(style.expect("the template is well formed")).with_prefix(doing.to_owned())
}

/// The cores that this process may run on.
pub(super) fn cores() -> u64 {
    thread::available_parallelism().map_or(1, NonZero::get) as u64
}

/// Calls `act` for each of these chunks, on so many threads, each with a value of its own, and hands all of those values
/// back. The first failure ends it.
pub(super) fn each<T: Send>(
    chunks: Range<u64>,
    threads: u64,
    begin: impl Fn() -> Result<T, Failure> + Sync,
    act: impl Fn(&mut T, u64) -> Result<(), Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let next = AtomicU64::new(chunks.start);
    let failed = Mutex::new(None);
    let work = || -> Option<T> {
        let fail = |failure| {
            next.store(chunks.end, Ordering::Relaxed);
            failed.lock().expect("nobody panics with it").get_or_insert(failure);
        };
        let mut own = begin().map_err(fail).ok()?;
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks.end {
                return Some(own);
            }
            act(&mut own, chunk).map_err(fail).ok()?;
        }
    };
    let threads = threads.min(chunks.end - chunks.start).max(1);
    let done: Vec<Option<T>> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        started.into_iter().map(|thread| thread.join().expect("a thread that failed says so")).collect()
    });
    match failed.into_inner().expect("nobody panics with it") {
        Some(failure) => Err(failure),
        None => Ok(done.into_iter().flatten().collect()),
    }
}
