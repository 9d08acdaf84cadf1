//! What a standby follows by: rows of the log, and the records that they tell of.
//!
//! A batch is a piece of the log as it is at one moment, cut where it is long enough. A record comes with the rows that tell
//! of it. If it was changed again in a row behind the cut it comes as it is by then, ahead of the log: so a standby never
//! has less of it than its log. If it was removed behind the cut it does not come.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::envelope::End;
use super::rows::Log;
use super::snapshot::{Held, Standing};
use super::transaction::ROW_MAX;
use super::{Database, Snapshot};
use crate::{Error, Row, Tail};

/// A piece of the log, with the records that it tells of as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// What the log ended with before.
    pub from: Tail,
    /// In order.
    pub rows: Vec<Row>,
    /// Records that these rows tell of, sealed; one for each at most.
    pub records: Vec<SealedRecord>,
    /// The tail after them, and the primary's term, sealed under the database key.
    pub end: Vec<u8>,
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
    /// Nonce, ciphertext and tag.
    pub sealed: Vec<u8>,
}

impl Batch {
    /// The batch as it goes over an encrypted connection.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("rows and records are written")
    }

    /// The batch in such bytes; none: they are none.
    pub fn decode(bytes: &[u8]) -> Option<Batch> {
        let (batch, rest) = postcard::take_from_bytes::<Batch>(bytes).ok()?;
        let is_short = |row: &Row| row.size() <= ROW_MAX;
        (rest.is_empty() && batch.rows.iter().all(is_short)).then_some(batch)
    }

    /// What the standby's log ends with, if its rows go on from each other.
    pub(super) fn tail(&self) -> Option<Tail> {
        self.rows.iter().try_fold(self.from, |tail, row| row.follow(&tail))
    }
}

impl Database {
    /// What a standby whose log ends with a row needs next, in one moment: at least a row, if there is one, and about as
    /// many bytes as are asked for.
    ///
    /// # Errors
    /// [`Error::NotNext`] when the log does not go that far: then who asks has another history.
    pub fn since(&self, number: u64, max_bytes: usize) -> Result<Batch, Error> {
        self.read(|snapshot| snapshot.since(number, max_bytes))
    }
}

impl Snapshot<'_> {
    fn since(&self, number: u64, max_bytes: usize) -> Result<Batch, Error> {
        let state = self.state()?;
        let from = match self.log(number, 1)?.pop() {
            _ if number == 0 => self.envelope.log_start(),
            Some(row) if row.number == number => Tail { number, hash: row.hash },
            _ => {
                let why = format!(
                    "its log goes to row {number} and that of the primary to row {}; it is of another history, so it has \
                     to be made anew",
                    state.tail.number
                );
                return Err(Error::NotNext { path: self.place.name.clone(), why });
            }
        };
        let mut rows: Vec<Row> = Vec::new();
        let mut told = BTreeSet::new();
        let mut bytes = 0;
        let read = Log::Main.each(self.connection, number + 1, |row| {
            bytes += row.size();
            if let Some(record) = row.record.as_ref().filter(|record| !told.contains(*record)) {
                // What cannot be read says so below.
                bytes += self.size_of(record).unwrap_or(0);
                told.insert(record.clone());
            }
            rows.push(row);
            bytes < max_bytes
        });
        read.map_err(self.place.sqlite("reading its log"))?;
        let mut records = Vec::new();
        for record in told {
            let (kind, name) =
                record.split_once('/').ok_or_else(|| self.place.altered("a record's name in its log"))?;
            if let Standing::Current(held) | Standing::Ahead(held) = self.standing(kind, name)? {
                let Held { serial, sealed } = held;
                records.push(SealedRecord { kind: kind.into(), name: name.into(), serial, sealed });
            }
        }
        let tail = rows.last().map_or(from, |row| Tail { number: row.number, hash: row.hash });
        let end = self.envelope.seal_end(&End { tail, term: state.term });
        let end = end.map_err(|why| self.place.system("drawing random numbers", &why))?;
        Ok(Batch { from, rows, records, end })
    }

    fn size_of(&self, record: &str) -> Option<usize> {
        let sql = "SELECT length(sealed) FROM records WHERE kind = ?1 AND name = ?2";
        let mut statement = self.connection.prepare_cached(sql).ok()?;
        let size: i64 = statement.query_row(record.split_once('/')?, |row| row.get(0)).ok()?;
        usize::try_from(size).ok()
    }
}
