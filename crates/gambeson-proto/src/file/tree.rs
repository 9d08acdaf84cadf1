//! The tree over the entries of a closed file (SHA-256): whoever knows its root notices an old block put back, an entry
//! taken away, and a hole that is none.
//!
//! ```text
//!  root ── chapter's digest table ── group's entry table ── entries
//! ```

use aws_lc_rs::digest::{Context, SHA256, digest};

use super::{Digest, context};

/// The digest of a group's entry table, or zero if it has no entry.
pub fn entry_table(table: &[u8]) -> Digest {
    if table.iter().all(|&byte| byte == 0) { [0; 32] } else { sha256(table) }
}

/// The digest of a chapter's digest table.
pub fn digest_table(table: &[u8]) -> Digest {
    sha256(table)
}

/// The root over the digests of all chapters that the file's size has begun.
pub fn root(chapters: &[Digest]) -> Digest {
    let mut hash = Context::new(&SHA256);
    hash.update(context::ROOT);
    hash.update(&(chapters.len() as u64).to_be_bytes());
    for chapter in chapters {
        hash.update(chapter);
    }
    hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(super) fn sha256(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}
