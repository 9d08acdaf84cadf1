//! Looking at every share of a file: what is whole, what is not, and what cannot be said without a key.

use gambeson_proto::file::entry::{ENTRY_LEN, HOLE};
use gambeson_proto::file::geometry::{Geometry, Half};
use gambeson_proto::file::header::Unverified;
use gambeson_proto::file::region::{RegionId, Share};
use std::ops::Range;

use crate::below;
use crate::body::{Body, Piece};
use crate::error::Error;
use crate::head::Head;
use crate::plan::Access;
use crate::read::STAGING;
use crate::sealed::SealedFile;
use crate::written::RawEntry;

/// Something wrong with one share.
#[derive(Debug)]
pub struct Finding {
    /// The region.
    pub region: RegionId,
    /// The block.
    pub block: u64,
    /// What is wrong; its sentence names both.
    pub error: Error,
}

/// What was found in some blocks.
#[derive(Debug, Default)]
pub struct Verified {
    /// Shares that were opened and are what was written.
    pub whole: u64,
    /// Sealed bytes of them.
    pub bytes: u64,
    /// Shares that nobody ever wrote, as the tree says too.
    pub holes: u64,
    /// Shares whose key is not here: their entries are what the tree says, their bytes were not looked at.
    pub closed: u64,
    /// What is wrong, in order of block.
    pub findings: Vec<Finding>,
    /// Groups whose copy of their entries is damaged. Nothing is lost as long as the entries beside the blocks are whole.
    pub damaged_groups: Vec<u64>,
}

/// A share as it is on the storage, in one half of its slot.
pub(crate) struct Stored<'a> {
    pub(crate) entry: RawEntry,
    pub(crate) data: &'a mut [u8],
}

impl<'a> Stored<'a> {
    fn of(half: &'a mut [u8], (entries_len, index, share): (usize, u8, &Share)) -> Self {
        let Some((entries, data)) = half.split_at_mut_checked(entries_len) else {
            return Stored { entry: HOLE, data: &mut [] };
        };
        let entry = entries[usize::from(index) * ENTRY_LEN..][..ENTRY_LEN].try_into();
        let data = &mut data[share.area as usize..][..share.len as usize];
        Stored { entry: entry.expect("an entry has this length"), data }
    }
}

impl Verified {
    /// Takes in what was found in other blocks.
    pub fn add(&mut self, other: Verified) {
        self.whole += other.whole;
        self.bytes += other.bytes;
        self.holes += other.holes;
        self.closed += other.closed;
        self.findings.extend(other.findings);
        self.damaged_groups.extend(other.damaged_groups);
        self.findings.sort_by_key(|finding| (finding.block, finding.region));
        self.damaged_groups.sort_unstable();
    }
}

impl<B: Body> SealedFile<B> {
    /// The blocks of the file, as far as it goes now.
    ///
    /// # Errors
    /// As the body has them.
    pub fn blocks(&mut self) -> Result<u64, Error> {
        let size = self.size()?;
        Ok(self.geometry.blocks(size))
    }

    /// Opens and judges every sealed share of some blocks.
    ///
    /// # Errors
    /// As the body has them; what is wrong with shares is among what was found.
    pub fn verify(&mut self, blocks: Range<u64>) -> Result<Verified, Error> {
        let mut verified = Verified::default();
        let per_group = u64::from(self.geometry.group_blocks);
        for group in blocks.start.div_ceil(per_group)..blocks.end.div_ceil(per_group) {
            let whole = self.tree.is_whole(self.body.sealed(), &self.geometry, group);
            if !whole.map_err(|error| Error::below(&self.name, "reading its tree failed", error))? {
                verified.damaged_groups.push(group);
            }
        }
        self.each_share(blocks, |file, access, index, halves| {
            let (region, block) = (access.share.region, access.block);
            let standing = file.standing(access, index, &halves.each_ref().map(|half| half.entry));
            let Stored { entry, data } = &mut halves[standing as usize];
            let outcome = if file.unreadable(region).is_some() {
                file.judge(access, index, entry).map(|()| None)
            } else {
                file.open_share(access, index, entry, data, None).map(Some)
            };
            match outcome {
                _ if *entry == HOLE && outcome.is_ok() => verified.holes += 1,
                Ok(None) => verified.closed += 1,
                Ok(Some(length)) => {
                    verified.whole += 1;
                    verified.bytes += length as u64;
                }
                Err(error) => verified.findings.push(Finding { region, block, error }),
            }
        })?;
        Ok(verified)
    }

    /// What is damaged of that which a closed file has twice, as sentences: nothing is lost as long as the other copy is whole.
    pub fn damaged_copies(&self, head: &Head) -> Vec<String> {
        let mut damaged = Vec::new();
        for (name, copy) in ["first", "second"].into_iter().zip(&head.copies) {
            let is_blank = copy.iter().all(|&byte| byte == 0);
            if !is_blank && let Err(error) = Unverified::decode(copy) {
                damaged.push(format!("the {name} copy of the header can't be used: {error}"));
            }
        }
        if self.tree.rebuilt {
            damaged.push("a table of digests was altered; it was computed again from the entry tables".to_owned());
        }
        damaged
    }

    /// Calls for each sealed share of some blocks, with what is on the storage in each half of the slot; a half that there
    /// is not has a hole.
    pub(crate) fn each_share(
        &mut self,
        blocks: Range<u64>,
        mut act: impl FnMut(&mut Self, &Access, u8, &mut [Stored; 2]),
    ) -> Result<(), Error> {
        let Geometry { block_len, detached, .. } = self.geometry;
        let apart = if detached { block_len as usize } else { 0 };
        let slot_len = self.geometry.slot_len() as usize + apart;
        let half_len = self.geometry.half_len() as usize + apart;
        let at_once = (STAGING / slot_len).max(1);
        let mut bytes = vec![0; at_once * slot_len];
        let mut next = blocks.start;
        while next < blocks.end {
            let batch = next..blocks.end.min(next + at_once as u64);
            next = batch.end;
            let slot = |block| {
                let slot = Piece { offset: self.geometry.slot(block), length: slot_len - apart };
                let data = Piece { offset: below::data(&self.geometry, block, Half::First), length: apart };
                std::iter::once(slot).chain(detached.then_some(data))
            };
            let pieces: Vec<Piece> = batch.clone().flat_map(slot).collect();
            let length = pieces.iter().map(|piece| piece.length).sum();
            let read = self.body.read(&pieces, &mut bytes[..length]);
            read.map_err(|error| Error::below(&self.name, "reading it failed", error))?;
            for (block, slot) in batch.zip(bytes.chunks_mut(slot_len)) {
                let (first, second) = slot.split_at_mut(half_len);
                let map = self.header.table().layout().block(block);
                for share in map.shares() {
                    let Some(index) = share.entry else { continue };
                    let place = (self.geometry.entries_len(), index, share);
                    let halves = &mut [Stored::of(first, place), Stored::of(second, place)];
                    act(self, &Access::to(block, *share), index, halves);
                }
            }
        }
        Ok(())
    }
}
