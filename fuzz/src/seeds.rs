//! The seeds in corpus/, made here: `cargo test -p gambeson --test fuzz_replay -- --ignored`
//! writes them.

use std::net::SocketAddr;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_proto::aead::Context;
use gambeson_proto::credential::{Credential, Tuning};
use gambeson_proto::endpoint::Lane;
use gambeson_proto::file::header::{Header, PREFIX_LEN};
use gambeson_proto::file::region::Piece;
use gambeson_proto::file::share::Write;
use gambeson_proto::file::state::{State, Status};
use gambeson_proto::file::table::{Fields, Label, Region, Table, WrappedKey};
use gambeson_proto::file::{FileSuite, Geometry, Part};
use gambeson_proto::identity::{Card, HostIndex, Identity};
use gambeson_proto::key_schedule::PartitionKey;
use gambeson_proto::policy::Policy;
use gambeson_proto::record::{Envelope, INTRODUCTION_LEN, Kind, Plan};
use gambeson_proto::secret::Secret32;
use gambeson_proto::session::Stamp;
use gambeson_proto::suite::{Protection, Suite};
use gambeson_proto::trace;

use super::card::keys;
use super::directory::signed;
use super::enrolment::request;
use super::file::{LABELS, file_key};
use super::startpoint::{domain, family, session};

const CERTIFIED: &str = r#"{"certificate":"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n","authorities":"","site":{"name":"ocean","authority":"h1:7200"},"subject":{"names":["h2"],"roles":["host"]},"until":1796600000}"#;

const URI: &str = "pkcs11:token=My%20site;serial=0a;object=host;id=%01%ff;type=private?module-path=/usr/lib/softhsm.so\
                   &pin-source=file:/etc/gambeson/pin";

const POLICIES: [(&str, &str); 8] = [
    ("empty", ""),
    ("plain", "protection = \"integrity\"\nsuite = \"aes-128-gcm\"\ngap_timeout = \"3 s\"\nintra_host = \"sealed\"\n"),
    (
        "rules",
        "[[partition]]\nname = \"clinic\"\nhosts = [\"h1\", \"h2\"]\nepoch = 3\nsecret_file = \"s\"\n\n[[rule]]\n\
         between = [\"partition:clinic\", \"h3\"]\nprotection = \"privacy\"\n\n[[rule]]\nbetween = [\"10.77.0.0/24\", \
         \"h1\"]\nprotection = \"integrity\"\n\n[[rule]]\nbetween = [\"fd00::/8\", \"*\"]\nprotection = \"none\"\n",
    ),
    ("partition", "[[partition]]\nname = \"clinic\"\n"),
    (
        "classes",
        "[[rule]]\nbetween = [\"10.77.0.0/24\", \"*\"]\nclass = \"fluxes\"\nprotection = \"none\"\n\n[[rule]]\n\
         between = [\"h1\", \"*\"]\nclass = \"control\"\nprotection = \"integrity\"\n\n[[rule]]\nbetween = [\"h1\", \
         \"h2\"]\nprotection = \"none\"\n",
    ),
    (
        "files",
        "[[file]]\npattern = \"*.h5\"\nlabel = \"clinical\"\nsuite = \"aes-256-gcm-siv\"\nblock = \"4 KiB\"\n\n\
         [[file]]\npattern = \"/data/**/x?y*\"\nlabel = \"none\"\n",
    ),
    ("files-wrong", "[[file]]\npattern = \"\"\nlabel = \"a b\"\nsuite = \"aes-256-xts\"\nblock = \"3 KiB\"\n"),
    ("wrong", "protection = \"secret\"\n[[rule]]\nbetween = [\"h1\"]\n"),
];

