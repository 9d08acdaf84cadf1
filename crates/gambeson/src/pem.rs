//! Keys in files: PEM (RFC 7468), and that nobody else can read what is secret.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

pub(crate) use gambeson_launch::authority::pem as encode;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// A secret in a file, for sentences about it.
pub(crate) struct Secret {
    /// `the site's secret key`
    pub(crate) what: &'static str,
    /// `who could sign with it`
    pub(crate) others: &'static str,
    /// `name it with --key, or make one with ...`
    pub(crate) remedy: &'static str,
}

/// Writes a file that is not there yet; `known` says who may count on one that is.
pub(crate) fn create(path: &Path, mode: u32, bytes: &[u8], known: &str) -> Result<(), Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = made.and_then(|mut file| file.write_all(bytes));
    written.map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => Failure::refused(format!(
            "{} is there already, and {known} by it; give another name, or move it away",
            path.display()
        )),
        _ => Failure::system(format!(
            "{} cannot be written ({cause}); name a place that you may write to",
            path.display()
        )),
    })
}

/// Reads a secret with `parse`, which says nothing of what cannot be one; `none` does.
pub(crate) fn read<T>(
    path: &Path,
    secret: &Secret,
    parse: impl FnOnce(&[u8]) -> Option<T>,
    none: impl Fn() -> Failure,
) -> Result<T, Failure> {
    let Secret { what, others, remedy } = secret;
    let cannot = |cause: io::Error| {
        Failure::unavailable(format!("{what} {} cannot be read ({cause}); {remedy}", path.display()))
    };
    let mut file = File::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() || metadata.len() > LENGTH_MAX {
        return Err(none());
    }
    let mut bytes = Zeroizing::new(vec![0; metadata.len() as usize]);
    file.read_exact(&mut bytes).map_err(cannot)?;
    let parsed = parse(&bytes).ok_or_else(&none)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure::refused(format!(
            "{what} {} is open to others (mode {:04o}), {others}; chmod 600 it, and make a new one if others could read it",
            path.display(),
            metadata.mode() & 0o7777
        )));
    }
    Ok(parsed)
}

const LENGTH_MAX: u64 = 64 << 10;
