//! Protection by communicator: what is where on the wire, what each end demands, and what an attacker gets of it.

use gambeson_proto::communicators::{Layout, Step, Wish, WishNumber};
use gambeson_proto::endpoint::Cause;
use gambeson_proto::suite::Protection;

use super::*;

/// Where Open MPI's layout has the identifier.
pub(crate) const SHIFT: u32 = 34;
const PLAIN: u64 = 1;
const SEALED: u64 = 2;
const SIGNED: u64 = 3;
const ANY: &str = "[[rule]]\nbetween = [\"*\", \"*\"]\ncommunicator = \"*\"\nprotection = \"none\"";
/// A flag of a record's header: its payload has no protection.
const PAYLOAD_NONE: u8 = 16;

fn policy(pair: &str) -> String {
    format!("protection = \"{pair}\"\n{ANY}")
}

fn wish(job: &Job, protection: Protection) -> WishNumber {
    job.communicators.number(&job.policy, Wish { protection, class: None }).expect("the policy allows it")
}

fn tag(layout: Layout, identifier: u64) -> u64 {
    identifier << if layout == Layout::MPICH { 35 } else { SHIFT }
}

/// All nodes share all communicators; what is sent with `identifier` has one wish, what is demanded another.
fn give(network: &Network, job: &Job, identifier: u64, send: Protection, demand: Protection) {
    let keys: Vec<_> = network.nodes.iter().map(|node| *node.endpoint.public_key()).collect();
    let (send, demand) = (wish(job, send), wish(job, demand));
    job.communicators.take(identifier, &keys, Step::Send([send; 2])).unwrap();
    job.communicators.take(identifier, &keys, Step::Demand(demand)).unwrap();
}

fn give_all(network: &Network, job: &Job, layout: Layout) {
    job.communicators.set_layout(layout).unwrap();
    for (identifier, protection) in
        [(PLAIN, Protection::None), (SEALED, Protection::Privacy), (SIGNED, Protection::Integrity)]
    {
        give(network, job, identifier, protection, protection);
    }
}

/// What a message of this communicator says.
fn canary(identifier: u64, len: usize) -> Vec<u8> {
    format!("communicator {identifier} says the same again; ").into_bytes().into_iter().cycle().take(len).collect()
}

fn has(record: &[u8], identifier: u64) -> bool {
    let word = canary(identifier, 30);
    record.windows(word.len()).any(|window| window == word)
}

/// Two nodes, of which the first sends `len` bytes with each of the identifiers, to lanes tagged and service; the
/// second receives all of it.
fn converse(pair: &str, layout: Layout, len: usize, on_the_way: impl Fn(&mut Vec<u8>)) -> (Network, Vec<Vec<u8>>) {
    let job = job(&policy(pair), 1);
    let mut network = Network::new(1, 2, &Config::default(), &job, 0, false);
    give_all(&network, &job, layout);
    let mut wire = Vec::new();
    for (serial, (lane, identifier)) in
        [(Lane::Tagged, 0), (Lane::Tagged, PLAIN), (Lane::Tagged, SEALED), (Lane::Tagged, SIGNED), (Lane::Service, 9)]
            .into_iter()
            .enumerate()
    {
        let node = &mut network.nodes[0];
        let tag = tag(layout, identifier);
        let request = SendRequest { peer: node.ids[1], lane, tag, data: None, len, delivery: false };
        let sent = node.endpoint.send(&mut node.host, request, (serial as u64, canary(identifier, len)));
        assert!(sent.is_ok());
    }
    for (lane, identifier) in
        [(Lane::Service, 9), (Lane::Tagged, 0), (Lane::Tagged, SIGNED), (Lane::Tagged, PLAIN), (Lane::Tagged, SEALED)]
    {
        let node = &mut network.nodes[1];
        let tag = tag(layout, identifier);
        let request = ReceiveRequest { lane, source: None, tag, ignore: 0, capacity: len, multi: None };
        node.endpoint.receive(&mut node.host, request, SimReceive::new(identifier, len, false));
        loop {
            network.collect();
            for link in &mut network.links {
                link.iter_mut().for_each(&on_the_way);
                wire.extend(link.iter().cloned());
            }
            if !network.deliver(&Hostility::default()) {
                break;
            }
            while network.deliver(&Hostility::default()) {}
        }
    }
    (network, wire)
}

