//! A label with its keys and grants.

use gambeson_keys::Entry;

use super::{Grant, Who};
use crate::Error;

/// A label: its versions with keys, and who may do what with it.
#[derive(Clone, Debug)]
pub struct LabelRecord {
    /// Its name and versions.
    pub entry: Entry,
    /// In order of `who`; one for each.
    pub grants: Vec<Grant>,
}

impl LabelRecord {
    /// A new label, whose first version is 1; who creates it has all rights, by his last role, which is his name.
    ///
    /// # Errors
    /// When its name is none.
    pub fn create(name: &str, expires: Option<u64>, who: &Who) -> Result<Self, Error> {
        let _ = (name, expires, who);
        unimplemented!()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Makes a new version, and says which.
    ///
    /// # Errors
    /// When its signing key is not here, as with one imported for reading alone.
    pub fn rotate(&mut self, expires: Option<u64>) -> Result<u32, Error> {
        let _ = expires;
        unimplemented!()
    }

    /// Sets until when a version is served, or all of them.
    ///
    /// # Errors
    /// When there is none such.
    pub fn expire(&mut self, version: Option<u32>, expires: Option<u64>) -> Result<(), Error> {
        let _ = (version, expires);
        unimplemented!()
    }

    /// Adds a grant, in place of one for the same role.
    pub fn grant(&mut self, grant: Grant) {
        let _ = grant;
        unimplemented!()
    }

    /// Takes a role's grant away, and says which that was.
    pub fn revoke(&mut self, who: &str) -> Option<Grant> {
        let _ = who;
        unimplemented!()
    }
}
