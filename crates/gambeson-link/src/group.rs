//! Multicast to a set of startpoints, and reduction of their answers back (secure-nexus paper, sections 3.2 and 5.1).
//!
//! A large group is split into [`WIDTH`] parts. The first member of each, if its endpoint does so
//! ([`crate::Handlers::forwards`]), passes the message on to the rest of its part, which it splits again; what comes back it
//! combines. Its own request is in what it is asked, and is handled as if it had come alone. It is handed copies of the
//! rest's startpoints, bound to its key, for which nobody is asked.
//!
//! ```text
//!  caller ──> 0 ──> 1, 2, 3          every member is called once, by the caller or by whom it comes through
//!         ──> 4 ──> 5, 6, 7          0 + (1 + 2 + 3), then + (4 + (5 + 6 + 7)): the same sum whatever the way and the time
//! ```
//!
//! Who passes something on could read and alter it, messages and answers alike. A group whose members do not trust each
//! other so far is called flat.

mod operation;
mod wire;

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use gambeson_proto::record::{self, Envelope, Kind};
use gambeson_proto::startpoint::{AddressKind as Transport, Startpoint as Capability};
use zeroize::Zeroizing;

pub use operation::Operation;
use wire::{Message, Outcome, Work};

use crate::domain::{Domain, bind, copy_for};
use crate::endpoint::Request;
use crate::error::Error;
use crate::identity::KeyHash;
use crate::shared::Shared;
use crate::startpoint::{Pending, Startpoint};

/// The handler by which endpoints pass messages of groups on. A startpoint that allows only some handlers has to allow this
/// one, too, if its endpoint shall do that.
pub const FORWARD: u32 = u32::MAX;

/// Parts of a group, each of which goes by one way. Groups of so many members or fewer are flat.
const WIDTH: usize = 8;
/// Members that are connected to at the same time.
const CONNECTING: usize = 64;
/// Groups whose links who passes something on keeps for the next time.
const KEPT: usize = 16;

/// A set of endpoints that are called together, with their order.
pub struct Group {
    shared: Arc<Shared>,
    members: Vec<Member>,
    flat: bool,
}

struct Member {
    capability: Capability,
    link: Mutex<Option<Arc<Startpoint>>>,
    /// Found not to pass anything on.
    refuses: AtomicBool,
    /// The startpoints of the rest of its part, bound to it; `None`: they cannot be.
    rest: OnceLock<Option<Zeroizing<Vec<u8>>>>,
}

impl Domain {
    /// A group of the endpoints that these startpoints lead to. Nothing is connected to until it is called.
    #[must_use]
    pub fn group(&self, members: impl IntoIterator<Item = Capability>) -> Group {
        Group::new(&self.shared, members)
    }
}

impl Group {
    fn new(shared: &Arc<Shared>, members: impl IntoIterator<Item = Capability>) -> Self {
        let member = |capability| Member {
            capability,
            link: Mutex::default(),
            refuses: AtomicBool::new(false),
            rest: OnceLock::new(),
        };
        Group { shared: shared.clone(), members: members.into_iter().map(member).collect(), flat: false }
    }

    /// The same group, all of whose members are called by this domain itself: nobody passes anything on.
    #[must_use]
    pub fn flat(mut self) -> Self {
        self.flat = true;
        self
    }

    /// How many members it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Sends a request that nobody answers to all members; for each, whether it went, within `patience`.
    ///
    /// # Errors
    /// For each member as [`Domain::startpoint`] and [`Startpoint::send`], with the member named, and with whom it was to
    /// come through. That a handler refuses it shows nowhere.
    pub fn send(&self, handler: u32, payload: &[u8], patience: Duration) -> Vec<Result<(), Error>> {
        self.each(Work::Send, handler, payload, patience).into_iter().map(|sent| sent.map(drop)).collect()
    }

    /// Calls all members; their answers, in their order.
    ///
    /// # Errors
    /// For each member as [`Startpoint::call`], with the member named, and with whom it was to come through. When somebody
    /// who passes it on is lost, all that it was to be passed on to are; they may have been called.
    pub fn call(&self, handler: u32, payload: &[u8], patience: Duration) -> Vec<Result<Vec<u8>, Error>> {
        self.each(Work::Call, handler, payload, patience)
    }

