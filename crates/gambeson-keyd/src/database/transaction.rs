//! Changes, and the rows that tell of them.

use std::ops::Deref;
use std::sync::Arc;

use gambeson_keys::Anchor;
use gambeson_site::directory::now;

use super::envelope::{Envelope, State};
use super::rows::Log;
use super::snapshot::{GENERATION, ROOT, Standing, key};
use super::{Role, Snapshot};
use crate::access::{LABEL, Right, decide};
use crate::audit::{events, sha256};
use crate::{Error, Event, LabelRecord, Row, Tail, Who};

/// A change that is being made. It sees what it has changed.
#[derive(Debug)]
pub struct Transaction<'c> {
    pub(super) snapshot: Snapshot<'c>,
    refusals: Vec<Event>,
}

/// Whether an anchor may go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Only forward.
    Forward,
    /// Back, too, by who may administer the label.
    Back,
}

impl<'c> Deref for Transaction<'c> {
    type Target = Snapshot<'c>;

    fn deref(&self) -> &Snapshot<'c> {
        &self.snapshot
    }
}

impl<'c> Transaction<'c> {
    /// The snapshot is one that has what will be sealed.
    pub(super) fn new(snapshot: Snapshot<'c>) -> Self {
        Transaction { snapshot, refusals: Vec::new() }
    }

    pub(super) fn state(&self) -> &State {
        self.snapshot.unsealed.as_ref().expect(UNSEALED)
    }

    pub(super) fn state_mut(&mut self) -> &mut State {
        self.snapshot.unsealed.as_mut().expect(UNSEALED)
    }

    /// Writes a label, and the row that says so.
    ///
    /// # Errors
    /// When it cannot be written, or this is a standby.
    pub fn put_label(&mut self, record: &LabelRecord, event: &Event) -> Result<(), Error> {
        self.put_record(LABEL, record.name(), &record.encode(), event)
    }

    /// Removes a label.
    ///
    /// # Errors
    /// When it is not there, or as [`Transaction::put_label`].
    pub fn delete_label(&mut self, name: &str, event: &Event) -> Result<(), Error> {
        self.delete_record(LABEL, name, event)
    }

    /// Writes another record. Kinds are words without a `/`.
    ///
    /// # Errors
    /// As [`Transaction::put_label`].
    pub fn put_record(&mut self, kind: &str, name: &str, bytes: &[u8], event: &Event) -> Result<(), Error> {
        self.changes()?;
        assert!(!kind.is_empty() && !kind.contains('/'), "the log names records by kind and name with a / between");
        let serial = self.state().tail.number + 1;
        let sealed = self.envelope.seal_record(kind, name, serial, bytes);
        let sealed = sealed.map_err(|why| self.place.system("drawing random numbers", &why))?;
        self.write_record(kind, name, serial, &sealed)?;
        self.append(event, Some((key(kind, name), Some(sha256(&sealed)))))
    }

    /// Removes another record.
    ///
    /// # Errors
    /// As [`Transaction::delete_label`].
    pub fn delete_record(&mut self, kind: &str, name: &str, event: &Event) -> Result<(), Error> {
        self.changes()?;
        match self.standing(kind, name)? {
            Standing::Current(_) => {}
            _ => return Err(Error::NoRecord { kind: kind.to_owned(), name: name.to_owned() }),
        }
        self.remove_record(kind, name)?;
        self.append(event, Some((key(kind, name), None)))
    }

