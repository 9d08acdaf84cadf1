//! A database that follows another, and takes its place.
//!
//! A standby has its primary's id, database key and log, row by row. What it gives while it follows it tells in a log of its
//! own, aside: that is handed to the primary, or becomes rows of the log when the standby is promoted.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use gambeson_master::MasterKey;
use gambeson_proto::policy::is_label;
use gambeson_proto::secret::Secret32;
use gambeson_site::directory::now;
use gambeson_site::job::host_name;
use serde_json::Value;

use super::batch::{Batch, SealedRecord};
use super::envelope::Envelope;
use super::file::Place;
use super::rows::Log;
use super::snapshot::{Standing, key};
use super::transaction::ROW_MAX;
use super::verification::{is_legal, makes_sense};
use super::{Database, Role, Transaction};
use crate::access::LABEL;
use crate::audit::{events, sha256};
use crate::{Error, Event, Row, Tail, Who};

/// What a standby begins with, and what its records are sealed by. It goes over an authenticated, encrypted connection to a
/// standby that the site's rules name, and nowhere else.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Which database.
    pub id: [u8; 16],
    /// Its key.
    pub key: Secret32,
}

impl Database {
    /// Makes the empty database of a standby.
    ///
    /// # Errors
    /// As [`Database::create`].
    pub fn create_standby(path: &Path, master: &dyn MasterKey, seed: &Seed) -> Result<Database, Error> {
        let envelope = Envelope { id: seed.id, key: seed.key.clone() };
        Database::make(Place::new(path), envelope, master, Role::Standby)
    }

    /// What a standby of this database begins with.
    pub fn seed(&self) -> Seed {
        let envelope = self.0.shared.envelope();
        Seed { id: envelope.id, key: envelope.key.clone() }
    }

    /// Takes in what goes on from its own tail, and refuses everything else. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`Error::NotNext`]: then nothing of it was taken in.
    pub fn apply(&self, batch: Batch) -> Result<Tail, Error> {
        self.change(move |transaction| transaction.apply(&batch))
    }

    /// Makes a standby the primary, with what it has. A label whose newest keys came before the row that tells of them
    /// keeps them.
    ///
    /// # Errors
    /// When it is the primary already, or cannot be written.
    pub fn promote(&self, who: &Who) -> Result<Tail, Error> {
        self.begin_term(Role::Standby, 0, who)
    }

    /// Begins a term beyond another one and its own, as a primary. `from`: what it is before. A primary does so that it is
    /// right, and another one of the same term is not.
    ///
    /// # Errors
    /// When it is something else, or cannot be written.
    pub fn begin_term(&self, from: Role, beyond: u64, who: &Who) -> Result<Tail, Error> {
        let who = who.clone();
        self.change(move |transaction| transaction.begin_term(from, beyond, &who))
    }

    /// Makes a primary a standby: one that sees that another was promoted, or was restored to be one. `term`: that of the
    /// new primary.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn step_down(&self, term: u64, who: &Who) -> Result<(), Error> {
        let event = Event::new(events::DEMOTE, who).about("term", term);
        self.change(move |transaction| {
            let state = transaction.state_mut();
            (state.role, state.term) = (Role::Standby, state.term.max(term));
            transaction.log(&event)
        })
    }

    /// How many rows a standby wrote for what it gave, and that were not handed on yet.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn asides(&self) -> Result<u64, Error> {
        self.read(|snapshot| snapshot.state().map(|state| state.aside.number - state.given))
    }

    /// Rows that a standby wrote for what it gave, and that were not handed on yet.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn aside(&self, limit: usize) -> Result<Vec<Row>, Error> {
        self.read(|snapshot| {
            let from = snapshot.state()?.given + 1;
            Log::Aside.some(snapshot.connection, from, limit).map_err(snapshot.place.sqlite("reading its log aside"))
        })
    }

    /// Remembers that rows of the log aside were handed on, through a number.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn aside_given(&self, through: u64) -> Result<(), Error> {
        self.change(move |transaction| {
            let state = transaction.state_mut();
            state.given = state.given.max(through.min(state.aside.number));
            Ok(())
        })
    }

    /// Writes rows of a standby's log aside into the log, with the time and place at which they were written. What is
    /// there already, from a time when the answer was lost, is not written twice.
    ///
    /// # Errors
    /// When it cannot be written, or they are no such rows.
    pub fn take_aside(&self, standby: &str, rows: Vec<Row>) -> Result<(), Error> {
        let standby = standby.to_owned();
        self.change(move |transaction| transaction.take_aside(&standby, &rows))
    }
}

