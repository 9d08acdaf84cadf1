//! Endpoints: handlers behind numbers, and what the startpoints bound to them may do (secure-nexus paper, section 3.2).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gambeson_proto::record::{Envelope, answer, request};
use gambeson_proto::startpoint::Grant;
use gambeson_proto::suite::Protection;

use crate::error::Error;
use crate::group::{self, Operation};
use crate::identity::Peer;
use crate::region::Memory;
use crate::request::Call;
use crate::shared::Shared;
use crate::state::SessionKey;
use crate::transform::Selected;

/// What an endpoint is made with, and its startpoints inherit.
#[derive(Clone, Debug)]
pub struct Attributes {
    pub(crate) class: String,
    pub(crate) protection: Protection,
    pub(crate) message_max: usize,
    pub(crate) transforms: Vec<String>,
}

impl Default for Attributes {
    /// Class `data`, protected as the policy says, messages of up to 64 MiB.
    fn default() -> Self {
        Attributes { class: "data".into(), protection: Protection::None, message_max: 64 << 20, transforms: Vec::new() }
    }
}

impl Attributes {
    /// The class of its links, by which policy rules go; up to 32 letters, digits, `-`, `_` and `.`.
    #[must_use]
    pub fn class(mut self, class: &str) -> Self {
        self.class = class.into();
        self
    }

    /// How its links are protected at the least, whatever the policies of both ends say.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Sends requests and answers through this module, behind those that were named before and in front of the
    /// protection, which is always there. `zstd` is one of every domain; more come with [`crate::Config::transform`].
    ///
    /// What compresses shows with the length of a sealed message something of its contents: see docs/links.md.
    #[must_use]
    pub fn transform(mut self, name: &str) -> Self {
        self.transforms.push(name.into());
        self
    }

    /// The longest message that it takes, in bytes, as the handler gets it. What is longer is refused, and its link goes on.
    #[must_use]
    pub fn message_max(mut self, bytes: usize) -> Self {
        self.message_max = bytes;
        self
    }
}

/// Why a message is refused that has so many bytes.
pub(crate) fn too_long(size: u64, message_max: u64) -> String {
    format!(
        "the message has {size} bytes, and the endpoint takes {message_max} at most; send it in parts, or let the endpoint's \
         owner take longer ones (message_max)"
    )
}

type Inline = Box<dyn Fn(&mut Call<'_>) + Send + Sync>;
type Taker = Arc<dyn Fn(Request) + Send + Sync>;

pub(crate) enum Handler {
    /// Runs where the request arrives, at once. It may answer and must not wait.
    Inline(Inline),
    /// Gets the request for itself: on a thread of the domain's pool, or where it arrives, to put it by.
    Taking { take: Taker, threaded: bool },
}

/// The handlers of an endpoint, before it is there.
#[derive(Default)]
pub struct Handlers(pub(crate) Vec<(u32, Handler)>);

impl Handlers {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Handlers::default()
    }

    /// A handler that runs where the request arrives, between two others: the fastest way, for what only answers. It
    /// must not wait for anything, and may not use its own domain but to answer.
    #[must_use]
    pub fn inline(mut self, number: u32, handler: impl Fn(&mut Call<'_>) + Send + Sync + 'static) -> Self {
        self.0.push((number, Handler::Inline(Box::new(handler))));
        self
    }

    /// Passes messages of groups on ([`crate::Domain::group`]), on threads of the domain's, and combines the answers, also
    /// by these operations of the program's own. Whoever may call that handler ([`crate::FORWARD`]) has this domain connect
    /// where the startpoints lead that he hands it.
    #[must_use]
    pub fn forwards(self, operations: impl IntoIterator<Item = Operation>) -> Self {
        let operations: Vec<Operation> = operations.into_iter().collect();
        self.threaded(group::FORWARD, move |request| group::forward(request, &operations))
    }

    /// A handler that runs where the request arrives and only puts it by, for a thread of the program's that takes it later.
    /// As long as nobody drops or answers the request, what it takes of the link's window stays taken: who does not keep up
    /// holds the sender up. It must not wait for anything, and may not use its own domain.
    #[must_use]
    pub fn queued(mut self, number: u32, handler: impl Fn(Request) + Send + Sync + 'static) -> Self {
        self.0.push((number, Handler::Taking { take: Arc::new(handler), threaded: false }));
        self
    }

    /// A handler that runs on a thread of its own among few, and may do what it likes.
    #[must_use]
    pub fn threaded(mut self, number: u32, handler: impl Fn(Request) + Send + Sync + 'static) -> Self {
        self.0.push((number, Handler::Taking { take: Arc::new(handler), threaded: true }));
        self
    }
}

pub(crate) struct Table {
    pub(crate) attributes: Attributes,
    pub(crate) modules: Selected,
    handlers: Vec<(u32, Handler)>,
    regions: Mutex<Regions>,
}

/// The memory regions of an endpoint that somebody holds.
#[derive(Default)]
struct Regions {
    next: u64,
    by_number: BTreeMap<u64, Weak<Memory>>,
}

impl Table {
    pub(crate) fn new(attributes: Attributes, handlers: Handlers, modules: Selected) -> Result<Self, Error> {
        let mut handlers = handlers.0;
        handlers.sort_by_key(|&(number, _)| number);
        if let Some(pair) = handlers.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::Startpoint(format!("handler {} is there twice; number each once", pair[0].0)));
        }
        Ok(Table { attributes, modules, handlers, regions: Mutex::default() })
    }

    pub(crate) fn find(&self, number: u32) -> Option<&Handler> {
        let at = match self.handlers.get(number as usize) {
            Some(&(there, _)) if there == number => number as usize,
            _ => self.handlers.binary_search_by_key(&number, |&(number, _)| number).ok()?,
        };
        Some(&self.handlers[at].1)
    }

    /// Enters a region that `make` makes of its number.
    pub(crate) fn enter(&self, make: impl FnOnce(u64) -> Arc<Memory>) -> Arc<Memory> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = make(regions.next);
        regions.next += 1;
        regions.by_number.insert(memory.number(), Arc::downgrade(&memory));
        memory
    }

    /// The region of this number, if somebody holds it.
    pub(crate) fn region(&self, number: u64) -> Option<Arc<Memory>> {
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.by_number.get(&number)?.upgrade()
    }

    /// Nobody holds a region any more.
    pub(crate) fn leave(&self, number: u64) {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner).by_number.remove(&number);
    }
}

