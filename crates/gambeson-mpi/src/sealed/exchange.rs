//! Collective accesses of ranks whose blocks interleave.
//!
//! A share that one rank has all of is sealed there, before anything leaves it. Parts of shares go to an *owner*, a rank
//! that may write the region, which merges and seals them; fine interleaving is then an exchange of parts and nothing
//! else. What was sealed is written by collective calls below. Reading is the reverse: small parts are asked of owners.

use std::collections::{BTreeMap, BTreeSet};

use gambeson_file::{Access, Below, Extent, Piece, Plan, Run, Staged};
use gambeson_proto::file::region::RegionId;

use super::parcel::{Reader, Writer};
use super::tell::Messages;
use super::{MpiBody, SealedEngine};
use crate::error::Failure;

/// A share.
type Key = (u64, RegionId);

/// The blocks that a rank's request reaches from and to; of an empty one none.
type Hull = (u64, u64);

impl SealedEngine {
    /// Writes what each rank has, together.
    pub(super) fn write_all(&mut self, extents: &[Extent], from: &[u8]) -> Result<(), Failure> {
        let may = self.file.check_may_write().map_err(|error| self.failure(&error));
        let hull = if may.is_ok() { self.hull(extents) } else { EMPTY };
        let hulls = self.hulls(hull)?;
        if are_apart(&hulls) {
            may?;
            return if self.file.body().sealed().has_locks() {
                self.file.write(extents, from)
            } else {
                // Nobody else of this handle writes to these blocks.
                self.file.without_locks(|file| file.write(extents, from))
            }
            .map_err(|error| self.failure(&error));
        }
        let mut plan = Plan::default();
        if may.is_ok() {
            self.file.plan(&mut plan, extents, u64::MAX);
        }
        let reach = reach(&hulls);
        let mut failed = may.err();
        let mut outgoing: Vec<Writer> = (0..self.ranks.size).map(|_| Writer::default()).collect();
        let mut own = Vec::new();
        for access in plan.accesses() {
            let region = access.share.region;
            if let Err(error) = self.file.begin_writing(region) {
                failed.get_or_insert(failure(self, &error));
                continue;
            }
            let covers = plan.covers(access);
            if covers || access.share.entry.is_none() {
                own.push(*access);
            }
            if access.share.entry.is_some() {
                let owner = owner(&self.writers[usize::from(region)], reach, access.block);
                ask(&mut outgoing[owner], &plan, access, if covers { None } else { Some(from) });
            }
        }
        let outgoing: Vec<Vec<u8>> = outgoing.into_iter().map(|message| message.0).collect();
        let incoming = self.ranks.exchange(self.mpi, &outgoing)?;
        drop(outgoing);
        let parts = Parts::of(&incoming);
        let merged = parts.merged(&self.file);
        let lost = parts.lost(self.ranks.size as usize);
        // Nobody else writes these shares. Where a rank has nearly all from the first to the last of them, putting them together
        // with others' would gain nothing.
        let block_len = self.file.geometry().block_len;
        let is_scattered = !is_dense(&own, block_len) || !is_dense(merged.accesses(), block_len);
        let conflicts = lost.iter().any(|message| !message.is_empty());
        let [conflict, scattered] = self.ranks.max(self.mpi, [i64::from(conflicts), i64::from(is_scattered)])?;
        if conflict != 0 {
            let lost = self.settle(&lost)?;
            own.retain(|access| !lost.contains(&(access.block, access.share.region)));
        }
        let together = scattered != 0;
        if let Err(failure) = self.refresh() {
            failed.get_or_insert(failure);
        }
        let written = self.write_own(&plan, &own, from, together)?;
        note(&mut failed, self, written);
        let written = self.write_own(&merged, merged.accesses(), &incoming.bytes, together)?;
        // No rank goes on before its bytes are there that others have merged: it may read them at once. Nor does anybody write
        // alone where the library still writes gaps back as it has read them.
        let fails = self.ranks.any(self.mpi, written.is_err())?;
        note(&mut failed, self, written);
        if fails && failed.is_none() {
            let what = "another rank could not write blocks that it had merged for this one, and says why";
            failed = Some(Failure::new(self.mpi.abi.class.io, format!("{}: {what}", self.path.display())));
        }
        if let Some(end) =
            extents.iter().filter(|extent| extent.length > 0).map(|extent| extent.offset + extent.length).max()
        {
            self.file.extend_known(end);
        }
        failed.map_or(Ok(()), Err)
    }

