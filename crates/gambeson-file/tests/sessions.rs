//! Several sessions of one file at the same time, as of handles that know nothing of each other: PnetCDF has one for
//! collective access and one at each process for independent access.
#![allow(missing_docs)]

mod common;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use common::{Folder, Ring, close, make, map, open, open_to_write};
use gambeson_file::{Cause, Extent, LocalBody, Locks, Mode, SealedFile, Then};
use gambeson_proto::file::geometry::Half;
use gambeson_proto::file::state::Status;

const BLOCK: u64 = 4096;

fn put(file: &mut SealedFile<LocalBody>, offset: u64, byte: u8) {
    file.write(&[Extent { offset, length: 10 }], &[byte; 10]).unwrap();
}

/// What stands at each of these offsets once all sessions are closed.
fn check(path: &Path, keys: &Arc<Ring>, expected: &[(u64, u8)]) {
    let mut file = open(path, keys).unwrap();
    assert_eq!(file.header().state().status, Status::Closed);
    for &(offset, byte) in expected {
        let mut read = [0; 10];
        file.read(&[Extent { offset, length: 10 }], &mut read).unwrap();
        assert_eq!(read, [byte; 10], "at {offset}");
    }
}

fn file(test: &str) -> (Folder, Arc<Ring>, std::path::PathBuf) {
    let (folder, keys) = (Folder::new(test), Ring::all());
    let path = folder.path("it");
    make(&path, &keys, BLOCK as u32, &[map(Some("clinical"), vec![])]);
    (folder, keys, path)
}

#[test]
fn who_opened_first_may_close_last() {
    let (_folder, keys, path) = file("first-last");
    let mut first = open_to_write(&path, &keys);
    put(&mut first, 0, 1);
    let mut second = open_to_write(&path, &keys);
    put(&mut second, 3 * BLOCK, 2);
    close(second);
    put(&mut first, 7 * BLOCK, 3);
    close(first);
    check(&path, &keys, &[(0, 1), (3 * BLOCK, 2), (7 * BLOCK, 3)]);
}

#[test]
fn of_a_block_that_both_have_written_the_last_write_counts() {
    for second_closes_first in [true, false] {
        let (_folder, keys, path) = file("both");
        let (mut first, mut second) = (open_to_write(&path, &keys), open_to_write(&path, &keys));
        put(&mut first, 0, 1);
        put(&mut second, 100, 2);
        put(&mut second, BLOCK, 3);
        put(&mut first, BLOCK + 100, 4);
        if second_closes_first {
            close(second);
            close(first);
        } else {
            close(first);
            close(second);
        }
        check(&path, &keys, &[(0, 1), (100, 2), (BLOCK, 3), (BLOCK + 100, 4)]);
    }
}

/// What a process has at hand of a block that it reads in parts is what the file has.
#[test]
fn what_one_has_read_of_a_block_does_not_hide_what_another_writes() {
    let (_folder, keys, path) = file("fresh");
    let (mut first, mut second) = (open_to_write(&path, &keys), open_to_write(&path, &keys));
    let read = |file: &mut SealedFile<LocalBody>, offset| {
        let mut read = [0; 10];
        file.read(&[Extent { offset, length: 10 }], &mut read).unwrap();
        read
    };
    put(&mut first, 2 * BLOCK, 1);
    for byte in 2..9 {
        // The second of them lies in two blocks.
        for (at, offset) in [(0, 2 * BLOCK), (1, 3 * BLOCK - 5), (2, 3 * BLOCK + 50)] {
            put(&mut first, offset, byte + 10 * at);
            assert_eq!(read(&mut second, offset), [byte + 10 * at; 10], "at {offset}");
            assert_eq!(read(&mut first, offset), [byte + 10 * at; 10], "at {offset}");
        }
    }
    close(first);
    close(second);
}

