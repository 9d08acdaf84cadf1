//! One endpoint of a sealed job: peers, matching, rendezvous, credit and liveness, without I/O.
//!
//! The caller brings records ([`Endpoint::arrive`]), the program's requests ([`Endpoint::send`],
//! [`Endpoint::receive`]), the time ([`Endpoint::tick`]) and the seed of the identity; what the
//! endpoint wants done it asks of its [`Host`]. It is single-threaded: the caller holds a lock.
//!
//! ```text
//!   send ──> queue of the peer ──> wire: seal ──> Host::inject / transmit
//!   Host::sent <── all records sealed (or granted and sealed, or delivered)
//!
//!   arrive ──> sender ──> open: authentic? next? ──> matching ──> Host::received
//!                │ no                                   │ no receive
//!             alert, dropped                          held, at the price of credit
//! ```

mod arrive;
mod host;
mod liveness;
mod own;
mod peer;
mod receive;
mod report;
mod send;
mod spare;
mod wire;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use slotmap::SlotMap;

pub use self::host::{Busy, ClaimId, Host, Lane, PeerId, ReceiveId, ReceiveRequest, Received, SendRequest};
pub use self::report::{Alert, Cause, PeerName, Violation};

use self::arrive::{Message, MessageKey};
use self::peer::{Link, Peer};
use self::receive::{Multi, MultiKey, Posted};
use self::send::{Outgoing, OutgoingKey};
use self::spare::Spare;
use self::wire::Wire;
use crate::communicators::{Communicators, Table};
use crate::credential::Credential;
use crate::identity::{Card, CardError, Identity, PublicKey};
use crate::key_cache::KeyCache;
use crate::key_schedule::{AdmissionKey, JobKeys, PartitionKey, pair_roots};

use crate::ledger::Counters;
use crate::matching::Matcher;
use crate::policy::{Place, Policy};
use crate::record::{INTRODUCTION_LEN, POLICY_HINT_LEN};
use crate::session::{EpochLimits, ReceiveSession, SendSession};

/// Most bytes of one message that may come unasked, whatever the configuration says.
pub const UNASKED_MAX: usize = 1 << 20;

/// Sizes and limits of an endpoint. All endpoints of a job have the same.
#[derive(Clone, Debug)]
pub struct Config {
    /// Messages up to this size are one record, in bytes. A record costs the carrier several
    /// microseconds; two halves win them back from here on, as one is sealed while the other is opened.
    pub single_max: usize,
    /// What goes with a request for a grant, in bytes.
    pub request_payload: usize,
    /// Payload of further records, in bytes.
    pub record_payload: usize,
    /// Messages up to this size go out unasked while there is credit, in bytes.
    pub eager_max: usize,
    /// Bytes that one peer may have sent unasked and unmatched.
    pub peer_credit: usize,
    /// Bytes of unmatched messages up to which credit is given back at once.
    pub unexpected_limit: usize,
    /// How long a peer that is asked may stay silent, in ns; 0 turns this off.
    pub gap_timeout_ns: u64,
    /// When an epoch ends.
    pub epoch_limits: EpochLimits,
    /// Expanded keys that are kept at a time.
    pub key_slots: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            single_max: 48 << 10,
            request_payload: 32 << 10,
            record_payload: 256 << 10,
            eager_max: 128 << 10,
            peer_credit: UNASKED_MAX,
            unexpected_limit: 256 << 20,
            gap_timeout_ns: 30_000_000_000,
            epoch_limits: EpochLimits::default(),
            key_slots: 1024,
        }
    }
}

impl Config {
    /// Payload of the first record of a message that goes out unasked.
    fn first_of(&self, size: usize) -> usize {
        if size <= self.single_max { size } else { (size / 2).min(self.record_payload) }
    }

    /// Bytes that every buffer for a record must have.
    pub fn record_capacity(&self) -> usize {
        crate::record::capacity(self.single_max.max(self.request_payload).max(self.record_payload))
    }
}

/// What all endpoints of a job share: its keys and its policy.
pub struct Job {
    /// Job id, job secret, policy hash and suite.
    pub keys: JobKeys,
    /// Key of the cards' MAC.
    pub admission: AdmissionKey,
    /// Who talks to whom under which protection.
    pub policy: Policy,
    /// Partition keys, in the policy's order.
    pub partitions: Vec<PartitionKey>,
    /// Communicators of this process that have a protection of their own.
    pub communicators: Communicators,
}

impl From<Credential> for Job {
    fn from(credential: Credential) -> Self {
        let keys = credential.job_keys();
        let admission = keys.admission_key();
        let Credential { policy, partitions, .. } = credential;
        Job { keys, admission, policy, partitions, communicators: Communicators::default() }
    }
}