/// What a link is bound to at its endpoint.
pub(crate) struct Binding {
    pub(crate) table: Arc<Table>,
    pub(crate) grant: Grant,
}

/// Which link a request came over; of one domain, no two links have the same, nor ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkName(SessionKey, u64);

/// A request at its endpoint, as a threaded or queued handler gets it.
pub struct Request {
    /// The handler's number.
    pub handler: u32,
    /// What was sent.
    pub payload: Vec<u8>,
    /// Who sent it, proved.
    pub peer: Arc<Peer>,
    pub(crate) reply: Reply,
}

impl Request {
    /// Answers; of a stream, the last word. One-way requests take none.
    pub fn answer(self, bytes: &[u8]) {
        let mut reply = self.reply;
        reply.send(bytes, answer::LAST);
    }

    /// Sends one of a stream of answers, and waits until its reader has room for it.
    ///
    /// # Errors
    /// When nobody waits for the answers any more: the request was cancelled, or the link is over. When it was none for a
    /// stream.
    pub fn item(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.reply.flags & request::STREAM == 0 {
            return Err(Error::Handler("the request is for one answer and not for a stream of them".into()));
        }
        self.reply.send(bytes, 0);
        match self.reply.shared.upgrade() {
            Some(shared) => shared.until_room(self.reply.to),
            None => Err(Error::Lost("the domain has closed".into())),
        }
    }

    /// Which link it came over.
    #[must_use]
    pub fn link(&self) -> LinkName {
        LinkName(self.reply.to.session, self.reply.to.link)
    }

    /// The channel binding of the session that it came over (RFC 9266); nothing, if that is over, or in a handler that is
    /// not threaded. [`crate::Startpoint::binding`] is the same at the other end.
    #[must_use]
    pub fn binding(&self) -> Option<[u8; 32]> {
        let shared = self.shared()?;
        let state = shared.lock().ok()?;
        state.sessions.get(self.reply.to.session).map(|session| session.binding)
    }

    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.reply.shared.upgrade()
    }

    /// Has another request of the same link handled, which came inside this one.
    pub(crate) fn unpack(&self, shared: &Shared, envelope: Envelope, bytes: Vec<u8>) {
        let Ok(mut state) = shared.lock() else { return };
        if let Some(session) = state.sessions.get_mut(self.reply.to.session) {
            session.park(self.reply.to.link, envelope, bytes);
        }
        state.progress(shared);
    }

    /// Whether nobody waits for an answer any more: the request was cancelled, it was one-way, or the link is over.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.reply.shared.upgrade().is_none_or(|shared| !shared.is_open(self.reply.to))
    }

    /// Says no, and why.
    pub fn refuse(self, why: &str) {
        let mut reply = self.reply;
        reply.send(why.as_bytes(), answer::LAST | answer::REFUSED);
    }
}

/// Where a request came from.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) session: SessionKey,
    pub(crate) link: u64,
    pub(crate) request: u64,
    /// What the request costs until it is handled.
    pub(crate) credit: usize,
}

/// Where an answer goes that comes later.
pub(crate) struct Reply {
    pub(crate) shared: Weak<Shared>,
    pub(crate) to: Origin,
    pub(crate) flags: u8,
    pub(crate) done: bool,
}

impl Reply {
    fn send(&mut self, bytes: &[u8], flags: u8) {
        if self.done || self.flags & (request::ANSWER | request::STREAM) == 0 {
            return;
        }
        self.done = flags & answer::LAST != 0;
        if let Some(shared) = self.shared.upgrade() {
            shared.answer(self.to, bytes, flags);
        }
    }
}

impl Drop for Reply {
    /// Nobody waits for ever: what a handler left open is closed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.send(b"the handler panicked", answer::LAST | answer::REFUSED);
        } else if self.flags & request::STREAM != 0 {
            self.send(&[], answer::LAST | answer::END);
        } else {
            self.send(b"the handler gave no answer", answer::LAST | answer::REFUSED);
        }
        if let Some(shared) = self.shared.upgrade() {
            let to = self.to;
            shared.tell(move |state| state.handled(&to));
        }
    }
}