const DIRECTORIES: [(&str, &str); 5] = [
    (
        "hosts",
        "issued = 2026-11-21T20:52:10Z\nexpires = 2026-12-21T20:52:10Z\n\n[[host]]\nname = \"Ocean1\"\naddresses = \
         [\"10.1.0.1\", \"fd00::1\"]\ntransports = [\"tcp\", \"shm\"]\nauthentication = [\"job\"]\n\n[[host]]\nname = \
         \"sky.site\"\ntransports = [\"libfabric\"]\nauthentication = [\"pinned\", \"certificate\"]\nattach = { addresses = \
         [\"10.1.0.7:4000\"], role = \"model\" }\n\n[[network]]\n\
         subnet = \"10.9.0.0/16\"\nprotection = \"privacy\"\n\n[[network]]\nsubnet = \"10.0.0.0/8\"\nprotection = \
         \"integrity\"\n",
    ),
    ("networks", "[[network]]\nsubnet = \"fd00::/8\"\nprotection = \"integrity\"\n"),
    ("empty", ""),
    ("carriage-return", "@\r\r\n"),
    ("wrong", "issued = 2026-11-21\n[[host]]\nname = \"-\"\ntransports = [\"tcp\", \"tcp\"]\nauthentication = []\n"),
];

/// Every seed: target, name, bytes.
pub fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut all = Vec::new();
    cards(&mut |name, bytes| all.push(("card", name.to_owned(), bytes)));
    for (name, text) in POLICIES {
        all.push(("policy", name.to_owned(), text.into()));
        if let Ok(policy) = Policy::parse(text, "seed") {
            let credential = credential(policy);
            if credential.encode() != credential.encode_to_travel() {
                all.push(("credential", format!("{name}-travels"), credential.encode_to_travel().to_vec()));
            }
            all.push(("credential", name.to_owned(), credential.encode().to_vec()));
        }
    }
    all.push(("credential", "foreign".to_owned(), b"#!/bin/sh\n".to_vec()));
    for (name, text) in DIRECTORIES {
        all.push(("directory", name.to_owned(), text.into()));
    }
    all.push(("directory", "signed".to_owned(), signed(DIRECTORIES[0].1).into()));
    all.push(("enrolment", "token".to_owned(), format!("h1:40123/{}", "x".repeat(42) + "A").into()));
    all.push(("enrolment", "uri".to_owned(), URI.into()));
    all.push(("enrolment", "request".to_owned(), request("h1", 1_796_000_000).into()));
    all.push(("enrolment", "certified".to_owned(), CERTIFIED.into()));
    all.push(("enrolment", "host".to_owned(), b"\0\0\0\0k\x0c\x9c\x00node-1.cluster".to_vec()));
    for (name, bytes) in gambeson_keys::fuzzing::key_file_seeds() {
        all.push(("key_file", name.to_owned(), bytes));
    }
    all.extend(
        super::kmip_response::seeds().into_iter().map(|(name, bytes)| ("kmip_response", name.to_owned(), bytes)),
    );
    for (name, bytes) in gambeson_keyd::database::fuzzing::batch_seeds() {
        all.push(("keyd_batch", name.to_owned(), bytes));
    }
    records(&mut |name, bytes| all.push(("record", name, bytes)));
    all.extend(super::keyd::seeds().into_iter().map(|(name, bytes)| ("keyd_wire", name.to_owned(), bytes)));
    all.extend(super::order::seeds().map(|(name, bytes)| ("order", name.to_owned(), bytes)));
    for (name, program) in MATCHING {
        all.push(("matching", name.to_owned(), program.to_vec()));
    }
    for (name, program) in ENDPOINT {
        for (mode, protection) in ["privacy", "integrity", "none"].into_iter().enumerate() {
            let program = [&[0x20 + mode as u8], program].concat();
            all.push(("endpoint", format!("{name}-{protection}"), program));
        }
    }
    startpoints(&mut |target, name, bytes| all.push((target, name.to_owned(), bytes)));
    all.extend(super::frame::seeds().into_iter().map(|(name, bytes)| ("frame", name.to_owned(), bytes)));
    links(&mut |target, name, bytes| all.push((target, name.to_owned(), bytes)));
    files(&mut |target, name, bytes| all.push((target, name, bytes)));
    for (name, text) in GOAL {
        all.push(("trace", format!("goal-{name}"), [&[1], text.as_bytes()].concat()));
    }
    all.push(("trace", "npbt".to_owned(), [vec![0], npbt()].concat()));
    all.push(("trace", "gbt".to_owned(), [vec![3], gbt()].concat()));
    all.push(("trace", "gbt-endpoint".to_owned(), [vec![3], endpoint_file()].concat()));
    all
}

