//! Labels for somebody else: a key file under a passphrase of its own, or sealed to the owner of a public key.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gambeson_proto::secret::Secret32;

use crate::KeyError;
use crate::cipher::draw;
pub use crate::format::SEALED_TO;
use crate::format::{self, Contents, Header, Kind, Lock};
use crate::passphrase::{Cost, Passphrase};
use crate::ring::Ring;
use crate::store::{unwrap_master, wrap_master};

/// Writes labels into a file that must not be there yet.
///
/// # Errors
/// When the file cannot be made.
pub fn write_export(path: &Path, labels: &Ring, passphrase: &Passphrase, cost: Cost) -> Result<(), KeyError> {
    write(path, labels, |id, master| wrap_master(Kind::Export, id, master, passphrase, cost))
}

/// As [`write_export`], for the owner of a public key of X25519 alone: `seal` seals the master key to it (HPKE), bound to the
/// info that it is given.
///
/// # Errors
/// As there.
pub fn write_export_to(
    path: &Path,
    labels: &Ring,
    public: &[u8; 32],
    seal: impl FnOnce(&[u8], &Secret32) -> [u8; SEALED_TO],
) -> Result<(), KeyError> {
    write(path, labels, |id, master| {
        Ok(Lock::Recipient { public: *public, sealed: seal(&Header::recipient_info(id), master) })
    })
}

fn write(
    path: &Path,
    labels: &Ring,
    lock: impl FnOnce(&[u8; 16], &Secret32) -> Result<Lock, getrandom::Error>,
) -> Result<(), KeyError> {
    let file = seal(labels, lock).map_err(|cause| KeyError::no_random_numbers(&labels.store, &cause))?;
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

/// The public key that an export is for; none if it is under a passphrase.
///
/// # Errors
/// When the file cannot be read or is no export.
pub fn recipient_of(path: &Path) -> Result<Option<[u8; 32]>, KeyError> {
    let (_, header, _) = read(path)?;
    Ok(match header.lock {
        Lock::Recipient { public, .. } => Some(public),
        _ => None,
    })
}

/// The labels in an export for the owner of a public key. `open` opens what was sealed to it, bound to an info.
///
/// # Errors
/// As [`read_export`].
pub fn read_export_to(
    path: &Path,
    open: impl FnOnce(&[u8], &[u8; SEALED_TO]) -> Option<Secret32>,
) -> Result<Ring, KeyError> {
    let (bytes, header, length) = read(path)?;
    let name = path.display().to_string();
    let Lock::Recipient { sealed, .. } = &header.lock else {
        return Err(KeyError::NoExport { file: name, why: "it is under a passphrase".to_owned() });
    };
    let master = open(&Header::recipient_info(&header.id), sealed);
    let master = master.ok_or_else(|| KeyError::altered(&name, "what is sealed to its recipient"))?;
    contents(name, &bytes, length, &master)
}

/// The labels in such a file. `ask` is called for its passphrase.
///
/// # Errors
/// When it cannot be read or is no export, or the passphrase is not given or another.
pub fn read_export(path: &Path, ask: impl FnOnce() -> Option<Passphrase>) -> Result<Ring, KeyError> {
    let (bytes, header, length) = read(path)?;
    let name = path.display().to_string();
    if matches!(header.lock, Lock::Recipient { .. }) {
        let why = "it is sealed to the owner of a key, and under no passphrase".to_owned();
        return Err(KeyError::NoExport { file: name, why });
    }
    let passphrase = ask().ok_or_else(|| KeyError::Locked { store: name.clone() })?;
    let wrong = || KeyError::WrongPassphrase { store: format!("the export {name}") };
    let master = unwrap_master(&header, &passphrase).ok_or_else(wrong)?;
    contents(name, &bytes, length, &master)
}

fn read(path: &Path) -> Result<(Vec<u8>, Header, usize), KeyError> {
    let none = |why: String| KeyError::NoExport { file: path.display().to_string(), why };
    let cannot = |error: io::Error| none(format!("it cannot be read ({error})"));
    let file = fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, LENGTH_MAX), &mut bytes).map_err(cannot)?;
    let (header, length) = Header::decode(&bytes)
        .ok()
        .filter(|(header, _)| header.kind == Kind::Export)
        .ok_or_else(|| none("it does not begin as this Gambeson's exports do".to_owned()))?;
    Ok((bytes, header, length))
}

fn contents(name: String, bytes: &[u8], length: usize, master: &Secret32) -> Result<Ring, KeyError> {
    let contents = format::open(bytes, length, master);
    let contents = contents.map_err(|_| KeyError::altered(&name, "what stands behind its first bytes"))?;
    Ok(Ring { store: name, labels: contents.labels })
}

fn seal(
    labels: &Ring,
    lock: impl FnOnce(&[u8; 16], &Secret32) -> Result<Lock, getrandom::Error>,
) -> Result<Vec<u8>, getrandom::Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    let master = draw()?;
    let header = Header { kind: Kind::Export, id, serial: 1, lock: lock(&id, &master)? };
    let contents =
        Contents { anchor_key: Secret32::from_bytes([0; 32]), home: PathBuf::new(), labels: labels.labels.clone() };
    format::seal(&header, &master, &contents)
}

/// Larger than any key file is, in bytes.
const LENGTH_MAX: u64 = 16 << 20;
