//! AES-GCM under a nonce that is made of an IV and a sequence (NIST SP 800-38D; RFC 8446 section
//! 5.3 makes its nonces the same way), with the expanded key held inline.
//!
//! This is the one place of the crate that is unsafe: aws-lc's own safe interface keeps an expanded
//! key on the heap, one more cache miss per record.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
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

/// An expanded key with its IV.
///
/// The AES-GCM state of aws-lc is plain data (key schedule, hash table, a pointer to code), holds
/// nothing on the heap and no pointer into itself, so a context may be moved and is wiped by
/// overwriting.
pub struct Context {
    state: EVP_AEAD_CTX,
    iv: [u8; IV_LEN],
}

// SAFETY: the state is plain data that nothing changes after `new`; aws-lc documents seal and open
// on one context from several threads as safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Expands a key of [`Suite::key_len`] bytes.
    pub fn new(suite: Suite, key: &[u8], iv: [u8; IV_LEN]) -> Self {
        assert_eq!(key.len(), suite.key_len(), "the key has the suite's length");
        let mut state = MaybeUninit::<EVP_AEAD_CTX>::zeroed();
        // SAFETY: the algorithm is a static of aws-lc, the key is readable for its length, and the
        // state is ours to write.
        let done = unsafe {
            EVP_AEAD_CTX_init(state.as_mut_ptr(), algorithm(suite), key.as_ptr(), key.len(), TAG_LEN, ptr::null_mut())
        };
        assert_eq!(done, 1, "AES-GCM accepts a key of its length");
        // SAFETY: init returned success, so the state is initialised.
        Context { state: unsafe { state.assume_init() }, iv }
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
        let nonce = self.nonce(sequence);
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
        // SAFETY: the state is plain data of this size, and nothing looks at it again.
        unsafe { OPENSSL_cleanse(ptr::from_mut(&mut self.state).cast(), size_of::<EVP_AEAD_CTX>()) };
        self.iv = [0; IV_LEN];
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
