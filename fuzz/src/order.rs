//! What daemons, those who order at them and keepers of processes take from each other.

use std::fmt::Debug;

use gambeson_launch::wire::{
    Event, Health, Host, Order, Process, Program, Running, Start, Status, Streams, Variable, decode, encode,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub fn order(data: &[u8]) {
    again::<Start>(data);
    again::<Event>(data);
    again::<Vec<Running>>(data);
    again::<Health>(data);
    let Ok(order) = Order::decode(data) else { return };
    assert!(!order.processes.is_empty());
    for process in &order.processes {
        assert!((process.host as usize) < order.hosts.len() && (process.program as usize) < order.programs.len());
        process.environment.iter().for_each(can_be);
    }
    for program in &order.programs {
        assert!(!program.arguments.is_empty());
        program.environment.iter().for_each(can_be);
        for text in program.arguments.iter().chain([&program.directory, &program.executable]) {
            assert!(!text.as_os().as_encoded_bytes().contains(&0));
        }
    }
    let bytes = encode(&order);
    assert_eq!(Order::decode(&bytes).expect("it was decoded before"), order);
}

/// A variable that the system can take.
fn can_be((name, value): &Variable) {
    let (name, value) = (name.as_os().as_encoded_bytes(), value.as_os().as_encoded_bytes());
    assert!(!name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0));
}

/// What can be decoded can be encoded, and is the same after that.
fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(message) = decode::<T>(data) {
        assert_eq!(decode::<T>(&encode(&message)).expect("it was decoded before"), message);
    }
}

/// One of each.
pub(crate) fn seeds() -> [(&'static str, Vec<u8>); 6] {
    let program = |streams| Program {
        directory: "/tmp".into(),
        executable: "cat".into(),
        arguments: vec!["cat".into(), "-".into()],
        environment: vec![("LANG".into(), "C".into())],
        streams,
    };
    let host = |name: &str| Host { name: name.into(), address: format!("{name}:7200") };
    let process = |host, program| Process { host, program, environment: vec![("PART".into(), "1".into())] };
    let order = Order {
        id: [7; 16],
        until: 1_796_600_000,
        account: "alice".into(),
        hosts: vec![host("h1"), host("h2")],
        programs: vec![program(Streams::All), program(Streams::Terminal(24, 80))],
        processes: vec![process(0, 0), process(1, 1), process(1, 0)],
        context: b"between them"[..].into(),
    };
    let order = encode(&order);
    let start = Start { order: order[..].into(), hosts: vec![0, 1], signature: None };
    let running = Running {
        id: [7; 16],
        identity: "user:alice".into(),
        from: "h1".into(),
        account: "alice".into(),
        programs: vec!["cat".into()],
        processes: 2,
        since: 1_796_600_000,
    };
    let health = Health { version: "0.1.0".into(), since: 1, orders: 2, now: 3 };
    [
        ("order", order),
        ("start", encode(&start)),
        ("output", encode(&Event::Output(b"line\n".to_vec()))),
        ("ended", encode(&Event::Ended(Status::Killed(9)))),
        ("running", encode(&vec![running])),
        ("health", encode(&health)),
    ]
}
