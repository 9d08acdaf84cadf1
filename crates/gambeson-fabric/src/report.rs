//! What the provider tells the user: one sentence on standard error, and the end of the process
//! when the job can't go on safely.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::job;

/// Exit status of a rank that security made stop.
const SECURITY_STOP: i32 = 70;

/// Tells the user something that does not end the job.
pub(crate) fn say(sentence: impl Display) {
    let line = format!("gambeson: {}{sentence}\n", job::prefix());
    write(&line);
}

/// Tells the user once in this process.
pub(crate) fn say_once(flag: &AtomicBool, sentence: impl Display) {
    if !flag.swap(true, Ordering::Relaxed) {
        say(sentence);
    }
}

/// Tells the user and the launcher why MPI can't start, or can't go on: it ends by itself.
pub(crate) fn refuse(sentence: impl Display) {
    let sentence = format!("gambeson: {}{sentence}", job::prefix());
    write(&format!("{sentence}\n"));
    job::refused(&sentence);
}

/// The same, once in this process.
pub(crate) fn refuse_once(flag: &AtomicBool, sentence: impl Display) {
    if !flag.swap(true, Ordering::Relaxed) {
        refuse(sentence);
    }
}

/// Tells the user and the launcher why, and ends the process.
pub(crate) fn stop(sentence: impl Display) -> ! {
    let sentence = format!("{}{sentence}", job::prefix());
    write(&format!("gambeson: {sentence}\n"));
    job::failed(&sentence);
    // SAFETY: _exit runs nothing of this process any more, which is what a stop has to do.
    unsafe { libc::_exit(SECURITY_STOP) }
}

/// One write, so that lines of several ranks do not mix.
fn write(line: &str) {
    // SAFETY: the buffer is valid for its length. What can't be written is lost.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
