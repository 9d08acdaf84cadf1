//! An endpoint, a program that uses it, and three who send it records: anybody, an honest peer
//! whose records are altered on the way, and a peer with keys of the job that says what it likes.

use std::net::SocketAddr;
use std::sync::Arc;

use gambeson_proto::endpoint::{
    ClaimId, Config, Endpoint, Job, Lane, PeerId, ReceiveId, ReceiveRequest, SendRequest, Violation,
};
use gambeson_proto::identity::{Card, HostIndex, Identity, PublicKey};
use gambeson_proto::key_schedule::{JobKeys, PairRoots, pair_roots};
use gambeson_proto::policy::Policy;
use gambeson_proto::record::{Envelope, Header, INTRODUCTION_LEN, Kind, Plan};
use gambeson_proto::session::{EpochLimits, Stamp};
use gambeson_proto::suite::Protection;

use super::card::keys;
use super::host::{Memory, NullHost};
use super::input::Input;
use super::record::{KINDS, PROTECTIONS};

const LARGEST: usize = 20_000;

struct Node {
    endpoint: Endpoint<NullHost>,
    host: NullHost,
}

impl Node {
    fn new(number: u8, config: &Config, job: &Arc<Job>) -> Self {
        let (identity, own) = identity(number);
        let endpoint = Endpoint::new(config.clone(), job.clone(), identity, own);
        Node { endpoint, host: NullHost { buffers: 4, ..NullHost::default() } }
    }

    fn arrive(&mut self, mut record: Vec<u8>) {
        self.endpoint.arrive(&mut self.host, &mut record);
    }
}

fn identity(number: u8) -> (Identity, Card) {
    let identity = Identity::from_seed([number; 32]);
    let address = SocketAddr::from(([10, 77, 0, number], 4000));
    let own = Card { address, public_key: identity.public, rank: Some(number.into()), host: HostIndex::UNLISTED };
    (identity, own)
}

/// A peer with keys of the job that is not bound to the protocol.
struct Liar {
    roots: PairRoots,
    keys: JobKeys,
    protection: Protection,
    introduction: [u8; INTRODUCTION_LEN],
    sequence: u64,
    introduced: bool,
    /// Ids that the endpoint put into its records to the liar.
    ids: Vec<u64>,
}

impl Liar {
    fn new(job: &Job, protection: Protection, peer: &PublicKey) -> Self {
        let (identity, own) = identity(3);
        let roots = pair_roots(&job.keys, &identity, peer, None).expect("both keys are sound");
        let mut introduction = [0; INTRODUCTION_LEN];
        introduction[..64].copy_from_slice(&own.encode(&job.admission));
        introduction[64..].copy_from_slice(&job.keys.policy_hash[..8]);
        Liar {
            roots,
            keys: job.keys.clone(),
            protection,
            introduction,
            sequence: 0,
            introduced: false,
            ids: Vec::new(),
        }
    }

    fn say(&mut self, envelope: Envelope, payload: &[u8]) -> Vec<u8> {
        let plan = Plan {
            stamp: Stamp { epoch: 0, sequence: self.sequence },
            connection: self.roots.send.connection_id(),
            introduction: (!self.introduced).then_some(&self.introduction),
            envelope,
            payload: payload.len(),
            mode: Default::default(),
        };
        let context = self.roots.send.epoch(0, self.keys.suite, self.protection);
        let mut record = vec![0; plan.len()];
        plan.seal(&context, self.protection, payload, &mut record);
        self.sequence += 1;
        self.introduced = true;
        record
    }

    fn listen(&mut self, record: &mut [u8]) {
        let Some(header) = Header::parse(record) else { return };
        let context = self.roots.receive.epoch(header.stamp.epoch, self.keys.suite, self.protection);
        if let Some((Some(envelope), _)) = header.open(&context, self.protection, record) {
            self.ids.extend([envelope.id, envelope.data]);
            let surplus = self.ids.len().saturating_sub(16);
            self.ids.drain(..surplus);
        }
    }
}

struct World {
    own: Node,
    honest: Node,
    liar: Liar,
    /// The honest peer and the liar as our endpoint knows them, and itself.
    peers: [PeerId; 3],
    to_own: PeerId,
    protection: Protection,
    posted: Vec<ReceiveId>,
    claims: Vec<ClaimId>,
    now_ns: u64,
    lied: bool,
}

