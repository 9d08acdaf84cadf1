//! The tree over a file's entries, as it was when the file was closed: digest tables below a signed root, entry tables
//! below those. Entry tables are read when they are needed, and believed only if they give their digest.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use gambeson_proto::file::entry::ENTRY_LEN;
use gambeson_proto::file::geometry::{DIGEST_LEN, Geometry, Half};
use gambeson_proto::file::state::State;
use gambeson_proto::file::{Digest, tree};

use crate::body::{Body, Piece};
use crate::read::generation;
use crate::written::RawEntry;

/// The tree of one file.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Digests of all groups' entry tables.
    digests: Vec<u8>,
    /// Why none of them is believed, if so.
    pub(crate) broken: bool,
    /// Whether they had to be computed again from the entry tables.
    pub(crate) rebuilt: bool,
    tables: HashMap<u64, Table>,
    /// The generation that was closed last.
    pub(crate) closed: u64,
}

/// A group's entry table.
#[derive(Debug)]
enum Table {
    /// As it was anchored.
    Anchored(Box<[u8]>),
    /// Neither the table nor the entries in the slots give the digest.
    Altered,
}

/// What the tree says of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchored {
    /// This is what was there when the file was closed; all zero: nothing was.
    Entry(RawEntry),
    /// Nobody knows.
    Altered,
}

impl Tree {
    /// Takes digest tables that were read. `state`: of the header.
    pub(crate) fn new(body: &impl Body, geometry: &Geometry, digests: Vec<u8>, state: &State) -> io::Result<Self> {
        let mut tree = Tree { digests, broken: false, rebuilt: false, tables: HashMap::new(), closed: state.closed };
        tree.cover(geometry, state.size);
        if tree.root(geometry) == state.root {
            return Ok(tree);
        }
        // One table was damaged: the entry tables below have all that was in it. Or who closed the file was killed when
        // some of them were new: where every block has two slots, one of them still has what was anchored before.
        tree.rebuild(geometry, state, |group| entry_table(body, geometry, group))?;
        if tree.broken && geometry.two_slots {
            tree.rebuild(geometry, state, |group| {
                inline_entries(body, geometry, blocks(geometry, group), state.closed)
            })?;
        }
        Ok(tree)
    }

