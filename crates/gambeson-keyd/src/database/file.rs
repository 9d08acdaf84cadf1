//! The SQLite file: its tables, how connections are set, and in whose hands it is.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::envelope::{Envelope, State};
use crate::Error;

/// What sentences call a database, and where it is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) name: String,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Changes. A WAL stands beside the file.
    Write,
    /// Looks.
    Read,
    /// A file that nobody else has, and that is to be one file.
    Alone,
}

impl Place {
    pub(super) fn new(path: &Path) -> Self {
        Place { path: path.to_owned(), name: path.display().to_string() }
    }

    pub(super) fn system(&self, doing: impl Into<String>, why: &impl std::fmt::Display) -> Error {
        Error::system(&self.name, doing, why)
    }

    pub(super) fn altered(&self, what: impl Into<String>) -> Error {
        Error::altered(&self.name, what)
    }

    /// What SQLite says of something that was to be done.
    pub(super) fn sqlite(&self, doing: &str) -> impl FnOnce(rusqlite::Error) -> Error {
        use rusqlite::{Error as Sqlite, ErrorCode};
        move |why| match (&why, why.sqlite_error_code()) {
            (_, Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
            | (Sqlite::FromSqlConversionFailure(..) | Sqlite::InvalidColumnType(..), _)
            | (Sqlite::IntegralValueOutOfRange(..) | Sqlite::Utf8Error(..), _) => {
                self.altered(format!("what SQLite found when {doing} ({why})"))
            }
            _ => self.system(doing, &why),
        }
    }

    /// Holds the place for one process, as long as the file is open.
    pub(super) fn lock(&self) -> Result<File, Error> {
        self.private_folder()?;
        let path = self.beside("lock");
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(|why| self.system(format!("making {}", path.display()), &why))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => Err(Error::InUse { path: self.name.clone() }),
            Err(fs::TryLockError::Error(why)) => Err(self.system(format!("locking {}", path.display()), &why)),
        }
    }

