//! The file's size as programs set it: longer by a hole, or cut.

use gambeson_proto::file::entry::HOLE;
use gambeson_proto::file::geometry::Half;

use crate::below;
use crate::body::{Body, Piece};
use crate::error::Error;
use crate::plan::{Extent, Plan};
use crate::sealed::SealedFile;
use crate::write::Staged;

impl<B: Body> SealedFile<B> {
    /// Sets the size, alone.
    ///
    /// # Errors
    /// A block that is cut in two can't be sealed again; or the body's.
    pub fn set_size(&mut self, size: u64) -> Result<(), Error> {
        self.check_may_write()?;
        self.resize_below(size)?;
        self.note_size(size);
        Ok(())
    }

    /// Cuts what is below, if this makes it shorter: as the one process that does it for all. A file with the data alone is
    /// as long as the program's, and so it is also made longer.
    ///
    /// # Errors
    /// As [`SealedFile::set_size`].
    pub fn resize_below(&mut self, size: u64) -> Result<(), Error> {
        let is_cut = size < self.size()?;
        if !is_cut && !self.geometry.detached {
            return Ok(());
        }
        let doing = if is_cut { "cutting it failed" } else { "making it longer failed" };
        let failed = |error| Error::below(&self.name, doing, error);
        let data = self.body.data_length().map_err(failed)?;
        let end = if is_cut { self.end_below(size, data)? } else { size };
        // Sealing the rest of a block again may have made the file longer, by the other half of its slot.
        let failed = |error| Error::below(&self.name, doing, error);
        let sealed = self.body.length().map_err(failed)?;
        let resized = match (self.geometry.detached, is_cut) {
            (false, _) => self.body.set_lengths(Some(end.min(sealed)), None),
            (true, true) => {
                let slots = self.geometry.len(self.geometry.blocks(size));
                self.body.set_lengths(Some(slots.min(sealed)), Some(end.min(data).max(size)))
            }
            (true, false) => self.body.set_lengths(None, (size > data).then_some(size)),
        };
        resized.map_err(failed)
    }

    /// Seals again what is left of the block that a size cuts in two; where the file that the data is in, now of this
    /// length, ends.
    fn end_below(&mut self, size: u64, length: u64) -> Result<u64, Error> {
        let block_len = u64::from(self.geometry.block_len);
        let (block, within) = (size / block_len, (size % block_len) as u32);
        if within == 0 {
            return Ok(if self.geometry.detached { size } else { self.geometry.len(block) });
        }
        let map = self.header.table().layout().block(block);
        let data = self.geometry.data(block, Half::First);
        // What was anchored of the block may be in either half.
        let mut end = if self.geometry.two_slots { self.geometry.len(block + 1) } else { data };
        for (place, share) in map.shares().iter().enumerate() {
            let kept = map.before(place, within);
            end = end.max(data + u64::from(share.area + kept));
            match share.entry {
                Some(index) => self.shorten(block, share.region, index, kept)?,
                // What comes back when the file grows again has to be zeros.
                None => {
                    let from = data + u64::from(share.area + kept);
                    let behind = length.saturating_sub(from).min(u64::from(share.len - kept)) as usize;
                    let offset = below::data(&self.geometry, block, Half::First) + u64::from(share.area + kept);
                    let written = self.body.write(&[Piece { offset, length: behind }], &vec![0; behind]);
                    written.map_err(|error| Error::below(&self.name, "cutting it failed", error))?;
                }
            }
        }
        Ok(end)
    }

    fn shorten(&mut self, block: u64, region: u16, index: u8, kept: u32) -> Result<(), Error> {
        let mut plan = Plan::default();
        plan.one(self.header.table().layout(), block, region);
        let access = plan.accesses()[0];
        let (_, mut old) = self.before(&access)?;
        if old.len() <= kept as usize {
            return Ok(());
        }
        old.truncate(kept as usize);
        let mut staged = Staged::default();
        if old.is_empty() {
            for &half in self.geometry.halves() {
                staged.put(self.geometry.entry(block, index, half), &HOLE);
            }
            self.note(block, index, HOLE);
        } else {
            self.stage_again(&access, old, &mut staged)?;
        }
        let written = self.body.write(staged.pieces(), staged.bytes());
        if written.is_err() {
            self.doubt(&[access]);
        }
        written.map_err(|error| Error::below(&self.name, "writing it failed", error))
    }

    /// Takes note of a size that was set, in every process.
    pub fn note_size(&mut self, size: u64) {
        let Some(session) = &mut self.session else { return };
        if size < session.size {
            let blocks = self.geometry.blocks(size);
            session.journal.cut(blocks, self.geometry.group(blocks), self.geometry.entry_in_table(blocks, 0) as u32);
            if !size.is_multiple_of(self.geometry.block_len.into()) {
                session.journal.shorten(blocks - 1);
            }
            self.recent.forget();
        }
        session.size = size;
    }

    /// Writes zeros where nothing was written, so that the storage has room for them.
    ///
    /// # Errors
    /// As [`SealedFile::write`].
    pub fn preallocate(&mut self, size: u64) -> Result<(), Error> {
        let known = self.size()?;
        if size > known {
            let zeros = vec![0; (size - known).min(CHUNK) as usize];
            let mut at = known;
            while at < size {
                let length = (size - at).min(CHUNK);
                self.write(&[Extent { offset: at, length }], &zeros[..length as usize])?;
                at += length;
            }
        }
        Ok(())
    }
}

/// Zeros that are written at once.
const CHUNK: u64 = 4 << 20;
