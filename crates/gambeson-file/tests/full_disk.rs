//! A write that fails leaves what was there: a full disk costs what was to be written, and nothing else.
#![allow(missing_docs)]

mod common;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Folder, Ring, body, make_shaped, map, open};
use gambeson_file::{Below, Body, Extent, Head, Held, LocalBody, Mode, Piece, SealedFile, Shape, Then, sidecar};
use gambeson_proto::file::geometry::Half;

const BLOCK: u64 = 4096;

/// A body that has no room from a byte on.
struct Full {
    body: LocalBody,
    from: AtomicU64,
}

impl Body for Full {
    fn read(&self, pieces: &[Piece], into: &mut [u8]) -> io::Result<()> {
        self.body.read(pieces, into)
    }

    fn write(&self, pieces: &[Piece], from: &[u8]) -> io::Result<()> {
        let [piece] = pieces else { return self.body.write(pieces, from) };
        let room = self.from.load(Ordering::Relaxed).saturating_sub(piece.offset);
        if room >= piece.length as u64 {
            return self.body.write(pieces, from);
        }
        self.body.write(&[Piece { length: room as usize, ..*piece }], &from[..room as usize])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn length(&self) -> io::Result<u64> {
        self.body.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
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

#[test]
fn what_a_failed_write_did_not_reach_stays() {
    [false, true].into_iter().for_each(fill_the_disk);
}

fn fill_the_disk(is_detached: bool) {
    let (folder, keys) = (Folder::new(&format!("full-{is_detached}")), Ring::all());
    let path = folder.path("a");
    let shape = Shape { block_len: BLOCK as u32, detached: is_detached, ..Shape::default() };
    make_shaped(&path, &keys, shape, &[map(Some("clinical"), Vec::new())]);
    let full = |path: &Path| Full { body: body(path), from: AtomicU64::new(u64::MAX) };
    let below = match is_detached {
        true => Below::detached(full(&sidecar(&path)), full(&path)),
        false => Below::attached(full(&path)),
    };
    let head = Head::read(below.sealed()).unwrap().unwrap();
    let mut file = SealedFile::open("it", below, head, keys.clone()).unwrap();
    file.begin().unwrap();
    let whole = [Extent { offset: 0, length: 8 * BLOCK }];
    file.write(&whole, &vec![1; 8 * BLOCK as usize]).unwrap();
    file.anchor(Then::GoOn).unwrap();

    // Room for three blocks, and for a part of the fourth.
    let first = file.geometry().data(0, Half::First);
    let apart = file.geometry().data(1, Half::First) - first;
    let disk = file.body().data().unwrap_or(file.body().sealed());
    disk.from.store(first + 3 * apart + 500, Ordering::Relaxed);
    let refused = file.write(&whole, &vec![2; 8 * BLOCK as usize]).unwrap_err();
    assert_eq!(refused.storage().unwrap().kind(), io::ErrorKind::StorageFull, "{refused}");
    let disk = file.body().data().unwrap_or(file.body().sealed());
    disk.from.store(u64::MAX, Ordering::Relaxed);
    file.anchor(Then::Close).unwrap();

    let mut file = open(&path, &keys).unwrap();
    for block in 0..8 {
        let mut bytes = vec![0; BLOCK as usize];
        let read = file.read(&[Extent { offset: block * BLOCK, length: BLOCK }], &mut bytes);
        match block {
            0..3 => assert!(read.is_ok() && bytes.iter().all(|&byte| byte == 2), "block {block}: new"),
            3 => assert!(read.unwrap_err().to_string().contains("block 3"), "torn, and said so"),
            _ => assert!(read.is_ok() && bytes.iter().all(|&byte| byte == 1), "block {block}: as it was"),
        }
    }
}
