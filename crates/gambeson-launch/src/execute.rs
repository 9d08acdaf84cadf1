//! Starting one process: as whom, what of it may run, and with which streams.
//!
//! What may run is looked at through a descriptor, and that descriptor is run: nobody can put another file in its place in
//! between. Of a pinned program its sealed copy in memory is run, so that nobody can alter it either.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aws_lc_rs::digest::{SHA256, digest};
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, ioctl_tiocsctty, set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::context;
use crate::wire::{Program, Streams, Variable};

/// What somebody may run, and with how much of the host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Execution {
    pub(crate) what: What,
    /// Whether `PATH` and the variables of loaders may come from the order: as if the requester had logged in.
    pub(crate) as_login: bool,
    pub(crate) limits: Limits,
}

/// Which programs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) enum What {
    /// Any that the account may run.
    #[default]
    Any,
    /// Those in this folder, which only root or the daemon's account can write to.
    Folder(PathBuf),
    /// Those with one of these SHA-256 digests.
    Pinned(Vec<[u8; 32]>),
}

/// Bounds for each process; none where nothing is said (setrlimit(2)).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Of memory that it maps, in bytes.
    pub(crate) address_space: Option<u64>,
    /// Of processor time, in seconds.
    pub(crate) cpu_seconds: Option<u64>,
    /// Of files that it has open.
    pub(crate) open_files: Option<u64>,
    /// Of processes and threads of the account.
    pub(crate) processes: Option<u64>,
    /// Of a core dump, in bytes.
    pub(crate) core: Option<u64>,
}

/// A process that runs, and our ends of its streams: output, errors and perhaps input, or a terminal.
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) streams: Vec<OwnedFd>,
}

