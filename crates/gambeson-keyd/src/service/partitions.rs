//! Partitions, for who may change them: keyd.toml says who. Hosts get their secrets at another endpoint, which
//! `gambeson_launch::partitions` serves.

use gambeson_launch::partitions::Change;

use super::desk::{Desk, refuse};
use crate::database::Transaction;
use crate::partitions;
use crate::rules::covers;
use crate::wire::{Answer, Secret};
use crate::{Error, Who};

pub(super) fn change(
    change: &mut Transaction<'_>,
    who: &Who,
    may: bool,
    name: &str,
    what: &Change,
) -> Result<Answer, Error> {
    admit(change, who, may)?;
    partitions::make(change, who, name, what).map(Answer::Epoch)
}

pub(super) fn take(
    change: &mut Transaction<'_>,
    who: &Who,
    may: bool,
    records: &[(String, Secret)],
) -> Result<Answer, Error> {
    admit(change, who, may)?;
    let records = records.iter().map(|(name, bytes)| (name.as_str(), bytes.as_bytes()));
    partitions::take(change, who, records).map(|()| Answer::Done)
}

fn admit(change: &mut Transaction<'_>, who: &Who, may: bool) -> Result<(), Error> {
    if may {
        return Ok(());
    }
    Err(refuse(change, who, "partition", None, REASON, sentence(who)))
}

pub(super) fn list(desk: &Desk, who: &Who, officer: bool) -> Result<Answer, Error> {
    if !officer && !covers(&desk.rules.partitions, &who.roles) {
        let owned = who.clone();
        return desk
            .database
            .change(move |change| Err(refuse(change, &owned, "partitions", None, REASON, sentence(&owned))));
    }
    let partitions = desk.database.read(partitions::all)?;
    Ok(Answer::Partitions { partitions, host: desk.host.clone(), key: desk.key.clone() })
}

fn sentence(who: &Who) -> String {
    let name = who.principal();
    format!(
        "the partitions of this site are not {name}'s to change or to list; the key service's administrator can allow it in \
         keyd.toml: partitions = [\"{name}\"]"
    )
}

const REASON: &str = "keyd.toml does not let them";
