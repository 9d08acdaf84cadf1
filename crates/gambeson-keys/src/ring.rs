//! Labels, their versions, and what each version's keys do.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_proto::policy::is_label;
use gambeson_proto::secret::Secret32;
use gambeson_site::directory::now;

use crate::cipher::{self, draw};
use crate::{KeyError, Label};

/// What a store, an export or a job holds.
#[derive(Clone, Debug)]
pub struct Ring {
    /// What sentences call the store.
    pub(crate) store: String,
    /// In order of their names.
    pub(crate) labels: Vec<Entry>,
}

/// A label.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Ascending and not empty.
    pub(crate) versions: Vec<Version>,
}

/// One version of a label.
#[derive(Clone)]
pub struct Version {
    /// Counted from 1.
    pub number: u32,
    /// When its keys were drawn, in seconds since 1970.
    pub created: u64,
    /// When its lifetime was set last.
    pub changed: u64,
    /// When it stops being served.
    pub expires: Option<u64>,
    /// What verifies what its writers sign.
    pub verifying_key: [u8; 32],
    pub(crate) wrapping: Secret32,
    /// An Ed25519 seed (RFC 8032, section 5.1.5); readers have none.
    pub(crate) signing: Option<Secret32>,
}

/// What whoever gets a label may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Open files.
    Read,
    /// Make and change files, and pass the label on in full.
    ReadAndWrite,
}

impl Ring {
    pub(crate) fn empty(store: String) -> Self {
        Ring { store, labels: Vec::new() }
    }

    /// A ring of some labels; the last of one name stays. `store` is what sentences call where they are from.
    pub fn new(store: String, labels: impl IntoIterator<Item = Entry>) -> Self {
        let mut ring = Ring::empty(store);
        for entry in labels {
            match ring.position(&entry.name) {
                Ok(at) => ring.labels[at] = entry,
                Err(at) => ring.labels.insert(at, entry),
            }
        }
        ring
    }

    /// Its labels, in order of their names.
    pub fn into_labels(self) -> Vec<Entry> {
        self.labels
    }

    /// All labels, in order of their names.
    pub fn labels(&self) -> &[Entry] {
        &self.labels
    }

    /// One label.
    ///
    /// # Errors
    /// When it is not known here.
    pub fn entry(&self, label: &str) -> Result<&Entry, KeyError> {
        let at = self.position(label).map_err(|_| self.no_label(label))?;
        Ok(&self.labels[at])
    }

    /// Makes a label, whose first version is 1.
    ///
    /// # Errors
    /// When it is there already, or its name is none.
    pub fn create(&mut self, label: &str, expires: Option<u64>) -> Result<(), KeyError> {
        if !is_label(label) {
            return Err(KeyError::NoName { label: label.to_owned() });
        }
        let Err(at) = self.position(label) else {
            return Err(KeyError::LabelExists { store: self.store.clone(), label: label.to_owned() });
        };
        let first = self.draw(1, expires)?;
        self.labels.insert(at, Entry { name: label.to_owned(), versions: vec![first] });
        Ok(())
    }

    /// Makes a new version of a label and says which; the old ones stay for what was sealed with them.
    ///
    /// # Errors
    /// When the label is not known here, or its signing key is not here.
    pub fn rotate(&mut self, label: &str, expires: Option<u64>) -> Result<u32, KeyError> {
        let newest = self.entry(label)?.newest();
        if !newest.may_write() {
            return Err(self.may_not_write(label));
        }
        let number = newest.number + 1;
        let version = self.draw(number, expires)?;
        self.entry_mut(label)?.versions.push(version);
        Ok(number)
    }

    /// Sets until when a version is served, or all of them.
    ///
    /// # Errors
    /// When there is none such, or its signing key is not here: then its lifetime is its owner's to set.
    pub fn expire(&mut self, label: &str, version: Option<u32>, expires: Option<u64>) -> Result<(), KeyError> {
        if let Some(number) = version {
            self.version(label, number)?;
        }
        let may_not = self.may_not_write(label);
        let wanted = |held: &&mut Version| version.is_none_or(|number| held.number == number);
        let versions = &mut self.entry_mut(label)?.versions;
        if versions.iter_mut().filter(wanted).any(|held| !held.may_write()) {
            return Err(may_not);
        }
        for held in versions.iter_mut().filter(wanted) {
            (held.expires, held.changed) = (expires, now().max(held.changed + 1));
        }
        Ok(())
    }

