//! The relay: it joins who seeks a key to a connection that its owner has waiting, and passes bytes between them.
//!
//! It connects nowhere itself, and what it passes are handshakes and sealed records that it cannot read
//! ([`gambeson_link::relay`] has the protocol). Whoever reaches it can knock at who waits here, as at a port that listens.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gambeson_link::KeyHash;
use gambeson_link::relay::{HELLO, Hello, PROOF, SEEKING, WAIT, proves, word};
use rustix::net::sockopt::set_socket_keepalive;

use crate::proxy::say;

/// What it is told.
pub(crate) struct Bounds {
    /// Who may wait here.
    pub(crate) allowed: HashSet<KeyHash>,
    /// Pairs that are joined at a time.
    pub(crate) connections_max: usize,
    /// A pair between which nothing moves for so long is parted.
    pub(crate) idle: Duration,
}

pub(crate) struct Relay {
    bounds: Bounds,
    /// Connections that wait to be joined, by whose they are, the oldest first.
    waiting: Mutex<HashMap<KeyHash, VecDeque<TcpStream>>>,
    /// One more waits.
    came: Condvar,
    /// Who has not said yet what he wants, the oldest first.
    strangers: Mutex<BTreeMap<usize, Arc<TcpStream>>>,
    met: AtomicUsize,
    joined: AtomicUsize,
    refused: AtomicUsize,
}

/// So many may have not said yet what they want; the oldest makes room, so that those who say nothing keep nobody out.
const STRANGERS_MAX: usize = 128;
/// How long one may take to say it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections of one owner that wait; the oldest goes for a newer one.
const WAITING_MAX: usize = 16;
/// Bytes of one direction that are under way here.
const BUFFER: usize = 64 << 10;
const STACK: usize = 128 << 10;
/// Before a listener that failed is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes a place among so many, if one is free; it is given back when this is dropped.
struct Place<'r>(&'r AtomicUsize);

