//! Where everything stands. All offsets are in bytes.
//!
//! ```text
//!  0      header copy A (H bytes)
//!  H      header copy B
//!  2H     chapter 0 | chapter 1 | ...         chapter = digest table (G x 32 bytes), then G groups
//!         group   = entry table (N x E entries of 64 bytes), then N slots
//!         slot    = E entries, then a block of B bytes
//! ```
//! Nothing is preallocated: what was never written is a hole of the file below and reads as zeros.
//!
//! With two slots per block a slot is twice that, in two halves, so that a write never overwrites what the last close
//! anchored. A detached file keeps its data elsewhere, each block where the program's bytes are; its slots are entries
//! alone.

use super::entry::ENTRY_LEN;

/// The shortest block.
pub const BLOCK_LEN_MIN: u32 = 4 << 10;
/// The longest block.
pub const BLOCK_LEN_MAX: u32 = 1 << 20;
/// The block of a file of which nobody says otherwise.
pub const BLOCK_LEN: u32 = 64 << 10;
/// The shortest header.
pub const HEADER_LEN_MIN: u32 = 4 << 10;
/// The longest header.
pub const HEADER_LEN_MAX: u32 = 16 << 20;
/// The header of a file of which nobody says otherwise.
pub const HEADER_LEN: u32 = 16 << 10;
/// Bytes of a digest in a digest table.
pub const DIGEST_LEN: usize = 32;
/// The most blocks of a group, and groups of a chapter.
pub const COUNT_MAX: u32 = 4096;

/// The measures of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// B: bytes of a block, a power of two.
    pub block_len: u32,
    /// E: entries of a slot, at least as many as a block can have sealed shares.
    pub shares: u8,
    /// N: blocks of a group.
    pub group_blocks: u32,
    /// G: groups of a chapter.
    pub groups: u32,
    /// H: bytes of a header copy, a power of two.
    pub header_len: u32,
    /// Whether each block has two slots, of which one is kept as it was at the last close.
    pub two_slots: bool,
    /// Whether the data is in a file of its own, at the program's offsets.
    pub detached: bool,
}

/// One of the two halves of a slot with two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Half {
    /// The first; the only one of a file without two slots per block.
    #[default]
    First,
    /// The second.
    Second,
}

/// One of the header's copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderCopy {
    /// At the file's start.
    A,
    /// Behind it.
    B,
}

impl Geometry {
    /// What a file with such blocks has of its own accord: one region, groups of 16 MiB.
    pub fn new(block_len: u32) -> Self {
        Geometry {
            block_len,
            shares: 1,
            group_blocks: ((16 << 20) / block_len.max(1)).clamp(16, COUNT_MAX),
            groups: 512,
            header_len: HEADER_LEN,
            two_slots: false,
            detached: false,
        }
    }

    /// Whether these are measures that a file can have; the methods ask for that.
    pub fn is_legal(&self) -> bool {
        self.block_len.is_power_of_two()
            && (BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&self.block_len)
            && self.header_len.is_power_of_two()
            && (HEADER_LEN_MIN..=HEADER_LEN_MAX).contains(&self.header_len)
            && (1..=COUNT_MAX).contains(&self.group_blocks)
            && (1..=COUNT_MAX).contains(&self.groups)
            && self.shares > 0
            && !(self.two_slots && self.detached)
    }

    /// The number of blocks that a file can have, so that no offset is above 2^63 - 1. Methods that take a block, a
    /// group or a chapter panic above it.
    pub fn blocks_max(&self) -> u64 {
        let chapters = (OFFSET_MAX - 2 * u64::from(self.header_len)) / self.chapter_len();
        (chapters * self.chapter_blocks()).min(OFFSET_MAX / u64::from(self.block_len))
    }

    /// Whether a file can have so many bytes.
    pub fn holds(&self, size: u64) -> bool {
        self.blocks(size) <= self.blocks_max()
    }

    /// How many blocks so many of the program's bytes have begun.
    pub fn blocks(&self, size: u64) -> u64 {
        size.div_ceil(u64::from(self.block_len))
    }

    /// The block of one of the program's bytes.
    pub fn block(&self, offset: u64) -> u64 {
        offset / u64::from(self.block_len)
    }

    /// How many groups so many blocks have begun.
    pub fn groups_of(&self, blocks: u64) -> u64 {
        blocks.div_ceil(u64::from(self.group_blocks))
    }

    /// How many chapters so many blocks have begun.
    pub fn chapters_of(&self, blocks: u64) -> u64 {
        blocks.div_ceil(self.chapter_blocks())
    }

    /// The group of a block, counted from the file's start.
    pub fn group(&self, block: u64) -> u64 {
        block / u64::from(self.group_blocks)
    }

    /// The chapter of a group.
    pub fn chapter(&self, group: u64) -> u64 {
        group / u64::from(self.groups)
    }

    /// Where a copy of the header stands.
    pub fn header(&self, copy: HeaderCopy) -> u64 {
        match copy {
            HeaderCopy::A => 0,
            HeaderCopy::B => self.header_len.into(),
        }
    }

    /// Where a chapter's digest table stands.
    pub fn digest_table(&self, chapter: u64) -> u64 {
        self.assert_holds(chapter.checked_mul(self.chapter_blocks()));
        2 * u64::from(self.header_len) + chapter * self.chapter_len()
    }

