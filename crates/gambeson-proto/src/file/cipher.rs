//! AES as a block cipher (FIPS 197), AES-256-GCM-SIV (RFC 8452) and AES-256-XTS (IEEE 1619), from aws-lc.
//!
//! Keys are expanded where they stay, which is on pages that a fork wipes. aws-lc's XTS has its expanded key on the C
//! heap: there it is for the length of one call, and overwritten at its end.
#![allow(unsafe_code)]

use std::mem::zeroed;
use std::ptr;

use aws_lc_sys::{
    AES_KEY, AES_encrypt, AES_set_encrypt_key, EVP_AEAD_CTX, EVP_AEAD_CTX_init, EVP_AEAD_CTX_open_gather,
    EVP_AEAD_CTX_seal_scatter, EVP_CIPHER_CTX, EVP_CIPHER_CTX_cleanup, EVP_CIPHER_CTX_init, EVP_CipherInit_ex,
    EVP_CipherUpdate, EVP_aead_aes_256_gcm_siv, EVP_aes_256_xts, OPENSSL_cleanse,
};

use crate::aead::{TAG_LEN, Tag, Unauthentic};

/// An expanded AES-256 key, or none: all zero.
pub(super) struct Block(AES_KEY);

// SAFETY: plain data; all zero is a value of it, which [`Block::encrypt`] refuses.
unsafe impl gambeson_pages::Wipeable for Block {}

impl Block {
    pub(super) fn install(&mut self, key: &[u8; 32]) {
        // SAFETY: the key has 256 bits, and the place is ours to write.
        let done = unsafe { AES_set_encrypt_key(key.as_ptr(), 256, &mut self.0) };
        assert_eq!(done, 0, "AES takes every key of 256 bits");
    }

    pub(super) fn encrypt(&self, block: &mut [u8; 16]) {
        assert!(self.0.rounds != 0, "there is no data key here: this is a forked process");
        let at = block.as_mut_ptr();
        // SAFETY: the key was expanded, and the block is of 16 bytes; it may be input and output at once.
        unsafe { AES_encrypt(at, at, &self.0) }
    }
}

/// An expanded key of AES-256-GCM-SIV, or none: all zero. aws-lc wants its state aligned alike wherever it is.
#[repr(align(16))]
pub(super) struct Siv(EVP_AEAD_CTX);

// SAFETY: the state is the key schedule, the struct's alignment and a pointer to a static; it owns nothing.
unsafe impl gambeson_pages::Wipeable for Siv {}
// SAFETY: as `aead::Context`.
unsafe impl Send for Siv {}
// SAFETY: as `aead::Context`.
unsafe impl Sync for Siv {}

impl Siv {
    pub(super) fn install(&mut self, key: &[u8; 32]) {
        // SAFETY: the algorithm is a static of aws-lc, the key is readable for its length, and the state is ours.
        let done = unsafe {
            EVP_AEAD_CTX_init(
                &mut self.0,
                EVP_aead_aes_256_gcm_siv(),
                key.as_ptr(),
                key.len(),
                TAG_LEN,
                ptr::null_mut(),
            )
        };
        assert_eq!(done, 1, "AES-GCM-SIV takes every key of 256 bits");
    }

    pub(super) fn seal(&self, nonce: &[u8; 12], ad: &[u8], text: Text) -> Tag {
        self.assert_present();
        let (mut tag, mut tag_len) = ([0; TAG_LEN], 0);
        let (from, to, len) = text.pointers();
        // SAFETY: `Text` vouches for its pointers; all else are live slices of ours.
        let done = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                &self.0,
                to,
                tag.as_mut_ptr(),
                &mut tag_len,
                TAG_LEN,
                nonce.as_ptr(),
                nonce.len(),
                from,
                len,
                ptr::null(),
                0,
                ad.as_ptr(),
                ad.len(),
            )
        };
        assert!(done == 1 && tag_len == TAG_LEN, "AES-GCM-SIV seals less than 64 GiB");
        tag
    }

    pub(super) fn open(&self, nonce: &[u8; 12], ad: &[u8], tag: &Tag, text: Text) -> Result<(), Unauthentic> {
        self.assert_present();
        let (from, to, len) = text.pointers();
        // SAFETY: as above.
        let done = unsafe {
            EVP_AEAD_CTX_open_gather(
                &self.0,
                to,
                nonce.as_ptr(),
                nonce.len(),
                from,
                len,
                tag.as_ptr(),
                TAG_LEN,
                ad.as_ptr(),
                ad.len(),
            )
        };
        if done != 1 {
            // SAFETY: as above. aws-lc wipes it too; we do not rely on it.
            unsafe { OPENSSL_cleanse(to.cast(), len) };
            return Err(Unauthentic);
        }
        Ok(())
    }

    fn assert_present(&self) {
        assert!(!self.0.aead.is_null(), "there is no data key here: this is a forked process");
    }
}

/// Encrypts, or decrypts, at least 16 bytes with AES-256-XTS.
pub(super) fn xts(keys: &[u8; 64], tweak: &[u8; 16], encrypt: bool, text: Text) {
    let (from, to, len) = text.pointers();
    assert!((16..=1 << 20).contains(&len), "XTS takes a share of at least one AES block");
    let mut written = 0;
    // SAFETY: all zero is a value of the context, the one that EVP_CIPHER_CTX_init writes.
    let mut context: EVP_CIPHER_CTX = unsafe { zeroed() };
    // SAFETY: the context is ours from init to cleanup, which frees and overwrites what it owns; the keys have 64
    // bytes, as AES-256-XTS wants, the tweak 16; `Text` vouches for its pointers. Without padding and with all of a
    // data unit at once XTS writes as many bytes as it reads.
    let done = unsafe {
        EVP_CIPHER_CTX_init(&mut context);
        let done = EVP_CipherInit_ex(
            &mut context,
            EVP_aes_256_xts(),
            ptr::null_mut(),
            keys.as_ptr(),
            tweak.as_ptr(),
            encrypt.into(),
        ) == 1
            && EVP_CipherUpdate(&mut context, to, &mut written, from, len as i32) == 1;
        EVP_CIPHER_CTX_cleanup(&mut context);
        done
    };
    assert!(done && written as usize == len, "AES-256-XTS takes two keys that differ");
}

/// What is sealed or opened: from one place into another, or where it stands.
pub(super) enum Text<'a> {
    /// Two places of the same length.
    Apart(&'a [u8], &'a mut [u8]),
    /// One place.
    InPlace(&'a mut [u8]),
}

impl Text<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Text::Apart(from, to) => {
                assert_eq!(from.len(), to.len(), "sealing keeps the length");
                from.len()
            }
            Text::InPlace(place) => place.len(),
        }
    }

    /// Overwrites what was to be written.
    pub(super) fn wipe(&mut self) {
        match self {
            Text::Apart(_, to) => to.fill(0),
            Text::InPlace(place) => place.fill(0),
        }
    }

    /// Where to read, where to write, and how much: the same place, or two apart.
    fn pointers(self) -> (*const u8, *mut u8, usize) {
        let len = self.len();
        match self {
            Text::Apart(from, to) => (from.as_ptr(), to.as_mut_ptr(), len),
            Text::InPlace(place) => {
                let place = place.as_mut_ptr();
                (place, place, len)
            }
        }
    }
}
