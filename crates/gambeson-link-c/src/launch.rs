//! Processes on other hosts: `start_process` and `init_process` (secure-nexus paper, figure 3).

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use gambeson_launch::authority::user_folder;
use gambeson_launch::child::{self, Child};
use gambeson_launch::creator::{Creator, Wanted};
use gambeson_launch::processes::{Here, Processes};
use gambeson_launch::wire::{Host, Program, Secret, Status, Streams, Text, Variable};

use crate::domain::gambeson_link_domain;
use crate::failure::{Failure, answer, done, free, gambeson_link_status};
use crate::raw::{bytes, given, hand_out, make, seconds, show, text};
use crate::startpoint::{gambeson_link_capability, gambeson_link_startpoint};

/// Stands for all processes that were started together.
pub const GAMBESON_LAUNCH_ALL: u32 = u32::MAX;

/// A program that starts processes.
pub struct gambeson_launch_creator(Creator);

/// Processes that were started together, numbered from 0.
pub struct gambeson_launch_processes(Processes);

/// What a process has from its creator: a domain of their job, and what the creator gave it.
pub struct gambeson_launch_child(Child);

/// Processes that are wanted. Lists end with a null, as those of execve(2); set everything else that is not needed to zero.
#[repr(C)]
pub struct gambeson_launch_wanted {
    /// Where: each `NAME`, or `NAME=ADDRESS:PORT` where its daemon listens elsewhere.
    pub hosts: *const *const c_char,
    /// How many on each host.
    pub count: u32,
    /// Where they start; the account's home if it is null.
    pub directory: *const c_char,
    /// A path, or a name to look for in `PATH`; the first of `argv` if it is null.
    pub executable: *const c_char,
    /// All of argv, the name by which it is called first.
    pub argv: *const *const c_char,
    /// Variables, each `NAME=VALUE`; nothing else of this program's goes along.
    pub environment: *const *const c_char,
    /// The account to use there; the creator's own if it is null.
    pub account: *const c_char,
    /// Whether they have a standard input (`gambeson_launch_processes_input`).
    pub input: bool,
    /// What each of them finds (`gambeson_launch_child_context`).
    pub context: *const c_void,
    /// Its length.
    pub context_length: usize,
    /// Where the initial link of each leads: a startpoint to an endpoint of the creator's domain, or null.
    pub creator: *const gambeson_link_capability,
}

/// A program that starts processes, as who this is, whose identity is in `folder`, by default `~/.config/gambeson`.
///
/// Under `gambeson run` the processes belong to its job, otherwise to a new one. The domain that they connect to listens at
/// `listen`, as in `10.1.2.3:4000`, or else at the address of this host that the site's authority is reached from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_launch_creator_open(
    folder: *const c_char,
    listen: *const c_char,
    creator: Option<&mut MaybeUninit<Option<Box<gambeson_launch_creator>>>>,
) -> gambeson_link_status {
    done(|| {
        make(creator, || {
            // SAFETY: the caller's promise.
            let (folder, listen) = unsafe { (optional(folder, "the folder")?, addresses(listen)?) };
            let folder = folder.map_or_else(user_folder, PathBuf::from);
            Ok(gambeson_launch_creator(Creator::open(&folder, &listen)?))
        })
    })
}

/// The domain that the processes connect to.
///
/// It closes when it and the creator are freed, both.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_creator_domain(
    creator: Option<&gambeson_launch_creator>,
    domain: Option<&mut MaybeUninit<Option<Box<gambeson_link_domain>>>>,
) -> gambeson_link_status {
    done(|| make(domain, || Ok(gambeson_link_domain::shared(given(creator, "the creator")?.0.domain()))))
}

/// Frees it. Null is nothing to free. Its processes go on until they are freed.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_creator_free(creator: Option<Box<gambeson_launch_creator>>) {
    free(creator);
}

/// Has processes started, all at once, and does not wait for that: split-phase.
///
/// What they write is written where this program writes. What happens at a host shows with its processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_launch_start_process(
    creator: Option<&gambeson_launch_creator>,
    wanted: Option<&gambeson_launch_wanted>,
    processes: Option<&mut MaybeUninit<Option<Box<gambeson_launch_processes>>>>,
) -> gambeson_link_status {
    done(|| {
        make(processes, || {
            let (creator, wanted) = (given(creator, "the creator")?, given(wanted, "what is wanted")?);
            // SAFETY: the caller's promise.
            let wanted = unsafe { read(wanted)? };
            Ok(gambeson_launch_processes(creator.0.start_process(wanted, Here)?))
        })
    })
}

