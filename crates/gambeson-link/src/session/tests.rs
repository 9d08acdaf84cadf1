//! Two sessions over a network that a seed makes: it cuts bytes anywhere, loses connections with what is under way, flips,
//! drops, doubles, swaps and makes up bytes. Whatever it does, every request, put and get comes once, in
//! order, and is answered rightly, and so is who asks for a name.
//!
//! `GAMBESON_SEED=n` runs that seed alone, `GAMBESON_SEEDS=n` the first n.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};

use gambeson_proto::key_schedule::SessionKeys;
use gambeson_proto::record::{answer, request};
use gambeson_proto::secret::Secret32;
use gambeson_proto::startpoint::{
    Caveat, EndpointKey, Limits, Refusal, StartpointBook, StartpointName, Terms, Transforms,
};
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::event::epoll::EventFlags;

use super::*;
use crate::carrier::Kind as Carried;
use crate::endpoint::{Attributes, Handlers, Table};
use crate::identity::KeyHash;
use crate::region::Region;
use crate::request::Answer;
use crate::transform::tests::Rolling;
use crate::transform::{Modules, Selected};

mod limits;
mod packs;
mod transforms;

/// One direction of a connection.
type Wire = Arc<Mutex<VecDeque<u8>>>;

struct Connection {
    to: Wire,
    from: Wire,
    kind: Carried,
    random: Xoshiro256PlusPlus,
}

impl Carrier for Connection {
    fn write(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let whole: usize = bytes.iter().map(|slice| slice.len()).sum();
        let taken = self.random.random_range(0..=whole.min(100_000));
        let bytes = bytes.iter().flat_map(|slice| slice.iter().copied()).take(taken);
        self.to.lock().expect("no panic").extend(bytes);
        Ok(taken)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut from = self.from.lock().expect("no panic");
        let count = from.len().min(into.len()).min(self.random.random_range(0..=50_000));
        for (slot, byte) in into.iter_mut().zip(from.drain(..count)) {
            *slot = byte;
        }
        Ok(count)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        unreachable!("nobody sleeps here: {:?}", io::stdin().as_fd())
    }

    fn interest(&self) -> EventFlags {
        EventFlags::empty()
    }

    fn arm(&mut self, _want_write: bool) -> io::Result<bool> {
        Ok(true)
    }

    fn kind(&self) -> &Carried {
        &self.kind
    }
}

/// A connection's two ends, and its wires.
fn connect(random: &mut Xoshiro256PlusPlus, transport: Transport) -> ([Box<dyn Carrier>; 2], [Wire; 2]) {
    let wires: [Wire; 2] = Default::default();
    let mut end = |to: usize, from: usize| -> Box<dyn Carrier> {
        let (to, from) = (wires[to].clone(), wires[from].clone());
        let kind = match transport {
            Transport::Shm => Carried::Shm { name: "there".into(), process: 1 },
            _ => Carried::Tcp { peer: "127.0.0.1:1".parse().expect("an address"), relayed: false },
        };
        Box::new(Connection { to, from, kind, random: Xoshiro256PlusPlus::seed_from_u64(random.random()) })
    };
    ([end(0, 1), end(1, 0)], wires)
}

const OWNER: [u8; 32] = [2; 32];
const REGION: usize = 2_100_000;

struct Endpoint {
    book: StartpointBook,
    table: Arc<Table>,
    /// Memory for each of two links.
    regions: [Region; 2],
    requests: u64,
    /// Messages that were longer than it takes.
    too_long: u64,
    /// Says when something has to wait.
    busy: Option<Xoshiro256PlusPlus>,
    /// What has come over which link, if somebody wants to know.
    came: Option<Vec<(u64, Vec<u8>)>>,
    /// How often an answer says what was asked.
    times: usize,
    modules: Selected,
    /// Handlers that are never through.
    holds: bool,
}

impl Endpoint {
    fn new() -> Self {
        Self::with(Attributes::default(), 0)
    }

    fn with(attributes: Attributes, len: usize) -> Self {
        let table = Arc::new(Table::new(attributes, Handlers::new(), Box::default()).expect("no handlers"));
        let book = StartpointBook::new(OWNER, Limits::default());
        let regions = [(); 2].map(|()| Region::new(&table, Weak::new(), vec![0x55; len]));
        Endpoint {
            book,
            table,
            regions,
            requests: 0,
            too_long: 0,
            busy: None,
            came: None,
            times: 1,
            modules: Box::default(),
            holds: false,
        }
    }

    /// With an endpoint of which `client` opens a link.
    fn opened(
        attributes: Attributes,
        client: &mut Session,
        cache: &mut KeyCache,
        protection: Protection,
    ) -> (Self, u64) {
        let names = Transforms::new(attributes.transforms.iter().map(String::as_str)).expect("names");
        let modules = Modules::new(vec![Arc::new(Rolling)]).and_then(|all| all.select(&names)).expect("modules");
        let mut endpoint = Endpoint { modules, ..Self::with(attributes, REGION) };
        endpoint.book.open_endpoint(1, EndpointKey::from_bytes([3; 32]), "data", names).expect("a class");
        let link = endpoint.link([4; 16], client, cache, protection);
        (endpoint, link)
    }