#[test]
fn a_session_that_others_have_come_and_gone_beside_goes_on() {
    let (_folder, keys, path) = file("come-and-gone");
    let mut file = open_to_write(&path, &keys);
    put(&mut file, 0, 1);
    for byte in 2..5 {
        let mut other = open_to_write(&path, &keys);
        put(&mut other, u64::from(byte) * 20, byte);
        close(other);
        file.anchor(Then::GoOn).unwrap();
    }
    put(&mut file, 1000, 9);
    close(file);
    check(&path, &keys, &[(0, 1), (40, 2), (60, 3), (80, 4), (1000, 9)]);
}

#[test]
fn who_comes_later_believes_what_others_are_writing() {
    let (_folder, keys, path) = file("later");
    let (mut first, second) = (open_to_write(&path, &keys), open_to_write(&path, &keys));
    put(&mut first, 0, 1);
    close(second);
    // The first one has not anchored its block yet, and another has closed the file meanwhile.
    let mut third = open_to_write(&path, &keys);
    put(&mut third, 100, 2);
    close(first);
    close(third);
    check(&path, &keys, &[(0, 1), (100, 2)]);
}

#[test]
fn who_is_alone_again_believes_no_more_than_it_has_anchored() {
    let (_folder, keys, path) = file("alone");
    let (mut first, second) = (open_to_write(&path, &keys), open_to_write(&path, &keys));
    put(&mut first, 0, 1);
    let old = std::fs::read(&path).unwrap();
    put(&mut first, 0, 2);
    close(second);
    first.anchor(Then::GoOn).unwrap();
    let block = first.geometry().entry(0, 0, Half::First) as usize..first.geometry().len(1) as usize;
    let copy = OpenOptions::new().write(true).open(&path).unwrap();
    copy.write_all_at(&old[block.start..block.end.min(old.len())], block.start as u64).unwrap();
    let error = first.read(&[Extent { offset: 0, length: 10 }], &mut [0; 10]).unwrap_err();
    assert_eq!(error.cause, Cause::Altered, "{error}");
}

/// Anybody who can open the file can lock what sessions lock, and so can its storage.
#[test]
fn a_lock_that_is_planted_lets_nothing_old_pass() {
    let (_folder, keys, path) = file("planted");
    let mut olds = Vec::new();
    for byte in 1..3 {
        let mut file = open_to_write(&path, &keys);
        put(&mut file, 0, byte);
        close(file);
        olds.push(std::fs::read(&path).unwrap());
    }
    let planted = Locks::new(Arc::new(File::open(&path).unwrap()));
    let held = planted.lock(1 << 61..(1 << 61) + 1, Mode::Shared).unwrap();
    let mut file = open_to_write(&path, &keys);
    let block = file.geometry().entry(0, 0, Half::First) as usize..file.geometry().len(1) as usize;
    let copy = OpenOptions::new().write(true).open(&path).unwrap();
    let old = &olds[0];
    copy.write_all_at(&old[block.start..block.end.min(old.len())], block.start as u64).unwrap();
    let error = file.read(&[Extent { offset: 0, length: 10 }], &mut [0; 10]).unwrap_err();
    assert_eq!(error.cause, Cause::Altered, "{error}");
    drop(held);
}

#[test]
fn many_may_close_at_once() {
    let (_folder, keys, path) = file("at-once");
    let mut first = open_to_write(&path, &keys);
    put(&mut first, 0, 1);
    std::thread::scope(|scope| {
        for number in 1..9_u8 {
            let (path, keys) = (&path, &keys);
            scope.spawn(move || {
                for at in 0..5 {
                    let mut file = open_to_write(path, keys);
                    put(&mut file, u64::from(number) * 100 + at * 10, number);
                    file.anchor(Then::GoOn).unwrap();
                    put(&mut file, u64::from(number) * BLOCK + at * 10, number);
                    close(file);
                }
            });
        }
    });
    close(first);
    for number in 1..9_u8 {
        let at = u64::from(number);
        check(&path, &keys, &[(at * 100, number), (at * 100 + 40, number), (at * BLOCK, number)]);
    }
}
