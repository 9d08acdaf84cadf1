//! The memory of a pair: a sealed memfd that both processes map, with two rings in it.
//!
//! ```text
//!   0      words of the first ring, 128 bytes apart
//!   512    words of the second
//!   4096   bytes of the first ring, then those of the second
//! ```
//!
//! This is all the unsafe code of the carriers. Whatever the other process writes here while we read can only spoil the
//! bytes that are copied out: indices are masked and lengths checked against the mapping's own size.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::ring::{Memory, Word};

/// The words before the rings' bytes, in a page of their own.
const HEADER: usize = 4096;
/// One word and the line beside it, which the processor likes to fetch along.
const WORD: usize = 128;
const WORDS: usize = 4;

/// Sealed so, the file can never become shorter than the mapping, which would be SIGBUS for whoever reads it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// What statfs says of a memfd in ordinary pages; huge ones can be missing at the first touch, which is SIGBUS as well.
const TMPFS: i64 = 0x0102_1994;

/// The least and the most that each ring of a pair may hold.
pub(super) const CAPACITIES: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

/// Which of the two rings: named after the one that writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Connecting,
    Accepting,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Connecting => Side::Accepting,
            Side::Accepting => Side::Connecting,
        }
    }
}

/// The shared memory of a pair, mapped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: nothing about the mapping belongs to one thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Makes the memory for two rings of `capacity` bytes each, and the descriptor to hand over.
    pub(super) fn create(capacity: u64) -> io::Result<(Mapping, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = File::from(rustix::fs::memfd_create("gambeson", flags)?);
        memory.set_len(length(capacity))?;
        rustix::fs::fcntl_add_seals(&memory, SEALS)?;
        Ok((Mapping::of(&memory, capacity)?, memory.into()))
    }

    /// Maps memory that came from somewhere else, if it is what [`Mapping::create`] makes.
    pub(super) fn open(memory: OwnedFd, capacity: u64) -> io::Result<Mapping> {
        let refuse = |why: String| Err(io::Error::new(ErrorKind::InvalidData, why));
        if !CAPACITIES.contains(&capacity) || !capacity.is_power_of_two() {
            return refuse(format!("its rings are said to hold {capacity} bytes, which is no size that is used"));
        }
        match rustix::fs::fcntl_get_seals(&memory) {
            Ok(seals) if seals.contains(SEALS) => {}
            Ok(_) => return refuse("its memory is not sealed, so that it could shrink while it is read".to_owned()),
            Err(_) => return refuse("the descriptor that it sent is no shared memory".to_owned()),
        }
        if rustix::fs::fstatfs(&memory)?.f_type != TMPFS {
            return refuse("its memory is not of ordinary pages".to_owned());
        }
        let memory = File::from(memory);
        let (is, expected) = (memory.metadata()?.len(), length(capacity));
        if is != expected {
            return refuse(format!("its memory has {is} bytes instead of {expected}"));
        }
        Mapping::of(&memory, capacity)
    }

    fn of(memory: impl AsFd, capacity: u64) -> io::Result<Mapping> {
        let length = length(capacity) as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping at a place of the kernel's choice touches no memory that is in use.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, &memory, 0) }?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0 unasked");
        Ok(Mapping { base, capacity: capacity as usize })
    }

    /// The ring that `side` writes.
    pub(super) fn ring(&self, side: Side) -> Ring<'_> {
        // SAFETY: it is the base of a mapping of `length(capacity)` bytes, which the ring borrows.
        unsafe { Ring::at(self.base, self.capacity, side) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and rings borrow the mapping. Failure would only leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), length(self.capacity as u64) as usize) };
    }
}

fn length(capacity: u64) -> u64 {
    HEADER as u64 + 2 * capacity
}

/// One ring in the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring<'a> {
    words: NonNull<u8>,
    bytes: NonNull<u8>,
    capacity: usize,
    mapping: PhantomData<&'a Mapping>,
}

