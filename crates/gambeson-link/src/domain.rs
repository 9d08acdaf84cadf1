//! A domain: a process's place among links. It listens, holds the sessions and endpoints, and moves everything on.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::key_schedule::Resumption;
use gambeson_proto::startpoint::{
    Address, Caveat, EndpointKey, Limits, Startpoint as Capability, StartpointBook, Voucher,
};
use gambeson_proto::suite::Protection;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use slotmap::SlotMap;

use crate::carrier::Carrier;
use crate::desk::{Desk, in_handler};
use crate::endpoint::{Attributes, Handlers, Reply, Table};
use crate::error::Error;
use crate::handshake::{Handshake, Party};
use crate::identity::{Identity, KeyHash, Trust};
use crate::pool::Pool;
use crate::reconnect;
use crate::route::{Doors, reach};
use crate::session::Session;
use crate::startpoint::Startpoint;
use crate::stranger::{Met, Stranger};

slotmap::new_key_type! {
    /// A session of this domain.
    pub(crate) struct SessionKey;
}

/// How many may be at their handshakes.
const STRANGERS_MAX: usize = 64;
/// Expanded keys of links in use.
const CACHED_LINKS: usize = 1024;
/// A program that waits asks so often before it sleeps.
const SPINS: u32 = 2000;

/// Who never sleeps does what is due before a sleep in one of so many idle turns: newcomers and the dead are noticed then.
const MEETING: u32 = 4096;

/// Of each second at most so much goes into strangers' handshakes, however many knock.
const STRANGERS_SHARE: Duration = Duration::from_millis(250);

/// How much of the present second went into strangers.
struct Budget {
    since: Instant,
    spent: Duration,
}

impl Budget {
    fn lasts(&mut self) -> bool {
        if self.since.elapsed() > Duration::from_secs(1) {
            (self.since, self.spent) = (Instant::now(), Duration::ZERO);
        }
        self.spent < STRANGERS_SHARE
    }
}

/// Who moves bytes while the program computes (libfabric's FI_PROGRESS_MANUAL and FI_PROGRESS_AUTO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// A thread of the domain's own.
    #[default]
    Auto,
    /// The program, whenever it calls or waits: the shortest way, and nothing happens in between.
    Manual,
}

/// What a domain is opened with.
pub struct Config {
    /// Who it is.
    pub identity: Identity,
    /// Whom it talks to.
    pub trust: Trust,
    /// The host it is on, for people and policies.
    pub host: String,
    /// Its rank in the job, if it has one.
    pub rank: Option<u32>,
    /// Where it listens; empty for one that only connects.
    pub listen: Vec<SocketAddr>,
    /// Whether processes of this host may come over shared memory, too, if it listens at all.
    pub shm: bool,
    /// Who moves bytes.
    pub progress: Progress,
    /// The weakest protection that any link of this domain may have. Links of class `control` have
    /// [`Protection::Integrity`] at least, whatever this says.
    pub weakest: Protection,
    /// How long a session that lost its connection waits for another one before it is over.
    pub patience: Duration,
    /// After how long a connection is given up over which a peer says nothing that owes an answer.
    pub silence: Duration,
}

impl Config {
    /// A domain that listens nowhere, moves bytes by itself and seals everything.
    #[must_use]
    pub fn new(identity: Identity, trust: Trust) -> Self {
        Config {
            identity,
            trust,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            rank: None,
            listen: Vec::new(),
            shm: true,
            progress: Progress::Auto,
            weakest: Protection::Privacy,
            patience: Duration::from_secs(60),
            silence: Duration::from_secs(20),
        }
    }

    /// Listens there too; port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }
}

/// A process's place among links.
pub struct Domain {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) party: Arc<Party>,
    listening: Vec<SocketAddr>,
    addresses: Vec<Address>,
    pub(crate) progress: Progress,
    pub(crate) weakest: Protection,
    patience: Duration,
    silence: Duration,
    epoll: OwnedFd,
    /// Ends a sleep.
    bell: OwnedFd,
    pool: Pool,
    me: Weak<Shared>,
}