impl<'r> Place<'r> {
    fn take(taken: &'r AtomicUsize, most: usize) -> Option<Self> {
        let one_more = |taken| (taken < most).then_some(taken + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Place(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Relay {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        let [met, joined, refused] = [(); 3].map(|()| AtomicUsize::new(0));
        let (waiting, strangers) = (Mutex::default(), Mutex::default());
        Arc::new(Relay { bounds, waiting, came: Condvar::new(), strangers, met, joined, refused })
    }

    /// Serves for ever.
    pub(crate) fn serve(self: &Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        let relay = self.clone();
        thread::Builder::new().stack_size(STACK).spawn(move || {
            loop {
                thread::sleep(WAIT);
                relay.tell_to_wait();
            }
        })?;
        loop {
            let relay = self.clone();
            let met = listener.accept().and_then(|(stream, who)| {
                thread::Builder::new().stack_size(STACK).spawn(move || relay.meet(stream, who)).map(drop)
            });
            if let Err(cause) = met {
                self.refuse(|| format!("a connection cannot be taken: {cause}"));
                thread::sleep(PAUSE);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<KeyHash, VecDeque<TcpStream>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says why somebody was turned away, ever more seldom: nobody fills a log by knocking.
    fn refuse(&self, why: impl FnOnce() -> String) {
        let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            let so_far = if count == 1 { String::new() } else { format!(" ({count} were refused so far)") };
            say(format_args!("{}{so_far}", why()));
        }
    }

    fn strangers(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<TcpStream>>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, stream: TcpStream, who: SocketAddr) {
        let (number, stream) = (self.met.fetch_add(1, Ordering::Relaxed), Arc::new(stream));
        {
            let mut strangers = self.strangers();
            if strangers.len() == STRANGERS_MAX
                && let Some((_, oldest)) = strangers.pop_first()
            {
                let _ = oldest.shutdown(Shutdown::Both);
            }
            strangers.insert(number, stream.clone());
        }
        let wish = self.wish(&stream);
        self.strangers().remove(&number);
        let Some(stream) = Arc::into_inner(stream) else { return };
        match wish {
            Ok(Wish::Wait(key)) => self.keep(stream, key),
            Ok(Wish::Seek(key)) => self.join(stream, &key),
            Ok(Wish::Forbidden(key)) => self.refuse(|| format!("{who} may not wait here as the owner of {key}")),
            Ok(Wish::None) => self.refuse(|| format!("{who} speaks no relay's language")),
            Err(cause) => self.refuse(|| format!("{who} does not say what he wants: {cause}")),
        }
    }

    /// What somebody wants; who wants to wait as the owner of a key has proved that it is his.
    fn wish(&self, mut stream: &TcpStream) -> io::Result<Wish> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let deadline = Instant::now() + PATIENCE;
        let mut hello = [0; HELLO];
        read_by(stream, &mut hello, deadline)?;
        let key = match Hello::decode(&hello) {
            Some(Hello::Offer(key)) => key,
            Some(Hello::Seek(key)) => return Ok(Wish::Seek(key)),
            None => return Ok(Wish::None),
        };
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(|cause| io::Error::other(cause.to_string()))?;
        stream.write_all(&nonce)?;
        let mut proof = [0; PROOF];
        read_by(stream, &mut proof, deadline)?;
        if !self.bounds.allowed.contains(&key) || !proves(&key, &nonce, &proof) {
            stream.write_all(&[word::REFUSED])?;
            return Ok(Wish::Forbidden(key));
        }
        stream.write_all(&[word::WAIT])?;
        stream.set_nonblocking(true)?;
        Ok(Wish::Wait(key))
    }

    /// The owner of a key waits here from now on.
    fn keep(&self, stream: TcpStream, key: KeyHash) {
        let mut waiting = self.waiting();
        let of_key = waiting.entry(key).or_default();
        if of_key.len() == WAITING_MAX {
            of_key.pop_front();
        }
        of_key.push_back(stream);
        self.came.notify_all();
    }

    /// A connection of this owner's, who has heard that it is joined; waited for, if he may be about to offer another.
    fn find(&self, key: &KeyHash) -> Option<TcpStream> {
        let deadline = Instant::now() + SEEKING;
        let mut waiting = self.waiting();
        loop {
            // Who was met last is the least likely to have gone.
            while let Some(owner) = waiting.get_mut(key).and_then(VecDeque::pop_back) {
                if is_there(&owner) && (&owner).write_all(&[word::GO]).is_ok() {
                    return Some(owner);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.bounds.allowed.contains(key) {
                return None;
            }
            let waited = self.came.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Those who wait hear that they are not forgotten; those who have gone are.
    fn tell_to_wait(&self) {
        let mut waiting = self.waiting();
        waiting.retain(|_, of_key| {
            of_key.retain(|owner| is_there(owner) && matches!((&*owner).write(&[word::WAIT]), Ok(1)));
            !of_key.is_empty()
        });
    }

    /// Passes bytes between a seeker and the owner he seeks.
    fn join(&self, mut seeker: TcpStream, key: &KeyHash) {
        let place = Place::take(&self.joined, self.bounds.connections_max);
        let Some(owner) = place.as_ref().and_then(|_| self.find(key)) else {
            let _ = seeker.write_all(&[word::NOBODY]);
            return;
        };
        if seeker.write_all(&[word::GO]).is_err() || owner.set_nonblocking(false).is_err() {
            return;
        }
        let pair = Pair { moved: Mutex::new(Instant::now()), idle: self.bounds.idle };
        for stream in [&seeker, &owner] {
            let _ = stream.set_nodelay(true);
            let _ = set_socket_keepalive(stream, true);
            let timeouts = stream.set_read_timeout(Some(pair.idle)).and(stream.set_write_timeout(Some(pair.idle)));
            if timeouts.is_err() {
                return;
            }
        }
        thread::scope(|scope| {
            let there = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || pair.pass(&seeker, &owner));
            match there {
                Ok(_) => pair.pass(&owner, &seeker),
                Err(cause) => self.refuse(|| format!("a pair cannot be joined: {cause}")),
            }
        });
    }
}

/// What somebody wants who has connected.
enum Wish {
    Wait(KeyHash),
    Seek(KeyHash),
    /// To wait as somebody who may not, or who he is not.
    Forbidden(KeyHash),
    None,
}

/// Two connections that are joined.
struct Pair {
    /// When something last moved, either way.
    moved: Mutex<Instant>,
    idle: Duration,
}

impl Pair {
    /// Passes one direction on until it ends; an error, or too long a silence, ends both.
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut buffer = vec![0; BUFFER];
        let ends = [from, to];
        let part = || ends.map(|stream| drop(stream.shutdown(Shutdown::Both)));
        loop {
            match from.read(&mut buffer) {
                Ok(0) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(count) => {
                    *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                    if to.write_all(&buffer[..count]).is_err() {
                        part();
                        return;
                    }
                }
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                    let moved = *self.moved.lock().unwrap_or_else(PoisonError::into_inner);
                    if moved.elapsed() >= self.idle {
                        part();
                        return;
                    }
                }
                Err(_) => {
                    part();
                    return;
                }
            }
        }
    }
}

/// Reads all of it until then, in however many pieces it comes.
fn read_by(mut stream: &TcpStream, into: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut came = 0;
    while came < into.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "it took too long"));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut into[came..]) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")),
            Ok(count) => came += count,
            Err(cause) if matches!(cause.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Whether who waits has neither gone nor said anything, which is not his turn.
fn is_there(owner: &TcpStream) -> bool {
    owner.peek(&mut [0]).is_err_and(|cause| cause.kind() == ErrorKind::WouldBlock)
}