    /// Computes the digests again from entry tables.
    fn rebuild(
        &mut self,
        geometry: &Geometry,
        state: &State,
        table: impl Fn(u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let groups = geometry.groups_of(geometry.blocks(state.size));
        let rebuilt = (0..groups).map(|group| table(group).map(|table| digest(&table)));
        self.digests = rebuilt.collect::<io::Result<Vec<_>>>()?.concat();
        self.cover(geometry, state.size);
        self.rebuilt = self.root(geometry) == state.root;
        self.broken = !self.rebuilt;
        Ok(())
    }

    /// As many digest tables as a file of this size has.
    pub(crate) fn cover(&mut self, geometry: &Geometry, size: u64) {
        let chapters = geometry.chapters_of(geometry.blocks(size));
        self.digests.resize(chapters as usize * geometry.digest_table_len(), 0);
    }

    /// The root that the digests give.
    pub(crate) fn root(&self, geometry: &Geometry) -> Digest {
        let chapters = self.digests.chunks(geometry.digest_table_len()).map(tree::digest_table);
        tree::root(&chapters.collect::<Vec<_>>())
    }

    /// A chapter's digest table.
    pub(crate) fn digest_table(&self, geometry: &Geometry, chapter: u64) -> &[u8] {
        &self.digests[chapter as usize * geometry.digest_table_len()..][..geometry.digest_table_len()]
    }

    /// The digest of a group's entry table; zero: there is no entry in it.
    fn digest(&self, group: u64) -> [u8; DIGEST_LEN] {
        let at = usize::try_from(group).unwrap_or(usize::MAX).saturating_mul(DIGEST_LEN);
        self.digests
            .get(at..at.saturating_add(DIGEST_LEN))
            .map_or([0; DIGEST_LEN], |digest| digest.try_into().expect("a digest has this length"))
    }

    /// A group has a new digest.
    pub(crate) fn set_digest(&mut self, geometry: &Geometry, group: u64, digest: Digest) {
        let chapter = geometry.chapter(group) as usize;
        let table = geometry.digest_table_len();
        if self.digests.len() < (chapter + 1) * table {
            self.digests.resize((chapter + 1) * table, 0);
        }
        let at = chapter * table + geometry.digest_in_table(group);
        self.digests[at..at + DIGEST_LEN].copy_from_slice(&digest);
        self.tables.remove(&group);
    }

    /// Groups from this one on are gone.
    pub(crate) fn cut(&mut self, group: u64) {
        let at = usize::try_from(group).unwrap_or(usize::MAX).saturating_mul(DIGEST_LEN);
        if let Some(rest) = self.digests.get_mut(at..) {
            rest.fill(0);
        }
        self.tables.retain(|&known, _| known < group);
    }

    /// What was anchored of an entry.
    pub(crate) fn entry(
        &mut self,
        body: &impl Body,
        geometry: &Geometry,
        group: u64,
        at: usize,
    ) -> io::Result<Anchored> {
        if self.broken {
            return Ok(Anchored::Altered);
        }
        if self.digest(group) == [0; DIGEST_LEN] {
            return Ok(Anchored::Entry([0; ENTRY_LEN]));
        }
        self.load(body, geometry, group)?;
        match &self.tables[&group] {
            Table::Altered => Ok(Anchored::Altered),
            Table::Anchored(table) => {
                let entry = table[at..at + ENTRY_LEN].try_into().expect("an entry has this length");
                // An entry of which nobody knew any more when the file was last closed.
                Ok(if entry == LOST { Anchored::Altered } else { Anchored::Entry(entry) })
            }
        }
    }

    /// Whether a group's entry table on the storage is the one that was anchored, so that there are two copies of its
    /// entries.
    pub(crate) fn is_whole(&self, body: &impl Body, geometry: &Geometry, group: u64) -> io::Result<bool> {
        Ok(!self.broken && digest(&entry_table(body, geometry, group)?) == self.digest(group))
    }

    /// A group's entry table as it was anchored, or one that says of every entry that it is lost.
    pub(crate) fn table(&mut self, body: &impl Body, geometry: &Geometry, group: u64) -> io::Result<Box<[u8]>> {
        if self.broken {
            return Ok(vec![LOST_BYTE; geometry.entry_table_len()].into());
        }
        if self.digest(group) == [0; DIGEST_LEN] {
            return Ok(vec![0; geometry.entry_table_len()].into());
        }
        self.load(body, geometry, group)?;
        Ok(match &self.tables[&group] {
            Table::Anchored(table) => table.clone(),
            Table::Altered => vec![LOST_BYTE; geometry.entry_table_len()].into(),
        })
    }

    /// Writes the tables of the last close again where whoever closed the file next was killed before the header said so:
    /// the next close makes the slots that they are taken from indistinguishable from those that he left.
    pub(crate) fn restore(&mut self, body: &impl Body, geometry: &Geometry, size: u64) -> io::Result<()> {
        for group in 0..geometry.groups_of(geometry.blocks(size)) {
            if self.is_whole(body, geometry, group)? {
                continue;
            }
            let table = self.table(body, geometry, group)?;
            if digest(&table) == self.digest(group) {
                body.write(&[Piece { offset: geometry.entry_table(group), length: table.len() }], &table)?;
            }
        }
        for (chapter, table) in (0..).zip(self.digests.chunks(geometry.digest_table_len())) {
            body.write(&[Piece { offset: geometry.digest_table(chapter), length: table.len() }], table)?;
        }
        Ok(())
    }

    fn load(&mut self, body: &impl Body, geometry: &Geometry, group: u64) -> io::Result<()> {
        if self.tables.contains_key(&group) {
            return Ok(());
        }
        if self.tables.len() >= TABLES_MAX {
            self.tables.clear();
        }
        let wanted = self.digest(group);
        let mut table = entry_table(body, geometry, group)?;
        if digest(&table) != wanted {
            table = inline_entries(body, geometry, blocks(geometry, group), self.closed)?;
        }
        let table = if digest(&table) == wanted { Table::Anchored(table.into()) } else { Table::Altered };
        self.tables.insert(group, table);
        Ok(())
    }
}

/// The digest of an entry table; of one without entries, zero.
pub(crate) fn digest(table: &[u8]) -> [u8; DIGEST_LEN] {
    tree::entry_table(table)
}

fn entry_table(body: &impl Body, geometry: &Geometry, group: u64) -> io::Result<Vec<u8>> {
    let mut table = vec![0; geometry.entry_table_len()];
    body.read(&[Piece { offset: geometry.entry_table(group), length: table.len() }], &mut table)?;
    Ok(table)
}

/// The entries that stand beside blocks, one block's after the other. Of two for one share, in slots with two halves, the
/// newest up to a generation counts.
pub(crate) fn inline_entries(
    body: &impl Body,
    geometry: &Geometry,
    blocks: Range<u64>,
    newest: u64,
) -> io::Result<Vec<u8>> {
    let length = geometry.entries_len();
    let read = |half| {
        let pieces: Vec<Piece> =
            blocks.clone().map(|block| Piece { offset: geometry.entry(block, 0, half), length }).collect();
        let mut entries = vec![0; pieces.len() * length];
        body.read(&pieces, &mut entries).map(|()| entries)
    };
    let mut entries = read(Half::First)?;
    if geometry.two_slots {
        let others = read(Half::Second)?;
        let known = |entry: &[u8]| generation(entry.try_into().expect("an entry has this length"));
        for (entry, other) in entries.chunks_mut(ENTRY_LEN).zip(others.chunks(ENTRY_LEN)) {
            let (one, two) = (known(entry), known(other));
            if two <= newest && (one < two || one > newest) {
                entry.copy_from_slice(other);
            }
        }
    }
    Ok(entries)
}

/// A group's blocks.
fn blocks(geometry: &Geometry, group: u64) -> Range<u64> {
    let first = group * u64::from(geometry.group_blocks);
    first..first + u64::from(geometry.group_blocks)
}

/// Entry tables kept in memory: a megabyte of them with the default block.
const TABLES_MAX: usize = 64;
/// Stands in an entry table for an entry that was altered while nobody noticed: it equals none.
const LOST_BYTE: u8 = 0xff;
const LOST: RawEntry = [LOST_BYTE; ENTRY_LEN];
