//! How much may be asked at once. One thread writes for all, and what is refused stands in the log: so nobody makes a row, or
//! work, that is longer than what there is to say.

use std::collections::BTreeSet;

use gambeson_launch::partitions::Change;
use gambeson_proto::policy::{is_label, is_partition};

use crate::wire::{self, Purpose, Question};

/// Decodes a question, if it is one that may be asked.
///
/// # Errors
/// A sentence.
pub(super) fn question(bytes: &[u8]) -> Result<Question, String> {
    // The first byte says which: the others need not be decoded to be refused.
    let brings_keys = bytes.first().is_some_and(|first| BRING_KEYS.contains(first));
    if bytes.len() > QUESTION_MAX && !brings_keys {
        return Err(format!(
            "the question has {} bytes, and {QUESTION_MAX} are enough for any of its kind",
            bytes.len()
        ));
    }
    let question = wire::decode(bytes)?;
    check(&question)?;
    Ok(question)
}

fn check(question: &Question) -> Result<(), String> {
    match question {
        Question::Keys { labels, purpose: what_for, .. } => {
            names(labels.as_deref().unwrap_or_default(), LABELS_MAX).and_then(|()| purpose(what_for))
        }
        Question::KeysByName { wanted, purpose: what_for } => {
            at_most("labels and versions", wanted.len(), WANTED_MAX)?;
            wanted.iter().try_for_each(|wanted| name(&wanted.label)).and_then(|()| purpose(what_for))
        }
        Question::SetAnchor { labels, .. } => names(labels, FILE_LABELS_MAX),
        Question::Create { label, .. }
        | Question::Rotate { label, .. }
        | Question::Expire { label, .. }
        | Question::Delete { label } => name(label),
        Question::Grant { label, grant } => name(label).and_then(|()| short("who it is granted to", &grant.who)),
        Question::Revoke { label, who } => {
            at_most("grants", who.len(), LABELS_MAX)?;
            name(label)?;
            who.iter().try_for_each(|who| short("whom it is revoked from", who))
        }
        Question::Import { agreed, .. } => {
            let labels: Vec<_> = agreed.iter().map(|(label, _)| label.clone()).collect();
            names(&labels, LABELS_MAX)
        }
        Question::Labels { labels } => names(labels.as_deref().unwrap_or_default(), LABELS_MAX),
        Question::Log { label, .. } | Question::Aside { label } => label.as_deref().map_or(Ok(()), name),
        Question::Verify { since } => since.as_deref().map_or(Ok(()), |since| short("the end of a log", since)),
        Question::Partition { name, change } => partition(name).and_then(|()| hosts(change)),
        Question::TakePartitions { records } => {
            at_most("partitions", records.len(), LABELS_MAX)?;
            records.iter().try_for_each(|(name, _)| partition(name))
        }
        Question::KeysOf { .. }
        | Question::Anchor { .. }
        | Question::Compare { .. }
        | Question::Partitions
        | Question::Status => Ok(()),
    }
}

fn purpose(purpose: &Purpose) -> Result<(), String> {
    match purpose {
        Purpose::ExportTo(recipient) => short("the recipient's public key", recipient),
        Purpose::Use | Purpose::Job(_) | Purpose::Export => Ok(()),
    }
}

/// Refuses names that nothing can have, doubles, and more than so many.
fn names(labels: &[String], most: usize) -> Result<(), String> {
    at_most("labels", labels.len(), most)?;
    let mut seen = BTreeSet::new();
    labels.iter().try_for_each(|label| {
        name(label)?;
        if seen.insert(label) { Ok(()) } else { Err(format!("label \"{label}\" is named twice")) }
    })
}

fn name(label: &str) -> Result<(), String> {
    if is_label(label) {
        return Ok(());
    }
    let name = shown(label);
    Err(format!("{name} is no name for a label; use up to 64 letters, digits, '-', '_' or '.', and not \"none\""))
}

fn partition(name: &str) -> Result<(), String> {
    if is_partition(name) {
        return Ok(());
    }
    Err(format!("{} is no name of a partition: up to 64 letters, digits, -, _ and .", shown(name)))
}

