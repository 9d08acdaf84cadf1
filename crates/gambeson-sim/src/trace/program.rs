//! How a job is put together, record by record: requests become slots, communicators get one number for all ranks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{BLOCKING, Call, Job, Op};
use crate::Error;
use crate::time::Time;

/// The most communicators of a job.
const COMMUNICATORS_MAX: usize = 1 << 15;

/// A job in the making.
pub(crate) struct Program {
    job: Job,
    by_members: HashMap<(Arc<[u32]>, u32), u16>,
}

/// The rank whose records are being added.
pub(crate) struct Rank<'p> {
    job: &'p mut Job,
    rank: u32,
    open: BTreeMap<u64, u32>,
    free: Vec<u32>,
    slots: u32,
}

impl Program {
    pub(crate) fn new(name: &str, file: &str, ranks: u32) -> Self {
        let world: Arc<[u32]> = (0..ranks).collect();
        let job = Job {
            name: name.to_owned(),
            file: file.to_owned(),
            ranks: vec![Vec::new(); ranks as usize],
            communicators: vec![world.clone()],
            counts: Vec::new(),
            text: false,
            recorded: None,
        };
        Self { job, by_members: HashMap::from([((world, 0), 0)]) }
    }

    /// The number of the communicator with these members, of which `nth` others with the same members came before.
    ///
    /// Every member makes the communicators with the same members in the same order, so that this pair names one.
    pub(crate) fn communicator(&mut self, members: &Arc<[u32]>, nth: u32) -> Result<u16, Error> {
        if let Some(&number) = self.by_members.get(&(members.clone(), nth)) {
            return Ok(number);
        }
        let number = self.job.communicators.len();
        if number >= COMMUNICATORS_MAX {
            return Err(self.wrong(format!(
                "it has more than {COMMUNICATORS_MAX} communicators; cut the trace before it makes that many"
            )));
        }
        self.job.communicators.push(members.clone());
        self.by_members.insert((members.clone(), nth), number as u16);
        Ok(number as u16)
    }

    /// Says that what it is put together from is a text, and its records are lines.
    pub(crate) fn of_lines(mut self) -> Self {
        self.job.text = true;
        self
    }

    pub(crate) fn rank(&mut self, rank: u32) -> Rank<'_> {
        Rank { job: &mut self.job, rank, open: BTreeMap::new(), free: Vec::new(), slots: BLOCKING }
    }

    /// Notes how long the job took when it was recorded.
    pub(crate) fn took(&mut self, time: Time) {
        self.job.recorded = Some(time);
    }

    pub(crate) fn finish(self) -> Job {
        self.job
    }

    fn wrong(&self, what: impl Into<String>) -> Error {
        Error::trace(&self.job.file, None, None, what)
    }
}

impl Rank<'_> {
    pub(crate) fn reserve(&mut self, ops: usize) {
        self.job.ranks[self.rank as usize].reserve_exact(ops);
    }

    pub(crate) fn push(&mut self, gap: Time, call: Call, record: u32) {
        self.job.ranks[self.rank as usize].push(Op { gap, call, record });
    }

    /// A slot for a request that begins.
    pub(crate) fn open(&mut self, request: u64, record: u32) -> Result<u32, Error> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots
        });
        match self.open.insert(request, slot) {
            None => Ok(slot),
            Some(_) => Err(self.wrong(record, format!("request {request} begins anew before it was waited for"))),
        }
    }

    /// The slot of a request that is waited for, if one of this number is under way.
    pub(crate) fn close(&mut self, request: u64) -> Option<u32> {
        let slot = self.open.remove(&request)?;
        self.free.push(slot);
        Some(slot)
    }

    /// The place of the counts of a vector collective.
    pub(crate) fn counts(&mut self, counts: impl IntoIterator<Item = u32>) -> u32 {
        let first = self.job.counts.len() as u32;
        self.job.counts.extend(counts);
        first
    }

    pub(crate) fn wrong(&self, record: u32, what: impl Into<String>) -> Error {
        Error::trace(&self.job.file, Some(self.rank), Some(self.job.place(record)), what)
    }
}
