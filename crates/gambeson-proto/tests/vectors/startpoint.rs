//! Startpoints and links.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_proto::key_schedule::{End, KeyHash, PartitionKey, SessionKeys};
use gambeson_proto::secret::Secret32;
use gambeson_proto::startpoint::{
    Address, AddressKind, Caveat, EndpointKey, Limits, Refusal, Session, Startpoint, StartpointBook, StartpointError,
    Terms, Transforms, Voucher, Window, key_hash,
};
use gambeson_proto::suite::Protection;
use serde_json::{Value, json};

use super::{array, bytes, hex, number, refused, suite, text};

pub(super) fn make(given: &Value) -> Value {
    let (_, startpoint) = made(given);
    let encoded = startpoint.encode();
    let decoded = Startpoint::decode(&encoded).expect("it was just encoded");
    assert_eq!(decoded.encode(), encoded);
    assert_eq!(decoded.name(), startpoint.name());
    json!({ "startpoint": hex(&encoded), "copy": startpoint.name().copy.map(|copy| hex(&copy)) })
}

pub(super) fn decode(given: &Value) -> Value {
    match Startpoint::decode(&bytes(given, "startpoint")) {
        Ok(startpoint) => json!({
            "owner": hex(startpoint.owner()),
            "endpoint": startpoint.endpoint(),
            "class": startpoint.class(),
            "transforms": startpoint.transforms().iter().collect::<Vec<_>>(),
            "addresses": startpoint.addresses().iter().map(|address| address.text.as_str()).collect::<Vec<_>>(),
            "caveats": startpoint.caveats().count(),
        }),
        Err(StartpointError::Version(_)) => refused("Version"),
        Err(other) => refused(&format!("{other:?}")),
    }
}

pub(super) fn link(given: &Value) -> Value {
    let (mut book, startpoint) = made(given);
    let (mut here, mut there) = sessions(given);
    let partition = partition(given);
    let protection = Protection::from_name(text(given, "protection")).expect("a protection");
    let opening = startpoint
        .activate(&mut here, array(given, "nonce"), protection, partition.as_ref())
        .expect("it is the opener's");
    let activation = opening.activation.encode();
    let terms = |_: &str| Terms { floor: protection, partition: partition.as_ref() };
    let admitted = book.admit(&mut there, &activation, 0, terms).expect("a vector's activation is genuine");
    assert!(opening.is_answered_by(&admitted.keys.answer));
    let print = |keys: &gambeson_proto::key_schedule::LinkKeys| {
        let tag = |root: &gambeson_proto::key_schedule::Root| {
            hex(&root.epoch(0, suite(given), Protection::Privacy).mac(0, &[]))
        };
        json!({
            "activation": hex(&activation),
            "answer": hex(&keys.answer),
            "from_startpoint_connection_id": format!("{:016x}", keys.from_startpoint.connection_id()),
            "from_startpoint_first_empty_tag": tag(&keys.from_startpoint),
            "from_endpoint_connection_id": format!("{:016x}", keys.from_endpoint.connection_id()),
            "from_endpoint_first_empty_tag": tag(&keys.from_endpoint),
        })
    };
    assert_eq!(print(&opening.keys), print(&admitted.keys));
    print(&admitted.keys)
}

pub(super) fn admit(given: &Value) -> Value {
    let (mut book, _) = made(given);
    let (_, mut there) = sessions(given);
    let partition = partition(given);
    let floor = Protection::from_name(text(given, "floor")).expect("a protection");
    let terms = |class: &str| {
        assert_eq!(class, text(given, "class"));
        Terms { floor, partition: partition.as_ref() }
    };
    match book.admit(&mut there, &bytes(given, "activation"), number(given, "now"), terms) {
        Ok(admitted) => json!({ "answer": hex(&admitted.keys.answer) }),
        Err(reason) => {
            let counts = Refusal::ALL.map(|refusal| book.refused(refusal));
            assert_eq!((counts.iter().sum::<u64>(), book.refused(reason)), (1, 1));
            refused(&format!("{reason:?}"))
        }
    }
}

