//! Serving one order: between its keeper, its processes' streams, and who ordered it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gambeson_link::Request;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::keeper::{Said, Told};
use crate::nursery::{receive, send};
use crate::wire::{self, Event, INPUT, SIGNAL, Status, WINDOW, number};

/// What has come for an order's processes and is not with them yet.
pub(crate) struct Inbox {
    queue: Mutex<VecDeque<Request>>,
    bell: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Inbox { queue: Mutex::default(), bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Puts a request by; what it takes of its link's window stays taken until it is done.
    pub(crate) fn put(&self, request: Request) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(request);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn take(&self) -> VecDeque<Request> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The processes of an order that run here.
pub(crate) struct Serving<'s> {
    request: &'s mut Request,
    inbox: &'s Inbox,
    keeper: OwnedFd,
    processes: BTreeMap<u32, Process>,
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
    is_terminal: bool,
    /// What its input had no room for, and how far that is written.
    waiting: VecDeque<(Request, usize)>,
}

/// Why an order ended before its processes did.
pub(crate) enum Early {
    /// Nobody wants it any more.
    Unwanted,
    /// This happened.
    Because(String),
}

/// Which stream of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Output,
    Errors,
    Input,
}

impl<'s> Serving<'s> {
    pub(crate) fn new(request: &'s mut Request, inbox: &'s Inbox, keeper: OwnedFd, numbers: &[u32]) -> Self {
        let processes = numbers.iter().map(|&number| (number, Process::default())).collect();
        Serving { request, inbox, keeper, processes, ended: Vec::new(), buffer: vec![0; CHUNK] }
    }

    /// Until every process has ended, and whatever they left behind.
    pub(crate) fn run(&mut self) -> Result<(), Early> {
        while !self.processes.is_empty() {
            if self.request.is_cancelled() {
                return Err(Early::Unwanted);
            }
            let (keeper, bell, streams) = self.wait();
            for (process, stream) in streams {
                match stream {
                    Stream::Input => self.write(process),
                    stream => drop(self.read(process, stream)?),
                }
            }
            if bell {
                self.inbox.take().into_iter().for_each(|request| self.handle(request));
            }
            if keeper {
                self.hear()?;
            }
        }
        self.until_clear();
        Ok(())
    }

    /// Waits for something to do.
    fn wait(&self) -> (bool, bool, Vec<(u32, Stream)>) {
        let mut streams = Vec::with_capacity(2 * self.processes.len());
        let mut wanted = vec![PollFd::new(&self.keeper, PollFlags::IN), PollFd::new(&self.inbox.bell, PollFlags::IN)];
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
        let _ = poll(&mut wanted, Some(&Timespec::try_from(LOOK).expect("a short time")));
        let ready: Vec<bool> = wanted.iter().map(|watched| !watched.revents().is_empty()).collect();
        drop(wanted);
        let streams =
            streams.into_iter().zip(&ready[2..]).filter(|(_, ready)| **ready).map(|(which, _)| which).collect();
        (ready[0], ready[1], streams)
    }

    /// Passes on what a process has written; how much, and nothing when there is no more.
    fn read(&mut self, number: u32, stream: Stream) -> Result<usize, Early> {
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
        let Some(process) = self.processes.get_mut(&number) else { return };
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

    /// Does what the requester wants with a process.
    fn handle(&mut self, request: Request) {
        let Some((process, rest)) = number(&request.payload) else { return request.refuse("no process is named") };
        match (request.handler, rest) {
            (INPUT, _) => {
                if let Some(there) = self.processes.get_mut(&process) {
                    there.waiting.push_back((request, 0));
                    self.write(process);
                }
            }
            (SIGNAL, &[signal]) => {
                let which = Some(process).filter(|&process| process != wire::ALL);
                let _ = send(&self.keeper, &wire::encode(&Told::Signal(which, signal)), &[]);
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
    fn hear(&mut self) -> Result<(), Early> {
        let mut message = [0; MESSAGE_MAX];
        let (length, descriptors) = match receive(&self.keeper, &mut message) {
            Ok((length @ 1.., descriptors)) => (length, descriptors),
            _ => return Err(Early::Because("its keeper on this host has ended".into())),
        };
        let said: Said = wire::decode(&message[..length]).map_err(Early::Because)?;
        match said {
            Said::Started(number, pid) => {
                self.connect(number, descriptors);
                self.tell(number, &Event::Started(pid))
            }
            Said::Failed(wire::ALL, why) => Err(Early::Because(why)),
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
    }

    fn end(&mut self, number: u32, event: Event) -> Result<(), Early> {
        self.processes.remove(&number);
        self.tell(number, &event)?;
        self.ended.push((number, event));
        Ok(())
    }

    /// Waits until there is room for it, if need be.
    fn tell(&mut self, number: u32, event: &Event) -> Result<(), Early> {
        self.request.item(&wire::encode(&(number, event))).map_err(|_| Early::Unwanted)
    }

    /// The keeper is there as long as anything is that the processes left behind.
    fn until_clear(&self) {
        let deadline = Instant::now() + CLEAR;
        while Instant::now() < deadline {
            let mut wanted = [PollFd::new(&self.keeper, PollFlags::IN)];
            let _ = poll(&mut wanted, Some(&Timespec::try_from(CLEAR).expect("a short time")));
            if !matches!(receive(&self.keeper, &mut [0; MESSAGE_MAX]), Ok((1.., _))) {
                return;
            }
        }
    }

    /// The processes that have not ended.
    pub(crate) fn left(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// Says of each that is left what became of it.
    pub(crate) fn give_up(&mut self, why: &str) {
        for number in self.left() {
            let _ = self.end(number, Event::Failed(why.to_owned()));
        }
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
/// No word of a keeper's is longer.
const MESSAGE_MAX: usize = 16 << 10;
/// The largest pipe that somebody who is not root can make.
const PIPE_MAX: usize = 1 << 20;
/// How often to look whether anybody still wants the order.
const LOOK: Duration = Duration::from_millis(500);
/// How long a keeper may take for ending what processes left behind.
const CLEAR: Duration = Duration::from_secs(10);
