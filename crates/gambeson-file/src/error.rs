//! Why a sealed file can't be used as asked, as sentences.

use std::fmt;
use std::io;

use gambeson_keys::KeyError;

/// A failure. Its sentence names file, and region and block where there are any; `cause` says what callers act on.
#[derive(Debug)]
pub struct Error {
    /// What callers act on.
    pub cause: Cause,
    /// The file, as its opener named it.
    pub file: String,
    what: String,
    storage: Option<io::Error>,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// There is a sealed file, or a plain one, where the other was expected.
    Kind,
    /// A key is missing, expired, or for reading only.
    Key,
    /// What is on the storage is not what was written: altered, put back, removed or torn.
    Altered,
    /// What is on the storage is authentic, and nobody vouches that it is the newest.
    Unanchored,
    /// The header can't be used.
    Header,
    /// The file system has no locks, which this access needs.
    NoLocks,
    /// The file was opened for less.
    Access,
    /// A map that can't be added.
    Map,
    /// The file below.
    Storage,
}

impl Error {
    /// A failure of this file.
    pub fn new(cause: Cause, file: &str, what: impl Into<String>) -> Self {
        Error { cause, file: file.to_owned(), what: what.into(), storage: None }
    }

    pub(crate) fn below(file: &str, doing: &str, error: io::Error) -> Self {
        let what = format!("{doing}: {error}");
        Error { cause: Cause::Storage, file: file.to_owned(), what, storage: Some(error) }
    }

    /// What the file below has said, if it is that.
    pub fn storage(&self) -> Option<&io::Error> {
        self.storage.as_ref()
    }

    pub(crate) fn key(file: &str, region: &str, error: &KeyError) -> Self {
        Error::new(Cause::Key, file, format!("{region}: {error}"))
    }

    pub(crate) fn no_locks(file: &str, why: &str, error: &io::Error) -> Self {
        let what = format!(
            "{why} needs locks on ranges of it, and its file system has none ({error}); write collectively, or mount it with locks (Lustre: -o flock, NFS: without nolock)"
        );
        Error::new(Cause::NoLocks, file, what)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)
    }
}

impl std::error::Error for Error {}
