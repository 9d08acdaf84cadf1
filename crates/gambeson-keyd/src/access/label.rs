//! A label with its keys and grants, and how it is written.
//!
//! ```text
//! u8 1 | length of the entry u32 | entry as in a key file | grants, in postcard
//! ```

use gambeson_keys::{Entry, Malformed, Ring};
use zeroize::Zeroizing;

use super::{Grant, Rights, Who};
use crate::Error;

/// The kind of record that a label is.
pub const LABEL: &str = "label";

/// A label: its versions with keys, and who may do what with it.
#[derive(Clone, Debug)]
pub struct LabelRecord {
    /// Its name and versions.
    pub entry: Entry,
    /// In order of `who`; one for each.
    pub grants: Vec<Grant>,
}

impl LabelRecord {
    /// A new label, whose first version is 1; who creates it has all rights, by the role that is his own name.
    ///
    /// # Errors
    /// When its name is none.
    pub fn create(name: &str, expires: Option<u64>, who: &Who) -> Result<Self, Error> {
        let mut ring = Ring::new(SERVICE.into(), []);
        ring.create(name, expires)?;
        LabelRecord::of(ring.into_labels().remove(0), who)
    }

    /// A label whose keys somebody has brought; he has all rights.
    ///
    /// # Errors
    /// When he has no role.
    pub fn of(entry: Entry, who: &Who) -> Result<Self, Error> {
        Ok(LabelRecord { entry, grants: vec![Grant::new(who.principal(), Rights::ALL, None)?] })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Whether a grant is for somebody and not for everybody.
    pub(crate) fn names(&self, who: &Who) -> bool {
        self.grants.iter().any(|grant| !grant.who.ends_with('*') && grant.is_for(who))
    }

    /// Makes a new version, and says which.
    ///
    /// # Errors
    /// When its signing key is not here, as with one imported for reading alone, or it has as many as a label has.
    pub fn rotate(&mut self, expires: Option<u64>) -> Result<u32, Error> {
        if self.entry.versions().len() >= VERSIONS_MAX {
            return Err(Error::Full { label: self.entry.name.clone() });
        }
        self.changed(|ring, name| ring.rotate(name, expires))
    }

    /// Sets until when a version is served, or all of them.
    ///
    /// # Errors
    /// When there is none such, or its signing key is not here.
    pub fn expire(&mut self, version: Option<u32>, expires: Option<u64>) -> Result<(), Error> {
        self.changed(|ring, name| ring.expire(name, version, expires))
    }

    /// Adds a grant, in place of one for the same role.
    pub fn grant(&mut self, grant: Grant) {
        match self.grants.binary_search_by(|held| held.who.cmp(&grant.who)) {
            Ok(at) => self.grants[at] = grant,
            Err(at) => self.grants.insert(at, grant),
        }
    }

    /// Takes a role's grant away, and says which that was.
    pub fn revoke(&mut self, who: &str) -> Option<Grant> {
        let at = self.grants.binary_search_by(|held| held.who.as_str().cmp(who)).ok()?;
        Some(self.grants.remove(at))
    }

    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let entry = self.entry.encode();
        let grants = postcard::to_stdvec(&self.grants).expect("grants are strings and numbers");
        let mut out = Zeroizing::new(Vec::with_capacity(5 + entry.len() + grants.len()));
        out.push(FORMAT);
        out.extend_from_slice(&u32::try_from(entry.len()).expect("an entry is bounded").to_be_bytes());
        out.extend_from_slice(&entry);
        out.extend_from_slice(&grants);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (&format, rest) = bytes.split_first().ok_or(Malformed)?;
        let (length, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (entry, grants) = rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or(Malformed)?;
        let (grants, rest): (Vec<Grant>, _) = postcard::take_from_bytes(grants).map_err(|_| Malformed)?;
        let ascending = grants.is_sorted_by(|one, next| one.who < next.who);
        let legal = format == FORMAT && rest.is_empty() && ascending && grants.iter().all(Grant::is_legal);
        if legal { Ok(LabelRecord { entry: Entry::decode(entry)?, grants }) } else { Err(Malformed) }
    }

    /// What a ring does with labels, done with this one.
    fn changed<T>(
        &mut self,
        change: impl FnOnce(&mut Ring, &str) -> Result<T, gambeson_keys::KeyError>,
    ) -> Result<T, Error> {
        let mut ring = Ring::new(SERVICE.into(), [self.entry.clone()]);
        let outcome = change(&mut ring, &self.entry.name)?;
        self.entry = ring.into_labels().remove(0);
        Ok(outcome)
    }
}

/// What sentences about keys call the store.
const SERVICE: &str = "of the key service";
const FORMAT: u8 = 1;
/// Versions of a label: each time it is given they are all copied.
pub(crate) const VERSIONS_MAX: usize = 4096;
