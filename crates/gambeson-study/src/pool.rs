//! Independent pieces of work on several threads.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does the pieces on `jobs` threads and hands over each result on this one, as it comes. After an error, from the work
/// or from `done`, none is begun; what is under way still ends.
///
/// # Errors
/// The first error that came.
pub fn each<T: Send, R: Send, E: Send>(
    pieces: impl IntoIterator<Item = T>,
    jobs: usize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
    mut done: impl FnMut(T, R) -> Result<(), E>,
) -> Result<(), E> {
    let pieces: VecDeque<T> = pieces.into_iter().collect();
    let jobs = jobs.min(pieces.len());
    let queue = Mutex::new(pieces);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while let Some(piece) = next() {
                    let result = work(&piece);
                    if sender.send((piece, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (piece, result) in results {
            if let Err(error) = result.and_then(|result| done(piece, result)) {
                queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
                return Err(error);
            }
        }
        Ok(())
    })
}

/// As many threads as there are cores.
#[must_use]
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
