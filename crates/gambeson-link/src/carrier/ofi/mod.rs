//! The carrier over libfabric: any of its providers with reliable messages between endpoints, chosen by name. It is
//! offered where libfabric is found when the program runs; nothing links to it.
//!
//! A carrier has an endpoint of its own at either side, with a queue that an epoll can watch. Messages land in buffers that
//! stand ready; each carries a number, since a provider may report two in another order than they were sent, and says how
//! many of the other end's have made room, without which that sends no more. Who listens has one endpoint more, to which
//! strangers say where they are.

#[allow(unsafe_code)]
mod library;
pub(crate) mod message;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::{Carrier, Kind};
use library::{Event, Info, Peer, Port};
use message::{GREETING_MAX, Greeting, HEADER, Header, Shape, Token, Word};

/// What stands ready of each carrier: a megabyte. Longer messages than these `ofi_rxm` does not send at once but has the
/// other end fetch.
const SHAPE: Shape = Shape { window: 64, size: 16 << 10 };
/// Buffers beside the window: for credit, of which no more can be under way, and for the last message.
const BESIDE: usize = 6;
/// Of buffers to send from, so many are left to credit and the last message.
const RESERVED: usize = 2;
/// Greetings that wait for their turn.
const GREETINGS: usize = 32;
/// How soon to look again where the provider has nothing that would report.
const LOOK: Duration = Duration::from_millis(1);
/// How long what was sent may take to go out after the carrier is dropped.
const LINGER: Duration = Duration::from_millis(100);

/// Whether this host has a provider.
///
/// # Errors
/// Why it has not.
pub fn has(provider: &str) -> Result<(), String> {
    library::has(provider)
}

/// What a listener can be watched by, and a carrier: libfabric's descriptor and a timer for what that does not report.
struct Watch {
    epoll: OwnedFd,
    timer: OwnedFd,
    ticking: bool,
}

impl Watch {
    fn new(port: &Port) -> io::Result<Watch> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for descriptor in [Some(timer.as_fd()), port.wait_descriptor()].into_iter().flatten() {
            epoll::add(&epoll, descriptor, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Watch { epoll, timer, ticking: false })
    }

    /// Has the timer report soon, or not at all.
    fn tick(&mut self, soon: bool) -> io::Result<()> {
        if soon || self.ticking {
            let nanoseconds = if soon { LOOK.subsec_nanos() } else { 0 };
            let value = Timespec { tv_sec: 0, tv_nsec: nanoseconds.into() };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
            self.ticking = soon;
        }
        Ok(())
    }

    /// Before a sleep. True: something may be there already.
    fn arm(&mut self, port: &Port, look_again: bool) -> io::Result<bool> {
        if !port.may_wait() {
            return Ok(true);
        }
        self.tick(look_again || port.wait_descriptor().is_none())?;
        Ok(false)
    }
}

/// What came and was not read yet.
struct Arrived {
    buffer: usize,
    len: usize,
    last: bool,
}

/// The other end, once it has said where it is.
struct Other {
    peer: Peer,
    /// What it takes messages by.
    token: Token,
    shape: Shape,
}

/// Messages with one other domain over libfabric.
pub struct Ofi {
    port: Port,
    watch: Watch,
    kind: Kind,
    shape: Shape,
    token: Token,
    other: Option<Other>,
    /// Buffers to send from that are idle, those that wait for libfabric to take them, and how many it has.
    idle: Vec<usize>,
    waiting: VecDeque<(usize, usize)>,
    sending: usize,
    /// Messages of ours: the next one's number, and how many have made room there.
    next: u32,
    released: u32,
    /// Messages of theirs: the next one's number, how much of it was read, and by number what has come.
    due: u32,
    read: usize,
    arrived: Vec<Option<Arrived>>,
    /// How many made room here and how many of those the other end was told of.
    freed: u32,
    told: u32,
    /// Buffers that libfabric did not take as receives.
    unposted: Vec<usize>,
    events: Vec<Event>,
    /// The other end has said its last word; and that was read.
    departed: bool,
    ended: bool,
    broken: Option<(ErrorKind, String)>,
}

impl Ofi {
    /// Connects to the listener at an address of the provider's, and waits no longer for it than `deadline`.
    pub fn connect(provider: &str, address: &[u8], deadline: Duration) -> io::Result<Ofi> {
        Ofi::reach(provider, address, deadline, SHAPE).map_err(|cause| {
            let why = format!("cannot connect to {} over libfabric's {provider}: {cause}", hexadecimal(address));
            io::Error::new(cause.kind(), why)
        })
    }

