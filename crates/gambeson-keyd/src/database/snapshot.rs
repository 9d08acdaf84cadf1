//! The database as it is at one moment.
//!
//! A record counts only with the last row of the log that tells of it: that has its serial and the hash of its sealed
//! bytes. So an older one that was put back is not given, though it opens.

use std::sync::Arc;

use gambeson_keys::Anchor;
use rusqlite::{Connection, OptionalExtension};
use zeroize::Zeroizing;

use super::envelope::{Envelope, State};
use super::file::{self, Place};
use super::rows::{self, Log};
use crate::access::LABEL;
use crate::audit::{events, sha256};
use crate::{Error, LabelRecord, Row, Tail};

/// The database as it is at one moment.
#[derive(Debug)]
pub struct Snapshot<'c> {
    pub(super) place: &'c Place,
    pub(super) connection: &'c Connection,
    pub(super) envelope: Arc<Envelope>,
    /// In a change: what will be sealed with it.
    pub(super) unsealed: Option<State>,
}

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

/// A record as the file has it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) serial: u64,
    pub(super) sealed: Vec<u8>,
}

/// What the last row says that tells of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) number: u64,
    /// None: that it was removed.
    pub(super) sealed: Option<[u8; 32]>,
}

/// What record and log say of each other.
#[derive(Debug)]
pub(super) enum Standing {
    /// There is none, and the log knows.
    Absent,
    /// As the log says.
    Current(Held),
    /// Newer than the log of a standby, whose rows are still to come.
    Ahead(Held),
    /// The log of a standby has it, and the row that says that it was removed is still to come.
    Missing,
}

