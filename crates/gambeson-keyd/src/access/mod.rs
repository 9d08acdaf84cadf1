//! Who may do what with a label.

mod label;

use std::fmt;

use gambeson_keys::Entry;
use serde::{Deserialize, Serialize};

pub use label::LabelRecord;

/// Who asks, as his certificate and his connection say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// The name of his certificate.
    pub name: String,
    /// Its roles, as `user:ann` or `dns:h1`.
    pub roles: Vec<String>,
    /// The hash of his key, in hexadecimal.
    pub key: String,
    /// The host or address that he asks from.
    pub from: String,
}

/// What one may do with a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Unwrap data keys, and verify signatures.
    Read,
    /// Wrap data keys and sign, which implies to read.
    Write,
    /// Rotate, expire, grant, revoke, delete, and put anchors back, which does not imply to read.
    Administer,
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    /// See [`Right::Read`].
    pub read: bool,
    /// See [`Right::Write`].
    pub write: bool,
    /// See [`Right::Administer`].
    pub administer: bool,
}

/// That who has a role has rights, for some time or for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// A role: `user:ann`, `dns:h1`; `user:*` is everybody who has a role that begins so.
    pub who: String,
    /// What they may.
    pub rights: Rights,
    /// Until when, in seconds since 1970.
    pub until: Option<u64>,
}

/// Why somebody may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What he is told.
    pub answer: String,
    /// The true reason, for the log.
    pub reason: String,
}

/// Whether somebody may do something with a label, and until when at most. `None`: there is no such label.
///
/// # Errors
/// Why not.
pub fn decide(
    label: &str,
    record: Option<&LabelRecord>,
    who: &Who,
    right: Right,
    now: u64,
) -> Result<Option<u64>, Refusal> {
    let _ = (label, record, who, right, now);
    unimplemented!()
}

/// The keys of a label that somebody may have: versions whose lifetime is not over, none longer than his grant, and the
/// signing keys only for who may write and asks for it.
///
/// # Errors
/// Why he gets none.
pub fn keys_for(
    label: &str,
    record: Option<&LabelRecord>,
    who: &Who,
    right: Right,
    now: u64,
) -> Result<Entry, Refusal> {
    let _ = (label, record, who, right, now);
    unimplemented!()
}

/// Whether he may see that a label exists: who has any right to it, or an officer, whom the caller knows.
pub fn may_see(record: &LabelRecord, who: &Who, now: u64) -> bool {
    let _ = (record, who, now);
    unimplemented!()
}

impl Rights {
    /// All of them: what who creates a label has.
    pub const ALL: Rights = Rights { read: true, write: true, administer: true };

    /// Whether the right is among them, or implied by one that is.
    pub fn allow(self, right: Right) -> bool {
        match right {
            Right::Read => self.read || self.write,
            Right::Write => self.write,
            Right::Administer => self.administer,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Administer => "administer",
        })
    }
}
