//! What a domain holds under its one lock: sessions, endpoints, strangers; and how it moves them on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::startpoint::{Address, AddressKind as Transport, StartpointBook};
use slotmap::SlotMap;

use crate::carrier::Carrier;
use crate::carrier::tcp::Tcp;
use crate::desk::Desk;
use crate::endpoint::{Origin, Table};
use crate::error::Error;
use crate::identity::{Expected, KeyHash};
use crate::names::Names;
use crate::policy::Judge;
use crate::reconnect;
use crate::refusals;
use crate::route::Doors;
use crate::session::Session;
use crate::shared::Shared;
use crate::stranger::{Met, Stranger};

slotmap::new_key_type! {
    /// A session of this domain.
    pub(crate) struct SessionKey;
}

/// How many may be at their handshakes.
const STRANGERS_MAX: usize = 128;
/// Expanded keys of links in use.
const CACHED_LINKS: usize = 1024;

/// So many sessions are asked for what has come, each in turn.
const FEW: usize = 4;
/// Who never sleeps does what is due before a sleep in one of so many turns: newcomers and the dead are noticed then.
const MEETING: u32 = 4096;

/// Of each second at most so much goes into strangers and their handshakes, however many knock; with what it takes to
/// be woken by them a quarter.
const STRANGERS_SHARE: Duration = Duration::from_millis(200);

/// How many guests there are at a time, and how long each may stay.
const GUESTS_MAX: usize = 64;
const GUESTS_STAY: Duration = Duration::from_secs(60);

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

pub(crate) struct State {
    pub(crate) sessions: SlotMap<SessionKey, Session>,
    /// By who is at the other end, and which transport is wished for.
    pub(crate) by_peer: HashMap<(KeyHash, Option<Transport>), SessionKey>,
    /// By what carriers that go on with them say.
    by_name: HashMap<[u8; 16], SessionKey>,
    strangers: Vec<Stranger>,
    patience: Budget,
    /// Strangers that were refused, and what came altered on the way.
    pub(crate) refused: u64,
    pub(crate) tampered: u64,
    doors: Doors,
    pub(crate) book: StartpointBook,
    pub(crate) judge: Judge,
    pub(crate) names: Names,
    pub(crate) tables: BTreeMap<u64, Arc<Table>>,
    pub(crate) next_endpoint: u64,
    pub(crate) cache: KeyCache,
    turns: u32,
    pub(crate) closing: bool,
    /// Whether the domain's own thread will look at the sessions again before it sleeps.
    pub(crate) awake: bool,
    /// Who waits for something to move.
    pub(crate) sleepers: u32,
}

impl State {
    pub(crate) fn new(doors: Doors, book: StartpointBook, judge: Judge) -> Self {
        State {
            sessions: SlotMap::with_key(),
            by_peer: HashMap::new(),
            by_name: HashMap::new(),
            strangers: Vec::new(),
            patience: Budget { since: Instant::now(), spent: Duration::ZERO },
            refused: 0,
            tampered: 0,
            doors,
            book,
            judge,
            names: Names::default(),
            tables: BTreeMap::new(),
            next_endpoint: 1,
            cache: KeyCache::new(CACHED_LINKS),
            turns: 0,
            closing: false,
            awake: false,
            sleepers: 0,
        }
    }

    /// The session that a carrier wants to go on with.
    pub(crate) fn session_named(&self, name: &[u8; 16]) -> Option<SessionKey> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn session_with(&mut self, owner: KeyHash, wish: Option<Transport>) -> Option<SessionKey> {
        let &key = self.by_peer.get(&(owner, wish))?;
        let alive = self.sessions.get(key).is_some_and(|session| session.over().is_none());
        alive.then_some(key)
    }

    /// A session with who is expected at one of these addresses; with the owner of a key, wherever that was met.
    pub(crate) fn session_at(&self, addresses: &[Address], expected: &Expected) -> Option<SessionKey> {
        let fits = |session: &Session| {
            let there = matches!(expected, Expected::Key(_)) || session.was_met_at(addresses);
            // Of a connection that is lost nobody knows who is at its other end by now: perhaps the program was started again.
            let usable = session.over().is_none() && session.lost().is_none() && session.wish().is_none();
            there && expected.is(&session.peer) && usable && !session.peer.is_guest()
        };
        self.sessions.iter().find(|(_, session)| fits(session)).map(|(key, _)| key)
    }

