//! Another master key, and another database key.

use std::sync::{Arc, PoisonError};

use gambeson_keys::cipher;
use gambeson_master::MasterKey;
use zeroize::Zeroizing;

use super::envelope::Envelope;
use super::file::{self, Purpose};
use super::{Database, Transaction, wrapped};
use crate::audit::events;
use crate::{Error, Event, Who};

impl Database {
    /// Has another master key wrap the database key, while changes go on. With a new database key, all records are sealed
    /// anew: for who fears that the old one is known. Standbys have to be made anew then.
    ///
    /// # Errors
    /// When the master key does not serve; then all is as it was.
    pub fn change_master(&self, new: &dyn MasterKey, new_database_key: bool, who: &Who) -> Result<(), Error> {
        let shared = &self.0.shared;
        let place = &shared.place;
        let _one_at_a_time = shared.master.lock().unwrap_or_else(PoisonError::into_inner);
        let held = shared.envelope();
        let key = if new_database_key {
            cipher::draw().map_err(|why| place.system("drawing random numbers", &why))?
        } else {
            held.key.clone()
        };
        let next = Envelope { id: held.id, key };
        let wrapped = wrapped(place, &next, new)?;
        let name = new.name();
        let event = Event::new(events::MASTER, who)
            .about("master", name.as_str())
            .about("database_key", if new_database_key { "new" } else { "same" });
        let next = new_database_key.then(|| Arc::new(next));
        let who = who.clone();
        self.change(move |transaction| {
            if let Some(next) = next {
                transaction.reseal(next, &who)?;
            }
            for (meta, value) in [(file::KEY, &wrapped[..]), (file::MASTER, name.as_bytes())] {
                let done = file::set_meta(transaction.connection, meta, value);
                done.map_err(transaction.place.sqlite("writing its wrapped key"))?;
            }
            transaction.log(&event)
        })?;
        self.forget_pages()
    }

    /// Has pages that were written over leave the file's journal, too: they have what the old master key opens.
    fn forget_pages(&self) -> Result<(), Error> {
        let place = &self.0.shared.place;
        let connection = place.connect(Purpose::Write)?;
        let checkpoint = || {
            for _ in 0..CHECKPOINTS {
                if connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))? == 0 {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let why = "the new master key is in force, but somebody reads what was there before; do it once more";
        match checkpoint().map_err(place.sqlite("emptying its journal"))? {
            true => Ok(()),
            false => Err(place.system("emptying its journal of what the old master key opens", &why)),
        }
    }
}

impl Transaction<'_> {
    /// Seals all records anew, with a row for each.
    fn reseal(&mut self, next: Arc<Envelope>, who: &Who) -> Result<(), Error> {
        self.changes()?;
        let doing = "reading its records";
        let names = || {
            let mut statement = self.connection.prepare("SELECT kind, name FROM records ORDER BY kind, name")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<Vec<_>>>()
        };
        let names: Vec<(String, String)> = names().map_err(self.place.sqlite(doing))?;
        let open = |(kind, name): (String, String)| {
            let plain = self.record(&kind, &name)?;
            let plain = plain.ok_or_else(|| self.place.altered(format!("the {kind} \"{name}\"")))?;
            Ok((kind, name, plain))
        };
        let plain: Vec<(String, String, Zeroizing<Vec<u8>>)> =
            names.into_iter().map(open).collect::<Result<_, Error>>()?;
        self.seal_with(next);
        plain
            .iter()
            .try_for_each(|(kind, name, plain)| self.put_record(kind, name, plain, &Event::new(events::RESEAL, who)))
    }
}

/// How often the readers of one moment are waited for.
const CHECKPOINTS: usize = 3;
