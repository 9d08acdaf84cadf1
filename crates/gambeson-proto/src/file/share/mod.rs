//! Sealing and opening one share: the bytes of one region in one block.
//!
//! Every write draws a nonce of its own. Under XAES-256-GCM (C2SP) its first half and the data key give a key that is
//! used once, and its second half is that key's nonce; two writers who know nothing of each other draw the same 192 bits
//! with a probability that does not matter. File, region, block, generation, length, epoch and suite are authenticated,
//! so that a share is good in its place alone.
//!
//! XTS authenticates nothing. Its tweak is the first 16 bytes of the nonce with the block's number on the last eight, so
//! that what is sealed again differs from what was there, and what is put elsewhere is read as noise. It has no answer
//! for less than one AES block: such a share is hidden under the encryption of 16 zeros, whose tweak comes once.

use std::cell::RefCell;
use std::fmt;

use gambeson_pages::{PageBox, wipeable};
use zeroize::Zeroize;

use super::cipher::{Block, Siv, Text, xts};
use super::entry::{Entry, Nonce};
use super::{FileSuite, KeyId, context};
use crate::aead::{Context, TAG_LEN, Tag, Unauthentic};
use crate::primitives::expand;
use crate::secret::Secret32;
use crate::suite::Suite;

/// A data key: of one region of one file in one epoch, expanded for its suite.
pub struct DataKey {
    id: KeyId,
    suite: FileSuite,
    commitment: [u8; 32],
    expanded: Expanded,
}

/// What a write of a share is, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// 24 random bytes, never used before.
    pub nonce: Nonce,
    /// The block.
    pub block: u64,
    /// The session.
    pub generation: u64,
}

enum Expanded {
    Xaes(PageBox<Xaes>),
    Siv(PageBox<Siv>),
    Xts(PageBox<[u8; 64]>),
}

wipeable! {
    /// CMAC's first subkey stands beside the key: the derivation needs it each time.
    struct Xaes {
        block: Block,
        subkey: [u8; 16],
    }
}

wipeable! {
    /// The key that a nonce gives, for the length of a call.
    struct Derived {
        context: Context,
        key: [u8; 32],
    }
}

thread_local! {
    // Expanded keys stay on pages that a fork wipes (threat-model rule 6), even those for one call.
    static DERIVED: RefCell<PageBox<Derived>> = RefCell::new(PageBox::zeroed());
}

impl DataKey {
    /// Expands a key.
    pub fn new(suite: FileSuite, secret: &Secret32, id: KeyId) -> Self {
        let expanded = match suite {
            FileSuite::Xaes256Gcm => Expanded::Xaes(Xaes::expand(secret)),
            FileSuite::Aes256GcmSiv => {
                let mut siv = PageBox::<Siv>::zeroed();
                siv.install(secret.as_bytes());
                Expanded::Siv(siv)
            }
            FileSuite::Aes256Xts => {
                let mut keys = PageBox::<[u8; 64]>::zeroed();
                expand(secret, context::XTS, &mut *keys);
                Expanded::Xts(keys)
            }
        };
        DataKey { id, suite, commitment: context::commitment(secret, &id), expanded }
    }

    /// Whose it is.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// What it seals with.
    pub fn suite(&self) -> FileSuite {
        self.suite
    }

    /// What the table must say of it, or it is the wrong one: [`context::commitment`].
    pub fn commitment(&self) -> &[u8; 32] {
        &self.commitment
    }

    /// Seals `plain`, 1 byte to 1 MiB, into `sealed`, which has the same length.
    pub fn seal(&self, write: &Write, plain: &[u8], sealed: &mut [u8]) -> Entry {
        let length = u32::try_from(plain.len()).expect("a share is shorter than a block");
        let Write { nonce, block, generation } = *write;
        let mut entry = Entry { nonce, tag: [0; TAG_LEN], generation, length, epoch: self.id.epoch, suite: self.suite };
        assert!(entry.is_legal(), "a share has bytes, and a session a number");
        entry.tag = match &self.expanded {
            Expanded::Xaes(xaes) => {
                xaes.with(&nonce, |context| context.seal(0, &self.associated(&entry, block), plain, sealed))
            }
            Expanded::Siv(siv) => siv.seal(first(&nonce), &self.associated(&entry, block), Text::Apart(plain, sealed)),
            Expanded::Xts(keys) => {
                xts_of_any_length(keys, &tweak(&nonce, block), true, Text::Apart(plain, sealed));
                [0; TAG_LEN]
            }
        };
        entry
    }