    /// Another session with the peer of this one, over which it can be asked for this one.
    pub(crate) fn beside(&mut self, key: SessionKey) -> Option<SessionKey> {
        let peer = self.sessions.get(key)?.peer.key;
        let mut others = self.sessions.iter_mut().filter(|(other, session)| *other != key && session.peer.key == peer);
        others.find_map(|(other, session)| session.carrier().is_some().then_some(other))
    }

    /// Takes a session in.
    ///
    /// # Errors
    /// When its carrier cannot be watched, or the domain is closed.
    pub(crate) fn insert(&mut self, session: Session, shared: &Shared) -> Result<SessionKey, Error> {
        self.check_open()?;
        let index = (session.peer.key, session.wish());
        let (name, is_accepted) = (session.resumption().name, session.was_accepted());
        let guest = session.peer.is_guest();
        if guest {
            self.make_room();
        }
        let key = self.sessions.insert(session);
        if let Some(carrier) = self.sessions[key].carrier()
            && let Err(cause) = shared.watch(carrier, Some(key))
        {
            self.sessions.remove(key);
            return Err(cause);
        }
        // Nobody here has business with guests: they have it with us.
        if !guest {
            self.by_peer.insert(index, key);
        }
        // Whoever goes on with a session has it from the other side: what comes back from somewhere is not believed here.
        if is_accepted {
            self.by_name.insert(name, key);
        }
        Ok(key)
    }

    /// Of too many guests the one goes who has been there for the longest.
    fn make_room(&mut self) {
        let State { sessions, cache, .. } = self;
        let guests = sessions.values_mut().filter(|session| session.peer.is_guest() && session.over().is_none());
        let mut guests: Vec<_> = guests.collect();
        if guests.len() >= GUESTS_MAX
            && let Some(oldest) = guests.iter_mut().min_by_key(|session| session.begun())
        {
            oldest.close(cache);
            oldest.part();
        }
    }

    /// These sessions' carriers may have something.
    pub(crate) fn heed(&mut self, stirred: impl Iterator<Item = SessionKey>) {
        for key in stirred {
            if let Some(session) = self.sessions.get_mut(key) {
                session.stir();
            }
        }
    }

    /// Takes what has come on all sessions, and goes on with strangers. Whether there was anything.
    pub(crate) fn progress(&mut self, shared: &Shared) -> bool {
        let left = shared.deferred.take();
        let mut any = !left.is_empty();
        left.into_iter().for_each(|task| task(self));
        // Of few, each is asked. Of many, the kernel is asked once which of them may have something.
        let all = self.sessions.len() <= FEW;
        if !all {
            self.heed(shared.events(Duration::ZERO));
        }
        let State { sessions, book, judge, names, tables, cache, tampered, by_name, .. } = self;
        for (key, session) in sessions.iter_mut().filter(|(_, session)| all || session.is_stirred()) {
            let mut desk = Desk { book, judge, names, tables, tampered, by_name, key, shared };
            any |= session.progress(cache, &mut desk);
        }
        if any {
            shared.stirred(self);
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(MEETING) {
            any |= self.settle(shared);
        }
        any
    }

    /// # Errors
    /// When the domain is closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closing { Err(Error::Lost("the domain is closed".into())) } else { Ok(()) }
    }

