//! The known-answer vectors under vectors/, which a second implementation wrote (tests/vectors).

mod directory;
mod file;
mod staging;
mod startpoint;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use gambeson_proto::aead::{Context, Unauthentic};
use gambeson_proto::identity::{Card, CardError, HostIndex, Identity, PublicKey};
use gambeson_proto::key_schedule::{
    JobKeys, PairRoots, PartitionKey, Resumption, Root, Side, WeakKey, pair_roots, session_secret,
};
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::{Protection, Suite};
use serde_json::{Value, json};

#[test]
fn sealed_bytes() {
    assert_eq!(check("aead"), 11);
}

#[test]
fn cards() {
    assert_eq!(check("card"), 12);
}

#[test]
fn key_schedule() {
    assert_eq!(check("key_schedule"), 14);
}

#[test]
fn epochs() {
    assert_eq!(check("epoch"), 6);
}

#[test]
fn startpoints() {
    assert_eq!(check("startpoint"), 21);
}

#[test]
fn links() {
    assert_eq!(check("link"), 28);
}

#[test]
fn directories() {
    assert_eq!(check("directory"), 13);
}

#[test]
fn files() {
    assert_eq!(check("file"), 32);
}

#[test]
fn staged_code_and_frames() {
    assert_eq!(check("staging"), 13);
}

/// Answers every case of a directory; returns how many there were.
fn check(kind: &str) -> usize {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(kind);
    let files = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut cases = 0;
    for file in files {
        let path = file.expect("a directory entry").path();
        let text = fs::read_to_string(&path).expect("a readable vector");
        let case: Value = serde_json::from_str(&text).expect("a vector is JSON");
        let answer = answer(&case);
        assert_eq!(answer["refused"], case["expect"]["refused"], "{}", path.display());
        for (name, value) in answer.as_object().expect("an answer has named parts") {
            assert_eq!(*value, case["expect"][name], "{name} in {}", path.display());
        }
        cases += 1;
    }
    cases
}

/// What this implementation answers, as far as it shows it: roots and keys stay inside.
fn answer(case: &Value) -> Value {
    let given = &case["given"];
    match text(case, "operation") {
        "seal" => seal(&context(given), given),
        "open" => open(given),
        "encode card" => json!({ "card": hex(&card(given).encode(&job(given).admission_key())) }),
        "decode card" => decode_card(given),
        "pair" => match pair(given) {
            Ok(roots) => shown(given, &roots),
            Err(WeakKey) => refused("WeakKey"),
        },
        "partition" => json!({ "key": hex(partition(given, given).key.as_bytes()) }),
        "registration" => {
            let proof = job(given).registration_proof(number(given, "pid"), number(given, "rank"));
            json!({ "proof": hex(&proof) })
        }
        "session" => session(given),
        "epoch" => epoch(given),
        "startpoint" => startpoint::make(given),
        "decode startpoint" => startpoint::decode(given),
        "link" => startpoint::link(given),
        "admit" => startpoint::admit(given),
        "sign directory" => directory::sign(given),
        "verify directory" => directory::verify(given),
        "stage" => staging::stage(given),
        "staged" => staging::staged(given),
        "frame" => staging::write(given),
        "read frame" => staging::read(given),
        "share" => file::share(given),
        "sealed file" => file::sealed_file(given),
        "offsets" => file::offsets(given),
        "read header" => file::read_header(given),
        other => panic!("no operation is called {other}"),
    }
}

fn session(given: &Value) -> Value {
    let exported = Secret32::from_bytes(array(given, "exported"));
    let of_job = given.get("job_secret").map(|_| job(given));
    let resumption = Resumption::new(&session_secret(&exported, of_job.as_ref()));
    let (client, server): ([u8; 16], [u8; 16]) = (array(given, "client_nonce"), array(given, "server_nonce"));
    let resumed = |side| hex(&resumption.proof(side, &client, &server, number(given, "received")));
    let mut shown = json!({
        "name": hex(&resumption.name),
        "client_resumption": resumed(Side::Client),
        "server_resumption": resumed(Side::Server),
    });
    if let Some(job) = of_job {
        shown["client_proof"] = hex(&job.session_proof(&exported, Side::Client)).into();
        shown["server_proof"] = hex(&job.session_proof(&exported, Side::Server)).into();
    }
    shown
}

fn seal(context: &Context, given: &Value) -> Value {
    let (sequence, data, plain) = (number(given, "sequence"), bytes(given, "associated_data"), bytes(given, "plain"));
    let mut sealed = vec![0; plain.len()];
    let tag = context.seal(sequence, &data, &plain, &mut sealed);
    let mut opened = vec![0; plain.len()];
    assert_eq!(context.open(sequence, &data, &sealed, &tag, &mut opened), Ok(()));
    assert_eq!(opened, plain);
    if plain.is_empty() {
        assert_eq!(context.mac(sequence, &data), tag);
        assert_eq!(context.verify(sequence, &data, &tag), Ok(()));
    }
    json!({ "sealed": hex(&sealed), "tag": hex(&tag) })
}

