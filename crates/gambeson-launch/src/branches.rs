//! An order on its way to several hosts: a tree of daemons, each of which passes it on to a few others.
//!
//! ```text
//!  requester ──┬── h1 ──┬── h2
//!              │        └── h3 ── ...      up to 16 branches everywhere
//!              └── h17 ── ...
//! ```
//! The requester has signed the order, so those further down know who wants it whoever brings it, and what exactly. A host
//! that cannot be reached costs its own processes alone: the next one of its branch takes its place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gambeson_link::{Answers, Domain, Expected, Startpoint};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::wire::{
    self, ALL, ENDPOINT, Event, Host, INPUT, Order, SIGNAL, START, Secret, Signature, Start, WINDOW, numbered,
};

/// An order as it is passed on.
pub(crate) struct Passed {
    pub(crate) order: Order,
    /// The same as it was signed.
    pub(crate) bytes: Secret,
    pub(crate) signature: Option<Signature>,
}

/// Passes an order on to these hosts of it, and has `say` hear what becomes of each process there: one last event for each.
pub(crate) fn pass_on(
    domain: &Arc<Domain>,
    passed: &Arc<Passed>,
    hosts: &[u32],
    controls: &Controls,
    say: impl Fn(u32, Event) + Clone + Send + 'static,
) {
    // Nobody passes on what is not signed.
    let branch = if passed.signature.is_some() { hosts.len().div_ceil(WIDTH).max(1) } else { 1 };
    for hosts in hosts.chunks(branch) {
        let open = hosts.iter().flat_map(|&host| passed.order.numbers(host)).collect();
        let mut branch = Branch { domain: domain.clone(), passed: passed.clone(), controls: controls.clone(), open };
        let (hosts, say) = (hosts.to_vec(), say.clone());
        let thread = thread::Builder::new().name("gambeson-branch".into()).stack_size(STACK);
        let refused = say.clone();
        let numbers = branch.open.clone();
        if let Err(cause) = thread.spawn(move || branch.follow(&hosts, say)) {
            numbers
                .into_iter()
                .for_each(|number| refused(number, Event::Failed(format!("no thread can be made ({cause})"))));
        }
    }
}

/// A link to the daemon of a host: whose certificate is for that host, and nobody else.
pub(crate) fn attach(domain: &Domain, host: &Host) -> Result<Startpoint, gambeson_link::Error> {
    let expected = Expected::Role(format!("dns:{}", host.name));
    domain.attach(&*host.address, &expected, ENDPOINT, CONNECT)
}

/// One of the ways that an order takes.
struct Branch {
    domain: Arc<Domain>,
    passed: Arc<Passed>,
    controls: Controls,
    /// The processes along it that have not ended.
    open: BTreeSet<u32>,
}

impl Branch {
    fn follow(&mut self, mut hosts: &[u32], say: impl Fn(u32, Event)) {
        while let Some((&root, below)) = hosts.split_first() {
            let passed = self.passed.clone();
            let host = &passed.order.hosts[root as usize];
            let failed = |cause: gambeson_link::Error| format!("{}: {cause}", host.name);
            match attach(&self.domain, host) {
                Err(cause) => {
                    let (why, here): (_, Vec<_>) = (failed(cause), self.passed.order.numbers(root).collect());
                    self.fail(here, &why, &say);
                    hosts = below;
                }
                Ok(there) => {
                    let why = self.listen(Arc::new(there), hosts, &say).err().map(|cause| match cause {
                        gambeson_link::Error::Lost(why) => lost_daemon(&host.name, &why),
                        cause => failed(cause),
                    });
                    let why = why.unwrap_or_else(|| format!("{}: its daemon said nothing of it", host.name));
                    return self.fail(self.open.clone(), &why, &say);
                }
            }
        }
    }

    /// Orders at a daemon, and passes on what it says.
    fn listen(
        &mut self,
        there: Arc<Startpoint>,
        hosts: &[u32],
        say: &impl Fn(u32, Event),
    ) -> Result<(), gambeson_link::Error> {
        let Passed { bytes, signature, .. } = &*self.passed;
        let start = Start { order: bytes.clone(), hosts: hosts.to_vec(), signature: signature.clone() };
        let mut answers = there.stream_owned(START, &Zeroizing::new(wire::encode(&start)))?;
        self.controls.places().extend(self.open.iter().map(|&number| (number, there.clone())));
        let way = Arc::downgrade(&there);
        drop(there);
        let outcome = self.hear(&mut answers, say);
        // What is behind it is reached no more.
        self.controls.places().retain(|_, place| Arc::as_ptr(place) != way.as_ptr());
        outcome
    }

