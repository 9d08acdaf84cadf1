//! One link: its security context in both directions, its credit, and the messages that go over it in records.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::ThreadId;

use gambeson_pages::huge;
use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::key_schedule::{PairRoots, Root};
use gambeson_proto::record::{Envelope, Header, Kind, Mode, Origin, Payload, Plan, answer, credit, end, request};
use gambeson_proto::session::{EpochLimits, ReceiveSession, SendSession};
use gambeson_proto::suite::{Protection, Suite};

use crate::answers::Answers;
use crate::endpoint::Binding;
use crate::request::Waiting;
use crate::source::Source;
use crate::stream::Outgoing;
use crate::transform::{self, Stack};

/// Bytes of payload in a record: long enough that its fixed costs vanish, short enough that sealing, the carrier and
/// opening overlap.
pub(crate) const RECORD_MAX: usize = 64 << 10;
/// Bytes that one end of a link may have under way or unhandled at the other.
pub(crate) const WINDOW: usize = 2 << 20;
/// Room for a long message, once a quarter of the window of it has come.
const ROOM: usize = 64 << 20;
/// What a record costs beside its payload.
const COST: usize = 64;

/// A link in one of its sessions.
pub(crate) struct Link {
    number: u64,
    protection: Protection,
    send: SendSession,
    receive: ReceiveSession,
    /// Bytes that we may still send.
    credit: usize,
    /// Credit that the peer used, and of that what is handled and not yet given back.
    used: usize,
    owed: usize,
    /// Messages, or what is left of them, that found no credit.
    queue: VecDeque<Queued>,
    assembling: Option<Box<Assembling>>,
    /// Who packs a message here, which goes before all that waits.
    packer: Option<ThreadId>,
    /// What an endpoint's end owes, if there is anything.
    answers: Option<Box<Answers>>,
    pub(crate) role: Role,
    /// Its transform modules, if it has any.
    pub(crate) stack: Option<Box<Stack>>,
}

/// Which end of the link this is.
pub(crate) enum Role {
    /// A session's own link.
    Control,
    /// The startpoint's.
    Start(Box<Waiting>),
    /// The endpoint's.
    End(Arc<Binding>),
}

struct Queued {
    envelope: Envelope,
    bytes: Vec<u8>,
    /// Bytes that went; `None`: not even the envelope did.
    gone: Option<usize>,
}

struct Assembling {
    envelope: Envelope,
    /// What has come; `None`: more than is taken will, and nothing of it is kept.
    bytes: Option<Vec<u8>>,
    /// How many of its bytes have come, and will come in all.
    came: usize,
    size: usize,
    /// Credit held back until the message is handled.
    held: usize,
}

/// A record whose author is proved and whose turn it is.
pub(crate) enum Received<'r> {
    /// A message, whole, with the credit that handling it frees.
    Whole(Envelope, Bytes<'r>, usize),
    /// Part of a message.
    Part,
    /// A message that is longer than what is taken, all of which has come and was thrown away.
    TooLong(Envelope, usize),
}

/// A message's payload: in the record, or put together from several.
pub(crate) enum Bytes<'r> {
    Here(&'r [u8]),
    Own(Vec<u8>),
}

impl Bytes<'_> {
    pub(crate) fn get(&self) -> &[u8] {
        match self {
            Bytes::Here(bytes) => bytes,
            Bytes::Own(bytes) => bytes,
        }
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Bytes::Here(bytes) => bytes.to_vec(),
            Bytes::Own(bytes) => bytes,
        }
    }
}

/// Why a record is not taken; each is the end of its carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unacceptable(pub(crate) &'static str);

