//! The ring under every order in which the two sides' steps can be seen (loom), and under a side that writes nonsense.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;

/// A ring whose memory loom watches: it reports bytes that are touched by both sides at once.
struct Watched {
    words: [AtomicU64; 4],
    bytes: Vec<UnsafeCell<u8>>,
    /// What stands in for the socket. They wake for no reason as well.
    wake_reader: Notify,
    wake_writer: Notify,
}

impl Watched {
    fn new(capacity: usize) -> Arc<Watched> {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        let bytes = (0..capacity).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Watched { words, bytes, wake_reader: Notify::new(), wake_writer: Notify::new() })
    }

    fn byte(&self, at: u64) -> &UnsafeCell<u8> {
        &self.bytes[at as usize % self.bytes.len()]
    }
}

impl Memory for Watched {
    fn capacity(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.words[word as usize].load(order)
    }

    fn store(&self, word: Word, value: u64, order: Ordering) {
        self.words[word as usize].store(value, order);
    }

    fn fence(&self) {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    fn copy_in(&self, at: u64, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: loom runs one thread at a time and reports whoever else is at this byte.
            self.byte(at + i as u64).with_mut(|place| unsafe { *place = *byte });
        }
    }

    fn copy_out(&self, at: u64, into: &mut [u8]) {
        for (i, byte) in into.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = self.byte(at + i as u64).with(|place| unsafe { *place });
        }
    }
}

fn write_all(memory: &Watched, writer: &mut Writer, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let moved = writer.write(memory, &[IoSlice::new(bytes)]).expect("an honest reader");
        if moved.wake {
            memory.wake_reader.notify();
        }
        bytes = &bytes[moved.bytes..];
        if moved.bytes == 0 && !writer.arm(memory).expect("an honest reader") {
            memory.wake_writer.wait();
        }
    }
}

fn read_exactly(memory: &Watched, reader: &mut Reader, into: &mut [u8], at_once: usize) {
    let mut at = 0;
    while at < into.len() {
        let upto = into.len().min(at + at_once);
        let moved = reader.read(memory, &mut into[at..upto]).expect("an honest writer");
        if moved.wake {
            memory.wake_writer.notify();
        }
        at += moved.bytes;
        if moved.bytes == 0 && !reader.arm(memory).expect("an honest writer") {
            memory.wake_reader.wait();
        }
    }
}

/// Every schedule in which a side is held up at most twice between two of its steps, or LOOM_MAX_PREEMPTIONS times.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

/// A lost wake-up would be a deadlock here, which loom reports.
#[test]
fn bytes_arrive_in_order_and_nobody_sleeps_for_ever() {
    for (pieces, at_once) in [(&[3, 3][..], 8), (&[5, 2], 1), (&[1, 1, 1], 8)] {
        explore(move || {
            let sent: Vec<u8> = (1..=pieces.iter().sum::<usize>() as u8).collect();
            let memory = Watched::new(4);
            let (theirs, bytes) = (memory.clone(), sent.clone());
            let writing = thread::spawn(move || {
                let (mut writer, mut bytes) = (Writer::default(), &bytes[..]);
                for &piece in pieces {
                    let (now, later) = bytes.split_at(piece);
                    write_all(&theirs, &mut writer, now);
                    bytes = later;
                }
            });
            let mut came = vec![0; sent.len()];
            read_exactly(&memory, &mut Reader::default(), &mut came, at_once);
            assert_eq!(came, sent);
            writing.join().expect("the writer");
        });
    }
}

