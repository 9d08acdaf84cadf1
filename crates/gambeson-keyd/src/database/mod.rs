//! One SQLite file: labels and other records, sealed, and the log.

mod batch;
mod snapshot;
mod transaction;

use std::path::Path;
use std::time::Duration;

use gambeson_master::MasterKey;
use gambeson_proto::secret::Secret32;

pub use batch::{Batch, SealedRecord};
pub use snapshot::{AnchorRow, Snapshot};
pub use transaction::{Direction, Transaction};

use crate::{Error, Tail, Who};

/// A key service's database, open. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Database;

/// What a database does about changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It makes them.
    Primary,
    /// It follows another.
    Standby,
}

/// What a verification of a whole database found in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// What the log ends with.
    pub tail: Tail,
    /// How many labels there are.
    pub labels: u64,
    /// How many other records.
    pub records: u64,
    /// Files that have an anchor.
    pub files: u64,
    /// The time of the last row, in seconds since 1970.
    pub last: Option<u64>,
}

/// What a standby begins with, and what its records are sealed by. It goes over an authenticated, encrypted connection to a
/// standby that the site's rules name, and nowhere else.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Which database.
    pub id: [u8; 16],
    /// Its key.
    pub key: Secret32,
}

impl Database {
    /// Makes a database without labels, whose key the master key wraps.
    ///
    /// # Errors
    /// When one is there already, or it cannot be made.
    pub fn create(path: &Path, master: &dyn MasterKey) -> Result<Database, Error> {
        let _ = (path, master);
        unimplemented!()
    }

    /// Makes the empty database of a standby.
    ///
    /// # Errors
    /// As [`Database::create`].
    pub fn create_standby(path: &Path, master: &dyn MasterKey, seed: &Seed) -> Result<Database, Error> {
        let _ = (path, master, seed);
        unimplemented!()
    }

    /// Opens a database, and verifies it whole: the log's chain, its tail, and each record against the log.
    ///
    /// # Errors
    /// When there is none, others can get at it, the master key is another, or anything in it is not as it was written.
    pub fn open(path: &Path, master: &dyn MasterKey) -> Result<Database, Error> {
        let _ = (path, master);
        unimplemented!()
    }

    /// Makes a change, for good when this returns. Changes of many threads share a commit. If it says no, nothing of it
    /// stays but the rows of refusals.
    ///
    /// # Errors
    /// What the change says, or what writing does.
    pub fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _ = change;
        unimplemented!()
    }

    /// As [`Database::change`], and calls `then` with the outcome instead of waiting for it, in the database's own thread:
    /// it is to hand it on, and not to work.
    pub fn submit<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<T, Error> + Send + 'static,
        then: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) {
        let _ = (change, then);
        unimplemented!()
    }

    /// Looks at the database as it is at one moment. Not to be nested.
    ///
    /// # Errors
    /// What the look says, or what reading does.
    pub fn read<T>(&self, read: impl FnOnce(&Snapshot<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let _ = read;
        unimplemented!()
    }

    /// What the log ends with now.
    pub fn tail(&self) -> Tail {
        unimplemented!()
    }

    /// Waits until the log ends beyond a row, or the time is up, and says what it ends with.
    pub fn wait_past(&self, number: u64, timeout: Duration) -> Tail {
        let _ = (number, timeout);
        unimplemented!()
    }

    /// Verifies the database whole, as it is at one moment. `since`: what its log is to have ended with once.
    ///
    /// # Errors
    /// What is not as it was written.
    pub fn verify(&self, since: Option<&Tail>) -> Result<Verified, Error> {
        let _ = since;
        unimplemented!()
    }

    /// Copies the database into a new file, while changes go on, and verifies the copy.
    ///
    /// # Errors
    /// When the file is there already or cannot be made.
    pub fn backup(&self, to: &Path) -> Result<Tail, Error> {
        let _ = to;
        unimplemented!()
    }

    /// Verifies a backup, and puts it into a place where there is no database.
    ///
    /// # Errors
    /// When there is one, or the backup is not as it was written.
    pub fn restore(backup: &Path, path: &Path, master: &dyn MasterKey, who: &Who) -> Result<Verified, Error> {
        let _ = (backup, path, master, who);
        unimplemented!()
    }

    /// Has another master key wrap the database key, while changes go on. With a new database key, all records are sealed
    /// anew: for who fears that the old one is known.
    ///
    /// # Errors
    /// When the master key does not serve; then all is as it was.
    pub fn change_master(&self, new: &dyn MasterKey, new_database_key: bool, who: &Who) -> Result<(), Error> {
        let _ = (new, new_database_key, who);
        unimplemented!()
    }

    /// What it does about changes, and the term: how often a standby was promoted.
    pub fn role(&self) -> (Role, u64) {
        unimplemented!()
    }

    /// What a standby of this database begins with.
    pub fn seed(&self) -> Seed {
        unimplemented!()
    }

    /// What a standby whose log ends with a row needs next: at least a row, if there is one.
    ///
    /// # Errors
    /// When the log does not go that far.
    pub fn since(&self, number: u64, max_bytes: usize) -> Result<Batch, Error> {
        let _ = (number, max_bytes);
        unimplemented!()
    }

    /// Takes in what goes on from its own tail, and refuses everything else.
    ///
    /// # Errors
    /// [`Error::NotNext`]: then nothing of it was taken in.
    pub fn apply(&self, batch: Batch) -> Result<Tail, Error> {
        let _ = batch;
        unimplemented!()
    }

    /// Makes a standby the primary.
    ///
    /// # Errors
    /// When records of it have not arrived yet.
    pub fn promote(&self, who: &Who) -> Result<Tail, Error> {
        let _ = who;
        unimplemented!()
    }

    /// Makes a primary a standby: one that sees that another was promoted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn step_down(&self, term: u64, who: &Who) -> Result<(), Error> {
        let _ = (term, who);
        unimplemented!()
    }

    /// Rows that a standby wrote for what it gave while it followed, from a number on. They are handed to the primary, or
    /// become rows of the log on promotion.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn aside(&self, limit: usize) -> Result<Vec<crate::Row>, Error> {
        let _ = limit;
        unimplemented!()
    }

    /// Remembers that rows were handed on, through a number.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn aside_given(&self, through: u64) -> Result<(), Error> {
        let _ = through;
        unimplemented!()
    }
}