#[test]
fn bytes_are_on_the_wire_where_their_communicator_allows_it() {
    for len in [1000, 30_000, 500_000] {
        for (pair, layout, in_clear) in [
            ("privacy", Layout::OPEN_MPI, [false, true, false, true, false]),
            ("integrity", Layout::OPEN_MPI, [false, true, false, true, false]),
            ("none", Layout::OPEN_MPI, [false, true, false, true, false]),
            // Of an identifier that asks for nothing MPICH makes no communicators with another.
            ("privacy", Layout::MPICH, [false, true, false, true, false]),
            ("integrity", Layout::MPICH, [true, true, false, true, false]),
            ("none", Layout::MPICH, [true, true, false, true, false]),
        ] {
            let (network, wire) = converse(pair, layout, len, |_| ());
            assert_eq!(network.violation(), None);
            assert_eq!(network.nodes[1].host.alerts, []);
            let arrivals = &network.nodes[1].host.arrivals;
            assert_eq!(arrivals.len(), 5, "{pair}, {len} bytes");
            assert!(arrivals.iter().all(|arrival| arrival.bytes == canary(arrival.receive, len)));
            for (identifier, in_clear) in [0, PLAIN, SEALED, SIGNED, 9].into_iter().zip(in_clear) {
                let seen = wire.iter().any(|record| has(record, identifier));
                assert_eq!(seen, in_clear, "communicator {identifier}, pair {pair}, {len} bytes, {}", layout.name);
            }
        }
    }
}

#[test]
fn altered_bytes_get_through_only_where_nothing_protects_them() {
    for identifier in [0, PLAIN, SEALED, SIGNED, 9] {
        for pair in ["privacy", "none"] {
            let (network, _) = converse(pair, Layout::MPICH, 1000, |record| {
                // Sealed ones are told by their number: each message is one record.
                let sequence = u64::from_le_bytes(record[32..40].try_into().unwrap());
                if sequence == [0, PLAIN, SEALED, SIGNED, 9].iter().position(|&one| one == identifier).unwrap() as u64 {
                    *record.last_mut().unwrap() ^= 1;
                }
            });
            let plain = identifier == PLAIN || (identifier == 0 && pair == "none");
            let arrival = network.nodes[1].host.arrivals.iter().find(|arrival| arrival.receive == identifier);
            match arrival {
                Some(arrival) => assert!(plain && arrival.bytes != canary(identifier, 1000), "{identifier}, {pair}"),
                None => assert!(!plain && !network.nodes[1].host.alerts.is_empty(), "{identifier}, {pair}"),
            }
        }
    }
}

/// Without the frame's key nobody begins a message, even where payloads are in clear: so nobody puts one of his own into
/// the place of a sealed one that he took away.
#[test]
fn what_a_header_claims_does_not_open_a_record() {
    for pair in ["privacy", "integrity", "none"] {
        let (network, _) = converse(pair, Layout::MPICH, 1000, |record| {
            if u64::from_le_bytes(record[32..40].try_into().unwrap()) == 2 {
                record[17] = record[17] & !4 | PAYLOAD_NONE | 2;
            }
        });
        let host = &network.nodes[1].host;
        assert!(host.arrivals.iter().all(|arrival| arrival.receive != SEALED), "{pair}");
        assert!(matches!(host.violation, Some(Violation::Gap { expected: 2, came: 3, .. })), "{pair}");
        let cause = if pair == "privacy" { Cause::BadTag } else { Cause::Unprotected };
        assert_eq!(host.alerts[0].cause, cause, "{pair}");
    }
}

#[test]
fn the_receivers_demand_holds_whatever_the_sender_thinks() {
    for (pair, send, demand) in [
        ("privacy", Protection::None, Protection::Integrity),
        ("privacy", Protection::Integrity, Protection::Privacy),
        ("integrity", Protection::None, Protection::Privacy),
    ] {
        for len in [100, 30_000, 500_000] {
            let job = job(&policy(pair), 1);
            let mut network = Network::new(1, 2, &Config::default(), &job, 0, false);
            job.communicators.set_layout(Layout::OPEN_MPI).unwrap();
            let [send, demand] = [send, demand].map(|protection| wish(&job, protection));
            job.communicators.take(PLAIN, &[], Step::Demand(demand)).unwrap();
            let receiver = [*network.nodes[1].endpoint.public_key()];
            job.communicators.take(PLAIN, &receiver, Step::Send([send; 2])).unwrap();
            let node = &mut network.nodes[0];
            let tag = PLAIN << SHIFT;
            let request = SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag, data: None, len, delivery: false };
            assert!(node.endpoint.send(&mut node.host, request, (1, canary(PLAIN, len))).is_ok());
            network.collect();
            while network.deliver(&Hostility::default()) {}
            let host = &network.nodes[1].host;
            assert!(matches!(host.violation, Some(Violation::Unprotected { .. })), "{:?}", host.violation);
            assert!(host.violation.as_ref().unwrap().to_string().starts_with("rank 0 on host"));
            assert!(host.arrivals.is_empty());
        }
    }
}