/// The startpoint that a process hands over once it is ready. `PENDING` if that is not within `patience` seconds; what
/// fails says how it ended before that, or why it was not started.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_processes_startpoint(
    processes: Option<&gambeson_launch_processes>,
    process: u32,
    patience: f64,
    startpoint: Option<&mut MaybeUninit<Option<Box<gambeson_link_capability>>>>,
) -> gambeson_link_status {
    answer(|| {
        let startpoint = given(startpoint, "the place for the result")?;
        startpoint.write(None);
        let found = one(processes, process)?.wait_startpoint(process, seconds(patience)?)?;
        let Some(found) = found else { return Ok(gambeson_link_status::Pending) };
        startpoint.write(Some(Box::new(gambeson_link_capability(found))));
        Ok(gambeson_link_status::Ok)
    })
}

/// How a process ended: its status, or the negative number of a signal. `PENDING` if it has not within `patience` seconds;
/// what fails says why it was not started, or that nobody knows.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_processes_status(
    processes: Option<&gambeson_launch_processes>,
    process: u32,
    patience: f64,
    status: Option<&mut MaybeUninit<i32>>,
) -> gambeson_link_status {
    answer(|| {
        let status = given(status, "the place for the result")?;
        match one(processes, process)?.wait_status(process, seconds(patience)?)? {
            None => return Ok(gambeson_link_status::Pending),
            Some(Status::Exited(code)) => status.write(code.into()),
            Some(Status::Killed(signal)) => status.write(-i32::from(signal)),
        };
        Ok(gambeson_link_status::Ok)
    })
}

/// Writes to a process's standard input, and waits for room. Nothing to write ends that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_launch_processes_input(
    processes: Option<&gambeson_launch_processes>,
    process: u32,
    text: *const c_void,
    length: usize,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    done(|| Ok(one(processes, process)?.controls().input(process, unsafe { bytes(text, length)? })?))
}

/// Sends a signal to a process, or to `GAMBESON_LAUNCH_ALL`, and to what they have started.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_processes_signal(
    processes: Option<&gambeson_launch_processes>,
    process: u32,
    signal: u8,
) -> gambeson_link_status {
    done(|| {
        if process == GAMBESON_LAUNCH_ALL {
            return Ok(given(processes, "the processes")?.0.controls().signal(None, signal)?);
        }
        Ok(one(processes, process)?.controls().signal(Some(process), signal)?)
    })
}

/// Ends the processes, if they have not ended, and frees their handle. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_processes_free(processes: Option<Box<gambeson_launch_processes>>) {
    if let Some(processes) = processes {
        let _ = done(|| {
            processes.0.end();
            Ok(())
        });
    }
}

/// Takes this process's security context, and opens its domain.
///
/// It listens at `listen`, as in `10.1.2.3:0`, or if that is null at the address of this host that its creator is reached
/// from. `REFUSED` when `gambeson_launch_start_process` did not make this process, or its context was taken already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_launch_init_process(
    listen: *const c_char,
    child: Option<&mut MaybeUninit<Option<Box<gambeson_launch_child>>>>,
) -> gambeson_link_status {
    done(|| {
        make(child, || {
            // SAFETY: the caller's promise.
            let listen = unsafe { addresses(listen)? };
            Ok(gambeson_launch_child(child::init_process(&listen)?))
        })
    })
}

/// Its place among the processes that were started together, from 0.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_child_number(
    child: Option<&gambeson_launch_child>,
    number: Option<&mut MaybeUninit<u32>>,
) -> gambeson_link_status {
    done(|| hand_out(number, given(child, "the child")?.0.number()))
}

/// What the creator said to it, in secret. It is there as long as the handle.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_child_context(
    child: Option<&gambeson_launch_child>,
    context: Option<&mut MaybeUninit<*const c_void>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> gambeson_link_status {
    done(|| show(given(child, "the child")?.0.context(), context, length))
}

/// Its place among links. Processes of one creator trust each other by their job's secret.
///
/// It closes when it and the child are freed, both.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_child_domain(
    child: Option<&gambeson_launch_child>,
    domain: Option<&mut MaybeUninit<Option<Box<gambeson_link_domain>>>>,
) -> gambeson_link_status {
    done(|| make(domain, || Ok(gambeson_link_domain::shared(given(child, "the child")?.0.domain()))))
}

