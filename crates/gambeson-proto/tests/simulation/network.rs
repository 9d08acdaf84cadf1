//! A seeded network between simulated endpoints: benign (busy carrier, few buffers, links that do
//! not wait for each other) or hostile (records altered, dropped, replayed, swapped, injected).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use gambeson_proto::endpoint::{Alert, Busy, Config, Endpoint, Host, Job, PeerId, Received, Violation};
use gambeson_proto::identity::{Card, HostIndex, Identity};

/// A small deterministic generator (SplitMix64).
#[derive(Clone)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a finished receive looked like to the program.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub receive: u64,
    pub message: Received,
    pub bytes: Vec<u8>,
}

/// A posted receive of the simulated program: its number and its memory, in two pieces now and
/// then, as iovecs are.
pub(crate) struct SimReceive {
    pub number: u64,
    pub pieces: Vec<Vec<u8>>,
}

impl SimReceive {
    pub(crate) fn new(number: u64, capacity: usize, split: bool) -> Self {
        let first = if split { capacity / 3 } else { capacity };
        SimReceive { number, pieces: vec![vec![0xee; first], vec![0xee; capacity - first]] }
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.pieces.concat()[offset..offset + len].to_vec()
    }
}

pub(crate) struct SimHost {
    pub random: Random,
    pub routes: Vec<Option<u16>>,
    pub outbox: VecDeque<(u16, Vec<u8>)>,
    pub buffers: usize,
    pub busy_percent: u64,
    pub sent: Vec<u64>,
    pub arrivals: Vec<Arrival>,
    pub given_back: Vec<u64>,
    pub alerts: Vec<Alert>,
    pub violation: Option<Violation>,
}

impl SimHost {
    fn route(&mut self, peer: PeerId, record: &[u8]) {
        let to = self.routes[peer.0 as usize].expect("the peer was introduced");
        self.outbox.push_back((to, record.to_vec()));
    }

    pub(crate) fn reach(&mut self, peer: PeerId, to: u16) {
        let index = peer.0 as usize;
        if self.routes.len() <= index {
            self.routes.resize(index + 1, None);
        }
        self.routes[index] = Some(to);
    }
}

impl Host for SimHost {
    type Send = (u64, Vec<u8>);
    type Receive = SimReceive;
    type Buffer = Vec<u8>;

    fn source(send: &Self::Send, offset: usize, len: usize) -> Option<&[u8]> {
        (send.0 % 3 != 0).then(|| &send.1[offset..offset + len])
    }

    fn gather(send: &Self::Send, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&send.1[offset..offset + into.len()]);
    }

    fn sink(receive: &mut SimReceive, offset: usize, len: usize) -> Option<&mut [u8]> {
        receive.pieces[0].get_mut(offset..offset + len)
    }

    fn scatter(receive: &mut SimReceive, offset: usize, from: &[u8]) {
        let first = receive.pieces[0].len();
        for (at, byte) in (offset..).zip(from) {
            if at < first { receive.pieces[0][at] = *byte } else { receive.pieces[1][at - first] = *byte }
        }
    }

    fn inject_size(&self) -> usize {
        128
    }

    fn inject(&mut self, peer: PeerId, record: &[u8]) -> Result<(), Busy> {
        if self.random.chance(self.busy_percent) {
            return Err(Busy);
        }
        self.route(peer, record);
        Ok(())
    }

    fn buffer(&mut self, len: usize) -> Option<Vec<u8>> {
        if self.buffers == 0 {
            return None;
        }
        self.buffers -= 1;
        Some(vec![0xdd; len])
    }

    fn transmit(&mut self, peer: PeerId, buffer: Vec<u8>, len: usize) -> Result<(), Vec<u8>> {
        if self.random.chance(self.busy_percent) {
            return Err(buffer);
        }
        self.route(peer, &buffer[..len]);
        Ok(())
    }

    fn introduce(&mut self, peer: PeerId, address: SocketAddr) {
        self.reach(peer, address.port());
    }

    fn sent(&mut self, send: Self::Send) {
        self.sent.push(send.0);
    }

    fn received(&mut self, receive: SimReceive, message: &Received) {
        let bytes = receive.bytes(0, message.len);
        self.arrivals.push(Arrival { receive: receive.number, message: *message, bytes });
    }

    fn received_part(&mut self, receive: &SimReceive, message: &Received) {
        let bytes = receive.bytes(message.offset, message.len);
        self.arrivals.push(Arrival { receive: receive.number, message: *message, bytes });
    }

    fn multi_done(&mut self, receive: SimReceive) {
        self.given_back.push(receive.number);
    }

    fn clock_ns(&self) -> u64 {
        0
    }

    fn alert(&mut self, alert: &Alert) {
        self.alerts.push(alert.clone());
    }

    fn violation(&mut self, violation: &Violation) {
        self.violation = Some(violation.clone());
    }
}

pub(crate) struct Node {
    pub endpoint: Endpoint<SimHost>,
    pub host: SimHost,
    pub ids: Vec<PeerId>,
}

