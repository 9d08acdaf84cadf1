//! Questions that only look: labels, anchors, the log.

use gambeson_site::directory::now;

use super::desk::{Desk, misdirected, refuse};
use super::{changes, partitions};
use crate::access::{self, Refusal};
use crate::rules::covers;
use crate::wire::{Answer, LabelState, Question, ROWS_MAX, Status, Verification, VersionState};
use crate::{Error, LabelRecord, Right, Rights, Tail, Who};

pub(super) fn answer(desk: &Desk, who: &Who, question: Question) -> Result<Answer, Error> {
    let officer = covers(&desk.rules.officers, &who.roles);
    if question != Question::Status {
        desk.duty.gives()?;
    }
    match question {
        Question::Anchor { file } => anchor(desk, who, &file),
        Question::Labels { labels } => labels_of(desk, who, officer, labels).map(Answer::Labels),
        Question::Log { label, from, limit } => log(desk, who, officer, label, from, limit.min(ROWS_MAX)),
        Question::Aside { label } => aside(desk, who, officer, label),
        Question::Verify { since } => verify(desk, who, officer, since.as_deref()),
        Question::Compare { ring } => {
            let compared =
                desk.database.read(|here| changes::compare(|label| here.label(label), who, ring.as_bytes()))?;
            let effects = compared.map_err(|(label, refusal)| refused(desk, who, "import", Some(&label), refusal))?;
            Ok(Answer::Effects(effects))
        }
        Question::Partitions => partitions::list(desk, who, officer),
        Question::Status => status(desk, officer).map(Answer::Status),
        _ => Err(misdirected()),
    }
}

/// Where a file was last, for who may read under its label.
fn anchor(desk: &Desk, who: &Who, file: &[u8; 16]) -> Result<Answer, Error> {
    let found = desk.database.read(|here| {
        let Some(row) = here.anchor(file)? else { return Ok(None) };
        let record = here.label(&row.label)?;
        Ok(Some((access::decide(&row.label, record.as_ref(), who, Right::Read, now()), row)))
    })?;
    match found {
        None => Ok(Answer::Anchor(None)),
        Some((Ok(_), row)) => Ok(Answer::Anchor(Some((row.anchor.generation, row.anchor.root)))),
        Some((Err(refusal), row)) => Err(refused(desk, who, "anchor", Some(&row.label), refusal)),
    }
}

fn labels_of(desk: &Desk, who: &Who, officer: bool, wanted: Option<Vec<String>>) -> Result<Vec<LabelState>, Error> {
    let now = now();
    let records = desk.database.read(|here| match &wanted {
        None => here.labels(),
        Some(names) => {
            let found = names.iter().filter_map(|name| here.label(name).transpose());
            found.collect()
        }
    })?;
    let seen: Vec<_> = records.iter().filter(|record| officer || access::may_see(record, who, now)).collect();
    for name in wanted.iter().flatten() {
        if !seen.iter().any(|record| record.name() == name) {
            let record = records.iter().find(|record| record.name() == name);
            let refusal = access::decide(name, record, who, Right::Read, now).err();
            let refusal = refusal.expect("who may read a label may see it");
            return Err(refused(desk, who, "show", Some(name), refusal));
        }
    }
    Ok(seen.into_iter().map(|record| state(record, who, officer, now)).collect())
}

fn state(record: &LabelRecord, who: &Who, officer: bool, now: u64) -> LabelState {
    let decided = |right| access::decide(record.name(), Some(record), who, right, now);
    let (read, write, administer) = (decided(Right::Read), decided(Right::Write), decided(Right::Administer));
    let until = [&read, &write, &administer].into_iter().filter_map(|one| one.as_ref().ok()).max_by_key(|end| {
        // Without end is the longest.
        end.unwrap_or(u64::MAX)
    });
    let versions = record.entry.versions().iter().map(|version| VersionState {
        number: version.number,
        created: version.created,
        expires: version.expires,
        verifying_key: version.verifying_key,
        may_write: version.may_write(),
    });
    LabelState {
        name: record.name().to_owned(),
        versions: versions.collect(),
        rights: Rights { read: read.is_ok(), write: write.is_ok(), administer: administer.is_ok() },
        until: until.copied().flatten(),
        grants: (officer || administer.is_ok()).then(|| record.grants.clone()),
    }
}