impl Ring<'_> {
    /// # Safety
    /// At `base` stand `length(capacity)` bytes, aligned to a word, as long as the ring lives; nobody has a reference to them.
    unsafe fn at(base: NonNull<u8>, capacity: usize, side: Side) -> Self {
        let number = side as usize;
        // SAFETY: both places are inside what the caller promises.
        let (words, bytes) = unsafe { (base.add(number * WORDS * WORD), base.add(HEADER + number * capacity)) };
        Ring { words, bytes, capacity, mapping: PhantomData }
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        // SAFETY: the word is inside the mapping, aligned to 128, lives as long as the borrow of the mapping, and both
        // processes touch it with atomic operations alone. (One that does not spoils only what it has to say.)
        unsafe { AtomicU64::from_ptr(self.words.add(word as usize * WORD).as_ptr().cast()) }
    }

    /// Where index `at` lies, and how many of `count` bytes stand there before the rest goes on at the beginning.
    fn place(&self, at: u64, count: usize) -> (usize, usize) {
        assert!(count <= self.capacity, "no more than the ring holds");
        let start = at as usize & (self.capacity - 1);
        (start, count.min(self.capacity - start))
    }
}

impl Memory for Ring<'_> {
    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    #[inline]
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    #[inline]
    fn store(&self, word: Word, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn copy_in(&self, at: u64, bytes: &[u8]) {
        let (start, first) = self.place(at, bytes.len());
        // SAFETY: `place` has checked both parts against the ring's size, and `bytes` is no part of the mapping, of which
        // nobody holds a reference. The reader keeps away from here until the index has moved.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.add(start).as_ptr(), first);
            ptr::copy_nonoverlapping(bytes.as_ptr().add(first), self.bytes.as_ptr(), bytes.len() - first);
        }
    }

    #[inline]
    fn copy_out(&self, at: u64, into: &mut [u8]) {
        let (start, first) = self.place(at, into.len());
        // SAFETY: as for `copy_in`. A writer in the other process that does not keep away makes the bytes any bytes; they
        // are looked at only where they have been copied to.
        unsafe {
            ptr::copy_nonoverlapping(self.bytes.add(start).as_ptr(), into.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(self.bytes.as_ptr(), into.as_mut_ptr().add(first), into.len() - first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::super::ring::{Reader, Writer};
    use super::*;

    #[derive(Clone, Copy)]
    struct Base(NonNull<u8>);

    // SAFETY: the memory outlives the threads, which touch it through rings alone.
    unsafe impl Send for Base {}

    impl Base {
        fn ring<'a>(self, side: Side) -> Ring<'a> {
            // SAFETY: see `bytes_cross_both_rings`, which keeps the memory.
            unsafe { Ring::at(self.0, 64, side) }
        }
    }

    fn write_all(ring: Ring<'_>, writer: &mut Writer, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            let moved = writer.write(&ring, &[IoSlice::new(first), IoSlice::new(second)]).expect("an honest reader");
            bytes = &bytes[moved.bytes..];
            std::thread::yield_now();
        }
    }

    fn read_exactly(ring: Ring<'_>, reader: &mut Reader, into: &mut [u8]) {
        let mut at = 0;
        while at < into.len() {
            at += reader.read(&ring, &mut into[at..]).expect("an honest writer").bytes;
            std::thread::yield_now();
        }
    }

    /// In memory that Miri understands, with two threads for the two processes.
    #[test]
    fn bytes_cross_both_rings() {
        let mut memory = vec![0u128; length(64) as usize / size_of::<u128>()];
        let base = Base(NonNull::new(memory.as_mut_ptr().cast()).expect("it is allocated"));
        let echo = std::thread::spawn(move || {
            let base = base;
            let (mut reader, mut writer) = (Reader::default(), Writer::default());
            for length in 1..100 {
                let mut bytes = vec![0; length];
                read_exactly(base.ring(Side::Connecting), &mut reader, &mut bytes);
                write_all(base.ring(Side::Accepting), &mut writer, &bytes);
            }
        });
        let (mut reader, mut writer) = (Reader::default(), Writer::default());
        for length in 1..100 {
            let bytes: Vec<u8> = (0..length).map(|i| i ^ length).collect();
            let mut back = vec![0; bytes.len()];
            write_all(base.ring(Side::Connecting), &mut writer, &bytes);
            read_exactly(base.ring(Side::Accepting), &mut reader, &mut back);
            assert_eq!(back, bytes);
        }
        echo.join().expect("the other side");
    }
}
