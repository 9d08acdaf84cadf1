//! Keys of sealed files and journals by label and version, and the anchors by which an old version of a file is noticed.
//!
//! A file names labels, never keys. Who opens it asks a [`Keys`] for what this process's own identity may: to unwrap a
//! data key, to wrap a new one, to sign, to know who signed.
//!
//! ```text
//! open() ──> KeyRing: Keys ──> Ring: labels ──> cipher
//!   │            ├──────────> asked: labels that are not in the ring, by name
//!   │            ├──────────> anchorage ──> anchors: of a folder; or of a key service, which ranks reach through relay
//!   │            └──────────> journal
//!   ├─ Store: a folder ──┐
//!   └─ a job's directory ┴──> format: one form for stores, exports and jobs
//! ```
#![forbid(unsafe_code)]

mod anchorage;
mod anchors;
mod asked;
mod carried;
pub mod cipher;
mod error;
mod export;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod keyring;
mod merge;
mod passphrase;
pub mod rank;
pub mod recipient;
pub mod relay;
mod ring;
mod session;
mod store;

use gambeson_proto::secret::Secret32;

pub use anchorage::{Anchorage, Direction};
pub use asked::{Given, Giver, Wanted};
pub use error::KeyError;
pub use export::{SEALED_TO, read_export, read_export_to, recipient_of, write_export, write_export_to};
pub use format::{COUNT_MAX, Malformed};
pub use journal::{JournalKeys, WrappedKey};
pub use keyring::{KeyRing, OF_JOB, SERVICE, open, open_asking, open_held};
pub use merge::Effect;
pub use passphrase::{Cost, Passphrase, SALT, SHORTEST};
pub use ring::{Entry, Rights, Ring, Version};
pub use store::{Protection, State, Store, forget, named, place, state};

/// What serves keys to one identity. Ranks of one job may have different ones.
///
/// A label is a name in a file and in a policy. Each of its versions has a key that wraps data keys, which readers and
/// writers hold, and a signing key, which writers alone hold. Contexts and messages are the caller's: it binds what it
/// wraps and signs to a file, a region and an epoch.
pub trait Keys: Send + Sync {
    /// Says which versions of labels are to be used, so that somebody who has to be asked for them is asked once.
    fn prepare(&self, _labels: &[(&str, u32)]) {}

    /// Has who gives the keys decide whether this identity may write under a label, where it may not by what is known
    /// here: so he knows who tried to. Why not, if he says that.
    fn refused_writing(&self, _label: &str) -> Option<KeyError> {
        None
    }

    /// The newest version of a label, whether it has expired or not.
    ///
    /// # Errors
    /// When it is not known here.
    fn label(&self, name: &str) -> Result<Label, KeyError>;

    /// The Ed25519 key that tells what writers of this version signed, also when it has expired.
    ///
    /// # Errors
    /// When the label or this version of it is not known here.
    fn verifying_key(&self, label: &str, version: u32) -> Result<[u8; 32], KeyError>;

    /// Wraps a data key; two wrappings of one key differ.
    ///
    /// # Errors
    /// When the version is not known here, may only be read with, or has expired.
    fn wrap(&self, label: &str, version: u32, context: &[u8], key: &Secret32) -> Result<Vec<u8>, KeyError>;

    /// The data key that was wrapped in this context.
    ///
    /// # Errors
    /// When the version is not known here or has expired, or anything else was wrapped, or in another context.
    fn unwrap(&self, label: &str, version: u32, context: &[u8], wrapped: &[u8]) -> Result<Secret32, KeyError>;

    /// An Ed25519 signature (RFC 8032) of the label's writers.
    ///
    /// # Errors
    /// As [`Keys::wrap`].
    fn sign(&self, label: &str, version: u32, message: &[u8]) -> Result<[u8; 64], KeyError>;

    /// Where a file was last, if that was ever recorded here.
    ///
    /// # Errors
    /// When the record cannot be read, or is not as it was written.
    fn anchor(&self, file: &[u8; 16]) -> Result<Option<Anchor>, KeyError>;

    /// Records where a file is now, which is sealed under these labels. It is there for good when this returns.
    ///
    /// # Errors
    /// [`KeyError::OlderAnchor`] when a later generation is recorded already; [`KeyError::NotAnchored`] when anchors
    /// cannot be recorded from here at all, which is no fault of the file's.
    fn set_anchor(&self, file: &[u8; 16], labels: &[&str], anchor: &Anchor) -> Result<(), KeyError>;
}

/// What can be said of a label without its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its newest version, counted from 1.
    pub version: u32,
    /// What verifies signatures of that version.
    pub verifying_key: [u8; 32],
    /// Whether that version's signing key is here.
    pub may_write: bool,
    /// When that version stops being served, in seconds since 1970.
    pub expires: Option<u64>,
}

/// Where a file was last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// How often it was opened for writing.
    pub generation: u64,
    /// The root of its tree, when it was last closed or synchronised.
    pub root: [u8; 32],
}