/// Hands the creator a startpoint to an endpoint of this process's domain. The initial link to the creator comes back in
/// `creator`; null if that has given a startpoint for none.
///
/// `patience` is in seconds. `own` stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_child_ready(
    child: Option<&gambeson_launch_child>,
    own: Option<&gambeson_link_capability>,
    patience: f64,
    creator: Option<&mut MaybeUninit<Option<Box<gambeson_link_startpoint>>>>,
) -> gambeson_link_status {
    done(|| {
        let creator = given(creator, "the place for the result")?;
        creator.write(None);
        let (child, own) = (given(child, "the child")?, given(own, "the startpoint")?);
        let link = child.0.ready(&own.0, seconds(patience)?)?;
        creator.write(link.map(|link| Box::new(gambeson_link_startpoint::new(link))));
        Ok(())
    })
}

/// Frees it. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_launch_child_free(child: Option<Box<gambeson_launch_child>>) {
    free(child);
}

fn one(processes: Option<&gambeson_launch_processes>, process: u32) -> Result<&Processes, Failure> {
    let processes = &given(processes, "the processes")?.0;
    if process as usize >= processes.len() {
        return Err(Failure::argument(format!("there is no process {process} among {}", processes.len())));
    }
    Ok(processes)
}

/// # Safety
/// What [`gambeson_launch_wanted`] says of its members.
unsafe fn read(wanted: &gambeson_launch_wanted) -> Result<Wanted, Failure> {
    // SAFETY: the caller's promise, for all of them.
    let (hosts, argv, environment, directory, executable, account, context, creator) = unsafe {
        (
            ended(wanted.hosts, "a host")?,
            ended(wanted.argv, "a word of argv")?,
            ended(wanted.environment, "a variable")?,
            optional(wanted.directory, "the directory")?,
            optional(wanted.executable, "the executable")?,
            optional(wanted.account, "the account")?,
            bytes(wanted.context, wanted.context_length)?,
            wanted.creator.as_ref(),
        )
    };
    let first = given(argv.first().copied(), "the first of argv")?;
    let variable = |pair: &&str| -> Result<Variable, Failure> {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| Failure::argument(format!("{pair:?} is no NAME=VALUE")))?;
        Ok((name.into(), value.into()))
    };
    let program = Program {
        directory: directory.unwrap_or_default().into(),
        executable: executable.unwrap_or(first).into(),
        arguments: argv.iter().copied().map(Text::from).collect(),
        environment: environment.iter().map(variable).collect::<Result<_, _>>()?,
        streams: if wanted.input { Streams::All } else { Streams::Output },
    };
    let copies = wanted.count as usize;
    Ok(Wanted {
        hosts: hosts.iter().flat_map(|host| std::iter::repeat_n(Host::parse(host), copies)).collect(),
        program,
        account: account.unwrap_or_default().into(),
        context: Secret::from(context),
        creator: creator.map(|creator| creator.0.clone()),
    })
}

/// A list that a null ends; null is none.
///
/// # Safety
/// Unless it is null, a null ends it, and a zero byte each of its texts.
unsafe fn ended<'t>(list: *const *const c_char, what: &str) -> Result<Vec<&'t str>, Failure> {
    let mut found = Vec::new();
    while !list.is_null() {
        // SAFETY: the list is not at its end before this one.
        let next = unsafe { *list.add(found.len()) };
        if next.is_null() {
            break;
        }
        // SAFETY: the caller's promise.
        found.push(unsafe { text(next, what)? });
    }
    Ok(found)
}

/// A text, or null.
///
/// # Safety
/// Unless it is null, a zero byte ends it.
unsafe fn optional<'t>(start: *const c_char, what: &str) -> Result<Option<&'t str>, Failure> {
    // SAFETY: the caller's promise.
    (!start.is_null()).then(|| unsafe { text(start, what) }).transpose()
}

/// Where to listen.
///
/// # Safety
/// Unless it is null, a zero byte ends it.
unsafe fn addresses(start: *const c_char) -> Result<Vec<SocketAddr>, Failure> {
    // SAFETY: the caller's promise.
    let Some(wanted) = (unsafe { optional(start, "the address")? }) else { return Ok(Vec::new()) };
    let found = wanted.to_socket_addrs();
    let found = found.map_err(|cause| Failure::argument(format!("{wanted:?} is no address to listen at: {cause}")))?;
    Ok(found.collect())
}
