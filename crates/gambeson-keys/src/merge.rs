//! What an import does to labels that are here already.
//!
//! Versions of one label belong together when a version of the same number has the same keys in both. Then each side gets
//! what it lacks: versions, the signing key, and the lifetime that was set last. Nothing that is newer here goes.

use crate::KeyError;
use crate::ring::{Entry, Ring, Version};

/// What an import would do to a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is not here yet.
    Adds,
    /// It is here, and gets versions, the right to write, or another lifetime.
    Extends,
    /// It is here with other keys, which would go.
    Replaces,
    /// It is here, and nothing about it would change.
    Keeps,
    /// It is here with other keys, which are newer; they stay.
    Refuses,
}

impl Ring {
    /// What taking another ring's labels in would do, in order of their names.
    pub fn compare(&self, other: &Ring) -> Vec<(String, Effect)> {
        other.labels.iter().map(|entry| (entry.name.clone(), self.effect(entry))).collect()
    }

    /// Takes labels of another ring in, each with the effect that was found for it.
    ///
    /// # Errors
    /// When one is here with other keys that are newer, or the effect has become another; then nothing is taken in.
    pub fn adopt(&mut self, other: &Ring, agreed: &[(String, Effect)]) -> Result<(), KeyError> {
        for (label, effect) in agreed {
            let entry = other.entry(label)?;
            if self.effect(entry) != *effect {
                let why = "the store was changed meanwhile; try again";
                return Err(KeyError::system(&self.store, format!("taking in label \"{label}\""), &why));
            }
            match (effect, self.position(label)) {
                (Effect::Refuses, _) => {
                    return Err(KeyError::Newer { store: self.store.clone(), label: label.clone() });
                }
                (_, Err(at)) => self.labels.insert(at, entry.clone()),
                (Effect::Replaces, Ok(at)) => self.labels[at] = entry.clone(),
                (_, Ok(at)) => self.labels[at] = united(&self.labels[at], entry),
            }
        }
        Ok(())
    }

    fn effect(&self, entry: &Entry) -> Effect {
        let Ok(at) = self.position(&entry.name) else {
            return Effect::Adds;
        };
        let held = &self.labels[at];
        if !belong_together(held, entry) {
            let newer = held.newest().created > entry.newest().created;
            return if newer { Effect::Refuses } else { Effect::Replaces };
        }
        if is_as(held, &united(held, entry)) { Effect::Keeps } else { Effect::Extends }
    }
}

fn belong_together(one: &Entry, other: &Entry) -> bool {
    let mut pairs =
        one.versions.iter().filter_map(|version| Some((version, numbered(other, version.number)?))).peekable();
    pairs.peek().is_some() && pairs.all(|(one, other)| one.is_same(other))
}

fn united(held: &Entry, given: &Entry) -> Entry {
    let mut versions = held.versions.clone();
    for version in &given.versions {
        match versions.binary_search_by_key(&version.number, |held| held.number) {
            Err(at) => versions.insert(at, version.clone()),
            Ok(at) => {
                let held = &mut versions[at];
                // A lifetime that a reader was given says nothing about its owner's.
                if version.changed > held.changed && (version.may_write() || !held.may_write()) {
                    (held.changed, held.expires) = (version.changed, version.expires);
                }
                if held.signing.is_none() {
                    held.signing = version.signing.clone();
                }
            }
        }
    }
    Entry { name: held.name.clone(), versions }
}

/// Whether nothing that counts is different.
fn is_as(one: &Entry, other: &Entry) -> bool {
    let alike = |(one, other): (&Version, &Version)| {
        one.number == other.number && one.expires == other.expires && one.may_write() == other.may_write()
    };
    one.versions.len() == other.versions.len() && one.versions.iter().zip(&other.versions).all(alike)
}

fn numbered(entry: &Entry, number: u32) -> Option<&Version> {
    entry.versions.iter().find(|version| version.number == number)
}