/// Request and reply over two rings, both sides sleeping whenever there is nothing.
#[test]
fn a_reply_wakes_whoever_asked() {
    explore(|| {
        let (there, back) = (Watched::new(4), Watched::new(4));
        let (requests, replies) = (there.clone(), back.clone());
        let answering = thread::spawn(move || {
            let (mut reader, mut writer) = (Reader::default(), Writer::default());
            let mut request = [0];
            read_exactly(&requests, &mut reader, &mut request, 1);
            write_all(&replies, &mut writer, &[request[0] + 1]);
        });
        write_all(&there, &mut Writer::default(), &[7]);
        let mut reply = [0];
        read_exactly(&back, &mut Reader::default(), &mut reply, 1);
        assert_eq!(reply, [8]);
        answering.join().expect("the other side");
    });
}

/// Runs once: loom's memory is only at home in a model.
fn alone(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 1_000_000;
    builder.check(check);
}

/// A reader that looks too seldom, or a writer that sleeps too early, would leave the writer asleep beside an empty ring.
#[test]
fn a_reader_that_empties_the_ring_wakes_a_writer_that_sleeps() {
    const CAPACITY: u64 = 16;
    alone(|| {
        let mut slept = 0;
        for (head, unread, at_once) in (0..CAPACITY)
            .flat_map(|head| (0..=CAPACITY).flat_map(move |unread| [1, 3, 16].map(|at_once| (head, unread, at_once))))
        {
            let memory = Watched::new(CAPACITY as usize);
            memory.store(Word::Head, head, Relaxed);
            memory.store(Word::Tail, head + unread, Relaxed);
            let mut reader = Reader { head, tail: head, armed: false };
            let mut writer = Writer { tail: head + unread, head, armed: false };
            if writer.arm(&*memory).expect("an honest reader") {
                continue;
            }
            slept += 1;
            let mut woken = false;
            let mut into = [0; CAPACITY as usize];
            while reader.ready(&*memory).expect("an honest writer") {
                woken |= reader.read(&*memory, &mut into[..at_once]).expect("an honest writer").wake;
            }
            assert!(woken, "with {unread} unread from {head} on, {at_once} at once");
        }
        assert_eq!(slept, 16 * 8 * 3, "it sleeps while more than half is unread");
    });
}

#[test]
fn a_reader_takes_no_nonsense() {
    alone(|| {
        let memory = &*Watched::new(8);
        let mut reader = Reader::default();
        let into = &mut [0; 16];
        for tail in [9, u64::MAX, 1 << 63] {
            memory.store(Word::Tail, tail, Relaxed);
            let refused = Err(Nonsense { index: tail, least: 0, most: 8 });
            assert_eq!(reader.read(memory, into), refused);
            assert_eq!(reader.arm(memory).map(|_| Moved { bytes: 0, wake: false }), refused);
        }
        memory.store(Word::Tail, 5, Relaxed);
        assert_eq!(reader.read(memory, into), Ok(Moved { bytes: 5, wake: false }));
        memory.store(Word::Tail, 4, Relaxed);
        assert_eq!(reader.read(memory, into), Err(Nonsense { index: 4, least: 5, most: 13 }));
    });
}

#[test]
fn a_writer_takes_no_nonsense() {
    alone(|| {
        let memory = &*Watched::new(8);
        let mut writer = Writer::default();
        let bytes = [1; 16];
        assert_eq!(writer.write(memory, &[IoSlice::new(&bytes)]), Ok(Moved { bytes: 8, wake: false }));
        for head in [9, u64::MAX] {
            memory.store(Word::Head, head, Relaxed);
            let refused = Err(Nonsense { index: head, least: 0, most: 8 });
            assert_eq!(writer.write(memory, &[IoSlice::new(&bytes)]), refused);
            assert_eq!(writer.arm(memory).map(|_| Moved { bytes: 0, wake: false }), refused);
        }
        memory.store(Word::Head, 3, Relaxed);
        assert_eq!(writer.write(memory, &[IoSlice::new(&bytes)]), Ok(Moved { bytes: 3, wake: false }));
        memory.store(Word::Head, 2, Relaxed);
        assert_eq!(writer.write(memory, &[IoSlice::new(&bytes)]), Err(Nonsense { index: 2, least: 3, most: 11 }));
    });
}