/// Rows of the log: all of them for officers, those of a label for who administers it, and not those of another label that
/// had its name before.
fn log(desk: &Desk, who: &Who, officer: bool, label: Option<String>, from: u64, limit: u32) -> Result<Answer, Error> {
    may_audit(desk, who, officer, label.as_deref())?;
    let (rows, tail) = desk.database.read(|here| {
        let rows = match &label {
            None => here.log(from, limit as usize)?,
            Some(label) => {
                let life = if officer { 0 } else { here.life(label)? };
                let mut rows = here.log_of(label, from, limit as usize)?;
                rows.retain(|row| row.number >= life);
                rows
            }
        };
        Ok((rows, here.tail()?))
    })?;
    Ok(Answer::Log(rows, tail.to_string()))
}

/// What a standby gave, and has not handed on: the latest of it.
fn aside(desk: &Desk, who: &Who, officer: bool, label: Option<String>) -> Result<Answer, Error> {
    may_audit(desk, who, officer, label.as_deref())?;
    let mut rows = desk.database.aside(usize::MAX)?;
    rows.retain(|row| label.is_none() || row.label == label);
    if let Some(label) = label.filter(|_| !officer) {
        // Numbers of these are no numbers of the log.
        let began =
            desk.database.read(|here| Ok(here.log(here.life(&label)?, 1)?.first().map_or(0, |row| row.time)))?;
        rows.retain(|row| row.time >= began);
    }
    let rows = rows.split_off(rows.len().saturating_sub(ROWS_MAX as usize));
    Ok(Answer::Log(rows, desk.database.tail().to_string()))
}

fn may_audit(desk: &Desk, who: &Who, officer: bool, label: Option<&str>) -> Result<(), Error> {
    if !officer {
        let Some(label) = label else {
            let answer = format!(
                "the whole log is for officers, and keyd.toml does not name {} among them; `gambeson key audit LABEL` shows \
                 that of a label which you administer",
                changes::name(who)
            );
            let refusal = Refusal { answer, reason: "no officer".to_owned() };
            return Err(refused(desk, who, "audit", None, refusal));
        };
        let record = desk.database.read(|here| here.label(label))?;
        if let Err(refusal) = access::decide(label, record.as_ref(), who, Right::Administer, now()) {
            return Err(refused(desk, who, "audit", Some(label), refusal));
        }
    }
    Ok(())
}

fn verify(desk: &Desk, who: &Who, officer: bool, since: Option<&str>) -> Result<Answer, Error> {
    if !officer {
        let answer =
            format!("the log is verified for officers, and keyd.toml does not name {} among them", changes::name(who));
        let refusal = Refusal { answer, reason: "no officer".to_owned() };
        return Err(refused(desk, who, "verify", None, refusal));
    }
    let since = since.map(str::parse::<Tail>).transpose().map_err(|why| Error::Senseless { why })?;
    let found = desk.database.verify(since.as_ref())?;
    let (tail, last) = (found.tail.to_string(), found.last);
    Ok(Answer::Verified(Verification { tail, labels: found.labels, files: found.files, last }))
}

fn status(desk: &Desk, officer: bool) -> Result<Status, Error> {
    let (role, _) = desk.database.role();
    let counted = |counts: bool| {
        counts
            .then(|| desk.database.read(|here| Ok((here.tail()?.to_string(), here.labels()?.len() as u64))))
            .transpose()
    };
    let (tail, labels) = counted(officer)?.unzip();
    Ok(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since: desk.since(),
        standby: role == crate::database::Role::Standby,
        tail,
        labels,
    })
}

/// Says no to who looks, and leaves the true reason in the log.
fn refused(desk: &Desk, who: &Who, wanted: &'static str, label: Option<&str>, refusal: Refusal) -> Error {
    let Refusal { answer, reason } = refusal;
    let (who, label) = (who.clone(), label.map(str::to_owned));
    let told = answer.clone();
    let noted = desk.database.change(move |change| -> Result<(), Error> {
        Err(refuse(change, &who, wanted, label.as_deref(), &reason, told))
    });
    match noted {
        Err(Error::Refused { .. }) | Ok(()) => Error::Refused { answer },
        // What cannot be logged is not answered either, but for what went wrong.
        Err(other) => other,
    }
}
