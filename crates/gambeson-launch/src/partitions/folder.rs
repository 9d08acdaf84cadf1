//! Partitions in files of the authority's host: `authority/partitions`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use gambeson_link::Peer;
use gambeson_proto::policy::is_partition;

use super::cabinet::{About, Cabinet, Decision, Drawer, Mark, Shelf};
use super::message::Grant;
use super::record::{Epoch, Partition, Record};
use super::registry::{Change, change};
use crate::Error;
use crate::audit_log::AuditLog;
use crate::authority::files;

/// The partitions of a site without a key service.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Those of the authority in the folder of a host, whether there are any yet or not.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Folder(folder.join("authority").join("partitions"))
    }

    /// Changes a partition; the number of the epoch that began.
    ///
    /// # Errors
    /// What makes no sense of it, or cannot be written.
    pub fn change(&self, name: &str, what: &Change) -> Result<Option<u32>, Error> {
        let _alone = self.lock()?;
        if self.is_leaving() {
            return Err(Error::Refused(format!(
                "the partitions in {} are on their way to a key service; `gambeson partition move` brings them there",
                self.0.display()
            )));
        }
        change(&mut self.clone(), name, what)
    }

    /// Whether there are files of partitions.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.files()?.is_empty())
    }

    /// Hands all partitions to who keeps them from here on, and removes their files when that is done. How many there
    /// were. From when he is asked until he says no, they are not to be had here: he may have them, and change them.
    ///
    /// # Errors
    /// When they cannot be read, or he does not take them; then they stay.
    pub fn hand_over(&self, take: impl FnOnce(&[(String, Record)]) -> Result<(), Error>) -> Result<usize, Error> {
        let _alone = self.lock()?;
        let read = |name: String| {
            let partition = self.read(&name)?.expect("it was listed, and nobody else changes anything now");
            let epoch = if partition.is_own() { Some(self.secret(&name)?) } else { None };
            Ok((name, Record { partition, epoch }))
        };
        let records: Vec<_> = self.files()?.into_iter().map(read).collect::<Result<_, Error>>()?;
        if records.is_empty() && !self.is_leaving() {
            return Ok(0);
        }
        // Whether somebody was asked before, and may have them, and have changed them.
        let again = self.is_leaving();
        files::write(&self.0.join(LEAVING), 0o600, b"")?;
        match take(&records) {
            Ok(()) => {}
            Err(Error::Unavailable(why)) => {
                return Err(Error::Unavailable(format!(
                    "{why}; say `gambeson partition move` again: until then nobody here knows who has the partitions"
                )));
            }
            Err(cause) if again => {
                return Err(Error::Refused(format!(
                    "{cause}; they may have been handed over before, and changed since: if so remove the files in {}",
                    self.0.display()
                )));
            }
            Err(cause) => {
                self.remove(LEAVING)?;
                return Err(cause);
            }
        }
        // Secrets may be left of what was cut off.
        let names = fs::read_dir(&self.0).map_err(|cause| files::unwritten(&self.0, &cause))?;
        let names: Vec<_> = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        for kind in [".toml", ".secret"] {
            names.iter().filter(|name| name.ends_with(kind)).try_for_each(|name| self.remove(name))?;
        }
        self.remove(LEAVING)?;
        let synced = File::open(&self.0).and_then(|folder| folder.sync_all());
        synced.map_err(|cause| files::unwritten(&self.0, &cause))?;
        Ok(records.len())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.0.join(name);
        fs::remove_file(&path).map_err(|cause| {
            let path = path.display();
            Error::Unavailable(format!("{path} cannot be removed ({cause}); say `gambeson partition move` again"))
        })
    }

    fn is_leaving(&self) -> bool {
        self.0.join(LEAVING).exists()
    }

    fn files(&self) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => {
                return Err(Error::Unavailable(format!("{} cannot be read ({cause})", self.0.display())));
            }
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names
            .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
            .filter(|name| is_partition(name))
            .collect();
        // What is being written has a name that begins so.
        names.retain(|name| !name.starts_with('.'));
        names.sort_unstable();
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Option<Partition>, Error> {
        let path = self.file(name, "toml");
        if path.exists() {
            return files::read_toml(&path, "bring it back from a copy").map(Some);
        }
        if self.file(name, "secret").exists() {
            return Err(Error::Refused(format!(
                "there is a secret of a partition {name}, and no {}; bring that back from a copy, or take another name",
                path.display()
            )));
        }
        Ok(None)
    }

    fn secret(&self, name: &str) -> Result<Epoch, Error> {
        let path = self.file(name, "secret");
        let text = files::read_secret(&path, "the secret of a partition", "bring it back from a copy")?;
        Epoch::parse(&text).ok_or_else(|| {
            Error::Refused(format!("{} is not as it was written; bring it back from a copy", path.display()))
        })
    }

    fn lock(&self) -> Result<File, Error> {
        let unwritten = |cause: io::Error| files::unwritten(&self.0, &cause);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(unwritten)?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.0.join(".lock"));
        let lock = lock.map_err(unwritten)?;
        lock.lock().map_err(unwritten)?;
        Ok(lock)
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.0.join(format!("{name}.{kind}"))
    }

    fn changed(&self) -> Option<Duration> {
        fs::metadata(&self.0).and_then(|metadata| metadata.modified()).ok()?.duration_since(UNIX_EPOCH).ok()
    }
}

