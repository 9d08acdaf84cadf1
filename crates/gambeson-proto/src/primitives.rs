//! X25519 (RFC 7748), HMAC-SHA256 (RFC 2104), HKDF-SHA256 (RFC 5869) and Ed25519 (RFC 8032), from and
//! into memory that the caller chose.
//!
//! aws-lc's one-shot functions are called directly. Its safe interface keeps private keys on the C
//! heap, which is neither wiped on fork nor left out of core dumps (threat-model rule 6), leaves
//! copies of secrets on the stack, and allocates, which a miss of the key cache must not do. None
//! of these functions draws on aws-lc's random number generator, whose start-up costs a process
//! tens of milliseconds.
#![allow(unsafe_code)]

use aws_lc_sys::{ED25519_verify, EVP_sha256, HKDF_expand, HKDF_extract, HMAC, X25519, X25519_public_from_private};

use crate::secret::Secret32;

/// The public key of a private one.
pub(crate) fn x25519_public(private: &Secret32) -> [u8; 32] {
    let mut public = [0; 32];
    // SAFETY: both pointers are to 32 bytes.
    unsafe { X25519_public_from_private(public.as_mut_ptr(), private.as_bytes().as_ptr()) };
    public
}

/// The shared secret; `None` when it is all zero because `peer` is of low order.
pub(crate) fn x25519(private: &Secret32, peer: &[u8; 32]) -> Option<Secret32> {
    let mut agreed = 0;
    let shared = Secret32::filled(|shared| {
        // SAFETY: all three pointers are to 32 bytes, and the output is apart from the inputs.
        agreed = unsafe { X25519(shared.as_mut_ptr(), private.as_bytes().as_ptr(), peer.as_ptr()) };
    });
    (agreed == 1 && !shared.is_wiped()).then_some(shared)
}

/// HMAC-SHA256.
pub(crate) fn hmac(key: &Secret32, message: &[u8]) -> [u8; 32] {
    let key = key.as_bytes();
    let mut mac = [0; 32];
    let mut len = 0;
    // SAFETY: key and message go with their lengths, and SHA-256 has 32 bytes.
    let done = unsafe {
        let (message, size) = (message.as_ptr(), message.len());
        HMAC(EVP_sha256(), key.as_ptr().cast(), key.len(), message, size, mac.as_mut_ptr(), &mut len)
    };
    assert!(!done.is_null() && len == 32, "HMAC-SHA256 takes every key and message");
    mac
}

/// HKDF-Extract without salt.
pub(crate) fn extract(material: &[u8]) -> Secret32 {
    Secret32::filled(|prk| {
        let mut len = 0;
        // SAFETY: the material goes with its length, the salt is empty, and SHA-256 has 32 bytes.
        let done = unsafe {
            let (material, size) = (material.as_ptr(), material.len());
            HKDF_extract(prk.as_mut_ptr(), &mut len, EVP_sha256(), material, size, [].as_ptr(), 0)
        };
        assert!(done == 1 && len == 32, "HKDF-Extract takes every material");
    })
}

/// HKDF-Expand.
pub(crate) fn expand(prk: &Secret32, info: &[u8], out: &mut [u8]) {
    let prk = prk.as_bytes();
    // SAFETY: every pointer goes with its length, and the output is apart from the inputs.
    let done = unsafe {
        let (out, size) = (out.as_mut_ptr(), out.len());
        HKDF_expand(out, size, EVP_sha256(), prk.as_ptr(), prk.len(), info.as_ptr(), info.len())
    };
    assert_eq!(done, 1, "HKDF-Expand gives up to 8160 bytes");
}

/// Whether an Ed25519 signature is right.
pub(crate) fn ed25519_verifies(public: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    // SAFETY: the message goes with its length, a key has 32 bytes and a signature 64.
    unsafe { ED25519_verify(message.as_ptr(), message.len(), signature.as_ptr(), public.as_ptr()) == 1 }
}
