//! The map of one block: its shares, and the runs that they consist of.

use super::part::OFFSET_MAX;
use super::{RegionId, Regions};

/// A run of bytes of a block that belong to one share, as long as can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it begins in the block, as the program sees it.
    pub offset: u32,
    /// Its bytes.
    pub len: u32,
    /// Where it begins in the share.
    pub within: u32,
}

/// The bytes of one region in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The region.
    pub region: RegionId,
    /// Which of the slot's entries is its; `None`: it is plain.
    pub entry: Option<u8>,
    /// How many of the slot's entries the block uses.
    pub entries: u8,
    /// Where it begins in the block's data.
    pub area: u32,
    /// Its bytes.
    pub len: u32,
}

/// The shares of one block. Blocks whose maps are equal ([`Regions::like`]) can have one together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMap(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    One { share: Share, run: Run },
    Several(Several),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Several {
    shares: Vec<Share>,
    /// The runs of each share, one share after the other.
    runs: Vec<Run>,
    /// Where each share's runs end.
    ends: Vec<usize>,
    /// All runs in order: where each begins, its share, its place in `runs`.
    order: Vec<(u32, u16, u32)>,
}

impl BlockMap {
    pub(super) fn whole(block_len: u32, region: RegionId, is_sealed: bool) -> Self {
        let entries = u8::from(is_sealed);
        let share = Share { region, entry: is_sealed.then_some(0), entries, area: 0, len: block_len };
        BlockMap(Kind::One { share, run: Run { offset: 0, len: block_len, within: 0 } })
    }

    /// The shares, in the order in which they lie in the block's data.
    pub fn shares(&self) -> &[Share] {
        match &self.0 {
            Kind::One { share, .. } => std::slice::from_ref(share),
            Kind::Several(several) => &several.shares,
        }
    }

    /// The share of a region, if it has bytes in the block, and its place among the shares.
    pub fn share(&self, region: RegionId) -> Option<(usize, &Share)> {
        self.shares().iter().enumerate().find(|(_, share)| share.region == region)
    }

    /// Whether the block is one share, so that its data lies as the program sees it.
    pub fn is_whole(&self) -> bool {
        matches!(self.0, Kind::One { .. })
    }

    /// The runs of the share at a place among the shares, in order.
    pub fn runs(&self, share: usize) -> &[Run] {
        match &self.0 {
            Kind::One { run, .. } => std::slice::from_ref(run),
            Kind::Several(several) => several.runs_of(share),
        }
    }

    /// The share and the run that one byte of the block belongs to.
    pub fn locate(&self, offset: u32) -> (&Share, &Run) {
        match &self.0 {
            Kind::One { share, run } => {
                assert!(offset < run.len, "the byte is in the block");
                (share, run)
            }
            Kind::Several(several) => several.locate(offset),
        }
    }

    /// Collects a share from a block as the program sees it. `block` may be cut short; `share` takes so many bytes of
    /// the share, from its start, that it is full.
    pub fn gather(&self, share: usize, block: &[u8], into: &mut [u8]) {
        for (run, len) in clip(self.runs(share), into.len()) {
            into[run.within as usize..][..len].copy_from_slice(&block[run.offset as usize..][..len]);
        }
    }

    /// Puts a share, from its start, where the program sees it.
    pub fn scatter(&self, share: usize, from: &[u8], block: &mut [u8]) {
        for (run, len) in clip(self.runs(share), from.len()) {
            block[run.offset as usize..][..len].copy_from_slice(&from[run.within as usize..][..len]);
        }
    }

    /// How many bytes of a share, from its start, lie before a byte of the block.
    pub fn before(&self, share: usize, offset: u32) -> u32 {
        let runs = self.runs(share);
        let behind = runs.partition_point(|run| run.offset < offset);
        let Some(run) = behind.checked_sub(1).map(|last| runs[last]) else { return 0 };
        run.within + run.len.min(offset - run.offset)
    }
}

/// The runs of so many bytes of a share, from its start.
fn clip(runs: &[Run], len: usize) -> impl Iterator<Item = (Run, usize)> {
    let inside = move |run: &&Run| (run.within as usize) < len;
    runs.iter().take_while(inside).map(move |run| (*run, (run.len as usize).min(len - run.within as usize)))
}

