//! Who wants processes: connects to their hosts' daemons, and hears what becomes of them (secure-nexus paper, section 5).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gambeson_link::{Answers, Config, Domain, Expected, Startpoint};
use gambeson_site::directory::now;

use crate::authority::{Kind, Member, renew};
use crate::error::Error;
use crate::wire::{self, ALL, ENDPOINT, Event, INPUT, Order, SIGNAL, START, Start, WINDOW, numbered};

/// A place from which processes are ordered. What is ordered by way of it ends when it is dropped.
pub struct Requester {
    domain: Domain,
}

impl Requester {
    /// As who this is, at hosts of his site. A certificate whose time is nearly over is renewed in passing.
    ///
    /// # Errors
    /// When there is no identity, or it has expired.
    pub fn new(folder: &Path) -> Result<Self, Error> {
        let refused = |cause: gambeson_link::Error| Error::Refused(cause.to_string());
        let member = Member::read(folder, Kind::User)?;
        // As long as it is valid, that its authority cannot be asked stops nobody.
        let renewed = renew(&member, false);
        if member.validity.until < now() {
            renewed?;
        }
        let member = Member::read(folder, Kind::User)?;
        let mut config = Config::new(member.again()?, member.trust()?);
        config.shm = false;
        config.patience = PATIENCE;
        Ok(Requester { domain: Domain::open(config).map_err(refused)? })
    }

    /// Has the processes of an order started, all at once, and does not wait for that (the split-phase `start_process`).
    /// A host that cannot be reached, or refuses, shows as the failure of its processes.
    #[must_use]
    pub fn begin(self: &Arc<Self>, order: &Order) -> Ordered {
        let bytes = wire::encode(order);
        let mut numbers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, process) in order.processes.iter().enumerate() {
            numbers.entry(process.host).or_default().push(number as u32);
        }
        let (say, events) = channel();
        let controls = Controls::default();
        for (host, numbers) in numbers {
            let (requester, there) = (self.clone(), order.hosts[host as usize].clone());
            let (say, controls) = (say.clone(), controls.clone());
            let start = wire::encode(&Start { order: bytes.clone(), hosts: vec![host] });
            thread::spawn(move || {
                if let Err(why) = requester.at(&there, &start, &numbers, &say, &controls) {
                    let why = format!("{}: {why}", there.name);
                    // Who asks no more hears no more.
                    numbers.iter().for_each(|&number| drop(say.send((number, Event::Failed(why.clone())))));
                }
            });
        }
        Ordered { events, controls, open: (0..order.processes.len() as u32).collect() }
    }

    /// Orders at one host, and passes on what it says.
    fn at(
        &self,
        host: &wire::Host,
        start: &[u8],
        numbers: &[u32],
        say: &Sender<(u32, Event)>,
        controls: &Controls,
    ) -> Result<(), gambeson_link::Error> {
        let expected = Expected::Role(format!("dns:{}", host.name));
        let there = Arc::new(self.domain.attach(&*host.address, &expected, ENDPOINT, CONNECT)?);
        let mut answers: Answers<Arc<Startpoint>> = there.stream_owned(START, start)?;
        controls.places().extend(numbers.iter().map(|&number| (number, there.clone())));
        drop(there);
        while !controls.0.unwanted.load(Ordering::Relaxed) {
            match answers.next(LOOK) {
                Ok(None) => return Ok(()),
                Ok(Some(event)) => {
                    let event = wire::decode(&event).map_err(gambeson_link::Error::Protocol)?;
                    if say.send(event).is_err() {
                        return Ok(());
                    }
                }
                Err(gambeson_link::Error::TimedOut(_)) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }
}

/// Processes that were ordered. Dropping it ends them.
pub struct Ordered {
    events: Receiver<(u32, Event)>,
    controls: Controls,
    /// Which have not ended.
    open: BTreeSet<u32>,
}

/// What there is to hear.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// This of that process.
    Event(u32, Event),
    /// Nothing yet.
    Nothing,
    /// All processes have ended, and what they left behind.
    End,
}

impl Ordered {
    /// What is said next of any of them, waited for at most so long. The last word of each process is how it ended.
    pub fn next(&mut self, patience: Duration) -> Heard {
        loop {
            match self.events.recv_timeout(patience) {
                Ok((number, event)) => {
                    let is_last = matches!(event, Event::Ended(_) | Event::Failed(_));
                    let was_open = if is_last { self.open.remove(&number) } else { self.open.contains(&number) };
                    // Of a process that has ended nothing more is said, as when its host is lost after that.
                    if was_open {
                        return Heard::Event(number, event);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Heard::Nothing,
                Err(RecvTimeoutError::Disconnected) => match self.open.pop_first() {
                    Some(number) => return Heard::Event(number, Event::Failed("its daemon said nothing of it".into())),
                    None => return Heard::End,
                },
            }
        }
    }

    /// What else can be done with them, from any thread.
    #[must_use]
    pub fn controls(&self) -> Controls {
        self.controls.clone()
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        self.controls.0.unwanted.store(true, Ordering::Relaxed);
        self.controls.places().clear();
    }
}

/// Input, signals and windows for processes that were ordered.
#[derive(Clone, Default)]
pub struct Controls(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Where each process is, once its host was reached.
    places: Mutex<BTreeMap<u32, Arc<Startpoint>>>,
    /// Nobody wants the processes any more.
    unwanted: AtomicBool,
}

impl Controls {
    /// Writes to a process's standard input; nothing to write ends that. Waits for room.
    ///
    /// # Errors
    /// When its host is lost.
    pub fn input(&self, process: u32, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return self.send(process, INPUT, bytes);
        }
        bytes.chunks(CHUNK).try_for_each(|chunk| self.send(process, INPUT, chunk))
    }

    /// Sends a signal to one process, or to all of them, and to what they have started.
    ///
    /// # Errors
    /// When a host is lost.
    pub fn signal(&self, process: Option<u32>, signal: u8) -> Result<(), Error> {
        if let Some(process) = process {
            return self.send(process, SIGNAL, &[signal]);
        }
        let mut places: Vec<_> = self.places().values().cloned().collect();
        places.dedup_by_key(|place| Arc::as_ptr(place));
        places.iter().try_for_each(|place| place.send(SIGNAL, &numbered(ALL, &[signal])).map_err(lost))
    }

    /// Tells a process the size of its terminal.
    ///
    /// # Errors
    /// When its host is lost.
    pub fn window(&self, process: u32, rows: u16, columns: u16) -> Result<(), Error> {
        self.send(process, WINDOW, &[rows.to_be_bytes(), columns.to_be_bytes()].concat())
    }

    fn send(&self, process: u32, handler: u32, bytes: &[u8]) -> Result<(), Error> {
        let place = self.places().get(&process).cloned();
        match place {
            Some(place) => place.send(handler, &numbered(process, bytes)).map_err(lost),
            None => Err(Error::Unavailable("the process has not begun; wait until it has".into())),
        }
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Startpoint>>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(cause: gambeson_link::Error) -> Error {
    Error::Unavailable(cause.to_string())
}

/// So long a host may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// So long a lost connection may take to come back.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to look whether anybody still wants the processes.
const LOOK: Duration = Duration::from_millis(250);
const CHUNK: usize = 256 << 10;