    /// A link of `client` to it, by a startpoint of its own.
    fn link(&mut self, root: [u8; 16], client: &mut Session, cache: &mut KeyCache, protection: Protection) -> u64 {
        let memory = Caveat::Memory(self.regions.each_ref().map(|region| region.whole(3)).to_vec());
        let capability = self.book.mint(1, root, Vec::new(), [memory]).expect("a startpoint");
        let opening = capability.activate(client.links(), [5; 16], protection, None).expect("ours to use");
        client.open_link(cache, opening, "data", Stack::open(&self.modules, End::Startpoint).expect("they open"))
    }
}

impl Desk for Endpoint {
    fn admit(&mut self, links: &mut startpoint::Session, _: &Peer, activation: &[u8]) -> Result<Opened, String> {
        let terms = |_: &str| Terms { floor: Protection::None, partition: None };
        let admitted = self.book.admit(links, activation, 1, terms).map_err(|refusal| refusal.to_string())?;
        let (number, protection) = (admitted.activation.number, admitted.activation.protection);
        let binding = Arc::new(Binding { table: self.table.clone(), grant: admitted.grant });
        let stack = Stack::open(&self.modules, End::Endpoint).map_err(|cause| cause.to_string())?;
        Ok(Opened { number, keys: admitted.keys, protection, binding, stack })
    }

    fn named(&mut self, _: &Peer, name: &[u8]) -> Zeroizing<Vec<u8>> {
        name.iter().rev().copied().collect::<Vec<u8>>().into()
    }

    fn has_session(&self, _: &[u8]) -> bool {
        true
    }

    fn too_long(&mut self, _: &Peer, _: &str) {
        self.too_long += 1;
    }

    fn tampered(&mut self, _: &str) {}

    fn request<'i>(&mut self, incident: Incident<'i>) -> Result<(), Bytes<'i>> {
        if self.busy.as_mut().is_some_and(|random| random.random_bool(0.2)) {
            return Err(incident.bytes);
        }
        let came = (incident.link.number(), incident.bytes.get().to_vec());
        if incident.envelope.kind != Kind::Request {
            crate::region::reach(incident, 1, |refusal| refusal.to_string())?;
        } else {
            let Incident { envelope, bytes, credit, link, out, cache, .. } = incident;
            if envelope.flags & request::ANSWER != 0 {
                let mut mask = [0];
                self.regions[(link.number() as usize - 1) / 2].read(0, &mut mask).expect("its first byte");
                let bytes: Vec<u8> =
                    bytes.get().iter().map(|byte| byte ^ mask[0]).collect::<Vec<u8>>().repeat(self.times);
                crate::request::answer(link, out, cache, envelope.data, answer::LAST, &bytes);
            }
            if !self.holds {
                link.handled(out, cache, credit);
            }
        }
        self.requests += 1;
        if let Some(all) = &mut self.came {
            all.push(came);
        }
        Ok(())
    }
}

fn agreed(side: Side) -> Agreed {
    let (own, peer) = if side == Side::Client { ([1; 32], OWNER) } else { (OWNER, [1; 32]) };
    let exporter = Secret32::from_bytes([7; 32]);
    let keys = SessionKeys { exporter, own, peer, job_id: [0; 16], policy_hash: [0; 32], suite: Suite::Aes256Gcm };
    let peer =
        Peer { key: KeyHash(peer), name: "the other".into(), roles: Vec::new(), host: "here".into(), address: None };
    Agreed { side, keys, peer, binding: [0; 32] }
}

/// Two sessions, and the network between them, which a seed makes.
struct Pair {
    seed: u64,
    random: Xoshiro256PlusPlus,
    client: Session,
    server: Session,
    caches: [KeyCache; 2],
    /// To the server, and to the client.
    wires: [Wire; 2],
    /// Turns in which nothing came, and how often there were too many of them.
    quiet: u32,
    silences: u32,
}

impl Pair {
    fn new(seed: u64) -> Self {
        Self::over(seed, |_| Transport::Tcp, &[])
    }

