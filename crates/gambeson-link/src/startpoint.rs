//! A startpoint that is bound: requests go out here.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::record::{Envelope, Kind, request};
use gambeson_proto::startpoint::{AddressKind as Transport, Caveat, Startpoint as Capability};
use gambeson_proto::suite::Protection;

use crate::carrier;
use crate::domain::{Progress, random};
use crate::error::Error;
use crate::identity::Peer;
use crate::link::{Link, Role};
use crate::request::{Answer, Waiting};
use crate::session::Session;
use crate::shared::Shared;
use crate::source::Source;
use crate::state::{SessionKey, State};
use crate::stream::Outgoing;
use crate::transform::{End, Stack};

/// One end of a link, from which remote service requests go to its endpoint. It is released when it is dropped.
pub struct Startpoint {
    pub(crate) shared: Arc<Shared>,
    session: SessionKey,
    number: u64,
    protection: Protection,
    capability: Capability,
}

impl Startpoint {
    pub(crate) fn open(shared: &Arc<Shared>, session: SessionKey, capability: &Capability) -> Result<Self, Error> {
        let asked = capability.caveats().filter_map(|caveat| match caveat {
            Caveat::Protection(protection) => Some(*protection),
            _ => None,
        });
        // The strongest that anybody asks for.
        let asked = asked.min().unwrap_or(Protection::None);
        let stack = Stack::open(&shared.modules.select(capability.transforms())?, End::Startpoint)?;
        let mut state = shared.lock()?;
        let State { sessions, judge, cache, .. } = &mut *state;
        let found = sessions.get_mut(session).filter(|session| session.over().is_none());
        let found = found.ok_or_else(|| Error::Lost("the session with the startpoint's owner is over".into()))?;
        let peer = found.peer.clone();
        // A relay is a stranger.
        let floor = if found.is_relayed() { Protection::Privacy } else { asked };
        let protection = floor.min(asked).min(judge.decide(capability.class(), &peer).protection);
        let partition = judge.partition(found.links(), &peer);
        let opening = capability.activate(found.links(), random()?, protection, partition);
        let opening = opening.map_err(|cause| Error::Startpoint(cause.to_string()))?;
        let number = found.open_link(cache, opening, capability.class(), stack);
        found.flush();
        drop(state);
        Ok(Startpoint { shared: shared.clone(), session, number, protection, capability: capability.clone() })
    }

    /// What it is bound by.
    #[must_use]
    pub fn capability(&self) -> &Capability {
        &self.capability
    }

    /// The channel binding of its session (RFC 9266): what another proof of who is there is bound to, so that it is good for
    /// these two ends alone. [`crate::Request::binding`] is the same at the other end.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded.
    pub fn binding(&self) -> Result<[u8; 32], Error> {
        Ok(self.session(&*self.shared.lock()?)?.binding)
    }

    /// Who owns its endpoint, proved.
    ///
    /// # Errors
    /// As [`Startpoint::binding`].
    pub fn peer(&self) -> Result<Arc<Peer>, Error> {
        Ok(self.session(&*self.shared.lock()?)?.peer.clone())
    }