/// The endpoint's book, and the startpoint that was made and passed on as a case says.
fn made(given: &Value) -> (StartpointBook, Startpoint) {
    let mut book = StartpointBook::new(domain(given, "owner_seed"), Limits::default());
    let endpoint = number(given, "endpoint");
    let key = EndpointKey::from_bytes(array(given, "endpoint_key"));
    let transforms = given["transforms"].as_array().expect("modules are a list").iter();
    let transforms = transforms.map(|name| name.as_str().expect("a name is text"));
    let transforms = Transforms::new(transforms).expect("names");
    book.open_endpoint(endpoint, key, text(given, "class"), transforms).expect("a class");
    let addresses = given["addresses"].as_array().expect("addresses are a list").iter().map(|address| Address {
        kind: if address[0] == "tcp" { AddressKind::Tcp } else { AddressKind::Shm },
        text: address[1].as_str().expect("an address is text").to_owned(),
    });
    let mint = given["mint"].as_array().expect("caveats are a list").iter().map(caveat);
    let mut startpoint = book.mint(endpoint, array(given, "root"), addresses.collect(), mint).expect("it can be made");
    let mut holder: Option<Ed25519KeyPair> = None;
    for step in given["steps"].as_array().expect("steps are a list") {
        let Some(copy) = step.get("copy") else {
            startpoint.narrow(caveat(step)).expect("it can be narrowed");
            continue;
        };
        // What honest code would not make stands in the activation.
        if copy.get("signer_seed").is_some() {
            break;
        }
        let vouch = |message: &[u8]| voucher(holder.as_ref().expect("a copy's copy has a holder"), message);
        startpoint =
            startpoint.copy_for(domain(copy, "holder_seed"), array(copy, "id"), vouch).expect("it can be copied");
        holder = Some(signing_key(copy, "holder_seed"));
    }
    (book, startpoint)
}

fn caveat(step: &Value) -> Caveat {
    let (kind, value) = step.as_object().and_then(|step| step.iter().next()).expect("a step has one name");
    match kind.as_str() {
        "methods" => {
            let methods = value.as_array().expect("handlers are a list").iter();
            Caveat::methods(methods.map(|method| method.as_u64().expect("a handler is a number") as u32))
        }
        "uses" => Caveat::Uses(value.as_u64().expect("uses are a number")),
        "expires" => Caveat::Expires(value.as_u64().expect("a time is a number")),
        "memory" => Caveat::Memory(value.as_array().expect("windows are a list").iter().map(window).collect()),
        "protection" => Caveat::Protection(Protection::from_name(value.as_str().expect("text")).expect("a protection")),
        other => panic!("no caveat is called {other}"),
    }
}

fn window(window: &Value) -> Window {
    let number = |at: usize| window[at].as_u64().expect("a window has three numbers");
    let rights = match window[3].as_str() {
        Some("r") => Window::READ,
        Some("w") => Window::WRITE,
        _ => Window::READ | Window::WRITE,
    };
    Window { region: number(0), offset: number(1), length: number(2), rights }
}

/// Of a session that the opener of the link opened: its end, and the endpoint's.
fn sessions(given: &Value) -> (Session, Session) {
    let keys = |own, peer| SessionKeys {
        exporter: Secret32::from_bytes(array(given, "exporter")),
        own,
        peer,
        job_id: array(given, "job_id"),
        policy_hash: array(given, "policy_hash"),
        suite: suite(given),
    };
    let (opener, owner) = (domain(given, "opener_seed"), domain(given, "owner_seed"));
    (Session::new(keys(opener, owner), End::Startpoint), Session::new(keys(owner, opener), End::Endpoint))
}

fn partition(given: &Value) -> Option<PartitionKey> {
    (!given["partition"].is_null()).then(|| super::partition(given, &given["partition"]))
}

fn signing_key(given: &Value, name: &str) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&bytes(given, name)).expect("a seed has 32 bytes")
}

fn public(key: &Ed25519KeyPair) -> [u8; 32] {
    key.public_key().as_ref().try_into().expect("32 bytes")
}

fn domain(given: &Value, name: &str) -> KeyHash {
    key_hash(&public(&signing_key(given, name)))
}

fn voucher(key: &Ed25519KeyPair, message: &[u8]) -> Voucher {
    Voucher { key: public(key), signature: key.sign(message).as_ref().try_into().expect("64 bytes") }
}
