//! What the fuzz targets reach.

use crate::kmip;
use crate::wrapping::Parts;

/// An item of KMIP, written again; nothing: the bytes are none.
#[must_use]
pub fn rewritten(bytes: &[u8]) -> Option<Vec<u8>> {
    kmip::rewritten(bytes)
}

/// To how many requests of KMIP the bytes are an answer.
#[must_use]
pub fn answers(bytes: &[u8]) -> usize {
    kmip::answers(bytes)
}

/// Whether the bytes have the form of what a master key wraps.
#[must_use]
pub fn is_wrapping(bytes: &[u8]) -> bool {
    Parts::of(bytes).is_some()
}
