//! Whether a whole database is as it was written.
//!
//! The log's chain from its first row to the sealed tail, each record against the last row that tells of it, each record
//! opened, and SQLite's own structures: an index that leads to the wrong row would show an older one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::Connection;

use super::envelope::{Envelope, State};
use super::file::Place;
use super::rows::Log;
use super::snapshot::{AnchorRow, Snapshot, Standing, key};
use super::{Role, rows};
use crate::access::LABEL;
use crate::audit::events;
use crate::{Error, LabelRecord, Row, Tail};

/// What a verification of a whole database found in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// What the log ends with.
    pub tail: Tail,
    /// How many labels there are.
    pub labels: u64,
    /// How many other records.
    pub records: u64,
    /// Files that have an anchor.
    pub files: u64,
    /// The time of the last row, in seconds since 1970.
    pub last: Option<u64>,
}

/// What the log says of all that is there.
#[derive(Default)]
struct Told {
    /// The last row that tells of each record, and what it says its hash is.
    records: HashMap<String, (u64, Option<[u8; 32]>)>,
    files: HashSet<[u8; 16]>,
    last: Option<u64>,
}

pub(super) fn whole(
    place: &Place,
    connection: &Connection,
    envelope: &Arc<Envelope>,
    since: Option<&Tail>,
) -> Result<(Verified, State), Error> {
    place.check_schema(connection)?;
    of(&Snapshot { place, connection, envelope: Arc::clone(envelope), unsealed: None }, since)
}

pub(super) fn of(snapshot: &Snapshot<'_>, since: Option<&Tail>) -> Result<(Verified, State), Error> {
    let Snapshot { place, connection, envelope, .. } = snapshot;
    let state = snapshot.state()?;
    sound(place, connection)?;
    let mut told = Told::default();
    let mut passed = since.is_none_or(|since| *since == envelope.log_start());
    let tail = follow(place, connection, Log::Main, envelope.log_start(), |row, tail| {
        passed |= since == Some(tail);
        told.hear(row)
    })?;
    if !passed {
        let since = since.map(ToString::to_string).unwrap_or_default();
        return Err(Error::RolledBack { path: place.name.clone(), since, now: tail.to_string() });
    }
    let aside = follow(place, connection, Log::Aside, envelope.aside_start(), |_, _| true)?;
    if tail != state.tail || aside != state.aside {
        return Err(place.altered(format!("its log, which ends with {tail} and was sealed with {},", state.tail)));
    }
    let (labels, records) = records(snapshot, &state, &mut told)?;
    Ok((Verified { tail, labels, records, files: told.files.len() as u64, last: told.last }, state))
}

/// What SQLite says of its own pages and indices.
fn sound(place: &Place, connection: &Connection) -> Result<(), Error> {
    let check = || connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    match check().map_err(place.sqlite("checking its pages"))?.as_str() {
        "ok" => Ok(()),
        found => Err(place.altered(format!("how SQLite's pages hang together ({found})"))),
    }
}

/// What a log ends with, if each row goes on from that before and `hear` makes sense of it.
fn follow(
    place: &Place,
    connection: &Connection,
    log: Log,
    start: Tail,
    mut hear: impl FnMut(&Row, &Tail) -> bool,
) -> Result<Tail, Error> {
    let (mut tail, mut broken) = (start, false);
    let read = log.each(connection, 0, |row| {
        match row.follow(&tail) {
            Some(next) if hear(&row, &next) => tail = next,
            _ => broken = true,
        }
        !broken
    });
    read.map_err(place.sqlite("reading its log"))?;
    if broken {
        let which = if log == Log::Aside { " aside" } else { "" };
        return Err(place.altered(format!("row {} of its log{which}, or one before it,", tail.number + 1)));
    }
    Ok(tail)
}

/// How many labels and other records there are, each as the log says.
fn records(snapshot: &Snapshot<'_>, state: &State, told: &mut Told) -> Result<(u64, u64), Error> {
    let place = snapshot.place;
    let doing = "reading its records";
    let mut statement = snapshot
        .connection
        .prepare("SELECT kind, name, serial FROM records ORDER BY kind, name")
        .map_err(place.sqlite(doing))?;
    let found = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, rows::unsigned(row, 2)?)));
    let (mut labels, mut others, mut ahead) = (0, 0, 0);
    for found in found.map_err(place.sqlite(doing))? {
        let (kind, name, serial) = found.map_err(place.sqlite(doing))?;
        let altered = || place.altered(format!("the {kind} \"{name}\""));
        let last = told.records.remove(&key(&kind, &name));
        let held = match snapshot.standing(&kind, &name)? {
            // By the table itself, and not by an index alone.
            Standing::Current(held) if last.is_some_and(|(number, _)| number == serial) => held,
            Standing::Ahead(held) if state.role == Role::Standby => {
                ahead += 1;
                held
            }
            _ => return Err(altered()),
        };
        let plain = snapshot.open(&kind, &name, &held)?;
        if !is_legal(&kind, &name, &plain) {
            return Err(altered());
        }
        *(if kind == LABEL { &mut labels } else { &mut others }) += 1;
    }
    let missing = told.records.iter().filter(|(_, (_, hash))| hash.is_some());
    if missing.clone().count() as u64 != state.missing || ahead != state.ahead {
        let name = missing.map(|(name, _)| format!("record {name}, which is gone,")).min();
        return Err(place.altered(name.unwrap_or_else(|| "how far its records are".into())));
    }
    Ok((labels, others))
}

/// Whether a record is what its kind has to be.
pub(super) fn is_legal(kind: &str, name: &str, plain: &[u8]) -> bool {
    kind != LABEL || LabelRecord::decode(plain).is_ok_and(|label| label.name() == name)
}

/// Whether a row is one that other things are decided by, and can be read as such.
pub(super) fn makes_sense(row: &Row) -> bool {
    !is_anchor(row) || AnchorRow::of(row).is_some()
}

fn is_anchor(row: &Row) -> bool {
    [events::ANCHOR, events::ANCHOR_BACK].contains(&row.event.as_str())
}

impl Told {
    /// Whether a row makes sense.
    fn hear(&mut self, row: &Row) -> bool {
        self.last = Some(row.time);
        if let Some(record) = &row.record {
            self.records.insert(record.clone(), (row.number, row.sealed));
        }
        let makes_sense = makes_sense(row);
        self.files.extend(row.file.filter(|_| makes_sense && is_anchor(row)));
        makes_sense
    }
}
