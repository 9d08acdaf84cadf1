//! Whom a standby follows: a file beside its database with a line `HOST[:PORT]`, or `HOST=ADDRESS:PORT`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gambeson_launch::wire::Host;

use crate::Error;
use crate::client::Place;

/// A host with its service, as it is named in `--standby-of` and in `standbys`.
///
/// # Errors
/// A sentence, when it is none.
pub fn host_of(text: &str) -> Result<Host, String> {
    let none = || format!("{text:?} names no key service; one is named as h1, h1:7201 or h1=10.0.0.1:7201");
    let place: Place = format!("keyd://{text}").parse().map_err(|_| none())?;
    match place.hosts() {
        [host] if !text.ends_with('/') => Ok(host.clone()),
        _ => Err(none()),
    }
}

/// Writes down whom the standby with this database follows.
///
/// # Errors
/// When that cannot be written.
pub fn remember(database: &Path, primary: &str) -> Result<(), Error> {
    let path = file(database);
    let new = path.with_extension("primary-new");
    let written = fs::write(&new, format!("{primary}\n"))
        .and_then(|()| fs::File::open(&new)?.sync_all())
        .and_then(|()| fs::rename(&new, &path));
    written.map_err(|cause| unusable(&path, &cause))
}

/// Whom the standby with this database follows; nobody: another was promoted while this one was the primary.
pub(super) fn read(database: &Path) -> Result<Option<Host>, Error> {
    let path = file(database);
    match fs::read_to_string(&path) {
        Ok(text) => host_of(text.trim()).map(Some).map_err(|why| unusable(&path, &why)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(unusable(&path, &cause)),
    }
}

/// It follows nobody any more.
pub(super) fn forget(database: &Path) -> Result<(), Error> {
    let path = file(database);
    match fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(unusable(&path, &cause)),
        _ => Ok(()),
    }
}

fn file(database: &Path) -> PathBuf {
    let mut path = database.to_owned().into_os_string();
    path.push(".primary");
    path.into()
}

fn unusable(path: &Path, why: &impl std::fmt::Display) -> Error {
    Error::Site { why: format!("{}, which says whom this standby follows, cannot be used: {why}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_is_named() {
        assert_eq!(host_of("h1").unwrap().address, "h1:7201");
        assert_eq!(host_of("h1=10.0.0.1:9").unwrap().address, "10.0.0.1:9");
        for none in ["", "h1,h2", "10.0.0.1", "h1/", "keyd://h1", "h1:x"] {
            assert!(host_of(none).is_err(), "{none}");
        }
    }
}