    /// Calls all members and combines their answers by an operation, always in the same order and grouping, whether it is
    /// called flat or not. Empty of an empty group.
    ///
    /// # Errors
    /// The first member's that gave no answer, as of [`Group::call`]; and the operation's.
    pub fn reduce(
        &self,
        handler: u32,
        payload: &[u8],
        operation: &Operation,
        patience: Duration,
    ) -> Result<Vec<u8>, Error> {
        // What is called flat is combined in the same grouping when all of it is here.
        let work = if self.flat { Work::Call } else { Work::Reduce(operation) };
        let message = Message { work, handler, payload };
        let outcome = self.list(0..self.len(), &message, Instant::now() + patience);
        outcome.combined(operation).map_err(|(at, why)| self.named(at, why))
    }

    fn each(&self, work: Work<'_>, handler: u32, payload: &[u8], patience: Duration) -> Vec<Result<Vec<u8>, Error>> {
        let message = Message { work, handler, payload };
        let Outcome::Each(all) = self.list(0..self.len(), &message, Instant::now() + patience) else {
            unreachable!("nothing is combined but for a reduction");
        };
        all.into_iter().enumerate().map(|(at, one)| one.map_err(|why| self.named(at, why))).collect()
    }

    fn named(&self, at: usize, why: Error) -> Error {
        let Some(member) = self.members.get(at) else { return why };
        why.within(&format!("member {at} at {}", member.place()))
    }

    /// Brings a message to these members, and their answers back.
    fn list(&self, range: Range<usize>, message: &Message<'_>, deadline: Instant) -> Outcome {
        if range.is_empty() {
            return Outcome::Each(Vec::new());
        }
        // Threads that connect for a handler that holds the domain would wait for it.
        if let Err(why) = self.shared.lock().map(drop) {
            return Outcome::all(range.len(), &why);
        }
        let parts: Vec<Range<usize>> =
            parts(range.len(), self.flat).map(|part| range.start + part.start..range.start + part.end).collect();
        let started = self.begin(&parts, message, deadline);
        let mut whole = Outcome::Each(Vec::with_capacity(range.len()));
        for (part, Started { head, rest }) in parts.into_iter().zip(started) {
            let member = &self.members[part.start];
            let behind = part.start + 1..part.end;
            let passed_on = rest.and_then(|pending| match pending.wait(left(deadline)) {
                // What it says no to it has not done.
                Err(Error::Handler(_) | Error::Startpoint(_)) => {
                    member.refuses.store(true, Ordering::Relaxed);
                    None
                }
                came => {
                    let came = came.and_then(|answer| Outcome::decode(&answer, behind.len(), message.operation()));
                    let came = came.unwrap_or_else(|why| Outcome::all(behind.len(), &why));
                    Some(came.within(&format!("through the one at {}", member.place())))
                }
            });
            let head = match head {
                // It was to be passed on, too.
                Ok((link, Head::Inside(_))) if passed_on.is_none() => {
                    direct(&link, message).and_then(|head| head.wait(&link, deadline))
                }
                head => head.and_then(|(link, head)| head.wait(&link, deadline)),
            };
            if matches!(head, Err(Error::Lost(_))) {
                *member.link() = None;
            }
            let rest = passed_on.unwrap_or_else(|| self.list(behind, message, deadline));
            let before = part.start - range.start;
            whole = whole.and(Outcome::Each(vec![head]).and(rest, 1, message.operation()), before, message.operation());
        }
        whole
    }

