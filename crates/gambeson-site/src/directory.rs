//! Finds the site's directory and the site's key, and remembers the latest directory that this user has taken.
//!
//! A site that has a key has a directory: where one lies and no good directory beside it, that is an error and not a site
//! without one. The directory may come over any way, since it is signed; the key has to come over a safe one.
//!
//! ```text
//! /etc/gambeson/site.pub          the site's Ed25519 key in PEM (RFC 8410): root's or the user's, and writable by nobody else
//! /etc/gambeson/directory.toml    what it signed
//! $XDG_STATE_HOME/gambeson/site-KEY    when the latest was issued that was taken; ~/.local/state without that variable
//! ```
//!
//! Who has no home, or none that can be written to, notices an older directory by its expiry alone.

use std::env;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gambeson_proto::directory::{Directory, DirectoryError, LENGTH_MAX, date, seconds};
use pki_types::SubjectPublicKeyInfoDer;
use pki_types::pem::PemObject;

use crate::policy::others_cannot_write;

/// Where a host has its site's files.
pub const FOLDER: &str = "/etc/gambeson";
/// The site's key, in such a folder.
pub const SITE_KEY: &str = "site.pub";
/// What it signed, in such a folder.
pub const DIRECTORY: &str = "directory.toml";

/// Why there is no directory.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read, or others could have written it.
    File(String),
    /// The directory in this file is none to go by.
    Directory(PathBuf, DirectoryError),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File(what) => out.write_str(what),
            Error::Directory(path, cause) => write!(out, "the site directory {} is refused: {cause}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

/// The directory in a folder, and remembers that it was taken; `None`: no site's key is there.
///
/// # Errors
/// When a site's key is there, and one of the files cannot be used.
pub fn of_folder(folder: &Path) -> Result<Option<Directory>, Error> {
    key_in(folder)?.map(|key| load(&folder.join(DIRECTORY), &key)).transpose()
}

/// As [`of_folder`], and remembers nothing: for those who only want to tell people.
///
/// # Errors
/// As there.
pub fn look(folder: &Path) -> Result<Option<Directory>, Error> {
    key_in(folder)?.map(|key| verify(&folder.join(DIRECTORY), &read_key(&key)?)).transpose()
}

/// Where a folder has a site's key, if it has one.
///
/// # Errors
/// When that cannot be known.
pub fn key_in(folder: &Path) -> Result<Option<PathBuf>, Error> {
    let key = folder.join(SITE_KEY);
    let exists = key.try_exists().map_err(|cause| unreadable("the site's key", &key, &cause))?;
    Ok(exists.then_some(key))
}

/// Reads a directory that the owner of the key in another file signed, and remembers that it was taken.
///
/// # Errors
/// When one of the files cannot be read, others could have written the key, or the directory is refused.
pub fn load(directory: &Path, key: &Path) -> Result<Directory, Error> {
    let key = read_key(key)?;
    let taken = verify(directory, &key)?;
    if let Some(path) = memory(&key) {
        // Without this an older one is noticed by its expiry alone, which is no reason to do without a good one.
        let _ = remember(&path, taken.issued);
    }
    Ok(taken)
}

/// Reads a directory, and remembers nothing: for those who look at one before others take it.
///
/// # Errors
/// As [`load`].
pub fn verify(directory: &Path, key: &[u8; 32]) -> Result<Directory, Error> {
    let bytes = read(directory).map_err(|cause| unreadable("the site directory", directory, &cause))?;
    let seen = memory(key).map_or(Ok(0), |path| recall(&path))?;
    Directory::verify(&bytes, key, now(), seen).map_err(|cause| Error::Directory(directory.to_owned(), cause))
}

/// Reads a site's public key.
///
/// # Errors
/// When it cannot be read, is none, or others could have written it.
pub fn read_key(path: &Path) -> Result<[u8; 32], Error> {
    let unreadable = |cause: io::Error| unreadable("the site's key", path, &cause);
    let mut file = File::open(path).map_err(unreadable)?;
    others_cannot_write("the site's key", path, &file.metadata().map_err(unreadable)?).map_err(Error::File)?;
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(KEY_LENGTH_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    let parsed = SubjectPublicKeyInfoDer::from_pem_slice(&bytes).ok();
    let key = parsed.and_then(|der| der.strip_prefix(&ED25519)?.try_into().ok());
    key.ok_or_else(|| {
        Error::File(format!(
            "the site's key {} is no Ed25519 public key in PEM; it is the file that `gambeson directory keygen` writes \
             beside the secret one, with .pub at its end",
            path.display()
        ))
    })
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LENGTH_MAX as u64 + ROOM_TO_SIGN).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(what: &str, path: &Path, cause: &io::Error) -> Error {
    let path = path.display();
    Error::File(format!(
        "{what} {path} cannot be read ({cause}); ask whoever runs the site for it, or make it readable for you"
    ))
}

/// Where this user remembers what was taken of a site.
fn memory(key: &[u8; 32]) -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    let key: String = key[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Some(state.join("gambeson").join(format!("site-{key}")))
}

/// When the latest directory was issued that was taken.
fn recall(path: &Path) -> Result<u64, Error> {
    match fs::read_to_string(path) {
        Ok(text) if text.is_empty() => Ok(0),
        Ok(text) => seconds(text.trim_end()).ok_or_else(|| {
            let path = path.display();
            Error::File(format!("{path} is to say which site directory was seen last, and holds no date; remove it"))
        }),
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(0),
        Err(cause) => Err(unreadable("what says which site directory was seen last,", path, &cause)),
    }
}

fn remember(path: &Path, issued: u64) -> io::Result<()> {
    if recall(path).is_ok_and(|seen| seen >= issued) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // Many processes of a job do this at once, and not the last one of them counts but the latest directory. All dates
    // have one length, so nobody reads half of one.
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    if recall(path).is_ok_and(|seen| seen < issued) {
        file.write_all(format!("{}\n", date(issued)).as_bytes())?;
    }
    Ok(())
}

/// What stands in front of an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410, section 4).
pub const ED25519: [u8; 12] = [0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00];
const KEY_LENGTH_MAX: u64 = 64 << 10;
const ROOM_TO_SIGN: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_that_was_taken_is_remembered_whoever_comes_last() {
        let folder = env::temp_dir().join(format!("gambeson-site-{}", std::process::id()));
        let path = folder.join("state/gambeson/site-0");
        assert_eq!(recall(&path).expect("nothing yet"), 0);
        for (issued, then) in
            [(2_000_000_000, 2_000_000_000), (1_000_000_000, 2_000_000_000), (2_000_000_001, 2_000_000_001)]
        {
            remember(&path, issued).expect("it can be written");
            assert_eq!(recall(&path).expect("a date"), then);
        }
        std::thread::scope(|scope| {
            for offset in 0..16 {
                let path = &path;
                scope.spawn(move || remember(path, 2_000_000_100 - offset).expect("it can be written"));
            }
        });
        assert_eq!(recall(&path).expect("a date"), 2_000_000_100);
        fs::write(&path, "yesterday\n").expect("a file");
        let refused = recall(&path).expect_err("no date").to_string();
        assert!(refused.contains("holds no date; remove it"), "{refused}");
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
