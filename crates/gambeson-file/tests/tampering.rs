//! What somebody does to a closed file who has the storage and no key: nobody ever reads anything else than what was
//! written, every refusal names file, region and block, and what was not touched is read all the same.
//!
//! `GAMBESON_SEED=7 cargo test -p gambeson-file --test tampering` draws other places;
//! `cargo test --release -p gambeson-file --test tampering -- --ignored` flips every bit of the file.
#![allow(missing_docs)]

mod common;

use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Folder, Ring, body, close, map, open, open_to_write};
use gambeson_file::{Anchoring, Cause, Error, Extent, LocalBody, SealedFile, Shape, compose, draw_file_id, offer};
use gambeson_proto::file::Geometry;
use gambeson_proto::file::geometry::{Half, HeaderCopy};
use gambeson_proto::file::region::{Part, Piece, RegionId};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u64 = 4096;
/// What is written: two blocks of the first group, one of the second chapter; between them, and before the end, holes.
const WRITTEN: [Range<u64>; 4] =
    [0..150, BLOCK + 40..BLOCK + 75, 5 * BLOCK..5 * BLOCK + 90, 5 * BLOCK + 200..5 * BLOCK + 230];
const SIZE: u64 = 5 * BLOCK + 230;

/// A closed file with three regions, and everything that its readers should see.
struct Subject {
    folder: Folder,
    path: PathBuf,
    keys: Arc<Ring>,
    bytes: Vec<u8>,
    geometry: Geometry,
    shares: Vec<Share>,
}

/// One share as it was written.
struct Share {
    block: u64,
    region: RegionId,
    is_sealed: bool,
    extents: Vec<Extent>,
    plain: Vec<u8>,
    /// Whether anything was written to it.
    is_hole: bool,
}

fn content(at: u64, version: u64) -> u8 {
    (at * 7 + at / 251 + version * 31 + 1) as u8
}

/// Rest and columns under a label each, and a plain strip.
fn make(path: &Path, keys: &Arc<Ring>, two_slots: bool) {
    // 5 * 4096 is 32 modulo 48: columns begin at 26 of each 48 behind it, and the strip is between two.
    let columns = Part::new(0, 48, [Piece { offset: 10, len: 12 }]).unwrap();
    let strip = Part::once(5 * BLOCK + 40, 24);
    let maps = [map(Some("clinical"), vec![]), map(Some("trial"), vec![columns]), map(None, vec![strip])];
    let file = draw_file_id();
    let offers: Vec<_> = (0..)
        .zip(&maps)
        .map(|(region, map)| map.label.as_deref().map(|label| offer(keys.as_ref(), label, file, region, 1).unwrap()))
        .collect();
    let shape = Shape { block_len: BLOCK as u32, two_slots };
    let mut fields = compose(file, shape, &maps, &offers);
    fields.geometry = Geometry { shares: 2, group_blocks: 2, groups: 2, header_len: 4096, ..fields.geometry };
    let table = gambeson_file::table("it", fields).unwrap();
    let signatures = gambeson_file::sign(keys.as_ref(), &table);
    gambeson_file::write_first("it", &body(path), keys.as_ref(), table, &signatures).unwrap();
}

fn write(file: &mut SealedFile<LocalBody>, version: u64) {
    for range in WRITTEN {
        let bytes: Vec<u8> = range.clone().map(|at| content(at, version)).collect();
        file.write(&[Extent { offset: range.start, length: range.end - range.start }], &bytes).unwrap();
    }
}

impl Subject {
    fn new(name: &str, two_slots: bool) -> Self {
        let (folder, keys) = (Folder::new(name), Ring::all());
        let path = folder.path("it");
        make(&path, &keys, two_slots);
        // Two sessions: what is of the first one is there to be put back.
        for version in 0..2 {
            let mut file = open_to_write(&path, &keys);
            write(&mut file, version);
            close(file);
            fs::copy(&path, folder.path(&format!("version {version}"))).unwrap();
        }
        let mut subject = Subject {
            bytes: fs::read(&path).unwrap(),
            geometry: *open(&path, &keys).unwrap().geometry(),
            shares: Vec::new(),
            folder,
            path,
            keys,
        };
        subject.shares = subject.all_shares();
        assert_eq!(subject.look(), Ok((0, 0)));
        subject
    }