impl Snapshot<'_> {
    /// A label.
    ///
    /// # Errors
    /// When it cannot be read, or is not as it was written.
    pub fn label(&self, name: &str) -> Result<Option<LabelRecord>, Error> {
        let Some(plain) = self.record(LABEL, name)? else { return Ok(None) };
        let label = LabelRecord::decode(&plain).ok().filter(|label| label.name() == name);
        label.map(Some).ok_or_else(|| self.place.altered(format!("label \"{name}\"")))
    }

    /// All labels, in order of their names.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn labels(&self) -> Result<Vec<LabelRecord>, Error> {
        let labels = self.names(LABEL)?.into_iter().map(|name| self.label(&name));
        labels.filter_map(Result::transpose).collect()
    }

    /// Another record.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn record(&self, kind: &str, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        match self.standing(kind, name)? {
            Standing::Absent | Standing::Missing => Ok(None),
            Standing::Current(held) | Standing::Ahead(held) => self.open(kind, name, &held).map(Some),
        }
    }

    /// The names of all records of a kind, in order.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn names(&self, kind: &str) -> Result<Vec<String>, Error> {
        let read = || {
            let sql = "SELECT name FROM records WHERE kind = ?1 ORDER BY name";
            self.connection
                .prepare_cached(sql)?
                .query_map([kind], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(self.place.sqlite("reading the names of its records"))
    }

    /// Where a file was last, as far as the label is still the one that it was bound to: who makes one of the name of a label
    /// that was removed has no say over that one's files.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn anchor(&self, file: &[u8; 16]) -> Result<Option<AnchorRow>, Error> {
        let Some(last) = self.anchors(file, 1)?.pop() else { return Ok(None) };
        let is_there = !matches!(self.standing(LABEL, &last.label)?, Standing::Absent | Standing::Missing);
        let life = if is_there { self.life(&last.label)? } else { 0 };
        Ok(Some(last).filter(|last| last.number >= life))
    }

    /// The number of the row that the label of this name begins with, if there was one of its name before.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn life(&self, label: &str) -> Result<u64, Error> {
        let first = || {
            let removed = "SELECT coalesce(max(number), 0) FROM log INDEXED BY log_records \
                           WHERE record = ?1 AND sealed IS NULL";
            let record = key(LABEL, label);
            let number = |row: &rusqlite::Row<'_>| rows::unsigned(row, 0);
            let removed = self.connection.prepare_cached(removed)?.query_row([&record], number)?;
            let made = "SELECT coalesce(min(number), ?2 + 1) FROM log INDEXED BY log_records \
                        WHERE record = ?1 AND number > ?2";
            let removed = i64::try_from(removed).unwrap_or(i64::MAX - 1);
            self.connection.prepare_cached(made)?.query_row((&record, removed), number)
        };
        first().map_err(self.place.sqlite(READING_LOG))
    }

    /// Where a file was, from the latest on.
    ///
    /// # Errors
    /// As [`Snapshot::label`].
    pub fn anchors(&self, file: &[u8; 16], limit: usize) -> Result<Vec<AnchorRow>, Error> {
        let sql = "SELECT * FROM log INDEXED BY log_anchors \
                   WHERE file = ?1 AND event IN ('anchor', 'anchor-back') ORDER BY number DESC LIMIT ?2";
        let rows = self.query("reading anchors", sql, (file, limit_of(limit)))?;
        let anchors = rows.into_iter().map(|row| {
            let number = row.number;
            AnchorRow::of(&row).ok_or_else(|| self.place.altered(format!("the anchor in row {number} of its log")))
        });
        anchors.collect()
    }

    /// Rows of the log in order, beginning with a number.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn log(&self, from: u64, limit: usize) -> Result<Vec<Row>, Error> {
        Log::Main.some(self.connection, from, limit).map_err(self.place.sqlite(READING_LOG))
    }

    /// Rows that tell of a label, from the latest before a number on.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn log_of(&self, label: &str, before: u64, limit: usize) -> Result<Vec<Row>, Error> {
        let sql = "SELECT * FROM log INDEXED BY log_labels \
                   WHERE label = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3";
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        self.query(READING_LOG, sql, (label, before, limit_of(limit)))
    }

    /// Rows of an event that is neither a get nor an anchor, from the latest before a number on.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn log_by(&self, event: &str, before: u64, limit: usize) -> Result<Vec<Row>, Error> {
        let sql = "SELECT * FROM log INDEXED BY log_events \
                   WHERE event = ?1 AND event NOT IN ('get', 'anchor') AND number < ?2 ORDER BY number DESC LIMIT ?3";
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        self.query(READING_LOG, sql, (event, before, limit_of(limit)))
    }

    /// What the log ends with.
    ///
    /// # Errors
    /// When it cannot be read, or is not what was sealed.
    pub fn tail(&self) -> Result<Tail, Error> {
        Ok(self.state()?.tail)
    }

    pub(super) fn state(&self) -> Result<State, Error> {
        if let Some(state) = self.unsealed {
            return Ok(state);
        }
        let sealed = file::meta(self.connection, file::STATE).map_err(self.place.sqlite("reading its state"))?;
        let state = sealed.and_then(|sealed| self.envelope.open_state(&sealed));
        state.ok_or_else(|| self.place.altered("the sealed end of its log"))
    }

    pub(super) fn open(&self, kind: &str, name: &str, held: &Held) -> Result<Zeroizing<Vec<u8>>, Error> {
        let opened = self.envelope.open_record(kind, name, held.serial, &held.sealed);
        opened.ok_or_else(|| self.place.altered(format!("the {kind} \"{name}\"")))
    }

    /// How a record stands to the log. Only a standby has some that are ahead or missing, and knows how many.
    pub(super) fn standing(&self, kind: &str, name: &str) -> Result<Standing, Error> {
        let (held, told) = self.held_and_told(kind, name)?;
        let standing = match Standing::of(held, told, None) {
            Some(standing) => Some(standing),
            None => {
                let ((held, told), state) = (self.held_and_told(kind, name)?, self.state()?);
                Standing::of(held, told, Some(state.tail.number)).filter(|standing| match standing {
                    Standing::Absent | Standing::Current(_) => true,
                    Standing::Ahead(_) => state.ahead > 0,
                    Standing::Missing => state.missing > 0,
                })
            }
        };
        standing.ok_or_else(|| self.place.altered(format!("the {kind} \"{name}\", which is not what its log says,")))
    }

    /// A record, and what the last row says that tells of it.
    pub(super) fn held_and_told(&self, kind: &str, name: &str) -> Result<(Option<Held>, Option<Told>), Error> {
        let held = || {
            let held = |row: &rusqlite::Row<'_>| Ok(Held { serial: rows::unsigned(row, 0)?, sealed: row.get(1)? });
            let sql = "SELECT serial, sealed FROM records WHERE kind = ?1 AND name = ?2";
            self.connection.prepare_cached(sql)?.query_row((kind, name), held).optional()
        };
        let told = || {
            let told = |row: &rusqlite::Row<'_>| Ok(Told { number: rows::unsigned(row, 0)?, sealed: row.get(1)? });
            let sql = "SELECT number, sealed FROM log INDEXED BY log_records \
                       WHERE record = ?1 ORDER BY number DESC LIMIT 1";
            self.connection.prepare_cached(sql)?.query_row([key(kind, name)], told).optional()
        };
        let read = || Ok((held()?, told()?));
        read().map_err(self.place.sqlite("reading a record"))
    }

    fn query(&self, doing: &str, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<Row>, Error> {
        let read = || {
            self.connection.prepare_cached(sql)?.query_map(parameters, rows::row)?.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(self.place.sqlite(doing))
    }
}

impl Standing {
    /// `follows`: where the log of a standby ends. None: that is no way for them to stand.
    pub(super) fn of(held: Option<Held>, told: Option<Told>, follows: Option<u64>) -> Option<Standing> {
        match (held, told.as_ref().map(|told| told.sealed)) {
            (None, None | Some(None)) => Some(Standing::Absent),
            (Some(held), Some(Some(hash)))
                if told.is_some_and(|told| told.number == held.serial) && sha256(&held.sealed) == hash =>
            {
                Some(Standing::Current(held))
            }
            (None, Some(Some(_))) => follows.map(|_| Standing::Missing),
            (Some(held), _) => follows.filter(|&tail| held.serial > tail).map(|_| Standing::Ahead(held)),
        }
    }
}

impl AnchorRow {
    pub(super) fn of(row: &Row) -> Option<Self> {
        let about = row.about();
        let root = data_encoding::HEXLOWER.decode(about.get(ROOT)?.as_str()?.as_bytes()).ok()?;
        Some(AnchorRow {
            number: row.number,
            time: row.time,
            label: row.label.clone()?,
            anchor: Anchor { generation: about.get(GENERATION)?.as_u64()?, root: root.try_into().ok()? },
            back: row.event == events::ANCHOR_BACK,
            who: row.who()?.name,
        })
    }
}

/// What the log calls a record.
pub(super) fn key(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// What a row about an anchor has.
pub(super) const GENERATION: &str = "generation";
pub(super) const ROOT: &str = "root";
const READING_LOG: &str = "reading its log";
