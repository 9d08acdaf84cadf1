//! Searches what passes the interfaces while a job runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;

use super::capture::{Capture, Refusal};
use super::search::Search;
use super::tcpdump::Tcpdump;

/// A way to listen that this process has.
pub(crate) enum Listener {
    Socket(Capture),
    Tcpdump(Tcpdump),
}

/// What was heard.
pub(crate) struct Heard {
    /// For each operation, how often its marker was seen.
    pub(crate) hits: Vec<u64>,
    /// Bytes searched.
    pub(crate) bytes: u64,
    /// Frames that passed unseen because they came faster than they could be searched.
    pub(crate) lost: u64,
}

/// Why nobody may listen here, with the remedies.
pub(crate) const REMEDY: &str = "listening on the network interfaces needs CAP_NET_RAW. Run the audit as root, or let \
tcpdump listen for it (sudo setcap cap_net_raw+ep \"$(command -v tcpdump)\"), or, for a job on this host alone, run it in a \
network of its own: unshare --user --map-root-user --net sh -c 'ip link set lo up; gambeson audit ...'";

/// Niceness of the thread that listens.
const PRECEDENCE: i32 = -15;

impl Listener {
    /// A packet socket, or tcpdump where the kernel does not allow this process one.
    ///
    /// # Errors
    /// A sentence with the remedies, and whether it is for want of permission.
    pub(crate) fn start() -> Result<Self, (String, bool)> {
        match Capture::start() {
            Ok(capture) => Ok(Self::Socket(capture)),
            Err(Refusal::Other(sentence)) => Err((sentence, false)),
            Err(Refusal::Permission) => match Tcpdump::start() {
                Ok(tcpdump) => Ok(Self::Tcpdump(tcpdump)),
                Err(reason) => Err((format!("{REMEDY} ({reason})"), true)),
            },
        }
    }

    /// Runs `work` and searches what passes meanwhile.
    pub(crate) fn during<T>(mut self, mut search: Search, work: impl FnOnce() -> T) -> (T, Heard) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let listening = scope.spawn(|| {
                // Ranks that wait for messages spin: without precedence the ring overflows on a busy
                // machine. Whoever may not have it listens as well as can be. "None" is this thread.
                let _ = setpriority_process(None, PRECEDENCE);
                while !over.load(Ordering::Acquire) {
                    self.look(&mut search);
                }
                // What was still under way when the job ended.
                let deadline = Instant::now() + Duration::from_millis(300);
                while Instant::now() < deadline {
                    self.look(&mut search);
                }
                let lost = match &mut self {
                    Self::Socket(capture) => capture.lost(),
                    Self::Tcpdump(tcpdump) => tcpdump.stop(),
                };
                Heard { hits: search.hits().to_vec(), bytes: search.bytes(), lost }
            });
            let stop = StopOnDrop(&over);
            let result = work();
            drop(stop);
            (result, listening.join().expect("the listener does not panic"))
        })
    }

    fn look(&mut self, search: &mut Search) {
        match self {
            Self::Socket(capture) => capture.frames(50, |frame| search.look(frame)),
            Self::Tcpdump(tcpdump) => tcpdump.frames(Duration::from_millis(50), |frame| search.look(frame)),
        }
    }
}

/// Tells the listener to stop even when the work panics, which would otherwise wait for it for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
