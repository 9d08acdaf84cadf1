//! A keeper: it becomes an account, starts an order's processes of this host, and outlives all that come of them.
//!
//! It is the subreaper of its processes, so that nothing they leave behind gets away from it: when the last of them has
//! ended, or the daemon's end of the socket closes however that came, it ends every descendant that is left, and then itself.
//! It is root until it has become the account, runs nothing of that account's before, and cannot be looked into after.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, set_dumpable_behavior, umask, wait,
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::account::Account;
use crate::cgroup::Cgroup;
use crate::context;
use crate::execute::{Execution, Started, execute};
use crate::nursery::{receive, send};
use crate::wire::{self, Program, Secret, Status, Variable};

/// What a keeper is to do.
#[derive(Serialize, Deserialize)]
pub(crate) struct Work {
    /// What it becomes.
    pub(crate) account: Account,
    /// What it may run.
    pub(crate) execution: Execution,
    pub(crate) programs: Vec<Program>,
    /// By the number that each has in the order.
    pub(crate) processes: Vec<(u32, u32, Vec<Variable>)>,
    /// What each of them gets for itself.
    pub(crate) context: Secret,
}

/// What it is told later.
#[derive(Serialize, Deserialize)]
pub(crate) enum Told {
    /// A signal for a process's group, or for all of them.
    Signal(Option<u32>, u8),
}

/// What it says of a process. Its streams come with [`Said::Started`]: output and errors, or a terminal; then the input.
#[derive(Serialize, Deserialize)]
pub(crate) enum Said {
    Started(u32, u32),
    Failed(u32, String),
    Ended(u32, Status),
}

/// Keeps the processes of an order; ends when they have, or when nobody wants them any more.
pub(crate) fn keep(daemon: OwnedFd, work: OwnedFd, cgroup: Option<&Cgroup>) {
    let mut keeper = Keeper { daemon, processes: HashMap::new() };
    let work = match become_account(work) {
        Ok(work) => work,
        // The daemon takes the silence for what it is, and says so.
        Err(why) => return keeper.say(&Said::Failed(wire::ALL, why), &[]),
    };
    for (number, program, environment) in &work.processes {
        keeper.start(*number, &work, &work.programs[*program as usize], environment);
    }
    // With what is secret in it.
    drop(work);
    keeper.watch();
    end_all(cgroup);
}

/// Reads the work and becomes the account: from then on nothing here is root's.
fn become_account(work: OwnedFd) -> Result<Work, String> {
    let mut bytes = Zeroizing::new(Vec::new());
    let mut file = File::from(work);
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(|cause| format!("the order was lost ({cause})"))?;
    let work: Work = wire::decode(&bytes)?;
    set_child_subreaper(Some(getpid())).map_err(|cause| format!("orphans could not be held ({cause})"))?;
    work.account.assume()?;
    // As after a login, whatever the daemon's own is.
    let _ = umask(Mode::from_raw_mode(0o022));
    // Becoming another account closes a process to it; one that stays who it is, is closed here.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|cause| cause.to_string())?;
    Ok(work)
}

struct Keeper {
    daemon: OwnedFd,
    processes: HashMap<Pid, (u32, OwnedFd)>,
}

impl Keeper {
    fn start(&mut self, number: u32, work: &Work, program: &Program, environment: &[Variable]) {
        let context =
            (!work.context.as_bytes().is_empty()).then(|| context::deliver(number, &work.context)).transpose();
        let context = context.map_err(|cause| format!("its security context cannot be handed to it ({cause})"));
        let begun = context.and_then(|context| execute(&work.account, &work.execution, program, environment, context));
        let begun = begun.and_then(|started| {
            let Started { pid, streams } = started;
            let watch = pidfd_open(pid, PidfdFlags::empty());
            let watch = watch.map_err(|cause| format!("it cannot be watched ({cause})"))?;
            self.processes.insert(pid, (number, watch));
            let streams: Vec<_> = streams.iter().map(AsFd::as_fd).collect();
            self.say(&Said::Started(number, pid.as_raw_pid().unsigned_abs()), &streams);
            Ok(())
        });
        if let Err(why) = begun {
            self.say(&Said::Failed(number, why), &[]);
        }
    }

