//! What one identity can do in each region of a file: the data keys that it could unwrap, or why it could not.

use gambeson_keys::{KeyError, Keys};
use gambeson_proto::file::region::RegionId;
use gambeson_proto::file::table::{Region, Table, WrappedKey};
use gambeson_proto::file::{DataKey, KeyId, context};
use gambeson_proto::secret::Secret32;

/// One region, as this identity sees it.
pub(crate) struct RegionAccess {
    /// For sentences: `region 1 (label "clinical")`.
    pub(crate) name: String,
    /// Its keys by epoch, oldest first. None: it is plain.
    keys: Vec<(u16, Result<DataKey, KeyError>)>,
    /// Why nothing may be written, if so.
    may_write: Result<(), KeyError>,
}

impl RegionAccess {
    /// The key that shares of an epoch were sealed with, if there is such an epoch.
    pub(crate) fn key(&self, epoch: u16) -> Option<Result<&DataKey, &KeyError>> {
        self.keys.iter().find(|(of, _)| *of == epoch).map(|(_, key)| key.as_ref())
    }

    /// The key that new shares are sealed with; none for a plain region.
    pub(crate) fn newest(&self) -> Result<Option<&DataKey>, &KeyError> {
        self.may_write.as_ref()?;
        self.keys.last().map(|(_, key)| key.as_ref()).transpose()
    }

    /// Why this identity can't read the region, if it can't read all of it.
    pub(crate) fn unreadable(&self) -> Option<&KeyError> {
        self.keys.iter().find_map(|(_, key)| key.as_ref().err())
    }
}

/// Asks for every region's keys.
pub(crate) fn of(table: &Table, keys: &dyn Keys) -> Vec<RegionAccess> {
    (0..).zip(table.regions()).map(|(number, region)| one(table, number, region, keys)).collect()
}

fn one(table: &Table, number: RegionId, region: &Region, keys: &dyn Keys) -> RegionAccess {
    let Some(newest) = region.keys.last() else {
        return RegionAccess { name: format!("region {number} (plain)"), keys: Vec::new(), may_write: Ok(()) };
    };
    let mut by_epoch: Vec<(u16, Result<DataKey, KeyError>)> = Vec::new();
    for epoch in region.keys.chunk_by(|a, b| a.epoch == b.epoch) {
        let id = table.key_id(number, epoch[0].epoch);
        let key = unwrap(table, epoch, id, keys).map(|secret| DataKey::new(region.suite, &secret, id));
        by_epoch.push((id.epoch, key));
    }
    let label = &table.labels()[usize::from(newest.label)];
    RegionAccess {
        name: format!("region {number} (label \"{}\")", label.name),
        keys: by_epoch,
        may_write: may_write(keys, &label.name, label.version),
    }
}

/// Whether this identity may sign for a version of a label, which is what makes a writer.
pub(crate) fn may_write(keys: &dyn Keys, label: &str, version: u32) -> Result<(), KeyError> {
    keys.sign(label, version, b"gambeson: may this process write?").map(|_| ())
}

/// The data key of an epoch, which each of these wraps for another label.
pub(crate) fn unwrap(table: &Table, epoch: &[WrappedKey], id: KeyId, keys: &dyn Keys) -> Result<Secret32, KeyError> {
    let mut refused = None;
    for wrapped in epoch {
        let label = &table.labels()[usize::from(wrapped.label)];
        let context = context::wrap(&id, &label.name, label.version);
        match keys.unwrap(&label.name, label.version, &context, &wrapped.wrapped) {
            Ok(secret) if context::commitment(&secret, &id) == wrapped.commitment => {
                return Ok(secret);
            }
            Ok(_) => {
                let (store, label, version) = ("in use".to_owned(), label.name.clone(), label.version);
                refused.get_or_insert(KeyError::WrongWrapping { store, label, version });
            }
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.expect("an epoch has a key"))
}
