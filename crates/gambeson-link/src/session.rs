//! A session: two domains, one carrier at a time, and the links between their endpoints and startpoints. Bytes come in
//! and go out through the carrier that it is given; it waits for nothing.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::key_schedule::{End, LinkKeys, LinkTerms, PairRoots, Resumption, Side, link_roots};
use gambeson_proto::record::{self, Envelope, Header, Kind, credit};
use gambeson_proto::startpoint::{self, ADDRESSES_MAX, Activation, Address, AddressKind as Transport, Opening};
use gambeson_proto::suite::{Protection, Suite};
use zeroize::Zeroizing;

use crate::carrier::{self, Carrier};
use crate::endpoint::Binding;
use crate::handshake::Agreed;
use crate::identity::Peer;
use crate::link::{Bytes, Link, RECORD_MAX, Received, Role, Unacceptable};
use crate::relay;
use crate::request::Waiting;
use crate::stream::{Incoming, Outgoing, RETAINED_MAX};
use crate::transform::Stack;
use change::Change;
use links::{Links, Named};

mod change;
mod links;

pub(crate) use change::Search;

/// The longest record.
const LONGEST: usize = record::capacity(RECORD_MAX);
/// Bytes that are written together, and not as soon as they are there, if more is likely to come.
const HELD_MAX: u64 = 16 << 10;
/// How many bytes come before the peer is told that they have; half of that if something goes there anyway, such as credit,
/// so that it is woken for both at once.
const ACKNOWLEDGE: u64 = 512 << 10;
/// Reads of one turn.
const TURN: u32 = 16;
/// Carriers that may bring something unacceptable in a row: beyond, somebody does not let the session go on.
const BARREN_MAX: u32 = 8;
/// Sealed bytes that are kept for a peer that goes on asking: twice what makes senders wait.
const UNHEARD_MAX: usize = 2 * RETAINED_MAX;
/// Longest control message: an activation.
const CONTROL_MAX: usize = 4096;

/// What control messages say: the tag of their envelopes.
mod word {
    /// Link `data` is opened; the payload is the activation.
    pub(super) const ACTIVATE: u64 = 1;
    /// Link `data` is refused; the payload says why.
    pub(super) const DENIED: u64 = 2;
    /// Link `data` is there; the payload proves that the endpoint has its keys, and says how long a message it takes.
    pub(super) const GRANTED: u64 = 6;
    /// All before byte `data` of the peer's stream has come.
    pub(super) const ARRIVED: u64 = 3;
    /// Link `data` is not needed any more; the payload says how many records it had.
    pub(super) const RELEASED: u64 = 4;
    /// The domain closes.
    pub(super) const CLOSED: u64 = 5;
    /// Asks for [`ARRIVED`], whatever has come.
    pub(super) const ASKED: u64 = 7;
    /// The carrier will be changed: from here on each keeps what it sends. Answered by [`KEPT`].
    pub(super) const KEEP: u64 = 8;
    /// What the [`KEEP`] of number `data` asks for is done.
    pub(super) const KEPT: u64 = 9;
    /// The carrier stays.
    pub(super) const STAY: u64 = 10;
    /// Question `data`: the startpoint that is published under the name that the payload is.
    pub(super) const NAME: u64 = 11;
    /// The answer to question `data`: the startpoint, or a byte for yes. Nothing: there is none that the one who asks may
    /// have, or no.
    pub(super) const FOUND: u64 = 12;
    /// Question `data`: is the session there that the payload names?
    pub(super) const IS_THERE: u64 = 13;
}

/// What a session asks of its domain.
pub(crate) trait Desk {
    /// Admits a link, or says why not.
    fn admit(&mut self, links: &mut startpoint::Session, peer: &Peer, activation: &[u8]) -> Result<Opened, String>;
    /// A startpoint for a peer who asks for a name; empty: none that he may have.
    fn named(&mut self, peer: &Peer, name: &[u8]) -> Zeroizing<Vec<u8>>;
    /// Whether a session of this name is there.
    fn has_session(&self, name: &[u8]) -> bool;
    /// Hears of a message that is longer than its endpoint takes.
    fn too_long(&mut self, peer: &Peer, why: &str);
    /// Hears of what somebody on the way must have altered.
    fn tampered(&mut self, what: &str);
    /// Has a request handled; what handling it costs comes back when that is over. Its bytes come back at once when it
    /// has to wait: then it is asked again, before whatever follows on its link.
    fn request<'i>(&mut self, incident: Incident<'i>) -> Result<(), Bytes<'i>>;
}

