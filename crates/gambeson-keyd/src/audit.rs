//! The log: a row for all that was done or refused, chained: who alters a row or takes one out breaks the chain from there
//! on.
//!
//! ```text
//! hash = SHA-256(hash before 32 | number u64 | time u64 | event | label | file | record | sealed | who | about)
//! ```
//! Each field is a u32 length, big endian, and its bytes; what is not there has the length 2^32 - 1 and no bytes. Before the
//! first row stands SHA-256("gambeson keyd log v1" | database id).

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256, digest};
use gambeson_proto::directory::date;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::access::Who;

/// Names of events. A service may have more.
pub mod events {
    #![allow(missing_docs)]
    pub const INIT: &str = "init";
    pub const CREATE: &str = "create";
    pub const GET: &str = "get";
    pub const ROTATE: &str = "rotate";
    pub const EXPIRE: &str = "expire";
    pub const GRANT: &str = "grant";
    pub const REVOKE: &str = "revoke";
    pub const DELETE: &str = "delete";
    pub const IMPORT: &str = "import";
    pub const ANCHOR: &str = "anchor";
    pub const ANCHOR_BACK: &str = "anchor-back";
    pub const REFUSAL: &str = "refusal";
    pub const PARTITION: &str = "partition";
    pub const PARTITION_CHANGE: &str = "partition-change";
    pub const MASTER: &str = "master";
    pub const RESEAL: &str = "reseal";
    pub const BACKUP: &str = "backup";
    pub const RESTORE: &str = "restore";
    pub const PROMOTE: &str = "promote";
    pub const DEMOTE: &str = "demote";
    pub const ADOPT: &str = "adopt";
    pub const SEED: &str = "seed";
    pub const STANDBY: &str = "standby";
    pub const STANDBY_LOST: &str = "standby-lost";
}

/// What a row of the log is to say.
#[derive(Clone, Debug)]
pub struct Event {
    /// See [`events`].
    pub event: &'static str,
    /// Who did it, or wanted to.
    pub who: Who,
    /// With which label.
    pub label: Option<String>,
    /// With which file's anchor.
    pub file: Option<[u8; 16]>,
    /// What else there is to say; never a secret.
    pub about: Map<String, Value>,
}

impl Event {
    /// An event that says who did what.
    pub fn new(event: &'static str, who: &Who) -> Self {
        Event { event, who: who.clone(), label: None, file: None, about: Map::new() }
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.to_owned());
        self
    }

    /// With a file.
    #[must_use]
    pub fn file(mut self, file: &[u8; 16]) -> Self {
        self.file = Some(*file);
        self
    }

    /// With one thing more.
    #[must_use]
    pub fn about(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.about.insert(name.to_owned(), value.into());
        self
    }

    /// A refusal, with its true reason.
    pub fn refusal(who: &Who, wanted: &str, reason: &str) -> Self {
        Event::new(events::REFUSAL, who).about("wanted", wanted).about("reason", reason)
    }
}

/// A row of the log, as it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Counted from 1.
    pub number: u64,
    /// In seconds since 1970.
    pub time: u64,
    /// See [`events`].
    pub event: String,
    /// With which label.
    pub label: Option<String>,
    /// With which file's anchor.
    pub file: Option<[u8; 16]>,
    /// Which record it changed, as `KIND/NAME`.
    pub record: Option<String>,
    /// SHA-256 of that record's sealed bytes; none if it was removed.
    pub sealed: Option<[u8; 32]>,
    /// Who, in JSON.
    pub who: String,
    /// What else, in JSON.
    pub about: String,
    /// SHA-256 of all of it and of the hash before.
    pub hash: [u8; 32],
}

/// What stands in rows as seconds since 1970.
pub const MOMENTS: [&str; 3] = ["until", "expires", "time"];

/// What a row says besides, as people read it; nothing, where it says nothing.
#[must_use]
pub fn readable(name: &str, value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        Value::Number(when) if MOMENTS.contains(&name) => when.as_u64().map_or_else(|| when.to_string(), date),
        Value::Object(parts) => {
            let parts = parts.iter().filter_map(|(name, value)| Some(format!("{name} {}", readable(name, value)?)));
            parts.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    })
}

/// The same as programs read it: with moments as all other times.
#[must_use]
pub fn dated(about: Map<String, Value>) -> Map<String, Value> {
    let dated = |(name, value): (String, Value)| {
        let value = match value {
            Value::Number(when) if MOMENTS.contains(&&*name) => {
                when.as_u64().map_or(Value::Number(when), |when| date(when).into())
            }
            Value::Object(parts) => Value::Object(dated(parts)),
            other => other,
        };
        (name, value)
    };
    about.into_iter().map(dated).collect()
}

impl Row {
    /// The row that comes after a tail.
    pub(crate) fn after(tail: &Tail, time: u64, event: &Event, record: Option<(String, Option<[u8; 32]>)>) -> Row {
        let (record, sealed) = record.map_or((None, None), |(record, sealed)| (Some(record), sealed));
        let mut row = Row {
            number: tail.number + 1,
            time,
            event: event.event.to_owned(),
            label: event.label.clone(),
            file: event.file,
            record,
            sealed,
            who: serde_json::to_string(&event.who).expect("strings are JSON"),
            about: serde_json::to_string(&event.about).expect("values are JSON"),
            hash: [0; 32],
        };
        row.seal_after(tail);
        row
    }