pub(crate) struct State {
    pub(crate) sessions: SlotMap<SessionKey, Session>,
    by_peer: HashMap<KeyHash, SessionKey>,
    /// By what carriers that go on with them say.
    by_name: HashMap<[u8; 16], SessionKey>,
    strangers: Vec<Stranger>,
    patience: Budget,
    /// Strangers that were refused.
    refused: u64,
    doors: Doors,
    pub(crate) book: StartpointBook,
    tables: BTreeMap<u64, Arc<Table>>,
    next_endpoint: u64,
    pub(crate) cache: KeyCache,
    /// Turns in which there was nothing to do.
    idle: u32,
    closing: bool,
}

impl Domain {
    /// Opens a domain.
    ///
    /// # Errors
    /// When the identity cannot be used, or an address not be listened on.
    pub fn open(config: Config) -> Result<Self, Error> {
        let Config { identity, trust, host, rank, listen, shm, progress, weakest, patience, silence } = config;
        let party = Arc::new(Party::new(identity, trust, host, rank)?);
        let doors = Doors::open(&listen, shm, party.key_hash())?;
        let no_epoll = |cause: rustix::io::Errno| Error::system("the domain cannot be opened")(cause.into());
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(no_epoll)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(no_epoll)?;
        for watched in doors.descriptors().chain([bell.as_fd()]) {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&queue, watched, epoll::EventData::new_u64(0), flags).map_err(no_epoll)?;
        }
        let (listening, addresses) = (doors.tcp(), doors.addresses(party.key_hash()));
        let state = State {
            sessions: SlotMap::with_key(),
            by_peer: HashMap::new(),
            by_name: HashMap::new(),
            strangers: Vec::new(),
            patience: Budget { since: Instant::now(), spent: Duration::ZERO },
            refused: 0,
            doors,
            book: StartpointBook::new(party.key_hash().0, Limits::default()),
            tables: BTreeMap::new(),
            next_endpoint: 1,
            cache: KeyCache::new(CACHED_LINKS),
            idle: 0,
            closing: false,
        };
        let shared = Arc::new_cyclic(|me| Shared {
            state: Mutex::new(state),
            party,
            listening,
            addresses,
            progress,
            weakest,
            patience,
            silence,
            epoll: queue,
            bell,
            pool: Pool::default(),
            me: me.clone(),
        });
        let thread = (progress == Progress::Auto).then(|| {
            let shared = shared.clone();
            std::thread::Builder::new().name("gambeson-link".into()).spawn(move || shared.serve())
        });
        let thread = thread.transpose().map_err(Error::system("the domain's thread cannot be started"))?;
        Ok(Domain { shared, thread })
    }

    /// By what others know this domain.
    #[must_use]
    pub fn key_hash(&self) -> KeyHash {
        self.shared.party.key_hash()
    }

    /// Where it listens for other hosts.
    #[must_use]
    pub fn listening(&self) -> &[SocketAddr] {
        &self.shared.listening
    }

    /// Makes an endpoint.
    ///
    /// # Errors
    /// When two handlers have one number, the class is no name, or the protection is weaker than this domain allows.
    pub fn endpoint(&self, attributes: Attributes, handlers: Handlers) -> Result<Endpoint, Error> {
        let floor = floor(self.shared.weakest, &attributes.class);
        if attributes.protection > floor {
            let (asked, class) = (attributes.protection, &attributes.class);
            let what = format!(
                "links of class {class:?} may not be as weak as {asked:?}: this domain allows {floor:?} at the least"
            );
            return Err(Error::Startpoint(what));
        }
        let table = Arc::new(Table::new(attributes, handlers)?);
        let mut state = self.shared.lock()?;
        let number = state.next_endpoint;
        state.next_endpoint += 1;
        let opened = state.book.open_endpoint(number, EndpointKey::from_bytes(random()?), &table.attributes.class);
        opened.map_err(|cause| Error::Startpoint(cause.to_string()))?;
        state.tables.insert(number, table.clone());
        drop(state);
        Ok(Endpoint { shared: self.shared.clone(), number, table })
    }

    /// Binds a startpoint that came from elsewhere: connects to its owner, unless there is a session with it, and opens
    /// a link.
    ///
    /// # Errors
    /// When its owner is not to be reached within `patience`, is another than the startpoint says, or does not accept
    /// this domain. That the endpoint refuses the startpoint shows with the first request.
    pub fn startpoint(&self, capability: &Capability, patience: Duration) -> Result<Startpoint, Error> {
        let deadline = Instant::now() + patience;
        let owner = KeyHash(*capability.owner());
        let known = self.shared.lock()?.session_with(owner);
        let session = match known {
            Some(session) => session,
            None => self.shared.connect(owner, capability.addresses(), deadline)?,
        };
        Startpoint::open(&self.shared, session, capability)
    }

    /// A copy of a startpoint for another domain, and for it alone: stolen bytes of it open nothing. It descends from this
    /// one: what narrows or ends this one narrows or ends the copy.
    ///
    /// # Errors
    /// When the startpoint is bound to another domain than this one, when it is this one's and this domain's key is no
    /// Ed25519 key, which alone vouches for copies, or when it has too many caveats.
    pub fn copy_for(&self, capability: &Capability, holder: KeyHash) -> Result<Capability, Error> {
        let mut unable = false;
        let copy = capability.copy_for(holder.0, random()?, |copy| {
            let voucher = self.shared.party.vouch(copy);
            unable = voucher.is_none();
            voucher.unwrap_or(Voucher { key: [0; 32], signature: [0; 64] })
        });
        copy.map_err(|cause| match unable {
            true => Error::Identity("this domain has no Ed25519 key, and no other vouches for copies".into()),
            false => Error::Startpoint(cause.to_string()),
        })
    }

    /// Does what there is to do: takes what has come, runs handlers, sends what waits. With [`Progress::Manual`] nothing
    /// else does. Waits for it at most so long; whether there was anything.
    ///
    /// # Errors
    /// Inside a handler that is not threaded.
    pub fn progress(&self, wait: Duration) -> Result<bool, Error> {
        self.shared.progress_once(Some(wait))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.closing = true;
            let State { sessions, cache, .. } = &mut *state;
            for session in sessions.values_mut().filter(|session| session.over().is_none()) {
                session.close(cache);
                session.flush();
                session.end("this domain has closed");
            }
        }
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Handlers that others can be given startpoints to. It stays as long as its domain, or until it is dropped.
pub struct Endpoint {
    shared: Arc<Shared>,
    number: u64,
    table: Arc<Table>,
}

