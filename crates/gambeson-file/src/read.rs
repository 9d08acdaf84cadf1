//! Reading: shares are fetched with their entries, believed or refused one by one, and opened.

use gambeson_proto::file::entry::{Decoded, ENTRY_LEN, Entry, HOLE};
use gambeson_proto::file::geometry::Half;

use crate::below;
use crate::body::{Body, Piece};
use crate::error::{Cause, Error};
use crate::lock::{self, Mode};
use crate::plan::{Access, Extent, Plan};
use crate::sealed::SealedFile;
use crate::tree::Anchored;
use crate::written::RawEntry;

/// What a request has to fetch: a caller reads `pieces` in any way it likes and hands their bytes to
/// [`SealedFile::deliver`].
#[derive(Debug, Default)]
pub struct Fetch {
    /// Where, sorted.
    pub pieces: Vec<Piece>,
    /// Bytes of all of them.
    pub length: usize,
}

impl Fetch {
    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.length = 0;
    }

    /// Adds bytes of the file below.
    pub(crate) fn push(&mut self, offset: u64, length: usize) {
        match self.pieces.last_mut() {
            Some(last) if last.offset + last.length as u64 == offset => last.length += length,
            _ => self.pieces.push(Piece { offset, length }),
        }
        self.length += length;
    }
}

impl<B: Body> SealedFile<B> {
    /// Reads extents into a packed buffer. What this identity may not read, and what was altered, is zeros in it; the rest
    /// is read all the same, and then the first of the failures returned.
    ///
    /// Bytes that were read: the buffer's length but for what lies behind the file's end.
    ///
    /// # Errors
    /// Each names region and block.
    pub fn read(&mut self, extents: &[Extent], into: &mut [u8]) -> Result<usize, Error> {
        let (limit, count) = self.clip(extents)?;
        let mut plan = std::mem::take(&mut self.plan);
        plan.fill(self.header.table().layout(), extents, limit);
        let result = self.read_plan(&plan, into);
        self.plan = plan;
        result.map(|()| count)
    }

    /// Where a read has to end, and how many bytes it will give.
    ///
    /// # Errors
    /// As the body has them.
    pub fn clip(&mut self, extents: &[Extent]) -> Result<(u64, usize), Error> {
        let wanted = extents.iter().map(|extent| extent.offset + extent.length).max().unwrap_or(0);
        let known = self.known_size();
        let limit = if wanted <= known { known } else { self.size()? };
        let within = |extent: &Extent| extent.length.min(limit.saturating_sub(extent.offset));
        let count = extents.iter().map(within).sum::<u64>();
        Ok((limit, usize::try_from(count).expect("a buffer fits memory")))
    }