    /// The domain closes: nobody comes in any more.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        self.doors = Doors::default();
        self.strangers.clear();
    }

    /// What was handed over goes out, and the sessions end behind it; those that are `late` do at once. How many bytes have
    /// moved so far; `None`: nothing is left to do.
    pub(crate) fn wind_up(&mut self, late: bool) -> Option<u64> {
        let State { sessions, cache, .. } = self;
        let mut left = false;
        for session in sessions.values_mut() {
            if session.over().is_none() && (late || session.lost().is_some() || session.is_drained()) {
                session.close(cache);
            }
            left |= session.over().is_none() || !session.part();
        }
        left.then(|| sessions.values().map(Session::moved).sum())
    }

    /// Before a sleep: what is not for every turn. Whether there is something to do after all.
    pub(crate) fn settle(&mut self, shared: &Shared) -> bool {
        if self.closing {
            return false;
        }
        let mut any = self.meet(shared);
        let State { sessions, by_peer, by_name, cache, .. } = self;
        sessions.retain(|key, session| {
            if session.lost().is_some_and(|(_, since)| since.elapsed() > shared.patience) {
                let (why, _) = session.lost().expect("it is").clone();
                session.end(&format!("{why}, and there was no other way within {:?}", shared.patience));
            }
            if session.peer.is_guest() && session.over().is_none() && session.begun().elapsed() > GUESTS_STAY {
                session.close(cache);
                session.part();
            }
            if session.over().is_none() {
                return true;
            }
            let index = (session.peer.key, session.wish());
            if by_peer.get(&index) == Some(&key) {
                by_peer.remove(&index);
            }
            if session.was_accepted() {
                by_name.remove(&session.resumption().name);
            }
            // Startpoints that are still there say why it ended.
            session.is_wanted() || session.has_parked()
        });
        for (key, session) in sessions.iter_mut() {
            session.listen(cache, shared.silence);
            if session.wants_search() {
                reconnect::begin(shared.weak().clone(), key);
            }
            let waits = session.flush();
            any |= session.carrier().is_some_and(|carrier| carrier.arm(waits).unwrap_or(true));
        }
        for stranger in &mut self.strangers {
            any |= stranger.arm();
        }
        // Who may not come in now does not keep us awake.
        any | (self.patience.lasts() && self.doors.arm())
    }

    /// Says why somebody was refused, ever more seldom: nobody fills a log by knocking.
    fn refused(&mut self, why: Option<&Error>) {
        self.refused += 1;
        if let Some(why) = why {
            refusals::say(self.refused, || why.to_string());
        }
    }

    /// Lets strangers in, and those who took too long out.
    fn meet(&mut self, shared: &Shared) -> bool {
        let mut any = false;
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
        // Newcomers come last, so that each is listened to before others can take its place.
        for _ in 0..STRANGERS_MAX {
            let is_full = self.strangers.len() == STRANGERS_MAX;
            if !self.patience.lasts() || is_full && !self.strangers.iter().any(Stranger::has_had_its_time) {
                break;
            }
            let began = Instant::now();
            let Some(carrier) = self.doors.accept_fabric().or_else(|| self.doors.accept()) else { break };
            any = true;
            self.welcome(carrier, shared);
            self.patience.spent += began.elapsed();
        }
        any
    }

    /// Somebody has come through a relay; whether this domain is still open.
    pub(crate) fn arrive(&mut self, carrier: Tcp) -> bool {
        if !self.closing {
            self.doors.arrive(carrier);
        }
        !self.closing
    }

    /// Finds a place for somebody who has connected.
    fn welcome(&mut self, carrier: Box<dyn Carrier>, shared: &Shared) {
        if shared.watch(&*carrier, None).is_err() {
            return;
        }
        // Who came long ago and said nothing makes room, so that nobody is kept out by those who do that.
        if self.strangers.len() == STRANGERS_MAX {
            let spent = self.strangers.iter().enumerate().filter(|(_, other)| other.has_had_its_time());
            let (longest, _) = spent.min_by_key(|(_, other)| other.turn()).expect("it was looked at");
            self.strangers.swap_remove(longest);
            self.refused(None);
        }
        self.strangers.push(Stranger::new(carrier));
    }

    pub(crate) fn answer(&mut self, to: &Origin, bytes: &[u8], flags: u8) {
        let State { sessions, cache, awake, .. } = self;
        let Some(session) = sessions.get_mut(to.session) else { return };
        if let Some((link, out)) = session.link(to.link) {
            if link.answers().admit(to.request, bytes, flags) {
                crate::request::answer(link, out, cache, to.request, flags, bytes);
            }
            session.flush_by(*awake);
        }
    }

    /// Whether all answers to a request that were sent so far have gone; `None`: not yet.
    pub(crate) fn room(&mut self, to: &Origin) -> Option<Result<(), Error>> {
        let cancelled = || Error::Lost("nobody waits for the answers to this request any more".into());
        let Some(session) = self.sessions.get_mut(to.session) else { return Some(Err(cancelled())) };
        if let Some(why) = session.over() {
            return Some(Err(Error::Lost(why.to_owned())));
        }
        let Some((link, _)) = session.link(to.link).filter(|(link, _)| link.is_open(to.request)) else {
            return Some(Err(cancelled()));
        };
        (!link.answers().waits(to.request)).then_some(Ok(()))
    }

    pub(crate) fn handled(&mut self, to: &Origin) {
        let State { sessions, cache, .. } = self;
        let Some(session) = sessions.get_mut(to.session) else { return };
        if let Some((link, out)) = session.link(to.link) {
            link.handled(out, cache, to.credit);
            session.flush();
        }
    }
}
