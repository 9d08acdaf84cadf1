//! The log of what an authority issued and revoked: a line of JSON each, and nothing is handed out that is not in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::Subject;
use super::files::unwritten;
use crate::Error;

const ISSUED: &str = "issued.jsonl";

/// A line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Entry {
    Issued(Record),
    /// A certificate for a host's page. It gives no standing: no link takes it, and a host asks for the next by its own key.
    Page {
        time: u64,
        serial: String,
        key: String,
        names: Vec<String>,
        until: u64,
    },
    /// All keys that were certified under a name so far.
    Revoked {
        time: u64,
        name: String,
    },
}

/// A certificate that was issued.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) time: u64,
    pub(super) serial: String,
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) subject: Subject,
    pub(super) until: u64,
}

/// What an authority knows of a key.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The key's hash.
    pub key: String,
    /// Whom it was certified for, lately.
    pub subject: Subject,
    /// The serial number of the latest certificate.
    pub serial: String,
    /// When that was issued.
    pub issued: u64,
    /// Until when that is valid.
    pub until: u64,
    /// Whether it is not renewed any more.
    pub revoked: bool,
}

pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// How much of the file is in the map.
    read: u64,
    lines: usize,
    by_key: BTreeMap<String, Standing>,
    /// Names that were revoked, and have not been enrolled since.
    revoked: BTreeSet<String>,
}

impl Log {
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(ISSUED);
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path);
        let file = file.map_err(|cause| unwritten(&path, &cause))?;
        Ok(Log { path, file, read: 0, lines: 0, by_key: BTreeMap::new(), revoked: BTreeSet::new() })
    }

    /// What is known of a key, also by what others have appended.
    pub(super) fn standing(&mut self, key: &str) -> Result<Option<Standing>, Error> {
        self.catch_up()?;
        Ok(self.by_key.get(key).cloned())
    }

    /// Whether a name is revoked, whoever comes under it.
    pub(super) fn is_revoked(&mut self, name: &str) -> Result<bool, Error> {
        self.catch_up()?;
        Ok(self.revoked.contains(name))
    }

    pub(super) fn all(&mut self) -> Result<impl Iterator<Item = Standing>, Error> {
        self.catch_up()?;
        Ok(self.by_key.values().cloned())
    }

    /// Appends, so that it outlasts a crash; or leaves the log as it was.
    pub(super) fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        let mut line = serde_json::to_string(entry).expect("words and numbers are JSON");
        line.push('\n');
        self.write(line.as_bytes()).map_err(|cause| unwritten(&self.path, &cause))?;
        self.catch_up()
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        flock(&self.file, FlockOperation::LockExclusive)?;
        let end = self.whole()?;
        let written =
            self.file.set_len(end).and_then(|()| self.file.write_all(line)).and_then(|()| self.file.sync_all());
        if written.is_err() {
            let _ = self.file.set_len(end);
        }
        let _ = flock(&self.file, FlockOperation::Unlock);
        written
    }

    /// Where the last whole line ends. What is behind it was never handed out: its writer has ended in between.
    fn whole(&mut self) -> io::Result<u64> {
        let mut end = self.file.seek(SeekFrom::End(0))?;
        let mut last = [0];
        while end > 0 {
            self.file.seek(SeekFrom::Start(end - 1))?;
            self.file.read_exact(&mut last)?;
            if last == *b"\n" {
                break;
            }
            end -= 1;
        }
        Ok(end)
    }

    fn catch_up(&mut self) -> Result<(), Error> {
        let mut more = Vec::new();
        let read = self.file.seek(SeekFrom::Start(self.read)).and_then(|_| self.file.read_to_end(&mut more));
        read.map_err(|cause| Error::Unavailable(format!("{} cannot be read ({cause})", self.path.display())))?;
        let whole = more.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        for line in more[..whole].split_inclusive(|&byte| byte == b'\n') {
            let entry = serde_json::from_slice(line).map_err(|cause| {
                let place = format!("{}:{}", self.path.display(), self.lines + 1);
                Error::Refused(format!(
                    "{place}: the log of what was issued was altered ({cause}); bring it back from a copy"
                ))
            })?;
            self.enter(entry);
            self.lines += 1;
            self.read += line.len() as u64;
        }
        Ok(())
    }

    fn enter(&mut self, entry: Entry) {
        match entry {
            Entry::Issued(Record { time, serial, key, subject, until }) => {
                subject.names.iter().map(String::as_str).chain([subject.name()]).for_each(|name| {
                    self.revoked.remove(name);
                });
                let standing = Standing { key: key.clone(), subject, serial, issued: time, until, revoked: false };
                self.by_key.insert(key, standing);
            }
            Entry::Page { .. } => {}
            Entry::Revoked { name, .. } => {
                self.by_key.values_mut().filter(|one| one.subject.is_called(&name)).for_each(|one| one.revoked = true);
                self.revoked.insert(name);
            }
        }
    }
}