    /// The file beside it with an ending more.
    pub(super) fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(ending);
        path.into()
    }

    /// Makes the empty file, its owner's alone.
    pub(super) fn make(&self) -> Result<(), Error> {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path) {
            Ok(_) => Ok(()),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Err(Error::Exists { path: self.name.clone() }),
            Err(why) => Err(self.system("making it", &why)),
        }
    }

    /// Refuses a file that others could read or write, one in whose folder they could put theirs, and one that is not
    /// there.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.check_file()?;
        self.private_folder()
    }

    /// Refuses a file that others could read or write, and one that is not there.
    pub(super) fn check_file(&self) -> Result<(), Error> {
        let metadata = match fs::symlink_metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(Error::NoDatabase { path: self.name.clone() });
            }
            Err(why) => return Err(self.system("looking at it", &why)),
        };
        let user = rustix::process::geteuid().as_raw();
        let why = if !metadata.is_file() {
            "it is no regular file".to_owned()
        } else if metadata.uid() != user {
            format!("it belongs to user {} and this process runs as user {user}", metadata.uid())
        } else if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o7777;
            format!("others may read or write it (mode {mode:04o}); chmod 600 {}, and find out who did", self.name)
        } else {
            return Ok(());
        };
        Err(Error::Exposed { path: self.name.clone(), why })
    }

    /// Whether changes stand beside it that are not in it yet.
    pub(super) fn has_journal(&self) -> bool {
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
    }

    /// Refuses a folder in which others could put a file of theirs.
    fn private_folder(&self) -> Result<(), Error> {
        let folder = self.folder();
        let doing = || format!("looking at the folder {}", folder.display());
        let metadata = fs::metadata(&folder).map_err(|why| self.system(doing(), &why))?;
        let user = rustix::process::geteuid().as_raw();
        let why = if metadata.uid() != user && metadata.uid() != 0 {
            format!("its folder belongs to user {}, and this process runs as user {user}", metadata.uid())
        } else if metadata.mode() & 0o022 != 0 {
            let mode = metadata.mode() & 0o7777;
            format!("others may write in its folder (mode {mode:04o}); chmod 700 {}", folder.display())
        } else {
            return Ok(());
        };
        Err(Error::Exposed { path: self.name.clone(), why })
    }

    pub(super) fn folder(&self) -> PathBuf {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new(".")).to_owned()
    }

    /// Has the disk know of it, and of files beside it that were renamed or removed.
    pub(super) fn sync(&self) -> Result<(), Error> {
        let done = File::open(&self.path).and_then(|file| file.sync_all());
        done.map_err(|why| self.system("synchronising it", &why))?;
        self.sync_folder()
    }

    /// Removes what an attempt that failed has made.
    pub(super) fn remove(&self) {
        let mut paths = vec![self.path.clone()];
        for ending in ["-wal", "-shm", "-journal"] {
            let mut path = self.path.clone().into_os_string();
            path.push(ending);
            paths.push(path.into());
        }
        for path in paths {
            let _ = fs::remove_file(path);
        }
    }

    fn sync_folder(&self) -> Result<(), Error> {
        let folder = self.folder();
        let done = File::open(&folder).and_then(|folder| folder.sync_all());
        done.map_err(|why| self.system(format!("synchronising {}", folder.display()), &why))
    }

    pub(super) fn connect(&self, purpose: Purpose) -> Result<Connection, Error> {
        let doing = "opening it";
        let flags =
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        // NOFOLLOW is about all of a path, and what leads to the folder is the administrator's matter.
        let path = self.folder().canonicalize().map_err(|why| self.system(doing, &why))?;
        let path = path.join(self.path.file_name().unwrap_or_default());
        let connection = Connection::open_with_flags(path, flags).map_err(self.sqlite(doing))?;
        let mode = match purpose {
            Purpose::Write => {
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 2000; PRAGMA journal_size_limit = 16777216;"
            }
            Purpose::Read => "PRAGMA query_only = ON;",
            Purpose::Alone => "PRAGMA journal_mode = DELETE;",
        };
        connection.execute_batch(&format!("{SETTINGS}{mode}")).map_err(self.sqlite(doing))?;
        // Else SQLite prepares queries anew for each value, which was a fifth of the writer's time.
        let steady = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true);
        steady.map_err(self.sqlite(doing))?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    /// Makes the tables, with what a database has before its first row.
    pub(super) fn furnish(
        &self,
        connection: &mut Connection,
        envelope: &Envelope,
        wrapped: &[u8],
        master: &str,
        state: &State,
    ) -> Result<(), Error> {
        let doing = "making its tables";
        let sealed = envelope.seal_state(state).map_err(|why| self.system("drawing random numbers", &why))?;
        let transaction = connection.transaction().map_err(self.sqlite(doing))?;
        let header = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};");
        transaction.execute_batch(&header).map_err(self.sqlite(doing))?;
        for (_, sql) in SCHEMA {
            transaction.execute_batch(sql).map_err(self.sqlite(doing))?;
        }
        for (name, value) in [(ID, &envelope.id[..]), (KEY, wrapped), (MASTER, master.as_bytes()), (STATE, &sealed)] {
            set_meta(&transaction, name, value).map_err(self.sqlite(doing))?;
        }
        transaction.commit().map_err(self.sqlite(doing))
    }

    /// Refuses a file with other tables, or without the triggers that keep the log from being altered by accident.
    pub(super) fn check_schema(&self, connection: &Connection) -> Result<(), Error> {
        let doing = "reading its tables";
        let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
        let application = number("PRAGMA application_id").map_err(self.sqlite(doing))?;
        let format = number("PRAGMA user_version").map_err(self.sqlite(doing))?;
        if application != APPLICATION {
            return Err(self.altered("its header, which is no key database's,"));
        }
        if format != FORMAT {
            let why = format!("it has format {format}, and this Gambeson knows format {FORMAT}");
            return Err(self.system("opening it", &why));
        }
        let read = || -> rusqlite::Result<Vec<(String, Option<String>)>> {
            let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        let mut found = read().map_err(self.sqlite(doing))?;
        // SQLite's own indices of primary keys have no text.
        found.retain(|(name, sql)| sql.is_some() || !name.starts_with("sqlite_autoindex_"));
        let mut wanted: Vec<_> =
            SCHEMA.iter().map(|(name, sql)| ((*name).to_owned(), Some((*sql).to_owned()))).collect();
        wanted.sort();
        if found == wanted { Ok(()) } else { Err(self.altered("what tables, indices and triggers it has")) }
    }
}