    /// The shares that this rank has all of and another, too, who writes them: what owners say, told to all.
    fn settle(&self, lost: &[Vec<u8>]) -> Result<BTreeSet<Key>, Failure> {
        let incoming = self.ranks.exchange(self.mpi, lost)?;
        let mut own = BTreeSet::new();
        for (_, message) in incoming.each() {
            let mut reader = Reader::new(message);
            while !reader.is_done() {
                own.insert((reader.u64(), reader.u32() as RegionId));
            }
        }
        Ok(own)
    }

    /// Seals and writes shares that are this rank's alone to write: by itself, or in one call of all.
    fn write_own(
        &mut self,
        plan: &Plan,
        shares: &[Access],
        from: &[u8],
        together: bool,
    ) -> Result<Result<(), gambeson_file::Error>, Failure> {
        if !together {
            return Ok(self.file.without_locks(|file| file.write_shares(plan, shares, from)));
        }
        let mut staged = Staged::default();
        let sealed = self.file.without_locks(|file| file.stage(plan, shares, from, &mut staged));
        let written = self.write_staged(&staged)?;
        if written.is_err() {
            self.file.doubt(shares);
        }
        Ok(sealed.and(written))
    }

    /// Writes what was sealed, if any rank has something.
    fn write_staged(&self, staged: &Staged) -> Result<Result<(), gambeson_file::Error>, Failure> {
        let below = self.file.body();
        let Some(data) = below.data() else {
            return self.write_pieces(below.sealed(), staged.pieces(), staged.bytes());
        };
        let part = |of_data| Below::<MpiBody>::part(staged.pieces(), staged.bytes(), of_data);
        let (pieces, bytes) = part(true);
        let written = self.write_pieces(data, &pieces, &bytes)?;
        // No entries speak of data that is not there; and all ranks take part whatever one of them has met.
        let (pieces, bytes) = if written.is_ok() { part(false) } else { Default::default() };
        let entries = self.write_pieces(below.sealed(), &pieces, &bytes)?;
        Ok(written.and(entries))
    }

    fn write_pieces(
        &self,
        body: &MpiBody,
        pieces: &[Piece],
        from: &[u8],
    ) -> Result<Result<(), gambeson_file::Error>, Failure> {
        let reached = body.reach(pieces);
        let [most] = self.ranks.max(self.mpi, [pieces.len() as i64])?;
        if most == 0 {
            return Ok(Ok(()));
        }
        let written = body.write_all(pieces, from, most == 1).and(reached);
        Ok(written.map_err(|error| self.file.storage_error("writing it failed", error)))
    }

    /// Reads what each rank wants, together.
    pub(super) fn read_all(&mut self, extents: &[Extent], into: &mut [u8]) -> Result<usize, Failure> {
        let clipped = self.file.clip(extents).map_err(|error| self.failure(&error));
        let (limit, count) = clipped.as_ref().copied().unwrap_or((0, 0));
        let mut plan = Plan::default();
        self.file.plan(&mut plan, extents, limit);
        // What a rank wants the greater part of it fetches itself; of small parts many are in one share.
        let is_small = |access: &&Access| {
            let wanted: u64 = plan.runs(access).iter().map(|run| u64::from(run.length)).sum();
            access.share.entry.is_some() && plan.runs(access).len() > 1 && 2 * wanted <= u64::from(access.share.len)
        };
        let small: Vec<Access> = plan.accesses().iter().filter(is_small).copied().collect();
        if !self.ranks.any(self.mpi, !small.is_empty())? {
            clipped?;
            return self.file.read(extents, into).map_err(|error| self.failure(&error));
        }
        let hulls = self.hulls(self.hull(extents))?;
        let reach = reach(&hulls);
        let mut failed = clipped.err();
        let mut outgoing: Vec<Writer> = (0..self.ranks.size).map(|_| Writer::default()).collect();
        let mut asked: Vec<Vec<Access>> = vec![Vec::new(); self.ranks.size as usize];
        for access in &small {
            let region = access.share.region;
            if let Err(error) = self.file.check_readable(region) {
                for run in plan.runs(access) {
                    into[run.buffer..run.buffer + run.length as usize].fill(0);
                }
                failed.get_or_insert(failure(self, &error));
                continue;
            }
            let owner = owner(&self.readers[usize::from(region)], reach, access.block);
            ask(&mut outgoing[owner], &plan, access, None);
            asked[owner].push(*access);
        }
        let outgoing: Vec<Vec<u8>> = outgoing.into_iter().map(|message| message.0).collect();
        let incoming = self.ranks.exchange(self.mpi, &outgoing)?;
        let answers = self.answer(&incoming);
        let answers = self.ranks.exchange(self.mpi, &answers)?;
        for (asked, (_, answer)) in asked.iter().zip(answers.each()).filter(|(asked, _)| !asked.is_empty()) {
            let mut reader = Reader::new(answer);
            let sentence = reader.bytes();
            if !sentence.is_empty() {
                let what = String::from_utf8_lossy(sentence);
                failed.get_or_insert(Failure::new(self.mpi.abi.class.io, what));
            }
            for access in asked {
                for run in plan.runs(access) {
                    let place = reader.skip(run.length as usize);
                    into[run.buffer..][..run.length as usize].copy_from_slice(&answer[place..][..run.length as usize]);
                }
            }
        }
        let mut large = Plan::default();
        for access in plan.accesses().iter().filter(|access| !is_small(access)) {
            large.push(access.block, access.share, plan.runs(access).iter().copied());
        }
        let read = self.file.read_plan(&large, into);
        note(&mut failed, self, read);
        failed.map_or(Ok(count), Err)
    }

