//! The kernel's session keyring (session-keyring(7)), which remembers an unlocked store's master key until the session
//! ends.
//!
//! It is in no file and in no process, and whoever starts from the same session finds it, ranks of a job on this host
//! included.

use std::fmt;

use gambeson_proto::secret::Secret32;
use linux_keyutils::{Key, KeyError as KernelError, KeyRing, KeyRingIdentifier};
use zeroize::Zeroize;

use crate::error::hexadecimal;

/// What the kernel says when it remembers nothing.
#[derive(Debug)]
pub(crate) struct Refusal(KernelError);

/// Remembers the master key of a store, for so many seconds or until the session ends.
pub(crate) fn remember(store: &[u8; 16], master: &Secret32, seconds: Option<u32>) -> Result<(), Refusal> {
    let key = session().and_then(|ring| ring.add_key(&description(store), master.as_bytes())).map_err(Refusal)?;
    match seconds {
        Some(seconds) => key.set_timeout(seconds as usize).map_err(Refusal),
        None => Ok(()),
    }
}

/// The master key of a store, if it is remembered.
pub(crate) fn recall(store: &[u8; 16]) -> Option<Secret32> {
    let key = find(store)?;
    let mut bytes = [0; 33];
    let length = key.read(&mut bytes).ok();
    let secret = (length == Some(32)).then(|| Secret32::filled(|secret| secret.copy_from_slice(&bytes[..32])));
    bytes.zeroize();
    secret
}

/// Forgets it, and says whether it was remembered.
pub(crate) fn forget(store: &[u8; 16]) -> Result<bool, Refusal> {
    match find(store) {
        Some(key) => key.invalidate().map(|()| true).map_err(Refusal),
        None => Ok(false),
    }
}

fn find(store: &[u8; 16]) -> Option<Key> {
    session().and_then(|ring| ring.search(&description(store))).ok()
}

/// Asked for by its own number: a process without a session of its own would be given one by adding to it, which ends with
/// the process. So it gets the one that all of the user's have.
fn session() -> Result<KeyRing, KernelError> {
    KeyRing::from_special_id(KeyRingIdentifier::Session, false)
}

fn description(store: &[u8; 16]) -> String {
    format!("gambeson:{}", hexadecimal(store))
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the kernel's keyring: {}", self.0)
    }
}
