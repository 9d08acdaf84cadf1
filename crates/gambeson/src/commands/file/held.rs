//! A key ring whose anchors are held back: until a file is in its place, or for who wants to look at an old one.

use std::sync::{Arc, Mutex};

use gambeson_keys::{Anchor, KeyError, KeyRing, Keys, Label};
use gambeson_proto::file::FileId;
use gambeson_proto::secret::Secret32;

use crate::failure::Failure;

/// Keys that keep an anchor until the file is in its place.
pub(super) struct Held {
    ring: Arc<KeyRing>,
    forgets: bool,
    anchor: Mutex<Option<(FileId, Vec<String>, Anchor)>>,
}

impl Held {
    pub(super) fn new(ring: Arc<KeyRing>) -> Self {
        Held { ring, forgets: false, anchor: Mutex::default() }
    }

    /// Has never seen any file.
    pub(super) fn forgetful(ring: Arc<KeyRing>) -> Self {
        Held { forgets: true, ..Self::new(ring) }
    }

    /// The ring itself.
    pub(super) fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Records what was kept. A file that can't be anchored is there all the same.
    pub(super) fn anchor_now(&self) -> Result<(), Failure> {
        let Some((file, labels, anchor)) = self.anchor.lock().expect("nobody panics with it").take() else {
            return Ok(());
        };
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        match self.ring.set_anchor(&file, &labels, &anchor) {
            Ok(()) => Ok(()),
            Err(error @ KeyError::NotAnchored { .. }) => {
                eprintln!("gambeson: {error}");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Keys for Held {
    fn prepare(&self, labels: &[(&str, u32)]) {
        self.ring.prepare(labels);
    }

    fn refused_writing(&self, label: &str) -> Option<KeyError> {
        self.ring.refused_writing(label)
    }

    fn label(&self, name: &str) -> Result<Label, KeyError> {
        self.ring.label(name)
    }

    fn verifying_key(&self, label: &str, version: u32) -> Result<[u8; 32], KeyError> {
        self.ring.verifying_key(label, version)
    }

    fn wrap(&self, label: &str, version: u32, context: &[u8], key: &Secret32) -> Result<Vec<u8>, KeyError> {
        self.ring.wrap(label, version, context, key)
    }

    fn unwrap(&self, label: &str, version: u32, context: &[u8], wrapped: &[u8]) -> Result<Secret32, KeyError> {
        self.ring.unwrap(label, version, context, wrapped)
    }

    fn sign(&self, label: &str, version: u32, message: &[u8]) -> Result<[u8; 64], KeyError> {
        self.ring.sign(label, version, message)
    }

    fn anchor(&self, file: &[u8; 16]) -> Result<Option<Anchor>, KeyError> {
        if self.forgets { Ok(None) } else { self.ring.anchor(file) }
    }

    fn set_anchor(&self, file: &[u8; 16], labels: &[&str], anchor: &Anchor) -> Result<(), KeyError> {
        *self.anchor.lock().expect("nobody panics with it") =
            Some((*file, labels.iter().map(|&label| label.to_owned()).collect(), *anchor));
        Ok(())
    }
}
