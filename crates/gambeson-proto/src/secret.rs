//! A 32-byte secret that is wiped when it goes and never printed.

use std::fmt;

use gambeson_pages::PageBox;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// 32 secret bytes, on a page that a forked child finds empty and no core dump holds (threat-model rule 6).
pub struct Secret32(PageBox<[u8; 32]>);

impl Secret32 {
    /// Takes the bytes over.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let bytes = Zeroizing::new(bytes);
        Secret32::filled(|secret| secret.copy_from_slice(&*bytes))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A secret that `fill` writes where it will stay, so that no copy is left behind.
    pub fn filled(fill: impl FnOnce(&mut [u8; 32])) -> Self {
        let mut secret = Secret32(PageBox::zeroed());
        fill(&mut secret.0);
        secret
    }

    /// Whether it is all zero: what a forked child finds on pages that are wiped on fork, and what
    /// no derivation gives.
    pub fn is_wiped(&self) -> bool {
        self.as_bytes().ct_eq(&[0; 32]).into()
    }
}

impl Clone for Secret32 {
    fn clone(&self) -> Self {
        Secret32::filled(|secret| secret.copy_from_slice(self.as_bytes()))
    }
}

impl PartialEq for Secret32 {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl Eq for Secret32 {}

impl fmt::Debug for Secret32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret32(..)")
    }
}
