//! What is signed, wrapped, committed to and authenticated, as bytes: every label string once.
//!
//! ```text
//!  share       "gambeson file share v1" | file 16 | region u16 | block u64 | generation u64 | length u32 | epoch u16 | suite u8
//!  commitment  "gambeson file key v1"   | file 16 | region u16 | epoch u16
//!  wrap        "gambeson file wrap v1"  | file 16 | region u16 | epoch u16 | label's name | label's version u32
//!  table       "gambeson file table v1" | SHA-256 of the table
//!  state       "gambeson file state v1" | SHA-256 of the table | state
//!  root        "gambeson file root v1"  | number of chapters u64 | SHA-256 of each chapter's digest table
//!  XTS keys    "gambeson file xts v1"
//! ```

use super::{Digest, FileId, FileSuite};
use crate::primitives::hmac;
use crate::secret::Secret32;

/// Whose data key: of a region of a file, in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId {
    /// The file.
    pub file: FileId,
    /// The region.
    pub region: u16,
    /// Which of the region's keys: revocation begins a new one.
    pub epoch: u16,
}

/// What a label's key wraps a data key with, as associated data.
pub fn wrap(key: &KeyId, label: &str, version: u32) -> Vec<u8> {
    [WRAP, &key.file, &key.region.to_be_bytes(), &key.epoch.to_be_bytes(), label.as_bytes(), &version.to_be_bytes()]
        .concat()
}

/// What the table says of a data key, without telling the key: HMAC-SHA-256. A wrong key is told from altered bytes by it.
pub fn commitment(secret: &Secret32, key: &KeyId) -> [u8; 32] {
    let mut message = [0; KEY.len() + 20];
    fill(&mut message, [KEY, &key.file, &key.region.to_be_bytes(), &key.epoch.to_be_bytes()]);
    hmac(secret, &message)
}

pub(super) const SHARE_LEN: usize = SHARE.len() + 16 + 2 + 8 + 8 + 4 + 2 + 1;

/// The associated data of a share.
pub(super) fn share(key: &KeyId, suite: FileSuite, block: u64, generation: u64, length: u32) -> [u8; SHARE_LEN] {
    let mut data = [0; SHARE_LEN];
    let numbers = (key.region.to_be_bytes(), block.to_be_bytes(), generation.to_be_bytes(), length.to_be_bytes());
    let (region, block, generation, length) = &numbers;
    let epoch = key.epoch.to_be_bytes();
    fill(&mut data, [SHARE, &key.file, region, block, generation, length, &epoch, &[suite as u8]]);
    data
}

/// What every label of a table signs.
pub(super) fn table(digest: &Digest) -> Vec<u8> {
    [TABLE, digest].concat()
}

/// What the label that closes a file, or opens it, signs.
pub(super) fn state(table: &Digest, state: &[u8]) -> Vec<u8> {
    [STATE, table, state].concat()
}

fn fill<const N: usize>(out: &mut [u8], fields: [&[u8]; N]) {
    let mut rest = out;
    for field in fields {
        let (place, behind) = rest.split_at_mut(field.len());
        place.copy_from_slice(field);
        rest = behind;
    }
    assert!(rest.is_empty(), "the fields fill it");
}

const SHARE: &[u8] = b"gambeson file share v1";
const KEY: &[u8] = b"gambeson file key v1";
const WRAP: &[u8] = b"gambeson file wrap v1";
const TABLE: &[u8] = b"gambeson file table v1";
const STATE: &[u8] = b"gambeson file state v1";
pub(super) const ROOT: &[u8] = b"gambeson file root v1";
pub(super) const XTS: &[u8] = b"gambeson file xts v1";