fn world(mode: u8) -> World {
    let protection = PROTECTIONS[usize::from(mode) % 3];
    let policy = Policy::parse(&format!("protection = \"{protection}\""), "fuzz").expect("a policy");
    let keys = JobKeys { policy_hash: policy.hash(), ..keys() };
    let job = Arc::new(Job {
        admission: keys.admission_key(),
        keys,
        policy,
        partitions: Vec::new(),
        communicators: Default::default(),
    });
    let config = Config {
        single_max: 1024,
        request_payload: 512,
        record_payload: 6000,
        eager_max: 8192,
        peer_credit: 32 << 10,
        unexpected_limit: [0, 16 << 10, 1 << 20, 1 << 20][usize::from(mode >> 4) % 4],
        gap_timeout_ns: if mode & 0x80 != 0 { 1_000_000_000 } else { 0 },
        epoch_limits: EpochLimits { records: 5, blocks: 1 << 34 },
        key_slots: 3,
    };
    let (mut own, mut honest) = (Node::new(1, &config, &job), Node::new(2, &config, &job));
    let add = |node: &mut Node, card: &[u8]| node.endpoint.add_peer(card).expect("a card of the job");
    let known = own.endpoint.card().to_vec();
    let liar = Liar::new(&job, protection, &identity(1).1.public_key);
    let cards = [honest.endpoint.card().to_vec(), liar.introduction[..64].to_vec(), known.clone()];
    let peers = cards.map(|card| add(&mut own, &card));
    let to_own = add(&mut honest, &known);
    let (posted, claims) = (Vec::new(), Vec::new());
    World { own, honest, liar, peers, to_own, protection, posted, claims, now_ns: 1, lied: false }
}

pub fn endpoint(data: &[u8]) {
    let mut input = Input(data);
    let mut world = world(input.byte());
    for _ in 0..64 {
        if input.is_empty() || world.own.host.violation.is_some() || world.honest.host.violation.is_some() {
            break;
        }
        match input.byte() % 16 {
            0 => world.anybody(&mut input),
            1..=4 => world.lie(&mut input),
            5..=7 => world.honest_send(&mut input),
            8 | 9 => world.receive(&mut input),
            10 => world.claim(&mut input),
            11 => world.settle(&mut input),
            12 => world.send(&mut input),
            13 => world.tick(&mut input),
            14 => world.cancel(&mut input),
            _ => world.exchange(None),
        }
    }
    world.exchange(None);
    world.check();
}

impl World {
    /// Only who has the keys can end a job, and the clock.
    fn check(&self) {
        if self.protection == Protection::None || self.lied {
            return;
        }
        for node in [&self.own, &self.honest] {
            let ended = node.host.violation.as_ref();
            let ended = ended.filter(|violation| !matches!(violation, Violation::Silent { .. }));
            assert!(ended.is_none(), "nobody lied, and yet: {}", ended.map(ToString::to_string).unwrap_or_default());
        }
    }

    fn anybody(&mut self, input: &mut Input<'_>) {
        let len = usize::from(input.short()) % 400;
        self.own.arrive(input.bytes(len).to_vec());
        self.check();
    }

    fn lie(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let kind = KINDS[usize::from(input.byte()) % KINDS.len()];
        let flags = if kind == Kind::Message { input.byte() & 15 } else { 0 };
        let (tag, size, data) = (input.number(), input.number(), input.number());
        let at = usize::from(input.byte());
        let id = match self.liar.ids.len() {
            len if how & 1 == 0 && len > 0 => self.liar.ids[at % len],
            _ => input.number(),
        };
        let len = if how & 2 == 0 { 0 } else { usize::from(input.short()) % LARGEST };
        let size = if how & 4 == 0 { size } else { len as u64 + u64::from(how >> 3) };
        let mut record = self.liar.say(Envelope { kind, flags, tag, size, data, id }, &vec![how; len]);
        self.lied = true;
        self.own.endpoint.arrive(&mut self.own.host, &mut record);
        self.exchange(None);
    }

    fn honest_send(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let len = usize::from(input.short()) % if how & 1 == 0 { 200 } else { LARGEST };
        let request = SendRequest {
            peer: self.to_own,
            lane: if how & 2 == 0 { Lane::Tagged } else { Lane::Message },
            tag: if how & 2 == 0 { u64::from(how >> 4) % 4 } else { 0 },
            data: (how & 4 != 0).then_some(u64::from(how)),
            len,
            delivery: how & 8 != 0,
        };
        let _ = self.honest.endpoint.send(&mut self.honest.host, request, vec![how; len]);
        self.exchange(Some(input));
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let len = usize::from(input.short()) % LARGEST;
        let request = SendRequest {
            peer: self.peers[usize::from(how >> 2) % 3],
            lane: if how & 1 == 0 { Lane::Tagged } else { Lane::Message },
            tag: if how & 1 == 0 { u64::from(how >> 5) % 4 } else { 0 },
            data: None,
            len,
            delivery: how & 2 != 0,
        };
        let _ = self.own.endpoint.send(&mut self.own.host, request, vec![how; len]);
        self.exchange(None);
    }