    /// Over the transport that `choose` makes of the seed, to a server that listens at these addresses.
    fn over(seed: u64, choose: impl FnOnce(&mut Xoshiro256PlusPlus) -> Transport, addresses: &[Address]) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let transport = choose(&mut random);
        let ([one, other], wires) = connect(&mut random, transport);
        Pair {
            seed,
            random,
            client: Session::new(agreed(Side::Client), one, (addresses, None), &[]),
            server: Session::new(agreed(Side::Server), other, (&[], None), &[]),
            caches: [KeyCache::new(2), KeyCache::new(2)],
            wires,
            quiet: 0,
            silences: 0,
        }
    }

    /// With an endpoint of the server's that has these modules, and a link of the client's to it.
    fn linked(seed: u64, protection: Protection, modules: &[&str]) -> (Self, Endpoint, u64) {
        let attributes = modules.iter().fold(Attributes::default(), |attributes, name| attributes.transform(name));
        Self::linked_to(attributes, seed, protection)
    }

    fn linked_to(attributes: Attributes, seed: u64, protection: Protection) -> (Self, Endpoint, u64) {
        let mut pair = Self::new(seed);
        let (endpoint, link) = Endpoint::opened(attributes, &mut pair.client, &mut pair.caches[0], protection);
        (pair, endpoint, link)
    }

    /// Both take what has come and send what they have. Whether anything did.
    fn turn(&mut self, endpoint: &mut Endpoint) -> bool {
        let mut nobody = Endpoint::new();
        self.client.progress(&mut self.caches[0], &mut nobody) | self.server.progress(&mut self.caches[1], endpoint)
    }

    /// Counts turns in which nothing comes. Whether there were so many in a row that the connection is to be given up, as
    /// [`Session::listen`] does after a time; only where somebody disturbs it may that be.
    fn is_silent(&mut self, any: bool, hostile: bool) -> bool {
        self.quiet = if any { 0 } else { self.quiet + 1 };
        self.silences = if any { 0 } else { self.silences };
        if self.quiet < SILENCE {
            return false;
        }
        let seed = self.seed;
        assert!(hostile, "seed {seed}: it stands still");
        (self.quiet, self.silences) = (0, self.silences + 1);
        assert!(self.silences < 9, "seed {seed}: it stands still, over whatever connection");
        true
    }

    /// A turn over a network that loses connections, and alters what it carries if it is hostile.
    fn turn_disturbed(&mut self, endpoint: &mut Endpoint, hostile: bool) {
        let any = self.turn(endpoint);
        if hostile && self.random.random_bool(0.02) {
            disturb(&mut self.wires[self.random.random_range(0..2)].lock().expect("no panic"), &mut self.random);
        }
        if self.random.random_bool(0.01) {
            self.client.lose("the seed says so");
        }
        if self.is_silent(any, hostile) {
            self.client.lose("nothing comes any more");
        }
        let Pair { seed, random, client, server, caches, .. } = self;
        if client.lost().is_some() || server.lost().is_some() {
            client.lose("the other end lost it");
            server.lose("the other end lost it");
            let ([one, other], new) = connect(random, Transport::Tcp);
            self.wires = new;
            let (here, there) = (client.received(), server.received());
            let resumed = client.resume(&mut caches[0], one, (here, there), &[]);
            assert!(resumed && server.resume(&mut caches[1], other, (there, here), &[]), "seed {seed}");
        }
        assert_eq!((client.over(), server.over()), (None, None), "seed {seed}");
    }

    /// The client sends a message; its number, if it is to be answered.
    fn send(&mut self, link: u64, envelope: Envelope, bytes: &[u8]) -> u64 {
        let (opened, out) = self.client.link(link).expect("it is open");
        let Role::Start(answers) = &mut opened.role else { panic!("a startpoint's link") };
        let data = if envelope.flags & (request::ANSWER | request::STREAM) != 0 { answers.begin() } else { 0 };
        let sent = opened.transmit(out, &mut self.caches[0], Envelope { data, ..envelope }, bytes);
        sent.expect("the modules take it");
        data
    }

    /// What has come of an answer.
    fn poll(&mut self, link: u64, number: u64) -> Answer {
        let (opened, _) = self.client.link(link).expect("it is open");
        let Role::Start(answers) = &mut opened.role else { panic!("a startpoint's link") };
        answers.poll(number, None)
    }

    /// Its answer was taken.
    fn end(&mut self, link: u64, number: u64) {
        let (opened, _) = self.client.link(link).expect("it is open");
        let Role::Start(answers) = &mut opened.role else { panic!("a startpoint's link") };
        answers.end(number);
    }

    /// The answer, which comes sooner or later.
    fn answer(&mut self, link: u64, number: u64, endpoint: &mut Endpoint) -> Answer {
        for _ in 0..100_000 {
            self.turn(endpoint);
            match self.poll(link, number) {
                Answer::None => {}
                answer => return answer,
            }
        }
        panic!("no answer")
    }
}

/// A request of so many bytes.
fn request_of(len: usize, flags: u8) -> Envelope {
    Envelope { flags, size: len as u64, ..Envelope::new(Kind::Request) }
}

/// Turns in which nothing comes before a connection is given up, as [`Session::listen`] does after a time.
const SILENCE: u32 = 3000;