pub(super) fn meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
    statement.query_row([name], |row| row.get(0)).optional()
}

pub(super) fn set_meta(connection: &Connection, name: &str, value: &[u8]) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta(name, value) VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute((name, value)).map(drop)
}

/// Names of what is in meta.
pub(super) const ID: &str = "id";
pub(super) const KEY: &str = "key";
pub(super) const MASTER: &str = "master";
pub(super) const STATE: &str = "state";

const SETTINGS: &str = "
    PRAGMA busy_timeout = 30000; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;
    PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;
    PRAGMA cache_size = -16384;";

/// "GMKD"
const APPLICATION: i64 = 0x474D_4B44;
const FORMAT: i64 = 1;

/// All that is in the file, as SQLite keeps its text.
const SCHEMA: [(&str, &str); 13] = [
    ("meta", "CREATE TABLE meta(name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT"),
    (
        "records",
        "CREATE TABLE records(kind TEXT NOT NULL, name TEXT NOT NULL, serial INTEGER NOT NULL, sealed BLOB NOT NULL, \
         PRIMARY KEY(kind, name)) STRICT",
    ),
    (
        "log",
        "CREATE TABLE log(number INTEGER PRIMARY KEY, time INTEGER NOT NULL, event TEXT NOT NULL, label TEXT, file BLOB, \
         record TEXT, sealed BLOB, who TEXT NOT NULL, about TEXT NOT NULL, hash BLOB NOT NULL) STRICT",
    ),
    (
        "aside",
        "CREATE TABLE aside(number INTEGER PRIMARY KEY, time INTEGER NOT NULL, event TEXT NOT NULL, label TEXT, file BLOB, \
         record TEXT, sealed BLOB, who TEXT NOT NULL, about TEXT NOT NULL, hash BLOB NOT NULL) STRICT",
    ),
    ("log_records", "CREATE INDEX log_records ON log(record, number) WHERE record IS NOT NULL"),
    ("log_anchors", "CREATE INDEX log_anchors ON log(file, number) WHERE event IN ('anchor', 'anchor-back')"),
    ("log_labels", "CREATE INDEX log_labels ON log(label, number) WHERE label IS NOT NULL"),
    (
        "log_no_update",
        "CREATE TRIGGER log_no_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'rows of the log are not altered'); END",
    ),
    (
        "log_no_delete",
        "CREATE TRIGGER log_no_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'rows of the log are not removed'); END",
    ),
    (
        "log_no_replace",
        "CREATE TRIGGER log_no_replace BEFORE INSERT ON log WHEN NEW.number <= (SELECT coalesce(max(number), 0) FROM log) \
         BEGIN SELECT RAISE(ABORT, 'rows of the log are not replaced'); END",
    ),
    (
        "aside_no_update",
        "CREATE TRIGGER aside_no_update BEFORE UPDATE ON aside BEGIN SELECT RAISE(ABORT, 'rows of the log are not altered'); \
         END",
    ),
    (
        "aside_no_delete",
        "CREATE TRIGGER aside_no_delete BEFORE DELETE ON aside BEGIN SELECT RAISE(ABORT, 'rows of the log are not removed'); \
         END",
    ),
    (
        "aside_no_replace",
        "CREATE TRIGGER aside_no_replace BEFORE INSERT ON aside WHEN NEW.number <= (SELECT coalesce(max(number), 0) FROM \
         aside) BEGIN SELECT RAISE(ABORT, 'rows of the log are not replaced'); END",
    ),
];