    /// Gives it the hash that it has after a tail, and says what the log ends with then.
    pub(crate) fn seal_after(&mut self, tail: &Tail) -> Tail {
        self.hash = self.hash_after(&tail.hash);
        Tail { number: self.number, hash: self.hash }
    }

    /// The same, written after a tail: with what else there is to say. It tells of no record.
    pub(crate) fn moved(&self, tail: &Tail, time: u64, about: String) -> Row {
        let mut row = Row { number: tail.number + 1, time, record: None, sealed: None, about, ..self.clone() };
        row.hash = row.hash_after(&tail.hash);
        row
    }

    /// The tail with this row, if it goes on from there.
    pub(crate) fn follow(&self, tail: &Tail) -> Option<Tail> {
        let goes_on = tail.number.checked_add(1) == Some(self.number) && self.hash_after(&tail.hash) == self.hash;
        goes_on.then_some(Tail { number: self.number, hash: self.hash })
    }

    fn hash_after(&self, before: &[u8; 32]) -> [u8; 32] {
        let mut hash = Context::new(&SHA256);
        hash.update(before);
        hash.update(&self.number.to_be_bytes());
        hash.update(&self.time.to_be_bytes());
        let fields: [Option<&[u8]>; 7] = [
            Some(self.event.as_bytes()),
            self.label.as_deref().map(str::as_bytes),
            self.file.as_ref().map(|file| &file[..]),
            self.record.as_deref().map(str::as_bytes),
            self.sealed.as_ref().map(|sealed| &sealed[..]),
            Some(self.who.as_bytes()),
            Some(self.about.as_bytes()),
        ];
        for field in fields {
            let length = field.map_or(u32::MAX, |field| u32::try_from(field.len()).expect("a row is bounded"));
            hash.update(&length.to_be_bytes());
            hash.update(field.unwrap_or_default());
        }
        hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// About how many bytes it has.
    pub(crate) fn size(&self) -> usize {
        let text = [Some(&self.event), self.label.as_ref(), self.record.as_ref(), Some(&self.who), Some(&self.about)];
        FIXED + text.into_iter().flatten().map(String::len).sum::<usize>()
    }

    /// Who did it, or wanted to.
    pub fn who(&self) -> Option<Who> {
        serde_json::from_str(&self.who).ok()
    }

    /// What else there is to say.
    pub fn about(&self) -> Map<String, Value> {
        serde_json::from_str(&self.about).unwrap_or_default()
    }
}

/// What a log ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// How many rows there are.
    pub number: u64,
    /// The hash of the last one.
    pub hash: [u8; 32],
}

impl Tail {
    /// What an empty log ends with.
    pub(crate) fn start(what: &[u8], id: &[u8; 16]) -> Tail {
        Tail { number: 0, hash: sha256(&[what, id].concat()) }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// As `NUMBER:HASH`, which is what is kept elsewhere.
impl fmt::Display for Tail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.number, data_encoding::HEXLOWER.encode(&self.hash))
    }
}

impl std::str::FromStr for Tail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let none = || {
            format!(
                "\"{text}\" is no end of a log; it is NUMBER:HASH, as `gambeson key audit --verify` and \
             `gambeson keyd verify` print it"
            )
        };
        let (number, hash) = text.split_once(':').ok_or_else(none)?;
        let hash = data_encoding::HEXLOWER.decode(hash.as_bytes()).ok().and_then(|hash| hash.try_into().ok());
        Ok(Tail { number: number.parse().map_err(|_| none())?, hash: hash.ok_or_else(none)? })
    }
}

/// Numbers and hashes of a row, and the lengths of the rest, in bytes.
const FIXED: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_in_the_hash_and_none_moves_into_the_next() {
        let who = Who { name: "ann".into(), roles: vec!["user:ann".into()], key: "ab".into(), from: "h1".into() };
        let start = Tail::start(b"test", &[1; 16]);
        let event = Event::new(events::GET, &who).label("clinical").file(&[2; 16]).about("job", "7");
        let row = Row::after(&start, 5, &event, Some(("label/x".into(), Some([3; 32]))));
        let tail = row.follow(&start).unwrap();
        assert_eq!(tail.to_string().parse(), Ok(tail));
        let altered: [fn(&mut Row); 13] = [
            |row| row.number += 1,
            |row| row.time += 1,
            |row| row.event.push('x'),
            |row| row.label = None,
            |row| row.label = Some(String::new()),
            |row| row.file = None,
            |row| row.file = Some([9; 16]),
            |row| row.record = None,
            |row| row.sealed = None,
            |row| row.sealed = Some([4; 32]),
            |row| row.who.push(' '),
            |row| row.about.clear(),
            |row| row.about.insert_str(0, &row.who.split_off(3)),
        ];
        for (number, alter) in altered.into_iter().enumerate() {
            let mut row = row.clone();
            alter(&mut row);
            assert_eq!(row.follow(&start), None, "alteration {number}");
        }
        assert_eq!(row.follow(&tail), None);
    }
}