/// What somebody on the wire does to the bytes that are there.
fn disturb(wire: &mut VecDeque<u8>, random: &mut Xoshiro256PlusPlus) {
    if wire.is_empty() {
        return;
    }
    let at = random.random_range(0..wire.len());
    let end = (at + random.random_range(1..2000_usize)).min(wire.len());
    match random.random_range(0..6) {
        0 | 1 => wire[at] ^= 1 << random.random_range(0..8),
        2 => drop(wire.drain(at..end)),
        3 => {
            let again: Vec<u8> = wire.range(at..end).copied().collect();
            let rest = wire.split_off(end);
            wire.extend(again);
            wire.extend(rest);
        }
        4 => wire.range_mut(at..end).for_each(|byte| *byte = random.random()),
        _ => {
            // The later part first.
            let mut first = wire.split_off(at);
            let second = first.split_off(end - at);
            wire.extend(second);
            wire.extend(first);
        }
    }
}

/// Requests, puts and gets that a seed makes over two links, and whether each comes once, in order, and is answered
/// rightly.
struct Work {
    links: [u64; 2],
    wanted: u64,
    /// Of how many one is long.
    long: f64,
    asked: Vec<(u64, Vec<u8>)>,
    /// Answers that must come.
    waiting: VecDeque<(u64, u64, Vec<u8>)>,
    /// What the links' regions must be once all has landed that was asked so far.
    memory: [Vec<u8>; 2],
    /// Names that were asked for, and the answers that must come.
    names: Vec<(u64, Vec<u8>)>,
}

impl Work {
    /// Over this link and another.
    fn new(pair: &mut Pair, endpoint: &mut Endpoint, first: u64, protection: Protection) -> Self {
        let links = [first, endpoint.link([5; 16], &mut pair.client, &mut pair.caches[0], protection)];
        endpoint.came = Some(Vec::new());
        endpoint.busy = Some(Xoshiro256PlusPlus::seed_from_u64(pair.random.random()));
        // Regions as they are at first.
        let memory = [(); 2].map(|()| vec![0x55; REGION]);
        Work { links, wanted: 0, long: 0.0, asked: Vec::new(), waiting: VecDeque::new(), memory, names: Vec::new() }
    }

    fn is_done(&self, endpoint: &Endpoint) -> bool {
        let answered = self.waiting.is_empty() && self.names.is_empty();
        self.asked.len() as u64 == self.wanted && answered && endpoint.requests >= self.wanted
    }

    fn go_on(&mut self, pair: &mut Pair) {
        let (seed, random) = (pair.seed, &mut pair.random);
        if (self.asked.len() as u64) < self.wanted && random.random_bool(0.3) {
            let number = self.asked.len() as u64;
            let longest = if random.random_bool(self.long) { 2_000_000 } else { 3000 };
            let filling = std::iter::repeat_n(number as u8, random.random_range(0..longest));
            let mut bytes: Vec<u8> = number.to_le_bytes().into_iter().chain(filling).collect();
            if random.random_bool(0.3) {
                random.fill_bytes(&mut bytes[8..]);
            }
            let which = random.random_range(0..2);
            let (link, memory) = (self.links[which], &mut self.memory[which]);
            let kind = [Kind::Request, Kind::Put, Kind::Get][random.random_range(0..3_usize)];
            let offset = if random.random_bool(0.3) { 0 } else { random.random_range(0..=REGION - bytes.len()) };
            let (tag, id, size) = (offset as u64, which as u64, bytes.len() as u64);
            let there = &mut memory[offset..offset + bytes.len()];
            let answer = match kind {
                Kind::Put => {
                    there.copy_from_slice(&bytes);
                    Vec::new()
                }
                Kind::Get => {
                    bytes.clear();
                    there.to_vec()
                }
                _ => bytes.iter().map(|byte| byte ^ memory[0]).collect(),
            };
            let answered = kind == Kind::Get || random.random_bool(0.7);
            let flags = if answered { request::ANSWER } else { 0 };
            let id = if kind == Kind::Request { 0 } else { id };
            let number = pair.send(link, Envelope { kind, flags, tag, size, data: 0, id }, &bytes);
            if answered {
                self.waiting.push_back((link, number, answer));
            }
            self.asked.push((link, bytes));
        }
        if pair.random.random_bool(0.02) {
            let name = "name".repeat(pair.random.random_range(1..900));
            let answer = name.bytes().rev().collect();
            self.names.push((pair.client.ask(&mut pair.caches[0], &name), answer));
        }
        self.names.retain(|(question, right)| {
            let answer = pair.client.answer(*question);
            assert!(answer.as_ref().is_none_or(|answer| **answer == *right), "seed {seed}: a wrong answer");
            answer.is_none()
        });
        if let Some((link, number, bytes)) = self.waiting.front() {
            match pair.poll(*link, *number) {
                Answer::None => {}
                Answer::Some(came) => {
                    assert!(came == *bytes, "seed {seed}: {} bytes in place of {}", came.len(), bytes.len());
                    pair.end(*link, *number);
                    self.waiting.pop_front();
                }
                Answer::Refused(why) => panic!("seed {seed}: {why}"),
                Answer::End => panic!("seed {seed}: an answer is missing"),
            }
        }
    }

