//! Writing: shares are sealed into the very bytes that go below. What a request has only in part is read first, with the
//! block locked, so that writers of several processes and hosts may share blocks.

use std::ops::Range;

use gambeson_proto::file::entry::{ENTRY_LEN, HOLE, NONCE_LEN};
use gambeson_proto::file::geometry::Half;
use gambeson_proto::file::share::Write;

use crate::body::{Body, Piece};
use crate::error::{Cause, Error};
use crate::lock::{self, Held, Mode};
use crate::plan::{Access, Extent, Plan};
use crate::read::{STAGING, same_block};
use crate::sealed::SealedFile;
use crate::tree::Anchored;
use crate::written::RawEntry;

/// Bytes ready to be written below: sealed shares with their entries, and plain ones.
#[derive(Debug, Default)]
pub struct Staged {
    pieces: Vec<Piece>,
    /// Room for their bytes, which is kept as it is from one use to the next: all that counts is written over.
    room: Vec<u8>,
    /// How much of it counts.
    length: usize,
    /// Nonces of the shares at hand.
    nonces: Vec<[u8; NONCE_LEN]>,
}

impl Staged {
    /// Begins anew.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.length = 0;
    }

    /// Where the bytes belong, sorted.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The bytes, one piece after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// Adds bytes as they are.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let to = self.push(offset, bytes.len());
        self.room[to].copy_from_slice(bytes);
    }

    /// Room for bytes that belong at an offset; the caller fills all of it.
    fn push(&mut self, offset: u64, length: usize) -> Range<usize> {
        match self.pieces.last_mut() {
            Some(last) if last.offset + last.length as u64 == offset => last.length += length,
            _ => self.pieces.push(Piece { offset, length }),
        }
        let at = self.length;
        self.length += length;
        if self.room.len() < self.length {
            self.room.resize(self.length, 0);
        }
        at..at + length
    }
}

impl<B: Body> SealedFile<B> {
    /// Writes extents from a packed buffer. Regions that this identity may not write are left as they are, the rest is
    /// written all the same, and then the first of the failures returned.
    ///
    /// # Errors
    /// Each names the region, and the block where there is one.
    pub fn write(&mut self, extents: &[Extent], from: &[u8]) -> Result<(), Error> {
        self.check_may_write()?;
        let mut plan = std::mem::take(&mut self.plan);
        self.plan(&mut plan, extents, u64::MAX);
        let result = self.write_shares(&plan, plan.accesses(), from);
        self.plan = plan;
        if let (Some(session), Some(end)) = (&mut self.session, end_of(extents)) {
            session.size = session.size.max(end);
        }
        result
    }

    /// Whether the file was opened for writing.
    ///
    /// # Errors
    /// It was not.
    pub fn check_may_write(&self) -> Result<(), Error> {
        match self.session {
            Some(_) => Ok(()),
            None => Err(Error::new(Cause::Access, &self.name, "it was opened for reading alone")),
        }
    }

    /// Writes what a plan says of some of its shares, as [`SealedFile::write`].
    ///
    /// # Errors
    /// As [`SealedFile::write`].
    pub fn write_shares(&mut self, plan: &Plan, shares: &[Access], from: &[u8]) -> Result<(), Error> {
        let mut staged = std::mem::take(&mut self.staged);
        let mut failed = None;
        let mut rest = shares;
        while !rest.is_empty() {
            // Neighbouring blocks, as many as stay in the processor's cache: one lock, one write.
            let mut count = 0;
            let mut length = 0;
            for block in rest.chunk_by(same_block) {
                if count > 0 && (length >= STAGING || block[0].block > rest[count - 1].block + 1) {
                    break;
                }
                count += block.len();
                length += block.iter().map(|access| access.share.len as usize).sum::<usize>();
            }
            let (batch, later) = rest.split_at(count);
            rest = later;
            if let Err(error) = self.write_batch(plan, batch, from, &mut staged) {
                failed.get_or_insert(error);
            }
        }
        self.staged = staged;
        failed.map_or(Ok(()), Err)
    }

    fn write_batch(&mut self, plan: &Plan, batch: &[Access], from: &[u8], staged: &mut Staged) -> Result<(), Error> {
        let held = self.lock_blocks(batch[0].block..batch[batch.len() - 1].block + 1)?;
        staged.clear();
        let sealed = self.stage(plan, batch, from, staged);
        let written = self.body.write(staged.pieces(), staged.bytes());
        drop(held);
        if written.is_err() {
            self.doubt(batch);
        }
        written.map_err(|error| Error::below(&self.name, "writing it failed", error))?;
        sealed
    }