    /// What other ranks have asked for, opened: for each an error's sentence, if there is one, and the bytes in the order
    /// in which it asked.
    fn answer(&mut self, incoming: &Messages) -> Vec<Vec<u8>> {
        let wanted = Parts::of(incoming);
        let mut lengths = vec![0; self.ranks.size as usize];
        for part in wanted.0.values().flatten() {
            lengths[part.source] += part.length();
        }
        let starts: Vec<usize> =
            lengths.iter().scan(0, |at, length| Some(std::mem::replace(at, *at + length))).collect();
        let mut bytes = vec![0; lengths.iter().sum()];
        let mut plan = Plan::default();
        for (&(block, region), parts) in &wanted.0 {
            let map = self.file.header().table().layout().block(block);
            let (_, share) = map.share(region).expect("a rank asks for a share that there is");
            let mut runs: Vec<Run> = Vec::new();
            for part in parts {
                let mut at = starts[part.source] + part.before;
                for &(from, length) in &part.runs {
                    runs.push(Run { at: from, length, buffer: at });
                    at += length as usize;
                }
            }
            plan.push(block, *share, runs.into_iter());
        }
        let read = self.file.read_plan(&plan, &mut bytes);
        let sentence = read.err().map(|error| error.to_string()).unwrap_or_default();
        starts
            .iter()
            .zip(&lengths)
            .map(|(&start, &length)| {
                let mut message = Writer::default();
                if length > 0 {
                    message.bytes(sentence.as_bytes());
                    message.0.extend_from_slice(&bytes[start..start + length]);
                }
                message.0
            })
            .collect()
    }

    fn hull(&self, extents: &[Extent]) -> Hull {
        let geometry = self.file.geometry();
        let blocks = extents.iter().filter(|extent| extent.length > 0);
        let blocks =
            blocks.map(|extent| (geometry.block(extent.offset), geometry.block(extent.offset + extent.length - 1) + 1));
        blocks.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or(EMPTY)
    }

    fn hulls(&self, own: Hull) -> Result<Vec<Hull>, Failure> {
        let all = self.ranks.gather(self.mpi, &[own.0.cast_signed(), own.1.cast_signed()])?;
        Ok(all.chunks(2).map(|hull| (hull[0].cast_unsigned(), hull[1].cast_unsigned())).collect())
    }
}

/// Whether shares are nearly all that there is from the first to the last of them.
fn is_dense(own: &[Access], block_len: u32) -> bool {
    let (Some(first), Some(last)) = (own.first(), own.last()) else { return true };
    let bytes: u64 = own.iter().map(|access| u64::from(access.share.len)).sum();
    8 * bytes >= 7 * (last.block - first.block + 1) * u64::from(block_len)
}

/// Tells an owner of what this rank has of a share: all of it, or runs, with their bytes if it is to write them.
fn ask(message: &mut Writer, plan: &Plan, access: &Access, from: Option<&[u8]>) {
    message.u64(access.block);
    message.u32(access.share.region.into());
    // Of a share of one region among several all bytes may lie in many runs of the buffer.
    let is_whole = from.is_none() && plan.covers(access);
    let runs = if is_whole { &[][..] } else { plan.runs(access) };
    message.u32(runs.len() as u32);
    for run in runs {
        message.u32(run.at);
        message.u32(run.length);
    }
    message.u32(u32::from(from.is_some()));
    if let Some(from) = from {
        for run in runs {
            message.0.extend_from_slice(&from[run.buffer..][..run.length as usize]);
        }
    }
}

