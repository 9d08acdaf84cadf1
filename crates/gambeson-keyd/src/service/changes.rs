//! Labels made, rotated, granted, revoked, taken in and removed.

use gambeson_keys::{Effect, KeyError, Ring};
use gambeson_site::directory::now;

use super::desk::refuse;
use crate::access::{self, Refusal, VERSIONS_MAX};
use crate::audit::events;
use crate::database::Transaction;
use crate::rules::check_role;
use crate::wire::Answer;
use crate::{Error, Event, Grant, LabelRecord, Right, Rights, Who};

/// What sentences of labels call this service.
const HERE: &str = "of this service";

pub(super) fn create(
    change: &mut Transaction<'_>,
    who: &Who,
    may: bool,
    label: &str,
    expires: Option<u64>,
) -> Result<Answer, Error> {
    may_create(change, who, may, label)?;
    let record = LabelRecord::create(label, expires, who)?;
    let event = Event::new(events::CREATE, who).label(label).about("version", 1);
    change.put_label(&record, &with_end(event, expires))?;
    Ok(Answer::Done)
}

/// Whether somebody may make this label, which is not there yet.
fn may_create(change: &mut Transaction<'_>, who: &Who, may: bool, label: &str) -> Result<(), Error> {
    if !may {
        let answer =
            format!("{} may not make labels there; the service's administrator can allow it in keyd.toml", name(who));
        return Err(refuse(change, who, "create", Some(label), "keyd.toml does not let them", answer));
    }
    if change.label(label)?.is_some() {
        let error = KeyError::LabelExists { store: HERE.to_owned(), label: label.to_owned() };
        change.refuse(Event::refusal(who, "create", "the name is taken").label(label));
        return Err(error.into());
    }
    Ok(())
}

pub(super) fn rotate(
    change: &mut Transaction<'_>,
    who: &Who,
    label: &str,
    expires: Option<u64>,
) -> Result<Answer, Error> {
    let mut record = administered(change, who, label, "rotate")?;
    let version = record.rotate(expires)?;
    let event = Event::new(events::ROTATE, who).label(label).about("version", version);
    change.put_label(&record, &with_end(event, expires))?;
    Ok(Answer::Version(version))
}

/// `officer`: he may end lifetimes, of labels that he does not administer, too, and not extend them.
pub(super) fn expire(
    change: &mut Transaction<'_>,
    who: &Who,
    officer: bool,
    label: &str,
    (version, expires): (Option<u32>, Option<u64>),
) -> Result<Answer, Error> {
    let ends = |held: &gambeson_keys::Version| {
        version.is_some_and(|number| number != held.number)
            || expires.is_some_and(|end| held.expires.is_none_or(|held| end <= held))
    };
    let of_officer = officer.then(|| change.label(label)).transpose()?.flatten();
    let mut record = match of_officer {
        Some(record) if record.entry.versions().iter().all(ends) => record,
        Some(record) if access::decide(label, Some(&record), who, Right::Administer, now()).is_err() => {
            let answer = format!(
                "as an officer {} ends lifetimes and revokes grants, and gives nothing; who administers label \"{label}\" can \
                 extend it",
                name(who)
            );
            return Err(refuse(change, who, "expire", Some(label), "an officer does not extend lifetimes", answer));
        }
        _ => administered(change, who, label, "expire")?,
    };
    record.expire(version, expires)?;
    let event = Event::new(events::EXPIRE, who).label(label).about("version", version);
    change.put_label(&record, &with_end(event, expires))?;
    Ok(Answer::Done)
}

pub(super) fn delete(change: &mut Transaction<'_>, who: &Who, label: &str) -> Result<Answer, Error> {
    administered(change, who, label, "delete")?;
    change.delete_label(label, &Event::new(events::DELETE, who).label(label))?;
    Ok(Answer::Done)
}