    /// What was staged of these shares could not be written, or not all of it: the file will say which.
    pub fn doubt(&mut self, batch: &[Access]) {
        let Some(session) = &mut self.session else { return };
        for access in batch {
            if let Some(index) = access.share.entry {
                let at = self.geometry.entry_in_table(access.block, index) as u32;
                session.journal.doubt(self.geometry.group(access.block), at);
            }
        }
    }

    /// Locks blocks against other writers, unless the caller does.
    fn lock_blocks(&self, blocks: Range<u64>) -> Result<Option<Held>, Error> {
        if self.is_locked {
            return Ok(None);
        }
        let held = self.body.lock(lock::blocks(blocks), Mode::Exclusive);
        held.map(Some)
            .map_err(|error| Error::no_locks(&self.name, "writing it independently of other processes", &error))
    }

    /// Does something with all blocks of a request locked, so that it is one for all who lock.
    ///
    /// # Errors
    /// The file system has no locks; or as what is done has them.
    pub fn with_locks<T>(
        &mut self,
        extents: &[Extent],
        mode: Mode,
        act: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let blocks = extents.iter().filter(|extent| extent.length > 0);
        let blocks = blocks.map(|extent| {
            (self.geometry.block(extent.offset), self.geometry.block(extent.offset + extent.length - 1) + 1)
        });
        let Some((from, to)) = blocks.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { return act(self) };
        let held = self.body.lock(lock::blocks(from..to), mode);
        let held = held.map_err(|error| Error::no_locks(&self.name, "atomic access to it", &error))?;
        self.without_locks(|file| {
            let result = act(file);
            drop(held);
            result
        })
    }

