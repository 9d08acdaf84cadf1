//! What this writer wrote since the file was last anchored: the entries that the tree may take in.

use std::collections::{BTreeMap, BTreeSet};

use gambeson_proto::file::Geometry;
use gambeson_proto::file::entry::ENTRY_LEN;

/// An entry as it stands in the file.
pub type RawEntry = [u8; ENTRY_LEN];

/// One entry of a group that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it stands in the group's entry table.
    pub at: u32,
    /// What was written.
    pub entry: RawEntry,
}

/// What was written, by group.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    groups: BTreeMap<u64, BTreeMap<u32, RawEntry>>,
    /// Blocks from here on were cut off since; what was written there later is in `groups`.
    cut: Option<u64>,
    /// Blocks that a cut went through: shares of them may be gone.
    shortened: BTreeSet<u64>,
    /// Entries of writes that failed: perhaps they are in the file, perhaps not.
    doubted: BTreeSet<(u64, u32)>,
}

impl Journal {
    /// Notes an entry.
    pub(crate) fn note(&mut self, group: u64, at: u32, entry: RawEntry) {
        self.groups.entry(group).or_default().insert(at, entry);
        if !self.doubted.is_empty() {
            self.doubted.remove(&(group, at));
        }
    }

    /// The write of an entry that was noted has failed.
    pub(crate) fn doubt(&mut self, group: u64, at: u32) {
        self.doubted.insert((group, at));
    }

    /// Forgets what was written from a block on, whose entries stand at `at` in its group's table.
    pub(crate) fn cut(&mut self, block: u64, group: u64, at: u32) {
        self.groups.split_off(&(group + 1));
        if let Some(entries) = self.groups.get_mut(&group) {
            entries.split_off(&at);
        }
        self.cut = Some(self.cut.map_or(block, |cut| cut.min(block)));
    }

    /// A cut went through a block.
    pub(crate) fn shorten(&mut self, block: u64) {
        self.shortened.insert(block);
    }

    /// Whether a cut went through a block since.
    pub(crate) fn is_shortened(&self, block: u64) -> bool {
        self.shortened.contains(&block)
    }

    /// Whether a block was cut off since, so that nothing anchored holds there any more.
    pub(crate) fn is_cut(&self, block: u64) -> bool {
        self.cut.is_some_and(|cut| block >= cut)
    }

    /// What was written; and begins anew.
    pub(crate) fn take(&mut self) -> Dirty {
        let Journal { groups, cut, doubted, .. } = std::mem::take(self);
        let entries = |(group, entries): (u64, BTreeMap<u32, RawEntry>)| {
            // An entry that is there twice is disputed, and taken only if the file has it.
            let times = |at: u32| if doubted.contains(&(group, at)) { 2 } else { 1 };
            let written = |(at, entry)| std::iter::repeat_n(Written { at, entry }, times(at));
            (group, entries.into_iter().flat_map(written).collect())
        };
        Dirty { groups: groups.into_iter().map(entries).collect(), cut }
    }
}

/// What has to be anchored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// The groups with what was written in each, in order.
    pub groups: Vec<(u64, Vec<Written>)>,
    /// From which block on there was nothing, before what was written.
    pub cut: Option<u64>,
}

impl Dirty {
    /// A cut changes the group that it goes through, whether anything was written there or not.
    pub fn with_cut_group(&mut self, geometry: &Geometry) {
        let Some(group) = self.cut.map(|block| geometry.group(block)) else { return };
        if let Err(place) = self.groups.binary_search_by_key(&group, |(group, _)| *group) {
            self.groups.insert(place, (group, Vec::new()));
        }
    }
}
