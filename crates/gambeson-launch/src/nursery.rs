//! Where keepers come from: a process that is forked before the daemon has threads, keys or connections.
//!
//! ```text
//!  gambesond ──fork── nursery ──fork── keeper of an order ── its processes, under the account
//!      └──────────────── a socket ──────────┘
//! ```
//! A keeper is ready as fast as the kernel forks a small process, and what it inherits holds no secret of the daemon's. The
//! nursery ends when the daemon does, and so do the keepers. Of a keeper that has ended it ends whatever is left.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, set_dumpable_behavior,
    setsid, wait,
};

use crate::cgroup::{Cgroup, Cgroups};
use crate::keeper::{self, children, descendants};

/// The way to the nursery.
#[derive(Debug)]
pub struct Nursery(OwnedFd);

impl Nursery {
    /// Forks it. To be called before the process has any thread beside its first, and any secret.
    ///
    /// # Errors
    /// The system's.
    pub fn fork() -> io::Result<Self> {
        let (ours, theirs) = pair()?;
        match fork(None)? {
            Parent(_) => Ok(Nursery(ours)),
            Child => {
                drop(ours);
                tend(&theirs);
                process::exit(0);
            }
        }
    }

    /// Has a keeper made for what is in `work`; the socket to it.
    pub(crate) fn keeper(&self, work: &[u8]) -> io::Result<OwnedFd> {
        let (ours, theirs) = pair()?;
        let memory = memfd_create("order", MemfdFlags::CLOEXEC)?;
        let mut rest = work;
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&memory, rest)?..];
        }
        send(&self.0, b"k", &[theirs.as_fd(), memory.as_fd()])?;
        Ok(ours)
    }
}

/// Makes keepers until the daemon is gone.
fn tend(daemon: &OwnedFd) {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // What a terminal or a shell sends the daemon's group is for the daemon.
    let _ = setsid();
    let _ = set_child_subreaper(Some(getpid()));
    let (mut cgroups, mut ending) = Cgroups::find().map_or_else(Default::default, |(own, left)| (Some(own), left));
    let mut keepers = HashMap::new();
    // Until when what the daemon has left is ended, once it is gone.
    let mut closing = None;
    loop {
        let mut wanted = [PollFd::new(daemon, PollFlags::IN)];
        match closing {
            None => drop(poll(&mut wanted, Some(&Timespec::try_from(REAP).expect("a second")))),
            Some(_) => thread::sleep(PAUSE),
        }
        end_left(&mut keepers, &mut ending);
        match closing {
            Some(closing) if Instant::now() > closing || ending.is_empty() && children(getpid()).is_empty() => return,
            None if !wanted[0].revents().is_empty() => {}
            _ => continue,
        }
        let mut word = [0; 1];
        match receive(daemon, &mut word) {
            Ok((1, descriptors)) => {
                let Ok([socket, work]) = <[OwnedFd; 2]>::try_from(descriptors) else { continue };
                let mut cgroup = cgroups.as_mut().and_then(|cgroups| cgroups.make().ok());
                let forked = fork(cgroup.as_ref()).or_else(|cause| {
                    // Linux before 5.7 has no such fork, and not every sandbox knows it.
                    ending.push(cgroup.take().ok_or(cause)?);
                    fork(None)
                });
                // When there is no room for a process more, the socket closes, and the daemon hears of it by that.
                match forked {
                    Ok(Child) => {
                        keeper::keep(socket, work, cgroup.as_ref());
                        process::exit(0);
                    }
                    Ok(Parent(keeper)) => drop(keepers.insert(keeper, cgroup)),
                    Err(_) => {}
                }
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            _ => closing = Some(Instant::now() + FAREWELL),
        }
    }
}

/// Ends what keepers have left that ended: nothing, unless somebody has killed them, or it was not theirs to end.
fn end_left(keepers: &mut HashMap<Pid, Option<Cgroup>>, ending: &mut Vec<Cgroup>) {
    while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
        ending.extend(keepers.remove(&pid).flatten());
    }
    ending.retain(|cgroup| !cgroup.end());
    for orphan in children(getpid()).into_iter().filter(|pid| !keepers.contains_key(pid)) {
        for pid in descendants(orphan).into_iter().chain([orphan]) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Which of the two a process is.
enum Forked {
    Parent(Pid),
    Child,
}
use Forked::{Child, Parent};

/// The child begins in a cgroup: to move there later would take some ten milliseconds.
#[allow(unsafe_code)]
fn fork(cgroup: Option<&Cgroup>) -> io::Result<Forked> {
    let forked = match cgroup {
        // SAFETY: the process has one thread, so the child finds no lock that nobody will ever open.
        None => unsafe { libc::fork() },
        Some(cgroup) => {
            // SAFETY: zeros are what the call takes for nothing.
            let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
            how.flags = CLONE_INTO_CGROUP;
            how.exit_signal = libc::SIGCHLD as u64;
            how.cgroup = u64::from(cgroup.as_fd().as_raw_fd().unsigned_abs());
            // SAFETY: as above, without a stack of its own and without sharing memory: that is a fork.
            let forked = unsafe { libc::syscall(libc::SYS_clone3, &raw const how, size_of::<libc::clone_args>()) };
            forked as libc::pid_t
        }
    };
    match forked {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Child),
        pid => Ok(Parent(Pid::from_raw(pid).expect("a child has a number"))),
    }
}

/// Two ends that keep messages apart and carry descriptors.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message with descriptors.
pub(crate) fn send(socket: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// Takes a message and its descriptors; of no length when the other end is gone.
pub(crate) fn receive(socket: &OwnedFd, message: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let came = recvmsg(socket, &mut [IoSliceMut::new(message)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    Ok((came.bytes, descriptors))
}

/// No message has more of them: a process's three streams.
const DESCRIPTORS_MAX: usize = 3;
/// Keepers that have ended are cleared away so often.
const REAP: Duration = Duration::from_secs(1);
/// So often, when the daemon is gone.
const PAUSE: Duration = Duration::from_millis(20);
/// Keepers end within a few seconds.
const FAREWELL: Duration = Duration::from_secs(10);
/// clone(2); libc has it in a type that is too short.
const CLONE_INTO_CGROUP: u64 = 1 << 33;
