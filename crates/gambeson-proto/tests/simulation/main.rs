//! The whole protocol between simulated endpoints on a seeded network. A failure prints its seed;
//! `GAMBESON_SEED=n cargo test -p gambeson-proto --test simulation` runs that seed alone.

mod communicators;
mod network;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gambeson_proto::endpoint::{Config, Job, Lane, ReceiveId, ReceiveRequest, SendRequest, Violation};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::policy::Policy;
use gambeson_proto::secret::Secret32;
use gambeson_proto::session::EpochLimits;
use gambeson_proto::suite::Suite;

use network::{Hostility, Network, Random, SimReceive};

const NODES: u16 = 3;

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("GAMBESON_SEED") {
        Ok(seed) => vec![seed.parse().expect("GAMBESON_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Runs `check` for every seed and names the seed that fails.
fn for_seeds(count: u64, check: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds(count) {
        if let Err(cause) = std::panic::catch_unwind(|| check(seed)) {
            eprintln!("failed with GAMBESON_SEED={seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

fn job(policy: &str, secret: u8) -> Arc<Job> {
    let policy = Policy::parse(policy, "simulation").expect("the policy is well-formed");
    let keys = JobKeys {
        job_id: [7; 16],
        job_secret: Secret32::from_bytes([secret; 32]),
        policy_hash: policy.hash(),
        suite: Suite::Aes256Gcm,
    };
    let admission = keys.admission_key();
    Arc::new(Job { keys, admission, policy, partitions: Vec::new(), communicators: Default::default() })
}

fn small_config(random: &mut Random) -> Config {
    Config {
        single_max: 1 << (9 + random.below(6)),
        request_payload: 1 << (9 + random.below(6)),
        record_payload: 1 << (10 + random.below(5)),
        eager_max: 1 << (10 + random.below(7)),
        peer_credit: 256 << 10,
        unexpected_limit: [0, 64 << 10, 16 << 20][random.below(3) as usize],
        gap_timeout_ns: 1_000_000_000,
        // An epoch of a few records, so that keys change all the time.
        epoch_limits: EpochLimits { records: 1 + random.below(20), blocks: 1 << 34 },
        // Fewer slots than directions, so that contexts are evicted all the time.
        key_slots: 2 + random.below(4) as usize,
    }
}

fn fill(serial: u64, len: usize) -> Vec<u8> {
    let mut random = Random(serial);
    (0..len).map(|_| random.next() as u8).collect()
}

fn length(random: &mut Random) -> usize {
    match random.below(10) {
        0 => 0,
        1..=5 => random.below(100) as usize,
        6 => 4000 + random.below(200) as usize,
        7 => random.below(20_000) as usize,
        8 => random.below(200_000) as usize,
        _ => 1 << random.below(17),
    }
}

fn some_lane(random: &mut Random) -> Lane {
    match random.below(10) {
        0..=5 => Lane::Tagged,
        6..=8 => Lane::Message,
        _ => Lane::Service,
    }
}

/// A message as its sender knows it.
struct Sent {
    from: usize,
    to: usize,
    lane: Lane,
    tag: u64,
    data: Option<u64>,
    number: u64,
    len: usize,
}

/// A receive that the program has out.
struct PostedReceive {
    at: usize,
    id: ReceiveId,
    multi: bool,
}

/// A program on every node: random sends, receives, peeks, claims and cancels; at the end
/// receives for all that is left.
struct Program {
    random: Random,
    sent: HashMap<u64, Sent>,
    /// Number of a receive -> where it is.
    posted: BTreeMap<u64, PostedReceive>,
    /// (to, from, lane, tag) -> (order of the receive, serial) of what was received.
    got: Vec<(usize, usize, Lane, u64, u64, u64)>,
    /// Serial -> number of receive, for those that must not come twice.
    seen: HashMap<u64, u64>,
    next_serial: u64,
    next_receive: u64,
}

const SERIAL_LEN: usize = 8;

impl Program {
    fn new(seed: u64) -> Self {
        Program {
            random: Random(seed ^ 0xabcd),
            sent: HashMap::new(),
            posted: BTreeMap::new(),
            got: Vec::new(),
            seen: HashMap::new(),
            next_serial: 1,
            next_receive: 1,
        }
    }

    fn send(&mut self, network: &mut Network) {
        let random = &mut self.random;
        let (from, to) = (random.below(NODES.into()) as usize, random.below(NODES.into()) as usize);
        let node = &mut network.nodes[from];
        if node.ids.len() != usize::from(NODES) {
            return;
        }
        let lane = some_lane(random);
        let tag = if lane == Lane::Message { 0 } else { random.below(4) << communicators::SHIFT };
        let data = random.chance(50).then(|| random.next());
        let len = SERIAL_LEN + length(random);
        let serial = self.next_serial;
        self.next_serial += 1;
        let mut bytes = serial.to_le_bytes().to_vec();
        bytes.extend(fill(serial, len - SERIAL_LEN));
        let delivery = random.chance(10);
        let request = SendRequest { peer: node.ids[to], lane, tag, data, len, delivery };
        let number = node.endpoint.next_message(node.ids[to]);
        let accepted = if len < 200 && !delivery && random.chance(50) {
            node.endpoint.inject(&mut node.host, request, &bytes).is_ok()
        } else {
            node.endpoint.send(&mut node.host, request, (serial, bytes)).is_ok()
        };
        if accepted {
            self.sent.insert(serial, Sent { from, to, lane, tag, data, number, len });
        }
    }

    fn receive(&mut self, network: &mut Network, wild: bool) {
        let random = &mut self.random;
        let at = random.below(NODES.into()) as usize;
        let node = &mut network.nodes[at];
        let lane = some_lane(random);
        let any_source = wild || random.chance(40) || node.ids.len() != usize::from(NODES);
        let source = (!any_source).then(|| node.ids[random.below(NODES.into()) as usize]);
        let ignore = if wild || lane == Lane::Message || random.chance(40) { u64::MAX } else { 0 };
        let tag = if lane == Lane::Message { 0 } else { random.below(4) << communicators::SHIFT };
        let multi = (lane == Lane::Message && random.chance(30)).then_some(300_000);
        let capacity = if multi.is_some() { 1_000_000 } else { 300_000 };
        let number = self.next_receive;
        self.next_receive += 1;
        if multi.is_none() && random.chance(20) {
            let claim = random.chance(50);
            let found = node.endpoint.peek(lane, source, tag, ignore, claim);
            let Some((peeked, claimed)) = found else { return };
            assert!(peeked.overflow == 0 && peeked.len >= SERIAL_LEN);
            let Some(claimed) = claimed else { return };
            let receive = SimReceive::new(number, capacity, number.is_multiple_of(2));
            let landed = node.endpoint.receive_claimed(&mut node.host, claimed, capacity, receive);
            assert!(landed.is_ok(), "a claim holds once");
            return;
        }
        let receive = SimReceive::new(number, capacity, number.is_multiple_of(2));
        let request = ReceiveRequest { lane, source, tag, ignore, capacity, multi };
        let id = node.endpoint.receive(&mut node.host, request, receive);
        self.posted.insert(number, PostedReceive { at, id, multi: multi.is_some() });
    }

    fn cancel(&mut self, network: &mut Network) {
        let numbers: Vec<u64> = self.posted.keys().copied().collect();
        if numbers.is_empty() {
            return;
        }
        let number = numbers[self.random.below(numbers.len() as u64) as usize];
        let PostedReceive { at, id, .. } = self.posted[&number];
        if let Some(receive) = network.nodes[at].endpoint.cancel(id) {
            assert_eq!(receive.number, number, "cancel gives back what was posted");
            self.posted.remove(&number);
        }
    }

    /// Checks every arrival: the right bytes, once, in the right place.
    fn check(&mut self, network: &mut Network) {
        for (at, node) in network.nodes.iter_mut().enumerate() {
            for arrival in node.host.arrivals.drain(..) {
                let message = &arrival.message;
                assert_eq!(message.overflow, 0);
                let serial = u64::from_le_bytes(arrival.bytes[..SERIAL_LEN].try_into().unwrap());
                let sent = self.sent.get(&serial).expect("nothing arrives that was not sent");
                assert_eq!(
                    (sent.to, sent.lane, sent.tag, sent.data, sent.number, sent.len),
                    (at, message.lane, message.tag, message.data, message.number, message.len)
                );
                assert!(arrival.bytes[SERIAL_LEN..] == fill(serial, sent.len - SERIAL_LEN), "the bytes are those sent");
                assert!(self.seen.insert(serial, arrival.receive).is_none(), "nothing arrives twice");
                let order = arrival.receive << 32 | message.offset as u64;
                self.got.push((at, sent.from, message.lane, message.tag, order, serial));
                if self.posted.get(&arrival.receive).is_some_and(|posted| !posted.multi) {
                    self.posted.remove(&arrival.receive);
                }
            }
            for number in node.host.given_back.drain(..) {
                self.posted.remove(&number);
            }
        }
    }

    /// MPI's order: of messages with one source and tag, the earlier goes to the receive that was
    /// posted earlier.
    fn check_order(&mut self) {
        self.got.sort_by_key(|&(to, from, lane, tag, order, _)| (to, from, lane as u8, tag, order));
        for pair in self.got.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            if (a.0, a.1, a.2, a.3) == (b.0, b.1, b.2, b.3) {
                assert!(a.5 < b.5, "messages overtook each other: {a:?} {b:?}");
            }
        }
    }
}

fn run(seed: u64, hostility: &Hostility, policy: &str) -> Network {
    run_with(seed, hostility, policy, |_, _| ())
}

/// The same, with a network and a job that are prepared.
fn run_with(seed: u64, hostility: &Hostility, policy: &str, prepare: impl Fn(&Network, &Job)) -> Network {
    let mut random = Random(seed ^ 0x5eed);
    let config = small_config(&mut random);
    let busy = [0, 30, 70][random.below(3) as usize];
    let job = job(policy, 1);
    let mut network = Network::new(seed, NODES, &config, &job, busy, false);
    prepare(&network, &job);
    let mut program = Program::new(seed);
    for _ in 0..300 {
        match random.below(10) {
            0..=3 => program.send(&mut network),
            4..=6 => program.receive(&mut network, false),
            7 if random.chance(20) => program.cancel(&mut network),
            _ => {
                network.collect();
                network.deliver(hostility);
            }
        }
        program.check(&mut network);
        if network.violation().is_some() {
            return network;
        }
    }
    // Drain: all that is left is received, or (under attack) the job ends.
    let mut idle = 0;
    while program.seen.len() < program.sent.len() && network.violation().is_none() {
        network.collect();
        let moved = network.deliver(hostility);
        if !moved {
            idle += 1;
            for _ in 0..4 {
                program.receive(&mut network, true);
            }
            network.tick(50_000_000);
        }
        program.check(&mut network);
        assert!(idle < 20_000, "{} of {} messages arrived, then nothing moved", program.seen.len(), program.sent.len());
    }
    program.check_order();
    network
}

#[test]
fn every_message_arrives_once_and_in_order_on_a_benign_network() {
    for_seeds(150, |seed| {
        let network = run(seed, &Hostility::default(), "");
        assert_eq!(network.violation(), None);
        for node in &network.nodes {
            assert!(node.host.alerts.is_empty(), "{:?}", node.host.alerts);
        }
    });
}

#[test]
fn integrity_and_none_carry_the_same_traffic() {
    for protection in ["integrity", "none"] {
        for_seeds(20, |seed| {
            let network = run(seed, &Hostility::default(), &format!("protection = \"{protection}\""));
            assert_eq!(network.violation(), None);
        });
    }
}

#[test]
fn a_hostile_network_never_gets_wrong_bytes_through_and_losses_are_named() {
    let hostility = Hostility { flip: 1, drop: 1, replay: 3, swap: 1, inject: 3, truncate: 1 };
    let ended = AtomicU32::new(0);
    for_seeds(150, |seed| {
        if let Some(violation) = run(seed, &hostility, "").violation() {
            assert!(violation.to_string().contains("rank"), "the sentence names the peer: {violation}");
            ended.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(ended.into_inner() > 0 || std::env::var("GAMBESON_SEED").is_ok(), "some attacks did harm");
}

#[test]
fn garbage_and_replays_alone_do_not_end_the_job() {
    let hostility = Hostility { replay: 30, inject: 50, ..Hostility::default() };
    for_seeds(60, |seed| {
        let network = run(seed, &hostility, "");
        assert_eq!(network.violation(), None);
        let alerts: usize = network.nodes.iter().map(|node| node.host.alerts.len()).sum();
        assert!(alerts > 0, "refusals are reported");
        assert!((alerts as u64) < network.records, "one alert a power of ten, not one a record");
    });
}

/// What one direction keeps of old and coming keys does not depend on how long a record takes, or on what its header
/// claims before it is authentic.
#[test]
fn what_is_withheld_over_ten_rekeyings_arrives_whatever_epochs_are_forged_meanwhile() {
    let config = Config { epoch_limits: EpochLimits { records: 2, blocks: 1 << 34 }, ..Config::default() };
    let mut network = Network::new(2, 2, &config, &job("", 1), 0, false);
    let node = &mut network.nodes[0];
    for serial in 0..21 {
        let request =
            SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: 1, data: None, len: 8, delivery: false };
        assert!(node.endpoint.send(&mut node.host, request, (serial, vec![serial as u8; 8])).is_ok());
    }
    assert_eq!(node.endpoint.counters().rekeys, 10);
    let mut withheld: Vec<Vec<u8>> = node.host.outbox.drain(..).map(|(_, record)| record).collect();
    assert_eq!(withheld.len(), 21);
    let node = &mut network.nodes[1];
    let mut forged = 0;
    for serial in 0..21_u32 {
        let record = &mut withheld[serial as usize];
        if serial > 0 {
            let misses = node.endpoint.counters().cache_misses;
            // The current epoch is that of the record before; none of these records is what it claims.
            let current = (serial - 1) / 2;
            for epoch in [current.wrapping_sub(1), current, current + 1, current + 2, current + 10, u32::MAX] {
                let mut forgery = record.clone();
                forgery[0] ^= 1;
                forgery[20..24].copy_from_slice(&epoch.to_le_bytes());
                node.endpoint.arrive(&mut node.host, &mut forgery);
                forged += 1;
            }
            assert_eq!(node.endpoint.counters().refused_bad_tag, forged);
            // The derivation that the next authentic record of the epoch would have needed.
            assert!(node.endpoint.counters().cache_misses <= misses + 1);
        }
        node.endpoint.arrive(&mut node.host, record);
        let request = ReceiveRequest { lane: Lane::Tagged, source: None, tag: 1, ignore: 0, capacity: 8, multi: None };
        node.endpoint.receive(&mut node.host, request, SimReceive::new(serial.into(), 8, false));
        assert_eq!(node.host.arrivals.last().expect("it arrived").bytes, [serial as u8; 8]);
    }
    assert_eq!(node.host.violation, None);
    // One for each epoch that had a second record: the first finds its key among the coming ones.
    assert_eq!(node.endpoint.counters().cache_misses, 10);
}

#[test]
fn a_deleted_last_record_is_noticed_within_the_gap_time_out() {
    for_seeds(20, |seed| {
        // With epochs of one record, what follows the lost one is two epochs ahead and no gap but silence.
        let epoch_limits = EpochLimits::default();
        let config = Config { epoch_limits, ..small_config(&mut Random(seed)) };
        let mut network = Network::new(seed, 2, &config, &job("", 1), 0, false);
        network.tick(1);
        let node = &mut network.nodes[0];
        for serial in [1, 2] {
            let request =
                SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: 1, data: None, len: 8, delivery: false };
            assert!(node.endpoint.send(&mut node.host, request, (serial, vec![1; 8])).is_ok());
        }
        network.collect();
        assert!(network.deliver(&Hostility::default()));
        assert!(network.deliver(&Hostility { drop: 100, ..Hostility::default() }));
        for _ in 0..40 {
            network.tick(50_000_000);
            network.collect();
            while network.deliver(&Hostility::default()) {
                network.collect();
            }
        }
        let violation = network.nodes[1].host.violation.as_ref().expect("the loss is noticed where it hurts");
        assert!(matches!(violation, Violation::Gap { .. }), "{violation}");
        assert!(violation.to_string().contains("rank 0 on host"), "{violation}");
    });
}

#[test]
fn a_peer_that_is_cut_off_is_named_and_one_that_answers_is_left_alone() {
    let config = Config { gap_timeout_ns: 1_000_000_000, ..Config::default() };
    let mut network = Network::new(1, 2, &config, &job("", 1), 0, false);
    network.tick(1);
    let node = &mut network.nodes[0];
    let request = SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: 1, data: None, len: 8, delivery: false };
    assert!(node.endpoint.send(&mut node.host, request, (1, vec![1; 8])).is_ok());
    let turn = |network: &mut Network, drop: u64| {
        network.tick(50_000_000);
        network.collect();
        while network.deliver(&Hostility { drop, ..Hostility::default() }) {
            network.collect();
        }
    };
    for _ in 0..200 {
        turn(&mut network, 0);
    }
    assert_eq!(network.violation(), None, "ten seconds of silence between idle peers that answer are no attack");
    for _ in 0..40 {
        turn(&mut network, 100);
    }
    let violation = network.violation().expect("a peer that does not answer is noticed");
    assert!(matches!(violation, Violation::Silent { .. }), "{violation}");
    assert!(violation.to_string().contains("rank"), "{violation}");
}

/// Sends `count` messages of `len` bytes that nobody receives yet; how many of them were done with.
fn sends_without_receives(config: &Config, count: u64, len: usize, delivery: bool) -> usize {
    let mut network = Network::new(1, 2, config, &job("", 1), 0, false);
    for serial in 1..=count {
        let node = &mut network.nodes[0];
        let request = SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: serial, data: None, len, delivery };
        assert!(node.endpoint.send(&mut node.host, request, (serial, fill(serial, len))).is_ok());
        network.collect();
        while network.deliver(&Hostility::default()) {
            network.collect();
        }
    }
    let done = network.nodes[0].host.sent.len();
    for serial in 1..=count {
        let node = &mut network.nodes[1];
        let request =
            ReceiveRequest { lane: Lane::Tagged, source: None, tag: serial, ignore: 0, capacity: len, multi: None };
        node.endpoint.receive(&mut node.host, request, SimReceive::new(serial, len, false));
        network.collect();
        while network.deliver(&Hostility::default()) {
            network.collect();
        }
    }
    let arrivals = &network.nodes[1].host.arrivals;
    assert_eq!(arrivals.len() as u64, count);
    assert!(arrivals.iter().all(|arrival| arrival.bytes == fill(arrival.receive, len)));
    done
}

#[test]
fn small_sends_are_done_before_their_receives_while_there_is_room() {
    for delivery in [false, true] {
        let config = Config { peer_credit: 64 << 10, ..Config::default() };
        let done = |config: &Config, count, len| sends_without_receives(config, count, len, delivery);
        assert_eq!(done(&config, 200, 5000), 200, "far more than the credit, far less than the room");
        assert_eq!(done(&config, 20, 100_000), 20, "each more than the credit");
        assert_eq!(done(&config, 10, 200_000), 0, "each more than goes unasked");
        let tight = Config { unexpected_limit: 300_000, ..config };
        let done = done(&tight, 200, 5000);
        assert!((50..=75).contains(&done), "{done} sends of 5000 bytes fit 300000 bytes of room and 65536 of credit");
    }
}

#[test]
fn another_jobs_cards_and_records_are_refused() {
    let config = Config::default();
    let ours = Network::new(1, 2, &config, &job("", 1), 0, false);
    let mut theirs = Network::new(2, 2, &config, &job("", 2), 0, false);
    let foreign = theirs.nodes[0].endpoint.card().to_vec();
    let mut ours = ours;
    assert!(ours.nodes[0].endpoint.add_peer(&foreign).is_err());
    let node = &mut theirs.nodes[0];
    let request = SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: 1, data: None, len: 8, delivery: false };
    assert!(node.endpoint.send(&mut node.host, request, (1, vec![1; 8])).is_ok());
    theirs.collect();
    let mut record = theirs.links.iter_mut().find_map(|link| link.pop_front()).expect("a record is out");
    let node = &mut ours.nodes[1];
    node.endpoint.arrive(&mut node.host, &mut record);
    assert_eq!(node.endpoint.counters().refused_unknown_peer, 1);
    assert_eq!(node.host.violation, None);
}

#[test]
fn another_policy_is_told_apart_and_said() {
    let config = Config::default();
    let mut strict = Network::new(1, 2, &config, &job("", 1), 0, false);
    let mut lax = Network::new(1, 2, &config, &job("protection = \"integrity\"", 1), 0, false);
    let node = &mut lax.nodes[0];
    let request = SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: 1, data: None, len: 8, delivery: false };
    assert!(node.endpoint.send(&mut node.host, request, (1, vec![1; 8])).is_ok());
    lax.collect();
    let mut record = lax.links.iter_mut().find_map(|link| link.pop_front()).expect("a record is out");
    let node = &mut strict.nodes[1];
    node.endpoint.arrive(&mut node.host, &mut record);
    assert!(node.host.alerts[0].to_string().contains("another policy"), "{}", node.host.alerts[0]);
}

#[test]
fn a_stranger_with_a_card_of_the_job_is_introduced_by_its_first_record() {
    let config = Config::default();
    let mut network = Network::new(5, 2, &config, &job("", 1), 0, true);
    let node = &mut network.nodes[0];
    let request =
        SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: 1, data: None, len: 400_000, delivery: false };
    let bytes = fill(9, 400_000);
    assert!(node.endpoint.send(&mut node.host, request, (1, bytes.clone())).is_ok());
    let node = &mut network.nodes[1];
    let request =
        ReceiveRequest { lane: Lane::Tagged, source: None, tag: 1, ignore: 0, capacity: 400_000, multi: None };
    node.endpoint.receive(&mut node.host, request, SimReceive::new(1, 400_000, false));
    network.collect();
    while network.deliver(&Hostility::default()) {
        network.collect();
    }
    assert!(network.nodes[1].host.arrivals[0].bytes == bytes);
}

#[test]
fn a_reflected_introduction_is_refused_and_does_no_harm() {
    let config = Config::default();
    let mut network = Network::new(4, 2, &config, &job("", 1), 0, false);
    let node = &mut network.nodes[0];
    let request = SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: 1, data: None, len: 8, delivery: false };
    assert!(node.endpoint.send(&mut node.host, request, (1, vec![1; 8])).is_ok());
    let (_, mut record) = node.host.outbox.pop_front().expect("a record is out");
    node.endpoint.arrive(&mut node.host, &mut record);
    assert_eq!(node.host.violation, None);
    assert_eq!(node.endpoint.counters().refused_unknown_peer, 1);
}

/// Anybody on the wire can copy what one endpoint sent to another and bring it to a third.
#[test]
fn somebody_elses_introduction_obliges_to_nothing() {
    let config = Config { gap_timeout_ns: 1_000_000_000, ..Config::default() };
    let mut network = Network::new(6, 3, &config, &job("", 1), 0, true);
    let node = &mut network.nodes[0];
    let request = SendRequest { peer: node.ids[2], lane: Lane::Tagged, tag: 1, data: None, len: 8, delivery: false };
    assert!(node.endpoint.send(&mut node.host, request, (1, vec![1; 8])).is_ok());
    let (_, mut copy) = node.host.outbox.pop_front().expect("a record is out");
    let third = &mut network.nodes[1];
    third.endpoint.arrive(&mut third.host, &mut copy);
    assert_eq!(third.endpoint.counters().refused_unknown_peer, 1);
    // The third has never talked to the first, and can't reach it: it must neither ask for it nor wait for it.
    for _ in 0..10 {
        network.tick(500_000_000);
    }
    let third = &mut network.nodes[1];
    third.endpoint.begin_close(&mut third.host);
    assert_eq!((third.host.violation.as_ref(), third.host.outbox.len()), (None, 0));
    assert!(third.endpoint.is_closed());
}

#[test]
fn endpoints_close_in_order() {
    let config = Config::default();
    let mut network = Network::new(3, 2, &config, &job("", 1), 0, false);
    let node = &mut network.nodes[0];
    let request = SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag: 1, data: None, len: 8, delivery: false };
    assert!(node.endpoint.send(&mut node.host, request, (1, vec![1; 8])).is_ok());
    network.collect();
    while network.deliver(&Hostility::default()) {}
    for node in &mut network.nodes {
        node.endpoint.begin_close(&mut node.host);
    }
    assert!(!network.nodes[0].endpoint.is_closed());
    network.collect();
    while network.deliver(&Hostility::default()) {
        network.collect();
    }
    assert!(network.nodes.iter().all(|node| node.endpoint.is_closed()));
}
