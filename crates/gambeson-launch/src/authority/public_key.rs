//! Public keys that an authority certifies: Ed25519, and on P-256 those in tokens, since every TPM 2.0 has that curve.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
use gambeson_link::KeyHash;
use gambeson_pkcs11::P256_INFO;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, SignatureAlgorithm};

/// Somebody's public key, told apart by its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// 32 bytes of Ed25519 (RFC 8032), or a point on P-256 in 65 (SEC 1, 2.3.3).
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_one = bytes.len() == 32 || (bytes.len() == 65 && bytes[0] == 4);
        is_one.then(|| PublicKey(bytes.to_vec()))
    }

    /// From a SubjectPublicKeyInfo in DER.
    pub(super) fn from_info(info: &[u8]) -> Option<Self> {
        let bytes = info.strip_prefix(&gambeson_site::directory::ED25519).filter(|key| key.len() == 32);
        Self::new(bytes.or_else(|| info.strip_prefix(&P256_INFO).filter(|key| key.len() == 65))?)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// By what it is known: SHA-256 of its SubjectPublicKeyInfo.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        let before = if self.0.len() == 32 { &gambeson_site::directory::ED25519[..] } else { &P256_INFO[..] };
        KeyHash::of_public_key(&[before, &self.0].concat())
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.0.len() {
            32 => UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok(),
            _ => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0).verify(message, signature).is_ok(),
        }
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        if self.0.len() == 32 { &PKCS_ED25519 } else { &PKCS_ECDSA_P256_SHA256 }
    }
}