pub(super) fn grant(change: &mut Transaction<'_>, who: &Who, label: &str, grant: Grant) -> Result<Answer, Error> {
    let mut record = administered(change, who, label, "grant")?;
    check_role(&grant.who).map_err(|why| Error::Senseless { why })?;
    if grant.rights == Rights::default() {
        return Err(Error::Senseless { why: "a grant is of some right: --read, --write or --administer".to_owned() });
    }
    let event = Event::new(events::GRANT, who).label(label).about("to", grant.who.as_str());
    let event = with_end(event.about("rights", rights(grant.rights)), grant.until);
    record.grant(grant);
    still_administered(&record, label)?;
    change.put_label(&record, &event)?;
    Ok(Answer::Done)
}

/// Has somebody administer a label, by what is said on the service's own host: whoever did so may have left. What else he may
/// stays, if that has no end; what he may read or write is not for here.
///
/// # Errors
/// When there is no such label, or that is nobody.
pub(crate) fn administer(change: &mut Transaction<'_>, by: &Who, label: &str, whom: &str) -> Result<Rights, Error> {
    check_role(whom).map_err(|why| Error::Senseless { why })?;
    if whom.ends_with('*') {
        return Err(Error::Senseless {
            why: format!("{whom} is not one; name who is to administer label \"{label}\""),
        });
    }
    let Some(mut record) = change.label(label)? else {
        return Err(Error::Senseless {
            why: format!("there is no label \"{label}\"; `gambeson key list` of an officer lists all"),
        });
    };
    let held = record.grants.iter().find(|grant| grant.who == whom && grant.until.is_none());
    let given = held.map_or_else(Rights::default, |grant| grant.rights);
    let given = given.or(Rights { administer: true, ..Rights::default() });
    let event = Event::new(events::GRANT, by).label(label).about("to", whom).about("rights", rights(given));
    record.grant(Grant::new(whom, given, None)?);
    change.put_label(&record, &event)?;
    Ok(given)
}

/// From all of these or from none. `officer`: he may, of labels that he does not administer, too.
pub(super) fn revoke(
    change: &mut Transaction<'_>,
    who: &Who,
    officer: bool,
    label: &str,
    whose: &[String],
) -> Result<Answer, Error> {
    let of_officer = officer.then(|| change.label(label)).transpose()?.flatten();
    let mut record = match of_officer {
        Some(record) => record,
        None => administered(change, who, label, "revoke")?,
    };
    let mut revoked: Vec<Grant> = Vec::new();
    for role in whose {
        if revoked.iter().any(|grant| grant.who == *role) {
            continue;
        }
        let Some(grant) = record.revoke(role) else {
            let others = if whose.len() > 1 { ", so nobody's was taken away" } else { "" };
            let why = format!(
                "{role} has no grant to label \"{label}\"{others}; `gambeson key show {label}` lists those there are"
            );
            return Err(Error::Senseless { why });
        };
        revoked.push(grant);
    }
    still_administered(&record, label)?;
    for grant in &revoked {
        let event = Event::new(events::REVOKE, who).label(label).about("from", grant.who.as_str());
        change.put_label(&record, &event.about("rights", rights(grant.rights)))?;
    }
    let now = now();
    let remain = |role: &str| {
        let of_role = |grant: &&Grant| includes(&grant.who, role) || includes(role, &grant.who);
        let in_force = record.grants.iter().filter(|grant| !grant.is_over(now));
        in_force.filter(of_role).cloned().collect()
    };
    Ok(Answer::Remaining(revoked.iter().map(|grant| (grant.who.clone(), remain(&grant.who))).collect()))
}

/// What taking in another ring's labels would do here, or which of them somebody may not administer.
pub(super) fn compare(
    held: impl Fn(&str) -> Result<Option<LabelRecord>, Error>,
    who: &Who,
    ring: &[u8],
) -> Result<Compared, Error> {
    let given = Ring::carried("what is to be imported", ring)?;
    let mut here = Vec::new();
    for entry in given.labels() {
        let Some(record) = held(&entry.name)? else { continue };
        if let Err(refusal) = access::decide(&entry.name, Some(&record), who, Right::Administer, now()) {
            return Ok(Err((entry.name.clone(), refusal)));
        }
        here.push(record.entry);
    }
    let effects = Ring::new(HERE.to_owned(), here).compare(&given);
    Ok(Ok(effects.into_iter().map(|(label, effect)| (label, number_of(effect))).collect()))
}