/// Schedules of GOAL: as generators write them, with what only the format allows, and with faults.
const GOAL: [(&str, &str); 3] = [
    (
        "exchange",
        "num_ranks 2\nrank 0 {\nl1: calc 100\nl2: send 10b to 1 tag 5\nl2 requires l1\nl3: recv 8b from -1 tag -1\n\
         l3 irequires l2\n}\nrank 1 {\nl1: recv 10b from 0 tag 5 cpu 1 nic 0\nl2: send 2000b to 0\n}\n",
    ),
    ("comments", "num_ranks 1 // one\nrank 0 {\nsend 1b to 0 /* to\nitself */\nrecv 1b from 0\n}\n"),
    ("circle", "num_ranks 1\nrank 0 {\nl1: calc 1\nl2: calc 1\nl1 requires l2\nl2 requires l1\n}\n"),
];

/// Two ranks in NPBT1: a message, a wait, an alltoallv and an allreduce, column by column.
fn npbt() -> Vec<u8> {
    let header = "{\"name\": \"two\", \"ranks\": 2, \"comms\": [[[0, 1]], [[0, 1]]], \"counts\": [4, 5], \"columns\": \
                  [\"op:u1\", \"comm:u1\", \"peer:u2\", \"tag:i4\", \"bytes:u4\", \"req:u4\", \"gap_ns:u4\"]}";
    type Row = (u8, u16, u32, u32);
    let ranks: [&[Row]; 2] = [
        &[(1, 1, 3000, 0), (15, 0, 5, 0), (15, 1, 5, 0), (13, 65535, 8, 0)],
        &[(4, 65535, 3000, 1), (5, 65535, 0, 1), (15, 0, 5, 0), (15, 1, 5, 0), (13, 65535, 8, 0)],
    ];
    let mut bytes = [b"NPBT1\0\0\0", (header.len() as u32).to_le_bytes().as_slice(), header.as_bytes()].concat();
    for rows in ranks {
        bytes.extend(rows.iter().map(|row| row.0));
        bytes.extend(rows.iter().map(|_| 0));
        bytes.extend(rows.iter().flat_map(|row| row.1.to_le_bytes()));
        bytes.extend(rows.iter().flat_map(|_| 0_i32.to_le_bytes()));
        bytes.extend(rows.iter().flat_map(|row| row.2.to_le_bytes()));
        bytes.extend(rows.iter().flat_map(|row| row.3.to_le_bytes()));
        bytes.extend(rows.iter().flat_map(|_| 1000_u32.to_le_bytes()));
    }
    bytes
}

/// Two ranks of a recorded job: a message that goes at once, one that overtakes another, one that is complete later.
fn gbt() -> Vec<u8> {
    use trace::Kind::{Closed, Received, Send, Sent};
    let sender = [(Send, 0), (Send, 1), (Send, 2), (Sent, 1), (Closed, 0)];
    let receiver = [(Received, 1), (Received, 0), (Received, 2), (Closed, 0)];
    let rank = |peer, records: &[(trace::Kind, u64)]| -> Vec<_> {
        records.iter().map(|&(kind, number)| traced(kind, number, peer)).collect()
    };
    let ranks = [rank(1, &sender), rank(0, &receiver)];
    let about = |records: &Vec<_>| trace::RankHeader {
        world_rank: Some(0),
        pid: 1,
        host: 0,
        records: records.len() as u64,
        lost: 0,
        closed: true,
    };
    let header = trace::Header {
        name: "two".to_owned(),
        command: Vec::new(),
        mpi: "MPI".to_owned(),
        clock: "one".to_owned(),
        hosts: vec!["h".to_owned()],
        ranks: ranks.iter().map(about).collect(),
        matched: 3,
        missing: Vec::new(),
    };
    trace::encode(&header, &ranks)
}

