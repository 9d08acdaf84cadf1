//! A 32-byte secret that is wiped when it goes and never printed.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// 32 secret bytes.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret32([u8; 32]);

impl Secret32 {
    /// Takes the bytes over.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Secret32(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A secret that `fill` writes where it will stay, so that no copy is left behind.
    pub(crate) fn filled(fill: impl FnOnce(&mut [u8; 32])) -> Self {
        let mut secret = Secret32([0; 32]);
        fill(&mut secret.0);
        secret
    }

    /// Whether it is all zero: what a forked child finds on pages that are wiped on fork, and what
    /// no derivation gives.
    pub(crate) fn is_wiped(&self) -> bool {
        self.0.ct_eq(&[0; 32]).into()
    }
}

impl PartialEq for Secret32 {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret32 {}

impl fmt::Debug for Secret32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret32(..)")
    }
}