/// Communicators between two groups may have another identifier at the sender, who knows a weak one by the receiver's.
#[test]
fn an_identifier_means_nothing_between_processes_that_do_not_share_it() {
    for (pair, own) in [("privacy", Protection::None), ("none", Protection::Privacy)] {
        let job = job(&policy(pair), 1);
        let mut network = Network::new(1, 3, &Config::default(), &job, 0, false);
        job.communicators.set_layout(Layout::OPEN_MPI).unwrap();
        let number = wish(&job, own);
        let others = [*network.nodes[2].endpoint.public_key()];
        job.communicators.take(PLAIN, &others, Step::Send([number; 2])).unwrap();
        for peer in [1, 2] {
            let node = &mut network.nodes[0];
            let request = SendRequest {
                peer: node.ids[peer],
                lane: Lane::Tagged,
                tag: PLAIN << SHIFT,
                data: None,
                len: 1000,
                delivery: false,
            };
            assert!(node.endpoint.send(&mut node.host, request, (1, canary(PLAIN, 1000))).is_ok());
            network.collect();
            let seen = network.links.iter().flatten().any(|record| has(record, PLAIN));
            assert_eq!(seen, peer == 2 && own == Protection::None, "pair {pair}, to node {peer}");
            while network.deliver(&Hostility::default()) {}
        }
    }
}

/// A message keeps the protection with which it began; one that was sent before its communicator became weaker may come
/// after, and more than is demanded is taken.
#[test]
fn a_message_under_way_keeps_its_protection_while_its_communicator_changes() {
    let len = 500_000;
    let job = job(&policy("privacy"), 1);
    let mut network = Network::new(1, 2, &Config::default(), &job, 0, false);
    let tag = PLAIN << SHIFT;
    let send = |network: &mut Network| {
        let node = &mut network.nodes[0];
        let request = SendRequest { peer: node.ids[1], lane: Lane::Tagged, tag, data: None, len, delivery: false };
        assert!(node.endpoint.send(&mut node.host, request, (1, canary(PLAIN, len))).is_ok());
        network.collect();
        while network.deliver(&Hostility::default()) {}
    };
    let receive = |network: &mut Network, in_clear: bool| {
        let node = &mut network.nodes[1];
        let request = ReceiveRequest { lane: Lane::Tagged, source: None, tag, ignore: 0, capacity: len, multi: None };
        node.endpoint.receive(&mut node.host, request, SimReceive::new(1, len, false));
        loop {
            network.collect();
            assert!(in_clear || network.links.iter().flatten().all(|record| !has(record, PLAIN)));
            if !network.deliver(&Hostility::default()) {
                break;
            }
        }
        assert_eq!(network.violation(), None);
        assert_eq!(network.nodes[1].host.arrivals.pop().unwrap().bytes, canary(PLAIN, len));
    };
    job.communicators.set_layout(Layout::OPEN_MPI).unwrap();
    give(&network, &job, PLAIN, Protection::Privacy, Protection::Privacy);
    send(&mut network);
    give(&network, &job, PLAIN, Protection::None, Protection::None);
    receive(&mut network, false);
    send(&mut network);
    give(&network, &job, PLAIN, Protection::Privacy, Protection::Privacy);
    receive(&mut network, true);
    send(&mut network);
    receive(&mut network, false);
}

#[test]
fn mixed_traffic_arrives_once_and_in_order() {
    for pair in ["privacy", "integrity", "none"] {
        for_seeds(12, |seed| {
            let network = run_with(seed, &Hostility::default(), &policy(pair), |network, job| {
                give_all(network, job, Layout::OPEN_MPI)
            });
            assert_eq!(network.violation(), None);
            for node in &network.nodes {
                assert!(node.host.alerts.is_empty(), "{:?}", node.host.alerts);
            }
        });
    }
}
