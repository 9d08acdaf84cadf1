//! A cgroup for each order, where the daemon has one (version 2) that is delegated to it, as systemd does with `Delegate=yes`.
//!
//! ```text
//!  gambesond.service/            the daemon, its nursery
//!   ├── gambeson-4711-0/         a keeper and all that came of its order
//!   └── gambeson-4711-1/         called after the nursery, and counted
//! ```
//! Whatever its parents do, a process stays in its cgroup. So all of an order is ended at once, also what starts processes
//! faster than a list of them can be read, and what was left when nobody was there any more to end it. No controller is used.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, getpid, kill_process};

/// The cgroup of the nursery, and of the daemon.
pub(crate) struct Cgroups {
    own: PathBuf,
    made: u64,
}

/// The cgroup of one order.
pub(crate) struct Cgroup {
    path: PathBuf,
    folder: File,
}

impl Cgroups {
    /// That of this process, if it is delegated, and what another nursery has left in it, which is to be ended.
    pub(crate) fn find() -> Option<(Self, Vec<Cgroup>)> {
        let listed = fs::read_to_string("/proc/self/cgroup").ok()?;
        let named = listed.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = mounts.lines().find_map(mount_point)?.join(named);
        if !is_delegated(&own) {
            return None;
        }
        let here = members(&own);
        let entries = fs::read_dir(&own).ok()?.flatten();
        let left = entries.map(|entry| entry.path()).filter(|path| {
            let nursery = path.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX)?.split_once('-'));
            // Unless that process is there yet: it looks after its own.
            nursery.is_some_and(|(pid, _)| here.iter().all(|other| other.as_raw_pid().to_string() != pid))
        });
        let left = left.filter_map(|path| Cgroup::open(path).ok()).collect();
        Some((Cgroups { own, made: 0 }, left))
    }

    /// One for another order.
    pub(crate) fn make(&mut self) -> io::Result<Cgroup> {
        let path = self.own.join(format!("{PREFIX}{}-{}", getpid().as_raw_pid(), self.made));
        self.made += 1;
        fs::create_dir(&path)?;
        Cgroup::open(path)
    }
}

impl Cgroup {
    fn open(path: PathBuf) -> io::Result<Self> {
        Ok(Cgroup { folder: File::open(&path)?, path })
    }

    /// Who is in it.
    pub(crate) fn members(&self) -> Vec<Pid> {
        members(&self.path)
    }

    /// Ends all that is in it, and removes it; false when that takes longer, and has to be done again.
    pub(crate) fn end(&self) -> bool {
        end(&self.path)
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Where cgroups of version 2 are mounted, all of them, if that is what the line says (proc_pid_mountinfo(5)).
fn mount_point(line: &str) -> Option<PathBuf> {
    let (place, kind) = line.split_once(" - ")?;
    let mut fields = place.split(' ').skip(3);
    (kind.starts_with("cgroup2 ") && fields.next()? == "/").then(|| fields.next().map(PathBuf::from))?
}

/// Whether systemd, or who does its work, has left it to us. (The second of the two names only root can read.)
fn is_delegated(cgroup: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0; 8];
        rustix::fs::getxattr(cgroup, *name, &mut value).is_ok_and(|length| value[..length] == *b"1")
    })
}

fn members(cgroup: &Path) -> Vec<Pid> {
    let listed = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    listed.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Ends what is in a cgroup and below it, and removes it. Whether it is gone: who was killed takes a moment to go.
fn end(cgroup: &Path) -> bool {
    let killed = File::options().write(true).open(cgroup.join("cgroup.kill")).and_then(|mut kill| kill.write_all(b"1"));
    if killed.is_err() {
        // Before Linux 5.14, one by one.
        for pid in members(cgroup) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for folder in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        end(&folder.path());
    }
    fs::remove_dir(cgroup).is_ok() || !cgroup.exists()
}

const PREFIX: &str = "gambeson-";
