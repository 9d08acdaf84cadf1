//! Taking what is on the storage for what it is: of a file that was never closed, or whose tree is damaged. Nothing is
//! believed that its key does not authenticate.

use std::ops::Range;

use gambeson_proto::file::entry::HOLE;

use crate::body::Body;
use crate::error::{Cause, Error};
use crate::lock::SESSION;
use crate::plan::Access;
use crate::read::generation;
use crate::sealed::{Anchoring, SealedFile};
use crate::session::Then;
use crate::tree::Anchored;
use crate::verify::Finding;
use crate::written::{RawEntry, Written};

/// What is there of some groups.
#[derive(Debug, Default)]
pub struct Examined {
    /// The groups whose entry tables have to be written anew, with the entries that nobody has vouched for and that are
    /// authentic.
    pub groups: Vec<(u64, Vec<Written>)>,
    /// Of these, shares without an entry where the tree cannot say whether there was one.
    pub holes: u64,
    /// The greatest generation of a share.
    pub newest: u64,
    /// Shares that nobody should take: altered, removed, put back, or of a key that is not here.
    pub findings: Vec<Finding>,
}

impl Examined {
    /// Takes in what was found of other groups.
    pub fn add(&mut self, other: Examined) {
        self.groups.extend(other.groups);
        self.groups.sort_by_key(|(group, _)| *group);
        self.holes += other.holes;
        self.newest = self.newest.max(other.newest);
        self.findings.extend(other.findings);
        self.findings.sort_by_key(|finding| (finding.block, finding.region));
    }

    /// Shares that nobody has vouched for and that are authentic.
    pub fn unanchored(&self) -> usize {
        self.groups.iter().map(|(_, written)| written.len()).sum::<usize>() - self.holes as usize
    }
}

/// What an unanchored share is.
enum Verdict {
    /// As it was anchored.
    Anchored,
    /// There is none, and nobody knows whether there was.
    Hole,
    /// Authentic, and to be anchored.
    Authentic,
}

impl<B: Body> SealedFile<B> {
    /// The groups of the file, as far as it goes now.
    ///
    /// # Errors
    /// As the body has them.
    pub fn groups(&mut self) -> Result<u64, Error> {
        let blocks = self.blocks()?;
        Ok(self.geometry.groups_of(blocks))
    }

    /// Opens every share of some groups by its own key, whether anybody has vouched for it or not.
    ///
    /// # Errors
    /// As the body has them; what is wrong with shares is among what was found.
    pub fn examine(&mut self, groups: Range<u64>) -> Result<Examined, Error> {
        let mut examined = Examined::default();
        let (per_group, blocks) = (u64::from(self.geometry.group_blocks), self.blocks()?);
        for group in groups {
            let mut written = Vec::new();
            let end = blocks.min((group + 1) * per_group);
            self.each_share(group * per_group..end, |file, access, index, halves| {
                let (region, block) = (access.share.region, access.block);
                // The newest that is whole: of one that broke off, the half that was there before has to do.
                halves.sort_by_key(|half| std::cmp::Reverse(generation(&half.entry)));
                let [newer, older] = halves;
                let (mut entry, mut verdict) = (newer.entry, file.verdict(access, index, &newer.entry, newer.data));
                if verdict.is_err()
                    && older.entry != HOLE
                    && let Ok(known) = file.verdict(access, index, &older.entry, older.data)
                {
                    (entry, verdict) = (older.entry, Ok(known));
                }
                match verdict {
                    Ok(verdict) => {
                        examined.newest = examined.newest.max(generation(&entry));
                        examined.holes += u64::from(matches!(verdict, Verdict::Hole));
                        if !matches!(verdict, Verdict::Anchored) {
                            let at = file.geometry.entry_in_table(block, index) as u32;
                            written.push(Written { at, entry });
                        }
                    }
                    Err(error) => examined.findings.push(Finding { region, block, error }),
                }
            })?;
            if !written.is_empty() {
                examined.groups.push((group, written));
            }
        }
        Ok(examined)
    }

    fn verdict(&mut self, access: &Access, index: u8, entry: &RawEntry, data: &mut [u8]) -> Result<Verdict, Error> {
        let nobody_knows = self.anchored(access.block, index)? == Anchored::Altered;
        if nobody_knows && *entry == HOLE {
            return Ok(Verdict::Hole);
        }
        let verdict = match self.judge(access, index, entry) {
            Ok(()) => Verdict::Anchored,
            Err(error) if error.cause == Cause::Unanchored || nobody_knows => Verdict::Authentic,
            Err(error) => return Err(error),
        };
        if matches!(verdict, Verdict::Anchored) && self.unreadable(access.share.region).is_some() {
            return Ok(verdict);
        }
        self.unseal(access, entry, data, None)?;
        Ok(verdict)
    }

    /// Anchors what was found in all groups of the file, and closes it. What is among the findings stays as it was
    /// anchored, and is refused to whoever reads it. `above`: a generation that the file is known to have had.
    ///
    /// # Errors
    /// Somebody has the file open for writing, or has written it meanwhile; nobody here may sign for it; or what the body
    /// says.
    pub fn accept(&mut self, examined: &Examined, above: u64) -> Result<(), Error> {
        if let Ok(true) = self.body.locked(SESSION) {
            return Err(self.in_use());
        }
        self.above = above.max(examined.newest);
        let serial = self.state.serial;
        self.begin()?;
        if self.state.serial != serial + 1 {
            return Err(self.in_use());
        }
        let size = self.size()?;
        let settled = self.settle()?;
        let mut digests = Vec::new();
        for (group, written) in &examined.groups {
            digests.push((*group, self.anchor_group(*group, written, None)?));
        }
        self.finish(settled, &digests, None, size, Then::Close).map(|_| ())
    }

    /// Has the key store take note of a closed file as it is, which takes no right to write it.
    pub fn take_note(&mut self) -> &Anchoring {
        self.set_anchor();
        &self.anchoring
    }

    pub(crate) fn in_use(&self) -> Error {
        Error::new(Cause::Access, &self.name, "somebody has it open for writing; try again when it is closed")
    }
}