    /// A daemon that is gone shows when it is listened to.
    fn say(&self, said: &Said, streams: &[std::os::fd::BorrowedFd<'_>]) {
        let _ = send(&self.daemon, &wire::encode(said), streams);
    }

    /// Passes on how processes end, and what the daemon wants of them, until either is at its end.
    fn watch(&mut self) {
        while !self.processes.is_empty() {
            let watched = self.processes.values().map(|(_, watch)| PollFd::new(watch, PollFlags::IN));
            let mut wanted: Vec<_> = std::iter::once(PollFd::new(&self.daemon, PollFlags::IN)).chain(watched).collect();
            let _ = poll(&mut wanted, None);
            let told = !wanted[0].revents().is_empty();
            let ended = wanted[1..].iter().any(|watch| !watch.revents().is_empty());
            if ended {
                self.reap();
            }
            if told && !self.obey() {
                return;
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, how))) = wait(WaitOptions::NOHANG) {
            // What somebody left behind, and has ended now, was nobody's process.
            let Some((number, _)) = self.processes.remove(&pid) else { continue };
            let narrow = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
            let status = match (how.exit_status(), how.terminating_signal()) {
                (Some(code), _) => Status::Exited(narrow(code)),
                (None, signal) => Status::Killed(narrow(signal.unwrap_or(0))),
            };
            self.say(&Said::Ended(number, status), &[]);
        }
    }

    /// Does what the daemon wants; false when it is gone.
    fn obey(&self) -> bool {
        let mut message = [0; 64];
        let Ok((length @ 1.., _)) = receive(&self.daemon, &mut message) else { return false };
        if let Ok(Told::Signal(which, signal)) = wire::decode(&message[..length])
            && let Some(signal) = Signal::from_named_raw(i32::from(signal))
        {
            for (pid, _) in self.processes.iter().filter(|(_, (number, _))| which.is_none_or(|which| which == *number))
            {
                // It may have ended by itself.
                let _ = kill_process_group(*pid, signal);
            }
        }
        true
    }
}

/// Ends all that is left of the processes: politely, then for good. What withstands that (it belongs to somebody else by now,
/// or starts processes faster than it is read which there are) is for the nursery, as soon as this one has ended.
fn end_all(cgroup: Option<&Cgroup>) {
    let begun = Instant::now();
    let left = || {
        let in_cgroup = cgroup.iter().flat_map(|cgroup| cgroup.members()).filter(|pid| *pid != getpid());
        descendants(getpid()).into_iter().chain(in_cgroup).collect::<Vec<_>>()
    };
    while begun.elapsed() < GRACE + FUTILE {
        let pids = left();
        if pids.is_empty() && wait(WaitOptions::NOHANG).is_err() {
            return;
        }
        // The polite word is said once and again only to who was started after it. Who is asked to end may be stopped.
        let signal = if begun.elapsed() < GRACE { Signal::TERM } else { Signal::KILL };
        for pid in &pids {
            let _ = kill_process(*pid, signal);
            let _ = kill_process(*pid, Signal::CONT);
        }
        for _ in 0..=pids.len() {
            let _ = wait(WaitOptions::NOHANG);
        }
        if !left().is_empty() {
            thread::sleep(PAUSE);
        }
    }
}

/// Every process below one. Whoever loses its parent below a keeper becomes a child of that, its subreaper.
#[must_use]
pub fn descendants(of: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for child in children(parent) {
            found.push(child);
            parents.push(child);
        }
    }
    found
}

pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_pid();
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let text: String = listed.collect();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// So long processes have for ending by themselves when nobody wants them any more.
const GRACE: Duration = Duration::from_secs(2);
/// So long they are killed one by one.
const FUTILE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