impl Link {
    pub(crate) fn new(number: u64, roots: PairRoots, suite: Suite, protection: Protection, role: Role) -> Self {
        let sending = |root: Root| SendSession::new(root, suite, protection, EpochLimits::default());
        Link {
            number,
            protection,
            send: sending(roots.send),
            receive: ReceiveSession::new(roots.receive, suite, protection),
            credit: WINDOW,
            used: 0,
            owed: 0,
            queue: VecDeque::new(),
            assembling: None,
            packer: None,
            answers: None,
            role,
            stack: None,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Records that were sealed, and those that came.
    pub(crate) fn records(&self) -> (u64, u64) {
        (self.send.next_sequence(), self.receive.expected())
    }

    /// Whether nobody on the way can take its records for others.
    pub(crate) fn is_protected(&self) -> bool {
        self.protection != Protection::None
    }

    /// Bytes that wait here for the peer, or for the rest of a message.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn burden(&self) -> usize {
        let bytes = self.assembling.as_ref().and_then(|assembling| assembling.bytes.as_ref());
        let assembling = bytes.map_or(0, Vec::capacity);
        assembling + self.queue.iter().map(|queued| queued.bytes.len()).sum::<usize>()
    }

    /// Whether all that was sent has gone into the session's stream.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// The transform modules. One branch for links that have none, which a measurement leaves out: see
    /// tools/link_branch.py.
    fn stack(&mut self) -> Option<&mut Stack> {
        if cfg!(without_transforms) { None } else { self.stack.as_deref_mut() }
    }

    /// Sends a request or an answer, from wherever its bytes are, through the link's transform modules. Nothing is sent if
    /// one does not take it.
    pub(crate) fn transmit<S: Source + ?Sized>(
        &mut self,
        out: &mut Outgoing,
        cache: &mut KeyCache,
        mut envelope: Envelope,
        bytes: &S,
    ) -> Result<(), String> {
        let Some(stack) = self.stack().filter(|_| is_transformed(&envelope)) else {
            self.send(out, cache, envelope, bytes);
            return Ok(());
        };
        let message = stack.apply(bytes)?;
        (envelope.id, envelope.size) = (bytes.len() as u64, message.len() as u64);
        self.send(out, cache, envelope, &message[..]);
        self.stack().expect("it was there").recycle(message);
        Ok(())
    }

    /// Undoes what the other end's transform modules did to a message that [`Link::open`] found not too long.
    pub(crate) fn restore<'r>(
        &mut self,
        envelope: &Envelope,
        bytes: Bytes<'r>,
        message_max: usize,
    ) -> Result<Bytes<'r>, String> {
        let Some(stack) = self.stack().filter(|_| is_transformed(envelope)) else { return Ok(bytes) };
        stack.restore(bytes.into_vec(), envelope.id as usize, message_max).map(Bytes::Own)
    }

    /// Why a message is not taken that is longer than what is.
    pub(crate) fn too_long(&mut self, envelope: &Envelope, message_max: usize) -> String {
        let transformed = is_transformed(envelope);
        let size = said(self.stack().is_some() && transformed, envelope);
        let why = match self.role {
            Role::Start(_) => format!("the answer has {size} bytes, and more than {message_max} are not taken"),
            Role::Control | Role::End(_) => crate::endpoint::too_long(size, message_max as u64),
        };
        // A module that remembers goes without it, and would not restore what comes behind it.
        match self.stack().filter(|_| transformed) {
            Some(stack) => stack.missed(why),
            None => why,
        }
    }

    /// A message came that is too long, or that the transform modules did not restore: whoever waits hears why.
    pub(crate) fn refuse(&mut self, out: &mut Outgoing, cache: &mut KeyCache, envelope: Envelope, why: &str) {
        match &mut self.role {
            Role::Start(waiting) => {
                let refused = Envelope { flags: answer::LAST | answer::REFUSED, ..envelope };
                waiting.answered(&refused, why.as_bytes());
                // Of a stream, what comes behind it is of no use.
                if envelope.flags & answer::LAST == 0 {
                    self.cancel(out, cache, envelope.data);
                }
            }
            Role::End(_) => {
                if envelope.flags & request::STREAM != 0 {
                    self.answers().begin(envelope.data);
                }
                let mut responder = crate::request::Responder {
                    link: self,
                    out,
                    cache,
                    request: envelope.data,
                    flags: envelope.flags,
                    done: false,
                };
                responder.refuse(why);
            }
            Role::Control => {}
        }
    }

    /// Sends a message, now or when there is credit; what has to wait is copied.
    pub(crate) fn send<S: Source + ?Sized>(
        &mut self,
        out: &mut Outgoing,
        cache: &mut KeyCache,
        envelope: Envelope,
        bytes: &S,
    ) {
        let gone = if self.queue.is_empty() && self.packer.is_none() {
            self.emit(out, cache, envelope, bytes, None)
        } else {
            None
        };
        if gone != Some(bytes.len()) {
            let begun = gone.unwrap_or(0);
            let gone = gone.map(|_| 0);
            let mut rest = Vec::with_capacity(bytes.len() - begun);
            bytes.append(begun, &mut rest);
            self.queue.push_back(Queued { envelope, bytes: rest, gone });
        }
    }

    /// Goes on with messages that waited.
    pub(crate) fn pump(&mut self, out: &mut Outgoing, cache: &mut KeyCache) {
        while self.packer.is_none()
            && let Some(mut queued) = self.queue.pop_front()
        {
            queued.gone = self.emit(out, cache, queued.envelope, &queued.bytes[..], queued.gone);
            if queued.gone != Some(queued.bytes.len()) {
                self.queue.push_front(queued);
                return;
            }
        }
        self.give_back(out, cache);
    }

    /// Takes the link for a message that is packed, if it is free.
    pub(crate) fn begin_pack(&mut self, packer: ThreadId) -> bool {
        let free = self.packer.is_none() && self.queue.is_empty();
        if free {
            self.packer = Some(packer);
        }
        free
    }

    /// Whether this thread packs here: it would wait for itself.
    pub(crate) fn is_packed_here(&self) -> bool {
        self.packer.is_some_and(|packer| packer == std::thread::current().id())
    }

    /// Ends a message that was packed, or gives it up; its number. It costs no credit: who gives up cannot wait for some.
    pub(crate) fn end_pack(&mut self, out: &mut Outgoing, cache: &mut KeyCache, flags: Option<u8>) -> u64 {
        let number = match &mut self.role {
            Role::Start(waiting) if flags.is_some_and(|flags| flags != 0) => waiting.begin(),
            _ => 0,
        };
        let flags = flags.unwrap_or(end::ABANDONED);
        self.seal(out, cache, Envelope { flags, data: number, ..Envelope::new(Kind::End) }, &[]);
        self.leave_pack(out, cache);
        number
    }

    /// What waited goes on.
    pub(crate) fn leave_pack(&mut self, out: &mut Outgoing, cache: &mut KeyCache) {
        self.packer = None;
        self.pump(out, cache);
    }

    /// Emits records of a message from where it is; how far it came.
    pub(crate) fn emit<S: Source + ?Sized>(
        &mut self,
        out: &mut Outgoing,
        cache: &mut KeyCache,
        first: Envelope,
        bytes: &S,
        mut gone: Option<usize>,
    ) -> Option<usize> {
        let stacked = self.stack().is_some();
        while gone != Some(bytes.len()) {
            let from = gone.unwrap_or(0);
            let len = (bytes.len() - from).min(RECORD_MAX);
            let envelope = if gone.is_none() { first } else { Envelope::new(Kind::More) };
            if !matches!(self.role, Role::Control) {
                let waits = matches!(&self.role, Role::Start(waiting) if !waiting.may_send());
                let cost = len + COST + growth(stacked, &envelope);
                if waits || self.credit < cost || !out.has_room() {
                    break;
                }
                self.credit -= cost;
            }
            self.seal_from(out, cache, envelope, bytes.part(from, len), len);
            gone = Some(from + len);
        }
        gone
    }

    pub(crate) fn seal(&mut self, out: &mut Outgoing, cache: &mut KeyCache, envelope: Envelope, bytes: &[u8]) {
        self.seal_from(out, cache, envelope, bytes, bytes.len());
    }

    fn seal_from(
        &mut self,
        out: &mut Outgoing,
        cache: &mut KeyCache,
        envelope: Envelope,
        bytes: impl Origin,
        len: usize,
    ) {
        let stamp = self.send.take(1, len + gambeson_proto::record::ENVELOPE_LEN);
        // 2^63 records, or 2^32 epochs of 2^32 records: no program lives that long.
        let stamp = stamp.expect("a link has sequences for longer than a computer runs");
        let connection = u64::from(out.turn()) << 32 | self.number;
        let plan = Plan { stamp, connection, introduction: None, envelope, payload: len, mode: Mode::default() };
        let record = out.record(plan.len());
        plan.seal(self.send.context(cache, stamp.epoch), self.protection, bytes, record);
    }

    /// A message of the peer's was handled: what it took is free again.
    pub(crate) fn handled(&mut self, out: &mut Outgoing, cache: &mut KeyCache, credit: usize) {
        self.owed += credit;
        self.give_back(out, cache);
    }

    /// Credit goes back to the peer once there is enough to be worth a record. Not while answers wait here for the peer to
    /// take them: who asks and does not listen can ask no more, or they would pile up without a bound.
    pub(crate) fn give_back(&mut self, out: &mut Outgoing, cache: &mut KeyCache) {
        let listens = self.queue.is_empty() || !matches!(self.role, Role::End(_));
        if self.owed >= WINDOW / 4 && listens {
            let envelope = Envelope { size: self.owed as u64, ..Envelope::new(Kind::Credit) };
            self.used -= self.owed;
            self.owed = 0;
            self.seal(out, cache, envelope, &[]);
        }
    }

    /// What this end still owes.
    pub(crate) fn answers(&mut self) -> &mut Answers {
        self.answers.get_or_insert_default()
    }

    /// Whether somebody still waits for a request's answers.
    pub(crate) fn is_open(&self, request: u64) -> bool {
        self.answers.as_ref().is_some_and(|answers| answers.is_open(request))
    }

    /// Answers that waited for their stream's reader go on.
    pub(crate) fn go_on(&mut self, out: &mut Outgoing, cache: &mut KeyCache, request: u64) {
        while let Some((bytes, flags)) = self.answers().next(request) {
            crate::request::answer(self, out, cache, request, flags, &bytes);
        }
    }

    /// So much of a stream of answers was read here: there is room for more.
    pub(crate) fn read(&mut self, out: &mut Outgoing, cache: &mut KeyCache, request: u64, size: usize) {
        let envelope =
            Envelope { tag: credit::STREAM, data: request, size: size as u64, ..Envelope::new(Kind::Credit) };
        self.seal(out, cache, envelope, &[]);
    }

    /// Nobody waits for the answers to a request any more.
    pub(crate) fn cancel(&mut self, out: &mut Outgoing, cache: &mut KeyCache, request: u64) {
        self.seal(out, cache, Envelope { data: request, ..Envelope::new(Kind::Cancel) }, &[]);
    }

    /// The endpoint answered the activation. Whether it proves that it has the link's keys.
    pub(crate) fn granted(&mut self, said: &[u8]) -> bool {
        match &mut self.role {
            Role::Start(waiting) => waiting.granted(said),
            Role::Control | Role::End(_) => false,
        }
    }

    /// It is not to be, or not any more: nothing goes out on it from now on.
    pub(crate) fn deny(&mut self, why: &str) {
        self.queue.clear();
        if let Role::Start(waiting) = &mut self.role {
            waiting.deny(why);
        }
    }

    /// Its class; the session's own link has none.
    pub(crate) fn class(&self) -> Option<&str> {
        match &self.role {
            Role::Control => None,
            Role::Start(waiting) => Some(waiting.class()),
            Role::End(binding) => Some(&binding.table.attributes.class),
        }
    }

    pub(crate) fn protection(&self) -> Protection {
        self.protection
    }

    /// Authenticates a record and takes it in.
    pub(crate) fn open<'r>(
        &mut self,
        cache: &mut KeyCache,
        header: &Header,
        record: &'r mut [u8],
        message_max: usize,
    ) -> Result<Received<'r>, Unacceptable> {
        let stacked = self.stack().is_some();
        let expected = self.receive.expected();
        let context = self.receive.context(cache, header.stamp.epoch);
        let context = context.map_err(|_| Unacceptable("a record of an epoch that is not due"))?;
        let opened = header.open(context, self.protection, record);
        let (envelope, payload) = opened.ok_or(Unacceptable("a record whose authentication tag is wrong"))?;
        if header.stamp.sequence != expected {
            return Err(Unacceptable("an authentic record that is not the next: one was left out or sent again"));
        }
        let envelope = envelope.ok_or(Unacceptable("a record of a kind that this version does not know"))?;
        let len = payload.len();
        let size = usize::try_from(envelope.size).unwrap_or(usize::MAX);
        let begins = matches!(envelope.kind, Kind::Request | Kind::Put | Kind::Answer | Kind::Control);
        let counts = (begins || matches!(envelope.kind, Kind::More | Kind::Get)) && !matches!(self.role, Role::Control);
        let cost = if counts { len + COST + growth(stacked, &envelope) } else { 0 };
        if self.used + cost > WINDOW {
            return Err(Unacceptable("more than it has credit for"));
        }
        // Who sends such a message may not know what is taken here. Nothing of it is kept.
        let longest = if stacked { transform::longest(message_max) } else { message_max };
        let too_long = begins && (size > longest || said(stacked, &envelope) > message_max as u64);
        if too_long && matches!(self.role, Role::Control) {
            return Err(Unacceptable("a longer message than the ends of sessions have for each other"));
        }
        let altered = Unacceptable("a record whose payload was altered");
        // Until the payload has proved right nothing moves: the same record may come again over another carrier.
        let (received, held) = if envelope.kind == Kind::More {
            let assembling =
                self.assembling.as_mut().ok_or(Unacceptable("the rest of a message that was not begun"))?;
            if len == 0 || len > assembling.size - assembling.came {
                return Err(Unacceptable("more of a message than it has"));
            }
            assembling.append(payload).ok_or(altered)?;
            // Of a long message the last half window is held back until it is handled.
            let most = if assembling.bytes.is_some() { WINDOW / 2 } else { 0 };
            let held = (assembling.held + cost).min(most);
            let freed = assembling.held + cost - held;
            assembling.held = held;
            self.owed += freed;
            let whole = assembling.came == assembling.size && !assembling.is_open();
            (self.assembling.take_if(|_| whole).map(|done| (done.envelope, done.bytes.map(Bytes::Own))), held)
        } else if envelope.kind == Kind::End {
            let abandoned = envelope.flags & end::ABANDONED != 0;
            let ends = |message: &mut Box<Assembling>| {
                len == 0 && message.is_open() && (abandoned || message.came == message.size)
            };
            let ended = self.assembling.take_if(ends);
            let ended = ended.ok_or(Unacceptable("the end of a message before all of it has come"))?;
            let Assembling { envelope: first, bytes, held, .. } = *ended;
            if abandoned {
                self.owed += held;
                (None, 0)
            } else {
                let Envelope { flags, data, .. } = envelope;
                (Some((Envelope { flags, data, ..first }, bytes.map(Bytes::Own))), held)
            }
        } else if begins && (size > len || is_open(&envelope)) {
            if self.assembling.is_some() || len == 0 || size < len {
                return Err(Unacceptable("a message within another, or shorter than its first record"));
            }
            // Memory grows with what has come, not with what a header promises.
            let (bytes, held) = if too_long { (None, 0) } else { (Some(Vec::new()), cost) };
            let mut assembling = Assembling { envelope, bytes, came: 0, size, held };
            assembling.append(payload).ok_or(altered)?;
            self.assembling = Some(Box::new(assembling));
            self.owed += cost - held;
            (None, 0)
        } else {
            if (begins && (size != len || self.assembling.is_some())) || (!begins && len > 0) {
                return Err(Unacceptable("a message that contradicts its own length"));
            }
            payload.deliver(&mut InPlace).ok_or(altered)?;
            let at = record.len() - len;
            (Some((envelope, (!too_long).then(|| Bytes::Here(&record[at..])))), cost)
        };
        self.used += cost;
        self.receive.accept(header.stamp, 1);
        Ok(match received {
            Some((envelope, Some(bytes))) => Received::Whole(envelope, bytes, held),
            Some((envelope, None)) => Received::TooLong(envelope, held),
            None => Received::Part,
        })
    }

    /// The peer gave credit back. False: more than there is.
    pub(crate) fn credited(&mut self, size: u64) -> bool {
        let credit = usize::try_from(size).ok().and_then(|size| self.credit.checked_add(size));
        match credit.filter(|&credit| credit <= WINDOW) {
            Some(credit) => {
                self.credit = credit;
                true
            }
            None => false,
        }
    }
}