    fn hear(
        &mut self,
        answers: &mut Answers<Arc<Startpoint>>,
        say: &impl Fn(u32, Event),
    ) -> Result<(), gambeson_link::Error> {
        while !self.controls.0.unwanted.load(Ordering::Relaxed) {
            match answers.next(LOOK) {
                Ok(None) => return Ok(()),
                Ok(Some(said)) => {
                    let (number, event) = wire::decode(&said).map_err(gambeson_link::Error::Protocol)?;
                    let is_last = matches!(event, Event::Ended(_) | Event::Failed(_));
                    // Nobody speaks for processes that are elsewhere, or have ended.
                    if if is_last { self.open.remove(&number) } else { self.open.contains(&number) } {
                        say(number, event);
                    }
                }
                Err(gambeson_link::Error::TimedOut(_)) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    fn fail(&mut self, numbers: impl IntoIterator<Item = u32>, why: &str, say: &impl Fn(u32, Event)) {
        for number in numbers {
            if self.open.remove(&number) {
                say(number, Event::Failed(why.to_owned()));
            }
        }
    }
}

/// Input, signals and windows for processes that were ordered.
#[derive(Clone, Default)]
pub struct Controls(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// By way of which daemon each process is reached, once that was.
    places: Mutex<BTreeMap<u32, Arc<Startpoint>>>,
    /// Nobody wants the processes any more.
    unwanted: AtomicBool,
}

impl Controls {
    /// Writes to a process's standard input; nothing to write ends that. Waits for room.
    ///
    /// # Errors
    /// When the process has not begun, or its host is lost.
    pub fn input(&self, process: u32, bytes: &[u8]) -> Result<(), Error> {
        let place = self.place(process)?;
        let send = |bytes: &[u8]| place.send(INPUT, &numbered(process, bytes)).map_err(lost);
        if bytes.is_empty() { send(bytes) } else { bytes.chunks(CHUNK).try_for_each(send) }
    }

    /// Sends a signal to one process, or to all of them, and to what they have started.
    ///
    /// # Errors
    /// When the process has not begun, or a host is lost.
    pub fn signal(&self, process: Option<u32>, signal: u8) -> Result<(), Error> {
        if let Some(process) = process {
            return self.place(process)?.post(SIGNAL, &numbered(process, &[signal])).map_err(lost);
        }
        let mut places: Vec<_> = self.places().values().cloned().collect();
        places.sort_by_key(Arc::as_ptr);
        places.dedup_by_key(|place| Arc::as_ptr(place));
        // One that is lost keeps it from no other.
        let posted: Vec<_> = places.iter().map(|place| place.post(SIGNAL, &numbered(ALL, &[signal]))).collect();
        posted.into_iter().collect::<Result<_, _>>().map_err(lost)
    }

    /// Tells a process the size of its terminal.
    ///
    /// # Errors
    /// As [`Controls::input`].
    pub fn window(&self, process: u32, rows: u16, columns: u16) -> Result<(), Error> {
        let size = [rows.to_be_bytes(), columns.to_be_bytes()].concat();
        self.place(process)?.post(WINDOW, &numbered(process, &size)).map_err(lost)
    }

    fn place(&self, process: u32) -> Result<Arc<Startpoint>, Error> {
        let place = self.places().get(&process).cloned();
        place.ok_or_else(|| Error::Unavailable("the process has not begun; wait until it has".into()))
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Startpoint>>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody wants the processes any more.
    pub(crate) fn leave(&self) {
        self.0.unwanted.store(true, Ordering::Relaxed);
        self.places().clear();
    }
}

/// What it means that a daemon is lost which had an order. What the link's sentence goes on with is of requests.
fn lost_daemon(host: &str, why: &str) -> String {
    let why = why.split("; ").next().unwrap_or(why);
    format!(
        "{host}: the connection to its daemon is lost ({why}), and what ran there ends with that; \
         `gambeson hosts {host}` says how the daemon is"
    )
}

fn lost(cause: gambeson_link::Error) -> Error {
    Error::Unavailable(cause.to_string())
}

/// How many hosts each daemon passes an order on to.
pub(crate) const WIDTH: usize = 16;
/// So long a host may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// How often to look whether anybody still wants the processes.
const LOOK: Duration = Duration::from_millis(250);
const CHUNK: usize = 256 << 10;
const STACK: usize = 256 << 10;