    fn reach(provider: &str, address: &[u8], deadline: Duration, shape: Shape) -> io::Result<Ofi> {
        let until = Instant::now() + deadline;
        let info = Info::find(provider, None, Some(address))?;
        let mut end = Ofi::open(provider, &info, address, shape)?;
        let listener = end.port.insert(address)?;
        let hello = Greeting { token: end.token, shape, address: end.port.address().to_vec() }.encode(None);
        let buffer = end.idle.pop().expect("nothing was sent yet");
        end.port.buffer_mut(buffer)[..hello.len()].copy_from_slice(&hello);
        let mut said = false;
        while end.other.is_none() {
            if !said {
                said = end.port.send(buffer, hello.len(), listener)?;
                end.sending += usize::from(said);
            }
            end.pump();
            if let Some(why) = end.failure() {
                return Err(why);
            }
            if Instant::now() > until {
                return Err(io::Error::new(ErrorKind::TimedOut, format!("no answer within {deadline:?}")));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(end)
    }

    fn open(provider: &str, info: &Info, peer: &[u8], shape: Shape) -> io::Result<Ofi> {
        let receives = usize::from(shape.window) + BESIDE;
        let sends = usize::from(shape.window) + RESERVED;
        let port = Port::open(info, receives + sends, shape.size as usize)?;
        let watch = Watch::new(&port)?;
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|cause| io::Error::other(cause.to_string()))?;
        let mut end = Ofi {
            port,
            watch,
            kind: Kind::Fabric { provider: provider.to_owned(), peer: hexadecimal(peer) },
            shape,
            token,
            other: None,
            idle: (receives..receives + sends).collect(),
            waiting: VecDeque::new(),
            sending: 0,
            next: 0,
            released: 0,
            due: 0,
            read: 0,
            // A power of two, so that numbers may begin anew.
            arrived: (0..(usize::from(shape.window) + 1).next_power_of_two()).map(|_| None).collect(),
            freed: 0,
            told: 0,
            unposted: (0..receives).collect(),
            events: Vec::new(),
            departed: false,
            ended: false,
            broken: None,
        };
        end.post();
        end.failure().map_or(Ok(end), Err)
    }

    /// An endpoint for somebody who said where it is.
    fn welcome(provider: &str, info: &Info, hello: &Greeting, shape: Shape) -> io::Result<Ofi> {
        let mut end = Ofi::open(provider, info, &hello.address, shape)?;
        end.meet(hello)?;
        let address = end.port.address().to_vec();
        let answer = Greeting { token: end.token, shape, address }.encode(Some(&hello.token));
        let buffer = end.idle.pop().expect("nothing was sent yet");
        end.port.buffer_mut(buffer)[..answer.len()].copy_from_slice(&answer);
        end.waiting.push_back((buffer, answer.len()));
        Ok(end)
    }

    fn meet(&mut self, greeting: &Greeting) -> io::Result<()> {
        let peer = self.port.insert(&greeting.address)?;
        self.other = Some(Other { peer, token: greeting.token, shape: greeting.shape });
        Ok(())
    }

    fn fail(&mut self, kind: ErrorKind, why: String) {
        self.broken.get_or_insert((kind, why));
    }

    fn nonsense(&mut self, what: &str) {
        let why = format!("{} is out of its mind: {what}", self.kind);
        self.fail(ErrorKind::InvalidData, why);
    }

    fn failure(&self) -> Option<io::Error> {
        self.broken.as_ref().map(|(kind, why)| io::Error::new(*kind, why.clone()))
    }

    /// Gives libfabric what it has to be given, and takes what it has.
    fn pump(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.port.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Sent { buffer } => {
                    self.idle.push(buffer);
                    self.sending -= 1;
                }
                Event::Received { buffer, len } => self.take(buffer, len),
                // No domain sends that; who else does is not listened to.
                Event::Truncated { buffer } => self.unposted.push(buffer),
                Event::Failed { why } => self.fail(why.kind(), format!("{}: {why}", self.kind)),
            }
        }
        self.events = events;
        self.post();
        self.flush();
        self.tell();
    }

    /// Tells how much room was made, if it is half a window: sooner costs messages, later costs the other end waiting.
    fn tell(&mut self) {
        if self.freed.wrapping_sub(self.told) >= u32::from(self.shape.window) / 2
            && self.other.is_some()
            && !self.departed
            && let Some(buffer) = self.idle.pop()
        {
            self.say(Word::Credit, buffer, 0);
        }
    }

    fn post(&mut self) {
        while let Some(buffer) = self.unposted.pop() {
            match self.port.receive(buffer) {
                Ok(true) => {}
                Ok(false) => return self.unposted.push(buffer),
                Err(why) => return self.fail(why.kind(), why.to_string()),
            }
        }
    }

    /// Hands on what waits to be sent.
    fn flush(&mut self) {
        let Some(other) = &self.other else { return };
        while let Some(&(buffer, len)) = self.waiting.front() {
            match self.port.send(buffer, len, other.peer) {
                Ok(true) => self.sending += 1,
                Ok(false) => return,
                Err(why) => {
                    let why = format!("{}: {why}", self.kind);
                    return self.fail(ErrorKind::ConnectionReset, why);
                }
            }
            self.waiting.pop_front();
        }
    }

    /// Takes a message in, if it is for this carrier.
    fn take(&mut self, buffer: usize, len: usize) {
        let message = &self.port.buffer(buffer)[..len];
        if message::token(message) != Some(self.token) {
            return self.unposted.push(buffer);
        }
        let Some(header) = Header::decode(message) else {
            let greeting = Greeting::welcome(message);
            self.unposted.push(buffer);
            return match greeting {
                Some(greeting) if self.other.is_none() => {
                    if let Err(why) = self.meet(&greeting) {
                        self.fail(why.kind(), why.to_string());
                    }
                }
                _ => self.nonsense("it sends what no carrier does"),
            };
        };
        // Older news come when messages overtake each other.
        let more = header.released.wrapping_sub(self.released);
        if more <= self.next.wrapping_sub(self.released) {
            self.released = header.released;
        } else if more < u32::MAX - 2 * u32::from(u16::MAX) {
            self.unposted.push(buffer);
            return self.nonsense("it has room for what was never sent");
        }
        if header.word == Word::Credit {
            return self.unposted.push(buffer);
        }
        let ahead = header.sequence.wrapping_sub(self.due) as usize;
        let place = header.sequence as usize % self.arrived.len();
        if ahead > usize::from(self.shape.window) || self.arrived[place].is_some() {
            self.unposted.push(buffer);
            return self.nonsense("it sends more than there is room for, or something twice");
        }
        let last = header.word == Word::Bye;
        self.departed |= last;
        self.arrived[place] = Some(Arrived { buffer, len, last });
    }

    /// Whether a message of data may go.
    fn has_room(&self) -> bool {
        let Some(other) = &self.other else { return false };
        let under_way = self.next.wrapping_sub(self.released);
        self.waiting.is_empty() && self.idle.len() > RESERVED && under_way < u32::from(other.shape.window)
    }

    /// Sends a message from an idle buffer, of which all behind the header is filled.
    fn say(&mut self, word: Word, buffer: usize, len: usize) {
        let Some(other) = &self.other else { return };
        let header = Header { word, sequence: self.next, released: self.freed };
        self.port.buffer_mut(buffer)[..HEADER].copy_from_slice(&header.encode(&other.token));
        if word != Word::Credit {
            self.next = self.next.wrapping_add(1);
        }
        self.told = self.freed;
        self.waiting.push_back((buffer, HEADER + len));
        self.flush();
    }

    /// The oldest message was read to its end.
    fn release(&mut self, buffer: usize) {
        self.unposted.push(buffer);
        self.post();
        (self.due, self.read, self.freed) = (self.due.wrapping_add(1), 0, self.freed.wrapping_add(1));
        self.tell();
    }

    fn due(&self) -> Option<&Arrived> {
        self.arrived[self.due as usize % self.arrived.len()].as_ref()
    }

    /// Copies of what has come as much as there is place for.
    fn deliver(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() && !self.ended {
            let Some(&Arrived { buffer, len, last }) = self.due() else { break };
            if last {
                self.ended = true;
                break;
            }
            let rest = &self.port.buffer(buffer)[HEADER + self.read..len];
            let count = rest.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
            self.read += count;
            if HEADER + self.read == len {
                let place = self.due as usize % self.arrived.len();
                self.arrived[place] = None;
                self.release(buffer);
            }
        }
        done
    }
}

