//! What the adapters at both ends do with a packet's headers: the sender's fills them in, the receiver's checks them
//! before its process sees the packet (IBA paper, sections 3, 5.1, 5.2 and 6.2).
//!
//! ```text
//!  P_Key ── queue pair ── Q_Key ── tag demanded? ──> security unit ──> tag right? ── sent before? ── R_Key ──> process
//! ```

use std::collections::HashMap;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::packet::Send;
use crate::security::{Authenticator, KeyLevel, ReplayGuard, SecurityConfig};
use crate::time::Time;
use crate::transport::{Operation, Service};

/// What a packet says to the adapter that gets it. All of it is in clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// The service of the queue pair that it is for.
    pub service: Service,
    /// BTH: the partition key.
    pub p_key: u16,
    /// The node that it says it is from.
    pub sender: u32,
    /// BTH: the receiver's queue pair.
    pub queue_pair: u64,
    /// DETH: the key of a datagram's queue pair.
    pub q_key: Option<u32>,
    /// RETH: the key of the memory that is written.
    pub r_key: Option<u32>,
    /// Its number in its stream, of which the packet sequence number is the end.
    pub sequence: u64,
    /// When it was sent, in the receiver's ticks.
    pub stamp: u64,
    /// BTH: whether the authentication algorithm is one, so that a tag stands in the place of the ICRC.
    pub tagged: bool,
    /// The key that this tag was made with; none for one that was made up.
    pub tagged_under: Option<u64>,
}

/// Why an adapter does not hand a packet to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The P_Key is not that of the receiver's partition.
    PKey,
    /// There is no such queue pair here.
    QueuePair,
    /// The Q_Key is not the queue pair's.
    QKey,
    /// A plain ICRC, where there is a key for a tag.
    Plain,
    /// The tag is wrong.
    Tag,
    /// It was sent before, or so long ago that nobody knows.
    Replayed,
    /// The R_Key is not that of memory here.
    RKey,
}

impl Refusal {
    /// What was wrong with the packet, in a word or two.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refusal::PKey => "P_Key",
            Refusal::QueuePair => "queue pair",
            Refusal::QKey => "Q_Key",
            Refusal::Plain => "no tag",
            Refusal::Tag => "wrong tag",
            Refusal::Replayed => "sent before or stale",
            Refusal::RKey => "R_Key",
        }
    }
}

/// How many packets were refused, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refusals {
    /// For their P_Key.
    pub p_key: u64,
    /// For their queue pair.
    pub queue_pair: u64,
    /// For their Q_Key.
    pub q_key: u64,
    /// For having no tag.
    pub plain: u64,
    /// For a wrong one.
    pub tag: u64,
    /// For their sequence or their time stamp.
    pub replayed: u64,
    /// For their R_Key.
    pub r_key: u64,
}

impl Refusals {
    /// Counts one more.
    pub fn add(&mut self, refusal: Refusal) {
        *match refusal {
            Refusal::PKey => &mut self.p_key,
            Refusal::QueuePair => &mut self.queue_pair,
            Refusal::QKey => &mut self.q_key,
            Refusal::Plain => &mut self.plain,
            Refusal::Tag => &mut self.tag,
            Refusal::Replayed => &mut self.replayed,
            Refusal::RKey => &mut self.r_key,
        } += 1;
    }

    /// Each reason with its count.
    #[must_use]
    pub fn each(&self) -> [(Refusal, u64); 7] {
        [
            (Refusal::PKey, self.p_key),
            (Refusal::QueuePair, self.queue_pair),
            (Refusal::QKey, self.q_key),
            (Refusal::Plain, self.plain),
            (Refusal::Tag, self.tag),
            (Refusal::Replayed, self.replayed),
            (Refusal::RKey, self.r_key),
        ]
    }

    /// All of them.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.each().iter().map(|(_, count)| count).sum()
    }
}

/// All adapters of a fabric.
pub(super) struct Adapters {
    level: KeyLevel,
    accept_plain: bool,
    partitions: u32,
    receivers: Vec<Receiver>,
    /// How many packets were sent before, by receiving node, queue pair and sending node.
    sequences: HashMap<(u32, u64, u32), u64>,
    /// By the packet's place in the table of those under way.
    headers: Vec<Headers>,
    /// Whether a made-up tag is right.
    random: Xoshiro256PlusPlus,
    /// A switch that somebody listens at.
    pub(super) tap: Option<u32>,
}

struct Receiver {
    queue_pairs: HashMap<u64, QueuePair>,
    replay: ReplayGuard,
    tags: Authenticator,
}

/// What a receiver knows of one of its queue pairs, from the time when it was set up.
struct QueuePair {
    service: Service,
    /// The key that its packets are under.
    key: u64,
}

impl Adapters {
    pub(super) fn new(security: &SecurityConfig, nodes: u32, partitions: u32, seed: u64) -> Self {
        let receiver = || Receiver {
            queue_pairs: HashMap::new(),
            replay: ReplayGuard::new(&security.replay),
            tags: Authenticator::new((security.tag_bytes * 8).min(u64::BITS), security.alert),
        };
        Self {
            level: security.level,
            accept_plain: security.accept_plain,
            partitions,
            receivers: std::iter::repeat_with(receiver).take(nodes as usize).collect(),
            sequences: HashMap::new(),
            headers: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            tap: None,
        }
    }