    /// Writes a row. A standby writes it aside.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn log(&mut self, event: &Event) -> Result<(), Error> {
        self.append(event, None)
    }

    /// Notes a refusal, whose row stays though the change says no.
    pub fn refuse(&mut self, event: Event) {
        self.refusals.push(event);
    }

    /// Records where a file is now. The first anchor of a file binds it to a label; whoever records one needs the right to
    /// write under that, and who puts one back the right to administer it. Refusals are noted. What is recorded already
    /// needs no second row.
    ///
    /// # Errors
    /// [`Error::OlderAnchor`], [`Error::Refused`], or when it cannot be written.
    pub fn anchor(
        &mut self,
        who: &Who,
        label: Option<&str>,
        file: &[u8; 16],
        anchor: &Anchor,
        direction: Direction,
    ) -> Result<(), Error> {
        self.changes()?;
        let (event, right) = match direction {
            Direction::Forward => (events::ANCHOR, Right::Write),
            Direction::Back => (events::ANCHOR_BACK, Right::Administer),
        };
        let place = |event: Event| {
            let root = data_encoding::HEXLOWER.encode(&anchor.root);
            event.file(file).about(GENERATION, anchor.generation).about(ROOT, root)
        };
        let held = Snapshot::anchor(self, file)?;
        let name = data_encoding::HEXLOWER.encode(file);
        let refusal = |label: &str, reason: &str| place(Event::refusal(who, event, reason).label(label));
        let bound = match (held.as_ref().map(|held| held.label.as_str()), label) {
            (Some(bound), Some(label)) if bound != label => {
                let answer =
                    format!("file {name} is anchored under another label than \"{label}\", and its anchors stay there");
                self.refuse(refusal(label, &format!("its anchors are under label \"{bound}\"")));
                return Err(Error::Refused { answer });
            }
            (Some(bound), _) => bound.to_owned(),
            (None, Some(label)) => label.to_owned(),
            (None, None) => {
                let answer = format!("file {name} has no anchor yet, and the first one says under which label it is");
                self.refuse(refusal("", "the first anchor of a file names no label"));
                return Err(Error::Refused { answer });
            }
        };
        let record = self.label(&bound)?;
        if let Err(refused) = decide(&bound, record.as_ref(), who, right, now()) {
            self.refuse(refusal(&bound, &refused.reason));
            return Err(Error::Refused { answer: refused.answer });
        }
        // From there on nobody could count further.
        let before = held.as_ref().map_or(0, |held| held.anchor.generation);
        if anchor.generation > before.saturating_add(AHEAD_MAX) {
            self.refuse(refusal(&bound, &format!("generation {} is too far from {before}", anchor.generation)));
            let answer = format!("file {name} has been opened {before} times, and not {} times", anchor.generation);
            return Err(Error::Refused { answer });
        }
        match held {
            Some(held) if held.anchor == *anchor => return Ok(()),
            Some(held) if held.anchor.generation > anchor.generation && direction == Direction::Forward => {
                self.refuse(refusal(&bound, &format!("generation {} was recorded", held.anchor.generation)));
                let (held, given) = (held.anchor.generation, anchor.generation);
                return Err(Error::OlderAnchor { file: *file, held, given });
            }
            _ => {}
        }
        self.append(&place(Event::new(event, who).label(&bound)), None)
    }

    /// What is done to the database itself.
    pub(super) fn changes(&self) -> Result<(), Error> {
        match self.state().role {
            Role::Primary => Ok(()),
            Role::Standby => Err(Error::Standby { path: self.place.name.clone() }),
        }
    }

    /// SQLite ends a transaction by itself when the disk is full. What came after that would stay, alone.
    fn is_open(&self) -> Result<(), Error> {
        match self.connection.is_autocommit() {
            false => Ok(()),
            true => Err(self.place.system("writing it", &"SQLite gave up all of the change")),
        }
    }

    pub(super) fn write_record(&self, kind: &str, name: &str, serial: u64, sealed: &[u8]) -> Result<(), Error> {
        self.is_open()?;
        let sql = "INSERT INTO records(kind, name, serial, sealed) VALUES(?1, ?2, ?3, ?4) \
                   ON CONFLICT(kind, name) DO UPDATE SET serial = excluded.serial, sealed = excluded.sealed";
        let serial = i64::try_from(serial).map_err(|why| self.place.system("counting its rows", &why))?;
        let written = self.connection.prepare_cached(sql).and_then(|mut sql| sql.execute((kind, name, serial, sealed)));
        written.map(drop).map_err(self.place.sqlite("writing a record"))
    }

    pub(super) fn remove_record(&self, kind: &str, name: &str) -> Result<(), Error> {
        self.is_open()?;
        let sql = "DELETE FROM records WHERE kind = ?1 AND name = ?2";
        let removed = self.connection.prepare_cached(sql).and_then(|mut sql| sql.execute((kind, name)));
        removed.map(drop).map_err(self.place.sqlite("removing a record"))
    }

    /// The rows of refusals, which a change that says no leaves behind.
    pub(super) fn log_refusals(&mut self) -> Result<(), Error> {
        let refusals = std::mem::take(&mut self.refusals);
        refusals.iter().try_for_each(|event| self.append(event, None))
    }

    pub(super) fn seal_with(&mut self, envelope: Arc<Envelope>) {
        self.snapshot.envelope = envelope;
    }

    pub(super) fn append(&mut self, event: &Event, record: Option<(String, Option<[u8; 32]>)>) -> Result<(), Error> {
        let (log, tail) = match self.state().role {
            Role::Primary => (Log::Main, self.state().tail),
            Role::Standby => (Log::Aside, self.state().aside),
        };
        let row = Row::after(&tail, now(), event, record);
        self.insert(log, &row)
    }

    /// Writes a row that was made to follow.
    pub(super) fn insert(&mut self, log: Log, row: &Row) -> Result<(), Error> {
        // What is written aside is copied later, with whose it was and when.
        let most = if matches!(log, Log::Aside) { ROW_MAX - COPIED } else { ROW_MAX };
        if row.size() > most {
            return Err(self.place.system("writing a row of its log", &"it would be longer than a row may be"));
        }
        self.is_open()?;
        log.insert(self.connection, row).map_err(self.place.sqlite("writing its log"))?;
        let tail = Tail { number: row.number, hash: row.hash };
        match log {
            Log::Main => self.state_mut().tail = tail,
            Log::Aside => self.state_mut().aside = tail,
        }
        Ok(())
    }
}

/// More often a file is not opened between two anchors.
const AHEAD_MAX: u64 = 1 << 40;
/// Longer than what anybody has to say, in bytes.
pub(super) const ROW_MAX: usize = 64 << 10;
const COPIED: usize = 2 << 10;
const UNSEALED: &str = "a change knows what will be sealed";