    fn has_come(&self, seed: u64, endpoint: Endpoint) {
        let came = endpoint.came.expect("it was wanted");
        for link in self.links {
            let of = |all: &[(u64, Vec<u8>)]| all.iter().filter(|one| one.0 == link).cloned().collect::<Vec<_>>();
            let (came, asked) = (of(&came), of(&self.asked));
            assert!(came == asked, "seed {seed}: every request comes once and in the order of its link");
        }
        for (region, model) in endpoint.regions.iter().zip(&self.memory) {
            let same = region.with(|bytes| *bytes == model[..]).expect("no handler");
            assert!(same, "seed {seed}: a region differs");
        }
    }
}

/// How many bytes the two ends sent.
fn run(seed: u64, protection: Protection, hostile: bool, modules: &[&str]) -> u64 {
    let (mut pair, mut endpoint, first) = Pair::linked(seed, protection, modules);
    let mut work = Work::new(&mut pair, &mut endpoint, first, protection);
    (work.wanted, work.long) = (pair.random.random_range(1..30), 0.2);
    while !work.is_done(&endpoint) {
        work.go_on(&mut pair);
        pair.turn_disturbed(&mut endpoint, hostile);
    }
    work.has_come(seed, endpoint);
    pair.client.out.end() + pair.server.out.end()
}

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().expect("a number"))
}

#[test]
fn every_request_is_answered_once_whatever_the_network_does() {
    let seeds = number("GAMBESON_SEED").map_or(0..number("GAMBESON_SEEDS").unwrap_or(60), |seed| seed..seed + 1);
    for seed in seeds {
        run(seed, Protection::ALL[seed as usize % 2], true, &[]);
        run(seed, Protection::None, false, &[]);
    }
}

/// How far two ends have come with another carrier; each step takes as long as the seed says.
enum Step {
    /// The client has it, and offers to go on.
    Offered([Box<dyn Carrier>; 2], [Wire; 2]),
    /// The server has said how far it is, and how many carriers it has had.
    Answered([Box<dyn Carrier>; 2], [Wire; 2], u64, u64),
    /// The client goes on over it, and has said how far it is.
    Consented(Consent),
}

struct Consent {
    carrier: Box<dyn Carrier>,
    wires: [Wire; 2],
    told: u64,
    carriers: u64,
    arrived: u64,
}

/// Two ends that change their carrier all the time, by hand and by rule, while carriers are lost, consents come late and
/// whatever was offered comes to nothing. How often the server has gone over.
fn run_changing(seed: u64, protection: Protection, hostile: bool) -> u64 {
    let addresses = crate::route::tests::both_ways();
    let begin_with =
        |random: &mut Xoshiro256PlusPlus| if random.random_bool(0.5) { Transport::Tcp } else { Transport::Shm };
    let mut pair = Pair::over(seed, begin_with, &addresses);
    // What each end is at.
    let (mut here, mut there) = (pair.wires.clone(), pair.wires.clone());
    let (mut endpoint, first) =
        Endpoint::opened(Attributes::default(), &mut pair.client, &mut pair.caches[0], protection);
    let mut work = Work::new(&mut pair, &mut endpoint, first, protection);
    (work.wanted, work.long) = (pair.random.random_range(20..60), if seed % 5 == 1 { 0.3 } else { 0.03 });
    let mut step: Option<Step> = None;
    let mut late: Vec<Consent> = Vec::new();
    let mut searching = false;
    let tcp =
        |session: &mut Session| session.carrier().is_some_and(|carrier| carrier.kind().transport() == Transport::Tcp);
    while !work.is_done(&endpoint) {
        work.go_on(&mut pair);
        let any = pair.turn(&mut endpoint);
        let silent = pair.is_silent(any, hostile);
        let Pair { random, client, server, caches, .. } = &mut pair;
        if random.random_bool(0.2) {
            let wish = [None, Some(Transport::Tcp), Some(Transport::Shm)][random.random_range(0..3)];
            client.prefer(wish).expect("both lead somewhere");
        }
        if hostile && tcp(client) && random.random_bool(0.01) {
            disturb(&mut here[random.random_range(0..2)].lock().expect("no panic"), random);
        }
        if silent && tcp(client) {
            client.lose("nothing comes any more");
        }
        if tcp(client) && random.random_bool(0.01) {
            client.lose("the seed says so");
        }
        // A connection that one end has left or lost ends for the other, sooner or later.
        let apart = !Arc::ptr_eq(&here[0], &there[0]);
        if (apart || client.lost().is_some()) && tcp(server) && random.random_bool(0.2) {
            server.lose("the other end is not there any more");
        }
        if (apart || server.lost().is_some()) && tcp(client) && step.is_none() && random.random_bool(0.2) {
            client.lose("the other end is not there any more");
        }
        searching |= client.wants_search();
        if searching && step.is_none() {
            match client.search(&mut caches[0]) {
                None => searching = false,
                Some(search) if search.ready => {
                    let way = random.random_range(0..search.ways.len());
                    let (carriers, wires) = connect(random, search.ways[way].kind);
                    client.hold();
                    step = Some(Step::Offered(carriers, wires));
                }
                Some(_) if random.random_bool(0.05) => searching = client.stay(&mut caches[0], "the seed says so"),
                Some(_) => {}
            }
        }
        if random.random_bool(0.5) {
            step = match step {
                None => None,
                Some(Step::Offered(..) | Step::Answered(..)) if random.random_bool(0.1) => {
                    searching = client.stay(&mut caches[0], "the seed says so");
                    None
                }
                Some(Step::Offered(carriers, wires)) => {
                    Some(Step::Answered(carriers, wires, server.received(), server.carriers()))
                }
                Some(Step::Answered([near, far], new, told, carriers)) => {
                    let arrived = client.received();
                    assert!(client.resume(&mut caches[0], near, (arrived, told), &[]), "seed {seed}");
                    (searching, here) = (false, new.clone());
                    Some(Step::Consented(Consent { carrier: far, wires: new, told, carriers, arrived }))
                }
                // The client has lost it again.
                Some(Step::Consented(consent))
                    if !Arc::ptr_eq(&consent.wires[0], &here[0]) || client.lost().is_some() =>
                {
                    late.push(consent);
                    None
                }
                Some(Step::Consented(consent)) => {
                    if server.carriers() == consent.carriers {
                        there = consent.wires.clone();
                        take(seed, server, &mut caches[1], consent, random);
                    } else {
                        client.lose("it came too late, and was refused");
                    }
                    None
                }
            };
        }
        if !late.is_empty() && random.random_bool(0.05) {
            let consent = late.swap_remove(random.random_range(0..late.len()));
            if server.carriers() == consent.carriers {
                there = consent.wires.clone();
                take(seed, server, &mut caches[1], consent, random);
            }
        }
        assert_eq!((client.over(), server.over()), (None, None), "seed {seed}");
        assert!(hostile || client.barren + server.barren == 0, "seed {seed}: something unacceptable came");
    }
    work.has_come(seed, endpoint);
    pair.server.carriers()
}

