//! Serving one order: between its keeper, its processes' streams, and who ordered it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gambeson_link::Request;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::branches::Controls;
use crate::keeper::{Said, Told};
use crate::nursery::{receive, send};
use crate::wire::{self, Event, INPUT, SIGNAL, Status, WINDOW, number};

/// What has come for an order and is not dealt with yet.
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    room: Condvar,
    bell: OwnedFd,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Nobody takes anything any more.
    closed: bool,
}

enum Item {
    /// From the requester, for a process.
    Told(Request),
    /// From a host that the order was passed on to.
    Below(u32, Event),
    /// It is to end, and this is why.
    Kill(String),
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox { queue: Mutex::default(), room: Condvar::new(), bell })
    }

    /// Puts a request by; what it takes of its link's window stays taken until it is done.
    pub(crate) fn put(&self, request: Request) {
        self.lock().items.push_back(Item::Told(request));
        self.ring();
    }

    /// Has the order end.
    pub(crate) fn kill(&self, why: String) {
        self.lock().items.push_back(Item::Kill(why));
        self.ring();
    }

    /// Puts by what was said elsewhere, as soon as there is room for it.
    pub(crate) fn put_below(&self, number: u32, event: Event) {
        let full = |queue: &mut Queue| queue.items.len() >= BELOW_MAX && !queue.closed;
        let mut queue = self.room.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        queue.items.push_back(Item::Below(number, event));
        drop(queue);
        self.ring();
    }

    /// The order is over: nobody waits for room.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
    }

    fn take(&self) -> VecDeque<Item> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let taken = std::mem::take(&mut self.lock().items);
        self.room.notify_all();
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// The processes of an order that run here.
pub(crate) struct Serving<'s> {
    request: &'s mut Request,
    inbox: &'s Inbox,
    /// Until it has ended, and with it whatever the processes here left behind.
    keeper: Option<OwnedFd>,
    processes: BTreeMap<u32, Process>,
    /// Those that run where the order was passed on to.
    below: BTreeSet<u32>,
    controls: Controls,
    /// How those ended that have.
    pub(crate) ended: Vec<(u32, Event)>,
    buffer: Vec<u8>,
}

/// One of them, with our ends of its streams.
#[derive(Default)]
struct Process {
    output: Option<File>,
    errors: Option<File>,
    input: Option<File>,
    /// Whether it has begun; what comes for it earlier waits.
    has_begun: bool,
    is_terminal: bool,
    /// What its input had no room for, and how far that is written.
    waiting: VecDeque<(Request, usize)>,
}

/// Nobody wants the order any more.
pub(crate) struct Unwanted;

/// Which stream of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Output,
    Errors,
    Input,
}

impl<'s> Serving<'s> {
    /// `here` and `below` are the processes that run on this host, and on those that the order was passed on to.
    pub(crate) fn new(
        request: &'s mut Request,
        inbox: &'s Inbox,
        keeper: OwnedFd,
        here: &[u32],
        below: BTreeSet<u32>,
        controls: Controls,
    ) -> Self {
        let processes = here.iter().map(|&number| (number, Process::default())).collect();
        Serving {
            request,
            inbox,
            keeper: Some(keeper),
            processes,
            below,
            controls,
            ended: Vec::new(),
            buffer: vec![0; CHUNK],
        }
    }

    /// Until every process has ended, and whatever they left behind.
    pub(crate) fn run(&mut self) -> Result<(), Unwanted> {
        while self.left() > 0 || self.keeper.is_some() {
            if self.request.is_cancelled() {
                return Err(Unwanted);
            }
            let (keeper, bell, streams) = self.wait();
            for (process, stream) in streams {
                match stream {
                    Stream::Input => self.write(process),
                    stream => drop(self.read(process, stream)?),
                }
            }
            if bell {
                for item in self.inbox.take() {
                    match item {
                        Item::Told(request) => self.handle(request),
                        Item::Below(number, event) => self.pass_up(number, &event)?,
                        Item::Kill(why) => self.kill(&why)?,
                    }
                }
            }
            if keeper {
                self.hear()?;
            }
        }
        Ok(())
    }

