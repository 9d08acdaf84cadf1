//! AES-GCM under a nonce that is made of an IV and a sequence (NIST SP 800-38D; RFC 8446 section
//! 5.3 makes its nonces the same way), with the expanded key held inline.
//!
//! aws-lc's own safe interface keeps an expanded key on the heap, one more cache miss per record.
//! This wrapper does not, and never uses the variants of AES-GCM that choose or check nonces
//! themselves: they draw on aws-lc's random number generator, or know nothing of sequences.
//!
//! **A context may be moved.** For AES-GCM the state is the key schedule, the hash table and
//! pointers to static functions, all in the struct: nothing points into it, nothing is on the heap
//! and nothing is to be freed. aws-lc's own `EVP_AEAD_CTX_copy` copies it byte by byte for that
//! reason. A move leaves a copy of the key behind, though, so keys are expanded in place.
//!
//! **All zero is no context.** That is what a forked child finds on pages that are wiped on fork
//! (threat-model rule 6), and whatever would use it panics.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::zeroed;
use std::ptr;

use aws_lc_sys::{
    EVP_AEAD, EVP_AEAD_CTX, EVP_AEAD_CTX_init, EVP_AEAD_CTX_open_gather, EVP_AEAD_CTX_seal_scatter,
    EVP_aead_aes_128_gcm, EVP_aead_aes_256_gcm, OPENSSL_cleanse,
};

use crate::suite::Suite;

/// Bytes of an authentication tag.
pub const TAG_LEN: usize = 16;
/// Bytes of a nonce, and of the IV that it is made from.
pub const IV_LEN: usize = 12;
/// An authentication tag.
pub type Tag = [u8; TAG_LEN];

/// The bytes are not what the holder of the key sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthentic;

/// An expanded key with its IV, or none.
#[repr(C)]
pub struct Context {
    state: EVP_AEAD_CTX,
    iv: [u8; IV_LEN],
    #[cfg(feature = "nonce-oracle")]
    fingerprint: [u8; 16],
}

// SAFETY: the state is plain data and belongs to no thread; its pointers go to statics.
unsafe impl Send for Context {}
// SAFETY: aws-lc documents seal and open on one context from several threads as safe; they take it
// by const pointer and keep the state of one operation on the stack.
unsafe impl Sync for Context {}

// SAFETY: all zero is NONE, and a context owns nothing (see above).
unsafe impl gambeson_pages::Wipeable for Context {}

impl Context {
    /// No context: all zero.
    pub const NONE: Context = Context {
        // SAFETY: the state is C data (a pointer that may be null, a union of bytes, two integers)
        // of which all zero is a value, the one that EVP_AEAD_CTX_zero writes.
        state: unsafe { zeroed() },
        iv: [0; IV_LEN],
        #[cfg(feature = "nonce-oracle")]
        fingerprint: [0; 16],
    };

    /// Expands a key of [`Suite::key_len`] bytes.
    pub fn new(suite: Suite, key: &[u8], iv: [u8; IV_LEN]) -> Self {
        let mut context = Context::NONE;
        context.install(suite, key, iv);
        context
    }

    /// Expands a key of [`Suite::key_len`] bytes in this place; what was here before is wiped.
    pub fn install(&mut self, suite: Suite, key: &[u8], iv: [u8; IV_LEN]) {
        assert_eq!(key.len(), suite.key_len(), "the key has the suite's length");
        self.wipe();
        // SAFETY: the algorithm is a static of aws-lc, the key is readable for its length, and the
        // state is ours to write.
        let done = unsafe {
            EVP_AEAD_CTX_init(&mut self.state, algorithm(suite), key.as_ptr(), key.len(), TAG_LEN, ptr::null_mut())
        };
        assert_eq!(done, 1, "AES-GCM accepts a key of its length");
        self.iv = iv;
        #[cfg(feature = "nonce-oracle")]
        {
            self.fingerprint = crate::nonce_oracle::fingerprint(key);
        }
    }

    /// Whether there is no context here.
    pub fn is_none(&self) -> bool {
        self.state.aead.is_null()
    }

    /// Overwrites key and IV: from here on this is [`Context::NONE`].
    pub fn wipe(&mut self) {
        // SAFETY: the region is this struct, all zero is a value of it, and AES-GCM contexts own
        // nothing that would have to be freed.
        unsafe { OPENSSL_cleanse(ptr::from_mut(self).cast(), size_of::<Context>()) }
    }

    fn assert_present(&self) {
        assert!(!self.is_none(), "there is no session key here: it was wiped, or this is a forked process");
    }