fn hosts(change: &Change) -> Result<(), String> {
    let (hosts, words): (&[String], &[&String]) = match change {
        Change::Create { hosts } | Change::Remove { hosts, .. } => (hosts, &[]),
        Change::Add { hosts, site: None } => (hosts, &[]),
        Change::Add { hosts, site: Some(site) } => (hosts, &[site]),
        Change::Follow { source } => (&[], &[&source.address, &source.key]),
        Change::Share { site, key } => (&[], &[site, key]),
        Change::Unshare { site } => (&[], &[site]),
        Change::Rotate => (&[], &[]),
    };
    at_most("hosts", hosts.len(), HOSTS_MAX)?;
    hosts.iter().chain(words.iter().copied()).try_for_each(|word| short("a name in it", word))
}

fn short(what: &str, text: &str) -> Result<(), String> {
    if text.len() <= WORD_MAX {
        return Ok(());
    }
    Err(format!("{what} has {} bytes, and nothing of that kind is longer than {WORD_MAX}", text.len()))
}

fn at_most(what: &str, count: usize, most: usize) -> Result<(), String> {
    if count <= most {
        Ok(())
    } else {
        Err(format!("{count} {what} at once are too many; ask for up to {most} at a time"))
    }
}

/// Enough of a name to know it again.
fn shown(name: &str) -> String {
    let begin: String = name.chars().take(80).collect();
    if begin.len() < name.len() { format!("{begin:?}...") } else { format!("{begin:?}") }
}

/// Labels of one question, and of one job.
pub(super) const LABELS_MAX: usize = 1000;
/// Of one file (docs/file-format.md).
const FILE_LABELS_MAX: usize = gambeson_proto::file::table::LABELS_MAX;
/// Those of a file with many labels, in several versions.
const WANTED_MAX: usize = 4 * FILE_LABELS_MAX;
const HOSTS_MAX: usize = 10_000;
/// Longer than names of people, hosts and keys, in bytes.
const WORD_MAX: usize = 512;
const QUESTION_MAX: usize = 512 << 10;
/// The first bytes of questions that bring keys: Compare, Import and TakePartitions.
const BRING_KEYS: [u8; 3] = [10, 11, 18];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Secret, Want, encode};

    #[test]
    fn what_brings_keys_may_be_long_and_nothing_else() {
        let ring = || Secret::from(&[0; QUESTION_MAX + 1][..]);
        let long = [
            Question::Compare { ring: ring() },
            Question::Import { ring: ring(), agreed: Vec::new() },
            Question::TakePartitions { records: vec![("clinic".into(), ring())] },
        ];
        for allowed in long {
            assert_eq!(question(&encode(&allowed)), Ok(allowed));
        }
        let labels = Some(vec!["a".repeat(64); QUESTION_MAX / 64]);
        let refused = question(&encode(&Question::Labels { labels })).unwrap_err();
        assert!(refused.contains("are enough for any of its kind"), "{refused}");
    }

    #[test]
    fn names_are_names_once_and_not_too_many() {
        let keys = |labels: Vec<String>| {
            question(&encode(&Question::Keys { labels: Some(labels), want: Want::Read, purpose: Purpose::Use }))
        };
        assert!(keys((0..LABELS_MAX).map(|number| format!("label-{number}")).collect()).is_ok());
        let refusals = [
            (keys((0..=LABELS_MAX).map(|number| format!("label-{number}")).collect()), "are too many"),
            (keys(vec!["twice".into(), "twice".into()]), "named twice"),
            (keys(vec!["x".repeat(65_200)]), "is no name for a label"),
            (question(&encode(&Question::Delete { label: "a/b".into() })), "is no name for a label"),
            (question(&encode(&Question::Revoke { label: "a".into(), who: vec!["x".repeat(600)] })), "has 600 bytes"),
            (
                question(&encode(&Question::Partition { name: "x".repeat(65), change: Change::Rotate })),
                "is no name of a partition",
            ),
        ];
        for (refused, why) in refusals {
            let refused = refused.unwrap_err();
            assert!(refused.contains(why) && refused.len() < 200, "{refused}");
        }
    }
}
