//! A folder with a database in it, and what stands for a master key.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use gambeson_keyd::audit::events;
use gambeson_keyd::{Database, Error, Event, Grant, LabelRecord, Right, Rights, Who, access};
use gambeson_keys::cipher;
use gambeson_master::{MasterError, MasterKey};
use gambeson_proto::secret::Secret32;

/// A folder that goes when it goes.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("gambeson-keyd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where its database is.
    pub(crate) fn database(&self) -> PathBuf {
        self.path("keys.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A master key in memory: what the database asks of one, done by the cipher of key files.
pub(crate) struct Master(pub(crate) u8);

impl MasterKey for Master {
    fn name(&self) -> String {
        format!("master {}", self.0)
    }

    fn wrap(&self, context: &[u8], key: &Secret32) -> Result<Vec<u8>, MasterError> {
        cipher::seal(&self.key(), context, key.as_bytes()).map_err(|why| MasterError::Unavailable(why.to_string()))
    }

    fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Result<Secret32, MasterError> {
        let key = cipher::open(&self.key(), context, wrapped)
            .ok_or(MasterError::NotWrappedByIt("it is not the key".into()))?;
        Ok(Secret32::filled(|secret| secret.copy_from_slice(&key)))
    }
}

impl Master {
    fn key(&self) -> Secret32 {
        Secret32::from_bytes([self.0; 32])
    }
}

pub(crate) fn person(name: &str) -> Who {
    Who {
        name: format!("user:{name}"),
        roles: vec!["user".into(), format!("user:{name}")],
        key: "00ff".into(),
        from: "h1".into(),
    }
}

/// A new database, and one that has a label "clinical" of ann's.
pub(crate) fn fresh(folder: &Folder) -> Database {
    Database::create(&folder.database(), &Master(1)).unwrap()
}

pub(crate) fn with_label(folder: &Folder) -> Database {
    let database = fresh(folder);
    create(&database, "clinical").unwrap();
    database
}

pub(crate) fn create(database: &Database, label: &str) -> Result<(), Error> {
    let ann = person("ann");
    let label = label.to_owned();
    database.change(move |transaction| {
        let record = LabelRecord::create(&label, None, &ann)?;
        transaction.put_label(&record, &Event::new(events::CREATE, &ann).label(&label))
    })
}

pub(crate) fn rotate(database: &Database, label: &str) -> Result<u32, Error> {
    let ann = person("ann");
    let label = label.to_owned();
    database.change(move |transaction| {
        let mut record = transaction.label(&label)?.unwrap();
        let version = record.rotate(None)?;
        transaction.put_label(&record, &Event::new(events::ROTATE, &ann).label(&label))?;
        Ok(version)
    })
}

pub(crate) fn delete(database: &Database, label: &str) -> Result<(), Error> {
    let ann = person("ann");
    let label = label.to_owned();
    database
        .change(move |transaction| transaction.delete_label(&label, &Event::new(events::DELETE, &ann).label(&label)))
}

pub(crate) fn grant(database: &Database, label: &str, who: &str, rights: Rights) {
    let (label, who) = (label.to_owned(), who.to_owned());
    let done = database.change(move |transaction| {
        let mut record = transaction.label(&label)?.unwrap();
        record.grant(Grant::new(&who, rights, None)?);
        transaction.put_label(&record, &Event::new(events::GRANT, &person("ann")).label(&label).about("to", who))
    });
    done.unwrap();
}

/// What a service does for somebody who wants a label's keys: decides, and writes down what it decided.
pub(crate) fn get(database: &Database, label: &str, who: &Who) -> Result<Vec<u8>, Error> {
    let (label, who) = (label.to_owned(), who.clone());
    database.change(move |transaction| {
        let record = transaction.label(&label)?;
        let now = gambeson_site::directory::now();
        match access::keys_for(&label, record.as_ref(), &who, gambeson_keys::Rights::Read, now) {
            Ok(entry) => {
                transaction.log(&Event::new(events::GET, &who).label(&label))?;
                Ok(entry.encode().to_vec())
            }
            Err(refused) => {
                let wanted = Right::Read.to_string();
                transaction.refuse(Event::refusal(&who, &wanted, &refused.reason).label(&label));
                Err(Error::Refused { answer: refused.answer })
            }
        }
    })
}

/// How many versions a label has.
pub(crate) fn versions(database: &Database, label: &str) -> Option<usize> {
    database.read(|snapshot| Ok(snapshot.label(label)?.map(|record| record.entry.versions().len()))).unwrap()
}

/// The names of the events in the log.
pub(crate) fn log(database: &Database) -> Vec<String> {
    let rows = database.read(|snapshot| snapshot.log(1, usize::MAX)).unwrap();
    rows.into_iter().map(|row| row.event).collect()
}

/// Changes the file behind the database's back, which must not be open: without the triggers, which are put back.
pub(crate) fn behind_its_back(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let triggers: Vec<(String, String)> = {
        let mut found =
            connection.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name").unwrap();
        found.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
    };
    for (name, _) in &triggers {
        connection.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    connection.execute_batch(sql).unwrap();
    for (_, sql) in &triggers {
        connection.execute_batch(sql).unwrap();
    }
}

pub(crate) fn open(folder: &Folder) -> Result<Database, Error> {
    Database::open(&folder.database(), &Master(1))
}
