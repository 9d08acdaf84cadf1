//! The log: a row for all that was done or refused, chained: who alters a row or takes one out breaks the chain from there
//! on.

use std::fmt;

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
    pub const MASTER: &str = "master";
    pub const RESEAL: &str = "reseal";
    pub const BACKUP: &str = "backup";
    pub const RESTORE: &str = "restore";
    pub const PROMOTE: &str = "promote";
    pub const DEMOTE: &str = "demote";
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

impl Row {
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

/// As `NUMBER:HASH`, which is what is kept elsewhere.
impl fmt::Display for Tail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.number, data_encoding::HEXLOWER.encode(&self.hash))
    }
}

impl std::str::FromStr for Tail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let none = || format!("\"{text}\" is no end of a log; it is NUMBER:HASH, as `gambeson key audit` prints it");
        let (number, hash) = text.split_once(':').ok_or_else(none)?;
        let hash = data_encoding::HEXLOWER.decode(hash.as_bytes()).ok().and_then(|hash| hash.try_into().ok());
        Ok(Tail { number: number.parse().map_err(|_| none())?, hash: hash.ok_or_else(none)? })
    }
}