/// Starts one.
///
/// # Errors
/// A sentence.
pub(crate) fn execute(
    account: &Account,
    execution: &Execution,
    program: &Program,
    environment: &[Variable],
    context: Option<OwnedFd>,
) -> Result<Started, String> {
    let variables = variables(account, execution, program, environment)?;
    enter(account, Path::new(program.directory.as_os()))?;
    let path = variables.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    let named = find(program.executable.as_os(), path.unwrap_or_default())?;
    let pinned = execution.what.open(&named)?;
    let run = pinned
        .as_ref()
        .map_or_else(|| named.clone(), |file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let mut command = Command::new(run);
    let mut arguments = program.arguments.iter().map(|argument| argument.as_os());
    command.arg0(arguments.next().expect("argv[0] is there")).args(arguments);
    command.env_clear().envs(variables);
    if let Some(context) = &context {
        command.env(context::VARIABLE, context.as_raw_fd().to_string());
    }
    let (ours, terminal) =
        connect(&mut command, program.streams).map_err(|cause| format!("its streams cannot be made ({cause})"))?;
    let limits = execution.limits;
    let script = pinned.as_ref().filter(|file| is_script(file));
    bind(&mut command, terminal, limits, [script.map(AsRawFd::as_raw_fd), context.as_ref().map(AsRawFd::as_raw_fd)]);
    let child = command.spawn().map_err(|cause| format!("{} cannot be started ({cause})", named.display()))?;
    let pid = Pid::from_child(&child);
    Ok(Started { pid, streams: ours })
}

/// Goes where the process is to start: who has no home that can be entered starts at the root.
fn enter(account: &Account, ordered: &Path) -> Result<(), String> {
    if ordered.as_os_str().is_empty() {
        let home = std::env::set_current_dir(account.home()).or_else(|_| std::env::set_current_dir("/"));
        return home.map_err(|cause| format!("no directory can be entered ({cause})"));
    }
    std::env::set_current_dir(ordered)
        .map_err(|cause| format!("the directory {} cannot be entered ({cause})", ordered.display()))
}

/// What it finds: the account's own, then the program's, then its own.
fn variables(
    account: &Account,
    execution: &Execution,
    program: &Program,
    own: &[Variable],
) -> Result<Vec<(OsString, OsString)>, String> {
    let from_order = program.environment.iter().chain(own);
    let from_order: Vec<_> = from_order.map(|(name, value)| (name.as_os(), value.as_os())).collect();
    if let Some((name, _)) = from_order.iter().find(|(name, _)| !execution.as_login && steers(name)) {
        return Err(format!(
            "{} may not be set from outside for the account {}: it says what a program loads, and only certain programs may run so",
            name.display(),
            account.name
        ));
    }
    let accounts = account.variables();
    let all = accounts.iter().map(|(name, value)| (name.as_os(), value.as_os())).chain(from_order);
    Ok(all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Whether a variable says which code a program loads or runs: loaders', libfabric's, interpreters' and shells'.
fn steers(name: &OsStr) -> bool {
    let name = name.as_bytes();
    [
        &b"LD_"[..],
        b"FI_",
        b"PYTHON",
        b"PERL",
        b"RUBY",
        b"LUA_",
        b"JAVA_",
        b"JDK_",
        b"NODE_",
        b"GCONV_",
        b"OMPI_MCA",
        b"PMIX_MCA",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
        || [
            &b"PATH"[..],
            b"BASH_ENV",
            b"ENV",
            b"IFS",
            b"HOME",
            b"SHELLOPTS",
            b"BASHOPTS",
            b"TMPDIR",
            b"LOCPATH",
            b"NLSPATH",
            b"MALLOC_TRACE",
        ]
        .contains(&name)
        || name.starts_with(b"BASH_FUNC_")
}

/// As a shell finds it.
fn find(executable: &OsStr, path: &OsStr) -> Result<PathBuf, String> {
    if executable.as_bytes().contains(&b'/') {
        return Ok(executable.into());
    }
    let runs = |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    let mut places = std::env::split_paths(path).map(|folder| folder.join(executable));
    places.find(runs).ok_or_else(|| format!("{} is in no folder of PATH ({})", executable.display(), path.display()))
}

impl What {
    /// What is to be run instead of the path, where it matters which file it is.
    fn open(&self, named: &Path) -> Result<Option<File>, String> {
        let cannot = |cause: io::Error| format!("{} cannot be opened ({cause})", named.display());
        match self {
            What::Any => Ok(None),
            What::Folder(folder) => {
                let file = OpenOptions::new().read(true).custom_flags(OFlags::PATH.bits() as i32).open(named);
                let file = file.map_err(cannot)?;
                let there = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(cannot)?;
                let within = fs::canonicalize(folder).is_ok_and(|folder| there.starts_with(folder));
                let metadata = file.metadata().map_err(cannot)?;
                if !within
                    || metadata.mode() & 0o022 != 0
                    || metadata.uid() == rustix::process::geteuid().as_raw() && metadata.uid() != 0
                {
                    return Err(format!(
                        "{} is not among the programs of {}, which alone may run for this requester: not in it, or others can write it",
                        there.display(),
                        folder.display()
                    ));
                }
                Ok(Some(file))
            }
            What::Pinned(digests) => {
                let mut bytes = Vec::new();
                File::open(named).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(cannot)?;
                let found = digest(&SHA256, &bytes);
                if !digests.iter().any(|pinned| pinned == found.as_ref()) {
                    return Err(format!(
                        "{} is not among the programs that are pinned for this requester (its SHA-256 is {found:?})",
                        named.display()
                    ));
                }
                sealed(&bytes).map(Some).map_err(cannot)
            }
        }
    }
}

/// A copy that nobody can alter any more.
fn sealed(bytes: &[u8]) -> io::Result<File> {
    let mut copy = File::from(memfd_create("program", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    copy.write_all(bytes)?;
    fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(copy)
}

/// A script's interpreter opens the descriptor a second time, so it must still be there then.
fn is_script(file: &File) -> bool {
    let mut start = [0; 2];
    let read =
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"#!"
}

/// Gives the command its streams; our ends, and whether they are a terminal's.
fn connect(command: &mut Command, streams: Streams) -> io::Result<(Vec<OwnedFd>, bool)> {
    if let Streams::Terminal(rows, columns) = streams {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        tcsetwinsize(&ours, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
        return Ok((vec![ours], true));
    }
    let (output, their_output) = io::pipe()?;
    let (errors, their_errors) = io::pipe()?;
    command.stdout(their_output).stderr(their_errors);
    let mut ours: Vec<OwnedFd> = vec![output.into(), errors.into()];
    if streams == Streams::All {
        let (their_input, input) = io::pipe()?;
        command.stdin(their_input);
        ours.push(input.into());
    } else {
        command.stdin(Stdio::null());
    }
    Ok((ours, false))
}

/// Has the process begin with a session of its own, within its limits, and end with its keeper.
#[allow(unsafe_code)]
fn bind(command: &mut Command, terminal: bool, limits: Limits, kept: [Option<i32>; 2]) {
    let begin = move || {
        setsid()?;
        if terminal {
            ioctl_tiocsctty(io::stdin().as_fd())?;
        }
        set_parent_process_death_signal(Some(Signal::KILL))?;
        for (resource, limit) in limits.all() {
            if let Some(limit) = limit {
                setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
            }
        }
        for kept in kept.into_iter().flatten() {
            // SAFETY: the descriptors are open; the parent holds them until the process has begun.
            let kept = unsafe { std::os::fd::BorrowedFd::borrow_raw(kept) };
            rustix::io::fcntl_setfd(kept, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec there are system calls alone, in a process of one thread.
    unsafe { command.pre_exec(begin) };
}

impl Limits {
    fn all(self) -> [(Resource, Option<u64>); 5] {
        [
            (Resource::As, self.address_space),
            (Resource::Cpu, self.cpu_seconds),
            (Resource::Nofile, self.open_files),
            (Resource::Nproc, self.processes),
            (Resource::Core, self.core),
        ]
    }
}