    /// Reads what a plan says, as [`SealedFile::read`].
    ///
    /// # Errors
    /// As [`SealedFile::read`].
    pub fn read_plan(&mut self, plan: &Plan, into: &mut [u8]) -> Result<(), Error> {
        let mut staging = std::mem::take(&mut self.staging);
        let mut fetch = Fetch::default();
        let mut failed = None;
        let mut rest = plan.accesses();
        // Requests that follow each other meet in the shares at their ends.
        let is_part = |access: &Access| access.share.entry.is_some() && !plan.covers(access);
        if let Some(first) = rest.first().filter(|first| is_part(first)) {
            failed = self.read_part(plan, first, into).err();
            rest = &rest[1..];
        }
        let last = rest.last().filter(|last| is_part(last));
        if last.is_some() {
            rest = &rest[..rest.len() - 1];
        }
        while !rest.is_empty() {
            fetch.clear();
            let mut count = 0;
            for block in rest.chunk_by(same_block) {
                self.fetch(plan, block, &mut fetch);
                count += block.len();
                if fetch.length >= STAGING {
                    break;
                }
            }
            let (batch, later) = rest.split_at(count);
            rest = later;
            // Room that was there keeps its bytes; all of it is read over.
            if staging.len() < fetch.length {
                staging.resize(fetch.length, 0);
            }
            let read = self.body.read(&fetch.pieces, &mut staging[..fetch.length]);
            read.map_err(|error| Error::below(&self.name, "reading it failed", error))?;
            if let Err(error) = self.deliver(plan, batch, &mut staging[..fetch.length], into) {
                failed.get_or_insert(error);
            }
        }
        self.staging = staging;
        if let Some(Err(error)) = last.map(|last| self.read_part(plan, last, into)) {
            failed.get_or_insert(error);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Reads a part of one share, and keeps all of it at hand: the next part is likely one of it, too.
    fn read_part(&mut self, plan: &Plan, access: &Access, into: &mut [u8]) -> Result<(), Error> {
        let found = self.before(access);
        deliver_part(plan, access, found.as_ref().map_or(&[], |(_, plain)| plain), into);
        let (entry, plain) = found?;
        self.recent.keep(access, entry, plain);
        Ok(())
    }

    /// Adds what has to be read for the shares of one block: their entries, then their bytes.
    pub fn fetch(&self, plan: &Plan, block: &[Access], fetch: &mut Fetch) {
        for &half in self.geometry.halves() {
            for access in block {
                if let Some(index) = access.share.entry {
                    fetch.push(self.geometry.entry(access.block, index, half), ENTRY_LEN);
                }
            }
            if let Some((offset, length)) = self.unused_entries(block.iter(), half) {
                fetch.push(offset, length);
            }
            for access in block.iter().filter(|access| is_in(access, half)) {
                let (from, to) = fetched(plan, access);
                fetch.push(self.data(access, half) + u64::from(from), (to - from) as usize);
            }
        }
    }

    /// Where a slot has entries between those of some shares and their data that no share of the block has, and their
    /// bytes. They are accessed along, so that what lies on both sides is one piece.
    pub(crate) fn unused_entries<'a>(
        &self,
        accesses: impl Iterator<Item = &'a Access>,
        half: Half,
    ) -> Option<(u64, usize)> {
        let last = accesses.max_by_key(|access| access.share.entry)?;
        let (used, all) = (last.share.entries, self.geometry.shares);
        let is_next = used < all && last.share.entry.is_some_and(|entry| entry + 1 == used);
        is_next.then(|| (self.geometry.entry(last.block, used, half), usize::from(all - used) * ENTRY_LEN))
    }

    /// Opens what was fetched for these shares, all that were fetched of each block, into the request's buffer.
    ///
    /// # Errors
    /// The first share's that can't be had; the others are there.
    pub fn deliver(&mut self, plan: &Plan, batch: &[Access], fetched: &mut [u8], into: &mut [u8]) -> Result<(), Error> {
        let mut failed = None;
        let mut rest = fetched;
        for block in batch.chunk_by(same_block) {
            let mut halves: [HalfFetched; 2] = Default::default();
            for &half in self.geometry.halves() {
                let sealed = block.iter().filter(|access| access.share.entry.is_some()).count();
                let here = block.iter().filter(|access| is_in(access, half)).map(|access| self::fetched(plan, access));
                let length = here.map(|(from, to)| (to - from) as usize).sum();
                let entries = take(&mut rest, sealed * ENTRY_LEN);
                let unused = self.unused_entries(block.iter(), half);
                take(&mut rest, unused.map_or(0, |(_, length)| length));
                halves[half as usize] = HalfFetched { entries, data: take(&mut rest, length) };
            }
            for access in block {
                let (from, to) = self::fetched(plan, access);
                let length = (to - from) as usize;
                let delivered = if let Some(index) = access.share.entry {
                    let mut found = halves.each_mut().map(|half| half.share(length));
                    let standing = self.standing(access, index, &found.each_ref().map(|(entry, _)| *entry));
                    let (entry, data) = &mut found[standing as usize];
                    self.deliver_sealed(plan, access, index, entry, data, into)
                } else {
                    let data = take(&mut halves[0].data, length);
                    deliver_plain(plan, access, data, into);
                    Ok(())
                };
                if let Err(error) = delivered {
                    for run in plan.runs(access) {
                        into[run.buffer..run.buffer + run.length as usize].fill(0);
                    }
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn deliver_sealed(
        &mut self,
        plan: &Plan,
        access: &Access,
        index: u8,
        entry: &RawEntry,
        data: &mut [u8],
        into: &mut [u8],
    ) -> Result<(), Error> {
        let runs = plan.runs(access);
        if let [run] = runs
            && run.length == access.share.len
        {
            // All of it is wanted in one place: open it there.
            let out = &mut into[run.buffer..][..run.length as usize];
            let length = self.open_share(access, index, entry, data, Some(out))?;
            out[length..].fill(0);
            return Ok(());
        }
        let length = self.open_share(access, index, entry, data, None)?;
        deliver_part(plan, access, &data[..length], into);
        Ok(())
    }

    /// Opens a share that was fetched, into `out` or where it stands; how many bytes of it there are.
    pub(crate) fn open_share(
        &mut self,
        access: &Access,
        index: u8,
        entry: &RawEntry,
        data: &mut [u8],
        mut out: Option<&mut [u8]>,
    ) -> Result<usize, Error> {
        let first =
            self.judge(access, index, entry).and_then(|()| self.unseal(access, entry, data, out.as_deref_mut()));
        let Err(error) = first else { return first };
        if error.cause == Cause::Key {
            return Err(error);
        }
        // Somebody may have been rewriting the block meanwhile, or have closed the file: look again, with the block locked.
        let range = lock::blocks(access.block..access.block + 1);
        let held = (!self.is_locked).then(|| self.body.lock(range, Mode::Shared));
        let (half, again) = self.entry_there(access, index)?;
        let piece = Piece { offset: self.data(access, half), length: data.len() };
        let read = self.body.read(&[piece], data);
        drop(held);
        read.map_err(|error| Error::below(&self.name, "reading it failed", error))?;
        let second = self.judge(access, index, &again).and_then(|()| self.unseal(access, &again, data, out));
        second.map_err(|_| error)
    }

    /// Whether an entry may be what it is, by what was anchored when this was opened or by others since.
    pub(crate) fn judge(&mut self, access: &Access, index: u8, entry: &RawEntry) -> Result<(), Error> {
        let first = self.judge_as_known(access, index, entry);
        if first.is_ok() {
            return first;
        }
        match self.catch_up() {
            Ok(Some(_caught_up)) => self.judge_as_known(access, index, entry),
            _ => first,
        }
    }

    fn judge_as_known(&mut self, access: &Access, index: u8, entry: &RawEntry) -> Result<(), Error> {
        let journal = self.session.as_ref().map(|session| &session.journal);
        if *entry == HOLE && journal.is_some_and(|journal| journal.is_shortened(access.block)) {
            return Ok(());
        }
        let anchored = self.anchored(access.block, index)?;
        if anchored == Anchored::Entry(*entry) {
            return Ok(());
        }
        let refuse = |why: &str| Err(self.altered(access.share.region, access.block, why));
        let found = match Entry::decode(entry) {
            Decoded::Entry(found) => found,
            Decoded::Hole => return refuse("its entry was removed: there was something here when the file was closed"),
            Decoded::Malformed => return refuse("its entry was altered"),
        };
        if self.is_in_session(found.generation) {
            return Ok(());
        }
        if found.generation > self.state.closed {
            let region = &self.access[usize::from(access.share.region)].name;
            let what = format!(
                "{region}, block {}: it was written in a session (generation {}) that was never closed, or still goes on, so nobody vouches that it is the newest; look at it with `gambeson file verify`, and take it for what it is with `gambeson file accept`",
                access.block, found.generation
            );
            return Err(Error::new(Cause::Unanchored, &self.name, what));
        }
        match anchored {
            Anchored::Altered => {
                refuse("the tree over the entries was altered here, so nobody can say what belongs here")
            }
            Anchored::Entry(anchored)
                if Entry::decode(&anchored).entry().is_some_and(|known| known.generation > found.generation) =>
            {
                refuse(&format!("an old version of it (generation {}) was put back", found.generation))
            }
            Anchored::Entry(_) => refuse("its entry was altered, or comes from elsewhere"),
        }
    }

    /// What the last close, or a cut since, has left of an entry.
    pub(crate) fn anchored(&mut self, block: u64, index: u8) -> Result<Anchored, Error> {
        if self.session.as_ref().is_some_and(|session| session.journal.is_cut(block)) {
            return Ok(Anchored::Entry(HOLE));
        }
        let (group, at) = (self.geometry.group(block), self.geometry.entry_in_table(block, index));
        let found = self.tree.entry(self.body.sealed(), &self.geometry, group, at);
        found.map_err(|error| Error::below(&self.name, "reading its tree failed", error))
    }

    /// Which of a slot's halves has a share: the newest that is written just now, else what is anchored, whatever a
    /// session that was never closed has left in the other.
    pub(crate) fn standing(&mut self, access: &Access, index: u8, entries: &[RawEntry; 2]) -> Half {
        if !self.geometry.two_slots {
            return Half::First;
        }
        let generations = entries.map(|entry| generation(&entry));
        let [first, second] = generations.map(|generation| if self.is_in_session(generation) { generation } else { 0 });
        if first != second {
            return if first > second { Half::First } else { Half::Second };
        }
        let is_anchored = |entry| self.anchored(access.block, index).is_ok_and(|known| known == Anchored::Entry(entry));
        match entries.map(is_anchored) {
            [false, true] => Half::Second,
            [false, false] if entries[0] == HOLE => Half::Second,
            _ => Half::First,
        }
    }

    /// The entry of a share as it is in the file now, and the half that it is in.
    pub(crate) fn entry_there(&mut self, access: &Access, index: u8) -> Result<(Half, RawEntry), Error> {
        let mut entries = [HOLE; 2];
        let piece = |half: &Half| Piece { offset: self.geometry.entry(access.block, index, *half), length: ENTRY_LEN };
        let pieces = self.geometry.halves().iter().map(piece);
        for (piece, entry) in pieces.zip(&mut entries) {
            let read = self.body.read(&[piece], entry);
            read.map_err(|error| Error::below(&self.name, "reading it failed", error))?;
        }
        let half = self.standing(access, index, &entries);
        Ok((half, entries[half as usize]))
    }

    /// Where a share's bytes stand below.
    pub(crate) fn data(&self, access: &Access, half: Half) -> u64 {
        below::data(&self.geometry, access.block, half) + u64::from(access.share.area)
    }

    /// Whether entries of a generation are written just now, by processes that this handle belongs to or that hold the
    /// file open.
    fn is_in_session(&self, generation: u64) -> bool {
        self.session.is_some() && generation > self.state.base
    }

    /// Opens what an entry stands for.
    pub(crate) fn unseal(
        &self,
        access: &Access,
        entry: &RawEntry,
        data: &mut [u8],
        out: Option<&mut [u8]>,
    ) -> Result<usize, Error> {
        let (region, block) = (access.share.region, access.block);
        let entry = match Entry::decode(entry) {
            Decoded::Entry(entry) => entry,
            Decoded::Hole => return Ok(0),
            Decoded::Malformed => return Err(self.altered(region, block, "its entry was altered")),
        };
        let region_access = &self.access[usize::from(region)];
        let key = match region_access.key(entry.epoch) {
            Some(Ok(key)) => key,
            Some(Err(error)) => return Err(Error::key(&self.name, &region_access.name, error)),
            None => return Err(self.altered(region, block, "its entry names a key that the region does not have")),
        };
        let length = entry.length as usize;
        if length > data.len() {
            return Err(self.altered(region, block, "its entry says that it is longer than it can be"));
        }
        let opened = match out {
            Some(out) => key.open(&entry, block, &data[..length], &mut out[..length]),
            None => key.open_in_place(&entry, block, &mut data[..length]),
        };
        opened.map_err(|_| self.altered(region, block, "it is not what was written, or was written only in part"))?;
        Ok(length)
    }
}

/// What was fetched of half a slot.
#[derive(Default)]
struct HalfFetched<'a> {
    entries: &'a mut [u8],
    data: &'a mut [u8],
}

impl<'a> HalfFetched<'a> {
    /// The next sealed share; of a half that there is not, a hole.
    fn share(&mut self, length: usize) -> (RawEntry, &'a mut [u8]) {
        let entry = take(&mut self.entries, ENTRY_LEN);
        ((&*entry).try_into().unwrap_or(HOLE), take(&mut self.data, length))
    }
}

/// Takes bytes from the front, as many as there are.
fn take<'a>(rest: &mut &'a mut [u8], length: usize) -> &'a mut [u8] {
    let length = length.min(rest.len());
    let (front, later) = std::mem::take(rest).split_at_mut(length);
    *rest = later;
    front
}

/// Of two halves plain shares are in the first alone.
fn is_in(access: &Access, half: Half) -> bool {
    access.share.entry.is_some() || half == Half::First
}

/// The generation of an entry; of what is none, zero.
pub(crate) fn generation(entry: &RawEntry) -> u64 {
    Entry::decode(entry).entry().map_or(0, |entry| entry.generation)
}

/// What a request wants of a share's bytes. Behind their end there are zeros.
fn deliver_part(plan: &Plan, access: &Access, plain: &[u8], into: &mut [u8]) {
    for run in plan.runs(access) {
        let out = &mut into[run.buffer..][..run.length as usize];
        let rest = plain.get(run.at as usize..).unwrap_or_default();
        let there = rest.len().min(out.len());
        out[..there].copy_from_slice(&rest[..there]);
        out[there..].fill(0);
    }
}

fn deliver_plain(plan: &Plan, access: &Access, data: &[u8], into: &mut [u8]) {
    let runs = plan.runs(access);
    let first = runs[0].at;
    for run in runs {
        let from = (run.at - first) as usize;
        into[run.buffer..][..run.length as usize].copy_from_slice(&data[from..from + run.length as usize]);
    }
}

/// Which bytes of a share have to be fetched: of a sealed one all.
fn fetched(plan: &Plan, access: &Access) -> (u32, u32) {
    match access.share.entry {
        Some(_) => (0, access.share.len),
        None => (plan.runs(access)[0].at, plan.end(access)),
    }
}

pub(crate) fn same_block(one: &Access, other: &Access) -> bool {
    one.block == other.block
}

/// Bytes that are read or written below at once: they stay in the processor's second cache while they are opened or
/// sealed.
pub(crate) const STAGING: usize = 512 << 10;