    /// Opens the share that an entry is of, in a block, into `plain`, which has the same length: the entry's. Wiped when
    /// it is not what was sealed, or when the entry is not of this key.
    pub fn open(&self, entry: &Entry, block: u64, sealed: &[u8], plain: &mut [u8]) -> Result<(), Unauthentic> {
        self.open_text(entry, block, Text::Apart(sealed, plain))
    }

    /// Opens a share where it stands.
    pub fn open_in_place(&self, entry: &Entry, block: u64, share: &mut [u8]) -> Result<(), Unauthentic> {
        self.open_text(entry, block, Text::InPlace(share))
    }

    fn open_text(&self, entry: &Entry, block: u64, mut text: Text) -> Result<(), Unauthentic> {
        if entry.suite != self.suite || entry.epoch != self.id.epoch || entry.length as usize != text.len() {
            text.wipe();
            return Err(Unauthentic);
        }
        let (nonce, tag): (&Nonce, &Tag) = (&entry.nonce, &entry.tag);
        match &self.expanded {
            Expanded::Xaes(xaes) => xaes.with(nonce, |context| match text {
                Text::Apart(sealed, plain) => context.open(0, &self.associated(entry, block), sealed, tag, plain),
                Text::InPlace(share) => context.open_in_place(0, &self.associated(entry, block), share, tag),
            }),
            Expanded::Siv(siv) => siv.open(first(nonce), &self.associated(entry, block), tag, text),
            Expanded::Xts(keys) => {
                xts_of_any_length(keys, &tweak(nonce, block), false, text);
                Ok(())
            }
        }
    }

    fn associated(&self, entry: &Entry, block: u64) -> [u8; context::SHARE_LEN] {
        context::share(&self.id, self.suite, block, entry.generation, entry.length)
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DataKey({}, region {}, epoch {})", self.suite, self.id.region, self.id.epoch)
    }
}

impl Xaes {
    fn expand(secret: &Secret32) -> PageBox<Self> {
        let mut xaes = PageBox::<Xaes>::zeroed();
        let Xaes { block, subkey } = &mut *xaes;
        block.install(secret.as_bytes());
        block.encrypt(subkey);
        // CMAC's subkey (NIST SP 800-38B): doubled in the field of 2^128.
        let doubled = u128::from_be_bytes(*subkey);
        let carry = if doubled >> 127 == 1 { 0x87 } else { 0 };
        *subkey = (doubled << 1 ^ carry).to_be_bytes();
        xaes
    }

    /// AES-256-GCM under what the first half of a nonce derives, with the second half as nonce.
    fn with<T>(&self, nonce: &Nonce, work: impl FnOnce(&Context) -> T) -> T {
        DERIVED.with_borrow_mut(|derived| {
            let Derived { context, key } = &mut **derived;
            let (derive, iv) = nonce.split_first_chunk::<12>().expect("24 bytes");
            for (half, counter) in key.as_chunks_mut::<16>().0.iter_mut().zip(1..) {
                half[..4].copy_from_slice(&[0, counter, b'X', 0]);
                half[4..].copy_from_slice(derive);
                for (byte, mask) in half.iter_mut().zip(&self.subkey) {
                    *byte ^= mask;
                }
                self.block.encrypt(half);
            }
            context.install(Suite::Aes256Gcm, &key[..], iv.try_into().expect("12 bytes"));
            let result = work(context);
            context.wipe();
            key.zeroize();
            result
        })
    }
}

fn first(nonce: &Nonce) -> &[u8; 12] {
    nonce.first_chunk().expect("24 bytes")
}

fn tweak(nonce: &Nonce, block: u64) -> [u8; 16] {
    let mut tweak: [u8; 16] = *nonce.first_chunk().expect("24 bytes");
    for (byte, part) in tweak[8..].iter_mut().zip(block.to_be_bytes()) {
        *byte ^= part;
    }
    tweak
}

fn xts_of_any_length(keys: &PageBox<[u8; 64]>, tweak: &[u8; 16], encrypt: bool, text: Text) {
    if text.len() >= 16 {
        return xts(keys, tweak, encrypt, text);
    }
    let mut hidden = [0; 16];
    xts(keys, tweak, true, Text::InPlace(&mut hidden));
    let place = match text {
        Text::Apart(from, to) => {
            to.copy_from_slice(from);
            to
        }
        Text::InPlace(place) => place,
    };
    for (byte, mask) in place.iter_mut().zip(hidden) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests;