    fn nonce(&self, sequence: u64) -> [u8; IV_LEN] {
        let mut nonce = self.iv;
        for (byte, part) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= part;
        }
        nonce
    }

    /// Seals `plain` into `sealed`, which has the same length.
    pub fn seal(&self, sequence: u64, ad: &[u8], plain: &[u8], sealed: &mut [u8]) -> Tag {
        assert_eq!(plain.len(), sealed.len(), "sealing keeps the length");
        // SAFETY: both are valid for `plain.len()` bytes and do not overlap.
        unsafe { self.seal_raw(sequence, ad, plain.as_ptr(), sealed.as_mut_ptr(), plain.len()) }
    }

    /// Seals a buffer where it stands.
    pub fn seal_in_place(&self, sequence: u64, ad: &[u8], buffer: &mut [u8]) -> Tag {
        let at = buffer.as_mut_ptr();
        // SAFETY: the buffer is valid for its length, and aws-lc allows input and output to be the
        // same.
        unsafe { self.seal_raw(sequence, ad, at, at, buffer.len()) }
    }

    /// The tag of a region that stays in clear (GMAC).
    pub fn mac(&self, sequence: u64, region: &[u8]) -> Tag {
        self.seal_in_place(sequence, region, &mut [])
    }

    /// Opens `sealed` into `plain`, which has the same length; wiped when the tag is wrong.
    pub fn open(
        &self,
        sequence: u64,
        ad: &[u8],
        sealed: &[u8],
        tag: &Tag,
        plain: &mut [u8],
    ) -> Result<(), Unauthentic> {
        assert_eq!(plain.len(), sealed.len(), "opening keeps the length");
        // SAFETY: both are valid for `sealed.len()` bytes and do not overlap.
        unsafe { self.open_raw(sequence, ad, sealed.as_ptr(), tag, plain.as_mut_ptr(), sealed.len()) }
    }

    /// Opens a buffer where it stands; wiped when the tag is wrong.
    pub fn open_in_place(&self, sequence: u64, ad: &[u8], buffer: &mut [u8], tag: &Tag) -> Result<(), Unauthentic> {
        let at = buffer.as_mut_ptr();
        // SAFETY: the buffer is valid for its length, and aws-lc allows input and output to be the
        // same.
        unsafe { self.open_raw(sequence, ad, at, tag, at, buffer.len()) }
    }

    /// Checks the tag of a region in clear (GMAC).
    pub fn verify(&self, sequence: u64, region: &[u8], tag: &Tag) -> Result<(), Unauthentic> {
        self.open_in_place(sequence, region, &mut [], tag)
    }

    /// # Safety
    /// `plain` is readable and `sealed` writable for `len` bytes; they are the same or apart.
    unsafe fn seal_raw(&self, sequence: u64, ad: &[u8], plain: *const u8, sealed: *mut u8, len: usize) -> Tag {
        self.assert_present();
        let nonce = self.nonce(sequence);
        #[cfg(feature = "nonce-oracle")]
        crate::nonce_oracle::used(&self.fingerprint, &nonce, sequence);
        let mut tag = [0; TAG_LEN];
        let mut tag_len = 0;
        // SAFETY: the caller vouches for `plain` and `sealed`; all else are live slices of ours.
        let done = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                &self.state,
                sealed,
                tag.as_mut_ptr(),
                &mut tag_len,
                TAG_LEN,
                nonce.as_ptr(),
                nonce.len(),
                plain,
                len,
                ptr::null(),
                0,
                ad.as_ptr(),
                ad.len(),
            )
        };
        assert!(done == 1 && tag_len == TAG_LEN, "AES-GCM seals less than 64 GiB");
        tag
    }

    /// # Safety
    /// `sealed` is readable and `plain` writable for `len` bytes; they are the same or apart.
    unsafe fn open_raw(
        &self,
        sequence: u64,
        ad: &[u8],
        sealed: *const u8,
        tag: &Tag,
        plain: *mut u8,
        len: usize,
    ) -> Result<(), Unauthentic> {
        self.assert_present();
        let nonce = self.nonce(sequence);
        // SAFETY: the caller vouches for `plain` and `sealed`; all else are live slices of ours.
        let done = unsafe {
            EVP_AEAD_CTX_open_gather(
                &self.state,
                plain,
                nonce.as_ptr(),
                nonce.len(),
                sealed,
                len,
                tag.as_ptr(),
                TAG_LEN,
                ad.as_ptr(),
                ad.len(),
            )
        };
        if done != 1 {
            // SAFETY: the caller vouches for `plain`. aws-lc wipes it too; we do not rely on it.
            unsafe { OPENSSL_cleanse(plain.cast(), len) };
            return Err(Unauthentic);
        }
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_none() { "Context(none)" } else { "Context(..)" })
    }
}