    /// Begins all parts: at once where there are links, and where there are none, as soon as there are. Who is not to be
    /// reached holds nobody else up.
    fn begin(&self, parts: &[Range<usize>], message: &Message<'_>, deadline: Instant) -> Vec<Started> {
        let is_there = |part: &Range<usize>| self.members[part.start].link().is_some();
        let (there, missing): (Vec<usize>, Vec<usize>) = (0..parts.len()).partition(|at| is_there(&parts[*at]));
        // What is behind one that cannot be reached has the other half of the time.
        let half = Instant::now() + left(deadline) / 2;
        let one = |at: usize| {
            let link = self.members[parts[at].start].bound(&self.shared, half);
            (at, self.start(&parts[at], link, message, deadline))
        };
        let mut started: Vec<(usize, Started)> = there.into_iter().map(one).collect();
        let next = AtomicUsize::new(0);
        let connect = || std::iter::from_fn(|| missing.get(next.fetch_add(1, Ordering::Relaxed)).map(|at| one(*at)));
        if missing.len() == 1 {
            started.extend(connect());
        } else {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..missing.len().min(CONNECTING)).map(|_| scope.spawn(|| connect().collect::<Vec<_>>())).collect();
                threads
                    .into_iter()
                    .for_each(|thread| started.extend(thread.join().expect("connecting does not panic")));
            });
        }
        started.sort_unstable_by_key(|(at, _)| *at);
        started.into_iter().map(|(_, started)| started).collect()
    }

    /// Sends the message to the first of a part, to be passed on if it can be.
    fn start(
        &self,
        part: &Range<usize>,
        link: Result<Arc<Startpoint>, Error>,
        message: &Message<'_>,
        deadline: Instant,
    ) -> Started {
        let link = match link {
            Ok(link) => link,
            Err(why) => return Started { head: Err(why), rest: None },
        };
        let member = &self.members[part.start];
        let copies = if part.len() > 1 && !member.refuses.load(Ordering::Relaxed) { self.copies(part) } else { None };
        let begin = |copies| {
            let (number, own) = match message.work {
                Work::Send => (0, None),
                Work::Call | Work::Reduce(_) => link.promise().map(|(number, own)| (number, Some(own)))?,
            };
            // Who passes it on has to answer before we give up.
            let request = message.encode(number, left(deadline) * 7 / 8, copies);
            Ok::<_, Error>((Head::Inside(own), link.start_owned(FORWARD, &request)?))
        };
        let (head, rest) = match copies.map(begin) {
            Some(Ok((head, rest))) => (Ok(head), Some(rest)),
            Some(Err(_)) | None => (direct(&link, message), None),
        };
        Started { head: head.map(|head| (link, head)), rest }
    }

    /// The startpoints of the rest of a part for its first; `None`: they cannot be copied.
    fn copies(&self, part: &Range<usize>) -> Option<&[u8]> {
        let first = &self.members[part.start];
        let holder = KeyHash(*first.capability.owner());
        let rest = first.rest.get_or_init(|| {
            let rest = &self.members[part.start + 1..part.end];
            let copies = rest.iter().map(|member| copy_for(&self.shared, &member.capability, holder));
            copies.collect::<Result<Vec<_>, _>>().ok().map(|copies| wire::list(&copies))
        });
        rest.as_ref().map(|bytes| &bytes[..])
    }
}

/// Sends the message to one member alone.
fn direct(link: &Arc<Startpoint>, message: &Message<'_>) -> Result<Head, Error> {
    match message.work {
        Work::Send => link.post(message.handler, message.payload).map(|()| Head::Sent),
        Work::Call | Work::Reduce(_) => link.start_owned(message.handler, message.payload).map(Head::Called),
    }
}

/// How so many members are split, in their order: the same everywhere, and with it how their answers are grouped.
fn parts(count: usize, flat: bool) -> impl Iterator<Item = Range<usize>> {
    let parts = if flat || count <= WIDTH { count } else { WIDTH };
    (0..parts).map(move |at| at * count / parts..(at + 1) * count / parts)
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

impl Member {
    fn link(&self) -> MutexGuard<'_, Option<Arc<Startpoint>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bound(&self, shared: &Arc<Shared>, deadline: Instant) -> Result<Arc<Startpoint>, Error> {
        let mut link = self.link();
        if let Some(link) = &*link {
            return Ok(link.clone());
        }
        let bound = Arc::new(bind(shared, &self.capability, None, left(deadline))?);
        *link = Some(bound.clone());
        Ok(bound)
    }

    /// Where it is, for people.
    fn place(&self) -> String {
        let tcp = self.capability.addresses().iter().find(|address| address.kind == Transport::Tcp);
        let key = || format!("no address, with key {}", KeyHash(*self.capability.owner()));
        tcp.map_or_else(key, |address| address.text.clone())
    }
}

