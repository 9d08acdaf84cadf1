//! What a standby follows by: rows of the log, and the records that they tell of.

use serde::{Deserialize, Serialize};

use crate::{Row, Tail};

/// A piece of the log, with the records that it tells of as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// What the log ended with before.
    pub from: Tail,
    /// In order.
    pub rows: Vec<Row>,
    /// Records that these rows changed last, sealed.
    pub records: Vec<SealedRecord>,
    /// The tail after them, and the primary's term, sealed under the database key.
    pub tail: Vec<u8>,
}

/// A record as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedRecord {
    /// As `label`, `partition`.
    pub kind: String,
    /// Its name among its kind.
    pub name: String,
    /// The number of the row that tells of it.
    pub serial: u64,
    /// See [`super`].
    pub sealed: Vec<u8>,
}