impl Several {
    fn runs_of(&self, share: usize) -> &[Run] {
        let start = share.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.runs[start..self.ends[share]]
    }

    fn locate(&self, offset: u32) -> (&Share, &Run) {
        let behind = self.order.partition_point(|run| run.0 <= offset);
        let (_, share, run) = self.order[behind - 1];
        let (share, run) = (&self.shares[usize::from(share)], &self.runs[run as usize]);
        assert!(offset - run.offset < run.len, "the byte is in the block");
        (share, run)
    }
}

/// The map of a block of a file with several regions.
pub(super) fn of(regions: &Regions, block: u64) -> BlockMap {
    let len = regions.block_len;
    let start = block.checked_mul(len.into()).filter(|&start| start <= OFFSET_MAX).expect("the block is in a file");
    if let Some(region) = of_one(regions, start) {
        return BlockMap::whole(len, region, regions.is_sealed(region));
    }
    // Every stretch that a region claims, in order. No two regions claim the same byte.
    let mut claims: Vec<(u32, u32, RegionId)> = Vec::new();
    for (region, layout) in regions.regions.iter().enumerate().skip(1) {
        for part in &layout.parts {
            part.runs(start, len, |offset, len| claims.push((offset, len, region as RegionId)));
        }
    }
    claims.sort_unstable();
    let mut runs: Vec<(u32, u32, RegionId)> = Vec::with_capacity(2 * claims.len() + 1);
    let mut at = 0;
    for (offset, claimed, region) in claims {
        // Parts of one region may overlap: only what is new counts.
        let (offset, end) = (offset.max(at), offset + claimed);
        if offset > at {
            push(&mut runs, (at, offset - at, 0));
        }
        if end > offset {
            push(&mut runs, (offset, end - offset, region));
            at = end;
        }
    }
    if at < len {
        push(&mut runs, (at, len - at, 0));
    }
    if let [(_, _, region)] = runs[..] {
        return BlockMap::whole(len, region, regions.is_sealed(region));
    }
    several(regions, &runs)
}

/// The region that a block is all of, as far as one look at each part tells.
fn of_one(regions: &Regions, start: u64) -> Option<RegionId> {
    let len = u64::from(regions.block_len);
    let mut is_untouched = true;
    for (region, layout) in (1..).zip(&regions.regions[1..]) {
        for part in &layout.parts {
            match part.first_in(start, start + len) {
                Some(found) if found == (start, len) => return Some(region),
                Some(_) => is_untouched = false,
                None => {}
            }
        }
    }
    is_untouched.then_some(0)
}

/// Adds a run, or makes the last one longer.
fn push(runs: &mut Vec<(u32, u32, RegionId)>, (offset, len, region): (u32, u32, RegionId)) {
    match runs.last_mut() {
        Some(last) if last.2 == region && last.0 + last.1 == offset => last.1 += len,
        _ => runs.push((offset, len, region)),
    }
}

fn several(regions: &Regions, all: &[(u32, u32, RegionId)]) -> BlockMap {
    let mut by_region: Vec<usize> = (0..all.len()).collect();
    // The plain ones at the end: what is there of the last one is seen from a file's length alone.
    by_region.sort_by_key(|&run| (!regions.is_sealed(all[run].2), all[run].2));
    let mut map = Several { order: vec![(0, 0, 0); all.len()], ..Several::default() };
    let (mut area, mut entry) = (0, 0);
    for runs in by_region.chunk_by(|&a, &b| all[a].2 == all[b].2) {
        let region = all[runs[0]].2;
        let share = map.shares.len() as u16;
        let mut within = 0;
        for &run in runs {
            let (offset, len, _) = all[run];
            map.order[run] = (offset, share, map.runs.len() as u32);
            map.runs.push(Run { offset, len, within });
            within += len;
        }
        let is_sealed = regions.is_sealed(region);
        map.shares.push(Share { region, entry: is_sealed.then_some(entry), entries: 0, area, len: within });
        map.ends.push(map.runs.len());
        area += within;
        entry += u8::from(is_sealed);
    }
    for share in &mut map.shares {
        share.entries = entry;
    }
    BlockMap(Kind::Several(map))
}
