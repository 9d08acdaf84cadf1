//! The keys of a rank that has none: it takes part in opening a file, and is told why it can't read it.

use gambeson_keys::{Anchor, KeyError, Keys, Label};
use gambeson_proto::secret::Secret32;

/// Why there are none.
pub(crate) struct NoKeys(pub(crate) KeyError);

impl NoKeys {
    fn none<T>(&self) -> Result<T, KeyError> {
        Err(self.0.clone())
    }
}

impl Keys for NoKeys {
    fn label(&self, _name: &str) -> Result<Label, KeyError> {
        self.none()
    }

    fn verifying_key(&self, _label: &str, _version: u32) -> Result<[u8; 32], KeyError> {
        self.none()
    }

    fn wrap(&self, _label: &str, _version: u32, _context: &[u8], _key: &Secret32) -> Result<Vec<u8>, KeyError> {
        self.none()
    }

    fn unwrap(&self, _label: &str, _version: u32, _context: &[u8], _wrapped: &[u8]) -> Result<Secret32, KeyError> {
        self.none()
    }

    fn sign(&self, _label: &str, _version: u32, _message: &[u8]) -> Result<[u8; 64], KeyError> {
        self.none()
    }

    fn anchor(&self, _file: &[u8; 16]) -> Result<Option<Anchor>, KeyError> {
        self.none()
    }

    fn set_anchor(&self, _file: &[u8; 16], _labels: &[&str], _anchor: &Anchor) -> Result<(), KeyError> {
        self.none()
    }
}
