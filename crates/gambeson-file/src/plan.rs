//! Which shares a request touches, and which of its bytes belong to each.

use gambeson_proto::file::region::{BlockMap, RegionId, Regions, Share};

/// Consecutive bytes of the file as programs see it. A request is a list of them, sorted, with one packed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
}

/// Consecutive bytes that a share and the request's buffer have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where they begin in the share.
    pub at: u32,
    /// How many they are.
    pub length: u32,
    /// Where they begin in the buffer.
    pub buffer: usize,
}

/// What a request wants of one share.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The block.
    pub block: u64,
    /// The share of it.
    pub share: Share,
    /// Its runs among the plan's: from, to.
    runs: (usize, usize),
}

impl Access {
    /// A share that is looked at as it stands, for no request.
    pub(crate) fn to(block: u64, share: Share) -> Self {
        Access { block, share, runs: (0, 0) }
    }
}

/// A request, share by share. Kept and filled again, so that small requests allocate nothing.
#[derive(Debug, Default)]
pub struct Plan {
    accesses: Vec<Access>,
    runs: Vec<Run>,
    /// The runs of the block at hand, with their regions.
    open: Vec<(RegionId, Run)>,
}

impl Plan {
    /// Splits a request. `limit`: bytes from there on are left out.
    pub fn fill(&mut self, regions: &Regions, extents: &[Extent], limit: u64) {
        self.accesses.clear();
        self.runs.clear();
        self.open.clear();
        let block_len = u64::from(regions.block_len());
        let mut current: Option<(u64, BlockMap)> = None;
        let mut buffer = 0;
        for extent in extents {
            let (mut at, mut place) = (extent.offset, buffer);
            let end = (extent.offset + extent.length).min(limit);
            while at < end {
                let (block, within) = (at / block_len, (at % block_len) as u32);
                if current.as_ref().is_none_or(|(of, _)| *of != block) {
                    self.finish(current.as_ref());
                    current = Some((block, regions.block(block)));
                }
                let (_, map) = current.as_ref().expect("it is there");
                let (share, run) = map.locate(within);
                let skipped = within - run.offset;
                let length = u64::from(run.len - skipped).min(end - at);
                let run = Run { at: run.within + skipped, length: length as u32, buffer: place };
                push(&mut self.open, share.region, run);
                at += length;
                place += length as usize;
            }
            buffer += extent.length as usize;
        }
        self.finish(current.as_ref());
    }

    /// Adds a share behind those that are there, with runs in its order.
    pub fn push(&mut self, block: u64, share: Share, runs: impl Iterator<Item = Run>) {
        let from = self.runs.len();
        self.runs.extend(runs);
        self.accesses.push(Access { block, share, runs: (from, self.runs.len()) });
    }

    /// One share, all of it.
    pub(crate) fn one(&mut self, regions: &Regions, block: u64, region: RegionId) {
        let map = regions.block(block);
        let (_, share) = map.share(region).expect("the region has bytes in the block");
        self.runs = vec![Run { at: 0, length: share.len, buffer: 0 }];
        self.accesses = vec![Access { block, share: *share, runs: (0, 1) }];
    }

    fn finish(&mut self, block: Option<&(u64, BlockMap)>) {
        let Some((block, map)) = block else { return };
        if self.open.len() > 1 {
            self.open.sort_by_key(|&(region, run)| (region, run.at));
        }
        for group in self.open.chunk_by(|a, b| a.0 == b.0) {
            let from = self.runs.len();
            self.runs.extend(group.iter().map(|&(_, run)| run));
            let (_, share) = map.share(group[0].0).expect("a region that a run is of has a share in its block");
            self.accesses.push(Access { block: *block, share: *share, runs: (from, self.runs.len()) });
        }
        self.open.clear();
    }

    /// The shares, in order of block and region.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// What a share and the request have in common, in the share's order.
    pub fn runs(&self, access: &Access) -> &[Run] {
        &self.runs[access.runs.0..access.runs.1]
    }

    /// Whether the request has every byte of the share.
    pub fn covers(&self, access: &Access) -> bool {
        // Runs of a request that is written are apart.
        self.runs(access).iter().map(|run| u64::from(run.length)).sum::<u64>() == u64::from(access.share.len)
    }

    /// Where the request's last byte in a share ends.
    pub fn end(&self, access: &Access) -> u32 {
        self.runs(access).last().map_or(0, |run| run.at + run.length)
    }
}

/// Adds a run, or makes the last one longer.
fn push(runs: &mut Vec<(RegionId, Run)>, region: RegionId, run: Run) {
    match runs.last_mut() {
        Some((of, last))
            if *of == region && last.at + last.length == run.at && last.buffer + last.length as usize == run.buffer =>
        {
            last.length += run.length;
        }
        _ => runs.push((region, run)),
    }
}
