//! Who keeps anchors: a folder of a key store, or a key service.

use std::fmt::Debug;

use crate::{Anchor, KeyError};

/// Whether an anchor may go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the same or a later generation alone.
    Forward,
    /// To any: somebody put an old version back on purpose.
    Any,
}

/// Where files were last, wherever that is kept.
pub trait Anchorage: Debug + Send + Sync {
    /// Where a file was last, if that was ever recorded.
    ///
    /// # Errors
    /// As [`crate::Keys::anchor`].
    fn anchor(&self, file: &[u8; 16]) -> Result<Option<Anchor>, KeyError>;

    /// Records where a file is now, which is sealed under these labels.
    ///
    /// # Errors
    /// As [`crate::Keys::set_anchor`].
    fn set_anchor(
        &self,
        file: &[u8; 16],
        labels: &[&str],
        anchor: &Anchor,
        direction: Direction,
    ) -> Result<(), KeyError>;
}