/// A link that an endpoint admitted.
pub(crate) struct Opened {
    pub(crate) number: u64,
    pub(crate) keys: LinkKeys,
    pub(crate) protection: Protection,
    pub(crate) binding: Arc<Binding>,
    pub(crate) stack: Option<Box<Stack>>,
}

/// A request that came.
pub(crate) struct Incident<'i> {
    pub(crate) binding: Arc<Binding>,
    pub(crate) envelope: Envelope,
    pub(crate) bytes: Bytes<'i>,
    pub(crate) credit: usize,
    pub(crate) peer: &'i Arc<Peer>,
    pub(crate) link: &'i mut Link,
    pub(crate) out: &'i mut Outgoing,
    pub(crate) cache: &'i mut KeyCache,
}

/// What waits on a link.
enum Parked {
    Request {
        envelope: Envelope,
        bytes: Vec<u8>,
        credit: usize,
        /// Whether anybody still waits for its answers.
        open: bool,
    },
    /// The startpoint is gone.
    Release,
}

/// Two domains that know each other.
pub(crate) struct Session {
    pub(crate) peer: Arc<Peer>,
    /// What both ends of it know, and nobody has in another session (RFC 9266).
    pub(crate) binding: [u8; 32],
    begun: Instant,
    /// Its keys, and the numbers of its links.
    links: startpoint::Session,
    suite: Suite,
    side: Side,
    resumption: Resumption,
    /// Where the peer listens, if it was us who connected.
    addresses: Vec<Address>,
    /// What it was met over.
    met: carrier::Kind,
    /// Whether it goes through relays, or may: then nothing of its links goes out but sealed.
    relayed: bool,
    carrier: Option<Box<dyn Carrier>>,
    /// Whether the carrier may have something, as far as the kernel has said.
    stirred: bool,
    /// Whether what was sealed last was kept back, to be written with what follows.
    held: bool,
    /// Why there is no carrier, and since when.
    lost: Option<(String, Instant)>,
    change: Change,
    /// Carriers given up for what came over them, without a record in between.
    barren: u32,
    out: Outgoing,
    incoming: Incoming,
    control: Link,
    /// Links whose startpoints are here.
    ours: Links,
    /// Links whose endpoints are here.
    theirs: Links,
    /// What waits for its turn on links to endpoints here, behind a request that had to wait.
    parked: BTreeMap<u64, VecDeque<Parked>>,
    acknowledged: u64,
    /// When the peer was last found to have said something, how much that was in all, and whether it was asked since.
    heard: (Instant, u64, bool),
    /// Why it is over.
    over: Option<String>,
    /// Questions to the peer that somebody waits for, with the answers that came.
    asked: BTreeMap<u64, Option<Zeroizing<Vec<u8>>>>,
    /// How many those were.
    questions: u64,
}

impl Session {
    /// `addresses`: where the peer listens, if it was us who connected, and which of them we `wish` for; `rest`: what
    /// came behind the handshake.
    pub(crate) fn new(
        agreed: Agreed,
        carrier: Box<dyn Carrier>,
        (addresses, wish): (&[Address], Option<Transport>),
        rest: &[u8],
    ) -> Self {
        let Agreed { side, keys, peer, binding } = agreed;
        let resumption = Resumption::new(&keys.exporter);
        let end = if side == Side::Client { End::Startpoint } else { End::Endpoint };
        let suite = keys.suite;
        let terms =
            LinkTerms { number: 0, nonce: [0; 16], name: [0; 32], protection: Protection::Privacy, partition: None };
        let roots = directed(link_roots(&keys, end, None, &terms), end);
        let control = Link::new(0, roots, suite, Protection::Privacy, Role::Control);
        let mut incoming = Incoming::new(LONGEST);
        incoming.begin_with(rest, 0);
        Session {
            peer: Arc::new(peer),
            binding,
            begun: Instant::now(),
            links: startpoint::Session::new(keys, end),
            suite,
            side,
            resumption,
            addresses: addresses.to_vec(),
            met: carrier.kind().clone(),
            relayed: carrier.kind().is_relayed() || addresses.iter().any(|address| relay::parts(address).is_some()),
            carrier: Some(carrier),
            lost: None,
            change: Change::new(wish),
            barren: 0,
            out: Outgoing::new(),
            incoming,
            control,
            ours: Links::default(),
            theirs: Links::default(),
            parked: BTreeMap::new(),
            stirred: true,
            held: false,
            acknowledged: 0,
            heard: (Instant::now(), 0, false),
            over: None,
            asked: BTreeMap::new(),
            questions: 0,
        }
    }

