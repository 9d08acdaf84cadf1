//! The chain that a startpoint is: a name that everybody can compute, and a secret that goes with it.
//!
//! ```text
//!  name 0   = SHA-256(label, owner, endpoint, root id, class[, transforms])
//!                                                              secret 0   = HKDF(endpoint key, name 0)
//!  name i+1 = SHA-256(name i, caveat i)                         secret i+1 = Expand(secret i, name i+1)
//! ```

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};

use super::caveat::CopyCaveat;
use super::transforms::Transforms;
use crate::key_schedule::{KeyHash, caveat_name, caveat_secret, root_name, root_secret};
use crate::primitives::ed25519_verifies;
use crate::secret::Secret32;

/// Public name of a place in a chain.
pub(super) type Name = [u8; 32];

/// An endpoint's own secret: all its startpoints' come from it.
#[derive(Clone, Debug)]
pub struct EndpointKey(Secret32);

impl EndpointKey {
    /// The key of these bytes, which must be random and used for one endpoint only.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        EndpointKey(Secret32::from_bytes(bytes))
    }
}

/// Which endpoint a startpoint belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) owner: KeyHash,
    pub(super) endpoint: u64,
    pub(super) root: [u8; 16],
    pub(super) class: Box<str>,
    pub(super) transforms: Transforms,
}

impl Origin {
    pub(super) fn name(&self) -> Name {
        root_name(&self.owner, self.endpoint, &self.root, &self.class, self.transforms.as_str())
    }
}

/// A place in a chain, with its secret.
#[derive(Clone)]
pub(super) struct Chain {
    pub(super) name: Name,
    pub(super) secret: Secret32,
}

impl Chain {
    pub(super) fn root(key: &EndpointKey, origin: &Origin) -> Self {
        let name = origin.name();
        Chain { secret: root_secret(&key.0, &name), name }
    }

    /// Goes on by one caveat.
    pub(super) fn append(&mut self, caveat: &[u8]) {
        self.name = caveat_name(&self.name, caveat);
        self.secret = caveat_secret(&self.secret, &self.name);
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({:02x}{:02x}..)", self.name[0], self.name[1])
    }
}

/// What a holder signs to pass a startpoint on: the chain as it was until then, and the copy. In the form of TLS 1.3
/// (RFC 8446, 4.4.3), so that no signature under the same key that a handshake wants can be taken for it.
pub(super) fn vouched(before: &Name, copy: &CopyCaveat) -> [u8; VOUCHED] {
    let parts: [&[u8]; 5] = [&[0x20; 64], CONTEXT, before, &copy.id, &copy.holder];
    parts.concat().try_into().expect("all parts have their lengths")
}

const CONTEXT: &[u8; 31] = b"Gambeson, copy of a startpoint\0";
const VOUCHED: usize = 64 + CONTEXT.len() + 32 + 16 + 32;

/// Whether the holder so far, if there is one, vouches for a copy, and nobody else does.
pub(super) fn is_vouched(before: &Name, holder: Option<&KeyHash>, copy: &CopyCaveat) -> bool {
    match (holder, &copy.voucher) {
        (None, None) => true,
        (Some(holder), Some(voucher)) => {
            key_hash(&voucher.key) == *holder
                && ed25519_verifies(&voucher.key, &vouched(before, copy), &voucher.signature)
        }
        _ => false,
    }
}

/// The hash by which a domain with this Ed25519 key is known (RFC 8410 has the prefix).
pub fn key_hash(key: &[u8; 32]) -> KeyHash {
    let mut info = [0; 44];
    info[..12].copy_from_slice(&[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00]);
    info[12..].copy_from_slice(key);
    digest(&SHA256, &info).as_ref().try_into().expect("SHA-256 has 32 bytes")
}