fn algorithm(suite: Suite) -> *const EVP_AEAD {
    // SAFETY: these take nothing and return statics.
    unsafe {
        match suite {
            Suite::Aes256Gcm => EVP_aead_aes_256_gcm(),
            Suite::Aes128Gcm => EVP_aead_aes_128_gcm(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(suite: Suite) -> Context {
        Context::new(suite, &[7; 32][..suite.key_len()], [9; IV_LEN])
    }

    /// Bytes that depend on the seed, for lengths around every block and stride of the cipher.
    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 5) as u8).collect()
    }

    #[test]
    fn a_context_is_small_and_no_context_is_all_zero() {
        #[cfg(not(feature = "nonce-oracle"))]
        assert_eq!(size_of::<Context>(), 600);
        let mut context = context(Suite::Aes256Gcm);
        assert!(!context.is_none());
        context.wipe();
        assert!(context.is_none());
        for place in [&context, &Context::NONE] {
            // SAFETY: the struct is plain data of this size, wiped or zeroed as a whole.
            let bytes = unsafe { std::slice::from_raw_parts(ptr::from_ref(place).cast::<u8>(), size_of::<Context>()) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    #[should_panic(expected = "forked process")]
    fn without_a_key_nothing_is_sealed() {
        Context::NONE.seal_in_place(0, &[], &mut [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "forked process")]
    fn without_a_key_nothing_is_opened() {
        let _ = Context::NONE.open_in_place(0, &[], &mut [1, 2, 3], &[0; TAG_LEN]);
    }

    #[test]
    fn a_context_works_where_it_is_moved_to() {
        let here = context(Suite::Aes256Gcm);
        let tag = here.mac(3, b"region");
        let there = Box::new(here);
        assert_eq!(there.mac(3, b"region"), tag);
        let many: Vec<Context> = std::iter::once(*there).collect();
        assert_eq!(many[0].mac(3, b"region"), tag);
    }

    #[test]
    fn both_ways_of_sealing_and_of_opening_agree() {
        for suite in Suite::ALL {
            let context = context(suite);
            for len in [0, 1, 15, 16, 17, 63, 64, 255, 256, 257, 4096, 65_537] {
                let (plain, ad, sequence) = (bytes(1, len), bytes(2, len % 61), len as u64);
                let mut sealed = vec![0; len];
                let tag = context.seal(sequence, &ad, &plain, &mut sealed);
                let mut place = plain.clone();
                assert_eq!(context.seal_in_place(sequence, &ad, &mut place), tag);
                assert_eq!(place, sealed);
                let mut opened = vec![0xaa; len];
                assert_eq!(context.open(sequence, &ad, &sealed, &tag, &mut opened), Ok(()));
                assert_eq!(context.open_in_place(sequence, &ad, &mut place, &tag), Ok(()));
                assert!(opened == plain && place == plain, "{suite}, {len} bytes");
                assert!(len < 16 || sealed != plain);
            }
        }
    }

    #[test]
    fn what_was_altered_is_refused_and_wiped() {
        let context = context(Suite::Aes128Gcm);
        let plain = bytes(3, 100);
        let mut sealed = vec![0; 100];
        let tag = context.seal(5, b"header", &plain, &mut sealed);
        let refuse = |sequence, ad: &[u8], sealed: &[u8], tag: &Tag| {
            let mut opened = vec![0xaa; sealed.len()];
            assert_eq!(context.open(sequence, ad, sealed, tag, &mut opened), Err(Unauthentic));
            assert!(opened.iter().all(|byte| *byte == 0));
            let mut place = sealed.to_vec();
            assert_eq!(context.open_in_place(sequence, ad, &mut place, tag), Err(Unauthentic));
            assert!(place.iter().all(|byte| *byte == 0));
        };
        for bit in 0..sealed.len() * 8 {
            let mut altered = sealed.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            refuse(5, b"header", &altered, &tag);
        }
        for bit in 0..TAG_LEN * 8 {
            let mut altered = tag;
            altered[bit / 8] ^= 1 << (bit % 8);
            refuse(5, b"header", &sealed, &altered);
        }
        refuse(4, b"header", &sealed, &tag);
        refuse(5 | 1 << 63, b"header", &sealed, &tag);
        refuse(5, b"headex", &sealed, &tag);
        refuse(5, b"", &sealed, &tag);
        refuse(5, b"header", &sealed[..99], &tag);
        refuse(5, b"header", &[], &tag);
    }

    #[test]
    fn a_region_in_clear_is_verified() {
        let context = context(Suite::Aes256Gcm);
        let region = bytes(4, 1000);
        let tag = context.mac(8, &region);
        assert_eq!(context.verify(8, &region, &tag), Ok(()));
        assert_eq!(context.verify(9, &region, &tag), Err(Unauthentic));
        assert_eq!(context.verify(8, &region[1..], &tag), Err(Unauthentic));
        let mut altered = region;
        altered[999] ^= 0x80;
        assert_eq!(context.verify(8, &altered, &tag), Err(Unauthentic));
    }

    #[test]
    fn every_sequence_has_a_nonce_of_its_own() {
        let context = context(Suite::Aes256Gcm);
        let sequences = (0..1000).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]);
        let sequences: std::collections::HashSet<u64> = sequences.collect();
        let nonces: std::collections::HashSet<_> = sequences.iter().map(|sequence| context.nonce(*sequence)).collect();
        assert_eq!(nonces.len(), sequences.len());
        assert_eq!(context.nonce(0), [9; IV_LEN]);
    }
}