impl Endpoint {
    /// A startpoint to give away, for whoever holds it, narrowed so.
    ///
    /// # Errors
    /// When a caveat cannot be.
    pub fn startpoint(&self, caveats: impl IntoIterator<Item = Caveat>) -> Result<Capability, Error> {
        let addresses = self.shared.addresses.clone();
        let caveats = std::iter::once(Caveat::Protection(self.table.attributes.protection)).chain(caveats);
        let mut state = self.shared.lock()?;
        let minted = state.book.mint(self.number, random()?, addresses, caveats);
        minted.map_err(|cause| Error::Startpoint(cause.to_string()))
    }

    /// Ends a startpoint of this endpoint and all that descend from it.
    ///
    /// # Errors
    /// When this endpoint did not make it.
    pub fn revoke(&self, capability: &Capability) -> Result<(), Error> {
        if self.shared.lock()?.book.revoke(&capability.name()) {
            return Ok(());
        }
        Err(Error::Startpoint("this endpoint made no such startpoint, or it was revoked before".into()))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.book.close_endpoint(self.number);
        state.tables.remove(&self.number);
    }
}

/// What links of a class must have at the least.
pub(crate) fn floor(weakest: Protection, class: &str) -> Protection {
    if class == "control" { weakest.min(Protection::Integrity) } else { weakest }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|cause| {
        Error::system("the kernel gives no random numbers")(std::io::Error::other(cause.to_string()))
    })?;
    Ok(bytes)
}

impl Shared {
    /// # Errors
    /// Inside a handler that is not threaded, where the domain is locked already.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        if in_handler() {
            let what = "a handler that is not threaded may answer and nothing else; register it with `threaded`";
            return Err(Error::Handler(what.into()));
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends whatever sleep there is.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(crate) fn watch(&self, carrier: &dyn Carrier) -> Result<(), Error> {
        let added = epoll::add(&self.epoll, carrier.descriptor(), epoll::EventData::new_u64(1), carrier.interest());
        added.map_err(|cause| Error::system("the carrier cannot be watched")(cause.into()))
    }

