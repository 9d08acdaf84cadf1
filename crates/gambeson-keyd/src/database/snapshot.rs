//! The database as it is at one moment.

use std::marker::PhantomData;

use gambeson_keys::Anchor;
use zeroize::Zeroizing;

use crate::{Error, LabelRecord, Row, Tail};

/// The database as it is at one moment.
#[derive(Debug)]
pub struct Snapshot<'c>(PhantomData<&'c ()>);

/// Where a file was, as the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnchorRow {
    /// The row of the log.
    pub number: u64,
    /// In seconds since 1970.
    pub time: u64,
    /// The label that the file is bound to.
    pub label: String,
    /// Where it was.
    pub anchor: Anchor,
    /// Whether it was put back on purpose.
    pub back: bool,
    /// The name of who recorded it.
    pub who: String,
}

impl Snapshot<'_> {
    /// A label.
    ///
    /// # Errors
    /// When it cannot be read, or is not as it was written.
    pub fn label(&self, name: &str) -> Result<Option<LabelRecord>, Error> {
        let _ = name;
        unimplemented!()
    }

    /// All labels, in order of their names.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn labels(&self) -> Result<Vec<LabelRecord>, Error> {
        unimplemented!()
    }

    /// Another record.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn record(&self, kind: &str, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let _ = (kind, name);
        unimplemented!()
    }

    /// The names of all records of a kind, in order.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn names(&self, kind: &str) -> Result<Vec<String>, Error> {
        let _ = kind;
        unimplemented!()
    }

    /// Where a file was last.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn anchor(&self, file: &[u8; 16]) -> Result<Option<AnchorRow>, Error> {
        let _ = file;
        unimplemented!()
    }

    /// Where a file was, from the latest on.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn anchors(&self, file: &[u8; 16], limit: usize) -> Result<Vec<AnchorRow>, Error> {
        let _ = (file, limit);
        unimplemented!()
    }

    /// Rows of the log in order, beginning with a number.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn log(&self, from: u64, limit: usize) -> Result<Vec<Row>, Error> {
        let _ = (from, limit);
        unimplemented!()
    }

    /// Rows that tell of a label, from the latest before a number on.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn log_of(&self, label: &str, before: u64, limit: usize) -> Result<Vec<Row>, Error> {
        let _ = (label, before, limit);
        unimplemented!()
    }

    /// What the log ends with.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn tail(&self) -> Result<Tail, Error> {
        unimplemented!()
    }
}