/// What one endpoint left of itself.
fn endpoint_file() -> Vec<u8> {
    let page = trace::Page { pid: 1, rank: 0, endpoint: 5, clock_ns: 9, boot: [1; 16], host: "h".to_owned() };
    let mut bytes = vec![0; trace::PAGE_LEN];
    page.write((&mut bytes[..]).try_into().expect("a page"));
    bytes[trace::WRITTEN_OFFSET] = 2;
    bytes.extend([trace::Kind::Peer, trace::Kind::Send].map(|kind| traced(kind, 0, 1).encode()).concat());
    bytes
}

fn traced(kind: trace::Kind, number: u64, peer: u32) -> trace::Record {
    let lane = Lane::Tagged;
    trace::Record { wall_ns: 5, cpu_ns: 3, gap_ns: 2, number, bytes: 4000, peer, kind, lane, thread: 0 }
}

fn cards(seed: &mut dyn FnMut(&str, Vec<u8>)) {
    let admission = keys().admission_key();
    let public_key = Identity::from_seed([1; 32]).public;
    for (name, address, rank) in
        [("v4", "10.77.0.1:4000", Some(3)), ("v6", "[fe80::1]:9000", None), ("zero", "0.0.0.0:0", Some(0))]
    {
        let address: SocketAddr = address.parse().expect("an address");
        let card = Card { address, public_key, rank, host: HostIndex(1) };
        seed(name, card.encode(&admission).to_vec());
    }
    seed("short", vec![0x14; 20]);
}

fn credential(policy: Policy) -> Credential {
    let key = |_| PartitionKey { epoch: 3, key: Secret32::from_bytes([3; 32]) };
    let partitions = policy.partitions().iter().map(key).collect();
    let tuning = Tuning { epoch_records: 4, ..Tuning::default() };
    let job_secret = Secret32::from_bytes([2; 32]);
    Credential { job_id: [1; 16], job_secret, policy, partitions, tuning }
}

fn records(seed: &mut dyn FnMut(String, Vec<u8>)) {
    let suite = Suite::Aes256Gcm;
    let context = Context::new(suite, &[9; 32], [5; 12]);
    let introduction = [4; INTRODUCTION_LEN];
    for (name, protection, payload) in [
        ("none-small", Protection::None, 10),
        ("none-large", Protection::None, 4100),
        ("privacy-small", Protection::Privacy, 10),
        ("integrity-empty", Protection::Integrity, 0),
    ] {
        let plan = Plan {
            stamp: Stamp { epoch: 1, sequence: 2 },
            connection: 3,
            introduction: (payload == 10).then_some(&introduction),
            envelope: Envelope { flags: 1, tag: 5, size: 10, ..Envelope::new(Kind::Message) },
            payload,
            mode: Default::default(),
        };
        // The target's first byte says which suite it opens with.
        let mut bytes = vec![0; 1 + plan.len()];
        plan.seal(&context, protection, &vec![6; payload][..], &mut bytes[1..]);
        seed(name.to_owned(), bytes);
    }
    // Programs: mode; kind, flags, four numbers, epoch, sequence, connection; introduction; the bit
    // that is altered; what the payload consists of, and its length.
    for (mode, name) in [(0, "privacy"), (5, "integrity"), (10, "none")] {
        for len in [0_u16, 100, 5000] {
            let [low, high] = len.to_le_bytes();
            let program = [mode, 0, 1, 7, 100, 0, 9, 1, 20, 30, 1, 8, 45, 0, 2, 0xab, low, high];
            seed(format!("program-{name}-{len}"), program.to_vec());
            // Region 3, offset 7.
            let put = [mode, 13, 1, 7, 100, 9, 3, 1, 20, 30, 0, 45, 0, 2, 0xab, low, high];
            seed(format!("put-{name}-{len}"), put.to_vec());
        }
        seed(format!("end-{name}"), vec![mode, 15, 8, 7, 100, 9, 3, 1, 20, 30, 0, 45, 0, 2, 0xab, 0, 0]);
    }
}

