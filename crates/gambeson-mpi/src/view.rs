//! A file view: which bytes of the file a rank's data goes to, one after the other (MPI-4.1 section 14.3).

use std::sync::Arc;

use crate::datatype::Layout;
use crate::engine::Extent;
use crate::error::Failure;
use crate::mpi::Mpi;

/// What MPI_File_set_view sets.
#[derive(Debug)]
pub(crate) struct View {
    /// Byte of the file at which the first filetype begins.
    pub(crate) displacement: i64,
    /// Types that MPI_File_get_view gives copies of.
    pub(crate) etype: usize,
    pub(crate) filetype: usize,
    /// Bytes of an etype.
    pub(crate) etype_size: i64,
    /// Whether data is in the file as `external32` has it.
    pub(crate) external: bool,
    /// Whether its bytes come in the file's order, each once.
    pub(crate) regular: bool,
    tile: Arc<Layout>,
    /// Bytes of the tile's data before each of its runs.
    before: Vec<i64>,
}

impl View {
    /// The view that a file is opened with: its bytes.
    pub(crate) fn bytes(mpi: &Mpi) -> Result<Self, Failure> {
        Self::new(mpi, 0, mpi.abi.byte, mpi.abi.byte, false, true)
    }

    /// A view of types as a program gives them.
    ///
    /// # Errors
    /// What the standard demands of the types, by the classes that ROMIO has for it.
    pub(crate) fn new(
        mpi: &Mpi,
        displacement: i64,
        etype: usize,
        filetype: usize,
        external: bool,
        writable: bool,
    ) -> Result<Self, Failure> {
        let (element, tile) = (Layout::of(mpi, etype)?, Layout::of(mpi, filetype)?);
        check(mpi, &element, "etype", writable)?;
        check(mpi, &tile, "filetype", writable)?;
        if element.size == 0 || tile.size % element.size != 0 {
            return Err(Failure::new(
                mpi.abi.class.argument,
                format!("the filetype's {} bytes are not a multiple of the etype's {}", tile.size, element.size),
            ));
        }
        let before = tile.runs.iter().scan(0, |sum, run| Some(std::mem::replace(sum, *sum + run.length))).collect();
        Ok(View {
            displacement,
            etype,
            filetype,
            etype_size: element.size,
            external,
            regular: is_regular(&tile),
            tile,
            before,
        })
    }

    /// Where `length` bytes of data are that begin behind `from` others, in their order; those that touch are one.
    ///
    /// # Errors
    /// The view has no data, or the file would be larger than a file can be.
    pub(crate) fn extents(&self, mpi: &Mpi, from: i64, length: i64, extents: &mut Vec<Extent>) -> Result<(), Failure> {
        extents.clear();
        if length == 0 {
            return Ok(());
        }
        let end = from.checked_add(length).filter(|_| self.tile.size > 0).ok_or_else(|| self.beyond(mpi))?;
        self.place(end - 1).ok_or_else(|| self.beyond(mpi))?;
        if self.tile.is_dense() {
            extents.push(extent(self.displacement + from, length));
            return Ok(());
        }
        let (mut turn, within) = (from / self.tile.size, from % self.tile.size);
        let mut index = self.run_of(within);
        let mut skip = within - self.before[index];
        let mut left = length;
        while left > 0 {
            let run = self.tile.runs[index];
            let take = (run.length - skip).min(left);
            let piece = extent(self.displacement + turn * self.tile.extent + run.at + skip, take);
            match extents.last_mut() {
                Some(last) if last.offset + last.length == piece.offset => last.length += piece.length,
                _ => extents.push(piece),
            }
            left -= take;
            skip = 0;
            index += 1;
            if index == self.tile.runs.len() {
                index = 0;
                turn += 1;
            }
        }
        Ok(())
    }

    /// The file's byte that the data's byte number `at` is in.
    pub(crate) fn place(&self, at: i64) -> Option<i64> {
        if self.tile.size == 0 {
            return (at == 0).then_some(self.displacement);
        }
        let (turn, within) = (at / self.tile.size, at % self.tile.size);
        let index = self.run_of(within);
        let run = self.tile.runs[index];
        turn.checked_mul(self.tile.extent)?
            .checked_add(self.displacement)?
            .checked_add(run.at + within - self.before[index])
    }

    /// How many bytes of the view's data lie before a byte of the file.
    pub(crate) fn data_before(&self, end: i64) -> i64 {
        let end = end - self.displacement;
        if end <= 0 || self.tile.size == 0 {
            return 0;
        }
        let last = self.tile.runs.last().map_or(0, |run| run.at + run.length);
        // Tiles that end before it count whole; those that begin before it are looked at.
        let whole = if end >= last { (end - last) / self.tile.extent.max(1) + 1 } else { 0 };
        let mut data = whole * self.tile.size;
        let mut turn = whole;
        while turn * self.tile.extent < end {
            let begins = turn * self.tile.extent;
            data += self.tile.runs.iter().map(|run| (end - begins - run.at).clamp(0, run.length)).sum::<i64>();
            turn += 1;
            if self.tile.extent <= 0 {
                break;
            }
        }
        data
    }

    /// Where the data of one filetype is: displacement and length of each run.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.tile.runs.iter().map(|run| (run.at, run.length))
    }

    /// From one filetype to the next.
    pub(crate) fn extent(&self) -> i64 {
        self.tile.extent
    }

    fn run_of(&self, within: i64) -> usize {
        self.before.partition_point(|&before| before <= within) - 1
    }

    fn beyond(&self, mpi: &Mpi) -> Failure {
        let sentence = if self.tile.size == 0 {
            "the view's filetype has no data, so nothing can be read or written through it"
        } else {
            "the access ends behind the largest offset that a file can have"
        };
        Failure::new(mpi.abi.class.io, sentence)
    }
}

fn extent(offset: i64, length: i64) -> Extent {
    Extent { offset: offset.cast_unsigned(), length: length.cast_unsigned() }
}

/// Whether a filetype's data comes in the file's order, each byte once, however often the type is repeated.
fn is_regular(tile: &Layout) -> bool {
    let apart = tile.runs.windows(2).all(|pair| pair[0].at + pair[0].length <= pair[1].at);
    let ends = tile.runs.first().zip(tile.runs.last());
    apart && ends.is_none_or(|(first, last)| last.at + last.length - first.at <= tile.extent)
}

/// What MPI demands of a view's types.
fn check(mpi: &Mpi, layout: &Layout, which: &str, writable: bool) -> Result<(), Failure> {
    let pairs = || layout.runs.windows(2).map(|pair| (pair[0], pair[1]));
    let sentence = if layout.runs.iter().any(|run| run.at < 0) {
        format!("a displacement of the {which} is negative")
    } else if pairs().any(|(one, next)| next.at < one.at) {
        format!("the displacements of the {which} decrease")
    } else if writable && pairs().any(|(one, next)| next.at < one.at + one.length) {
        format!("the {which} overlaps itself, and the file is open for writing")
    } else {
        return Ok(());
    };
    Err(Failure::new(mpi.abi.class.io, sentence))
}
