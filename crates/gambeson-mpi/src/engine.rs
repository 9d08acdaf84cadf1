//! What lies below the semantics of MPI-IO: bytes of a file at offsets, for one rank alone or for all at once.

pub(crate) use gambeson_file::Extent;

use crate::error::Failure;
use crate::sealed::MapPart;

/// Which ranks of the handle make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Alone,
    All,
}

/// A file of one handle, at one rank. Extents are sorted and apart, and a buffer holds their bytes one after the other.
/// What is not said to be otherwise is called by all ranks together.
pub(crate) trait Engine: Send {
    /// Reads. The result is how many bytes of the buffer lie before the file's end.
    fn read(&mut self, extents: &[Extent], into: &mut [u8], who: Who) -> Result<usize, Failure>;

    /// Writes.
    fn write(&mut self, extents: &[Extent], from: &[u8], who: Who) -> Result<(), Failure>;

    /// The file's size; called by one rank alone.
    fn size(&mut self) -> Result<u64, Failure>;

    /// Cuts or extends the file.
    fn set_size(&mut self, size: u64) -> Result<(), Failure>;

    /// Makes sure that there is room for this many bytes; the file gets no shorter.
    fn preallocate(&mut self, size: u64) -> Result<(), Failure>;

    /// From now on each call of a rank is one for all others, too (MPI-4.1 section 14.6.1).
    fn set_atomic(&mut self, atomic: bool) -> Result<(), Failure>;

    /// Lays an encryption map over the file: this rank's part of it, or why there is none.
    fn set_map(&mut self, own: Result<MapPart, Failure>) -> Result<(), Failure>;

    /// Makes what was written last, and visible to all.
    fn sync(&mut self) -> Result<(), Failure>;

    /// Ends the use of the file. No rank is done before all have begun.
    fn close(&mut self) -> Result<(), Failure>;
}
