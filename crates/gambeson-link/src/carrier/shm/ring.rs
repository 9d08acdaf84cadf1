//! One direction of a pair: a ring of bytes with one writer and one reader, each in a process of its own.
//!
//! The reader believes nothing that the writer could have altered, nor the other way round: each side keeps its own
//! index in private memory, takes the other's only if it lies where it can lie, and copies bytes once.
//!
//! A pair that is busy makes no system call. Whoever is about to sleep raises a flag and looks once more whether it may;
//! the other side moves its index and then looks at the flag. A full fence between the two steps on each side makes sure
//! that at least one of them sees the other. The writer looks after each write. The reader spares itself the fence: it
//! looks whenever it has passed a quarter of the ring, for a writer may sleep only while more than half is unread.

use std::fmt;
use std::io::IoSlice;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

/// The memory that the two sides of a ring share.
pub(super) trait Memory {
    /// Bytes that the ring holds: a power of two, at least 4.
    fn capacity(&self) -> u64;
    fn load(&self, word: Word, order: Ordering) -> u64;
    fn store(&self, word: Word, value: u64, order: Ordering);
    /// A sequentially consistent fence.
    fn fence(&self);
    /// Copies into the ring from index `at` on; no more than fits.
    fn copy_in(&self, at: u64, bytes: &[u8]);
    /// Copies out of the ring from index `at` on; no more than it holds.
    fn copy_out(&self, at: u64, into: &mut [u8]);
}

/// The words beside the bytes. Indices count bytes since the beginning and never turn round.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    /// Up to where the writer has written.
    Tail,
    /// Up to where the reader has read.
    Head,
    ReaderSleeps,
    WriterSleeps,
}

/// The other side's index is where it cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense {
    index: u64,
    least: u64,
    most: u64,
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nonsense { index, least, most } = self;
        write!(f, "an index of {index} stands in the shared memory, where it can lie between {least} and {most}")
    }
}

/// What was done, and whether the other side sleeps and must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) bytes: usize,
    pub(super) wake: bool,
}

/// Looks at the other side's flag after a fence. Whoever takes the flag down must wake: the flag may have been raised
/// again in between.
fn sleeps(memory: &impl Memory, flag: Word) -> bool {
    memory.fence();
    let raised = memory.load(flag, Relaxed) != 0;
    if raised {
        memory.store(flag, 0, Relaxed);
    }
    raised
}

/// The writer's side.
#[derive(Debug, Default)]
pub(super) struct Writer {
    tail: u64,
    /// The reader's index as it was last seen.
    head: u64,
    armed: bool,
}

impl Writer {
    /// Writes as much of `bytes` as there is room for.
    pub(super) fn write(&mut self, memory: &impl Memory, bytes: &[IoSlice<'_>]) -> Result<Moved, Nonsense> {
        let wanted: u64 = bytes.iter().map(|slice| slice.len() as u64).sum();
        let mut room = memory.capacity() - (self.tail - self.head);
        if room < wanted {
            room = self.look(memory)?;
        }
        let bytes_in = wanted.min(room);
        if bytes_in == 0 {
            return Ok(Moved { bytes: 0, wake: false });
        }
        if self.armed {
            self.armed = false;
            memory.store(Word::WriterSleeps, 0, Relaxed);
        }
        let mut left = bytes_in;
        for slice in bytes {
            let part = left.min(slice.len() as u64);
            memory.copy_in(self.tail, &slice[..part as usize]);
            self.tail += part;
            left -= part;
        }
        memory.store(Word::Tail, self.tail, Release);
        Ok(Moved { bytes: bytes_in as usize, wake: sleeps(memory, Word::ReaderSleeps) })
    }

    /// Raises the flag; true if half of the ring is free, so that there is no reason to sleep.
    pub(super) fn arm(&mut self, memory: &impl Memory) -> Result<bool, Nonsense> {
        self.armed = true;
        memory.store(Word::WriterSleeps, 1, Relaxed);
        memory.fence();
        Ok(self.look(memory)? >= memory.capacity() / 2)
    }

    /// Looks where the reader is, and says how much room there is.
    fn look(&mut self, memory: &impl Memory) -> Result<u64, Nonsense> {
        let index = memory.load(Word::Head, Acquire);
        if !(self.head..=self.tail).contains(&index) {
            return Err(Nonsense { index, least: self.head, most: self.tail });
        }
        self.head = index;
        Ok(memory.capacity() - (self.tail - self.head))
    }
}

/// The reader's side.
#[derive(Debug, Default)]
pub(super) struct Reader {
    head: u64,
    /// The writer's index as it was last seen.
    tail: u64,
    armed: bool,
}

impl Reader {
    /// Reads what is there, as much as `into` takes.
    pub(super) fn read(&mut self, memory: &impl Memory, into: &mut [u8]) -> Result<Moved, Nonsense> {
        if self.tail == self.head && !self.look(memory)? {
            return Ok(Moved { bytes: 0, wake: false });
        }
        if self.armed {
            self.armed = false;
            memory.store(Word::ReaderSleeps, 0, Relaxed);
        }
        let bytes = into.len().min((self.tail - self.head) as usize);
        memory.copy_out(self.head, &mut into[..bytes]);
        let before = self.head;
        self.head += bytes as u64;
        memory.store(Word::Head, self.head, Release);
        // They differ in a bit that is worth a quarter or more.
        let passed_quarter = before ^ self.head >= memory.capacity() / 4;
        let wake = passed_quarter && sleeps(memory, Word::WriterSleeps);
        Ok(Moved { bytes, wake })
    }

    /// Whether something is there to read.
    pub(super) fn ready(&mut self, memory: &impl Memory) -> Result<bool, Nonsense> {
        Ok(self.tail != self.head || self.look(memory)?)
    }

    /// Raises the flag; true if something is there to read.
    pub(super) fn arm(&mut self, memory: &impl Memory) -> Result<bool, Nonsense> {
        self.armed = true;
        memory.store(Word::ReaderSleeps, 1, Relaxed);
        memory.fence();
        self.ready(memory)
    }

    /// Looks where the writer is, and says whether it has written.
    fn look(&mut self, memory: &impl Memory) -> Result<bool, Nonsense> {
        let index = memory.load(Word::Tail, Acquire);
        let most = self.head.saturating_add(memory.capacity());
        if !(self.tail..=most).contains(&index) {
            return Err(Nonsense { index, least: self.tail, most });
        }
        self.tail = index;
        Ok(self.tail != self.head)
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
#[path = "ring_tests.rs"]
mod tests;
