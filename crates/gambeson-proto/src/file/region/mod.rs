//! Which bytes of a file belong to which region.
//!
//! ```text
//!  the program's bytes   0 0 1 1 0 2 1 1 | 1 1 2 2 2 0 0 0     the digits: whose they are
//!  blocks, as they lie   0 0 0 1 1 1 1 2 | 0 0 0 1 1 2 2 2     shares, one after the other
//! ```
//! Region 0 is the rest: what no other region claims. A region's bytes in a block, in order, are its *share* of the
//! block. In the block's data the shares lie one after the other, sealed ones first, in order of the regions' numbers.
//! How long each is follows from the regions alone, never from how much of the file has been written.

mod map;
mod part;

use std::fmt;

pub use map::{BlockMap, Run, Share};
pub use part::{Part, PartError, Piece};

use part::Overlapping;

/// The number of a region.
pub type RegionId = u16;

/// The most regions of a file: as many as a slot has entries at most, and as many plain ones again.
pub const REGIONS_MAX: usize = 512;
/// The most pieces of all parts of a file: as many as fit into the longest header.
pub const PIECES_MAX: usize = 1 << 20;

/// The regions of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    block_len: u32,
    regions: Vec<Layout>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    is_sealed: bool,
    parts: Vec<Part>,
}

/// Two regions claim the same byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The region that was there.
    pub region: RegionId,
    /// A byte that both claim. It may be far behind the end of the file: parts go on for ever.
    pub offset: u128,
    /// How many bytes from that one on both claim, at least.
    pub length: u64,
}

impl fmt::Display for Overlap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overlap { region, offset, length } = self;
        write!(out, "bytes {offset} to {} belong to region {region} already", offset + u128::from(*length) - 1)
    }
}

impl std::error::Error for Overlap {}

/// A stretch of the program's bytes that is one run of one share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The block.
    pub block: u64,
    /// The region.
    pub region: RegionId,
    /// Which of the slot's entries is the share's; `None` for a plain one.
    pub entry: Option<u8>,
    /// Where the share begins in the block's data.
    pub area: u32,
    /// Where the stretch begins in the share.
    pub offset: u32,
    /// Its bytes.
    pub len: u32,
}

impl Regions {
    /// A file of one region, with blocks of a length that [`super::Geometry`] allows.
    pub fn new(block_len: u32, is_sealed: bool) -> Self {
        Regions { block_len, regions: vec![Layout { is_sealed, parts: Vec::new() }] }
    }

    /// Adds a region. Its own parts may overlap each other; a byte belongs to it once all the same.
    ///
    /// # Errors
    /// A byte that another region claims already; then nothing is added.
    ///
    /// # Panics
    /// Above [`REGIONS_MAX`].
    pub fn add(&mut self, is_sealed: bool, parts: Vec<Part>) -> Result<RegionId, Overlap> {
        assert!(self.regions.len() < REGIONS_MAX, "the caller counts regions");
        let parts = Part::merge(parts);
        for (region, other) in (1..).zip(&self.regions[1..]) {
            let overlap = parts.iter().find_map(|part| other.parts.iter().find_map(|other| part.overlap(other)));
            if let Some(Overlapping { offset, length }) = overlap {
                return Err(Overlap { region, offset, length });
            }
        }
        self.regions.push(Layout { is_sealed, parts });
        Ok((self.regions.len() - 1) as RegionId)
    }

    /// Bytes of a block.
    pub fn block_len(&self) -> u32 {
        self.block_len
    }

    /// How many there are, with region 0.
    pub fn count(&self) -> usize {
        self.regions.len()
    }

    /// Whether a region is sealed.
    pub fn is_sealed(&self, region: RegionId) -> bool {
        self.regions[usize::from(region)].is_sealed
    }

    /// How many are sealed: no block has more sealed shares.
    pub fn sealed(&self) -> usize {
        self.regions.iter().filter(|region| region.is_sealed).count()
    }

    /// Whether there is one region, so that every block is one share.
    pub fn is_uniform(&self) -> bool {
        self.regions.len() == 1
    }

    /// The shares of a block and their runs. A file of one region, and a block of one, need no allocation.
    pub fn block(&self, block: u64) -> BlockMap {
        if self.is_uniform() {
            return BlockMap::whole(self.block_len, 0, self.regions[0].is_sealed);
        }
        map::of(self, block)
    }

    /// The first block whose map equals that of `block`, as far as the parts' periods tell: under it a caller finds again
    /// what [`Regions::block`] said.
    pub fn like(&self, block: u64) -> u64 {
        let parts = || self.regions.iter().flat_map(|region| &region.parts);
        let len = u64::from(self.block_len);
        let Some(first) = parts().map(|part| part.displacement().div_ceil(len)).max() else { return 0 };
        // The parts' periods together, in blocks.
        let period = parts().try_fold(1_u64, |period, part| {
            let of_part = part.extent() / gcd(part.extent(), len);
            (period / gcd(period, of_part)).checked_mul(of_part)
        });
        match period {
            Some(period) if block > first => first + (block - first) % period,
            _ => block,
        }
    }

    /// The stretches of the program's bytes from `offset` on, in order. With one region nothing is allocated, else
    /// something for each block of several shares.
    ///
    /// # Panics
    /// When they end above 2^64.
    pub fn split(&self, offset: u64, length: u64) -> Split<'_> {
        let end = offset.checked_add(length).expect("an extent ends within 64 bits");
        Split { regions: self, map: None, at: offset, end }
    }
}

/// The iterator of [`Regions::split`].
#[derive(Clone, Debug)]
pub struct Split<'a> {
    regions: &'a Regions,
    map: Option<(u64, BlockMap)>,
    at: u64,
    end: u64,
}

impl Iterator for Split<'_> {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        if self.at >= self.end {
            return None;
        }
        let len = u64::from(self.regions.block_len);
        let (block, within) = (self.at / len, (self.at % len) as u32);
        if self.map.as_ref().is_none_or(|map| map.0 != block) {
            self.map = Some((block, self.regions.block(block)));
        }
        let (_, map) = self.map.as_ref().expect("it is there");
        let (share, run) = map.locate(within);
        let skipped = within - run.offset;
        let len = u64::from(run.len - skipped).min(self.end - self.at);
        self.at += len;
        Some(Stretch {
            block,
            region: share.region,
            entry: share.entry,
            area: share.area,
            offset: run.within + skipped,
            len: len as u32,
        })
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