    /// The headers of a packet whose sender means well. The first to a queue pair sets it up, as the messages before
    /// it would have (section 5.1.5).
    pub(super) fn fill_in(&mut self, now: Time, send: &Send) -> Headers {
        let Send { from, to, transport, owners, .. } = *send;
        let datagram = transport.service.is_datagram();
        // A connection's queue pair has one peer; a datagram's belongs to its process alone.
        let queue_pair = match datagram {
            true => DATAGRAM | u64::from(owners[1]),
            false => u64::from(from) << 32 | u64::from(owners[0]) << 16 | u64::from(owners[1]),
        };
        let receiver = &mut self.receivers[to as usize];
        let known = receiver.queue_pairs.entry(queue_pair);
        known.or_insert(QueuePair { service: transport.service, key: send.key });
        let next = self.sequences.entry((to, queue_pair, from)).or_insert(0);
        let sequence = *next;
        *next += 1;
        Headers {
            service: transport.service,
            p_key: send.p_key,
            sender: send.claimed.unwrap_or(from),
            queue_pair,
            q_key: datagram.then(|| q_key(to, queue_pair)),
            r_key: (transport.operation == Operation::Write).then(|| r_key(to, queue_pair)),
            sequence,
            stamp: receiver.replay.stamp(now),
            tagged: self.level != KeyLevel::None,
            tagged_under: (self.level != KeyLevel::None).then_some(send.key),
        }
    }

    /// What an adapter would stamp a packet with.
    pub(super) fn stamp(&self, now: Time) -> u64 {
        self.receivers[0].replay.stamp(now)
    }

    /// Keeps the headers of a packet under way.
    pub(super) fn put(&mut self, packet: u32, headers: Headers) {
        let place = packet as usize;
        if self.headers.len() <= place {
            self.headers.resize(place + 1, Headers::default());
        }
        self.headers[place] = headers;
    }

    pub(super) fn headers(&self, packet: u32) -> &Headers {
        &self.headers[packet as usize]
    }

    /// What a receiver checks before it looks a key up.
    pub(super) fn identify(&self, node: u32, packet: u32) -> Result<(), Refusal> {
        let headers = self.headers(packet);
        if u32::from(headers.p_key) != node % self.partitions {
            return Err(Refusal::PKey);
        }
        let known = self.receivers[node as usize].queue_pairs.get(&headers.queue_pair);
        let queue_pair = known.filter(|known| known.service == headers.service).ok_or(Refusal::QueuePair)?;
        if queue_pair.service.is_datagram() && headers.q_key != Some(q_key(node, headers.queue_pair)) {
            return Err(Refusal::QKey);
        }
        if self.level != KeyLevel::None && !headers.tagged && !self.accept_plain {
            return Err(Refusal::Plain);
        }
        Ok(())
    }

    /// What it checks once the packet is out of the security unit.
    pub(super) fn open(&mut self, now: Time, node: u32, packet: u32) -> Result<(), Refusal> {
        let headers = self.headers[packet as usize];
        let receiver = &mut self.receivers[node as usize];
        if headers.tagged {
            let key = match self.level {
                KeyLevel::Partition => u64::from(headers.p_key),
                _ => receiver.queue_pairs[&headers.queue_pair].key,
            };
            let genuine = headers.tagged_under == Some(key);
            if !receiver.tags.check(headers.sender.into(), genuine, &mut self.random).accepted() {
                return Err(Refusal::Tag);
            }
        }
        // A connection is one stream whoever the packet says it is from; a datagram's stream is its sender's.
        let sender = if headers.service.is_datagram() { headers.sender } else { 0 };
        if !receiver.replay.accepts(now, (headers.queue_pair, sender), headers.sequence, headers.stamp) {
            return Err(Refusal::Replayed);
        }
        if headers.r_key.is_some_and(|key| key != r_key(node, headers.queue_pair)) {
            return Err(Refusal::RKey);
        }
        Ok(())
    }

    /// Alerts for wrong tags.
    pub(super) fn alerts(&self) -> u64 {
        self.receivers.iter().map(|receiver| receiver.tags.stats().alerts).sum()
    }
}

/// A queue pair's number, where it is one of datagrams.
const DATAGRAM: u64 = 1 << 63;

/// The Q_Key that a node gave a queue pair. Nobody else can tell it but from a packet.
fn q_key(node: u32, queue_pair: u64) -> u32 {
    mixed(u64::from(node) << 1 ^ queue_pair.rotate_left(17))
}

/// The R_Key of the memory that a node opened to a queue pair.
fn r_key(node: u32, queue_pair: u64) -> u32 {
    mixed(u64::from(node) << 1 ^ 1 ^ queue_pair.rotate_left(17))
}

/// Numbers that look like random ones (splitmix64).
fn mixed(seed: u64) -> u32 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value >> 32) as u32
}
