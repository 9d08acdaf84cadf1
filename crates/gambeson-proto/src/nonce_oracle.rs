//! Tells of every key and nonce that seal something, so that a test can see that no key meets a nonce
//! twice (feature `nonce-oracle`).
//!
//! Keys are told apart by their hash. What is told goes to a function that the surroundings set,
//! since this crate writes no files.

use std::sync::OnceLock;

use aws_lc_rs::digest::{SHA256, digest};

use crate::aead::IV_LEN;

#[cfg(not(debug_assertions))]
compile_error!("the nonce oracle is for debug builds alone");

/// Bytes of an encoded [`Use`].
pub const USE_LEN: usize = 32;

/// One use of a key, as bytes: the first half of its SHA-256, the nonce, and 1 where a record's
/// payload has a nonce beside its envelope's (4 bytes, little-endian).
pub type Use = [u8; USE_LEN];

static SINK: OnceLock<fn(&Use)> = OnceLock::new();

/// Has every use told to `sink` from now on. `false`: there is one already.
pub fn tell(sink: fn(&Use)) -> bool {
    SINK.set(sink).is_ok()
}

/// What stands for a key.
pub(crate) fn fingerprint(key: &[u8]) -> [u8; 16] {
    *digest(&SHA256, key).as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

pub(crate) fn used(key: &[u8; 16], nonce: &[u8; IV_LEN], sequence: u64) {
    if let Some(sink) = SINK.get() {
        let mut told = [0; USE_LEN];
        told[..16].copy_from_slice(key);
        told[16..28].copy_from_slice(nonce);
        told[28..].copy_from_slice(&((sequence >> 63) as u32).to_le_bytes());
        sink(&told);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::aead::Context;
    use crate::suite::Suite;

    static TOLD: Mutex<Vec<Use>> = Mutex::new(Vec::new());

    #[test]
    fn every_sealing_is_told_and_a_repeated_one_shows() {
        tell(|told| TOLD.lock().expect("no test panics with it").push(*told));
        // A key that no other test of this process has.
        let key = *b"the key of the nonce oracle test";
        let uses = || {
            let told = TOLD.lock().expect("no test panics with it");
            told.iter().filter(|told| told[..16] == fingerprint(&key)).copied().collect::<Vec<_>>()
        };
        let context = Context::new(Suite::Aes256Gcm, &key, [9; IV_LEN]);
        context.mac(5, b"region");
        context.seal(5 | 1 << 63, b"", b"plain", &mut [0; 5]);
        let [envelope, payload] = uses()[..] else { panic!("{:?}", uses()) };
        assert_eq!((envelope[28], payload[28]), (0, 1));
        assert_ne!(envelope[16..28], payload[16..28]);
        context.seal_in_place(5, b"", &mut [0; 5]);
        assert_eq!(uses()[2], envelope);
        Context::new(Suite::Aes256Gcm, &key, [8; IV_LEN]).mac(5, b"region");
        assert_ne!(uses()[3], envelope);
        // Opening uses no nonce up.
        let _ = context.verify(6, b"region", &[0; 16]);
        assert_eq!(uses().len(), 4);
    }
}
