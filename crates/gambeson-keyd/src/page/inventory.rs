//! The database as the page shows it: read at the moment of the request, and without keys.

use gambeson_site::directory::now;

use crate::database::Role;
use crate::{Database, Error, Grant, LabelRecord, Row, Snapshot, Tail, audit};

pub(super) const DAY: u64 = 86_400;
/// What expires within this time stands on top.
pub(super) const SOON: u64 = 30 * DAY;
/// So many rows of the log are looked through for one page of it at most.
pub(super) const LOOKED_THROUGH_MAX: usize = 20_000;
/// Refusals of a day are counted up to here.
pub(super) const REFUSALS_MAX: usize = 1_000;
/// A label's latest rows among which its last use is looked for.
const ROWS_FOR_USE: usize = 100;

/// A label, as far as officers see it.
#[derive(Debug)]
pub(super) struct Label {
    pub(super) name: String,
    /// Ascending, and not empty.
    pub(super) versions: Vec<Version>,
    pub(super) grants: Vec<Grant>,
    /// The latest row of a use.
    pub(super) used: Option<Row>,
}

#[derive(Debug)]
pub(super) struct Version {
    pub(super) number: u32,
    pub(super) created: u64,
    pub(super) expires: Option<u64>,
    /// Whether its signing key is here.
    pub(super) signs: bool,
}

impl Label {
    fn of(record: &LabelRecord, snapshot: &Snapshot<'_>) -> Result<Self, Error> {
        let versions = record.entry.versions().iter().map(|version| Version {
            number: version.number,
            created: version.created,
            expires: version.expires,
            signs: version.may_write(),
        });
        let rows = snapshot.log_of(record.name(), u64::MAX, ROWS_FOR_USE)?;
        Ok(Label {
            name: record.name().to_owned(),
            versions: versions.collect(),
            grants: record.grants.clone(),
            used: rows.into_iter().find(|row| row.event == audit::events::GET),
        })
    }

    /// The version under which is written now.
    pub(super) fn newest(&self) -> &Version {
        self.versions.last().expect("a label has a version")
    }

    /// When its newest version ends.
    fn ends(&self) -> u64 {
        self.newest().expires.unwrap_or(u64::MAX)
    }

    /// Whether its newest version has expired, or will soon.
    pub(super) fn ends_within(&self, now: u64, time: u64) -> bool {
        self.newest().expires.is_some_and(|end| end < now + time)
    }
}

/// What there is on the first page.
#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) now: u64,
    pub(super) role: (Role, u64),
    pub(super) tail: Tail,
    /// Those that end first, first.
    pub(super) labels: Vec<Label>,
    /// The latest backup.
    pub(super) backup: Option<u64>,
    /// When the log began.
    pub(super) began: Option<u64>,
    /// Refusals of the last day, up to [`REFUSALS_MAX`].
    pub(super) refusals: usize,
    pub(super) partitions: usize,
}

impl Inventory {
    pub(super) fn read(database: &Database) -> Result<Self, Error> {
        let now = now();
        database.read(|snapshot| {
            let mut labels =
                snapshot.labels()?.iter().map(|record| Label::of(record, snapshot)).collect::<Result<Vec<_>, _>>()?;
            // Names stay in order among those that end at the same time, or never.
            labels.sort_by_key(Label::ends);
            let refusals = snapshot.log_by(audit::events::REFUSAL, u64::MAX, REFUSALS_MAX)?;
            Ok(Inventory {
                now,
                role: database.role(),
                tail: snapshot.tail()?,
                labels,
                backup: last_backup(snapshot)?,
                began: snapshot.log(1, 1)?.first().map(|row| row.time),
                refusals: refusals.iter().filter(|row| row.time + DAY > now).count(),
                partitions: snapshot.names(PARTITION)?.len(),
            })
        })
    }
}

/// The kind of records that are partitions.
pub(super) const PARTITION: &str = "partition";

/// One label with its latest rows, if it is there.
pub(super) fn label(database: &Database, name: &str, rows: usize) -> Result<Option<(Label, Vec<Row>)>, Error> {
    database.read(|snapshot| {
        let Some(record) = snapshot.label(name)? else { return Ok(None) };
        Ok(Some((Label::of(&record, snapshot)?, snapshot.log_of(name, u64::MAX, rows)?)))
    })
}

/// When the latest backup was made.
pub(super) fn last_backup(snapshot: &Snapshot<'_>) -> Result<Option<u64>, Error> {
    Ok(snapshot.log_by(audit::events::BACKUP, u64::MAX, 1)?.first().map(|row| row.time))
}

/// What rows of the log are looked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search<'s> {
    pub(super) label: &'s str,
    pub(super) who: &'s str,
    pub(super) event: &'s str,
}

/// Rows, the latest first, and where to go on.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    /// There may be more before this row.
    pub(super) before: Option<u64>,
}

impl Search<'_> {
    /// The latest rows before a number.
    pub(super) fn look(&self, snapshot: &Snapshot<'_>, before: u64, limit: usize) -> Result<Found, Error> {
        let end = snapshot.tail()?.number + 1;
        let mut before = before.min(end);
        let (mut rows, mut looked_through) = (Vec::new(), 0);
        while before > 1 && looked_through < LOOKED_THROUGH_MAX {
            let some = self.some(snapshot, before)?;
            looked_through += some.len();
            // Of one label there may be fewer than were asked for, and then no more.
            let Some(oldest) = some.last().map(|row| row.number) else { return Ok(Found { rows, before: None }) };
            for row in some {
                if rows.len() == limit {
                    return Ok(Found { rows, before: Some(row.number + 1) });
                }
                if self.is(&row) {
                    rows.push(row);
                }
            }
            before = oldest;
        }
        Ok(Found { rows, before: (before > 1).then_some(before) })
    }

    /// Some of the latest rows before a number, the latest first.
    fn some(&self, snapshot: &Snapshot<'_>, before: u64) -> Result<Vec<Row>, Error> {
        if !self.label.is_empty() {
            return snapshot.log_of(self.label, before, AT_ONCE as usize);
        }
        if !self.event.is_empty() && !FREQUENT.contains(&self.event) {
            return snapshot.log_by(self.event, before, AT_ONCE as usize);
        }
        let from = before.saturating_sub(AT_ONCE).max(1);
        let mut rows = snapshot.log(from, (before - from) as usize)?;
        rows.reverse();
        Ok(rows)
    }

    fn is(&self, row: &Row) -> bool {
        let named = |row: &Row| {
            let who = row.who();
            who.is_some_and(|who| {
                // Of a role, also what it says without its kind.
                let is_role =
                    |role: &String| role == self.who || role.split_once(':').is_some_and(|(_, name)| name == self.who);
                who.name == self.who || who.key == self.who || who.roles.iter().any(is_role)
            })
        };
        (self.event.is_empty() || row.event == self.event) && (self.who.is_empty() || named(row))
    }
}

/// Events that are in no index by themselves ([`Snapshot::log_by`]).
const FREQUENT: [&str; 2] = [audit::events::GET, audit::events::ANCHOR];
const AT_ONCE: u64 = 500;