    /// Bytes of a digest table.
    pub fn digest_table_len(&self) -> usize {
        self.groups as usize * DIGEST_LEN
    }

    /// Where a group's digest stands in its chapter's digest table.
    pub fn digest_in_table(&self, group: u64) -> usize {
        (group % u64::from(self.groups)) as usize * DIGEST_LEN
    }

    /// Where a group's entry table stands.
    pub fn entry_table(&self, group: u64) -> u64 {
        self.assert_holds(group.checked_mul(self.group_blocks.into()));
        self.digest_table(self.chapter(group))
            + self.digest_table_len() as u64
            + group % u64::from(self.groups) * self.group_len()
    }

    /// Bytes of an entry table.
    pub fn entry_table_len(&self) -> usize {
        self.group_blocks as usize * self.entries_len()
    }

    /// Where the entry of a block's sealed share stands in its group's entry table.
    pub fn entry_in_table(&self, block: u64, index: u8) -> usize {
        assert!(index < self.shares, "a block has no more sealed shares than the table says");
        (block % u64::from(self.group_blocks)) as usize * self.entries_len() + usize::from(index) * ENTRY_LEN
    }

    /// Where a block's slot stands: its entries and, unless detached, its data. With two slots, the first half.
    pub fn slot(&self, block: u64) -> u64 {
        self.assert_holds(Some(block));
        self.entry_table(self.group(block))
            + self.entry_table_len() as u64
            + block % u64::from(self.group_blocks) * self.slot_len()
    }

    /// Bytes of a slot, with all that is in it.
    pub fn slot_len(&self) -> u64 {
        if self.two_slots { 2 * self.half_len() } else { self.half_len() }
    }

    /// The halves of a slot.
    pub fn halves(&self) -> &'static [Half] {
        if self.two_slots { &[Half::First, Half::Second] } else { &[Half::First] }
    }

    /// Bytes of the entries before a block's data.
    pub fn entries_len(&self) -> usize {
        usize::from(self.shares) * ENTRY_LEN
    }

    /// Where half a slot stands.
    pub fn half(&self, block: u64, half: Half) -> u64 {
        match half {
            Half::First => self.slot(block),
            Half::Second => {
                assert!(self.two_slots, "a file without two slots per block has first halves alone");
                self.slot(block) + self.half_len()
            }
        }
    }

    /// Where the entry of a sealed share stands in the slot.
    pub fn entry(&self, block: u64, index: u8, half: Half) -> u64 {
        assert!(index < self.shares, "a block has no more sealed shares than the table says");
        self.half(block, half) + (usize::from(index) * ENTRY_LEN) as u64
    }

    /// Where a block's data stands: in the sealed file, or, if detached, in the file with the data.
    pub fn data(&self, block: u64, half: Half) -> u64 {
        if self.detached {
            self.assert_holds(Some(block));
            return block * u64::from(self.block_len);
        }
        self.half(block, half) + self.entries_len() as u64
    }

    /// Bytes of a file with so many blocks, all slots whole.
    pub fn len(&self, blocks: u64) -> u64 {
        match blocks.checked_sub(1) {
            Some(last) => self.slot(last) + self.slot_len(),
            None => 2 * u64::from(self.header_len),
        }
    }

    /// How many slots a file of so many bytes has begun: from that one on there is nothing.
    pub fn slots_begun(&self, len: u64) -> u64 {
        let Some(body) = len.checked_sub(2 * u64::from(self.header_len)) else { return 0 };
        let (chapter, within) = (body / self.chapter_len(), body % self.chapter_len());
        let within = within.saturating_sub(self.digest_table_len() as u64);
        let (group, within) = (within / self.group_len(), within % self.group_len());
        let slots = within.saturating_sub(self.entry_table_len() as u64).div_ceil(self.slot_len());
        let begun = chapter
            .saturating_mul(self.chapter_blocks())
            .saturating_add(group * u64::from(self.group_blocks))
            .saturating_add(slots);
        begun.min(self.blocks_max())
    }

    /// Blocks of a chapter.
    pub fn chapter_blocks(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.group_blocks)
    }

    fn chapter_len(&self) -> u64 {
        self.digest_table_len() as u64 + u64::from(self.groups) * self.group_len()
    }

    fn group_len(&self) -> u64 {
        self.entry_table_len() as u64 + u64::from(self.group_blocks) * self.slot_len()
    }

    /// Bytes of half a slot; of a whole one where it has no halves.
    pub fn half_len(&self) -> u64 {
        let data = if self.detached { 0 } else { self.block_len };
        self.entries_len() as u64 + u64::from(data)
    }

    fn assert_holds(&self, block: Option<u64>) {
        assert!(block.is_some_and(|block| block < self.blocks_max()), "no file has a block number {block:?}");
    }
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry::new(BLOCK_LEN)
    }
}

impl HeaderCopy {
    /// The other one, which is written next.
    pub fn other(self) -> Self {
        match self {
            HeaderCopy::A => HeaderCopy::B,
            HeaderCopy::B => HeaderCopy::A,
        }
    }
}

impl Half {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Half::First => Half::Second,
            Half::Second => Half::First,
        }
    }
}

/// Offsets in files are signed (POSIX off_t, MPI_Offset).
const OFFSET_MAX: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests;
