//! Detached files by name: `NAME` has the data, and `NAME.gambeson` beside it everything else.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use gambeson_proto::file::header::Unverified;

use crate::below::Below;
use crate::body::LocalBody;
use crate::head::{Head, is_sealed};

/// What there is under a name, as far as lengths and first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing, or an empty file.
    Empty,
    /// Bytes that are no sealed file's.
    Plain,
    /// A sealed file with everything in it.
    Attached,
    /// A file with data, beside which is a sidecar.
    Detached,
    /// A sidecar alone: its data is gone.
    DataMissing,
}

/// What there is under a name.
///
/// # Errors
/// The file system's, but that there is nothing.
pub fn form(path: &Path) -> io::Result<Form> {
    let file = File::open(path);
    let is_missing = matches!(&file, Err(error) if error.kind() == ErrorKind::NotFound);
    let mut start = Vec::new();
    if !is_missing {
        file?.take(8).read_to_end(&mut start)?;
        if is_sealed(&start) {
            return Ok(Form::Attached);
        }
    }
    // An empty one is of somebody who was about to make the file.
    let has_sidecar = fs::metadata(sidecar(path)).is_ok_and(|data| data.is_file() && data.len() > 0);
    Ok(match (is_missing, has_sidecar) {
        (true, true) => Form::DataMissing,
        (false, true) => Form::Detached,
        (_, false) if start.is_empty() => Form::Empty,
        (_, false) => Form::Plain,
    })
}

/// Where the sidecar of a file is: beside the file that links lead to, whether it is there or not.
pub fn sidecar(path: &Path) -> PathBuf {
    let mut real = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = real.read_link() else { break };
        real = real.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    sidecar_of(&real)
}

/// Where the sidecar of a file is that is no link.
pub fn sidecar_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(SUFFIX);
    name.into()
}

/// Opens what there is under a name, sealed or not; `options` say for what.
///
/// # Errors
/// The file system's; or the data of a detached file is gone.
pub fn open(path: &Path, options: &OpenOptions) -> io::Result<Below<LocalBody>> {
    match form(path)? {
        Form::Detached => {
            let sidecar = LocalBody::new(options.open(sidecar(path))?);
            Ok(Below::detached(sidecar, LocalBody::new(options.open(path)?)))
        }
        Form::DataMissing => Err(io::Error::new(ErrorKind::NotFound, data_missing(path))),
        _ => Ok(Below::attached(LocalBody::new(options.open(path)?))),
    }
}

/// What is said of a sidecar without data.
pub fn data_missing(path: &Path) -> String {
    let sidecar = sidecar(path);
    let name = sidecar.file_name().unwrap_or_default();
    format!("its sidecar {} is there and its data is gone; put it back, or remove the sidecar", name.display())
}

/// Removes the sidecar of a file that was removed, if it is one. What a program has there under that name stays.
///
/// # Errors
/// The file system's.
pub fn remove_sidecar(path: &Path) -> io::Result<()> {
    let sidecar = sidecar(path);
    let body = match File::open(&sidecar) {
        Ok(file) => LocalBody::new(file),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(head) = Head::read(&body)? else { return Ok(()) };
    let speaks = head.copies.iter().filter_map(|copy| Unverified::decode(copy).ok());
    match speaks.map(|header| header.fields().geometry.detached).next() {
        Some(true) => fs::remove_file(&sidecar),
        _ => Ok(()),
    }
}

/// Behind the name of the file with the data.
const SUFFIX: &str = ".gambeson";
/// As many links as Linux follows.
const LINKS_MAX: usize = 40;