    /// A session with the owner of a key, over the first of its addresses that answers.
    fn connect(&self, owner: KeyHash, addresses: &[Address], deadline: Instant) -> Result<SessionKey, Error> {
        let carrier = reach(addresses, deadline).map_err(|unreachable| Error::Lost(unreachable.why))?;
        self.begin(carrier, owner, addresses, deadline)
    }

    /// Goes through a handshake as the one who connects.
    fn begin(
        &self,
        mut carrier: Box<dyn Carrier>,
        owner: KeyHash,
        addresses: &[Address],
        deadline: Instant,
    ) -> Result<SessionKey, Error> {
        let mut handshake = Handshake::connect(&self.party, Some(owner))?;
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
                self.watch(&*carrier)?;
                let session = Session::new(agreed, carrier, addresses, &came);
                let mut state = self.lock()?;
                let key = state.insert(session);
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
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut events = Vec::<epoll::Event>::with_capacity(64);
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
        // The bell is edge-triggered, but a count that is never read stops at its end.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// How long to sleep at the most: silence is noticed by looking.
    fn nap(&self) -> Duration {
        (self.silence / 4).min(Duration::from_secs(1))
    }

    /// The domain's own thread.
    fn serve(&self) {
        loop {
            let Ok(mut state) = self.lock() else { return };
            if state.closing {
                return;
            }
            if !state.progress(self) && !state.settle(self) {
                drop(state);
                self.sleep(self.nap());
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
            if spins < SPINS {
                drop(state);
                std::hint::spin_loop();
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            if !state.settle(self) {
                drop(state);
                self.sleep(left.unwrap_or(Duration::MAX).min(self.nap()));
            }
        }
    }

    /// What it takes to go on with a session that has no carrier.
    pub(crate) fn sought(&self, key: SessionKey) -> Option<(Vec<Address>, Resumption, u64)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let session = state.sessions.get(key).filter(|session| session.lost().is_some() && !state.closing)?;
        Some((session.addresses().to_vec(), session.resumption().clone(), session.received()))
    }

    /// A session that has no carrier has one again.
    pub(crate) fn found(&self, key: SessionKey, carrier: Box<dyn Carrier>, arrived: u64, rest: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = state.sessions.get_mut(key).filter(|session| session.lost().is_some())
            && self.watch(&*carrier).is_ok()
        {
            session.resume(carrier, arrived, rest);
        }
        drop(state);
        self.ring();
    }

    /// The process at a session's other end is gone.
    pub(crate) fn gone(&self, key: SessionKey) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = state.sessions.get_mut(key).filter(|session| session.lost().is_some()) {
            let why = format!(
                "{} on {} is gone: nobody listens at its address any more",
                session.peer.name, session.peer.host
            );
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

    /// A threaded handler answers.
    pub(crate) fn answer(&self, reply: &Reply, bytes: &[u8], flags: u8) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answer(reply, bytes, flags);
    }

    /// A threaded handler is through with a request.
    pub(crate) fn handled(&self, reply: &Reply) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.handled(reply);
    }
}

impl State {
    /// The session that a carrier wants to go on with.
    pub(crate) fn session_named(&self, name: &[u8; 16]) -> Option<SessionKey> {
        self.by_name.get(name).copied()
    }

    fn session_with(&mut self, owner: KeyHash) -> Option<SessionKey> {
        let &key = self.by_peer.get(&owner)?;
        let alive = self.sessions.get(key).is_some_and(|session| session.over().is_none());
        alive.then_some(key)
    }

    pub(crate) fn insert(&mut self, session: Session) -> SessionKey {
        let owner = session.peer.key;
        let name = session.resumption().name;
        let key = self.sessions.insert(session);
        self.by_peer.insert(owner, key);
        self.by_name.insert(name, key);
        key
    }

    /// Takes what has come on all sessions, and goes on with strangers. Whether there was anything.
    pub(crate) fn progress(&mut self, shared: &Shared) -> bool {
        let mut any = false;
        let State { sessions, book, tables, cache, .. } = self;
        for (key, session) in sessions.iter_mut() {
            let mut desk = Desk { book, tables, key, shared };
            any |= session.progress(cache, &mut desk);
        }
        if !any {
            self.idle += 1;
            if self.idle.is_multiple_of(MEETING) {
                any = self.settle(shared);
            }
        }
        any
    }

