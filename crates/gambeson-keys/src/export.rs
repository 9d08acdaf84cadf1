//! Labels for somebody else: a key file under a passphrase of its own.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gambeson_proto::secret::Secret32;

use crate::KeyError;
use crate::cipher::draw;
use crate::format::{self, Contents, Header, Kind};
use crate::passphrase::{Cost, Passphrase};
use crate::ring::Ring;
use crate::store::{unwrap_master, wrap_master};

/// Writes labels into a file that must not be there yet.
///
/// # Errors
/// When the file cannot be made.
pub fn write_export(path: &Path, labels: &Ring, passphrase: &Passphrase, cost: Cost) -> Result<(), KeyError> {
    let file = seal(labels, passphrase, cost).map_err(|cause| KeyError::no_random_numbers(&labels.store, &cause))?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = made.and_then(|mut made| {
        let done = made.write_all(&file).and_then(|()| made.sync_all());
        if done.is_err() {
            let _ = fs::remove_file(path);
        }
        done
    });
    written.map_err(|error| KeyError::system(&labels.store, format!("exporting to {}", path.display()), &error))
}

/// The labels in such a file. `ask` is called for its passphrase.
///
/// # Errors
/// When it cannot be read or is no export, or the passphrase is not given or another.
pub fn read_export(path: &Path, ask: impl FnOnce() -> Option<Passphrase>) -> Result<Ring, KeyError> {
    let name = path.display().to_string();
    let none = |why: String| KeyError::NoExport { file: name.clone(), why };
    let cannot = |error: io::Error| none(format!("it cannot be read ({error})"));
    let file = fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, LENGTH_MAX), &mut bytes).map_err(cannot)?;
    let (header, length) = Header::decode(&bytes)
        .ok()
        .filter(|(header, _)| header.kind == Kind::Export)
        .ok_or_else(|| none("it does not begin as this Gambeson's exports do".to_owned()))?;
    let passphrase = ask().ok_or_else(|| KeyError::Locked { store: name.clone() })?;
    let wrong = || KeyError::WrongPassphrase { store: format!("the export {name}") };
    let master = unwrap_master(&header, &passphrase).ok_or_else(wrong)?;
    let contents = format::open(&bytes, length, &master);
    let contents = contents.map_err(|_| KeyError::altered(&name, "what stands behind its first bytes"))?;
    Ok(Ring { store: name, labels: contents.labels })
}

fn seal(labels: &Ring, passphrase: &Passphrase, cost: Cost) -> Result<Vec<u8>, getrandom::Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    let master = draw()?;
    let lock = wrap_master(Kind::Export, &id, &master, passphrase, cost)?;
    let header = Header { kind: Kind::Export, id, serial: 1, lock };
    let contents =
        Contents { anchor_key: Secret32::from_bytes([0; 32]), home: PathBuf::new(), labels: labels.labels.clone() };
    format::seal(&header, &master, &contents)
}

/// Larger than any key file is, in bytes.
const LENGTH_MAX: u64 = 16 << 20;