impl Shelf for Folder {
    fn names(&self) -> Result<Vec<String>, Error> {
        if self.is_leaving() { Ok(Vec::new()) } else { self.files() }
    }

    fn partition(&self, name: &str) -> Result<Option<Partition>, Error> {
        if self.is_leaving() { Ok(None) } else { self.read(name) }
    }

    fn epoch(&self, name: &str) -> Result<Epoch, Error> {
        match self.is_leaving() {
            true => Err(Error::Refused(format!("partition {name} is on its way to a key service"))),
            false => self.secret(name),
        }
    }
}

impl Drawer for Folder {
    fn put(&mut self, name: &str, partition: &Partition, epoch: Option<&Epoch>, _: &About) -> Result<(), Error> {
        let secret = || match epoch {
            Some(epoch) => files::write(&self.file(name, "secret"), 0o600, epoch.encode().as_bytes()),
            None => Ok(()),
        };
        let path = self.file(name, "toml");
        let members = || files::write(&path, 0o600, partition.encode().as_bytes());
        // A new one is there when its members are. Else members come first, so that who was removed gets nothing even if
        // the secret cannot be written.
        if path.exists() { members().and_then(|()| secret()) } else { secret().and_then(|()| members()) }
    }
}

/// A folder with the log of the daemon that hands its secrets out.
pub(crate) struct Logged {
    pub(crate) folder: Folder,
    pub(crate) log: Arc<Mutex<AuditLog>>,
}

impl Shelf for Logged {
    fn names(&self) -> Result<Vec<String>, Error> {
        self.folder.names()
    }

    fn partition(&self, name: &str) -> Result<Option<Partition>, Error> {
        self.folder.partition(name)
    }

    fn epoch(&self, name: &str) -> Result<Epoch, Error> {
        self.folder.epoch(name)
    }
}

impl Cabinet for Logged {
    fn give(&self, _: &Peer, decide: Decision) -> Result<Grant, Error> {
        let (mut about, outcome) = decide(&self.folder);
        let event = match &outcome {
            Ok(_) => "partition",
            Err(cause) => {
                about.push(("why", cause.to_string().into()));
                "refuse"
            }
        };
        let logged = self.log.lock().unwrap_or_else(PoisonError::into_inner).add(event, &about);
        let grant = outcome?;
        logged.map_err(Error::Unavailable)?;
        Ok(grant)
    }

    fn mark(&self) -> Mark {
        let Some(at) = self.folder.changed() else { return Mark { at: 0, is_settled: true } };
        // Two changes may have one time, as the file system's clock has it.
        let is_settled = (UNIX_EPOCH + at).elapsed().is_ok_and(|age| age >= SETTLED);
        Mark { at: at.as_nanos(), is_settled }
    }
}

/// Beside the files, while nobody here knows who has the partitions.
const LEAVING: &str = ".leaving";
/// Longer than the clocks of file systems take to go on.
const SETTLED: Duration = Duration::from_secs(3);