    /// Before a sleep: what is not for every turn. Whether there is something to do after all.
    fn settle(&mut self, shared: &Shared) -> bool {
        let mut any = self.meet(shared);
        let State { sessions, by_peer, by_name, cache, .. } = self;
        sessions.retain(|key, session| {
            if session.lost().is_some_and(|(_, since)| since.elapsed() > shared.patience) {
                let (why, _) = session.lost().expect("it is").clone();
                session.end(&format!("{why}, and there was no other way within {:?}", shared.patience));
            }
            if session.over().is_none() {
                return true;
            }
            if by_peer.get(&session.peer.key) == Some(&key) {
                by_peer.remove(&session.peer.key);
            }
            by_name.remove(&session.resumption().name);
            // Startpoints that are still there say why it ended.
            session.has_startpoints()
        });
        for (key, session) in sessions.iter_mut() {
            session.listen(cache, shared.silence);
            if session.lost().is_some() && session.wants_carrier() {
                reconnect::begin(shared.weak().clone(), key);
            }
            let waits = session.flush();
            any |= session.carrier().is_some_and(|carrier| carrier.arm(waits).unwrap_or(true));
        }
        for stranger in &mut self.strangers {
            any |= stranger.arm();
        }
        any
    }

    /// Says why somebody was refused, ever more seldom: nobody fills a log by knocking.
    fn refused(&mut self, why: Option<&Error>) {
        self.refused += 1;
        if let Some(why) = why.filter(|_| self.refused.is_power_of_two()) {
            eprintln!("gambeson: {why} ({} connections were refused so far)", self.refused);
        }
    }

    /// Lets strangers in, and those who took too long out.
    fn meet(&mut self, shared: &Shared) -> bool {
        let mut any = false;
        let mut newcomers = 0;
        while newcomers < STRANGERS_MAX
            && let Some(carrier) = self.doors.accept()
        {
            newcomers += 1;
            if shared.watch(&*carrier).is_err() {
                continue;
            }
            // Who came long ago and said nothing makes room, so that nobody is kept out by those who do that.
            if self.strangers.len() == STRANGERS_MAX {
                let (longest, _) =
                    self.strangers.iter().enumerate().min_by_key(|(_, other)| other.turn()).expect("full");
                self.strangers.swap_remove(longest);
            }
            self.strangers.push(Stranger::new(carrier));
        }
        any |= newcomers == STRANGERS_MAX;
        let mut at = 0;
        while at < self.strangers.len() && self.patience.lasts() {
            let began = Instant::now();
            let mut stranger = self.strangers.swap_remove(at);
            match stranger.proceed(shared, self) {
                Met::Waits => {
                    // Its place was taken by the last one, which is not passed over so.
                    self.strangers.push(stranger);
                    let last = self.strangers.len() - 1;
                    self.strangers.swap(at, last);
                    at += 1;
                }
                Met::Done => any = true,
                Met::Refused(why) => self.refused(why.as_ref()),
            }
            self.patience.spent += began.elapsed();
        }
        any
    }

    fn answer(&mut self, reply: &Reply, bytes: &[u8], flags: u8) {
        let State { sessions, cache, .. } = self;
        let Some(session) = sessions.get_mut(reply.session) else { return };
        if let Some((link, out)) = session.link(reply.link) {
            crate::request::answer(link, out, cache, reply.request, flags, bytes);
            session.flush();
        }
    }

    fn handled(&mut self, reply: &Reply) {
        let State { sessions, cache, .. } = self;
        let Some(session) = sessions.get_mut(reply.session) else { return };
        if let Some((link, out)) = session.link(reply.link) {
            link.handled(out, cache, reply.credit);
            session.flush();
        }
    }
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
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC);
    let waited = queue.and_then(|queue| {
        epoll::add(&queue, carrier.descriptor(), epoll::EventData::new_u64(0), carrier.interest())?;
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut events = Vec::<epoll::Event>::with_capacity(1);
        epoll::wait(&queue, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
    });
    match waited {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(cause) => Err(failed()(cause.into())),
    }
}
