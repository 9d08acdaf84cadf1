//! One thread that answers for a process that computes: peers that ask where the sequence stands
//! must hear from it though the program makes no call for a long time.
//!
//! With FI_PROGRESS_AUTO demanded it also is what makes progress, and then wakes often.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::domain::Domain;

struct Watch {
    domains: Vec<Weak<Domain>>,
    thread: Option<JoinHandle<()>>,
    period: Duration,
    ending: bool,
}

static WATCH: Mutex<Watch> =
    Mutex::new(Watch { domains: Vec::new(), thread: None, period: Duration::MAX, ending: false });
static WAKE: Condvar = Condvar::new();

/// Watches a domain from now on.
pub(crate) fn add(domain: &Arc<Domain>) {
    watch().domains.push(Arc::downgrade(domain));
}

/// Forgets a domain.
pub(crate) fn remove(domain: &Arc<Domain>) {
    watch().domains.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(domain)));
}

/// Starts the thread, when an endpoint is opened and it does not run yet.
pub(crate) fn begin(domain: &Domain) {
    let timeout = Duration::from_nanos(domain.membership.config.gap_timeout_ns);
    let period = match timeout {
        _ if domain.auto_progress => EAGER,
        // Nobody is ever asked.
        Duration::ZERO => LONGEST,
        timeout => (timeout / 8).clamp(SHORTEST, LONGEST),
    };
    let mut watch = watch();
    watch.period = watch.period.min(period);
    watch.ending = false;
    if watch.thread.is_none() {
        watch.thread = spawn();
    } else {
        WAKE.notify_all();
    }
}

/// Ends the thread and waits until it is gone.
pub(crate) fn end() {
    let thread = {
        let mut watch = watch();
        watch.ending = true;
        watch.period = Duration::MAX;
        watch.thread.take()
    };
    WAKE.notify_all();
    if let Some(thread) = thread {
        // It can't have panicked: a panic ends the process.
        let _ = thread.join();
    }
}

/// Drives every domain but those that somebody else is in.
pub(crate) fn pump_all() {
    let domains: Vec<_> = watch().domains.iter().filter_map(Weak::upgrade).collect();
    for domain in domains {
        if let Some(mut state) = domain.try_lock() {
            state.pump_all();
        }
    }
}

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn spawn() -> Option<JoinHandle<()>> {
    static AT_EXIT: std::sync::Once = std::sync::Once::new();
    // SAFETY: the handler is a function of this library, which is never unmapped.
    AT_EXIT.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
    let blocked = BlockedSignals::new();
    let thread = thread::Builder::new().name("gambeson-watch".into()).spawn(run);
    drop(blocked);
    // Without the thread peers may take a long computation for silence, which ends the job with a
    // sentence: no reason to refuse to start.
    thread.ok()
}

fn run() {
    let mut domains = Vec::new();
    loop {
        let mut watch = watch();
        if !watch.ending {
            let period = watch.period;
            watch = WAKE.wait_timeout(watch, period).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        if watch.ending {
            return;
        }
        drop(watch);
        domains.extend(self::watch().domains.iter().filter_map(Weak::upgrade));
        for domain in domains.drain(..) {
            if let Some(mut state) = domain.try_lock() {
                state.pump_all();
                state.tick_all();
            }
        }
    }
}

/// The process ends without closing its endpoints: the thread must not run into what is torn down.
extern "C" fn at_exit() {
    if gambeson_pages::alive() {
        end();
    }
}

/// All signals but faults blocked in this thread, and in those it starts meanwhile: signals are the program's.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> Self {
        let mut all = std::mem::MaybeUninit::uninit();
        let mut before = std::mem::MaybeUninit::uninit();
        // SAFETY: both sets are filled before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            // A fault that is blocked ends the process without a word: see `crash`.
            libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV);
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            BlockedSignals(before.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is what pthread_sigmask gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// How often the thread wakes when the program wants automatic progress.
const EAGER: Duration = Duration::from_millis(1);
/// How often it wakes otherwise, at most and at least.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(4);
