//! AES-256-GCM-SIV (RFC 8452) under random nonces, for what keys wrap: data keys, and the contents of key files.
//!
//! Label keys live for years and are in many hands at once, so nobody counts what is sealed under them. With plain GCM a
//! nonce that comes twice gives the key away; with GCM-SIV it says at most that the same thing was wrapped twice.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

/// By how much what is sealed is longer: nonce 12 | ... | tag 16.
pub const OVERHEAD: usize = NONCE_LEN + TAG;
const TAG: usize = 16;

/// `nonce | ciphertext | tag`.
///
/// # Errors
/// When the kernel gives no random numbers.
pub fn seal(key: &Secret32, ad: &[u8], plain: &[u8]) -> Result<Vec<u8>, getrandom::Error> {
    let mut sealed = vec![0; OVERHEAD + plain.len()];
    let (nonce, rest) = sealed.split_at_mut(NONCE_LEN);
    let (body, place) = rest.split_at_mut(plain.len());
    getrandom::fill(nonce)?;
    body.copy_from_slice(plain);
    let nonce = Nonce::try_assume_unique_for_key(nonce).expect("it has the length of a nonce");
    let tag = expanded(key).seal_in_place_separate_tag(nonce, Aad::from(ad), body);
    place.copy_from_slice(tag.expect("GCM-SIV seals less than 64 GiB").as_ref());
    Ok(sealed)
}

/// What was sealed; `None`: it was not, under this key, with this associated data.
pub fn open(key: &Secret32, ad: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, rest) = sealed.split_at_checked(NONCE_LEN).filter(|(_, rest)| rest.len() >= TAG)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).expect("it has the length of a nonce");
    let mut place = Zeroizing::new(rest.to_vec());
    let length = expanded(key).open_in_place(nonce, Aad::from(ad), &mut place).ok()?.len();
    place.truncate(length);
    Some(place)
}

/// A secret of 32 bytes from the kernel.
///
/// # Errors
/// When it gives none.
pub fn draw() -> Result<Secret32, getrandom::Error> {
    let mut done = Ok(());
    let secret = Secret32::filled(|secret| done = getrandom::fill(secret));
    done.map(|()| secret)
}

/// aws-lc has an expanded key on the heap, and wipes it when it goes, which is at once.
fn expanded(key: &Secret32) -> LessSafeKey {
    assert!(!key.is_wiped(), "a key that a forked process lost is noticed before it is used");
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, key.as_bytes()).expect("the key has its length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_opened_and_nothing_else() {
        let (key, other) = (draw().unwrap(), draw().unwrap());
        for plain in [&b""[..], b"x", &[7; 32], &[9; 1000]] {
            let sealed = seal(&key, b"here", plain).unwrap();
            assert_eq!(sealed.len(), plain.len() + OVERHEAD);
            assert_eq!(open(&key, b"here", &sealed).unwrap().as_slice(), plain);
            assert_ne!(seal(&key, b"here", plain).unwrap(), sealed);
            assert!(open(&other, b"here", &sealed).is_none());
            assert!(open(&key, b"there", &sealed).is_none());
            for length in 0..sealed.len() {
                assert!(open(&key, b"here", &sealed[..length]).is_none());
            }
            for bit in 0..sealed.len() * 8 {
                let mut altered = sealed.clone();
                altered[bit / 8] ^= 1 << (bit % 8);
                assert!(open(&key, b"here", &altered).is_none(), "bit {bit}");
            }
        }
    }

    #[test]
    fn it_is_gcm_siv_as_the_rfc_has_it() {
        // RFC 8452, appendix C.2: AEAD_AES_256_GCM_SIV, 8 bytes of plaintext, no associated data.
        let mut key = [0; 32];
        key[0] = 1;
        let sealed = [
            &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[0xc2, 0xef, 0x32, 0x8e, 0x5c, 0x71, 0xc8, 0x3b, 0x84, 0x31, 0x22, 0x13, 0x0f, 0x73, 0x64, 0xb7],
            &[0x61, 0xe0, 0xb9, 0x74, 0x27, 0xe3, 0xdf, 0x28],
        ]
        .concat();
        let plain = open(&Secret32::from_bytes(key), b"", &sealed).unwrap();
        assert_eq!(plain.as_slice(), [1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