/// Whether a message goes through transform modules: what programs said. The rest is of the links' own.
fn is_transformed(envelope: &Envelope) -> bool {
    match envelope.kind {
        Kind::Request => true,
        Kind::Answer => envelope.flags & (answer::REFUSED | answer::END) == 0,
        _ => false,
    }
}

/// How long a message is as the program at the other end sent it, by its first record.
fn said(stacked: bool, envelope: &Envelope) -> u64 {
    if stacked && is_transformed(envelope) { envelope.id } else { envelope.size }
}

/// What a message costs beside its bytes on the wire: what it grows by when it is restored. Of one longer than half the
/// window no more counts, as of others.
fn growth(stacked: bool, envelope: &Envelope) -> usize {
    if stacked && is_transformed(envelope) {
        envelope.id.saturating_sub(envelope.size).min(WINDOW as u64 / 2) as usize
    } else {
        0
    }
}

/// Whether more follows, and an end.
fn is_open(envelope: &Envelope) -> bool {
    envelope.kind == Kind::Request && envelope.flags & request::OPEN != 0
}

impl Assembling {
    fn is_open(&self) -> bool {
        is_open(&self.envelope)
    }

    fn append(&mut self, payload: Payload<'_>) -> Option<()> {
        let (at, len) = (self.came, payload.len());
        let delivered = match &mut self.bytes {
            None => payload.deliver(&mut InPlace),
            Some(bytes) => {
                if bytes.capacity() < at + len {
                    // Of a message that has begun to come a good deal is room at once, of which what has not come takes
                    // addresses and no memory: to grow step by step would move it each time.
                    let most = if at < WINDOW / 4 { 2 * at } else { (2 * at).max(ROOM) };
                    huge::reserve(bytes, most.clamp(len, self.size - at));
                }
                bytes.resize(at + len, 0);
                let delivered = payload.deliver(&mut Into(&mut bytes[at..]));
                if delivered.is_none() {
                    bytes.truncate(at);
                }
                delivered
            }
        };
        self.came += if delivered.is_some() { len } else { 0 };
        delivered
    }
}

/// Opens into memory of ours.
struct Into<'b>(&'b mut [u8]);

impl gambeson_proto::record::Destination for Into<'_> {
    fn contiguous(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.get_mut(..len)
    }

    fn copy(&mut self, from: &[u8]) {
        self.0[..from.len()].copy_from_slice(from);
    }
}

/// Opens where the record stands.
struct InPlace;

impl gambeson_proto::record::Destination for InPlace {
    fn contiguous(&mut self, _len: usize) -> Option<&mut [u8]> {
        None
    }

    fn copy(&mut self, _from: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_small_at_its_endpoint() {
        // What the allocator adds is for the test of startpoints in gambeson-proto to say.
        // Of a tree of links half may be empty.
        let bytes =
            2 * size_of::<(u64, Box<Link>)>() + size_of::<Link>() + 2 * size_of::<usize>() + size_of::<Binding>();
        assert!(bytes <= 512, "{bytes} bytes");
    }
}
