//! What passes between a key service and those who ask it.
//!
//! ```text
//!  who asks ── ASK: a Question that uses keys or changes something ──> service
//!           ── LOOK: a Question that only looks ────────────────────>
//!           <─ Result<Answer, Refused> ───────────────────────────────
//! ```
//! All of it is postcard, over links that seal it and prove who is at both ends. Keys are in a ring, as `gambeson_keys`
//! writes one for a job.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use gambeson_launch::partitions::{Change, Listed};
pub use gambeson_launch::wire::Secret;

use crate::{Grant, Rights, Row};

/// The name under which a service publishes its endpoint.
pub const ENDPOINT: &str = "keyd";
/// Handler: what uses keys, or changes something.
pub const ASK: u32 = 0;
/// Handler: what only looks.
pub const LOOK: u32 = 1;
/// No question or answer is longer.
pub const LENGTH_MAX: usize = 16 << 20;
/// Rows of the log in one answer at most.
pub const ROWS_MAX: u32 = 1000;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Keys: all that the asker may have in one answer, so that a job asks once.
    Keys {
        /// Of these labels; none: of all.
        labels: Option<Vec<String>>,
        /// How much of them.
        want: Want,
        /// What for.
        purpose: Purpose,
    },
    /// All keys of somebody who has signed for it, sealed to a public key of his: a rank under an identity of its own.
    KeysOf {
        /// As `gambeson_keys::rank` has it.
        request: Vec<u8>,
    },
    /// Where was a file last?
    Anchor {
        /// The file.
        file: [u8; 16],
    },
    /// A file is there now.
    SetAnchor {
        /// The file.
        file: [u8; 16],
        /// Its labels.
        labels: Vec<String>,
        /// How often it was opened for writing.
        generation: u64,
        /// The root of its tree.
        root: [u8; 32],
        /// Whether it was put back on purpose.
        back: bool,
    },
    /// Makes a label.
    Create {
        /// Its name.
        label: String,
        /// Until when.
        expires: Option<u64>,
    },
    /// Makes a new version of a label.
    Rotate {
        /// Its name.
        label: String,
        /// Until when.
        expires: Option<u64>,
    },
    /// Sets until when versions are given.
    Expire {
        /// The label.
        label: String,
        /// Which; none: all.
        version: Option<u32>,
        /// Until when.
        expires: Option<u64>,
    },
    /// Removes a label.
    Delete {
        /// Its name.
        label: String,
    },
    /// Grants rights to a role, in the place of those that it has.
    Grant {
        /// To which label.
        label: String,
        /// To whom, which, and until when.
        grant: Grant,
    },
    /// Takes rights away from all of these roles, or from none.
    Revoke {
        /// To which label.
        label: String,
        /// Whose.
        who: Vec<String>,
    },
    /// What would taking in these labels do?
    Compare {
        /// A ring.
        ring: Secret,
    },
    /// Takes labels in.
    Import {
        /// A ring.
        ring: Secret,
        /// The labels that are to be taken, each with the effect that was found for it.
        agreed: Vec<(String, u8)>,
    },
    /// Which labels are there?
    Labels {
        /// These; none: all that the asker may see.
        labels: Option<Vec<String>>,
    },
    /// Rows of the log.
    Log {
        /// Of one label; none: all, which officers alone see.
        label: Option<String>,
        /// The first row; of one label, the row before which to begin, backwards.
        from: u64,
        /// How many at most.
        limit: u32,
    },
    /// Is the log, and all else, as it was written?
    Verify {
        /// What the log must go through.
        since: Option<String>,
    },
    /// Which service is it, and how is it?
    Status,
    /// Rows that a standby has written aside, and its primary has not got yet.
    Aside {
        /// Of one label; none: all, which officers alone see.
        label: Option<String>,
    },
    /// Changes a partition.
    Partition {
        /// Which.
        name: String,
        /// How.
        change: Change,
    },
    /// Takes partitions in that were elsewhere.
    TakePartitions {
        /// Names, and records with secrets and epochs.
        records: Vec<(String, Secret)>,
    },
    /// Which partitions are there?
    Partitions,
    /// Keys of labels by their names, each as far as the asker may: somebody uses them.
    KeysByName {
        /// Which.
        wanted: Vec<Wanted>,
        /// What for.
        purpose: Purpose,
    },
}

/// A label that somebody uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its name.
    pub label: String,
    /// Which version; none: the newest.
    pub version: Option<u32>,
    /// How much of its keys.
    pub want: Want,
}