impl Carrier for Ofi {
    fn write(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.has_room() {
            self.pump();
        }
        if let Some(why) = self.failure() {
            return Err(why);
        }
        if self.departed {
            let why = format!("{} has closed the connection", self.kind);
            return Err(io::Error::new(ErrorKind::BrokenPipe, why));
        }
        let mut rest = bytes.iter().map(|slice| &slice[..]).filter(|slice| !slice.is_empty());
        let mut slice = rest.next().unwrap_or_default();
        let mut taken = 0;
        while !slice.is_empty() && self.has_room() {
            let size = self.shape.size.min(self.other.as_ref().map_or(0, |other| other.shape.size)) as usize;
            let buffer = self.idle.pop().expect("there is room");
            let place = &mut self.port.buffer_mut(buffer)[HEADER..size];
            let mut filled = 0;
            while !slice.is_empty() && filled < place.len() {
                let count = slice.len().min(place.len() - filled);
                place[filled..filled + count].copy_from_slice(&slice[..count]);
                (filled, slice) = (filled + count, &slice[count..]);
                if slice.is_empty() {
                    slice = rest.next().unwrap_or_default();
                }
            }
            taken += filled;
            self.say(Word::Data, buffer, filled);
        }
        Ok(taken)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.due().is_none() {
            self.pump();
        }
        let count = self.deliver(into);
        if count > 0 {
            return Ok(count);
        }
        if self.ended {
            let why = format!("{} closed the connection", self.kind);
            return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
        }
        self.failure().map_or(Ok(0), Err)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.epoll.as_fd()
    }