impl Transaction<'_> {
    pub(super) fn apply(&mut self, batch: &Batch) -> Result<Tail, Error> {
        let state = *self.state();
        let end = self.envelope.open_end(&batch.end);
        let end = end.ok_or_else(|| self.not_next("is sealed by another database key, so it has to be made anew"))?;
        if state.role != Role::Standby {
            return Err(self.not_next("is for a standby, and it is a primary"));
        }
        if batch.from != state.tail {
            let why = format!(
                "goes on from {}, and its own log ends with {}; if it is asked for again and that stays so, its log went \
                 another way, and it has to be made anew",
                batch.from, state.tail
            );
            return Err(self.not_next(&why));
        }
        if end.term < state.term {
            let why = format!("is of term {}, and it has heard of term {}", end.term, state.term);
            return Err(self.not_next(&why));
        }
        if batch.tail() != Some(end.tail) || !batch.rows.iter().all(makes_sense) {
            return Err(self.not_next("does not hang together"));
        }
        let told = self.told(batch)?;
        let given = self.given(batch, &told, &end.tail)?;
        let before = self.out_of_step(&told)?;
        for row in &batch.rows {
            self.insert(Log::Main, row)?;
        }
        for (record, (kind, name, _)) in &told {
            match given.get(*record) {
                Some(SealedRecord { serial, sealed, .. }) => self.write_record(kind, name, *serial, sealed)?,
                None => self.remove_record(kind, name)?,
            }
        }
        let after = self.out_of_step(&told)?;
        // All others stand as they did: a record that was ahead is so until the row comes that tells of it.
        let state = self.state_mut();
        state.ahead = state.ahead + after.ahead - before.ahead;
        state.missing = state.missing + after.missing - before.missing;
        state.term = end.term;
        Ok(end.tail)
    }

    /// Kind and name of each record that a batch tells of, and the last row that does.
    fn told<'b>(&self, batch: &'b Batch) -> Result<BTreeMap<&'b str, (&'b str, &'b str, &'b Row)>, Error> {
        let told = batch.rows.iter().filter_map(|row| Some((row.record.as_deref()?, row)));
        let told = told.map(|(record, row)| {
            let (kind, name) = record.split_once('/')?;
            Some((record, (kind, name, row)))
        });
        told.collect::<Option<_>>().ok_or_else(|| self.not_next("tells of a record without a kind"))
    }

    /// The records of a batch, if each is as the rows tell or newer.
    fn given<'b>(
        &self,
        batch: &'b Batch,
        told: &BTreeMap<&str, (&str, &str, &Row)>,
        tail: &Tail,
    ) -> Result<HashMap<String, &'b SealedRecord>, Error> {
        let mut given = HashMap::new();
        for record in &batch.records {
            let SealedRecord { kind, name, serial, sealed } = record;
            let Some((_, _, last)) = told.get(key(kind, name).as_str()) else {
                return Err(self.not_next("has a record of which no row of it tells"));
            };
            let as_told = *serial == last.number && last.sealed == Some(sha256(sealed));
            let opened = self.envelope.open_record(kind, name, *serial, sealed);
            let opens = opened.is_some_and(|plain| is_legal(kind, name, &plain));
            let twice = given.insert(key(kind, name), record).is_some();
            if !(as_told || *serial > tail.number) || !opens || twice {
                return Err(self.not_next("has a record that is not as its rows tell"));
            }
        }
        Ok(given)
    }

    /// How many of some records are ahead of the log, or missing.
    fn out_of_step(&self, records: &BTreeMap<&str, (&str, &str, &Row)>) -> Result<OutOfStep, Error> {
        let mut count = OutOfStep::default();
        for (record, (kind, name, _)) in records {
            let (held, told) = self.held_and_told(kind, name)?;
            match Standing::of(held, told, Some(self.state().tail.number)) {
                Some(Standing::Absent | Standing::Current(_)) => {}
                Some(Standing::Ahead(_)) => count.ahead += 1,
                Some(Standing::Missing) => count.missing += 1,
                None => return Err(self.place.altered(format!("record {record}"))),
            }
        }
        Ok(count)
    }

    fn begin_term(&mut self, from: Role, beyond: u64, who: &Who) -> Result<Tail, Error> {
        let before = *self.state();
        if before.role != from {
            let is = if before.role == Role::Primary { "a primary's already" } else { "a standby's by now" };
            return Err(Error::Declined { why: format!("the key database {} is {is}", self.place.name) });
        }
        let loose = self.loose(before.tail.number)?;
        let plain = |(kind, name): (String, String)| {
            let plain = self.record(&kind, &name)?;
            Ok((kind, name, plain))
        };
        let loose: Vec<_> = loose.into_iter().map(plain).collect::<Result<_, Error>>()?;
        let state = self.state_mut();
        let term = before.term.max(beyond) + 1;
        (state.role, state.term, state.ahead, state.missing) = (Role::Primary, term, 0, 0);
        let event = Event::new(events::PROMOTE, who);
        self.log(&event.about("term", term).about("tail", before.tail.to_string()))?;
        for (kind, name, plain) in loose {
            let event = Event::new(events::ADOPT, who).about("kind", kind.as_str()).about("name", name.as_str());
            let event = if kind == LABEL { event.label(&name) } else { event };
            match plain {
                Some(plain) => self.put_record(&kind, &name, &plain, &event)?,
                None => self.append(&event.about("removed", true), Some((key(&kind, &name), None)))?,
            }
        }
        let mut rows = Vec::new();
        let from = before.given + 1;
        let read = Log::Aside.each(self.connection, from, |row| {
            rows.push(row);
            true
        });
        read.map_err(self.place.sqlite("reading its log aside"))?;
        rows.iter().try_for_each(|row| self.copy(&host_name(), row))?;
        self.state_mut().given = before.aside.number;
        Ok(self.state().tail)
    }

    /// The records that are ahead of the log, or missing.
    fn loose(&self, tail: u64) -> Result<Vec<(String, String)>, Error> {
        let ahead = "SELECT kind, name FROM records WHERE serial > ?1";
        // SQLite takes the other columns from the row that has the maximum.
        let missing = "SELECT substr(record, 1, instr(record, '/') - 1), substr(record, instr(record, '/') + 1), max(number), sealed \
                       FROM log INDEXED BY log_records WHERE record IS NOT NULL AND ?1 >= 0 GROUP BY record \
                       HAVING sealed IS NOT NULL AND NOT EXISTS \
                       (SELECT 1 FROM records WHERE kind || '/' || name = record)";
        let read = |sql: &str| -> rusqlite::Result<Vec<(String, String)>> {
            let tail = i64::try_from(tail).unwrap_or(i64::MAX);
            self.connection.prepare(sql)?.query_map([tail], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        let read = || Ok([read(ahead)?, read(missing)?].concat());
        read().map_err(self.place.sqlite("reading its records"))
    }

    /// Takes in what goes on from the rows of a standby's log aside that were taken in before, or all if that is another
    /// log.
    fn take_aside(&mut self, standby: &str, rows: &[Row]) -> Result<(), Error> {
        self.changes()?;
        let taken = self.record(ASIDE, standby)?.and_then(|taken| postcard::from_bytes::<Tail>(&taken).ok());
        let hang_together = rows.windows(2).all(|pair| {
            let before = Tail { number: pair[0].number, hash: pair[0].hash };
            pair[1].follow(&before).is_some()
        });
        if !hang_together {
            return Err(self.not_next(&format!("of the log aside of {standby} does not hang together")));
        }
        let known = |taken: &Tail| rows.iter().position(|row| row.number == taken.number && row.hash == taken.hash);
        if let Some(row) = rows.iter().find(|row| CHANGES.contains(&row.event.as_str())) {
            let why =
                format!("of the log aside of {standby} tells of a change ({}), and standbys make none", row.event);
            return Err(self.not_next(&why));
        }
        let new = &rows[taken.as_ref().and_then(known).map_or(0, |at| at + 1)..];
        let Some(last) = new.last() else { return Ok(()) };
        new.iter().try_for_each(|row| self.copy(standby, row))?;
        let taken = Tail { number: last.number, hash: last.hash };
        let event = Event::new(ASIDE, &Who::service()).about("standby", standby).about("through", taken.number);
        let taken = postcard::to_stdvec(&taken).expect("a number and a hash are written");
        self.put_record(ASIDE, standby, &taken, &event)
    }

    /// Writes a row of a log aside into the log.
    fn copy(&mut self, standby: &str, row: &Row) -> Result<(), Error> {
        let mut about = row.about();
        let from = serde_json::json!({ "standby": standby, "number": row.number, "time": row.time });
        about.insert(ASIDE.into(), from.clone());
        let moved = row.moved(&self.state().tail, now(), Value::Object(about).to_string());
        if moved.size() <= ROW_MAX {
            return self.insert(Log::Main, &moved);
        }
        // Nothing that somebody asked may stand in the way of what is taken in.
        let about = serde_json::json!({ ASIDE: from, "cut": true });
        let label = row.label.clone().filter(|label| is_label(label));
        let short = Row { label, ..row.clone() };
        self.insert(Log::Main, &short.moved(&self.state().tail, now(), about.to_string()))
    }

    fn not_next(&self, why: &str) -> Error {
        Error::NotNext { path: self.place.name.clone(), why: format!("what it was given {why}") }
    }
}

/// Records that do not stand as the log says.
#[derive(Default)]
struct OutOfStep {
    ahead: u64,
    missing: u64,
}

/// What a standby does not do. Rows of these say where files and labels are.
const CHANGES: [&str; 11] = [
    events::ANCHOR,
    events::ANCHOR_BACK,
    events::CREATE,
    events::ROTATE,
    events::EXPIRE,
    events::GRANT,
    events::REVOKE,
    events::DELETE,
    events::IMPORT,
    events::PARTITION_CHANGE,
    events::ADOPT,
];
/// The kind of the record of how far a standby's log aside was taken in, and the event that tells of it.
const ASIDE: &str = "aside";
