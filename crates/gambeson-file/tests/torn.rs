//! Writers that are killed anywhere in a session: what is read afterwards is what was closed before, or refused with
//! region and block; and a later session goes on without believing what the killed one left.
//!
//! A failure prints its seed; `GAMBESON_SEED=7 cargo test -p gambeson-file --test torn` looks at that one alone, and
//! `cargo test --release -p gambeson-file --test torn -- --ignored` at ten thousand.
#![allow(missing_docs)]

mod common;

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use common::{Folder, Ring, body, close, make, make_shaped, map, open, open_to_write, shape};
use gambeson_file::{
    Below, Body, Cause, Extent, Head, Held, LocalBody, Mode, Piece as Bytes, SealedFile, Then, sidecar,
};
use gambeson_proto::file::region::{Part, Piece};
use gambeson_proto::file::state::Status;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u64 = 4096;
const SIZE: u64 = 6 * BLOCK;

/// A body that takes so many bytes more, and then nothing: as if its process had been killed there.
struct Killed {
    body: LocalBody,
    left: Rc<Cell<u64>>,
}

impl Killed {
    fn is_alive(&self) -> io::Result<()> {
        if self.left.get() == 0 { Err(io::Error::other("killed")) } else { Ok(()) }
    }
}

impl Body for Killed {
    fn read(&self, pieces: &[Bytes], into: &mut [u8]) -> io::Result<()> {
        self.is_alive()?;
        self.body.read(pieces, into)
    }

    fn write(&self, pieces: &[Bytes], mut from: &[u8]) -> io::Result<()> {
        for piece in pieces {
            self.is_alive()?;
            let (bytes, rest) = from.split_at(piece.length);
            from = rest;
            let length = piece.length.min(self.left.get() as usize);
            self.left.set(self.left.get() - length as u64);
            self.body.write(&[Bytes { offset: piece.offset, length }], &bytes[..length])?;
        }
        self.is_alive()
    }

    fn length(&self) -> io::Result<u64> {
        self.is_alive()?;
        self.body.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.is_alive()?;
        self.body.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.body.sync()
    }

    fn lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Held> {
        self.body.lock(range, mode)
    }

    fn try_lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Option<Held>> {
        self.body.try_lock(range, mode)
    }

    fn locked(&self, range: Range<u64>) -> io::Result<bool> {
        self.body.locked(range)
    }
}

#[derive(Default, Debug)]
struct Seen {
    old: usize,
    new: usize,
    unanchored: usize,
    altered: usize,
}

#[test]
fn a_killed_writer_leaves_old_blocks_or_reported_ones() {
    let seeds = match std::env::var("GAMBESON_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..300).collect(),
    };
    all(&seeds);
}

#[test]
#[ignore = "ten thousand killed writers"]
fn ten_thousand_killed_writers() {
    all(&(0..10_000).collect::<Vec<_>>());
}

fn all(seeds: &[u64]) {
    let folder = Folder::new(&format!("torn-{}", seeds.len()));
    let mut seen = Seen::default();
    for seed in seeds {
        println!("GAMBESON_SEED={seed}");
        one(&folder.path(&seed.to_string()), *seed, &mut seen);
        std::fs::remove_file(folder.path(&seed.to_string())).unwrap();
        let _ = std::fs::remove_file(sidecar(&folder.path(&seed.to_string())));
    }
    println!("{seen:?}");
    let each = seen.old.min(seen.new).min(seen.unanchored).min(seen.altered);
    assert!(seeds.len() < 100 || each > 20, "every outcome is there: {seen:?}");
}

fn one(path: &Path, seed: u64, seen: &mut Seen) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let keys = Ring::all();
    let columns = Part::new(0, 100, [Piece { offset: 30, len: 40 }]).unwrap();
    let maps = [map(Some("clinical"), vec![]), map(Some("trial"), vec![columns])];
    let shape = shape(BLOCK as u32, &mut random);
    make_shaped(path, &keys, shape, if random.random_bool(0.5) { &maps } else { &maps[..1] });
    let mut old = vec![0; SIZE as usize];
    random.fill(&mut old[..]);
    let mut file = open_to_write(path, &keys);
    file.write(&[Extent { offset: 0, length: SIZE }], &old).unwrap();
    close(file);

    let states = killed(path, &keys, &old, &mut random);
    // Nobody has to know that there was a session: a reader finds it.
    let mut file = open(path, &keys).unwrap();
    let closed = file.header().state().closed;
    let (_, expected) = states.iter().find(|(generation, _)| *generation == closed).expect("it was closed so");
    let is_closed = closed > states[0].0;
    assert_eq!(file.size().unwrap(), SIZE);
    let refused = look(&mut file, expected, seen, is_closed);
    assert!(!shape.two_slots || refused.is_empty(), "of two slots one has what was closed: {refused:?}");
    drop(file);

    // Whoever writes next does not believe it either, and mends it by writing all of a block.
    let mut file = open_to_write(path, &keys);
    let again = look(&mut file, expected, &mut Seen::default(), is_closed);
    assert_eq!(again, refused, "a session is no reason to believe what another one left");
    let mut whole = expected.clone();
    for block in refused.iter().map(|(block, _)| block * BLOCK) {
        random.fill(&mut whole[block as usize..][..BLOCK as usize]);
        let bytes = &whole[block as usize..][..BLOCK as usize];
        file.write(&[Extent { offset: block, length: BLOCK }], bytes).unwrap();
    }
    close(file);
    let mut file = open(path, &keys).unwrap();
    let left = look(&mut file, &whole, &mut Seen::default(), false);
    assert!(left.is_empty(), "{left:?}");
}