    /// Removes a label with all its versions.
    ///
    /// # Errors
    /// When it is not known here.
    pub fn delete(&mut self, label: &str) -> Result<(), KeyError> {
        let at = self.position(label).map_err(|_| self.no_label(label))?;
        self.labels.remove(at);
        Ok(())
    }

    /// A copy of some labels for somebody else. A lifetime that is set here ends earlier or when it did.
    ///
    /// # Errors
    /// When one of them is not known here, or is to be passed on for writing by who may only read.
    pub fn extract(&self, labels: &[String], rights: Rights, expires: Option<u64>) -> Result<Ring, KeyError> {
        let mut chosen = Ring::empty(self.store.clone());
        for label in labels {
            let entry = self.entry(label)?;
            if rights == Rights::ReadAndWrite && !entry.newest().may_write() {
                return Err(self.may_not_write(label));
            }
            let entry = entry.narrowed(rights, expires);
            if let Err(at) = chosen.position(label) {
                chosen.labels.insert(at, entry);
            }
        }
        Ok(chosen)
    }

    pub(crate) fn label(&self, label: &str) -> Result<Label, KeyError> {
        let newest = self.entry(label)?.newest();
        Ok(Label {
            version: newest.number,
            verifying_key: newest.verifying_key,
            may_write: newest.may_write(),
            expires: newest.expires,
        })
    }

    pub(crate) fn version(&self, label: &str, number: u32) -> Result<&Version, KeyError> {
        let found = self.entry(label)?.versions.iter().find(|version| version.number == number);
        found.ok_or_else(|| KeyError::NoVersion { store: self.store.clone(), label: label.to_owned(), version: number })
    }

    pub(crate) fn wrap(&self, label: &str, number: u32, context: &[u8], key: &Secret32) -> Result<Vec<u8>, KeyError> {
        let version = self.in_force(label, number)?;
        if !version.may_write() {
            return Err(self.may_not_write(label));
        }
        cipher::seal(&version.wrapping, context, key.as_bytes()).map_err(|cause| self.no_random_numbers(&cause))
    }

    pub(crate) fn unwrap(
        &self,
        label: &str,
        number: u32,
        context: &[u8],
        wrapped: &[u8],
    ) -> Result<Secret32, KeyError> {
        let version = self.in_force(label, number)?;
        let opened = cipher::open(&version.wrapping, context, wrapped).filter(|opened| opened.len() == 32);
        let opened = opened.ok_or_else(|| KeyError::WrongWrapping {
            store: self.store.clone(),
            label: label.to_owned(),
            version: number,
        })?;
        Ok(Secret32::filled(|key| key.copy_from_slice(&opened)))
    }

    pub(crate) fn sign(&self, label: &str, number: u32, message: &[u8]) -> Result<[u8; 64], KeyError> {
        let seed = self.in_force(label, number)?.signing.as_ref().ok_or_else(|| self.may_not_write(label))?;
        let signature = key_pair(seed).sign(message);
        Ok(signature.as_ref().try_into().expect("Ed25519 signs with 64 bytes"))
    }

    /// A version whose keys may be used now.
    pub(crate) fn in_force(&self, label: &str, number: u32) -> Result<&Version, KeyError> {
        let version = self.version(label, number)?;
        if version.wrapping.is_wiped() {
            return Err(KeyError::Forked { store: self.store.clone() });
        }
        match version.expires {
            Some(since) if since <= now() => {
                Err(KeyError::Expired { store: self.store.clone(), label: label.to_owned(), version: number, since })
            }
            _ => Ok(version),
        }
    }