/// A consent has come to the server, with some of what is behind it.
fn take(seed: u64, server: &mut Session, cache: &mut KeyCache, consent: Consent, random: &mut Xoshiro256PlusPlus) {
    let Consent { carrier, wires, told, arrived, .. } = consent;
    server.lose("the other end goes on over another connection");
    assert_eq!(server.over(), None, "seed {seed}");
    let mut wire = wires[0].lock().expect("no panic");
    let count = random.random_range(0..=wire.len().min(10_000));
    let rest: Vec<u8> = wire.drain(..count).collect();
    drop(wire);
    assert!(server.resume(cache, carrier, (told, arrived), &rest), "seed {seed}");
}

#[test]
fn nothing_is_lost_and_nothing_comes_twice_however_often_the_transport_changes() {
    let one = number("GAMBESON_SEED");
    let seeds = one.map_or(0..number("GAMBESON_SEEDS").unwrap_or(200), |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let changes: u64 = seeds.map(|seed| run_changing(seed, Protection::ALL[seed as usize % 2], seed % 3 == 0)).sum();
    assert!(one.is_some() || changes > 3 * count, "{changes} changes are no test");
}

#[test]
fn who_asks_and_does_not_listen_can_soon_ask_no_more() {
    let (mut pair, mut endpoint, link) = Pair::linked(1, Protection::Privacy, &[]);
    endpoint.times = 2;
    let send = |pair: &mut Pair, len: usize| pair.send(link, request_of(len, request::ANSWER), &vec![1; len]);
    // A window full of requests, whose answers are two windows.
    let asked: Vec<u64> = (0..23).map(|_| send(&mut pair, 90_000)).collect();
    while endpoint.requests < 23 {
        pair.client.flush();
        pair.server.progress(&mut pair.caches[1], &mut endpoint);
    }
    // What the client gives back does not come to the server, and so nothing more comes to the client.
    for _ in 0..10_000 {
        pair.server.flush();
        pair.client.progress(&mut pair.caches[0], &mut Endpoint::new());
    }
    let more = send(&mut pair, 600_000);
    assert!(!pair.client.link(link).expect("it is open").0.is_drained(), "it could ask on");
    for number in asked.into_iter().chain([more]) {
        let answer = pair.answer(link, number, &mut endpoint);
        assert!(matches!(answer, Answer::Some(bytes) if bytes.len() % 180_000 == 0 || bytes.len() == 1_200_000));
    }
}

#[test]
fn who_gets_and_does_not_listen_has_one_answer_waiting() {
    let (mut pair, mut endpoint, link) = Pair::linked(2, Protection::Privacy, &[]);
    let get = Envelope { flags: request::ANSWER, size: REGION as u64, ..Envelope::new(Kind::Get) };
    let asked = [(); 8].map(|()| pair.send(link, get, &[]));
    for _ in 0..10_000 {
        pair.client.flush();
        pair.server.progress(&mut pair.caches[1], &mut endpoint);
    }
    assert_eq!(endpoint.requests, 1, "the others wait until the answer to the first is taken");
    for number in asked {
        let answer = pair.answer(link, number, &mut endpoint);
        assert!(matches!(answer, Answer::Some(bytes) if bytes == [0x55; REGION]));
    }
}

#[test]
fn links_that_are_gone_take_no_memory_and_their_numbers_open_nothing_again() {
    let (mut pair, mut endpoint, first) = Pair::linked(1, Protection::Privacy, &[]);
    let mut last = first;
    for round in 0..10_000_u64 {
        let root = u128::from(round).to_be_bytes();
        last = endpoint.link(root, &mut pair.client, &mut pair.caches[0], Protection::Privacy);
        pair.send(last, request_of(1, 0), &[1]);
        if round % 1000 != 0 {
            pair.client.release(&mut pair.caches[0], last);
        }
        while endpoint.requests <= round {
            pair.turn(&mut endpoint);
        }
    }
    for _ in 0..100 {
        pair.turn(&mut endpoint);
    }
    let [ours, theirs] = [&pair.client.ours, &pair.server.theirs].map(|links| links.iter().count());
    assert_eq!((ours, theirs), (11, 11), "those that are in use");
    assert!(pair.server.theirs.is_next(last + 2));
    let gone = last - 2;
    assert!(pair.server.link(gone).is_none() && pair.server.lost().is_none());
    pair.client.say(&mut pair.caches[0], word::ACTIVATE, gone, &[]);
    for _ in 0..100 {
        pair.turn(&mut endpoint);
    }
    assert!(pair.server.lost().is_some_and(|(why, _)| why.contains("not the next")), "{:?}", pair.server.lost());
}

/// Takes the records that stand in a wire.
fn records(wire: &Wire) -> Vec<Vec<u8>> {
    let mut bytes: Vec<u8> = wire.lock().expect("no panic").drain(..).collect();
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let len = u32::from_le_bytes(bytes[..4].try_into().expect("a prefix")) as usize;
        let rest = bytes.split_off(4 + len);
        records.push(std::mem::replace(&mut bytes, rest));
    }
    records
}