/// One endpoint.
pub struct Endpoint<H: Host> {
    config: Config,
    job: Arc<Job>,
    /// The job's communicators as this endpoint knows them, and the version of that.
    communicators: Arc<Table>,
    communicators_version: u64,
    identity: Identity,
    own: Card,
    /// Ourselves as a peer, once our own card was added.
    own_peer: Option<PeerId>,
    encoded: [u8; crate::identity::CARD_LEN],
    peers: Vec<Peer<H>>,
    by_key: HashMap<PublicKey, PeerId>,
    by_connection: HashMap<u64, PeerId, BuildHasherDefault<Uniform>>,
    wire: Wire,
    lanes: [Matcher<Posted<H>, MessageKey>; 3],
    messages: SlotMap<MessageKey, Message<H>>,
    multis: SlotMap<MultiKey, Multi<H>>,
    outgoing: SlotMap<OutgoingKey, Outgoing<H>>,
    spare: Spare,
    held_bytes: usize,
    refused: HashMap<(Option<PeerId>, Cause), u64>,
    now_ns: u64,
    closing: bool,
    /// After a violation nothing moves any more.
    dead: bool,
}

impl<H: Host> Endpoint<H> {
    /// An endpoint with a fresh identity. `own` is its card: address, rank and host.
    pub fn new(config: Config, job: Arc<Job>, identity: Identity, own: Card) -> Self {
        let encoded = own.encode(&job.admission);
        let mut introduction = [0; INTRODUCTION_LEN];
        let (card, hint) = introduction.split_at_mut(encoded.len());
        card.copy_from_slice(&encoded);
        hint.copy_from_slice(&job.keys.policy_hash[..POLICY_HINT_LEN]);
        let wire = Wire {
            cache: KeyCache::new(config.key_slots),
            introduction,
            counters: Counters::default(),
            dirty: Default::default(),
            stopwatch: Default::default(),
            violation: None,
        };
        Endpoint {
            config,
            communicators: job.communicators.table(),
            // None that there is: the first use looks.
            communicators_version: u64::MAX,
            job,
            identity,
            own,
            own_peer: None,
            encoded,
            peers: Vec::new(),
            by_key: HashMap::new(),
            by_connection: HashMap::default(),
            wire,
            lanes: Default::default(),
            messages: SlotMap::with_key(),
            multis: SlotMap::with_key(),
            outgoing: SlotMap::with_key(),
            spare: Spare::default(),
            held_bytes: 0,
            refused: HashMap::new(),
            now_ns: 0,
            closing: false,
            dead: false,
        }
    }

    /// This endpoint's address: what peers give to [`Endpoint::add_peer`].
    pub fn card(&self) -> &[u8] {
        &self.encoded
    }

    /// The public half of this endpoint's key.
    pub fn public_key(&self) -> &PublicKey {
        &self.own.public_key
    }

    /// Adds a peer by its card, which must carry this job's MAC. No key is derived yet. The same
    /// card gives the same peer. The caller has made the peer's address reachable.
    pub fn add_peer(&mut self, card: &[u8]) -> Result<PeerId, CardError> {
        let id = self.add_peer_card(card)?;
        self.peers[id.0 as usize].reachable = true;
        Ok(id)
    }

    fn add_peer_card(&mut self, card: &[u8]) -> Result<PeerId, CardError> {
        let card = Card::decode(card, &self.job.admission)?;
        if let Some(&known) = self.by_key.get(&card.public_key) {
            return Ok(known);
        }
        let id = PeerId(u32::try_from(self.peers.len()).expect("fewer than 2^32 peers"));
        let host = self.job.policy.host_name(card.host).map(str::to_owned);
        let host = host.unwrap_or_else(|| card.address.ip().to_string());
        let name = PeerName { rank: card.rank, host };
        self.by_key.insert(card.public_key, id);
        if card.public_key == self.own.public_key {
            self.own_peer = Some(id);
        }
        self.peers.push(Peer::new(id, card, name, self.config.peer_credit, self.now_ns));
        self.wire.counters.peers += 1;
        Ok(id)
    }

    /// Gives the memory of a peer back that is not needed to recognise it. Its sequences stay, so
    /// that it goes on where it was when it is added again or is heard of.
    pub fn remove_peer(&mut self, id: PeerId) {
        let peer = &mut self.peers[id.0 as usize];
        if let Some(link) = &mut peer.link {
            link.send.evict(&mut self.wire.cache);
            link.receive.evict(&mut self.wire.cache);
        }
        if peer.is_idle() {
            peer.queue.shrink_to_fit();
            peer.granted.shrink_to_fit();
            peer.control.shrink_to_fit();
        }
    }

    /// How the peer is named in sentences.
    pub fn peer_name(&self, id: PeerId) -> &PeerName {
        &self.peers[id.0 as usize].name
    }

    /// The number that the next message to a peer will have, which its receiver counts too.
    pub fn next_message(&self, id: PeerId) -> u64 {
        self.peers[id.0 as usize].messages_sent
    }

    /// The card of a peer.
    pub fn peer_card(&self, id: PeerId) -> &Card {
        &self.peers[id.0 as usize].card
    }

