//! Keys for the owner of a public key: HPKE (RFC 9180), base mode, X25519, HKDF-SHA256, AES-256-GCM.
//!
//! The certificates of a site are for keys that sign (Ed25519, P-256 in tokens), which is no way to seal anything to their
//! owners; so a recipient has a key for this alone. Whoever records what is sealed so and has a quantum computer later
//! reads it: links between hosts are hybrid, and this is not.

use gambeson_proto::secret::Secret32;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};
use zeroize::Zeroizing;

use crate::SEALED_TO;

/// A fresh key pair: the public key, and the private one.
///
/// # Errors
/// When the system gives no random numbers.
pub fn generate() -> Result<([u8; 32], Secret32), String> {
    let (public, private) =
        SUITE.generate_key_pair().map_err(|cause| format!("no key can be made for a recipient ({cause})"))?;
    let public = public.0.try_into().expect("a public key of X25519 has 32 bytes");
    Ok((public, Secret32::filled(|secret| secret.copy_from_slice(private.secret_bytes()))))
}

/// Seals a secret to the owner of a public key, bound to an info.
///
/// # Errors
/// When the public key is none.
pub fn seal(public: &[u8; 32], info: &[u8], secret: &Secret32) -> Result<[u8; SEALED_TO], String> {
    let sealed = seal_bytes(public, info, secret.as_bytes())?;
    Ok(sealed.try_into().expect("a secret of 32 bytes is sealed into as many and a tag"))
}

/// What was sealed to the owner of this private key; `None`: it was not, or to another, or with another info.
#[must_use]
pub fn open(private: &Secret32, info: &[u8], sealed: &[u8; SEALED_TO]) -> Option<Secret32> {
    let opened = open_bytes(private, info, sealed)?;
    let opened: &[u8; 32] = opened.as_slice().try_into().ok()?;
    Some(Secret32::filled(|secret| secret.copy_from_slice(opened)))
}

/// As [`seal`], for so many bytes.
///
/// # Errors
/// As there.
pub fn seal_bytes(public: &[u8; 32], info: &[u8], bytes: &[u8]) -> Result<Vec<u8>, String> {
    let sealed = SUITE.seal(info, &[], bytes, &HpkePublicKey(public.to_vec()));
    let (EncapsulatedSecret(mut out), sealed) =
        sealed.map_err(|_| "the recipient's public key is none of X25519".to_owned())?;
    out.extend(sealed);
    Ok(out)
}

/// As [`open`], for so many bytes.
#[must_use]
pub fn open_bytes(private: &Secret32, info: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (encapsulated, sealed) = sealed.split_at_checked(32)?;
    // The key is wiped when it goes.
    let private = HpkePrivateKey::from(private.as_bytes().to_vec());
    let opened = SUITE.open(&EncapsulatedSecret(encapsulated.to_vec()), info, &[], sealed, &private);
    opened.ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_owner_opens_it_and_nobody_else() {
        let (public, private) = generate().unwrap();
        let (_, other) = generate().unwrap();
        let secret = Secret32::from_bytes([7; 32]);
        let sealed = seal(&public, b"here", &secret).unwrap();
        assert_eq!(open(&private, b"here", &sealed), Some(secret));
        assert_eq!(open(&other, b"here", &sealed), None);
        assert_eq!(open(&private, b"there", &sealed), None);
        for bit in (0..sealed.len() * 8).step_by(7) {
            let mut altered = sealed;
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&private, b"here", &altered), None, "bit {bit}");
        }
        assert!(seal(&[0; 32], b"here", &Secret32::from_bytes([7; 32])).is_err(), "a point of low order");
    }
}