    /// The carrier, unless it is lost.
    pub(crate) fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        match &mut self.carrier {
            Some(carrier) => Some(&mut **carrier),
            None => None,
        }
    }

    /// Why there is no carrier, and since when.
    pub(crate) fn lost(&self) -> Option<&(String, Instant)> {
        self.lost.as_ref()
    }

    /// Since when it is there.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    pub(crate) fn resumption(&self) -> &Resumption {
        &self.resumption
    }

    /// How many of the peer's bytes have come.
    pub(crate) fn received(&self) -> u64 {
        self.incoming.taken()
    }

    /// Why nothing comes or goes any more.
    pub(crate) fn over(&self) -> Option<&str> {
        self.over.as_deref()
    }

    /// Its keys, and the numbers of its links: what a startpoint is activated with.
    pub(crate) fn links(&mut self) -> &mut startpoint::Session {
        &mut self.links
    }

    /// Opens a link from a startpoint here: the activation goes out before anything else of the link.
    pub(crate) fn open_link(
        &mut self,
        cache: &mut KeyCache,
        opening: Opening,
        class: &str,
        stack: Option<Box<Stack>>,
    ) -> u64 {
        let Opening { activation, keys } = opening;
        let (number, protection) = (activation.number, activation.protection);
        let role = Role::Start(Box::new(Waiting::new(keys.answer, protection == Protection::Privacy, class)));
        let mut link = Link::new(number, directed(keys, End::Startpoint), self.suite, protection, role);
        link.stack = stack;
        self.ours.open(Some(link));
        self.say(cache, word::ACTIVATE, number, &activation.encode());
        number
    }

    /// A link, with what it takes to send on it.
    pub(crate) fn link(&mut self, number: u64) -> Option<(&mut Link, &mut Outgoing)> {
        let links = if side_of(number) == self.side { &mut self.ours } else { &mut self.theirs };
        Some((links.get_mut(number)?, &mut self.out))
    }

    /// Whether somebody here is to hear how it ends: startpoints that are bound by it, or who has asked it something.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.ours.is_empty() || !self.asked.is_empty()
    }

    /// A request that came inside another one of the same link; it has its turn with the next progress.
    pub(crate) fn park(&mut self, number: u64, envelope: Envelope, bytes: Vec<u8>) {
        let request = Parked::Request { envelope, bytes, credit: 0, open: true };
        self.parked.entry(number).or_default().push_back(request);
    }

    /// Ends links for which there is a reason to, by their class and protection: both ends hear it.
    pub(crate) fn end_links(&mut self, cache: &mut KeyCache, why: impl Fn(&str, Protection) -> Option<String>) {
        if self.over.is_some() {
            return;
        }
        let reason = |link: &Link| why(link.class()?, link.protection());
        let mut words = Vec::new();
        for link in self.ours.iter_mut() {
            if let Some(why) = reason(link) {
                link.deny(&why);
                words.push((word::RELEASED, link.number(), link.records().0.to_be_bytes().to_vec()));
            }
        }
        self.theirs.retain(|link| {
            let why = reason(link);
            words.extend(why.iter().map(|why| (word::DENIED, link.number(), why.clone().into_bytes())));
            why.is_none()
        });
        for (what, number, bytes) in words {
            self.say(cache, what, number, &bytes);
        }
    }

    /// Whether something waits on links to endpoints here.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether it was us who connected, to one of these addresses.
    pub(crate) fn was_met_at(&self, addresses: &[Address]) -> bool {
        let carrier::Kind::Tcp { peer, relayed: false } = &self.met else { return false };
        self.side == Side::Client && addresses.iter().any(|address| address.text.parse() == Ok(*peer))
    }

    /// Whether it goes through relays, or may.
    pub(crate) fn is_relayed(&self) -> bool {
        self.relayed
    }

    /// Whether it was the peer who connected, and looks for another carrier when this one is lost.
    pub(crate) fn was_accepted(&self) -> bool {
        self.side == Side::Server
    }

    /// Learns where the peer listens, too: whoever asks at an address knows no other.
    pub(crate) fn learn(&mut self, addresses: &[Address]) {
        // Of who listens on all of its addresses there is nothing to learn: from here those lead here.
        let leads = |address: &&Address| !address.text.parse::<SocketAddr>().is_ok_and(|at| at.ip().is_unspecified());
        for address in addresses.iter().filter(leads) {
            // The side that was connected to does not look for carriers, and no peer fills memory with its addresses.
            let room = (1..2 * ADDRESSES_MAX).contains(&self.addresses.len());
            // Links that are here may not be sealed, and a relay must not get them.
            let fits = self.relayed || relay::parts(address).is_none();
            if room && fits && !self.addresses.contains(address) {
                self.addresses.push(address.clone());
            }
        }
    }

    /// Asks the peer for what it published under a name; the number of the question.
    pub(crate) fn ask(&mut self, cache: &mut KeyCache, name: &str) -> u64 {
        self.question(cache, word::NAME, name.as_bytes())
    }

    /// Asks the peer whether it still has another session; the number of the question.
    pub(crate) fn ask_for(&mut self, cache: &mut KeyCache, name: &[u8; 16]) -> u64 {
        self.question(cache, word::IS_THERE, name)
    }

    fn question(&mut self, cache: &mut KeyCache, word: u64, about: &[u8]) -> u64 {
        self.questions += 1;
        self.asked.insert(self.questions, None);
        self.say(cache, word, self.questions, about);
        self.flush();
        self.questions
    }

    /// The answer to a question, once it is there: what was found, or nothing.
    pub(crate) fn answer(&mut self, question: u64) -> Option<Zeroizing<Vec<u8>>> {
        self.asked.get(&question)?.as_ref()?;
        self.asked.remove(&question)?
    }

    /// Nobody waits for an answer any more.
    pub(crate) fn forget(&mut self, question: u64) {
        self.asked.remove(&question);
    }

    /// A startpoint is gone.
    pub(crate) fn release(&mut self, cache: &mut KeyCache, number: u64) {
        let link = self.ours.close(number);
        if let Some(link) = link.filter(|_| self.over.is_none()) {
            let (sent, _) = link.records();
            self.say(cache, word::RELEASED, number, &sent.to_be_bytes());
        }
    }

    /// Whether all that was sent has gone into the stream.
    pub(crate) fn is_drained(&self) -> bool {
        self.ours.iter().chain(self.theirs.iter()).all(Link::is_drained)
    }

    /// Says that this domain closes, behind all that is in the stream. Nothing is handled from now on, and nothing more is
    /// sent, but the carrier stays for what it has not taken: see [`Session::part`].
    pub(crate) fn close(&mut self, cache: &mut KeyCache) {
        let sent: Vec<_> = self.ours.iter().map(|link| (link.number(), link.records().0)).collect();
        for (number, sent) in sent {
            self.say(cache, word::RELEASED, number, &sent.to_be_bytes());
        }
        self.say(cache, word::CLOSED, 0, &[]);
        let carrier = self.carrier.take();
        self.end("this domain has closed");
        self.carrier = carrier;
    }

    /// After [`Session::close`]: gives the carrier what it has not taken, and throws away what still comes, since a connection
    /// that ends with that unread may take with it what was sent. Whether there is nothing left to do: the peer ends its
    /// connection when it has read to the end.
    pub(crate) fn part(&mut self) -> bool {
        let Some(carrier) = &mut self.carrier else { return true };
        let lost = self.out.write(&mut **carrier).is_err();
        // What is in shared memory is read there, whoever has left.
        let there = !self.out.waits() && carrier.kind().is_lossless();
        let mut gone = || loop {
            match carrier.read(&mut [0; 16 << 10]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(_) => return true,
            }
        };
        if lost || there || gone() {
            self.carrier = None;
        }
        self.carrier.is_none()
    }

    /// Nobody waits any longer for what the carrier does not take.
    pub(crate) fn abandon(&mut self) {
        self.carrier = None;
    }

    /// How many bytes have moved.
    pub(crate) fn moved(&self) -> u64 {
        self.out.written() + self.received()
    }

    /// Whether something is left that the carrier never took.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.carrier.is_some() && (self.out.waits() || !self.is_drained())
    }

    /// Answers a control message; there is no credit for those.
    fn reply(&mut self, cache: &mut KeyCache, what: u64, data: u64, bytes: &[u8]) {
        if self.out.retained() > UNHEARD_MAX {
            let (name, host) = (&self.peer.name, &self.peer.host);
            return self.end(&format!("{name} on {host} asks and asks, and takes no answer"));
        }
        self.say(cache, what, data, bytes);
    }

    /// Bytes that the peer makes us keep.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn burden(&self) -> usize {
        let links = self.ours.iter().chain(self.theirs.iter());
        self.out.retained() + links.map(|link| link.burden()).sum::<usize>()
    }

    /// Says what no session says.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn lie(&mut self, cache: &mut KeyCache, envelope: Envelope, bytes: &[u8]) {
        self.control.seal(&mut self.out, cache, envelope, bytes);
    }

    fn say(&mut self, cache: &mut KeyCache, what: u64, data: u64, bytes: &[u8]) {
        let envelope = Envelope { tag: what, data, size: bytes.len() as u64, ..Envelope::new(Kind::Control) };
        self.control.send(&mut self.out, cache, envelope, bytes);
    }

    /// Gives the carrier what waits; if somebody will do that `soon`, only where that costs no system call, or when there
    /// is enough to be worth one.
    pub(crate) fn flush_by(&mut self, soon: bool) {
        self.held = soon && self.is_told_by_kernel() && self.out.unwritten() < HELD_MAX;
        if !self.held {
            self.flush();
        }
    }

    /// Its carrier may have something.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Whether there may be something to do for it. Of TCP the kernel tells.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred || self.held || !self.parked.is_empty() || !self.is_told_by_kernel()
    }

    fn is_told_by_kernel(&self) -> bool {
        self.carrier.as_ref().is_some_and(|carrier| matches!(carrier.kind(), carrier::Kind::Tcp { .. }))
    }

    /// Gives the carrier what waits. Whether some is left.
    pub(crate) fn flush(&mut self) -> bool {
        if let Some(carrier) = self.carrier.as_mut().filter(|_| self.out.waits())
            && let Err(cause) = write(&mut self.out, &mut **carrier)
        {
            self.lose(&cause.to_string());
            return false;
        }
        if self.out.retained() > 0 && !self.change.is_held() {
            // What is in shared memory is not lost on the way, so nothing is kept for another carrier.
            if self.forgets() {
                self.out.arrived(self.out.written());
            }
            self.out.free();
        }
        self.carrier.is_some() && self.out.waits()
    }

    /// Reads what has come and does what it says. Whether anything did.
    pub(crate) fn progress(&mut self, cache: &mut KeyCache, desk: &mut dyn Desk) -> bool {
        if std::mem::take(&mut self.held) {
            self.flush();
        }
        let mut any = !self.parked.is_empty() && self.resume_parked(cache, desk);
        if self.over.is_some() {
            return any;
        }
        // Not for ever: there are other sessions, too.
        for _ in 0..TURN {
            match self.take(cache, desk) {
                // What was read is dealt with and answered before there is more: nobody waits for a read that finds nothing.
                Ok(true) => {
                    (any, self.barren) = (true, 0);
                    break;
                }
                Ok(false) => {}
                // Whoever sits on the wire can do that. What was sent in its place comes again over another carrier.
                Err(Unacceptable(what)) => {
                    let (peer, carrier) = (&self.peer, &self.carrier);
                    let over = carrier.as_ref().map_or(String::new(), |carrier| format!(" over {}", carrier.kind()));
                    let why = format!(
                        "{what} came from {} on {}{over}: it was tampered with on the way",
                        peer.name, peer.host
                    );
                    desk.tampered(&why);
                    self.barren += 1;
                    if self.barren > BARREN_MAX {
                        self.end(&format!("{why}, again and again"));
                    }
                    self.lose(&why);
                    return true;
                }
            }
            let Some(carrier) = self.carrier.as_mut().filter(|_| self.over.is_none()) else { return any };
            match self.incoming.read(&mut **carrier) {
                Ok(0) => {
                    self.stirred = false;
                    break;
                }
                Ok(_) => {}
                Err(cause) => {
                    self.lose(&cause.to_string());
                    return true;
                }
            }
        }
        let due = if self.out.waits() { ACKNOWLEDGE / 2 } else { ACKNOWLEDGE };
        if !self.forgets() && self.incoming.taken() - self.acknowledged >= due {
            self.acknowledged = self.incoming.taken();
            self.say(cache, word::ARRIVED, self.acknowledged, &[]);
        }
        self.flush();
        if self.out.eased() {
            for link in self.ours.iter_mut().chain(self.theirs.iter_mut()) {
                link.pump(&mut self.out, cache);
            }
            self.flush();
            any = true;
        }
        any
    }

    /// Goes on with what waited on links to endpoints here. Whether anything could.
    fn resume_parked(&mut self, cache: &mut KeyCache, desk: &mut dyn Desk) -> bool {
        let Self { parked, theirs, out, peer, over, .. } = self;
        let mut any = false;
        parked.retain(|&number, waiting| {
            while let Some(first) = waiting.pop_front() {
                let Parked::Request { envelope, bytes, credit, open } = first else {
                    theirs.close(number);
                    continue;
                };
                let Some(link) = theirs.get_mut(number) else { continue };
                let Role::End(binding) = &link.role else { continue };
                if envelope.kind == Kind::Get && !(open && over.is_none()) {
                    link.handled(out, cache, credit);
                    continue;
                }
                let (binding, bytes) = (binding.clone(), Bytes::Own(bytes));
                if let Err(bytes) = desk.request(Incident { binding, envelope, bytes, credit, peer, link, out, cache })
                {
                    waiting.push_front(Parked::Request { envelope, bytes: bytes.into_vec(), credit, open });
                    return true;
                }
                if !open {
                    link.answers().cancel(envelope.data);
                }
                any = true;
            }
            false
        });
        any
    }

    /// A peer that owes something and says nothing is asked, and then its carrier is given up: it may be cut without
    /// anybody having said so.
    pub(crate) fn listen(&mut self, cache: &mut KeyCache, silence: Duration) {
        let (since, taken, asked) = self.heard;
        // Shared memory is not cut, and tells of its peer's end by itself.
        if self.carrier.is_none() || self.is_lossless() || self.incoming.taken() != taken {
            self.heard = (Instant::now(), self.incoming.taken(), false);
        } else if since.elapsed() > silence / 2 && self.is_owed() {
            if !asked {
                self.heard.2 = true;
                self.say(cache, word::ASKED, 0, &[]);
            } else if since.elapsed() > silence {
                self.lose(&format!("{} on {} has said nothing for {silence:?}", self.peer.name, self.peer.host));
            }
        }
    }

    /// Whether somebody waits for the peer: for an answer, or to be rid of what was sealed.
    fn is_owed(&self) -> bool {
        let waits = |link: &Link| matches!(&link.role, Role::Start(waiting) if waiting.is_any());
        self.out.waits() || !self.asked.is_empty() || self.ours.iter().any(waits)
    }

    /// Everything that waits for this session hears why nothing will come.
    pub(crate) fn end(&mut self, why: &str) {
        if self.over.is_none() {
            self.over = Some(why.to_owned());
            (self.carrier, self.lost) = (None, None);
            for link in self.ours.iter_mut() {
                if let Role::Start(waiting) = &mut link.role {
                    waiting.give_up(why);
                }
            }
        }
    }

    /// Takes all whole records that are here.
    fn take(&mut self, cache: &mut KeyCache, desk: &mut dyn Desk) -> Result<bool, Unacceptable> {
        let mut any = false;
        loop {
            let Self { incoming, control, ours, theirs, parked, out, peer, links, suite, side, relayed, .. } = self;
            let record = incoming.record(LONGEST).map_err(|_| Unacceptable("a record longer than any"))?;
            let Some((turn, record)) = record else { return Ok(any) };
            any = true;
            let header = Header::parse(record).ok_or(Unacceptable("bytes that are no record"))?;
            // Of the whole session: links have sequences of their own, and would not miss what another had before them.
            if (header.connection >> 32) as u32 != turn {
                return Err(Unacceptable("a record out of turn"));
            }
            let number = header.connection & u64::from(u32::MAX);
            if number == 0 {
                let Received::Whole(envelope, bytes, _) = control.open(cache, &header, record, CONTROL_MAX)? else {
                    continue;
                };
                if envelope.kind != Kind::Control {
                    return Err(Unacceptable("a message of links beside them"));
                }
                let (what, data) = (envelope.tag, envelope.data);
                match what {
                    word::ACTIVATE => {
                        let next = side_of(data) != *side && theirs.is_next(data);
                        if !next || data > u64::from(u32::MAX) {
                            return Err(Unacceptable("a link with a number that is not the next"));
                        }
                        let sealed = Activation::decode(bytes.get())
                            .is_ok_and(|activation| activation.protection == Protection::Privacy);
                        let admitted = match *relayed && !sealed {
                            true => Err("links through a relay are sealed, whatever policies say".to_owned()),
                            false => desk.admit(links, peer, bytes.get()),
                        };
                        let (what, said) = match admitted {
                            Ok(Opened { number, keys, protection, binding, stack }) if number == data => {
                                let message_max = binding.table.attributes.message_max as u64;
                                let said = [&keys.answer[..], &message_max.to_be_bytes()].concat();
                                let roots = directed(keys, End::Endpoint);
                                let mut link = Link::new(data, roots, *suite, protection, Role::End(binding));
                                link.stack = stack;
                                theirs.open(Some(link));
                                (word::GRANTED, said)
                            }
                            Ok(_) => return Err(Unacceptable("an activation for another link")),
                            Err(why) => {
                                theirs.open(None);
                                (word::DENIED, why.into_bytes())
                            }
                        };
                        self.reply(cache, what, data, &said);
                    }
                    word::GRANTED => {
                        if side_of(data) == *side
                            && let Some(link) = ours.get_mut(data)
                        {
                            if !link.granted(bytes.get()) {
                                return Err(Unacceptable(
                                    "a proof that the endpoint's domain does not have the link's keys",
                                ));
                            }
                            link.pump(out, cache);
                        }
                    }
                    word::DENIED => {
                        let why = String::from_utf8_lossy(bytes.get()).into_owned();
                        if side_of(data) == *side
                            && let Some(link) = ours.get_mut(data)
                        {
                            link.deny(&why);
                        }
                    }
                    word::ARRIVED => {
                        if !out.arrived(data) {
                            return Err(Unacceptable("that it has what was never sent"));
                        }
                    }
                    word::ASKED => {
                        let taken = incoming.taken();
                        self.reply(cache, word::ARRIVED, taken, &[]);
                    }
                    word::RELEASED => {
                        if side_of(data) != *side
                            && let Some(link) = theirs.get_mut(data)
                        {
                            let (_, came) = link.records();
                            // A record can be hidden behind one of a link that is refused, released or in clear.
                            if link.is_protected() && *bytes.get() != came.to_be_bytes() {
                                let why = format!(
                                    "{} on {} sent more over link {data} than the {came} records that came: somebody \
                                     on the way took some out",
                                    peer.name, peer.host
                                );
                                desk.tampered(&why);
                                self.end(&why);
                                return Ok(true);
                            }
                            // What came before and waits is done first.
                            match parked.get_mut(&data) {
                                Some(parked) => parked.push_back(Parked::Release),
                                None => drop(theirs.close(data)),
                            }
                        }
                    }
                    word::NAME => {
                        let startpoint = desk.named(peer, bytes.get());
                        self.reply(cache, word::FOUND, data, &startpoint);
                    }
                    word::IS_THERE => {
                        let found: &[u8] = if desk.has_session(bytes.get()) { &[1] } else { &[] };
                        self.reply(cache, word::FOUND, data, found);
                    }
                    word::FOUND => {
                        if let Some(answer) = self.asked.get_mut(&data) {
                            *answer = Some(bytes.get().to_vec().into());
                        }
                    }
                    word::KEEP => self.asked_to_keep(cache, Some(data)),
                    word::KEPT => self.kept(data),
                    // Also: the other end goes on over this carrier.
                    word::STAY => self.asked_to_keep(cache, None),
                    word::CLOSED => {
                        let why = format!("{} on {} has closed", peer.name, peer.host);
                        self.end(&why);
                        return Ok(true);
                    }
                    _ => return Err(Unacceptable("a control message that this version does not know")),
                }
                if self.over.is_some() {
                    return Ok(true);
                }
                continue;
            }
            let links = if side_of(number) == *side { ours } else { theirs };
            let link = match links.find(number) {
                Named::Open(link) => link,
                // While records of it were under way.
                Named::Gone => continue,
                Named::Never => return Err(Unacceptable("a record of a link that was never opened")),
            };
            let message_max = match &link.role {
                Role::End(binding) => binding.table.attributes.message_max,
                Role::Start(_) | Role::Control => ANSWER_MAX,
            };
            let (envelope, bytes, credit) = match link.open(cache, &header, record, message_max)? {
                Received::Whole(envelope, bytes, credit) => {
                    (envelope, link.restore(&envelope, bytes, message_max), credit)
                }
                Received::TooLong(envelope, credit) => {
                    let why = link.too_long(&envelope, message_max);
                    if matches!(link.role, Role::End(_)) {
                        desk.too_long(peer, &why);
                    }
                    (envelope, Err(why), credit)
                }
                Received::Part => {
                    link.give_back(out, cache);
                    continue;
                }
            };
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(why) => {
                    link.refuse(out, cache, envelope, &why);
                    link.handled(out, cache, credit);
                    continue;
                }
            };
            match (envelope.kind, &mut link.role) {
                (Kind::Credit, Role::End(_)) if envelope.tag == credit::STREAM => {
                    if !link.answers().credited(envelope.data, envelope.size) {
                        return Err(Unacceptable("more credit than there is"));
                    }
                    link.go_on(out, cache, envelope.data);
                }
                (Kind::Credit, _) if envelope.tag == credit::LINK => {
                    if !link.credited(envelope.size) {
                        return Err(Unacceptable("more credit than there is"));
                    }
                    link.pump(out, cache);
                }
                (Kind::Answer, Role::Start(waiting)) => {
                    if !waiting.answered(&envelope, bytes.get()) {
                        return Err(Unacceptable("more of a stream than it has credit for"));
                    }
                    link.handled(out, cache, credit);
                }
                (Kind::Request | Kind::Put | Kind::Get, Role::End(binding)) => {
                    if let Some(parked) = parked.get_mut(&number) {
                        let bytes = bytes.into_vec();
                        parked.push_back(Parked::Request { envelope, bytes, credit, open: true });
                        continue;
                    }
                    let binding = binding.clone();
                    let done = desk.request(Incident { binding, envelope, bytes, credit, peer, link, out, cache });
                    if let Err(bytes) = done {
                        let first = Parked::Request { envelope, bytes: bytes.into_vec(), credit, open: true };
                        parked.insert(number, VecDeque::from([first]));
                    }
                }
                (Kind::Cancel, Role::End(_)) => {
                    let parked = parked.get_mut(&number).into_iter().flatten();
                    let found = parked.filter_map(|parked| match parked {
                        Parked::Request { envelope: asked, open, .. } if asked.data == envelope.data => Some(open),
                        _ => None,
                    });
                    match found.last() {
                        Some(open) => *open = false,
                        None => link.answers().cancel(envelope.data),
                    }
                }
                _ => return Err(Unacceptable("a message that goes the wrong way on its link")),
            }
        }
    }
}

/// The longest answer that is taken.
pub(crate) const ANSWER_MAX: usize = 1 << 30;

/// Roots by direction as we see it.
/// Gives a carrier as much as it takes. Of room in shared memory nobody hears who has not asked for it, and whoever sleeps
/// on it may have gone to sleep before there was anything to write.
fn write(out: &mut Outgoing, carrier: &mut dyn Carrier) -> io::Result<()> {
    loop {
        let before = out.written();
        out.write(carrier)?;
        let full = out.waits() && carrier.kind().is_lossless();
        if !full || !carrier.arm(true)? || out.written() == before {
            return Ok(());
        }
    }
}

fn directed(keys: LinkKeys, end: End) -> PairRoots {
    let LinkKeys { from_startpoint, from_endpoint, .. } = keys;
    match end {
        End::Startpoint => PairRoots { send: from_startpoint, receive: from_endpoint },
        End::Endpoint => PairRoots { send: from_endpoint, receive: from_startpoint },
    }
}

fn side_of(number: u64) -> Side {
    if number & 1 == 1 { Side::Client } else { Side::Server }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod pair;
#[cfg(test)]
mod tests;