#[test]
fn a_request_hidden_behind_a_link_that_is_gone_is_missed() {
    for (denied, hidden) in [(false, true), (true, true), (true, false), (false, false)] {
        let (mut pair, mut endpoint, alive) = Pair::linked(1, Protection::Privacy, &[]);
        let gone = endpoint.link([5; 16], &mut pair.client, &mut pair.caches[0], Protection::Privacy);
        if denied {
            let name = StartpointName { endpoint: 1, root: [5; 16], copy: None };
            assert!(endpoint.book.revoke(&name));
        } else {
            pair.client.release(&mut pair.caches[0], gone);
        }
        let mut go = |pair: &mut Pair| {
            for _ in 0..1000 {
                pair.turn(&mut endpoint);
            }
            endpoint.requests
        };
        assert_eq!(go(&mut pair), 0);
        // A request that nobody answers is taken off the wire, and what stands in its place says that it is of a link
        // whose records nobody looks at any more.
        pair.send(alive, request_of(9, 0), &[1; 9]);
        while pair.client.flush() {}
        let mut sent = records(&pair.wires[0]);
        assert_eq!(sent.len(), 1);
        let connection = u32::from_le_bytes(sent[0][28..32].try_into().expect("4 bytes"));
        assert_eq!(u64::from(connection), alive);
        sent[0][28..32].copy_from_slice(&(gone as u32).to_le_bytes());
        pair.wires[0].lock().expect("no panic").extend(if hidden { &sent[0] } else { &[][..] });
        assert_eq!(go(&mut pair), 0);
        assert_eq!(pair.server.over(), None, "nobody can know yet");
        pair.client.release(&mut pair.caches[0], alive);
        go(&mut pair);
        let server = &pair.server;
        let noticed = if hidden { server.over() } else { server.lost().map(|(why, _)| why.as_str()) };
        assert!(noticed.is_some_and(|why| why.contains("took some out") || why.contains("out of turn")), "{noticed:?}");
    }
}

#[test]
fn a_session_that_came_through_a_relay_has_sealed_links_alone() {
    for protection in Protection::ALL {
        for relayed in [false, true] {
            // The end that opens the link does not hold itself to it.
            let (mut pair, mut endpoint, link) = Pair::linked(1, protection, &[]);
            pair.server.relayed = relayed;
            let number = pair.send(link, request_of(3, request::ANSWER), &[1; 3]);
            let answer = pair.answer(link, number, &mut endpoint);
            if relayed && protection != Protection::Privacy {
                assert!(
                    matches!(answer, Answer::Refused(why) if why.to_string().contains("through a relay are sealed"))
                );
                assert_eq!(endpoint.requests, 0);
            } else {
                assert!(matches!(answer, Answer::Some(_)), "{protection} {relayed}");
            }
        }
    }
}

