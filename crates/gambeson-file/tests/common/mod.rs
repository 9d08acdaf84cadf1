//! Keys in memory, and files that tests make and remove.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_file::{Below, Error, Head, LocalBody, Map, SealedFile, Shape, Then, create, sidecar};
use gambeson_keys::{Anchor, KeyError, Keys, Label};
use gambeson_proto::file::FileSuite;
use gambeson_proto::file::region::Part;
use gambeson_proto::secret::Secret32;

/// What one identity holds: labels to read with, and some of them to write with.
pub struct Ring {
    labels: HashMap<String, bool>,
    anchors: Mutex<HashMap<[u8; 16], Anchor>>,
}

impl Ring {
    pub fn new(labels: &[(&str, bool)]) -> Arc<Self> {
        let labels = labels.iter().map(|(name, may_write)| ((*name).to_owned(), *may_write)).collect();
        Arc::new(Ring { labels, anchors: Mutex::default() })
    }

    pub fn all() -> Arc<Self> {
        Ring::new(&[("clinical", true), ("trial", true)])
    }

    fn known(&self, label: &str) -> Result<bool, KeyError> {
        let missing = || KeyError::NoLabel { store: "the test's".to_owned(), label: label.to_owned() };
        self.labels.get(label).copied().ok_or_else(missing)
    }
}

fn secret(label: &str, purpose: u8) -> [u8; 32] {
    let mut secret = [purpose; 32];
    secret[..label.len()].copy_from_slice(label.as_bytes());
    secret
}

fn wrapping(label: &str) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, &secret(label, 1)).unwrap())
}

fn signing(label: &str) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&secret(label, 2)).unwrap()
}

impl Keys for Ring {
    fn label(&self, name: &str) -> Result<Label, KeyError> {
        let may_write = self.known(name)?;
        Ok(Label { version: 1, verifying_key: self.verifying_key(name, 1)?, may_write, expires: None })
    }

    fn verifying_key(&self, label: &str, _version: u32) -> Result<[u8; 32], KeyError> {
        self.known(label)?;
        Ok(signing(label).public_key().as_ref().try_into().unwrap())
    }

    fn wrap(&self, label: &str, _version: u32, context: &[u8], key: &Secret32) -> Result<Vec<u8>, KeyError> {
        self.known(label)?;
        let mut bytes = key.as_bytes().to_vec();
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        wrapping(label).seal_in_place_append_tag(nonce, Aad::from(context), &mut bytes).unwrap();
        Ok(bytes)
    }

    fn unwrap(&self, label: &str, version: u32, context: &[u8], wrapped: &[u8]) -> Result<Secret32, KeyError> {
        self.known(label)?;
        let mut bytes = wrapped.to_vec();
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        let wrong = |_| KeyError::WrongWrapping { store: "the test's".to_owned(), label: label.to_owned(), version };
        let key = wrapping(label).open_in_place(nonce, Aad::from(context), &mut bytes).map_err(wrong)?;
        Ok(Secret32::from_bytes((&*key).try_into().unwrap()))
    }

    fn sign(&self, label: &str, _version: u32, message: &[u8]) -> Result<[u8; 64], KeyError> {
        if !self.known(label)? {
            return Err(KeyError::MayNotWrite { store: "the test's".to_owned(), label: label.to_owned() });
        }
        Ok(signing(label).sign(message).as_ref().try_into().unwrap())
    }

    fn anchor(&self, file: &[u8; 16]) -> Result<Option<Anchor>, KeyError> {
        Ok(self.anchors.lock().unwrap().get(file).copied())
    }

    fn set_anchor(&self, file: &[u8; 16], _labels: &[&str], anchor: &Anchor) -> Result<(), KeyError> {
        self.anchors.lock().unwrap().insert(*file, *anchor);
        Ok(())
    }
}

/// A folder in memory that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = Path::new("/dev/shm").join(format!("gambeson-file-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn body(path: &Path) -> LocalBody {
    LocalBody::new(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap())
}

pub fn map(label: Option<&str>, parts: Vec<Part>) -> Map {
    Map { label: label.map(str::to_owned), suite: FileSuite::default(), parts }
}

pub fn make(path: &Path, keys: &Arc<Ring>, block_len: u32, maps: &[Map]) {
    make_shaped(path, keys, Shape { block_len, ..Shape::default() }, maps);
}

pub fn make_shaped(path: &Path, keys: &Arc<Ring>, shape: Shape, maps: &[Map]) {
    create("it", &below(path, shape.detached), keys.as_ref(), shape, maps).unwrap();
}

/// The file or files, made if they are not there.
pub fn below(path: &Path, is_detached: bool) -> Below<LocalBody> {
    match is_detached {
        true => Below::detached(body(&sidecar(path)), body(path)),
        false => Below::attached(body(path)),
    }
}

/// A file's kind by chance: two slots per block, detached, or neither.
pub fn shape(block_len: u32, random: &mut impl rand::Rng) -> Shape {
    let kind = random.random_range(0..5);
    Shape { block_len, two_slots: kind < 2, detached: kind == 2 }
}

pub fn open(path: &Path, keys: &Arc<Ring>) -> Result<SealedFile<LocalBody>, Error> {
    let below = gambeson_file::open(path, OpenOptions::new().read(true).write(true)).unwrap();
    let head = Head::read(below.sealed()).unwrap().expect("it is a sealed file");
    SealedFile::open("it", below, head, keys.clone())
}

pub fn open_to_write(path: &Path, keys: &Arc<Ring>) -> SealedFile<LocalBody> {
    let mut file = open(path, keys).unwrap();
    file.begin().unwrap();
    file
}

pub fn close(mut file: SealedFile<LocalBody>) {
    file.anchor(Then::Close).unwrap();
}
