//! Files that were never closed are taken for what they are, on purpose; and keys are wrapped under newer labels.
#![allow(missing_docs)]

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use common::{Folder, Ring, below, body, close, make, make_shaped, map, open, open_to_write};
use gambeson_file::{Anchoring, Cause, Extent, Head, LocalBody, SealedFile, Shape, create};
use gambeson_keys::{Protection, Store};
use gambeson_proto::file::geometry::Half;

const BLOCK: u32 = 4096;

fn at(block: u64, blocks: u64) -> [Extent; 1] {
    [Extent { offset: block * u64::from(BLOCK), length: blocks * u64::from(BLOCK) }]
}

fn read(file: &mut SealedFile<LocalBody>, block: u64, blocks: u64) -> Result<Vec<u8>, gambeson_file::Error> {
    let mut bytes = vec![9; (blocks * u64::from(BLOCK)) as usize];
    file.read(&at(block, blocks), &mut bytes)?;
    Ok(bytes)
}

/// Four blocks of ones; then blocks 1 and 5 are written in a session that is never closed.
fn crashed(path: &Path, keys: &Arc<Ring>) {
    crashed_of(Shape { block_len: BLOCK, ..Shape::default() }, path, keys);
}

fn crashed_of(shape: Shape, path: &Path, keys: &Arc<Ring>) {
    make_shaped(path, keys, shape, &[map(Some("clinical"), Vec::new())]);
    let mut file = open_to_write(path, keys);
    file.write(&at(0, 4), &[1; 4 * BLOCK as usize]).unwrap();
    close(file);
    let mut file = open_to_write(path, keys);
    for block in [1, 5] {
        file.write(&at(block, 1), &[2; BLOCK as usize]).unwrap();
    }
}

#[test]
fn a_file_that_was_never_closed_is_accepted() {
    let folder = Folder::new("accept");
    for detached in [false, true] {
        let shape = Shape { block_len: BLOCK, detached, ..Shape::default() };
        accept(shape, &folder.path(&format!("{detached}")));
    }
}

fn accept(shape: Shape, path: &Path) {
    let keys = Ring::all();
    crashed_of(shape, path, &keys);
    let mut file = open(path, &keys).unwrap();
    assert_eq!(read(&mut file, 1, 1).unwrap_err().cause, Cause::Unanchored);
    let verified = file.verify(0..6).unwrap();
    let found: Vec<_> = verified.findings.iter().map(|found| (found.block, found.error.cause)).collect();
    assert_eq!(found, [(1, Cause::Unanchored), (5, Cause::Unanchored)]);
    assert_eq!((verified.whole, verified.holes), (3, 1));
    let examined = file.examine(0..1).unwrap();
    assert_eq!((examined.unanchored(), examined.holes, examined.findings.len()), (2, 0, 0));
    file.accept(&examined, 0).unwrap();
    drop(file);
    let mut file = open(path, &keys).unwrap();
    assert_eq!(file.size().unwrap(), 6 * u64::from(BLOCK));
    let bytes = read(&mut file, 0, 6).unwrap();
    let blocks: Vec<u8> = bytes.chunks(BLOCK as usize).map(|block| block[0]).collect();
    assert_eq!(blocks, [1, 2, 1, 1, 0, 2]);
    assert!(file.verify(0..6).unwrap().findings.is_empty());
    assert_eq!(*file.anchoring(), Anchoring::Covered);
}

#[test]
fn what_is_not_authentic_stays_lost() {
    let folder = Folder::new("lost");
    let (path, keys) = (folder.path("it"), Ring::all());
    crashed(&path, &keys);
    let geometry = *open(&path, &keys).unwrap().geometry();
    let storage = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // One that was written in the session that was lost, one that was anchored, and one that was taken away.
    for block in [2, 5] {
        storage.write_all_at(&[7], geometry.data(block, Half::First) + 100).unwrap();
    }
    storage.write_all_at(&[0; 64], geometry.entry(3, 0, Half::First)).unwrap();
    let mut file = open(&path, &keys).unwrap();
    let examined = file.examine(0..1).unwrap();
    let blocks: Vec<u64> = examined.findings.iter().map(|found| found.block).collect();
    assert_eq!((blocks, examined.unanchored()), (vec![2, 3, 5], 1));
    file.accept(&examined, 0).unwrap();
    drop(file);
    let mut file = open(&path, &keys).unwrap();
    let verified = file.verify(0..6).unwrap();
    let blocks: Vec<u64> = verified.findings.iter().map(|found| found.block).collect();
    assert_eq!(blocks, [2, 3, 5]);
    assert_eq!(read(&mut file, 1, 1).unwrap(), [2; BLOCK as usize]);
    for block in [2, 3, 5] {
        let error = read(&mut file, block, 1).unwrap_err();
        assert!(error.to_string().contains(&format!("block {block}: ")), "{error}");
    }
    // Writing it anew mends it.
    let mut file = open_to_write(&path, &keys);
    file.write(&at(2, 4), &[3; 4 * BLOCK as usize]).unwrap();
    close(file);
    assert!(open(&path, &keys).unwrap().verify(0..6).unwrap().findings.is_empty());
}