/// What the network does to a record now and then, in percent.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hostility {
    pub flip: u64,
    pub drop: u64,
    pub replay: u64,
    pub swap: u64,
    pub inject: u64,
    pub truncate: u64,
}

pub(crate) struct Network {
    pub nodes: Vec<Node>,
    pub links: Vec<VecDeque<Vec<u8>>>,
    pub seen: Vec<(u16, Vec<u8>)>,
    pub random: Random,
    pub now_ns: u64,
    pub records: u64,
}

const BUFFERS: usize = 3;

impl Network {
    /// `nodes` endpoints that know each other's cards, but for those that only find out from the
    /// first record (`strangers`).
    pub(crate) fn new(
        seed: u64,
        nodes: u16,
        config: &Config,
        job: &Arc<Job>,
        busy_percent: u64,
        strangers: bool,
    ) -> Self {
        let mut random = Random(seed);
        let mut made = Vec::new();
        for number in 0..nodes {
            let mut bytes = [0; 32];
            bytes.fill_with(|| random.next() as u8);
            let identity = Identity::from_seed(bytes);
            let address = SocketAddr::from(([10, 0, 0, 1], number));
            let own = Card { address, public_key: identity.public, rank: Some(number.into()), host: HostIndex(number) };
            let endpoint = Endpoint::new(config.clone(), job.clone(), identity, own);
            let host = SimHost {
                random: Random(random.next()),
                routes: Vec::new(),
                outbox: VecDeque::new(),
                buffers: BUFFERS,
                busy_percent,
                sent: Vec::new(),
                arrivals: Vec::new(),
                given_back: Vec::new(),
                alerts: Vec::new(),
                violation: None,
            };
            made.push(Node { endpoint, host, ids: Vec::new() });
        }
        let cards: Vec<Vec<u8>> = made.iter().map(|node| node.endpoint.card().to_vec()).collect();
        for (own, node) in made.iter_mut().enumerate() {
            for (to, card) in cards.iter().enumerate() {
                if strangers && own > to {
                    continue;
                }
                let id = node.endpoint.add_peer(card).expect("a card of this job");
                node.host.reach(id, to as u16);
                node.ids.push(id);
            }
        }
        let links = vec![VecDeque::new(); usize::from(nodes) * usize::from(nodes)];
        Network { nodes: made, links, seen: Vec::new(), random, now_ns: 1, records: 0 }
    }

    /// Moves what the endpoints sent onto the wire and lets them go on.
    pub(crate) fn collect(&mut self) {
        let count = self.nodes.len();
        for (from, node) in self.nodes.iter_mut().enumerate() {
            while let Some((to, record)) = node.host.outbox.pop_front() {
                self.links[from * count + usize::from(to)].push_back(record);
            }
            node.host.buffers = BUFFERS;
            node.endpoint.progress(&mut node.host);
        }
    }

    /// Delivers one record of a random link. `false`: there was none.
    pub(crate) fn deliver(&mut self, hostility: &Hostility) -> bool {
        let full: Vec<usize> = (0..self.links.len()).filter(|link| !self.links[*link].is_empty()).collect();
        if full.is_empty() {
            return false;
        }
        let link = full[self.random.below(full.len() as u64) as usize];
        let to = link % self.nodes.len();
        let random = &mut self.random;
        if random.chance(hostility.swap) && self.links[link].len() > 1 {
            self.links[link].swap(0, 1);
        }
        let mut record = self.links[link].pop_front().expect("the link is not empty");
        self.records += 1;
        if self.seen.len() < 64 || random.chance(5) {
            self.seen.push((to as u16, record.clone()));
        }
        if random.chance(hostility.drop) {
            return true;
        }
        if random.chance(hostility.inject) {
            let len = random.below(300) as usize;
            let mut garbage: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            if len > 40 && random.chance(50) {
                let known = record.len().min(40);
                garbage[..known].copy_from_slice(&record[..known]);
            }
            self.hand_over(to, &mut garbage);
        }
        let random = &mut self.random;
        if random.chance(hostility.replay) && !self.seen.is_empty() {
            let (to, mut old) = self.seen[random.below(self.seen.len() as u64) as usize].clone();
            self.hand_over(usize::from(to), &mut old);
        }
        let random = &mut self.random;
        if random.chance(hostility.flip) && !record.is_empty() {
            let bit = random.below(record.len() as u64 * 8) as usize;
            record[bit / 8] ^= 1 << (bit % 8);
        }
        if random.chance(hostility.truncate) {
            record.truncate(random.below(record.len() as u64 + 1) as usize);
        }
        self.hand_over(to, &mut record);
        true
    }

    fn hand_over(&mut self, to: usize, record: &mut [u8]) {
        let node = &mut self.nodes[to];
        node.endpoint.arrive(&mut node.host, record);
    }

    pub(crate) fn tick(&mut self, by_ns: u64) {
        self.now_ns += by_ns;
        for node in &mut self.nodes {
            node.endpoint.tick(&mut node.host, self.now_ns);
        }
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.nodes.iter().find_map(|node| node.host.violation.as_ref())
    }
}
