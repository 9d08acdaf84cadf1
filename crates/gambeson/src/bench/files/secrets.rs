//! The sealed side's own key store and policy, so that the user's are neither needed nor touched.

use std::fs;
use std::path::PathBuf;

use gambeson_keys::{Protection, Store};

use crate::failure::Failure;
use crate::probe::files::work::LABELS;

use super::place::make;
use super::sides::{LABEL, Side};

/// A folder with both; it goes when this does.
pub(super) struct Secrets(PathBuf);

impl Secrets {
    /// Labels for all files, and a rule for those of each side that is sealed.
    pub(super) fn new(sides: &[Side]) -> Result<Self, Failure> {
        let secrets = Self(make(&std::env::temp_dir())?);
        let mut store = Store::create(&secrets.store(), Protection::KeyFile("master-key".into()))?;
        store.change(|ring| [LABEL].iter().chain(&LABELS).try_for_each(|label| ring.create(label, None)))?;
        let rules: String = sides.iter().filter_map(Side::rule).collect();
        let policy = secrets.policy();
        fs::write(&policy, rules)
            .map_err(|error| Failure::system(format!("{} cannot be written ({error})", policy.display())))?;
        Ok(secrets)
    }

    pub(super) fn store(&self) -> PathBuf {
        self.0.join("keys")
    }

    pub(super) fn policy(&self) -> PathBuf {
        self.0.join("policy.toml")
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