/// How much of a label's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// For reading.
    Read,
    /// For writing, or nothing.
    Write,
    /// As much as the asker may.
    Most,
}

/// What keys are for, as who asks says: it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A command's own use.
    Use,
    /// A job of `gambeson run`.
    Job([u8; 16]),
    /// An export under a passphrase.
    Export,
    /// An export for the owner of a public key, in hexadecimal.
    ExportTo(String),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// A ring.
    Keys(Secret),
    /// A ring that is sealed to who is to have it.
    Sealed(Vec<u8>),
    /// Where a file was last.
    Anchor(Option<(u64, [u8; 32])>),
    /// The number of a new version.
    Version(u32),
    /// What taking labels in would do.
    Effects(Vec<(String, u8)>),
    /// Labels without keys.
    Labels(Vec<LabelState>),
    /// Rows of the log, and what it ends with.
    Log(Vec<Row>, String),
    /// All is as it was written.
    Verified(Verification),
    /// How the service is.
    Status(Status),
    /// The number of the epoch that began, if one did.
    Epoch(Option<u32>),
    /// Partitions without secrets.
    Partitions {
        /// All.
        partitions: Vec<Listed>,
        /// The host that answers.
        host: String,
        /// The hash of its key, by which other sites know it.
        key: String,
    },
    /// The grants that remain, for those roles whose rights were taken away.
    Remaining(Vec<(String, Vec<Grant>)>),
    /// A ring of what was given by name.
    KeysByName {
        /// The ring.
        ring: Secret,
        /// Labels that were not given, or a version of one alone; and why.
        refused: Vec<(String, Option<u32>, String)>,
    },
}

/// A label as those see it who may know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelState {
    /// Its name.
    pub name: String,
    /// From the oldest on.
    pub versions: Vec<VersionState>,
    /// What the asker may.
    pub rights: Rights,
    /// Until when, if that ends.
    pub until: Option<u64>,
    /// All grants, for who administers the label and for officers.
    pub grants: Option<Vec<Grant>>,
}

/// A version without its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionState {
    /// Counted from 1.
    pub number: u32,
    /// When its keys were drawn, in seconds since 1970.
    pub created: u64,
    /// Until when it is given.
    pub expires: Option<u64>,
    /// What verifies what its writers sign.
    pub verifying_key: [u8; 32],
    /// Whether it has a signing key.
    pub may_write: bool,
}

/// What a verification found in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// What the log ends with.
    pub tail: String,
    /// How many labels there are.
    pub labels: u64,
    /// How many files have an anchor.
    pub files: u64,
    /// The time of the last row.
    pub last: Option<u64>,
}

/// How a service is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Of Gambeson.
    pub version: String,
    /// Since when it serves, in seconds since 1970.
    pub since: u64,
    /// Whether it follows another, and changes nothing.
    pub standby: bool,
    /// What the log ends with, for officers and on the host itself.
    pub tail: Option<String>,
    /// How many labels there are, for those, too.
    pub labels: Option<u64>,
}

/// Why something is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// What of it programs go by.
    pub kind: Kind,
    /// For people.
    pub sentence: String,
}

/// What programs go by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The asker may not, or there is nothing of the kind that he may know of.
    NotGranted,
    /// The question makes no sense, as a name that is none, or one that is taken.
    Senseless,
    /// A later generation of the file is recorded.
    OlderAnchor {
        /// Which.
        held: u64,
    },
    /// What is there is not what was written.
    Distrusted,
    /// The service follows another, which makes changes.
    Standby {
        /// Which, if that is known.
        primary: Option<String>,
    },
    /// The service cannot, now.
    Unavailable,
    /// It is not to be, whoever asks.
    Declined,
}

/// As bytes, in one allocation: a vector that grows leaves copies of keys behind.
///
/// # Panics
/// Never: everything here can be encoded.
pub fn encode<T: Serialize>(message: &T) -> Zeroizing<Vec<u8>> {
    let length = postcard::experimental::serialized_size(message).expect("plain data has a size");
    let mut bytes = Zeroizing::new(vec![0; length]);
    let written = postcard::to_slice(message, &mut bytes).expect("plain data has an encoding").len();
    assert_eq!(written, length, "the size of an encoding is known before");
    bytes
}

/// From bytes, all of them.
///
/// # Errors
/// A sentence.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err("the message is none of this version of Gambeson; install the same one on all hosts".to_owned()),
    }
}
