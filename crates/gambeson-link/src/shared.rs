//! What a domain is to its threads, its startpoints and its handlers: who waits for what, and who moves bytes.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use gambeson_pages::PageBox;
use gambeson_proto::startpoint::{Address, AddressKind as Transport};
use rustix::event::{Timespec, epoll};
use slotmap::{Key, KeyData};

use crate::carrier::Carrier;
use crate::carrier::tcp::Tcp;
use crate::desk::in_handler;
use crate::domain::Progress;
use crate::endpoint::Origin;
use crate::error::Error;
use crate::group::Kept;
use crate::handshake::{Handshake, Party};
use crate::identity::{Expected, Peer};
use crate::pool::Pool;
use crate::resumption;
use crate::route;
use crate::session::{Search, Session};
use crate::state::{SessionKey, State};
use crate::transform::Modules;

/// A program that waits asks so often before it sleeps.
const SPINS: u32 = 2000;
/// A domain that closes waits so long at the most until its peers have taken what was sent to them, and no longer for those
/// that take nothing.
const LINGER: Duration = Duration::from_secs(10);
const STANDSTILL: Duration = Duration::from_secs(1);

pub(crate) struct Shared {
    /// Not dropped in a forked child, where all of it is the parent's.
    pub(crate) state: Option<Mutex<State>>,
    /// On a page that a fork wipes.
    pub(crate) here: PageBox<u8>,
    /// For those who wait while the domain's thread moves bytes.
    pub(crate) moved: Condvar,
    pub(crate) deferred: Deferred,
    pub(crate) party: Arc<Party>,
    pub(crate) listening: Vec<SocketAddr>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) progress: Progress,
    /// Transform modules that links can have.
    pub(crate) modules: Modules,
    pub(crate) patience: Duration,
    pub(crate) silence: Duration,
    pub(crate) epoll: OwnedFd,
    /// Ends a sleep.
    pub(crate) bell: OwnedFd,
    pub(crate) pool: Pool,
    /// Where handshakes run whose key is in a token: a token signs one thing after the other.
    pub(crate) signing: Pool,
    pub(crate) groups: Kept,
    pub(crate) me: Weak<Shared>,
}

impl Shared {
    /// Whether this process opened the domain. A forked child has neither its keys nor its threads, and its connections
    /// are the parent's.
    pub(crate) fn is_here(&self) -> bool {
        self.here.is_here()
    }