#[test]
fn a_tree_that_was_lost_is_made_anew() {
    let folder = Folder::new("tree");
    let (path, keys) = (folder.path("it"), Ring::all());
    crashed(&path, &keys);
    let geometry = *open(&path, &keys).unwrap().geometry();
    let storage = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    storage.write_all_at(&[7], geometry.entry_table(0) + 3).unwrap();
    let mut file = open(&path, &keys).unwrap();
    assert_eq!(file.verify(0..6).unwrap().findings.len(), 6, "nobody can say what belongs there");
    let examined = file.examine(0..1).unwrap();
    assert_eq!((examined.unanchored(), examined.holes, examined.findings.len()), (5, 1, 0));
    file.accept(&examined, 0).unwrap();
    assert!(open(&path, &keys).unwrap().verify(0..6).unwrap().findings.is_empty());
}

#[test]
fn a_damaged_copy_is_said_and_costs_nothing() {
    let folder = Folder::new("copy");
    let (path, keys) = (folder.path("it"), Ring::all());
    make(&path, &keys, BLOCK, &[map(Some("clinical"), Vec::new())]);
    let mut file = open_to_write(&path, &keys);
    file.write(&at(0, 4), &[1; 4 * BLOCK as usize]).unwrap();
    close(file);
    let look = || {
        let head = Head::read(&body(&path)).unwrap().unwrap();
        let mut file = open(&path, &keys).unwrap();
        let verified = file.verify(0..4).unwrap();
        assert_eq!((verified.whole, verified.findings.len()), (4, 0));
        (verified.damaged_groups, file.damaged_copies(&head).len())
    };
    assert_eq!(look(), (vec![], 0));
    let geometry = *open(&path, &keys).unwrap().geometry();
    let storage = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    storage.write_all_at(&[7], geometry.entry_table(0) + 3).unwrap();
    assert_eq!(look(), (vec![0], 0));
    storage.write_all_at(&[7], 100).unwrap();
    assert_eq!(look(), (vec![0], 1));
}

#[test]
fn nothing_is_accepted_while_somebody_writes() {
    let folder = Folder::new("busy");
    let (path, keys) = (folder.path("it"), Ring::all());
    crashed(&path, &keys);
    let writer = open_to_write(&path, &keys);
    let mut file = open(&path, &keys).unwrap();
    let examined = file.examine(0..1).unwrap();
    let error = file.accept(&examined, 0).unwrap_err();
    assert!(error.to_string().contains("somebody has it open for writing"), "{error}");
    close(writer);
    let error = file.accept(&examined, 0).unwrap_err();
    assert!(error.to_string().contains("somebody has it open for writing"), "what was examined is not what is there");
}

#[test]
fn keys_are_wrapped_under_newer_versions() {
    let folder = Folder::new("rewrap");
    let path = folder.path("it");
    let home = folder.path("store");
    let mut store = Store::create(&home, Protection::KeyFile("master-key".into())).unwrap();
    store.change(|ring| ring.create("clinical", None)).unwrap();
    let keys = || Arc::new(Store::open(&home, &mut |_| None).unwrap().into_keys());
    let with = |keys: &Arc<gambeson_keys::KeyRing>| {
        let below = below(&path, false);
        let head = Head::read(below.sealed()).unwrap().unwrap();
        SealedFile::open("it", below, head, keys.clone())
    };
    let before = keys();
    let shape = Shape { block_len: BLOCK, ..Shape::default() };
    create("it", &below(&path, false), before.as_ref(), shape, &[map(Some("clinical"), Vec::new())]).unwrap();
    let mut file = with(&before).unwrap();
    file.begin().unwrap();
    file.write(&at(0, 2), &[1; 2 * BLOCK as usize]).unwrap();
    close(file);
    assert!(!with(&before).unwrap().rewrap().unwrap(), "nothing to do");
    let old = std::fs::read(&path).unwrap();
    store.change(|ring| ring.rotate("clinical", None)).unwrap();
    let after = keys();
    let mut file = with(&after).unwrap();
    assert!(file.rewrap().unwrap());
    assert_eq!(file.header().table().labels()[0].version, 2);
    let mut file = with(&after).unwrap();
    assert_eq!(read(&mut file, 0, 2).unwrap(), [1; 2 * BLOCK as usize]);
    assert!(file.verify(0..2).unwrap().findings.is_empty());
    // Who has not got the new version is told so; and the old header is an old version of the file.
    assert_eq!(with(&before).map(|_| ()).unwrap_err().cause, Cause::Key);
    std::fs::write(&path, old).unwrap();
    assert_eq!(with(&after).map(|_| ()).unwrap_err().cause, Cause::Altered);
}