    /// Waits for something to do.
    fn wait(&self) -> (bool, bool, Vec<(u32, Stream)>) {
        let mut streams = Vec::with_capacity(2 * self.processes.len());
        let mut wanted = vec![PollFd::new(&self.inbox.bell, PollFlags::IN)];
        for (&number, process) in &self.processes {
            let Process { output, errors, input, waiting, .. } = process;
            let input = input.as_ref().filter(|_| !waiting.is_empty());
            for (stream, file, flags) in [
                (Stream::Output, output.as_ref(), PollFlags::IN),
                (Stream::Errors, errors.as_ref(), PollFlags::IN),
                (Stream::Input, input, PollFlags::OUT),
            ] {
                if let Some(file) = file {
                    streams.push((number, stream));
                    wanted.push(PollFd::new(file, flags));
                }
            }
        }
        wanted.extend(self.keeper.as_ref().map(|keeper| PollFd::new(keeper, PollFlags::IN)));
        let _ = poll(&mut wanted, Some(&Timespec::try_from(LOOK).expect("a short time")));
        let mut ready: Vec<bool> = wanted.iter().map(|watched| !watched.revents().is_empty()).collect();
        drop(wanted);
        let keeper = self.keeper.is_some() && ready.pop() == Some(true);
        let streams =
            streams.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready).map(|(which, _)| which).collect();
        (keeper, ready[0], streams)
    }

    /// Passes on what a process has written; how much, and nothing when there is no more.
    fn read(&mut self, number: u32, stream: Stream) -> Result<usize, Unwanted> {
        let Some(process) = self.processes.get_mut(&number) else { return Ok(0) };
        let place = if stream == Stream::Output { &mut process.output } else { &mut process.errors };
        let Some(file) = place else { return Ok(0) };
        match file.read(&mut self.buffer) {
            Err(cause) if matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            // The other end of a terminal is gone with an error.
            Ok(0) | Err(_) => {
                if !process.is_terminal {
                    *place = None;
                }
                Ok(0)
            }
            Ok(count) => {
                let bytes = self.buffer[..count].to_vec();
                let event = if stream == Stream::Output { Event::Output(bytes) } else { Event::Errors(bytes) };
                self.tell(number, &event)?;
                Ok(count)
            }
        }
    }

    /// Writes to a process's input what waits for it.
    fn write(&mut self, number: u32) {
        let Some(process) = self.processes.get_mut(&number).filter(|process| process.has_begun) else { return };
        let Process { output, input, waiting, is_terminal, .. } = process;
        while let Some((request, written)) = waiting.front_mut() {
            let bytes = &request.payload[NUMBER + *written..];
            let whole = request.payload.len() == NUMBER;
            let to = if *is_terminal { output.as_mut() } else { input.as_mut() };
            let Some(to) = to else {
                waiting.clear();
                break;
            };
            if whole && !*is_terminal {
                *input = None;
                waiting.clear();
                break;
            }
            // What ends the input of a terminal is a character.
            match to.write(if whole { &[END_OF_TRANSMISSION] } else { bytes }) {
                Ok(count) if whole || count == bytes.len() => drop(waiting.pop_front()),
                Ok(count) => *written += count,
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => break,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                // It has closed its input.
                Err(_) => {
                    *input = None;
                    waiting.clear();
                }
            }
        }
    }

    /// Says to the requester what was said elsewhere.
    fn pass_up(&mut self, number: u32, event: &Event) -> Result<(), Unwanted> {
        if matches!(event, Event::Ended(_) | Event::Failed(_)) {
            self.below.remove(&number);
            self.ended.push((number, event.clone()));
        }
        self.tell(number, event)
    }

    /// Does what the requester wants with a process.
    fn handle(&mut self, request: Request) {
        let Some((process, rest)) = number(&request.payload) else { return request.refuse("no process is named") };
        // Who is lost is heard of as the end of his processes. Nothing is written to processes behind another host.
        match (request.handler, rest) {
            (SIGNAL, &[signal]) if process == wire::ALL => drop(self.controls.signal(None, signal)),
            (SIGNAL, &[signal]) if self.below.contains(&process) => {
                return drop(self.controls.signal(Some(process), signal));
            }
            _ => {}
        }
        match (request.handler, rest) {
            (INPUT, _) => {
                if let Some(there) = self.processes.get_mut(&process) {
                    there.waiting.push_back((request, 0));
                    self.write(process);
                }
            }
            (SIGNAL, &[signal]) => {
                let which = Some(process).filter(|&process| process != wire::ALL);
                let told = wire::encode(&Told::Signal(which, signal));
                self.keeper.iter().for_each(|keeper| drop(send(keeper, &told, &[])));
            }
            (WINDOW, &[high, low, more, less]) => {
                let terminal = self.processes.get(&process).filter(|process| process.is_terminal);
                if let Some(terminal) = terminal.and_then(|process| process.output.as_ref()) {
                    let [ws_row, ws_col] = [[high, low], [more, less]].map(u16::from_be_bytes);
                    let _ = tcsetwinsize(terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
                }
            }
            _ => request.refuse("the message is none of this version of Gambeson"),
        }
    }

    /// Takes one word of the keeper's.
    fn hear(&mut self) -> Result<(), Unwanted> {
        let mut message = [0; MESSAGE_MAX];
        let came = self.keeper.as_ref().map(|keeper| receive(keeper, &mut message));
        let (said, descriptors) = match came {
            Some(Ok((length @ 1.., descriptors))) => (wire::decode(&message[..length]), descriptors),
            // That is how it says that nothing is left, unless something is.
            _ => return self.give_up("its keeper on this host has ended"),
        };
        let said = match said {
            Ok(said) => said,
            Err(why) => return self.give_up(&why),
        };
        match said {
            Said::Started(number, pid) => {
                self.connect(number, descriptors);
                self.tell(number, &Event::Started(pid))
            }
            Said::Failed(wire::ALL, why) => self.give_up(&why),
            Said::Failed(number, why) => self.end(number, Event::Failed(why)),
            Said::Ended(number, status) => {
                // What it wrote before it ended is in its pipes by now, and they hold no more than that.
                for stream in [Stream::Output, Stream::Errors] {
                    let mut left = PIPE_MAX;
                    while left > 0 {
                        match self.read(number, stream)? {
                            0 => break,
                            count => left = left.saturating_sub(count),
                        }
                    }
                }
                self.end(number, Event::Ended(status))
            }
        }
    }

    fn connect(&mut self, number: u32, streams: Vec<OwnedFd>) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        for stream in &streams {
            let _ = fcntl_getfl(stream).and_then(|flags| fcntl_setfl(stream, flags | OFlags::NONBLOCK));
        }
        process.is_terminal = streams.len() == 1;
        let mut streams = streams.into_iter().map(File::from);
        (process.output, process.errors, process.input) = (streams.next(), streams.next(), streams.next());
        process.has_begun = true;
        self.write(number);
    }

    fn end(&mut self, number: u32, event: Event) -> Result<(), Unwanted> {
        self.processes.remove(&number);
        self.tell(number, &event)?;
        self.ended.push((number, event));
        Ok(())
    }

    /// Waits until there is room for it, if need be.
    fn tell(&mut self, number: u32, event: &Event) -> Result<(), Unwanted> {
        self.request.item(&wire::encode(&(number, event))).map_err(|_| Unwanted)
    }

    /// How many processes have not ended.
    pub(crate) fn left(&self) -> usize {
        self.processes.len() + self.below.len()
    }

    /// Ends all processes, here and where the order was passed on to.
    fn kill(&mut self, why: &str) -> Result<(), Unwanted> {
        self.controls.leave();
        for number in std::mem::take(&mut self.below) {
            self.pass_up(number, &Event::Failed(why.to_owned()))?;
        }
        self.give_up(why)
    }

    /// The keeper is gone, or is to go: says of each process here that is left what became of it.
    fn give_up(&mut self, why: &str) -> Result<(), Unwanted> {
        self.keeper = None;
        let left: Vec<_> = self.processes.keys().copied().collect();
        left.into_iter().try_for_each(|number| self.end(number, Event::Failed(why.to_owned())))
    }
}

/// How processes of an order ended, for the log.
pub(crate) fn summary(ended: &[(u32, Event)]) -> BTreeMap<String, u32> {
    let mut counted = BTreeMap::new();
    for (_, event) in ended {
        let how = match event {
            Event::Ended(Status::Exited(code)) => format!("status {code}"),
            Event::Ended(Status::Killed(signal)) => format!("signal {signal}"),
            _ => "failed".into(),
        };
        *counted.entry(how).or_insert(0) += 1;
    }
    counted
}

/// A process's number, in front of what is for it.
const NUMBER: usize = 4;
const END_OF_TRANSMISSION: u8 = 4;
const CHUNK: usize = 64 << 10;
/// So many events of other hosts wait for the requester.
const BELOW_MAX: usize = 64;
/// No word of a keeper's is longer.
const MESSAGE_MAX: usize = 16 << 10;
/// The largest pipe that somebody who is not root can make.
const PIPE_MAX: usize = 1 << 20;
/// How often to look whether anybody still wants the order.
const LOOK: Duration = Duration::from_millis(500);