pub(super) fn import(
    change: &mut Transaction<'_>,
    who: &Who,
    may: bool,
    ring: &[u8],
    agreed: &[(String, u8)],
) -> Result<Answer, Error> {
    let given = Ring::carried("what is to be imported", ring)?;
    if let Some(entry) = given.labels().iter().find(|entry| entry.versions().len() > VERSIONS_MAX) {
        return Err(Error::Full { label: entry.name.clone() });
    }
    let mut wanted = Vec::new();
    let mut records = Vec::new();
    for (label, effect) in agreed {
        let effect = effect_of(*effect)
            .ok_or_else(|| Error::Senseless { why: format!("effect {effect} of an import is none") })?;
        wanted.push((label.clone(), effect));
        records.push(match change.label(label)? {
            None => {
                may_create(change, who, may, label)?;
                None
            }
            Some(_) => Some(administered(change, who, label, "import")?),
        });
    }
    let here: Vec<_> = records.iter().flatten().map(|record| record.entry.clone()).collect();
    let mut merged = Ring::new(HERE.to_owned(), here);
    merged.adopt(&given, &wanted)?;
    for ((label, _), record) in wanted.iter().zip(records) {
        let entry = merged.entry(label)?.clone();
        if entry.versions().len() > VERSIONS_MAX {
            return Err(Error::Full { label: label.clone() });
        }
        let event = Event::new(events::IMPORT, who).label(label).about("version", entry.newest().number);
        let record = match record {
            Some(held) => LabelRecord { entry, ..held },
            // Who brings a label has all rights to it, as who makes one.
            None => LabelRecord::of(entry, who)?,
        };
        change.put_label(&record, &event)?;
    }
    Ok(Answer::Done)
}

/// Whether who has a role has what is granted to another: `user:*` is everybody.
fn includes(granted: &str, role: &str) -> bool {
    crate::rules::covers(&[granted.to_owned()], &[role.to_owned()])
}

/// A label that somebody may administer.
fn administered(change: &mut Transaction<'_>, who: &Who, label: &str, wanted: &str) -> Result<LabelRecord, Error> {
    let record = change.label(label)?;
    match access::decide(label, record.as_ref(), who, Right::Administer, now()) {
        Ok(_) => Ok(record.expect("nobody may administer what is not there")),
        Err(Refusal { answer, reason }) => Err(refuse(change, who, wanted, Some(label), &reason, answer)),
    }
}

/// Refuses to leave a label that nobody could ever grant, rotate or delete again.
fn still_administered(record: &LabelRecord, label: &str) -> Result<(), Error> {
    let lasting = |grant: &Grant| grant.rights.administer && grant.until.is_none();
    if record.grants.iter().any(lasting) {
        return Ok(());
    }
    Err(Error::Senseless {
        why: format!(
            "then nobody could administer label \"{label}\" without end; grant that to somebody first (`gambeson key grant \
             {label} WHO --administer`, or on the service's host `gambeson keyd administer {label} WHO`), or delete the label"
        ),
    })
}

fn with_end(event: Event, end: Option<u64>) -> Event {
    match end {
        Some(end) => event.about("until", end),
        None => event,
    }
}

/// As `read+write`, for the log and for people.
pub(crate) fn rights(rights: Rights) -> String {
    let named = [(rights.read, "read"), (rights.write, "write"), (rights.administer, "administer")];
    named.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect::<Vec<_>>().join("+")
}

/// Who asks, for sentences.
pub(super) fn name(who: &Who) -> &str {
    who.roles.last().unwrap_or(&who.name)
}

/// What becomes of labels, or the one that somebody may not administer.
pub(super) type Compared = Result<Vec<(String, u8)>, (String, Refusal)>;

const EFFECTS: [Effect; 5] = [Effect::Adds, Effect::Extends, Effect::Replaces, Effect::Keeps, Effect::Refuses];

/// The number of an effect, on its way.
#[must_use]
pub(crate) fn number_of(effect: Effect) -> u8 {
    EFFECTS.iter().position(|one| *one == effect).expect("all are there") as u8
}

/// The effect of a number.
#[must_use]
pub(crate) fn effect_of(number: u8) -> Option<Effect> {
    EFFECTS.get(usize::from(number)).copied()
}