    fn receive(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let lane = if how & 1 == 0 { Lane::Tagged } else { Lane::Message };
        let capacity = usize::from(input.short()) % LARGEST;
        let multi = (how & 1 != 0 && how & 2 != 0).then_some(1 + capacity / 4);
        let source = (how & 4 != 0).then(|| self.peers[usize::from(how >> 6) % 3]);
        let ignore = if how & 8 == 0 || lane == Lane::Message { u64::MAX } else { 0 };
        let tag = if lane == Lane::Message { 0 } else { u64::from(how >> 4) % 4 };
        let request = ReceiveRequest { lane, source, tag, ignore, capacity, multi };
        let memory = Memory::new(capacity, how & 0x80 == 0);
        self.posted.push(self.own.endpoint.receive(&mut self.own.host, request, memory));
        self.exchange(None);
    }

    fn cancel(&mut self, input: &mut Input<'_>) {
        let at = usize::from(input.byte());
        if let Some(id) = self.posted.get(at % self.posted.len().max(1)) {
            self.own.endpoint.cancel(*id);
        }
    }

    fn claim(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let lane = if how & 1 == 0 { Lane::Tagged } else { Lane::Message };
        let tag = if lane == Lane::Message { 0 } else { u64::from(how >> 4) % 4 };
        let ignore = if how & 4 == 0 { u64::MAX } else { 0 };
        let found = self.own.endpoint.peek(lane, None, tag, ignore, how & 2 != 0);
        self.claims.extend(found.and_then(|(_, claim)| claim));
    }

    /// Receives or discards what was claimed, once or twice.
    fn settle(&mut self, input: &mut Input<'_>) {
        let (how, capacity) = (input.byte(), usize::from(input.short()) % LARGEST);
        let Some(claim) = self.claims.get(usize::from(how >> 2) % self.claims.len().max(1)) else { return };
        if how & 1 == 0 {
            self.own.endpoint.discard_claimed(&mut self.own.host, *claim);
        } else {
            let memory = Memory::new(capacity, how & 2 == 0);
            let _ = self.own.endpoint.receive_claimed(&mut self.own.host, *claim, capacity, memory);
        }
        self.exchange(None);
    }

    fn tick(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        self.now_ns += u64::from(how) * 10_000_000;
        for node in [&mut self.own, &mut self.honest] {
            node.endpoint.tick(&mut node.host, self.now_ns);
        }
        if how == 255 {
            self.own.endpoint.begin_close(&mut self.own.host);
        }
        self.exchange(None);
    }

    /// Hands every record over that is under way. With an input, records to our endpoint come
    /// altered first.
    fn exchange(&mut self, mut input: Option<&mut Input<'_>>) {
        for _ in 0..1000 {
            for node in [&mut self.own, &mut self.honest] {
                node.host.buffers = 4;
                node.endpoint.progress(&mut node.host);
            }
            let ours = self.own.host.outbox.pop_front();
            let theirs = self.honest.host.outbox.pop_front();
            if ours.is_none() && theirs.is_none() {
                return;
            }
            match ours {
                Some((peer, record)) if peer == self.peers[0] => self.honest.arrive(record),
                Some((_, mut record)) => self.liar.listen(&mut record),
                None => {}
            }
            if let Some((_, record)) = theirs {
                if let Some(input) = input.as_deref_mut() {
                    self.altered(&record, input);
                }
                self.own.arrive(record);
            }
        }
        panic!("two endpoints talk without end");
    }

    /// Brings a record that was altered on the way: under authentication nothing may move. The
    /// record itself is still to come.
    fn altered(&mut self, record: &[u8], input: &mut Input<'_>) {
        if self.protection == Protection::None {
            return;
        }
        let (at, bit) = (usize::from(input.short()) % record.len(), input.byte());
        let mut record = record.to_vec();
        if bit & 8 == 0 {
            record[at] ^= 1 << (bit % 8);
        } else {
            record.truncate(at);
        }
        let before = (self.own.host.arrivals, self.own.host.outbox.len(), self.own.host.violation.is_some());
        self.own.arrive(record);
        let after = (self.own.host.arrivals, self.own.host.outbox.len(), self.own.host.violation.is_some());
        assert_eq!(before, after, "a record that was altered at byte {at} moved something");
    }
}