    fn session<'s>(&self, state: &'s State) -> Result<&'s Session, Error> {
        let session = state.sessions.get(self.session).ok_or_else(|| gone("it has ended"))?;
        match session.over() {
            Some(why) => Err(gone(why)),
            None => Ok(session),
        }
    }

    /// What it goes over at present; `None` while the connection is lost.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded.
    pub fn carrier(&self) -> Result<Option<carrier::Kind>, Error> {
        let mut state = self.shared.lock()?;
        let session = state.sessions.get_mut(self.session).ok_or_else(|| gone("it has ended"))?;
        if let Some(why) = session.over() {
            return Err(gone(why));
        }
        Ok(session.carrier().map(|carrier| carrier.kind().clone()))
    }

    /// Goes on over this transport, or over what the rule says, and waits for the change at most so long. All links of
    /// its session go with it: a link that is to go its own way is bound by
    /// [`Domain::startpoint_over`](crate::Domain::startpoint_over). Nothing is lost and nothing comes twice.
    ///
    /// # Errors
    /// When the endpoint is not to be reached so; the link stays where it is then. When this process did not connect but
    /// was connected to: the other end chooses.
    pub fn prefer(&self, transport: Option<Transport>, patience: Duration) -> Result<(), Error> {
        self.shared.prefer(self.session, transport, Instant::now() + patience)
    }

    /// How the link is protected: as the policies of both ends, the endpoint and the startpoint want it.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Sends a request that nobody answers.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded.
    pub fn send(&self, handler: u32, payload: &[u8]) -> Result<(), Error> {
        self.post(handler, payload)?;
        self.drain(None).map(drop)
    }

    /// Sends a request that nobody answers, and does not wait: what finds no room stays in memory. Who posts much asks
    /// [`Startpoint::flush`] now and then.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded.
    pub fn post(&self, handler: u32, payload: &[u8]) -> Result<(), Error> {
        let mut state = self.shared.lock()?;
        self.issue(&mut state, handler, payload, 0).map(drop)
    }

    /// Waits until there was room for all that was sent, at most so long; whether there was.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded.
    pub fn flush(&self, patience: Duration) -> Result<bool, Error> {
        self.drain(Some(Instant::now() + patience))
    }

    /// Sends a request and waits for its answer, at most so long.
    ///
    /// # Errors
    /// When the handler or the endpoint refuses, nothing comes in time, or the link is over.
    pub fn call(&self, handler: u32, payload: &[u8], patience: Duration) -> Result<Vec<u8>, Error> {
        let mut answer = Vec::new();
        self.call_into(handler, payload, &mut answer, patience)?;
        Ok(answer)
    }

    /// [`Startpoint::call`] into memory that is there: `answer` is emptied first.
    ///
    /// # Errors
    /// As there.
    pub fn call_into(
        &self,
        handler: u32,
        payload: &[u8],
        answer: &mut Vec<u8>,
        patience: Duration,
    ) -> Result<(), Error> {
        let mut pending = self.start(handler, payload)?;
        pending.wait_into(answer, patience)
    }

    /// Sends a request whose answer is waited for later, or awaited.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded.
    pub fn start(&self, handler: u32, payload: &[u8]) -> Result<Pending<&Self>, Error> {
        let mut state = self.shared.lock()?;
        let number = self.issue(&mut state, handler, payload, request::ANSWER)?;
        Ok(Pending::new(self, number))
    }

    /// [`Startpoint::start`], for who keeps the request longer than he borrows the startpoint: tasks, other languages.
    ///
    /// # Errors
    /// As there.
    pub fn start_owned(self: &Arc<Self>, handler: u32, payload: &[u8]) -> Result<Pending<Arc<Self>>, Error> {
        let mut state = self.shared.lock()?;
        let number = self.issue(&mut state, handler, payload, request::ANSWER)?;
        Ok(Pending::new(self.clone(), number))
    }

    /// Sends a request that is answered by a stream.
    ///
    /// # Errors
    /// When the link is over, or in a handler that is not threaded.
    pub fn stream(&self, handler: u32, payload: &[u8]) -> Result<Answers<&Self>, Error> {
        let mut state = self.shared.lock()?;
        let number = self.issue(&mut state, handler, payload, request::STREAM)?;
        Ok(Answers::new(self, number))
    }

    /// [`Startpoint::stream`], for who keeps the answers longer than he borrows the startpoint.
    ///
    /// # Errors
    /// As there.
    pub fn stream_owned(self: &Arc<Self>, handler: u32, payload: &[u8]) -> Result<Answers<Arc<Self>>, Error> {
        let mut state = self.shared.lock()?;
        let number = self.issue(&mut state, handler, payload, request::STREAM)?;
        Ok(Answers::new(self.clone(), number))
    }

    pub(crate) fn issue<P: Source + ?Sized>(
        &self,
        state: &mut State,
        handler: u32,
        payload: &P,
        flags: u8,
    ) -> Result<u64, Error> {
        let (tag, size) = (handler.into(), payload.len() as u64);
        self.ask_from(state, Envelope { flags, tag, size, ..Envelope::new(Kind::Request) }, payload)
    }

    /// Sends a message that asks for something; its number, if an answer is wanted.
    pub(crate) fn ask(&self, state: &mut State, envelope: Envelope, payload: &[u8]) -> Result<u64, Error> {
        self.ask_from(state, envelope, payload)
    }

    fn ask_from<P: Source + ?Sized>(&self, state: &mut State, envelope: Envelope, payload: &P) -> Result<u64, Error> {
        let State { sessions, cache, awake, .. } = state;
        let awake = *awake;
        let session = sessions.get_mut(self.session).ok_or_else(|| gone("it has ended"))?;
        if let Some(why) = session.over() {
            return Err(gone(why));
        }
        let (link, out) = session.link(self.number).ok_or_else(|| gone("it was released"))?;
        if let Some(why) = waiting(link).refused() {
            return Err(why);
        }
        if link.is_packed_here() {
            return Err(Self::waits_for_itself());
        }
        waiting(link).check(payload.len())?;
        let number = if envelope.flags == 0 { 0 } else { waiting(link).begin() };
        if let Err(why) = link.transmit(out, cache, Envelope { data: number, ..envelope }, payload) {
            if envelope.flags != 0 {
                waiting(link).end(number);
            }
            return Err(Error::Transform(why));
        }
        // Who has answers to take, or is awake anyway, comes back at once, and what is written together costs one call.
        let soon = match self.shared.progress {
            Progress::Manual => waiting(link).has_answers(),
            Progress::Auto => awake,
        };
        session.flush_by(soon);
        Ok(number)
    }

    /// The link, unless it is over.
    pub(crate) fn link<T>(
        &self,
        state: &mut State,
        then: impl FnOnce(&mut Link, &mut Outgoing, &mut KeyCache) -> T,
    ) -> Result<T, Error> {
        let State { sessions, cache, .. } = state;
        let session = sessions.get_mut(self.session).ok_or_else(|| gone("it has ended"))?;
        if let Some(why) = session.over() {
            return Err(gone(why));
        }
        let (link, out) = session.link(self.number).ok_or_else(|| gone("it was released"))?;
        if let Some(refused) = waiting(link).refused() {
            return Err(refused);
        }
        Ok(then(link, out, cache))
    }

    pub(crate) fn waits_for_itself() -> Error {
        Error::Message("this thread packs a request for the same link: send or drop that first".into())
    }

    /// Gives up what was packed, if anything of it has gone, and lets others have the link.
    pub(crate) fn give_up_pack(&self, begun: bool) {
        let (session, number) = (self.session, self.number);
        self.shared.tell(move |state| {
            let State { sessions, cache, .. } = state;
            // If the link is over, nobody waits behind it.
            let Some(session) = sessions.get_mut(session).filter(|session| session.over().is_none()) else { return };
            let Some((link, out)) = session.link(number) else { return };
            if waiting(link).refused().is_some() {
                return;
            }
            match begun {
                true => drop(link.end_pack(out, cache, None)),
                false => link.leave_pack(out, cache),
            }
            session.flush();
        });
    }

    /// Gives the carrier what was sealed.
    pub(crate) fn push(&self, state: &mut State) {
        if let Some(session) = state.sessions.get_mut(self.session) {
            session.flush();
        }
    }

    /// The number of a request that goes to the endpoint inside another one, and its answer.
    pub(crate) fn promise(self: &Arc<Self>) -> Result<(u64, Pending<Arc<Self>>), Error> {
        let mut state = self.shared.lock()?;
        let number = self.with(&mut state, Waiting::begin).ok_or_else(|| gone("it has ended"))?;
        Ok((number, Pending::new(self.clone(), number)))
    }

    /// Waits until what was sent is in the session's stream: how a fast sender is held to the pace of the handlers.
    pub(crate) fn drain(&self, deadline: Option<Instant>) -> Result<bool, Error> {
        let drained = |state: &mut State| {
            let drained = self.link(state, |link, _, _| link.is_drained().then_some(true));
            drained.transpose()
        };
        self.shared.wait_until(deadline, drained)?.unwrap_or(Ok(false))
    }

    fn with<T>(&self, state: &mut State, then: impl FnOnce(&mut Waiting) -> T) -> Option<T> {
        let (link, _) = state.sessions.get_mut(self.session)?.link(self.number)?;
        Some(then(waiting(link)))
    }

    fn poll(&self, state: &mut State, number: u64, waker: Option<&Waker>) -> Answer {
        let State { sessions, cache, .. } = state;
        let ended = || Answer::Refused(gone("it has ended"));
        let Some(session) = sessions.get_mut(self.session) else { return ended() };
        let alive = session.over().is_none();
        let Some((link, out)) = session.link(self.number) else { return ended() };
        let answer = waiting(link).poll(number, waker);
        if let Some(read) = waiting(link).read(number).filter(|_| alive) {
            link.read(out, cache, number, read);
            session.flush();
        }
        answer
    }

    /// Waits for the next answer to a request; `then` has it while the domain is locked.
    fn next(
        &self,
        number: u64,
        patience: Option<Duration>,
        mut then: impl FnMut(&mut State, &mut Answer),
    ) -> Result<Answer, Error> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut ask = |state: &mut State, waker: Option<&Waker>| match self.poll(state, number, waker) {
            Answer::None => None,
            mut answer => {
                then(state, &mut answer);
                Some(answer)
            }
        };
        if self.shared.progress == Progress::Manual {
            let answer = self.shared.wait_until(deadline, |state| ask(state, None))?;
            return Ok(answer.unwrap_or(Answer::None));
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            if let Some(answer) = ask(&mut *self.shared.lock()?, Some(&waker)) {
                return Ok(answer);
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Ok(Answer::None),
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    /// Nobody waits for a request's answers any more.
    fn forget(&self, number: u64) {
        let (session, link) = (self.session, self.number);
        self.shared.tell(move |state| {
            let State { sessions, cache, .. } = state;
            let Some(session) = sessions.get_mut(session) else { return };
            let alive = session.over().is_none();
            if let Some((link, out)) = session.link(link)
                && waiting(link).end(number)
                && alive
            {
                link.cancel(out, cache, number);
                session.flush();
            }
        });
    }
}

impl Drop for Startpoint {
    fn drop(&mut self) {
        let (session, number) = (self.session, self.number);
        self.shared.tell(move |state| {
            let State { sessions, cache, .. } = state;
            if let Some(session) = sessions.get_mut(session) {
                session.release(cache, number);
                session.flush();
            }
        });
    }
}

pub(crate) fn waiting(link: &mut Link) -> &mut Waiting {
    match &mut link.role {
        Role::Start(waiting) => waiting,
        Role::Control | Role::End(_) => unreachable!("a startpoint's link is one of a startpoint"),
    }
}

fn gone(why: &str) -> Error {
    Error::Lost(format!("the link is over: {why}"))
}

/// A request that is under way; dropping it cancels it. A future, too, with [`Progress::Auto`].
#[must_use = "a request that is dropped is cancelled"]
pub struct Pending<S: Deref<Target = Startpoint>> {
    startpoint: S,
    number: u64,
    /// Its answer is there, and its number belongs to another one now.
    over: bool,
}

impl<S: Deref<Target = Startpoint>> Pending<S> {
    pub(crate) fn new(startpoint: S, number: u64) -> Self {
        Pending { startpoint, number, over: false }
    }

    /// Waits for the answer, at most so long.
    ///
    /// # Errors
    /// As [`Startpoint::call`].
    pub fn wait(mut self, patience: Duration) -> Result<Vec<u8>, Error> {
        let mut answer = Vec::new();
        self.wait_into(&mut answer, patience)?;
        Ok(answer)
    }

    /// [`Pending::wait`] into memory that is there, and once more after a time-out: `answer` is emptied first.
    ///
    /// # Errors
    /// As there. The answer is taken once.
    pub fn wait_into(&mut self, into: &mut Vec<u8>, patience: Duration) -> Result<(), Error> {
        self.wait_for(patience, |bytes| std::mem::swap(into, bytes))
    }

    /// Waits for the answer, which `take` may have; its memory is kept for the next one.
    pub(crate) fn wait_for(&mut self, patience: Duration, mut take: impl FnMut(&mut Vec<u8>)) -> Result<(), Error> {
        let (startpoint, number) = (&*self.startpoint, self.number);
        if self.over {
            return Err(Error::Handler("the answer to this request was taken before".into()));
        }
        let answer = startpoint.next(number, Some(patience), |state, answer| {
            if let Answer::Some(bytes) = answer {
                take(bytes);
                let memory = std::mem::take(bytes);
                startpoint.with(state, |waiting| {
                    waiting.recycle(number, memory);
                    waiting.end(number)
                });
            }
        });
        match answer? {
            Answer::Some(_) => {
                self.over = true;
                Ok(())
            }
            Answer::Refused(why) => Err(why),
            Answer::None => Err(Error::TimedOut(format!("no answer within {patience:?}"))),
            Answer::End => Err(Error::Handler("the handler gave no answer".into())),
        }
    }
}

impl<S: Deref<Target = Startpoint> + Unpin> Future for Pending<S> {
    type Output = Result<Vec<u8>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = match self.startpoint.shared.lock() {
            Ok(state) => state,
            Err(cause) => return Poll::Ready(Err(cause)),
        };
        match self.startpoint.poll(&mut state, self.number, Some(context.waker())) {
            Answer::None => Poll::Pending,
            Answer::Some(bytes) => Poll::Ready(Ok(bytes)),
            Answer::Refused(why) => Poll::Ready(Err(why)),
            Answer::End => Poll::Ready(Err(Error::Handler("the handler gave no answer".into()))),
        }
    }
}