/// What one rank has of a share, or wants.
struct Part {
    source: usize,
    /// Where in the share and how long; none: all of it.
    runs: Vec<(u32, u32)>,
    /// Where the bytes begin in what came in.
    place: usize,
    /// How many bytes the source has asked for before.
    before: usize,
}

impl Part {
    fn length(&self) -> usize {
        self.runs.iter().map(|run| run.1 as usize).sum()
    }
}

/// What all ranks have of the shares of one owner, in order of rank.
struct Parts(BTreeMap<Key, Vec<Part>>);

impl Parts {
    fn of(incoming: &Messages) -> Self {
        let mut parts: BTreeMap<Key, Vec<Part>> = BTreeMap::new();
        for (source, (start, message)) in incoming.each().enumerate() {
            let mut reader = Reader::new(message);
            let mut before = 0;
            while !reader.is_done() {
                let key = (reader.u64(), reader.u32() as RegionId);
                let runs: Vec<(u32, u32)> = (0..reader.u32()).map(|_| (reader.u32(), reader.u32())).collect();
                let mut part = Part { source, runs, place: 0, before };
                if reader.u32() == 1 {
                    part.place = start + reader.skip(part.length());
                }
                before += part.length();
                parts.entry(key).or_default().push(part);
            }
        }
        Parts(parts)
    }

    /// The parts of shares that no rank has all of, as one request of this owner's for what came in.
    fn merged(&self, file: &gambeson_file::SealedFile<MpiBody>) -> Plan {
        let mut plan = Plan::default();
        for (&(block, region), parts) in &self.0 {
            // Who has all of a share has every byte that others have, too: what overlaps may end as either has it.
            if parts.iter().any(|part| part.runs.is_empty()) {
                continue;
            }
            let mut runs: Vec<Run> = Vec::new();
            for part in parts {
                let mut place = part.place;
                for &(at, length) in &part.runs {
                    runs.push(Run { at, length, buffer: place });
                    place += length as usize;
                }
            }
            let map = file.header().table().layout().block(block);
            let (_, share) = map.share(region).expect("a rank has a part of a share that there is");
            plan.push(block, *share, apart(runs).into_iter());
        }
        plan
    }

    /// Shares that several ranks have all of are written by the last of them alone: for each rank, those that it loses.
    fn lost(&self, ranks: usize) -> Vec<Vec<u8>> {
        let mut lost: Vec<Writer> = (0..ranks).map(|_| Writer::default()).collect();
        for (key, of) in &self.0 {
            let mut whole = of.iter().filter(|part| part.runs.is_empty()).map(|part| part.source).rev();
            whole.next();
            for source in whole {
                lost[source].u64(key.0);
                lost[source].u32(key.1.into());
            }
        }
        lost.into_iter().map(|message| message.0).collect()
    }
}

/// Runs in order, without what another has already.
fn apart(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by_key(|run| run.at);
    let mut end = 0;
    let mut apart: Vec<Run> = Vec::with_capacity(runs.len());
    for mut run in runs {
        let skip = end.max(run.at) - run.at;
        if skip >= run.length {
            continue;
        }
        run = Run { at: run.at + skip, length: run.length - skip, buffer: run.buffer + skip as usize };
        end = run.at + run.length;
        apart.push(run);
    }
    apart
}

/// Whether no block is in two hulls.
fn are_apart(hulls: &[Hull]) -> bool {
    let mut hulls: Vec<Hull> = hulls.iter().filter(|hull| **hull != EMPTY).copied().collect();
    hulls.sort_unstable();
    hulls.windows(2).all(|pair| pair[0].1 <= pair[1].0)
}

/// What all of them reach over.
fn reach(hulls: &[Hull]) -> Hull {
    let hulls = hulls.iter().filter(|hull| **hull != EMPTY).copied();
    hulls.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or(EMPTY)
}

/// The owner of a block among those that may be: each has as many blocks of the reach, in a row.
fn owner(holders: &[i32], (from, to): Hull, block: u64) -> usize {
    let place = u128::from(block - from) * holders.len() as u128 / u128::from(to - from);
    holders[place as usize] as usize
}

/// Keeps the first failure.
fn note(failed: &mut Option<Failure>, engine: &SealedEngine, result: Result<(), gambeson_file::Error>) {
    if let Err(error) = result {
        failed.get_or_insert(failure(engine, &error));
    }
}

fn failure(engine: &SealedEngine, error: &gambeson_file::Error) -> Failure {
    super::failure(engine.mpi, error)
}

const EMPTY: Hull = (0, 0);