    /// The peers that were talked to or heard of, in the order in which that began.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = &PeerName> {
        self.peers.iter().map(|peer| &peer.name)
    }

    /// Goes on with what the carrier could not take. Cheap when there is nothing.
    pub fn progress(&mut self, host: &mut H) {
        for _ in 0..self.wire.dirty.len() {
            let Some(id) = self.wire.dirty.pop_front() else { break };
            self.peers[id.0 as usize].dirty = false;
            self.pump(host, id);
        }
        self.report(host);
    }

    /// What `--stats` shows.
    pub fn counters(&mut self) -> &Counters {
        let stats = self.wire.cache.stats();
        let counters = &mut self.wire.counters;
        (counters.cache_hits, counters.cache_misses) = (stats.hits, stats.misses);
        counters.cache_evictions = stats.evictions;
        counters.rekeys = self.peers.iter().filter_map(|peer| peer.link.as_ref()).map(|link| link.send.rekeys()).sum();
        counters
    }

    /// Makes the keys of a pair when they are first needed. `false`: the peer's key is unusable.
    fn connect(&mut self, id: PeerId) -> bool {
        let peer = &mut self.peers[id.0 as usize];
        if peer.link.is_some() {
            return true;
        }
        let decision = self.job.policy.decide(place(&self.own), place(&peer.card));
        let partition = decision.partition.map(|index| &self.job.partitions[index]);
        let Ok(roots) = pair_roots(&self.job.keys, &self.identity, &peer.card.public_key, partition) else {
            self.wire.violation = Some(Violation::WeakKey { peer: peer.name.clone() });
            return false;
        };
        let (suite, protection) = (self.job.keys.suite, decision.protection);
        let receive = ReceiveSession::new(roots.receive, suite, protection);
        self.by_connection.insert(receive.connection_id(), id);
        let send = SendSession::new(roots.send, suite, protection, self.config.epoch_limits);
        let mut link = Link {
            protection,
            send,
            receive,
            introduced: false,
            slots: Default::default(),
            raised: [false; 2],
            unasked: [protection; 2],
            wishes: Vec::new(),
            with: Default::default(),
        };
        link.follow(&self.communicators, &self.job.policy, &self.own, &peer.card);
        peer.link = Some(Box::new(link));
        peer.heard_ns = self.now_ns;
        true
    }

    /// Takes in what became of the process's communicators. One look at a word when nothing did.
    fn look_at_communicators(&mut self) {
        let version = self.job.communicators.version();
        if version != self.communicators_version {
            self.follow_communicators(version);
        }
    }

    #[cold]
    fn follow_communicators(&mut self, version: u64) {
        self.communicators_version = version;
        self.communicators = self.job.communicators.table();
        for peer in &mut self.peers {
            if let Some(link) = &mut peer.link {
                link.follow(&self.communicators, &self.job.policy, &self.own, &peer.card);
            }
        }
    }

    /// Drops and counts; says so at the 1st, 10th, 100th ... time.
    fn refuse(&mut self, host: &mut H, claimed: Option<PeerId>, cause: Cause) {
        let counters = &mut self.wire.counters;
        *match cause {
            Cause::Malformed | Cause::Oversized => &mut counters.refused_malformed,
            Cause::UnknownConnection | Cause::ForeignCard | Cause::OtherPolicy => &mut counters.refused_unknown_peer,
            Cause::Epoch | Cause::BadTag | Cause::Unprotected => &mut counters.refused_bad_tag,
            Cause::Replay => &mut counters.refused_replay,
        } += 1;
        let count = self.refused.entry((claimed, cause)).or_default();
        *count += 1;
        let count = *count;
        if 10_u64.pow(count.ilog10()) == count {
            let claimed = claimed.map(|id| self.peers[id.0 as usize].name.clone());
            host.alert(&Alert { cause, claimed, count });
        }
    }

    fn count_sent(&mut self, id: PeerId, len: usize) {
        self.peers[id.0 as usize].messages_sent += 1;
        self.wire.counters.messages_sent += 1;
        self.wire.counters.bytes_sent += len as u64;
    }

    fn count_received(&mut self, len: usize) {
        self.wire.counters.messages_received += 1;
        self.wire.counters.bytes_received += len as u64;
    }

    /// The number of a message that begins to arrive.
    fn number_arrival(&mut self, id: PeerId) -> u64 {
        let arrived = &mut self.peers[id.0 as usize].messages_arrived;
        *arrived += 1;
        *arrived - 1
    }

    fn misbehaved(&mut self, host: &mut H, id: PeerId, what: &'static str) {
        let peer = self.peers[id.0 as usize].name.clone();
        self.end(host, Violation::Misbehaved { peer, what });
    }

    fn end(&mut self, host: &mut H, violation: Violation) {
        self.dead = true;
        host.violation(&violation);
    }

    /// Reports what was found where there was no host to report it to.
    fn report(&mut self, host: &mut H) {
        if let Some(violation) = self.wire.violation.take() {
            self.end(host, violation);
        }
    }
}

/// Where the owner of a card is, for the policy.
fn place(card: &Card) -> Place {
    Place { host: card.host, address: Some(card.address.ip()) }
}

/// Hasher for keys that are uniformly random already: connection ids come out of the key schedule.
#[derive(Default)]
struct Uniform(u64);

impl Hasher for Uniform {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