    /// Does something without locking: nobody else accesses these blocks now.
    pub fn without_locks<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.is_locked, true);
        let result = act(self);
        self.is_locked = before;
        result
    }

    /// Seals what the request has of these shares, all that it has of each block, into bytes that are to be written
    /// below. Shares of which it has a part alone are read first: whoever calls holds the blocks' locks, or knows that
    /// nobody else writes there. What it has sealed counts as written.
    ///
    /// # Errors
    /// The first share's that can't be sealed; the others are there.
    pub fn stage(&mut self, plan: &Plan, batch: &[Access], from: &[u8], staged: &mut Staged) -> Result<(), Error> {
        let mut failed = None;
        draw(&mut staged.nonces, batch.len());
        let mut parts = Vec::new();
        for block in batch.chunk_by(same_block) {
            // Entries stand before data: so what can be sealed has to be known first.
            for access in block {
                match self.part(plan, access) {
                    Ok(part) => parts.push(part),
                    Err(error) => {
                        failed.get_or_insert(error);
                    }
                }
            }
            // In the order in which they stand: what is plain comes behind what is sealed, whatever its region.
            parts.sort_by_key(|part: &Part| (part.half as u8, part.access.share.area));
            for half in parts.chunk_by_mut(|one, other| one.half == other.half) {
                self.stage_half(plan, half, from, staged);
            }
            parts.clear();
        }
        failed.map_or(Ok(()), Err)
    }

    /// What one share will be, with what it was if the request does not have all of it.
    fn part<'a>(&mut self, plan: &Plan, access: &'a Access) -> Result<Part<'a>, Error> {
        self.begin_writing(access.share.region)?;
        let Some(index) = access.share.entry else {
            return Ok(Part { access, half: Half::First, length: 0, merged: None });
        };
        let half = self.half_to_write(access, index)?;
        if plan.covers(access) {
            return Ok(Part { access, half, length: access.share.len, merged: None });
        }
        let (_, merged) = self.before(access)?;
        let length = plan.end(access).max(merged.len() as u32);
        Ok(Part { access, half, length, merged: Some(merged) })
    }

    /// Not the half that has what the last close anchored: it stays whole until the next one.
    fn half_to_write(&mut self, access: &Access, index: u8) -> Result<Half, Error> {
        if !self.geometry.two_slots {
            return Ok(Half::First);
        }
        let anchored = match self.anchored(access.block, index)? {
            Anchored::Entry(anchored) if anchored != HOLE => anchored,
            _ => return Ok(Half::First),
        };
        let mut first = HOLE;
        let piece = Piece { offset: self.geometry.entry(access.block, index, Half::First), length: ENTRY_LEN };
        let read = self.body.read(&[piece], &mut first);
        read.map_err(|error| Error::below(&self.name, "reading it failed", error))?;
        Ok(if first == anchored { Half::Second } else { Half::First })
    }

    fn stage_half(&mut self, plan: &Plan, parts: &mut [Part], from: &[u8], staged: &mut Staged) {
        let entries = staged.length;
        let mut sealed = 0;
        for part in &*parts {
            if let Some(index) = part.access.share.entry {
                staged.push(self.geometry.entry(part.access.block, index, part.half), ENTRY_LEN);
                sealed += 1;
            }
        }
        if let Some((offset, length)) = self.unused_entries(parts.iter().map(|part| part.access), parts[0].half) {
            let unused = staged.push(offset, length);
            staged.room[unused].fill(0);
        }
        let mut at = entries;
        for part in parts {
            let runs = plan.runs(part.access);
            let Some(index) = part.access.share.entry else {
                let data = self.data(part.access, Half::First);
                for run in runs {
                    staged.put(data + u64::from(run.at), &from[run.buffer..][..run.length as usize]);
                }
                continue;
            };
            let place = (part.access, part.half);
            let entry = match (runs, part.merged.take()) {
                // One piece of the request's buffer is all of the share: sealed from where it is.
                ([run], None) => self.seal(place, staged, &from[run.buffer..][..run.length as usize]),
                (_, merged) => {
                    let mut plain = merged.unwrap_or_else(|| self.recent.take());
                    plain.resize(part.length as usize, 0);
                    for run in runs {
                        plain[run.at as usize..][..run.length as usize]
                            .copy_from_slice(&from[run.buffer..][..run.length as usize]);
                    }
                    let entry = self.seal(place, staged, &plain);
                    self.recent.keep(part.access, entry, plain);
                    entry
                }
            };
            staged.room[at..at + ENTRY_LEN].copy_from_slice(&entry);
            at += ENTRY_LEN;
            self.note(part.access.block, index, entry);
        }
        debug_assert_eq!(at, entries + sealed * ENTRY_LEN);
    }

    /// Seals a share again that the file has, from its bytes in clear.
    pub(crate) fn stage_again(&mut self, access: &Access, plain: Vec<u8>, staged: &mut Staged) -> Result<(), Error> {
        self.begin_writing(access.share.region)?;
        draw(&mut staged.nonces, 1);
        let index = access.share.entry.expect("what is sealed has an entry");
        let half = self.half_to_write(access, index)?;
        let place = staged.push(self.geometry.entry(access.block, index, half), ENTRY_LEN);
        let entry = self.seal((access, half), staged, &plain);
        staged.room[place].copy_from_slice(&entry);
        self.note(access.block, index, entry);
        Ok(())
    }

    /// Seals a share's bytes into what is staged.
    fn seal(&self, (access, half): (&Access, Half), staged: &mut Staged, plain: &[u8]) -> RawEntry {
        let key = self.access[usize::from(access.share.region)].newest().ok().flatten();
        let key = key.expect("it was asked for before, and what is sealed has a key");
        let nonce = staged.nonces.pop().expect("one was drawn for each share");
        let to = staged.push(self.data(access, half), plain.len());
        let write = Write { nonce, block: access.block, generation: self.state.generation };
        key.seal(&write, plain, &mut staged.room[to]).encode()
    }

    /// Takes note of an entry that is being written.
    pub(crate) fn note(&mut self, block: u64, index: u8, entry: RawEntry) {
        let at = self.geometry.entry_in_table(block, index) as u32;
        let group = self.geometry.group(block);
        self.session.as_mut().expect("who writes has opened for writing").journal.note(group, at, entry);
    }
}

/// What a write has of one share.
struct Part<'a> {
    access: &'a Access,
    half: Half,
    /// Bytes that a sealed share will have.
    length: u32,
    /// What it had, if that is needed, to be merged with what is written.
    merged: Option<Vec<u8>>,
}

/// Fresh nonces from the kernel: nothing that a forked process could have too.
fn draw(nonces: &mut Vec<[u8; NONCE_LEN]>, count: usize) {
    nonces.clear();
    nonces.resize(count, [0; NONCE_LEN]);
    getrandom::fill(nonces.as_flattened_mut()).expect("the kernel gives random numbers once it is up");
}

fn end_of(extents: &[Extent]) -> Option<u64> {
    extents.iter().filter(|extent| extent.length > 0).map(|extent| extent.offset + extent.length).max()
}
