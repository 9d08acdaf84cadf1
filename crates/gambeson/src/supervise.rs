//! Runs the launcher so that its signals, its streams and its status are those of this program.
//!
//! At a terminal the launcher shares this program's process group, and what the terminal sends
//! reaches both. Elsewhere it has a group of its own, so that a signal to this program's group
//! reaches it once, forwarded. Either way it dies with this program.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use crate::failure::Failure;

/// What the launcher is started with.
pub(crate) struct Start<'s> {
    pub(crate) program: &'s Path,
    pub(crate) arguments: &'s [OsString],
    pub(crate) environment: &'s [(String, OsString)],
}

/// Starts the launcher and waits for its end. `alarm` is asked now and then whether the job must
/// not go on; then the launcher has `GRACE` to end by itself.
pub(crate) fn run(start: &Start<'_>, mut alarm: impl FnMut() -> bool) -> Result<ExitStatus, Failure> {
    let shares_group = at_terminal();
    let events = signals()?;
    let child = command(start, shares_group).spawn().map_err(|error| cannot_start(start.program, &error))?;
    let pid = Pid::from_child(&child);
    let cannot_wait = |error| Failure::system(format!("{} cannot be waited for ({error})", start.program.display()));
    let mut alarmed: Option<Instant> = None;
    loop {
        match events.recv_timeout(GLANCE) {
            Ok(event) => forward(event, pid, shares_group),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if let Some(status) = ended(pid).map_err(cannot_wait)? {
            return Ok(status);
        }
        match alarmed {
            None if alarm() => alarmed = Some(Instant::now()),
            Some(since) if since.elapsed() > 2 * GRACE => {
                let _ = kill_process(pid, Signal::KILL);
            }
            Some(since) if since.elapsed() > GRACE => {
                let _ = kill_process(pid, Signal::TERM);
            }
            _ => {}
        }
    }
}

/// The launcher's status if it has ended. Orphans of the job come to this process as well ([`gambeson_site::holder`]).
fn ended(launcher: Pid) -> rustix::io::Result<Option<ExitStatus>> {
    while let Some((child, status)) = rustix::process::wait(WaitOptions::NOHANG)? {
        if child == launcher {
            return Ok(Some(ExitStatus::from_raw(status.as_raw())));
        }
    }
    Ok(None)
}

/// The status this program has to end with; dies of the signal the launcher died of.
pub(crate) fn end_as(status: ExitStatus) -> u8 {
    if let Some(signal) = status.signal() {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return u8::try_from(128 + signal).unwrap_or(u8::MAX);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// What the launcher is started through: this program again, which binds it to this one's life.
fn command(start: &Start<'_>, shares_group: bool) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("gambeson").arg("start");
    if !shares_group {
        command.arg("--own-group");
    }
    command.arg("--").arg(start.program).args(start.arguments);
    command.envs(start.environment.iter().map(|(name, value)| (name, value)));
    command
}

fn cannot_start(program: &Path, error: &io::Error) -> Failure {
    Failure::system(format!("{} cannot be started ({error})", program.display()))
}

fn at_terminal() -> bool {
    let stdin = io::stdin();
    stdin.is_terminal()
        && rustix::termios::tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}

struct Event {
    signal: i32,
    /// Sent by the kernel: at a terminal, to the launcher too.
    from_kernel: bool,
}

fn signals() -> Result<mpsc::Receiver<Event>, Failure> {
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT, SIGCHLD];
    let mut signals = SignalsInfo::<WithOrigin>::new(wanted)
        .map_err(|error| Failure::system(format!("signals cannot be passed on to the job ({error})")))?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for origin in signals.forever() {
            let event = Event { signal: origin.signal, from_kernel: matches!(origin.cause, Cause::Kernel) };
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

fn forward(event: Event, launcher: Pid, shares_group: bool) {
    if event.signal == SIGCHLD {
        return;
    }
    if !(shares_group && event.from_kernel)
        && let Some(signal) = Signal::from_named_raw(event.signal)
    {
        let _ = kill_process(launcher, signal);
    }
    if event.signal == SIGTSTP {
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}

/// How often to look whether a rank was refused.
const GLANCE: Duration = Duration::from_millis(250);
/// How long a launcher may take to notice that a rank is gone.
const GRACE: Duration = Duration::from_secs(5);