    /// # Errors
    /// Inside a handler that is not threaded, where the domain is locked already, and in a forked child.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        if in_handler() {
            let what = "a handler that is not threaded may answer and nothing else; register it with `threaded`";
            return Err(Error::Handler(what.into()));
        }
        self.guard().ok_or_else(|| {
            let what = "this process was forked from the one that opened the domain, and has none of its keys; let it \
                        open a domain of its own";
            Error::Lost(what.into())
        })
    }

    /// The state, unless this is a forked child.
    fn guard(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.state.as_ref().filter(|_| self.is_here())?;
        Some(state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has something done: at once, or, from a handler that runs while the domain is locked, when that is through.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut State) + Send + 'static) {
        if in_handler() {
            self.deferred.push(Box::new(what));
            self.ring();
        } else if let Some(mut state) = self.guard() {
            what(&mut state);
            self.stirred(&state);
        }
    }

    /// Somebody has come through a relay; whether this domain is still open.
    pub(crate) fn arrive(&self, carrier: Tcp) -> bool {
        let open = self.guard().is_some_and(|mut state| state.arrive(carrier));
        self.ring();
        open
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.guard().is_none_or(|state| state.closing)
    }

    /// Something moved: those who sleep until something does look again.
    pub(crate) fn stirred(&self, state: &State) {
        if state.sleepers > 0 {
            self.moved.notify_all();
        }
    }

    /// Ends whatever sleep there is.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Watches a carrier: a session's, or a stranger's that may become one.
    pub(crate) fn watch(&self, carrier: &dyn Carrier, of: Option<SessionKey>) -> Result<(), Error> {
        let data = epoll::EventData::new_u64(of.map_or(0, |key| key.data().as_ffi()));
        let watched = match epoll::add(&self.epoll, carrier.descriptor(), data, carrier.interest()) {
            Err(rustix::io::Errno::EXIST) => epoll::modify(&self.epoll, carrier.descriptor(), data, carrier.interest()),
            added => added,
        };
        watched.map_err(|cause| Error::system("the carrier cannot be watched")(cause.into()))
    }

    /// A session with who is expected, over the first of these addresses that answers; over one of the transport that is
    /// wished for, if one is.
    pub(crate) fn connect(
        &self,
        expected: &Expected,
        (addresses, wish): (&[Address], Option<Transport>),
        deadline: Instant,
    ) -> Result<SessionKey, Error> {
        let site = self.party.site();
        site.is_valid()?;
        let transports = site.host_at(addresses).and_then(|host| site.transports(&host));
        let mut ways = route::wished(addresses, wish, transports.as_deref())?;
        ways.retain(|way| wish.is_none_or(|wish| way.kind == wish));
        let begin = |carrier, deadline| self.begin(carrier, expected, (addresses, wish), deadline);
        route::first(&ways, deadline, begin).map_err(|unreachable| unreachable.why)
    }

    /// Goes through a handshake as the one who connects.
    fn begin(
        &self,
        mut carrier: Box<dyn Carrier>,
        expected: &Expected,
        addresses: (&[Address], Option<Transport>),
        deadline: Instant,
    ) -> Result<SessionKey, Error> {
        let mut handshake = Handshake::connect(&self.party, carrier.kind().transport(), expected.clone())?;
        let mut came = Vec::new();
        let mut out = Vec::new();
        loop {
            let mut rest = &came[..];
            let agreed = handshake.advance(&mut rest, &mut out);
            let taken = came.len() - rest.len();
            came.drain(..taken);
            while !out.is_empty() {
                let sent = carrier.write(&[std::io::IoSlice::new(&out)]);
                let sent = sent.map_err(Error::system("the handshake was cut off"))?;
                out.drain(..sent);
                if sent == 0 {
                    wait_for(&mut *carrier, true, deadline)?;
                }
            }
            if let Some(agreed) = agreed? {
                let site = self.party.site();
                site.is_there(addresses.0, &agreed.peer)?;
                let transports = site.transports(&agreed.peer.host);
                let mut session = Session::new(agreed, carrier, addresses, &came);
                session.go_over(transports);
                let mut state = self.lock()?;
                let key = state.insert(session, self)?;
                drop(state);
                self.ring();
                return Ok(key);
            }
            let mut buffer = [0; 16 << 10];
            match carrier.read(&mut buffer) {
                Ok(0) => wait_for(&mut *carrier, false, deadline)?,
                Ok(count) => came.extend_from_slice(&buffer[..count]),
                Err(cause) => {
                    let what = "the other end closed during the handshake: it does not accept this domain, or listens for others";
                    return Err(Error::Refused(format!("{what} ({cause})")));
                }
            }
        }
    }

    /// Moves on; waits for something to do at most so long, if at all.
    pub(crate) fn progress_once(&self, wait: Option<Duration>) -> Result<bool, Error> {
        let mut state = self.lock()?;
        if state.progress(self) {
            return Ok(true);
        }
        let Some(wait) = wait.filter(|wait| !wait.is_zero()) else { return Ok(false) };
        if state.settle(self) {
            return Ok(true);
        }
        drop(state);
        self.sleep(wait);
        Ok(self.lock()?.progress(self))
    }

    fn sleep(&self, wait: Duration) {
        let stirred = self.events(wait);
        // The bell is edge-triggered, but a count that is never read stops at its end.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        if let Some(mut state) = self.guard() {
            state.heed(stirred);
        }
    }

    /// The sessions whose carriers may have something, or room for something; waits for them at most so long.
    pub(crate) fn events(&self, wait: Duration) -> impl Iterator<Item = SessionKey> + use<> {
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 64];
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&timeout)).unwrap_or(0);
        events.into_iter().take(count).map(|event| KeyData::from_ffi(event.data.u64()).into())
    }

    /// How long to sleep at the most: silence is noticed by looking.
    fn nap(&self) -> Duration {
        (self.silence / 4).min(Duration::from_secs(1))
    }

    /// The domain's own thread.
    pub(crate) fn serve(&self) {
        loop {
            let Ok(mut state) = self.lock() else { return };
            if state.closing {
                drop(state);
                return self.wind_up();
            }
            state.awake = state.progress(self) || state.settle(self);
            if !state.awake {
                drop(state);
                self.sleep(self.nap());
            }
        }
    }

    /// The domain closes: what was handed over to it goes out, if that does not take too long.
    pub(crate) fn wind_up(&self) {
        let end = Instant::now() + LINGER;
        let mut last = (0, Instant::now());
        loop {
            let Ok(mut state) = self.lock() else { return };
            // Who has nothing to wait for has no request handled any more.
            let late = Instant::now() > end || last.1.elapsed() > STANDSTILL;
            let moved = state.wind_up(late);
            if moved.is_none() || late {
                let left = state.sessions.values().filter(|session| session.is_cut_short()).count();
                if left > 0 {
                    eprintln!(
                        "gambeson: the domain closes, and {left} of its peers have not taken all that was sent to them"
                    );
                }
                state.sessions.values_mut().for_each(Session::abandon);
                return self.stirred(&state);
            }
            if moved != Some(last.0) {
                last = (moved.unwrap_or(0), Instant::now());
            }
            if !state.progress(self) {
                drop(state);
                self.sleep(Duration::from_millis(1));
            }
        }
    }

    /// Asks until something is there, or it is too late.
    pub(crate) fn wait_until<T>(
        &self,
        deadline: Option<Instant>,
        mut ask: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let mut spins = 0;
        loop {
            let mut state = self.lock()?;
            if let Some(found) = ask(&mut state) {
                return Ok(Some(found));
            }
            if state.progress(self) {
                spins = 0;
                continue;
            }
            spins += 1;
            // With a thread of the domain's own at work, asking as well takes the lock, and a processor, away from it.
            if spins < SPINS && self.progress == Progress::Manual {
                drop(state);
                std::hint::spin_loop();
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let nap = left.unwrap_or(Duration::MAX).min(self.nap());
            if self.progress == Progress::Auto {
                // Only one of two who slept on the carriers would be woken.
                state.sleepers += 1;
                let slept = self.moved.wait_timeout(state, nap);
                slept.unwrap_or_else(PoisonError::into_inner).0.sleepers -= 1;
            } else if !state.settle(self) {
                drop(state);
                self.sleep(nap);
            }
        }
    }

    /// What somebody goes by who looks for a session's next carrier. `None`: nobody needs to any more.
    pub(crate) fn search(&self, key: SessionKey) -> Option<Search> {
        let mut state = self.guard()?;
        let State { sessions, cache, closing, .. } = &mut *state;
        sessions.get_mut(key).filter(|_| !*closing)?.search(cache)
    }

    /// A carrier for a session is there, and its other end will say how far it is.
    pub(crate) fn hold(&self, key: SessionKey) {
        if let Some(session) = self.guard().as_mut().and_then(|state| state.sessions.get_mut(key)) {
            session.hold();
        }
    }

    /// A session goes on over another carrier, whose other end has said how far it is. Whether it does.
    pub(crate) fn found(&self, key: SessionKey, found: Found) -> bool {
        let Found { mut carrier, client, server, arrived, rest } = found;
        let Some(mut state) = self.guard() else { return false };
        let State { sessions, cache, .. } = &mut *state;
        let Some(session) = sessions.get_mut(key).filter(|session| session.over().is_none()) else { return false };
        let received = session.received();
        let consent = resumption::consent(session.resumption(), &client, &server, received);
        // Nothing else is on its way there, so there is room. From this on, what the old carrier brings comes again.
        let sent = self.watch(&*carrier, Some(key)).is_ok()
            && carrier.write(&[std::io::IoSlice::new(&consent)]).is_ok_and(|sent| sent == consent.len());
        if sent {
            session.resume(cache, carrier, (received, arrived), &rest);
        }
        drop(state);
        self.ring();
        sent
    }

    /// A search for another carrier came to nothing. Whether it has to go on, since there is none at all.
    pub(crate) fn stay(&self, key: SessionKey, why: &str) -> bool {
        let Some(mut state) = self.guard() else { return false };
        let State { sessions, cache, .. } = &mut *state;
        sessions.get_mut(key).is_some_and(|session| session.stay(cache, why))
    }

    /// Has a session go over a transport, or over what the rule says, and waits until it does.
    pub(crate) fn prefer(&self, key: SessionKey, wish: Option<Transport>, deadline: Instant) -> Result<(), Error> {
        let mut asked = false;
        loop {
            let mut state = self.lock()?;
            let State { sessions, by_peer, .. } = &mut *state;
            let ended = || Error::Lost("the link is over: it has ended".into());
            let session = sessions.get_mut(key).ok_or_else(ended)?;
            if !asked && !session.is_changing() {
                let owner = session.peer.key;
                let before = (owner, session.wish());
                session.prefer(wish)?;
                if by_peer.get(&before) == Some(&key) {
                    by_peer.remove(&before);
                }
                by_peer.entry((owner, wish)).or_insert(key);
                asked = true;
            }
            if let Some(settled) = session.is_settled().filter(|_| asked) {
                return settled;
            }
            drop(state);
            if Instant::now() > deadline {
                return Err(Error::TimedOut("the link has not changed its transport in time; it may yet".into()));
            }
            self.ring();
            match self.progress {
                Progress::Auto => std::thread::sleep(Duration::from_millis(1)),
                Progress::Manual => drop(self.progress_once(Some(Duration::from_millis(1)))?),
            }
        }
    }

    /// Whether the peer has forgotten a session whose connection was lost. It says so itself, over another session: anybody on
    /// the way can turn a connection away.
    ///
    /// # Errors
    /// When nobody with its key is to be reached, or does not answer.
    pub(crate) fn is_forgotten(&self, key: SessionKey, search: &Search, deadline: Instant) -> Result<bool, Error> {
        let beside = self.lock()?.beside(key);
        let other = match beside {
            Some(other) => other,
            None => self.connect(&Expected::Key(search.peer), (&search.ways, None), deadline)?,
        };
        let mut asked = None;
        loop {
            let mut state = self.lock()?;
            let State { sessions, cache, .. } = &mut *state;
            let gone = || Error::Lost("the peer does not answer".into());
            let session = sessions.get_mut(other).ok_or_else(gone)?;
            if session.over().is_some() || Instant::now() > deadline {
                session.forget(asked.unwrap_or_default());
                return Err(gone());
            }
            let question = *asked.get_or_insert_with(|| session.ask_for(cache, &search.resumption.name));
            if let Some(found) = session.answer(question) {
                return Ok(found.is_empty());
            }
            drop(state);
            // With manual progress it is the program that moves bytes.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The peer has said that it has forgotten a session.
    pub(crate) fn forgotten(&self, key: SessionKey) {
        self.end_lost(key, |peer| {
            let (name, host) = (&peer.name, &peer.host);
            format!("{name} on {host} has this session no more: it was started anew, or gave it up; ask for its startpoints again")
        });
    }

    /// The process at a session's other end is gone.
    pub(crate) fn gone(&self, key: SessionKey) {
        self.end_lost(key, |peer| {
            format!("{} on {} is gone: nobody listens at its address any more", peer.name, peer.host)
        });
    }

    fn end_lost(&self, key: SessionKey, why: impl FnOnce(&Peer) -> String) {
        let Some(mut state) = self.guard() else { return };
        if let Some(session) = state.sessions.get_mut(key).filter(|session| session.lost().is_some()) {
            let why = why(&session.peer);
            session.end(&why);
        }
        drop(state);
        self.ring();
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn weak(&self) -> &Weak<Shared> {
        &self.me
    }

    /// Waits until the answers of a stream that were sent so far have gone.
    pub(crate) fn until_room(&self, to: Origin) -> Result<(), Error> {
        // A handler that is not threaded cannot wait; what it sends is kept.
        if in_handler() {
            return Ok(());
        }
        self.wait_until(None, |state| state.room(&to))?.unwrap_or(Ok(()))
    }

    /// Whether somebody waits for an answer. A handler that runs while the domain is locked cannot know.
    pub(crate) fn is_open(&self, to: Origin) -> bool {
        in_handler() || self.guard().is_some_and(|mut state| state.room(&to).is_none_or(|room| room.is_ok()))
    }

    /// A handler that put a request aside answers it.
    pub(crate) fn answer(&self, to: Origin, bytes: &[u8], flags: u8) {
        if in_handler() {
            let bytes = bytes.to_vec();
            self.tell(move |state| state.answer(&to, &bytes, flags));
        } else if let Some(mut state) = self.guard() {
            state.answer(&to, bytes, flags);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.state.take());
        }
    }
}

type Task = Box<dyn FnOnce(&mut State) + Send>;

/// What handlers left to be done.
#[derive(Default)]
pub(crate) struct Deferred {
    any: AtomicBool,
    tasks: Mutex<Vec<Task>>,
}

impl Deferred {
    fn push(&self, task: Task) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(task);
        self.any.store(true, Ordering::Release);
    }

    /// What there is to do, in its order.
    pub(crate) fn take(&self) -> Vec<Task> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *tasks)
    }
}

