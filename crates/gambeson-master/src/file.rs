//! A master key in a file, under a passphrase (Argon2id, RFC 9106).
//!
//! ```text
//! magic "GMBSNMST" | version u16 | memory in KiB u32 | passes u32 | lanes u32 | salt 16 | sealed: nonce 12 | key 32 | tag 16
//! ```
//! Big endian. The key is sealed by AES-256-GCM-SIV under Argon2id of passphrase and salt, bound to all that stands before it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use gambeson_keys::cipher::{self, OVERHEAD};
use gambeson_keys::{Cost, Passphrase, SALT, SHORTEST};
use gambeson_proto::secret::Secret32;
use gambeson_site::job::read_secret;

use crate::error::no_random_numbers;
use crate::wrapping::{Holder, Way};
use crate::{Ask, Made, MasterError};

pub(crate) struct File {
    path: PathBuf,
    key: Secret32,
}

impl File {
    pub(crate) fn open(path: &Path, ask: &mut Ask<'_>) -> Result<Self, MasterError> {
        let name = path.display();
        if matches!(fs::symlink_metadata(path), Err(cause) if cause.kind() == io::ErrorKind::NotFound) {
            return Err(MasterError::Refused(format!(
                "there is no master key file:{name}; put the file back from where its copy is kept: what it has wrapped opens \
                 with nothing else"
            )));
        }
        let bytes = read_secret(path).map_err(|why| {
            MasterError::Refused(format!(
                "the master key file:{name} cannot be used: {why}; it has to be a file of the same user that nobody else may \
                 read (chmod 600)"
            ))
        })?;
        let no_file = || {
            MasterError::Refused(format!("file:{name} holds no master key of this Gambeson's; take it from a backup"))
        };
        let file: &[u8; LENGTH] = bytes.as_slice().try_into().map_err(|_| no_file())?;
        let (before, sealed) = file.split_at(LENGTH - SEALED);
        let cost = before[MAGIC.len()..][..12].try_into().ok().and_then(Cost::decode);
        let cost = cost.filter(|_| before.starts_with(&MAGIC)).ok_or_else(no_file)?;
        let salt = before[MAGIC.len() + 12..].try_into().expect("it is the rest");
        let passphrase = ask(&format!("Passphrase of the master key {name}: ")).ok_or_else(|| {
            MasterError::Refused(format!("the master key file:{name} is locked, and nobody gives its passphrase"))
        })?;
        let key = cipher::open(&Passphrase::new(passphrase).key(&cost, salt), before, sealed).ok_or_else(|| {
            MasterError::Refused(format!(
                "the passphrase is not that of the master key file:{name}, or the file was altered; try again"
            ))
        })?;
        let key = Secret32::filled(|place| place.copy_from_slice(&key));
        Ok(File { path: path.to_owned(), key })
    }

    pub(crate) fn open_or_make(path: &Path, ask: &mut Ask<'_>) -> Result<(Self, Made), MasterError> {
        if fs::symlink_metadata(path).is_ok() {
            return Self::open(path, ask).map(|key| (key, Made::Before));
        }
        let passphrase = new_passphrase(path, ask)?;
        let key = cipher::draw().map_err(no_random_numbers)?;
        let file = seal(&key, &passphrase, Cost::DEFAULT).map_err(no_random_numbers)?;
        write_new(path, &file).map_err(|cause| {
            MasterError::Refused(format!(
                "the master key file:{} cannot be made ({cause}); make its folder, or name another place",
                path.display()
            ))
        })?;
        Ok((File { path: path.to_owned(), key }, Made::Now))
    }
}

impl Holder for File {
    fn name(&self) -> String {
        crate::Place::File(self.path.clone()).to_string()
    }

    fn way(&self) -> Way {
        Way::Mac
    }

    fn mac(&self, message: &[u8]) -> Result<Secret32, MasterError> {
        mac(&self.key, message)
    }
}

/// HMAC-SHA-256 under a master key that is in this process.
pub(crate) fn mac(key: &Secret32, message: &[u8]) -> Result<Secret32, MasterError> {
    if key.is_wiped() {
        let what = "this process was forked from the one that opened the master key, and has none; let it open its own";
        return Err(MasterError::Unavailable(what.into()));
    }
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), message);
    Ok(Secret32::filled(|secret| secret.copy_from_slice(mac.as_ref())))
}

fn new_passphrase(path: &Path, ask: &mut Ask<'_>) -> Result<Passphrase, MasterError> {
    let name = path.display();
    let nobody =
        || MasterError::Refused(format!("a new master key file:{name} needs a passphrase, and nobody gives one"));
    let first = Passphrase::new(ask(&format!("New passphrase of the master key {name}: ")).ok_or_else(nobody)?);
    if first.is_short() {
        return Err(MasterError::Refused(format!(
            "a passphrase of fewer than {SHORTEST} bytes is guessed whatever it is made into, so the master key file:{name} was \
             not made; take several words"
        )));
    }
    if Passphrase::new(ask("The same again: ").ok_or_else(nobody)?) != first {
        return Err(MasterError::Refused(format!(
            "the two passphrases are not the same, so the master key file:{name} was not made; try again"
        )));
    }
    Ok(first)
}

fn seal(key: &Secret32, passphrase: &Passphrase, cost: Cost) -> Result<Vec<u8>, getrandom::Error> {
    let mut salt = [0; SALT];
    getrandom::fill(&mut salt)?;
    let mut file = [&MAGIC[..], &cost.encode(), &salt].concat();
    let sealed = cipher::seal(&passphrase.key(&cost, &salt), &file, key.as_bytes())?;
    file.extend(sealed);
    Ok(file)
}

/// Writes a file that must not be there yet, for good: whole or not at all.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let done = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::File::open(folder)?.sync_all());
    if done.is_err() {
        let _ = fs::remove_file(path);
    }
    done
}

const MAGIC: [u8; 10] = *b"GMBSNMST\0\x01";
const SEALED: usize = 32 + OVERHEAD;
const LENGTH: usize = MAGIC.len() + 12 + SALT + SEALED;