impl<S: Deref<Target = Startpoint>> Drop for Pending<S> {
    fn drop(&mut self) {
        if !self.over {
            self.startpoint.forget(self.number);
        }
    }
}

/// A stream of answers; dropping it cancels the request.
#[must_use = "a request that is dropped is cancelled"]
pub struct Answers<S: Deref<Target = Startpoint>> {
    startpoint: S,
    number: u64,
}

impl<S: Deref<Target = Startpoint>> Answers<S> {
    pub(crate) fn new(startpoint: S, number: u64) -> Self {
        Answers { startpoint, number }
    }

    /// The next answer, waited for at most so long; `None` at the stream's end.
    ///
    /// # Errors
    /// As [`Startpoint::call`].
    pub fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, Error> {
        match self.startpoint.next(self.number, Some(patience), |_, _| ())? {
            Answer::Some(bytes) => Ok(Some(bytes)),
            Answer::End => Ok(None),
            Answer::Refused(why) => Err(why),
            Answer::None => Err(Error::TimedOut(format!("no further answer within {patience:?}"))),
        }
    }

    /// The next answer, for tasks, with [`Progress::Auto`]: what a stream of the futures' world is made of.
    ///
    /// # Errors
    /// As [`Startpoint::call`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, Error>>> {
        let mut state = match self.startpoint.shared.lock() {
            Ok(state) => state,
            Err(cause) => return Poll::Ready(Some(Err(cause))),
        };
        match self.startpoint.poll(&mut state, self.number, Some(context.waker())) {
            Answer::None => Poll::Pending,
            Answer::Some(bytes) => Poll::Ready(Some(Ok(bytes))),
            Answer::Refused(why) => Poll::Ready(Some(Err(why))),
            Answer::End => Poll::Ready(None),
        }
    }
}

impl<S: Deref<Target = Startpoint>> Drop for Answers<S> {
    fn drop(&mut self) {
        self.startpoint.forget(self.number);
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