#[test]
fn a_session_that_was_begun_without_a_relay_learns_of_none() {
    let direct = Address { kind: Transport::Tcp, text: "127.0.0.1:1".into() };
    let behind = crate::relay::address("127.0.0.1:2", KeyHash(OWNER));
    for (first, relayed) in [(&direct, false), (&behind, true)] {
        let mut pair = Pair::over(1, |_| Transport::Tcp, std::slice::from_ref(first));
        pair.client.learn(&[direct.clone(), behind.clone()]);
        assert_eq!((pair.client.is_relayed(), pair.client.addresses.contains(&behind)), (relayed, relayed));
        assert!(pair.client.addresses.contains(&direct));
    }
}

#[test]
fn who_asks_and_asks_over_the_control_link_and_does_not_listen_is_soon_done_with() {
    for word in [word::ASKED, word::NAME, word::IS_THERE] {
        ask_and_do_not_listen(word);
    }
}

fn ask_and_do_not_listen(word: u64) {
    let Pair { mut client, mut server, mut caches, .. } = Pair::new(1);
    let mut nobody = Endpoint::new();
    let mut most = 0;
    while server.over().is_none() {
        assert!(most < 2 * UNHEARD_MAX, "{most} bytes are kept");
        for _ in 0..100 {
            client.say(&mut caches[0], word, 0, &[]);
        }
        // It has all that it sealed taken from it, but takes nothing.
        while client.flush() {}
        client.out.arrived(client.out.written());
        client.out.free();
        server.progress(&mut caches[1], &mut nobody);
        most = most.max(server.out.retained());
    }
    assert!(server.over().is_some_and(|why| why.contains("takes no answer")));
}

#[test]
fn an_activation_is_good_once_and_in_its_own_session() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut caches = [KeyCache::new(2), KeyCache::new(2)];
    let mut endpoint = Endpoint::new();
    endpoint.book.open_endpoint(1, EndpointKey::from_bytes([3; 32]), "data", Transforms::default()).expect("a class");
    let capability = endpoint.book.mint(1, [4; 16], Vec::new(), []).expect("a startpoint");
    let pair = |random: &mut Xoshiro256PlusPlus, exporter: u8| {
        let ([one, other], _) = connect(random, Transport::Tcp);
        [(Side::Client, one), (Side::Server, other)].map(|(side, carrier)| {
            let mut agreed = agreed(side);
            agreed.keys.exporter = Secret32::from_bytes([exporter; 32]);
            Session::new(agreed, carrier, (&[], None), &[])
        })
    };
    let mut go = |client: &mut Session, server: &mut Session, caches: &mut [KeyCache; 2]| {
        for _ in 0..100 {
            client.progress(&mut caches[0], &mut Endpoint::new());
            server.progress(&mut caches[1], &mut endpoint);
        }
        endpoint.book.refused(Refusal::Unproven)
    };
    let [mut client, mut server] = pair(&mut random, 7);
    let opening = capability.activate(client.links(), [5; 16], Protection::Privacy, None).expect("ours to use");
    let (number, activation) = (opening.activation.number, opening.activation.encode());
    client.open_link(&mut caches[0], opening, "data", None);
    assert_eq!(go(&mut client, &mut server, &mut caches), 0);
    assert!(server.link(number).is_some());
    let mut caches = [KeyCache::new(2), KeyCache::new(2)];
    let [mut thief, mut other] = pair(&mut random, 8);
    thief.say(&mut caches[0], word::ACTIVATE, number, &activation);
    assert_eq!(go(&mut thief, &mut other, &mut caches), 1, "another session: it proves nothing there");
    assert!(other.link(number).is_none());
    let mut caches = [KeyCache::new(2), KeyCache::new(2)];
    client.say(&mut caches[0], word::ACTIVATE, number, &activation);
    go(&mut client, &mut server, &mut caches);
    assert!(
        server.lost().is_some_and(|(why, _)| why.contains("not the next")),
        "the same session: {:?}",
        server.lost()
    );
    assert!(server.theirs.is_next(3), "nothing was opened by it");
}

#[test]
fn what_is_sent_again_is_sent_whole_even_if_the_peer_says_meanwhile_that_it_has_it() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let ([mut one, _], [wire, _]) = connect(&mut random, Transport::Tcp);
    let mut out = Outgoing::new();
    out.record(300_000).fill(7);
    let mut go = |out: &mut Outgoing| {
        while out.waits() {
            out.write(&mut *one).expect("it goes");
        }
        wire.lock().expect("no panic").drain(..).collect::<Vec<u8>>()
    };
    let whole = go(&mut out);
    assert_eq!(whole.len(), 300_004);
    // Half of it had come when the peer said how far it was, all of it since.
    assert!(out.rewind(150_000) && out.arrived(300_004));
    out.free();
    assert_eq!(go(&mut out), whole[150_000..]);
    out.free();
    assert_eq!(out.retained(), 0, "what the peer had said is not forgotten while it is sent again");
    assert!(!out.arrived(300_005), "it cannot have that");
    assert!(out.arrived(300_004));
}
