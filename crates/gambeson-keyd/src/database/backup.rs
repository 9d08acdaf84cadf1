//! Copies of a database, made while it serves, and a database from a copy.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use gambeson_master::MasterKey;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::envelope::Envelope;
use super::file::{self, Place, Purpose};
use super::{Database, Snapshot, Transaction, Verified, unwrapped, verification};
use crate::audit::events;
use crate::{Error, Event, Tail, Who};

impl Database {
    /// Copies the database into a new file, while changes go on, and verifies the copy. It opens with the same master key.
    /// The row that tells of it comes after what was copied.
    ///
    /// # Errors
    /// When the file is there already or cannot be made.
    pub fn backup(&self, to: &Path) -> Result<Tail, Error> {
        let to = Place::new(to);
        to.make().map_err(|why| match why {
            Error::System { path, why, .. } => Error::Unmade { path, why, user: rustix::process::geteuid().as_raw() },
            why => why,
        })?;
        let copied = self.0.shared.look(|connection, envelope| copy(connection, &to, envelope));
        if copied.is_err() {
            to.remove();
        }
        let tail = copied?;
        let told = Event::new(events::BACKUP, &Who::service()).about("tail", tail.to_string()).about("to", to.name);
        self.change(move |transaction| transaction.log(&told))?;
        Ok(tail)
    }

    /// Verifies a backup, and puts it into a place where there is no database. What it says was in order is the backup; the
    /// row that tells of this comes after.
    ///
    /// # Errors
    /// When there is one, or the backup is not as it was written.
    pub fn restore(backup: &Path, path: &Path, master: &dyn MasterKey, who: &Who) -> Result<Verified, Error> {
        let (backup, place) = (one_file(backup)?, Place::new(path));
        let _lock = place.lock()?;
        if fs::symlink_metadata(path).is_ok() {
            return Err(Error::Exists { path: place.name });
        }
        // SQLite would write it into the database that is put beside it.
        if place.has_journal() {
            let why = "the journal of another database stands beside it (its name and -wal); put that away with the database \
                       that it is of";
            return Err(place.system("putting a backup into its place", &why));
        }
        let new = Place::new(&place.beside("new"));
        // An attempt that was interrupted left it.
        new.remove();
        let restored = fill(&backup, &new, master, who).and_then(|verified| {
            // One that is there meanwhile stays.
            fs::hard_link(&new.path, &place.path).map_err(|why| place.system("putting it into its place", &why))?;
            Ok(verified)
        });
        new.remove();
        let restored = restored?;
        place.sync()?;
        Ok(restored)
    }
}

/// The place of the master key that a backup says it opens with. Nothing vouches for it before the backup is opened.
///
/// # Errors
/// When there is no backup, or others could have written it.
pub fn master_of(backup: &Path) -> Result<String, Error> {
    let backup = one_file(backup)?;
    let connection = backup.connect(Purpose::Read)?;
    backup.check_schema(&connection)?;
    let name = file::meta(&connection, file::MASTER).map_err(backup.sqlite("reading which master key it is under"))?;
    let name = name.and_then(|name| String::from_utf8(name).ok());
    name.ok_or_else(|| backup.altered("what it says of its master key"))
}

/// A backup that is there, its owner's alone, and nothing but one file.
fn one_file(backup: &Path) -> Result<Place, Error> {
    let backup = Place::new(backup);
    backup.check_file().map_err(|why| match why {
        Error::NoDatabase { path } => Error::NoBackup { path },
        why => why,
    })?;
    if backup.has_journal() {
        let why = "a journal stands beside it, so it is no backup but a database in use; make one with `gambeson keyd \
                   backup`";
        return Err(backup.system("restoring from it", &why));
    }
    Ok(backup)
}

fn copy(connection: &Connection, to: &Place, envelope: &Arc<Envelope>) -> Result<Tail, Error> {
    let doing = "copying into it";
    let mut copy = to.connect(Purpose::Alone)?;
    {
        let backup = Backup::new(connection, &mut copy).map_err(to.sqlite(doing))?;
        match backup.step(-1).map_err(to.sqlite(doing))? {
            StepResult::Done => {}
            other => return Err(to.system(doing, &format!("SQLite says {other:?}"))),
        }
    }
    // What was copied says that a journal is beside it.
    copy.execute_batch("PRAGMA journal_mode = DELETE").map_err(to.sqlite(doing))?;
    let (verified, _) = verification::whole(to, &copy, envelope, None)?;
    copy.close().map_err(|(_, why)| to.system(doing, &why))?;
    to.sync()?;
    Ok(verified.tail)
}

/// A file with what is in the backup, verified, and a row that says so.
fn fill(backup: &Place, new: &Place, master: &dyn MasterKey, who: &Who) -> Result<Verified, Error> {
    let copied = || -> io::Result<()> {
        let mut from = fs::File::open(&backup.path)?;
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new.path)?;
        io::copy(&mut from, &mut to).map(drop)
    };
    copied().map_err(|why| backup.system(format!("copying it to {}", new.name), &why))?;
    // What is said of it is said of the backup.
    let connection = Place { path: new.path.clone(), name: backup.name.clone() }.connect(Purpose::Alone)?;
    let envelope = Arc::new(unwrapped(backup, &connection, master)?);
    let (verified, state) = verification::whole(backup, &connection, &envelope, None)?;
    let doing = "writing that it was restored";
    connection.execute_batch("BEGIN IMMEDIATE").map_err(new.sqlite(doing))?;
    let snapshot =
        Snapshot { place: new, connection: &connection, envelope: Arc::clone(&envelope), unsealed: Some(state) };
    let mut transaction = Transaction::new(snapshot);
    let event = Event::new(events::RESTORE, who).about("tail", verified.tail.to_string());
    transaction.log(&event)?;
    let sealed = envelope.seal_state(transaction.state()).map_err(|why| new.system("drawing random numbers", &why))?;
    file::set_meta(&connection, file::STATE, &sealed).map_err(new.sqlite(doing))?;
    drop(transaction);
    connection.execute_batch("COMMIT").map_err(new.sqlite(doing))?;
    connection.close().map_err(|(_, why)| new.system(doing, &why))?;
    new.sync()?;
    Ok(verified)
}