fn startpoints(seed: &mut dyn FnMut(&'static str, &str, Vec<u8>)) {
    let family = family();
    for ((startpoint, holder), name) in family.given().into_iter().zip(["first", "narrow", "second"]) {
        seed("startpoint", name, startpoint.encode().to_vec());
        let (mut here, _) = session(domain(holder).1);
        let opening = startpoint.activate(&mut here, [4; 16], Protection::Privacy, None).expect("it is the holder's");
        seed("activation", name, [vec![0], opening.activation.encode()].concat());
        let revocation = startpoint.revocation().expect("it is a copy");
        seed("activation", &format!("revoke-{name}"), [vec![1], revocation].concat());
    }
    seed("startpoint", "cut", family.first.encode()[..70].to_vec());
    for (name, program) in PROGRAMS {
        seed("activation", name, [&[2], program].concat());
    }
}

fn links(seed: &mut dyn FnMut(&'static str, &str, Vec<u8>)) {
    let greeting = |host: &str, address: &[u8]| {
        [&[2, host.len() as u8], host.as_bytes(), &[address.len() as u8], address, &[0; 60]].concat()
    };
    seed("link_greeting", "greeting", greeting("host", &[]));
    seed("link_greeting", "addressed", greeting("host", &[10, 1, 2, 3]));
    seed("link_greeting", "nameless", greeting("", &[0; 16]));
    seed("link_greeting", "control", greeting("a\nb", &[]));
    seed("link_greeting", "resumption", gambeson_link::fuzzing::resumption_seed());
    for (name, message) in gambeson_link::fuzzing::fabric_seeds() {
        seed("link_fabric", name, message);
    }
    for (name, program) in HANDSHAKES {
        seed("link_handshake", name, program.to_vec());
    }
    for (name, program) in STRANGERS {
        seed("link_stranger", name, program.to_vec());
    }
    for (name, program) in SESSIONS {
        for (mode, protection) in ["privacy", "integrity", "none"].into_iter().enumerate() {
            seed("link_session", &format!("{name}-{protection}"), [&[mode as u8], program].concat());
        }
    }
}

fn files(seed: &mut dyn FnMut(&'static str, String, Vec<u8>)) {
    for suite in FileSuite::ALL {
        for len in [5_usize, 48] {
            let mut share = vec![0; len];
            let write = Write { nonce: [7; 24], block: 9, generation: 4 };
            let entry = file_key(suite).seal(&write, &vec![6; len], &mut share);
            seed("file_entry", format!("{suite}-{len}"), [&[9], &entry.encode()[..], &share].concat());
        }
    }
    seed("file_entry", "hole".to_owned(), vec![0; 80]);
    let copy = file_header().encode().expect("it is short");
    let body = &copy[PREFIX_LEN..copy.len() - 32];
    seed("file_header", "copy".to_owned(), [&[0], &copy[..]].concat());
    seed("file_header", "body".to_owned(), [&[1], body].concat());
    seed("file_header", "table".to_owned(), [&[2], file_header().table().encode()].concat());
    seed("file_header", "cut".to_owned(), copy[..200].to_vec());
    for (name, program) in REGIONS {
        seed("file_regions", name.to_owned(), program.to_vec());
    }
}

fn file_header() -> Header {
    let keys = LABELS.map(|(_, seed)| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed has 32 bytes"));
    let labels = LABELS.iter().zip(&keys).map(|((name, _), key)| Label {
        name: (*name).to_owned(),
        version: 1,
        verifying_key: key.public_key().as_ref().try_into().expect("32 bytes"),
    });
    let key = |epoch, label| WrappedKey { epoch, label, wrapped: vec![7; 40], commitment: [epoch as u8; 32] };
    let column = |offset| Part::new(100, 24, [Piece { offset, len: 8 }]).expect("a piece within its extent");
    let region = |keys, parts| Region { suite: FileSuite::default(), keys, parts };
    let fields = Fields {
        file: [5; 16],
        geometry: Geometry { shares: 2, ..Geometry::default() },
        labels: labels.collect(),
        regions: vec![
            region(vec![key(0, 0)], vec![]),
            region(vec![key(0, 1), key(1, 1)], vec![column(0), column(16)]),
            region(vec![], vec![column(8), Part::once(50, 20)]),
        ],
    };
    let table = Table::new(fields).expect("a legal table");
    let state =
        State { serial: 4, generation: 3, status: Status::Closed, size: 1000, root: [9; 32], closed: 3, base: 3 };
    let sign = |key: &Ed25519KeyPair, message: &[u8]| key.sign(message).as_ref().try_into().expect("64 bytes");
    let signatures = keys.iter().map(|key| sign(key, &table.message())).collect();
    let signature = sign(&keys[1], &state.message(table.digest()));
    Header::new(table, signatures, state, 1, signature)
}

/// Programs of the target `file_regions`: whether the rest is sealed; for each region whether it is, and its parts:
/// displacement, extent, pieces.
const REGIONS: [(&str, &[u8]); 5] = [
    ("columns", &[0, 0, 1, 0, 24, 1, 0, 8, 1, 1, 0, 24, 1, 8, 8, 0, 1, 30, 48, 2, 10, 4, 40, 2]),
    ("overlap", &[0, 0, 1, 5, 6, 1, 0, 2, 0, 1, 70, 10, 1, 1, 1]),
    ("everything", &[1, 0, 1, 199, 8, 1, 0, 8, 0, 2, 0, 231, 1, 10, 100, 0, 231, 1, 110, 80]),
    ("far", &[0, 0, 1, 0, 229, 20, 1, 0, 8, 0, 1, 9, 228, 20, 1, 0, 7]),
    ("same", &[0, 0, 3, 0, 90, 2, 0, 20, 50, 10, 0, 90, 1, 10, 30, 4, 91, 1, 80, 5, 0, 1, 9, 200, 1, 0, 1, 95]),
];

/// Programs of the target `link_handshake`: whether the client is known; what, where and how long.
const HANDSHAKES: [(&str, &[u8]); 6] = [
    ("undisturbed", &[1]),
    ("unknown", &[0]),
    ("altered", &[1, 0, 0, 0, 0, 0, 131, 90, 0, 0, 0, 1]),
    ("doubled", &[1, 5, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 133, 0, 0, 0xff, 0xff]),
    ("cut", &[1, 132, 100, 0, 200, 0, 0, 0, 0, 0, 0, 4, 0, 0, 5, 0]),
    ("seen before", &[1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 135, 1, 0, 0, 0]),
];

/// Programs of the target `link_stranger`: pieces.
const STRANGERS: [(&str, &[u8]); 6] = [
    ("bytes", &[0, 5, 0, 22, 3, 1, 0, 1]),
    ("resumption", &[1, 33, 0, 40, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]),
    ("offers", &[1, 33, 2, 1, 10, 1, 33]),
    // A record longer than TLS has any.
    ("oversized", &[3, 2, 4, 1, 0x40, 0xff, 1, 0, 0xff, 0]),
    ("alert", &[3, 1, 2, 1, 1, 0, 3, 2, 1, 1, 1, 0]),
    ("record", &[3, 2, 60, 1, 1, 0, 0, 56, 3, 3, 3, 0, 4, 0, 0xff, 0xff]),
];

/// Programs of the target `link_session`, without the first byte.
const SESSIONS: [(&str, &[u8]); 8] = [
    ("requests", &[0, 0, 100, 0, 1, 4, 7, 0, 1, 0x88, 0x13, 1, 4, 7, 0, 250, 0xff, 0xff, 1, 4, 7]),
    ("lost", &[0, 0, 100, 0, 1, 4, 1, 6, 4, 7, 0, 250, 0xff, 0xff, 1, 4, 0, 6, 4, 3]),
    ("altered", &[4, 7, 0, 1, 200, 0, 1, 4, 0, 137, 30, 0, 0, 0, 3, 4, 7, 6, 4, 7]),
    ("hidden", &[4, 7, 7, 1, 4, 7, 0, 0, 10, 0, 0, 3, 0, 137, 28, 0, 0, 0, 1, 4, 7, 7, 0, 4, 7]),
    ("swapped", &[4, 7, 0, 0, 9, 0, 1, 0, 1, 9, 0, 1, 4, 0, 141, 0, 0, 140, 0, 4, 7, 6, 4, 7]),
    (
        "liar",
        &[4, 7, 136, 1, 1, 1, 0, 250, 5, 1, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 4, 7, 8, 3, 2, 1, 0, 5, 0, 0, 1, 9, 4, 7],
    ),
    (
        "control",
        &[
            4, 7, 136, 0, 0, 0, 3, 0, 250, 0, 0, 4, 7, 136, 0, 0, 0, 7, 0, 0, 0, 0, 4, 7, 136, 0, 0, 0, 5, 0, 0, 0, 0,
            4, 7,
        ],
    ),
    // Names, asked for genuinely, after a loss and by a liar; and answers to them, asked for and not.
    (
        "names",
        &[
            7, 130, 4, 1, 7, 255, 6, 4, 7, 136, 0, 0, 0, 11, 5, 1, 0, 5, 1, 2, 3, 4, 5, 4, 7, 7, 140, 8, 0, 0, 0, 12,
            3, 3, 0, 3, 1, 2, 3, 4, 7, 8, 0, 0, 0, 12, 0, 250, 0, 0, 4, 7,
        ],
    ),
];

/// Programs of the target `activation`: caveats; protection, altered byte and bit; requests.
const PROGRAMS: [(&str, &[u8]); 3] = [
    ("program-plain", &[0, 0, 60, 0, 3, 0, 0, 1, 0, 1, 1, 16, 8, 1, 2, 0, 2, 3, 0, 1]),
    (
        "program-narrow",
        &[4, 0, 2, 1, 2, 1, 2, 4, 0, 3, 1, 1, 20, 8, 1, 0, 9, 0, 1, 0, 0, 1, 0, 1, 1, 22, 2, 1, 0, 0, 2],
    ),
    ("program-foreign", &[3, 5, 3, 1, 1, 16, 0, 1, 2, 232, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 1]),
];

/// Pairs of what to do (0 and 1 receive, 2 a message comes, 3 cancel; above that tag and wild
/// cards) and for whom.
const MATCHING: [(&str, &[u8]); 4] = [
    ("receive-first", &[0x10, 1, 0x12, 1, 0x10, 0x80, 0x12, 2]),
    ("message-first", &[0x12, 1, 0x12, 2, 0x22, 1, 0x10, 0x80, 0x14, 2, 0x20, 1]),
    ("wild-cards", &[0x04, 0x80, 0x08, 1, 0x00, 0x81, 0x12, 1, 0x02, 1, 0x42, 1]),
    ("cancel", &[0x10, 1, 0x10, 2, 0x10, 1, 3, 1, 3, 0x80, 0x12, 1, 3, 0, 3, 0x81]),
];

/// Programs of the target `endpoint`, without the first byte.
const ENDPOINT: [(&str, &[u8]); 7] = [
    // A receive, then a small message for it that comes altered first.
    ("small", &[8, 0, 200, 0, 5, 0, 50, 0, 41, 3, 0, 15]),
    // A large message in many records, before its receive.
    ("large", &[5, 1, 0x10, 0x27, 60, 0, 1, 0, 0, 9, 8, 0, 0x20, 0x4e, 15, 13, 100]),
    // More than goes unasked: a grant and the rest.
    ("granted", &[5, 9, 0x00, 0x40, 90, 0, 2, 8, 0, 0x20, 0x4e, 13, 50, 13, 50]),
    // A multi-receive buffer, a claimed message, one that is discarded.
    ("multi", &[8, 3, 0, 4, 5, 2, 90, 0, 0, 0, 0, 5, 2, 90, 0, 0, 0, 8, 5, 0, 9, 0, 1, 1, 1, 10, 2, 11, 0, 0, 0]),
    // Somebody without keys, and a message in between.
    ("anybody", &[0, 90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4]),
    // A peer that announces a message of absurd size and goes on with it.
    ("liar", &[1, 1, 0, 5, 1, 230, 0, 0, 1, 8, 0, 200, 0, 1, 2, 3, 0, 50, 0, 0, 0, 20, 0, 1, 1, 5, 0, 230, 0, 0, 0]),
    // Messages to itself and to the liar, closing.
    ("own", &[12, 8, 90, 0, 8, 0, 90, 0, 12, 4, 0x10, 0x27, 1, 0, 2, 0, 200, 0, 0, 14, 0, 13, 255, 15, 13, 200]),
];
