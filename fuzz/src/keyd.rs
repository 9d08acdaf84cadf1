//! What a key service and those who ask it take from each other.

use std::fmt::Debug;

use gambeson_keyd::client::Place;
use gambeson_keyd::wire::{
    Answer, Kind, LabelState, Purpose, Question, Refused, Secret, Status, Verification, VersionState, Want, decode,
    encode,
};
use gambeson_keyd::{Grant, Rights, Row};
use gambeson_keys::Ring;
use gambeson_launch::partitions::{Change, Listed, Record, Source};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub fn keyd_wire(data: &[u8]) {
    again::<Question>(data);
    again::<Result<Answer, Refused>>(data);
    if let Ok(Question::Import { ring, .. } | Question::Compare { ring }) = decode(data) {
        let _ = Ring::carried("there", ring.as_bytes());
    }
    if let Ok(Question::TakePartitions { records }) = decode(data) {
        records.iter().for_each(|(_, bytes)| partition(bytes.as_bytes()));
    }
    partition(data);
    if let Some(place) = str::from_utf8(data).ok().and_then(|text| text.parse::<Place>().ok()) {
        assert_eq!(place.to_string().parse::<Place>().expect("it was read before"), place);
        assert!(!place.hosts().is_empty());
    }
}

/// What can be decoded can be encoded, and is the same after that.
fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(message) = decode::<T>(data) {
        assert_eq!(decode::<T>(&encode(&message)).expect("it was decoded before"), message);
    }
}

/// What can be read of a partition's record is written as it was read.
fn partition(bytes: &[u8]) {
    if let Some(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()).expect("it was read before"), record);
    }
}

/// One of each.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let label = || "clinical".to_owned();
    let grant = || Grant {
        who: "user:ann".into(),
        rights: Rights { read: true, write: false, administer: true },
        until: Some(1_796_600_000),
    };
    let ring = || {
        let mut ring = Ring::new("there".into(), []);
        ring.create("clinical", Some(1_796_600_000)).expect("it is a name");
        Secret::from(ring.carry().as_slice())
    };
    let key = || "0f".repeat(32);
    let record = || {
        format!("3 1796600000 {}\nhosts = [\"h1\"]\n\n[sites.west]\nkey = \"{0}\"\nhosts = [\"w1\"]\n", key())
            .into_bytes()
    };
    let share = Change::Share { site: "west".into(), key: key() };
    let source = Source { address: "h1:7201".into(), key: key() };
    let questions = [
        ("keys", Question::Keys { labels: Some(vec![label()]), want: Want::Most, purpose: Purpose::Job([7; 16]) }),
        ("keys-all", Question::Keys { labels: None, want: Want::Read, purpose: Purpose::ExportTo("00".into()) }),
        (
            "set-anchor",
            Question::SetAnchor { file: [1; 16], labels: vec![label()], generation: 3, root: [9; 32], back: true },
        ),
        ("grant", Question::Grant { label: label(), grant: grant() }),
        ("import", Question::Import { ring: ring(), agreed: vec![(label(), 1)] }),
        ("partition-share", Question::Partition { name: label(), change: share }),
        ("partition-follow", Question::Partition { name: label(), change: Change::Follow { source } }),
        ("partitions-taken", Question::TakePartitions { records: vec![(label(), Secret::from(record()))] }),
        ("log", Question::Log { label: Some(label()), from: 1, limit: 2 }),
    ];
    let version = VersionState { number: 1, created: 2, expires: Some(3), verifying_key: [4; 32], may_write: true };
    let state = LabelState {
        name: label(),
        versions: vec![version],
        rights: grant().rights,
        until: None,
        grants: Some(vec![grant()]),
    };
    let row = Row {
        number: 1,
        time: 2,
        event: "get".into(),
        label: Some(label()),
        file: Some([1; 16]),
        record: None,
        sealed: Some([2; 32]),
        who: "{}".into(),
        about: "{}".into(),
        hash: [3; 32],
    };
    let verified = Verification { tail: "1:00".into(), labels: 1, files: 2, last: Some(3) };
    let status = Status { version: "0.1.0".into(), since: 1, standby: false, tail: None, labels: Some(2) };
    let listed = Listed {
        name: label(),
        epoch: Some((3, 1_796_600_000)),
        members: vec![("h1".into(), None), ("w1".into(), Some("west".into()))],
        sites: vec![("west".into(), key())],
        source: None,
    };
    let refused = Refused { kind: Kind::OlderAnchor { held: 7 }, sentence: "no".into() };
    let answers: [(&str, Result<Answer, Refused>); 7] = [
        ("partitions", Ok(Answer::Partitions { partitions: vec![listed], host: "h1".into(), key: key() })),
        ("given", Ok(Answer::Keys(ring()))),
        ("labels", Ok(Answer::Labels(vec![state]))),
        ("rows", Ok(Answer::Log(vec![row], "1:00".into()))),
        ("verified", Ok(Answer::Verified(verified))),
        ("status", Ok(Answer::Status(status))),
        ("refused", Err(refused)),
    ];
    let questions = questions.into_iter().map(|(name, question)| (name, encode(&question).to_vec()));
    let answers = answers.into_iter().map(|(name, answer)| (name, encode(&answer).to_vec()));
    questions
        .chain(answers)
        .chain([("place", b"keyd://h1=10.0.0.1:7201,h2".to_vec()), ("partition", record())])
        .collect()
}