    fn draw(&self, number: u32, expires: Option<u64>) -> Result<Version, KeyError> {
        let secret = || draw().map_err(|cause| self.no_random_numbers(&cause));
        let (wrapping, seed) = (secret()?, secret()?);
        let verifying_key = key_pair(&seed).public_key().as_ref().try_into().expect("Ed25519 keys have 32 bytes");
        let created = now();
        Ok(Version { number, created, changed: created, expires, verifying_key, wrapping, signing: Some(seed) })
    }

    pub(crate) fn position(&self, label: &str) -> Result<usize, usize> {
        self.labels.binary_search_by(|entry| entry.name.as_str().cmp(label))
    }

    fn entry_mut(&mut self, label: &str) -> Result<&mut Entry, KeyError> {
        match self.position(label) {
            Ok(at) => Ok(&mut self.labels[at]),
            Err(_) => Err(self.no_label(label)),
        }
    }

    fn no_label(&self, label: &str) -> KeyError {
        KeyError::NoLabel { store: self.store.clone(), label: label.to_owned() }
    }

    fn may_not_write(&self, label: &str) -> KeyError {
        KeyError::MayNotWrite { store: self.store.clone(), label: label.to_owned() }
    }

    fn no_random_numbers(&self, cause: &getrandom::Error) -> KeyError {
        KeyError::no_random_numbers(&self.store, cause)
    }
}

impl Entry {
    /// Its versions, from the oldest on.
    pub fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// The version that new files are sealed with.
    pub fn newest(&self) -> &Version {
        self.versions.last().expect("a label has a version")
    }

    /// A copy for somebody else. A lifetime that is set here ends earlier or when it did.
    #[must_use]
    pub fn narrowed(&self, rights: Rights, expires: Option<u64>) -> Entry {
        let mut entry = self.clone();
        for version in &mut entry.versions {
            version.expires = earlier(version.expires, expires);
            version.changed = now().max(version.changed);
            if rights == Rights::Read {
                version.signing = None;
            }
        }
        entry
    }

    /// The same with the versions alone whose lifetime is not over; `None`: it is over for all of them.
    pub fn in_force(mut self, now: u64) -> Option<Entry> {
        self.versions.retain(|version| !version.is_over(now));
        (!self.versions.is_empty()).then_some(self)
    }
}

impl Version {
    /// Whether its signing key is here.
    pub fn may_write(&self) -> bool {
        self.signing.is_some()
    }

    /// Whether its lifetime is over.
    pub fn is_over(&self, now: u64) -> bool {
        self.expires.is_some_and(|since| since <= now)
    }

    /// Whether it is the same version, whoever may do what with it.
    pub(crate) fn is_same(&self, other: &Version) -> bool {
        self.verifying_key == other.verifying_key && self.wrapping == other.wrapping
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Version")
            .field("number", &self.number)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

fn earlier(held: Option<u64>, set: Option<u64>) -> Option<u64> {
    [held, set].into_iter().flatten().min()
}

fn key_pair(seed: &Secret32) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(seed.as_bytes()).expect("32 bytes are a seed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_process_has_no_keys_and_says_so() {
        let mut ring = Ring::empty("~/keys".to_owned());
        ring.create("clinical", None).unwrap();
        let key = Secret32::from_bytes([7; 32]);
        let wrapped = ring.wrap("clinical", 1, b"", &key).unwrap();
        // What is on pages that are wiped on fork.
        ring.labels[0].versions[0].wrapping = Secret32::from_bytes([0; 32]);
        ring.labels[0].versions[0].signing = Some(Secret32::from_bytes([0; 32]));
        for refused in [
            ring.wrap("clinical", 1, b"", &key).map(drop),
            ring.unwrap("clinical", 1, b"", &wrapped).map(drop),
            ring.sign("clinical", 1, b"").map(drop),
        ] {
            assert_eq!(refused, Err(KeyError::Forked { store: "~/keys".to_owned() }));
        }
    }

    #[test]
    fn debugging_shows_no_secret() {
        let mut ring = Ring::empty("~/keys".to_owned());
        ring.create("clinical", None).unwrap();
        let shown = format!("{ring:?}");
        assert!(shown.contains("clinical") && !shown.contains("wrapping"), "{shown}");
    }
}