    fn all_shares(&self) -> Vec<Share> {
        let file = open(&self.path, &self.keys).unwrap();
        let layout = file.header().table().layout();
        let mut shares = Vec::new();
        for block in 0..SIZE.div_ceil(BLOCK) {
            let map = layout.block(block);
            for (place, share) in map.shares().iter().enumerate() {
                let start = block * BLOCK;
                let runs = map.runs(place).iter().map(|run| (start + u64::from(run.offset), u64::from(run.len)));
                let extents: Vec<Extent> = runs
                    .filter(|(offset, _)| *offset < SIZE)
                    .map(|(offset, length)| Extent { offset, length: length.min(SIZE - offset) })
                    .collect();
                let bytes = extents.iter().flat_map(|extent| extent.offset..extent.offset + extent.length);
                let is_written = |at: u64| WRITTEN.iter().any(|range| range.contains(&at));
                let is_hole = !bytes.clone().any(is_written);
                let plain = bytes.map(|at| if is_written(at) { content(at, 1) } else { 0 }).collect();
                let is_sealed = share.entry.is_some();
                shares.push(Share { block, region: share.region, is_sealed, extents, plain, is_hole });
            }
        }
        shares
    }

    /// Reads everything: how many shares were refused of those with contents, and of holes. Else why the file as a whole was.
    fn look(&self) -> Result<(usize, usize), Cause> {
        self.look_at(&self.path, &self.keys)
    }

    fn look_at(&self, path: &Path, keys: &Arc<Ring>) -> Result<(usize, usize), Cause> {
        let mut file = match open(path, keys) {
            Ok(file) => file,
            Err(error) => {
                assert!(error.to_string().starts_with("it: "), "{error}");
                return Err(error.cause);
            }
        };
        let mut refused = (0, 0);
        for share in &self.shares {
            let mut read = vec![0xee; share.plain.len()];
            match file.read(&share.extents, &mut read) {
                Ok(count) => {
                    // Whoever cuts a file short of its last anchored size is refused; so all is there.
                    assert!(count == read.len() || !share.is_sealed);
                    assert!(!share.is_sealed || read == share.plain, "region {}, block {}", share.region, share.block);
                }
                Err(error) => {
                    self.names(share, &error);
                    assert!(read.iter().all(|byte| *byte == 0), "nothing of it is handed out");
                    if share.is_hole {
                        refused.1 += 1;
                    } else {
                        refused.0 += 1;
                    }
                }
            }
        }
        Ok(refused)
    }

    fn names(&self, share: &Share, error: &Error) {
        assert!(matches!(error.cause, Cause::Altered | Cause::Unanchored), "{error}");
        let text = error.to_string();
        let named = text.starts_with("it: ")
            && text.contains(&format!("region {} ", share.region))
            && text.contains(&format!("block {}:", share.block));
        assert!(named, "{text}");
    }

    /// Puts bytes somewhere, looks, and puts back what was there.
    fn with(&self, changes: &[(u64, &[u8])]) -> Result<(usize, usize), Cause> {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        for (at, bytes) in changes {
            file.write_all_at(bytes, *at).unwrap();
        }
        let looked = self.look();
        for (at, bytes) in changes {
            let end = (*at as usize + bytes.len()).min(self.bytes.len());
            file.write_all_at(&self.bytes[*at as usize..end], *at).unwrap();
        }
        file.set_len(self.bytes.len() as u64).unwrap();
        looked
    }

    fn flip(&self, bit: u64) -> Result<(usize, usize), Cause> {
        let at = bit / 8;
        self.with(&[(at, &[self.bytes[at as usize] ^ 1 << (bit % 8)])])
    }

    fn at(&self, at: u64, len: usize) -> &[u8] {
        &self.bytes[at as usize..at as usize + len]
    }

    /// Everything that means something but the headers: digest tables, entry tables, entries and what was written.
    fn meaningful(&self) -> Vec<Range<u64>> {
        let geometry = &self.geometry;
        let mut ranges = Vec::new();
        let mut push = |at: u64, len: usize| ranges.push(at..(at + len as u64).min(self.bytes.len() as u64));
        for chapter in 0..2 {
            push(geometry.digest_table(chapter), geometry.digest_table_len());
        }
        for group in 0..3 {
            push(geometry.entry_table(group), geometry.entry_table_len());
        }
        for block in 0..6 {
            for half in self.halves() {
                push(geometry.entry(block, 0, half), geometry.entries_len());
                push(geometry.data(block, half), 200);
                push(geometry.data(block, half) + BLOCK / 4 * 3, 120);
            }
        }
        ranges.retain(|range| range.start < range.end);
        ranges
    }