/// A session that ends somewhere; what each close in it would have closed, by generation, from the one before it on.
fn killed(path: &Path, keys: &Arc<Ring>, old: &[u8], random: &mut Xoshiro256PlusPlus) -> Vec<(u64, Vec<u8>)> {
    let most = if random.random_bool(0.5) { 40_000 } else { 700_000 };
    let left = Rc::new(Cell::new(random.random_range(1..most)));
    let killed = |path: &Path| Killed { body: body(path), left: left.clone() };
    let below = match sidecar(path) {
        sidecar if sidecar.exists() => Below::detached(killed(&sidecar), killed(path)),
        _ => Below::attached(killed(path)),
    };
    let head = Head::read(below.sealed()).unwrap().unwrap();
    let mut file = SealedFile::open("it", below, head, keys.clone()).unwrap();
    let mut new = old.to_vec();
    let mut states = vec![(file.header().state().closed, new.clone())];
    if file.begin().is_err() {
        return states;
    }
    for _ in 0..random.random_range(1..6) {
        let offset = random.random_range(0..SIZE);
        let length = random.random_range(1..=(SIZE - offset).min(2 * BLOCK));
        let mut bytes = vec![0; length as usize];
        random.fill(&mut bytes[..]);
        new[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        if file.write(&[Extent { offset, length }], &bytes).is_err() {
            return states;
        }
        if random.random_bool(0.1) {
            states.push((file.header().state().generation, new.clone()));
            if file.anchor(Then::GoOn).is_err() {
                return states;
            }
        }
    }
    states.push((file.header().state().generation, new));
    let _ = file.anchor(Then::Close);
    states
}

#[test]
fn a_session_is_seen_after_a_sync_and_leaves_no_descriptor() {
    let (folder, keys) = (Folder::new("sessions"), Ring::all());
    let path = folder.path("it");
    make(&path, &keys, BLOCK as u32, &[map(Some("clinical"), vec![])]);
    let descriptors = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter(|entry| std::fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|to| to == path)).count()
    };
    let mut file = open_to_write(&path, &keys);
    for at in 0..5 {
        file.write(&[Extent { offset: at, length: 1 }], &[1]).unwrap();
        file.anchor(Then::GoOn).unwrap();
    }
    let other = open_to_write(&path, &keys);
    // Had it not seen the first one, it would have begun a generation of its own.
    assert_eq!(other.header().state().generation, file.header().state().generation);
    assert_eq!(descriptors(), 2);
    close(file);
    close(other);
    assert_eq!(descriptors(), 0);
    assert_eq!(open(&path, &keys).unwrap().header().state().status, Status::Closed);
}

/// The shares that are refused; all others are what they should be.
fn look<B: Body>(file: &mut SealedFile<B>, expected: &[u8], seen: &mut Seen, is_closed: bool) -> Vec<(u64, u16)> {
    let layout = file.header().table().layout().clone();
    let mut refused = Vec::new();
    for block in 0..SIZE / BLOCK {
        let map = layout.block(block);
        for (place, share) in map.shares().iter().enumerate() {
            let runs = map.runs(place).iter();
            let extents: Vec<Extent> = runs
                .map(|run| Extent { offset: block * BLOCK + u64::from(run.offset), length: run.len.into() })
                .collect();
            let plain: Vec<u8> = extents
                .iter()
                .flat_map(|extent| &expected[extent.offset as usize..(extent.offset + extent.length) as usize])
                .copied()
                .collect();
            let mut read = vec![0; plain.len()];
            match file.read(&extents, &mut read) {
                Ok(_) => {
                    assert!(read == plain, "region {}, block {block}", share.region);
                    *(if is_closed { &mut seen.new } else { &mut seen.old }) += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains(&format!("region {} ", share.region))
                            && text.contains(&format!("block {block}:")),
                        "{text}"
                    );
                    match error.cause {
                        Cause::Unanchored => seen.unanchored += 1,
                        Cause::Altered => seen.altered += 1,
                        other => panic!("{other:?}: {text}"),
                    }
                    refused.push((block, share.region));
                }
            }
        }
    }
    refused
}