    /// Not edge-triggered: what is behind the descriptor is libfabric's business.
    fn interest(&self) -> EventFlags {
        EventFlags::IN
    }

    fn arm(&mut self, want_write: bool) -> io::Result<bool> {
        // Some providers report their own doings first.
        for _ in 0..64 {
            self.pump();
            if self.due().is_some() || self.broken.is_some() || (want_write && self.has_room()) {
                return Ok(true);
            }
            // What is on its way out some providers, `ofi_rxm` among them, only move on while somebody looks.
            let look_again = self.sending > 0 || !self.waiting.is_empty() || !self.unposted.is_empty();
            if !self.watch.arm(&self.port, look_again)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn kind(&self) -> &Kind {
        &self.kind
    }
}

impl Drop for Ofi {
    /// What was written goes out first, if the other end takes it.
    fn drop(&mut self) {
        let until = Instant::now() + LINGER;
        self.pump();
        let mut said = false;
        while self.other.is_some() && self.broken.is_none() && Instant::now() < until {
            // Nobody is there to hear it any more.
            if self.departed {
                return;
            }
            if !said && let Some(buffer) = self.idle.pop() {
                self.say(Word::Bye, buffer, 0);
                said = true;
            }
            if said && self.sending == 0 && self.waiting.is_empty() {
                return;
            }
            self.pump();
        }
    }
}

/// Where other domains connect to.
pub struct Listener {
    port: Port,
    watch: Watch,
    info: Info,
    provider: String,
    shape: Shape,
    /// Buffers that libfabric did not take as receives.
    unposted: Vec<usize>,
    events: VecDeque<Event>,
}

impl Listener {
    /// Listens on an interface of the provider's: that of this address or name, or the first.
    pub fn bind(provider: &str, node: Option<&str>) -> io::Result<Listener> {
        Listener::with(provider, node, SHAPE).map_err(|cause| {
            io::Error::new(cause.kind(), format!("cannot listen over libfabric's {provider}: {cause}"))
        })
    }

    fn with(provider: &str, node: Option<&str>, shape: Shape) -> io::Result<Listener> {
        let info = Info::find(provider, node, None)?;
        let port = Port::open(&info, GREETINGS, GREETING_MAX)?;
        let watch = Watch::new(&port)?;
        let unposted = (0..GREETINGS).collect();
        let mut listener =
            Listener { port, watch, info, provider: provider.to_owned(), shape, unposted, events: VecDeque::new() };
        listener.post()?;
        Ok(listener)
    }

    fn post(&mut self) -> io::Result<()> {
        while let Some(buffer) = self.unposted.pop() {
            if !self.port.receive(buffer)? {
                self.unposted.push(buffer);
                break;
            }
        }
        Ok(())
    }

    /// Which provider it is.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The address that it listens on.
    pub fn address(&self) -> &[u8] {
        self.port.address()
    }

    /// The next one that has connected, if there is one. After an error the listener goes on.
    pub fn accept(&mut self) -> io::Result<Option<Ofi>> {
        if self.events.is_empty() {
            let mut events = Vec::new();
            self.port.poll(&mut events);
            self.events.extend(events);
        }
        while let Some(event) = self.events.pop_front() {
            let hello = match event {
                Event::Received { buffer, len } => {
                    let hello = Greeting::hello(&self.port.buffer(buffer)[..len]);
                    self.unposted.push(buffer);
                    hello
                }
                Event::Truncated { buffer } => {
                    self.unposted.push(buffer);
                    None
                }
                Event::Sent { .. } => None,
                Event::Failed { why } => return Err(why),
            };
            self.post()?;
            if let Some(hello) = hello {
                return Ofi::welcome(&self.provider, &self.info, &hello, self.shape).map(Some);
            }
        }
        Ok(None)
    }

    /// Before a sleep: true if somebody may have connected already.
    pub fn arm(&mut self) -> io::Result<bool> {
        Ok(!self.events.is_empty() || self.watch.arm(&self.port, !self.unposted.is_empty())?)
    }
}

impl AsFd for Listener {
    /// Readable when somebody may have connected, once it was armed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.epoll.as_fd()
    }
}

/// An endpoint's address as it stands in a startpoint.
pub(crate) fn hexadecimal(address: &[u8]) -> String {
    address.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of such an address.
pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        Some((digit(0)? << 4 | digit(1)?) as u8)
    };
    (!digits.is_empty() && digits.len().is_multiple_of(2) && digits.len() <= 2 * library::ADDRESS_MAX)
        .then(|| digits.chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests;