    fn halves(&self) -> impl Iterator<Item = Half> + use<> {
        [Half::First, Half::Second].into_iter().take(1 + usize::from(self.geometry.two_slots))
    }
}

fn random() -> Xoshiro256PlusPlus {
    let seed = std::env::var("GAMBESON_SEED").map_or(0, |seed| seed.parse().unwrap());
    println!("GAMBESON_SEED={seed}");
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// One bit costs one share at most; one of header, digest tables or entry tables costs nothing.
fn check_flip(subject: &Subject, bit: u64) {
    let at = bit / 8;
    let in_slot = (0..6).any(|block| {
        let slot = subject.geometry.slot(block);
        (slot..slot + subject.geometry.slot_len()).contains(&at)
    });
    match subject.flip(bit) {
        Ok((refused, holes)) => assert!(refused + holes <= usize::from(in_slot), "bit {bit}: {refused}, {holes}"),
        Err(cause) => panic!("bit {bit} of byte {at} makes all of the file unreadable: {cause:?}"),
    }
}

#[test]
fn one_bit_costs_one_share_at_most() {
    let mut random = random();
    for two_slots in [false, true] {
        let subject = Subject::new(&format!("bits-{two_slots}"), two_slots);
        for at in subject.meaningful().into_iter().flatten() {
            check_flip(&subject, at * 8 + random.random_range(0..8));
        }
        for copy in [HeaderCopy::A, HeaderCopy::B] {
            let start = subject.geometry.header(copy);
            (start..start + 1100).for_each(|at| check_flip(&subject, at * 8 + random.random_range(0..8)));
        }
        for _ in 0..300 {
            check_flip(&subject, random.random_range(0..subject.bytes.len() as u64 * 8));
        }
    }
}

#[test]
#[ignore = "flips every bit of a file: minutes"]
fn every_bit_costs_one_share_at_most() {
    for two_slots in [false, true] {
        let subject = Subject::new(&format!("every-bit-{two_slots}"), two_slots);
        (0..subject.bytes.len() as u64 * 8).for_each(|bit| check_flip(&subject, bit));
    }
}

#[test]
fn a_share_is_good_in_its_place_alone() {
    let subject = Subject::new("swaps", false);
    let geometry = &subject.geometry;
    let slot = |block| (geometry.slot(block), geometry.slot_len() as usize);
    // Blocks of one group, and of two chapters.
    let last = subject.bytes.len() as u64 - geometry.slot(5);
    for (a, b) in [(0, 1), (0, 5), (1, 5)] {
        let len = slot(a).1.min(last as usize);
        let swapped = [(slot(a).0, subject.at(slot(b).0, len)), (slot(b).0, subject.at(slot(a).0, len))];
        let (refused, _) = subject.with(&swapped).unwrap();
        assert!(refused >= 3, "blocks {a} and {b}: {refused}");
    }
    // The two entries of one block.
    for block in [0, 1, 5] {
        let [one, other] = [0, 1].map(|index| geometry.entry(block, index, Half::First));
        assert_eq!(subject.with(&[(one, subject.at(other, 64)), (other, subject.at(one, 64))]), Ok((2, 0)));
    }
    // A block of another file under the same labels.
    let other = Subject::new("swaps-other", false);
    for block in [0, 1] {
        let theirs = other.at(slot(block).0, slot(block).1);
        assert_eq!(subject.with(&[(slot(block).0, theirs)]), Ok((2, 0)));
    }
    // With its entry table, digest table or header.
    let table = (geometry.entry_table(0), geometry.entry_table_len());
    let digests = (geometry.digest_table(0), geometry.digest_table_len());
    let theirs = [slot(0), slot(1), table, digests].map(|(at, len)| (at, other.at(at, len)));
    assert!(subject.with(&theirs[..3]).is_ok_and(|(refused, _)| refused == 4));
    assert!(subject.with(&theirs).is_ok_and(|(refused, _)| refused == 6));
    for copy in [HeaderCopy::A, HeaderCopy::B] {
        let at = geometry.header(copy);
        assert_eq!(subject.with(&[(at, other.at(at, 4096))]), Err(Cause::Header));
    }
}

#[test]
fn a_hole_is_believed_where_there_was_one() {
    let subject = Subject::new("holes", false);
    let geometry = &subject.geometry;
    let zeros = vec![0; 20_000];
    for block in [0, 1, 5] {
        for index in 0..2 {
            let inline = geometry.entry(block, index, Half::First);
            assert_eq!(subject.with(&[(inline, &zeros[..64])]), Ok((1, 0)), "block {block}, entry {index}");
            let anchored = geometry.entry_table(geometry.group(block)) + geometry.entry_in_table(block, index) as u64;
            let both = [(inline, &zeros[..64]), (anchored, &zeros[..64])];
            // Nobody knows what belongs into the group any more; nothing of it is believed, and all else is.
            let of_group = if block == 5 { 2 } else { 4 };
            assert_eq!(subject.with(&both).map(|refused| refused.0), Ok(of_group), "block {block}, entry {index}");
        }
    }
    // All that there is of a group, and of the file.
    let group = geometry.entry_table(0);
    let len = (geometry.entry_table(1) - group) as usize;
    let digests = geometry.digest_table(0);
    assert!(subject.with(&[(group, &zeros[..len])]).is_ok_and(|refused| refused.0 == 4));
    assert!(subject.with(&[(digests, &zeros[..32]), (group, &zeros[..len])]).is_ok_and(|refused| refused.0 == 6));
    let body = 2 * u64::from(geometry.header_len);
    let all = vec![0; subject.bytes.len() - body as usize];
    assert!(subject.with(&[(body, &all)]).is_ok_and(|refused| refused.0 == 6));
}

#[test]
fn what_was_cut_off_is_missed() {
    let subject = Subject::new("cut", false);
    let mut random = random();
    let len = subject.bytes.len() as u64;
    let mut lengths: Vec<u64> = (0..400).map(|_| random.random_range(0..len)).collect();
    lengths.extend(subject.meaningful().into_iter().flat_map(|range| [range.start, range.start + 1, range.end - 1]));
    lengths.extend([1, 7, 8, 17, 18, 4095, 4096, 4097, 8191, 8192, len - 1]);
    for length in lengths.into_iter().filter(|&length| length < len) {
        let cut = subject.folder.path("cut");
        fs::write(&cut, &subject.bytes[..length as usize]).unwrap();
        if gambeson_file::Head::read(&body(&cut)).unwrap().is_none() {
            assert!(length < 4096 + 18, "{length} bytes are no sealed file any more");
            continue;
        }
        match subject.look_at(&cut, &subject.keys) {
            Ok((refused, _)) => {
                // The last that there is, the plain strip at the end of its block, nobody vouches for.
                let strip = (len - 24) as usize;
                let is_missed = subject.bytes[(length as usize).min(strip)..strip].iter().any(|byte| *byte != 0);
                assert_eq!(refused > 0, is_missed, "{length} of {len} bytes");
            }
            Err(cause) => assert_eq!(cause, Cause::Header, "{length} bytes"),
        }
    }
}

#[test]
fn an_old_version_is_not_believed() {
    let subject = Subject::new("old", false);
    let geometry = &subject.geometry;
    let old = fs::read(subject.folder.path("version 0")).unwrap();
    let of_old = |at: u64, len: usize| (at, &old[at as usize..(at as usize + len).min(old.len())]);
    // One share with its entry, in its own place.
    for block in [0, 1, 5] {
        let slot = of_old(geometry.slot(block), geometry.slot_len() as usize);
        assert_eq!(subject.with(&[slot]), Ok((2, 0)), "block {block}");
    }
    // With ever more of what speaks for it.
    let slot = of_old(geometry.slot(0), geometry.slot_len() as usize);
    let table = of_old(geometry.entry_table(0), geometry.entry_table_len());
    let digests = of_old(geometry.digest_table(0), geometry.digest_table_len());
    assert!(subject.with(&[slot, table]).is_ok_and(|refused| refused.0 == 4));
    assert!(subject.with(&[slot, table, digests]).is_ok_and(|refused| refused.0 == 6));
    // Old headers over what is new, and everything as it was.
    let headers = of_old(0, 8192);
    assert_eq!(subject.with(&[headers]), Err(Cause::Altered));
    let version = subject.folder.path("version 0");
    assert_eq!(subject.look_at(&version, &subject.keys), Err(Cause::Altered));
    // Who never saw the file has no anchor: that is said, not hidden.
    let stranger = Ring::all();
    let file = open(&version, &stranger).unwrap();
    assert!(matches!(file.anchoring(), Anchoring::NotCovered(_)));
    assert_eq!(open(&subject.path, &subject.keys).unwrap().anchoring(), &Anchoring::Covered);
    // Old headers over what is new: no anchor is needed to see that they do not belong together.
    fs::write(&version, [&old[..8192], &subject.bytes[8192..]].concat()).unwrap();
    assert!(subject.look_at(&version, &stranger).is_ok_and(|refused| refused.0 == 6));
}
