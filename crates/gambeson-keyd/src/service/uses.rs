//! Keys given, and anchors recorded.

use gambeson_keys::{Anchor, Entry, Rights, Ring};
use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use serde_json::Value;

use super::bounds::LABELS_MAX;
use super::desk::refuse;
use crate::access::{self, Refusal};
use crate::audit::events;
use crate::database::{Direction, Snapshot, Transaction};
use crate::wire::{Answer, Purpose, Secret, Want, Wanted};
use crate::{Error, Event, LabelRecord, Right, Who};

/// Keys of some labels, or of all that somebody may have: a row of the log for each.
pub(super) fn keys(
    change: &mut Transaction<'_>,
    who: &Who,
    labels: Option<Vec<String>>,
    want: Want,
    purpose: &Purpose,
) -> Result<Answer, Error> {
    let mut given = Vec::new();
    match labels {
        Some(names) => {
            for name in names {
                let record = change.label(&name)?;
                let entry = keys_of(&name, record.as_ref(), who, want);
                let entry = entry.map_err(|Refusal { answer, reason }| {
                    refuse(change, who, wanted_of(want), Some(&name), &reason, answer)
                })?;
                given.push(entry);
            }
        }
        None => {
            let mut records = change.labels()?;
            // Whoever grants labels to everybody takes nobody's own from him.
            records.sort_by_key(|record| !record.names(who));
            let entries = records.iter().filter_map(|record| keys_of(record.name(), Some(record), who, want).ok());
            given.extend(entries.take(LABELS_MAX));
        }
    }
    for entry in &given {
        change.log(&row(who, entry, purpose))?;
    }
    Ok(Answer::Keys(Secret::from(Ring::new(String::new(), given).carry().to_vec())))
}

/// Keys of labels by their names: a row of the log for each that is given, and for each that is refused.
pub(super) fn keys_by_name(
    change: &mut Transaction<'_>,
    who: &Who,
    wanted: Vec<Wanted>,
    purpose: &Purpose,
) -> Result<Answer, Error> {
    let (mut given, mut refused) = (Vec::<Entry>::new(), Vec::<(String, Option<u32>, String)>::new());
    for Wanted { label, version, want } in wanted {
        // One that is wanted in several versions is opened and copied once.
        let has = |entry: &Entry| version.is_none_or(|wanted| entry.versions().iter().any(|one| one.number == wanted));
        let serves = |entry: &Entry| want != Want::Write || entry.newest().may_write();
        if given.iter().any(|entry| entry.name == label && has(entry) && serves(entry)) {
            continue;
        }
        let record = change.label(&label)?;
        let entry = keys_of(&label, record.as_ref(), who, want).map_err(|refusal| (None, refusal)).and_then(|entry| {
            match version.filter(|&wanted| entry.versions().iter().all(|one| one.number != wanted)) {
                Some(missing) => Err((version, not_that_version(record.as_ref(), &label, missing))),
                None => Ok(entry),
            }
        });
        let (version, Refusal { answer, reason }) = match entry {
            Ok(entry) => {
                given.push(entry);
                continue;
            }
            Err(refusal) => refusal,
        };
        // One that is wanted in several versions is refused once.
        if refused.iter().all(|(of, which, _)| (of, which) != (&label, &version)) {
            let event = Event::refusal(who, wanted_of(want), &reason).label(&label);
            change.log(&of_purpose(event, purpose))?;
            refused.push((label, version, answer));
        }
    }
    let ring = Ring::new(String::new(), given);
    for entry in ring.labels() {
        change.log(&row(who, entry, purpose))?;
    }
    Ok(Answer::KeysByName { ring: Secret::from(ring.carry().to_vec()), refused })
}

/// Why a version is not among those that are given.
fn not_that_version(record: Option<&LabelRecord>, label: &str, version: u32) -> Refusal {
    let held = record.and_then(|record| record.entry.versions().iter().find(|held| held.number == version));
    match held.and_then(|held| held.expires) {
        Some(since) => {
            let reason = format!("version {version} of label \"{label}\" expired on {}", date(since));
            let remedy = format!("gambeson key expire {label} --version {version} --on never");
            Refusal { answer: format!("{reason}; its administrator can extend it: {remedy}"), reason }
        }
        None => {
            let reason = format!("label \"{label}\" has no version {version} there");
            let answer = format!("{reason}: another label of that name is meant, or it was deleted and made anew");
            Refusal { answer, reason }
        }
    }
}

fn wanted_of(want: Want) -> &'static str {
    if want == Want::Write { "write" } else { "read" }
}

fn keys_of(name: &str, record: Option<&LabelRecord>, who: &Who, want: Want) -> Result<Entry, Refusal> {
    let now = now();
    let of = |rights| access::keys_for(name, record, who, rights, now);
    match want {
        Want::Read => of(Rights::Read),
        Want::Write => of(Rights::ReadAndWrite),
        Want::Most => of(Rights::ReadAndWrite).or_else(|_| of(Rights::Read)),
    }
}

fn row(who: &Who, entry: &Entry, purpose: &Purpose) -> Event {
    let may = if entry.newest().may_write() { "write" } else { "read" };
    let event = Event::new(events::GET, who).label(&entry.name).about("version", entry.newest().number);
    of_purpose(event.about("may", may), purpose)
}

fn of_purpose(event: Event, purpose: &Purpose) -> Event {
    let hexadecimal = |bytes: &[u8]| Value::from(data_encoding::HEXLOWER.encode(bytes));
    match purpose {
        Purpose::Use => event,
        // As its directory is called: ranks know no more of it.
        Purpose::Job(job) => event.about("job", hexadecimal(&job[..8])),
        Purpose::Export => event.about("for", "export"),
        Purpose::ExportTo(recipient) => event.about("for", "export").about("recipient", recipient.as_str()),
    }
}

/// Records where a file is now. The first anchor binds it to the first of its labels that its writer may write under.
pub(super) fn set_anchor(
    change: &mut Transaction<'_>,
    who: &Who,
    file: &[u8; 16],
    labels: &[String],
    anchor: &Anchor,
    back: bool,
) -> Result<Answer, Error> {
    let mut label = None;
    if Snapshot::anchor(change, file)?.is_none() {
        for name in labels {
            let record = change.label(name)?;
            if access::decide(name, record.as_ref(), who, Right::Write, now()).is_ok() {
                label = Some(name);
                break;
            }
        }
        label = label.or(labels.first());
    }
    let direction = if back { Direction::Back } else { Direction::Forward };
    change.anchor(who, label.map(String::as_str), file, anchor, direction)?;
    Ok(Answer::Done)
}