fn open(given: &Value) -> Value {
    let sealed = bytes(given, "sealed");
    let mut plain = vec![0; sealed.len()];
    let (sequence, data) = (number(given, "sequence"), bytes(given, "associated_data"));
    match context(given).open(sequence, &data, &sealed, &array(given, "tag"), &mut plain) {
        Ok(()) => json!({ "plain": hex(&plain) }),
        Err(Unauthentic) => refused("Unauthentic"),
    }
}

fn context(given: &Value) -> Context {
    Context::new(suite(given), &bytes(given, "key"), array(given, "iv"))
}

fn card(given: &Value) -> Card {
    let ip: IpAddr = text(given, "ip").parse().expect("an IP address");
    Card {
        address: SocketAddr::new(ip, number(given, "port") as u16),
        public_key: array(given, "public_key"),
        rank: given["rank"].as_u64().map(|rank| rank as u32),
        host: HostIndex(number(given, "host") as u16),
    }
}

fn decode_card(given: &Value) -> Value {
    match Card::decode(&bytes(given, "card"), &job(given).admission_key()) {
        Ok(card) => json!({
            "ip": card.address.ip().to_string(),
            "port": card.address.port(),
            "public_key": hex(&card.public_key),
            "rank": card.rank,
            "host": card.host.0,
        }),
        Err(CardError::WrongLength) => refused("WrongLength"),
        Err(CardError::NotOfThisJob) => refused("NotOfThisJob"),
        Err(CardError::Malformed) => refused("Malformed"),
        Err(other) => panic!("no vector expects {other:?}"),
    }
}

fn pair(given: &Value) -> Result<PairRoots, WeakKey> {
    let partition = (!given["partition"].is_null()).then(|| partition(given, &given["partition"]));
    pair_roots(&job(given), &Identity::from_seed(array(given, "own_seed")), &peer(given), partition.as_ref())
}

fn peer(given: &Value) -> PublicKey {
    match given.get("peer_seed") {
        Some(_) => Identity::from_seed(array(given, "peer_seed")).public,
        None => array(given, "peer_public"),
    }
}

fn shown(given: &Value, roots: &PairRoots) -> Value {
    let id = |root: &Root| format!("{:016x}", root.connection_id());
    let tag = |root: &Root| hex(&root.epoch(0, suite(given), Protection::Privacy).mac(0, &[]));
    json!({
        "own_public": hex(&Identity::from_seed(array(given, "own_seed")).public),
        "peer_public": hex(&peer(given)),
        "send_connection_id": id(&roots.send),
        "send_first_empty_tag": tag(&roots.send),
        "receive_connection_id": id(&roots.receive),
        "receive_first_empty_tag": tag(&roots.receive),
    })
}

fn epoch(given: &Value) -> Value {
    let protection = Protection::from_name(text(given, "protection")).expect("a protection");
    let root = pair(given).expect("an honest peer").send;
    seal(&root.epoch(number(given, "epoch") as u32, suite(given), protection), given)
}

fn job(given: &Value) -> JobKeys {
    JobKeys {
        job_id: array(given, "job_id"),
        job_secret: Secret32::from_bytes(array(given, "job_secret")),
        policy_hash: given.get("policy_hash").map_or([0; 32], |_| array(given, "policy_hash")),
        suite: given.get("suite").map_or(Suite::default(), |_| suite(given)),
    }
}

fn partition(job: &Value, given: &Value) -> PartitionKey {
    let secret = Secret32::from_bytes(array(given, "secret"));
    PartitionKey::derive(&secret, number(given, "epoch") as u32, text(given, "name"), &array(job, "job_id"))
}

fn refused(reason: &str) -> Value {
    json!({ "refused": reason })
}

fn suite(given: &Value) -> Suite {
    Suite::from_name(text(given, "suite")).expect("a suite")
}

fn text<'a>(given: &'a Value, name: &str) -> &'a str {
    given[name].as_str().unwrap_or_else(|| panic!("{name} is text"))
}

fn number(given: &Value, name: &str) -> u64 {
    given[name].as_u64().unwrap_or_else(|| panic!("{name} is a number"))
}

fn bytes(given: &Value, name: &str) -> Vec<u8> {
    let digits = text(given, name);
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
    pairs.collect::<Result<_, _>>().unwrap_or_else(|_| panic!("{name} is hexadecimal"))
}

fn array<const LEN: usize>(given: &Value, name: &str) -> [u8; LEN] {
    bytes(given, name).try_into().unwrap_or_else(|_| panic!("{name} has {LEN} bytes"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
