//! Where files were last: one small file each in the store's folder `anchors`.
//!
//! ```text
//! anchors/<file id in hexadecimal>    generation u64 | root 32 | HMAC-SHA-256 32
//! anchors/lock                        who writes one holds it
//! ```
//! The MAC, under a key that is in the store, is over "gambeson anchor v1" | file id | generation | root. So nobody else
//! makes an anchor up. Whoever may write in the folder can take one away or put an older one back: the store is to lie
//! where those who could alter the files cannot write.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use gambeson_proto::secret::Secret32;

use crate::anchorage::{Anchorage, Direction};
use crate::error::hexadecimal;
use crate::{Anchor, KeyError};

/// The anchors of one store.
#[derive(Debug)]
pub(crate) struct Anchors {
    store: String,
    folder: PathBuf,
    key: Secret32,
}

impl Anchors {
    pub(crate) fn new(store: &Path, key: Secret32) -> Self {
        Anchors { store: store.display().to_string(), folder: store.join(FOLDER), key }
    }

    pub(crate) fn not_anchored(&self, file: &[u8; 16], why: String) -> KeyError {
        KeyError::NotAnchored { store: self.store.clone(), file: *file, why }
    }

    fn lock(&self) -> io::Result<File> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.folder.join(LOCK))?;
        lock.lock()?;
        Ok(lock)
    }

    fn path(&self, file: &[u8; 16]) -> PathBuf {
        self.folder.join(hexadecimal(file))
    }

    fn mac_key(&self) -> Result<hmac::Key, KeyError> {
        if self.key.is_wiped() {
            return Err(KeyError::Forked { store: self.store.clone() });
        }
        Ok(hmac::Key::new(hmac::HMAC_SHA256, self.key.as_bytes()))
    }
}

impl Anchorage for Anchors {
    fn anchor(&self, file: &[u8; 16]) -> Result<Option<Anchor>, KeyError> {
        let path = self.path(file);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(KeyError::system(&self.store, format!("reading {}", path.display()), &error)),
        };
        let altered = || KeyError::altered(&self.store, format!("the anchor {}", path.display()));
        let (anchor, mac) = bytes.split_last_chunk::<MAC>().ok_or_else(altered)?;
        let (generation, root) = anchor.split_first_chunk().ok_or_else(altered)?;
        let anchor =
            Anchor { generation: u64::from_be_bytes(*generation), root: root.try_into().map_err(|_| altered())? };
        hmac::verify(&self.mac_key()?, &message(file, &anchor), mac).map_err(|_| altered())?;
        Ok(Some(anchor))
    }

    /// The folder is its owner's alone, whatever the labels.
    fn set_anchor(
        &self,
        file: &[u8; 16],
        _labels: &[&str],
        anchor: &Anchor,
        direction: Direction,
    ) -> Result<(), KeyError> {
        let cannot = |error: io::Error| self.not_anchored(file, error.to_string());
        let key = self.mac_key()?;
        let _held = self.lock().map_err(cannot)?;
        let held = self.anchor(file)?;
        if held == Some(*anchor) {
            return Ok(());
        }
        if let Some(held) = held.filter(|held| held.generation > anchor.generation && direction == Direction::Forward) {
            return Err(KeyError::OlderAnchor {
                store: self.store.clone(),
                file: *file,
                held: held.generation,
                given: anchor.generation,
            });
        }
        let mut record = message(file, anchor)[MESSAGE.len() + file.len()..].to_vec();
        record.extend(hmac::sign(&key, &message(file, anchor)).as_ref());
        replace(&self.path(file), &record).map_err(cannot)
    }
}

/// Puts a file of its owner's alone into its place: the old one or the new one is there, whatever happens. One does it at
/// a time.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn message(file: &[u8; 16], anchor: &Anchor) -> Vec<u8> {
    [MESSAGE, file, &anchor.generation.to_be_bytes(), &anchor.root].concat()
}

const FOLDER: &str = "anchors";
const LOCK: &str = "lock";
const MESSAGE: &[u8] = b"gambeson anchor v1";
const MAC: usize = 32;