/// What was begun for one part.
struct Started {
    head: Result<(Arc<Startpoint>, Head), Error>,
    /// If the first of the part was asked to call the rest of it.
    rest: Option<Pending<Arc<Startpoint>>>,
}

enum Head {
    Sent,
    Called(Pending<Arc<Startpoint>>),
    /// Its request is in what it is to pass on.
    Inside(Option<Pending<Arc<Startpoint>>>),
}

impl Head {
    fn wait(self, link: &Startpoint, deadline: Instant) -> Result<Vec<u8>, Error> {
        match self {
            Head::Called(pending) | Head::Inside(Some(pending)) => pending.wait(left(deadline)),
            Head::Sent | Head::Inside(None) => match link.flush(left(deadline))? {
                true => Ok(Vec::new()),
                false => Err(Error::TimedOut("it did not take the message in time".into())),
            },
        }
    }
}

/// The groups for which a domain passes messages on, with their links, for the next time.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Keeping>);

#[derive(Default)]
struct Keeping {
    closed: bool,
    /// By what was handed over, the one used last at the end.
    groups: VecDeque<([u8; 32], Arc<Group>)>,
}

impl Keeping {
    fn take(&mut self, name: &[u8; 32]) -> Option<Arc<Group>> {
        let at = self.groups.iter().position(|(other, _)| other == name)?;
        self.groups.remove(at).map(|(_, group)| group)
    }
}

impl Kept {
    fn group(&self, shared: &Arc<Shared>, list: &[u8]) -> Option<Arc<Group>> {
        let name: [u8; 32] = digest(&SHA256, list).as_ref().try_into().expect("SHA-256 has 32 bytes");
        let mut keeping = self.lock();
        let group = match keeping.take(&name) {
            Some(group) => group,
            None => Arc::new(Group::new(shared, wire::startpoints(list)?)),
        };
        if !keeping.closed {
            keeping.groups.push_back((name, group.clone()));
        }
        let beyond = if keeping.groups.len() > KEPT { keeping.groups.pop_front() } else { None };
        drop(keeping);
        // Its links take the domain's lock when they go, and must not have this one.
        drop(beyond);
        Some(group)
    }

    /// The domain closes: its links must not keep it.
    pub(crate) fn close(&self) {
        let mut keeping = self.lock();
        keeping.closed = true;
        let groups = std::mem::take(&mut keeping.groups);
        drop(keeping);
        drop(groups);
    }

    fn lock(&self) -> MutexGuard<'_, Keeping> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes a message on to those it is for, and answers with what they say. It says no to what it has not begun, and to
/// nothing else.
pub(crate) fn forward(mut request: Request, operations: &[Operation]) {
    let bytes = Zeroizing::new(std::mem::take(&mut request.payload));
    let Some(shared) = request.shared() else { return };
    let Some(asked) = wire::Asked::decode(&bytes) else {
        return request.refuse("the message of a group cannot be read; use the same Gambeson at both ends");
    };
    let Some(group) = shared.groups.group(&shared, asked.list) else {
        return request.refuse("the startpoints of a group cannot be read; use the same Gambeson at both ends");
    };
    let own = |name: &str| operations.iter().find(|operation| operation.name() == name);
    // What cannot be combined here is where all of it comes together.
    let work = match asked.work {
        wire::SEND => Work::Send,
        wire::REDUCE => Operation::built_in(asked.operation).or(own(asked.operation)).map_or(Work::Call, Work::Reduce),
        _ => Work::Call,
    };
    let message = Message { work, handler: asked.handler, payload: asked.payload };
    let deadline = Instant::now() + asked.patience;
    let flags = if asked.work == wire::SEND { 0 } else { record::request::ANSWER };
    let (tag, size, data) = (asked.handler.into(), asked.payload.len() as u64, asked.own);
    let own = Envelope { flags, tag, size, data, ..Envelope::new(Kind::Request) };
    request.unpack(&shared, own, asked.payload.to_vec());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let outcome = group.list(0..group.len(), &message, deadline);
        outcome.encode()
    }));
    // Nobody can read no bytes as an answer: that somebody's operation panicked may not look as if nothing was begun.
    request.answer(&outcome.unwrap_or_default());
}