/// Another carrier for a session, and what was said over it.
pub(crate) struct Found {
    pub(crate) carrier: Box<dyn Carrier>,
    /// The nonces of both ends.
    pub(crate) client: [u8; 16],
    pub(crate) server: [u8; 16],
    /// How far the other end is.
    pub(crate) arrived: u64,
    /// What came behind that.
    pub(crate) rest: Vec<u8>,
}

/// Waits until a carrier may have something or, with `want_write`, room for something.
pub(crate) fn wait_for(carrier: &mut dyn Carrier, want_write: bool, deadline: Instant) -> Result<(), Error> {
    let failed = || Error::system("waiting for a carrier");
    if carrier.arm(want_write).map_err(failed())? {
        return Ok(());
    }
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Error::TimedOut(format!("{} does not answer in time", carrier.kind())));
    }
    // A queue of its own reports at once what is so already, and there mostly is room to write.
    let not_asked = if want_write { epoll::EventFlags::empty() } else { epoll::EventFlags::OUT };
    let interest = carrier.interest().difference(not_asked);
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC);
    let waited = queue.and_then(|queue| {
        epoll::add(&queue, carrier.descriptor(), epoll::EventData::new_u64(0), interest)?;
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut events = Vec::<epoll::Event>::with_capacity(1);
        epoll::wait(&queue, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
    });
    match waited {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(cause) => Err(failed()(cause.into())),
    }
}
