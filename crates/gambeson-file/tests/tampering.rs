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

use common::{Folder, Ring, below, close, map, open, open_to_write};
use gambeson_file::{
    Anchoring, Cause, Error, Extent, Form, LocalBody, SealedFile, Shape, compose, draw_file_id, form, offer,
    remove_sidecar, sidecar,
};
use gambeson_proto::file::Geometry;
use gambeson_proto::file::geometry::{Half, HeaderCopy};
use gambeson_proto::file::region::{Part, Piece, RegionId};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u64 = 4096;
/// What is written: two blocks of the first group, one of the second chapter; between them, and before the end, holes.
const WRITTEN: [Range<u64>; 4] =
    [0..150, BLOCK + 40..BLOCK + 75, 5 * BLOCK..5 * BLOCK + 90, 5 * BLOCK + 200..5 * BLOCK + 230];
const SIZE: u64 = 5 * BLOCK + 230;
/// Places in the data of a detached file have this bit, those in its sidecar have not.
const DATA: u64 = 1 << 40;

/// A closed file with three regions, and everything that its readers should see.
struct Subject {
    folder: Folder,
    path: PathBuf,
    keys: Arc<Ring>,
    /// The sealed file, and that with the data of a detached one.
    stored: Vec<(PathBuf, Vec<u8>)>,
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
fn make(path: &Path, keys: &Arc<Ring>, shape: Shape) {
    // 5 * 4096 is 32 modulo 48: columns begin at 26 of each 48 behind it, and the strip is between two.
    let columns = Part::new(0, 48, [Piece { offset: 10, len: 12 }]).unwrap();
    let strip = Part::once(5 * BLOCK + 40, 24);
    let maps = [map(Some("clinical"), vec![]), map(Some("trial"), vec![columns]), map(None, vec![strip])];
    let file = draw_file_id();
    let offers: Vec<_> = (0..)
        .zip(&maps)
        .map(|(region, map)| map.label.as_deref().map(|label| offer(keys.as_ref(), label, file, region, 1).unwrap()))
        .collect();
    let mut fields = compose(file, shape, &maps, &offers);
    fields.geometry = Geometry { shares: 2, group_blocks: 2, groups: 2, header_len: 4096, ..fields.geometry };
    let table = gambeson_file::table("it", fields).unwrap();
    let signatures = gambeson_file::sign(keys.as_ref(), &table);
    gambeson_file::write_first("it", &below(path, shape.detached), keys.as_ref(), table, &signatures).unwrap();
}

fn write(file: &mut SealedFile<LocalBody>, version: u64) {
    for range in WRITTEN {
        let bytes: Vec<u8> = range.clone().map(|at| content(at, version)).collect();
        file.write(&[Extent { offset: range.start, length: range.end - range.start }], &bytes).unwrap();
    }
}

/// One slot per block, two, and detached.
fn shapes() -> [Shape; 3] {
    let plain = Shape { block_len: BLOCK as u32, ..Shape::default() };
    [plain, Shape { two_slots: true, ..plain }, Shape { detached: true, ..plain }]
}

/// Those without a second slot, in which old versions stay.
fn one_slot() -> [Shape; 2] {
    [shapes()[0], shapes()[2]]
}

/// The files of one: all but the data, and the data if that is in a file of its own.
fn files(path: &Path, is_detached: bool) -> Vec<PathBuf> {
    if is_detached { vec![sidecar(path), path.to_owned()] } else { vec![path.to_owned()] }
}

impl Subject {
    fn new(name: &str, shape: Shape) -> Self {
        let Shape { two_slots, detached, .. } = shape;
        let (folder, keys) = (Folder::new(&format!("{name}-{two_slots}-{detached}")), Ring::all());
        let path = folder.path("it");
        make(&path, &keys, shape);
        let read = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
        // Two sessions: what is of the first one is there to be put back.
        for version in 0..2 {
            let mut file = open_to_write(&path, &keys);
            write(&mut file, version);
            close(file);
            let copies = files(&folder.path(&format!("version {version}")), detached);
            for (from, to) in files(&path, detached).iter().zip(copies) {
                fs::copy(from, to).unwrap();
            }
        }
        let mut subject = Subject {
            stored: files(&path, detached).into_iter().map(read).collect(),
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
        let put = |at: u64, bytes: &[u8]| {
            let (path, _) = &self.stored[usize::from(at >= DATA)];
            OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at % DATA).unwrap();
        };
        for (at, bytes) in changes {
            put(*at, bytes);
        }
        let looked = self.look();
        for (at, bytes) in changes {
            put(*at, self.at(*at, bytes.len()));
        }
        for (path, bytes) in &self.stored {
            OpenOptions::new().write(true).open(path).unwrap().set_len(bytes.len() as u64).unwrap();
        }
        looked
    }

    fn flip(&self, bit: u64) -> Result<(usize, usize), Cause> {
        let at = bit / 8;
        self.with(&[(at, &[self.at(at, 1)[0] ^ 1 << (bit % 8)])])
    }

    /// What is stored there, as far as the file goes.
    fn at(&self, at: u64, len: usize) -> &[u8] {
        let bytes = &self.stored[usize::from(at >= DATA)].1;
        let from = ((at % DATA) as usize).min(bytes.len());
        &bytes[from..(from + len).min(bytes.len())]
    }

    fn len(&self, of: usize) -> u64 {
        self.stored[of].1.len() as u64
    }

    /// All places of both files.
    fn places(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.stored).flat_map(|(of, (_, bytes))| of * DATA..of * DATA + bytes.len() as u64)
    }

    /// Where a block's data stands.
    fn data(&self, block: u64, half: Half) -> u64 {
        self.geometry.data(block, half) + if self.geometry.detached { DATA } else { 0 }
    }

    /// A block: its slot, and its data if that is elsewhere. Each with its length.
    fn block(&self, block: u64) -> Vec<(u64, usize)> {
        let slot = (self.geometry.slot(block), self.geometry.slot_len() as usize);
        let data = self.geometry.detached.then(|| (self.data(block, Half::First), BLOCK as usize));
        std::iter::once(slot).chain(data).collect()
    }

    /// Everything that means something but the headers: digest tables, entry tables, entries and what was written.
    fn meaningful(&self) -> Vec<Range<u64>> {
        let geometry = &self.geometry;
        let mut ranges = Vec::new();
        let mut push = |at: u64, len: usize| ranges.push(at..at + self.at(at, len).len() as u64);
        for chapter in 0..2 {
            push(geometry.digest_table(chapter), geometry.digest_table_len());
        }
        for group in 0..3 {
            push(geometry.entry_table(group), geometry.entry_table_len());
        }
        for block in 0..6 {
            for half in self.halves() {
                push(geometry.entry(block, 0, half), geometry.entries_len());
                push(self.data(block, half), 200);
                push(self.data(block, half) + BLOCK / 4 * 3, 120);
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
    let mut of_blocks = (0..6).flat_map(|block| subject.block(block));
    let in_slot = of_blocks.any(|(from, length)| (from..from + length as u64).contains(&at));
    match subject.flip(bit) {
        Ok((refused, holes)) => assert!(refused + holes <= usize::from(in_slot), "bit {bit}: {refused}, {holes}"),
        Err(cause) => panic!("bit {bit} of byte {at} makes all of the file unreadable: {cause:?}"),
    }
}

#[test]
fn one_bit_costs_one_share_at_most() {
    let mut random = random();
    for shape in shapes() {
        let subject = Subject::new("bits", shape);
        for at in subject.meaningful().into_iter().flatten() {
            check_flip(&subject, at * 8 + random.random_range(0..8));
        }
        for copy in [HeaderCopy::A, HeaderCopy::B] {
            let start = subject.geometry.header(copy);
            (start..start + 1100).for_each(|at| check_flip(&subject, at * 8 + random.random_range(0..8)));
        }
        let places: Vec<u64> = subject.places().collect();
        for _ in 0..300 {
            check_flip(&subject, places.choose(&mut random).unwrap() * 8 + random.random_range(0..8));
        }
    }
}

#[test]
#[ignore = "flips every bit of a file: minutes"]
fn every_bit_costs_one_share_at_most() {
    for shape in shapes() {
        let subject = Subject::new("every-bit", shape);
        subject.places().for_each(|at| (at * 8..at * 8 + 8).for_each(|bit| check_flip(&subject, bit)));
    }
}

#[test]
fn a_share_is_good_in_its_place_alone() {
    for shape in one_slot() {
        let subject = Subject::new("swaps", shape);
        let geometry = &subject.geometry;
        // Blocks of one group, and of two chapters.
        for (a, b) in [(0, 1), (0, 5), (1, 5)] {
            let places = subject.block(a).into_iter().zip(subject.block(b));
            let swapped = places.flat_map(|((one, len), (other, _))| {
                let len = len.min(subject.at(one, len).len()).min(subject.at(other, len).len());
                [(one, subject.at(other, len)), (other, subject.at(one, len))]
            });
            let (refused, _) = subject.with(&swapped.collect::<Vec<_>>()).unwrap();
            assert!(refused >= 3, "blocks {a} and {b}: {refused}");
        }
        // The two entries of one block.
        for block in [0, 1, 5] {
            let [one, other] = [0, 1].map(|index| geometry.entry(block, index, Half::First));
            assert_eq!(subject.with(&[(one, subject.at(other, 64)), (other, subject.at(one, 64))]), Ok((2, 0)));
        }
        // A block of another file under the same labels, whole or in part.
        let other = Subject::new("swaps-other", shape);
        let theirs = |(at, len): (u64, usize)| (at, other.at(at, len));
        for block in [0, 1] {
            let changes: Vec<_> = subject.block(block).into_iter().map(theirs).collect();
            assert_eq!(subject.with(&changes), Ok((2, 0)));
            for change in changes {
                assert_eq!(subject.with(&[change]), Ok((2, 0)));
            }
        }
        // With its entry table, digest table or header.
        let table = (geometry.entry_table(0), geometry.entry_table_len());
        let digests = (geometry.digest_table(0), geometry.digest_table_len());
        let blocks = || [0, 1].into_iter().flat_map(|block| subject.block(block));
        let changes: Vec<_> = blocks().chain([table, digests]).map(theirs).collect();
        assert!(subject.with(&changes[..changes.len() - 1]).is_ok_and(|(refused, _)| refused == 4));
        assert!(subject.with(&changes).is_ok_and(|(refused, _)| refused == 6));
        for copy in [HeaderCopy::A, HeaderCopy::B] {
            let at = geometry.header(copy);
            assert_eq!(subject.with(&[(at, other.at(at, 4096))]), Err(Cause::Header));
        }
    }
}

#[test]
fn a_sidecar_and_its_data_belong_together() {
    let [_, _, shape] = shapes();
    let (subject, other) = (Subject::new("pair", shape), Subject::new("pair-other", shape));
    let [(sidecar, ours), (data, bytes)] = &subject.stored[..] else { panic!("two files") };
    // The data of another file, and its sidecar.
    fs::write(data, &other.stored[1].1).unwrap();
    assert_eq!(subject.look(), Ok((6, 0)));
    fs::write(data, bytes).unwrap();
    fs::write(sidecar, &other.stored[0].1).unwrap();
    assert_eq!(subject.look(), Ok((6, 0)));
    fs::write(sidecar, ours).unwrap();
    assert_eq!(subject.look(), Ok((0, 0)));
    // A sidecar is no file of its own, and one with everything in it no sidecar.
    let refused = |path: &Path| open(path, &subject.keys).map(|_| ()).unwrap_err();
    assert!(refused(sidecar).to_string().contains("it is the sidecar of a detached file"));
    fs::write(sidecar, &Subject::new("pair-attached", shapes()[0]).stored[0].1).unwrap();
    assert_eq!(refused(data).cause, Cause::Kind);
    // One without the other.
    fs::write(sidecar, ours).unwrap();
    fs::remove_file(data).unwrap();
    assert_eq!(form(data).unwrap(), Form::DataMissing);
    let missing = gambeson_file::open(data, OpenOptions::new().read(true)).unwrap_err();
    assert!(missing.to_string().contains("its data is gone"), "{missing}");
    fs::rename(sidecar, subject.folder.path("elsewhere")).unwrap();
    assert_eq!(form(data).unwrap(), Form::Empty);
    fs::write(data, bytes).unwrap();
    assert_eq!(form(data).unwrap(), Form::Plain);
    fs::write(sidecar, []).unwrap();
    assert_eq!(form(data).unwrap(), Form::Plain, "who was about to make one has not");
}

#[test]
fn a_sidecar_is_found_where_a_link_leads_and_removed_with_its_file() {
    let [_, _, shape] = shapes();
    let subject = Subject::new("links", shape);
    let link = subject.folder.path("link");
    std::os::unix::fs::symlink("it", &link).unwrap();
    assert_eq!(subject.look_at(&link, &subject.keys), Ok((0, 0)));
    fs::remove_file(&link).unwrap();
    remove_sidecar(&link).unwrap();
    assert_eq!(subject.look(), Ok((0, 0)));
    let [(sidecar, _), (data, _)] = &subject.stored[..] else { panic!("two files") };
    remove_sidecar(data).unwrap();
    assert!(!sidecar.exists());
    // Of that name, and no sidecar.
    for bytes in [b"something else".to_vec(), Subject::new("links-attached", shapes()[0]).stored[0].1.clone()] {
        fs::write(sidecar, bytes).unwrap();
        remove_sidecar(data).unwrap();
        assert!(sidecar.exists());
    }
}

#[test]
fn data_stands_where_the_program_wrote_it() {
    let [_, _, shape] = shapes();
    let (folder, keys) = (Folder::new("offsets"), Ring::all());
    let path = folder.path("it");
    common::make_shaped(&path, &keys, shape, &[map(Some("clinical"), vec![])]);
    let mut file = open_to_write(&path, &keys);
    let length = || fs::metadata(&path).unwrap().len();
    file.write(&[Extent { offset: 7 * BLOCK + 100, length: 50 }], &[1; 50]).unwrap();
    assert_eq!(length(), 7 * BLOCK + 150);
    assert!(fs::read(&path).unwrap()[..7 * BLOCK as usize].iter().all(|byte| *byte == 0), "holes stay holes");
    for size in [20 * BLOCK + 3, 7 * BLOCK + 120, 7 * BLOCK, 10, 0, 5 * BLOCK] {
        file.set_size(size).unwrap();
        assert_eq!((length(), file.size().unwrap()), (size, size));
    }
    let entries = fs::metadata(sidecar(&path)).unwrap().len();
    assert!(entries < 2 * u64::from(file.geometry().header_len) + 300_000, "{entries} bytes and no data");
    close(file);
    assert_eq!(open(&path, &keys).unwrap().size().unwrap(), 5 * BLOCK);
}

#[test]
fn a_hole_is_believed_where_there_was_one() {
    for shape in one_slot() {
        let subject = Subject::new("holes", shape);
        let geometry = &subject.geometry;
        let zeros = vec![0; 20_000];
        for block in [0, 1, 5] {
            for index in 0..2 {
                let inline = geometry.entry(block, index, Half::First);
                assert_eq!(subject.with(&[(inline, &zeros[..64])]), Ok((1, 0)), "block {block}, entry {index}");
                let anchored =
                    geometry.entry_table(geometry.group(block)) + geometry.entry_in_table(block, index) as u64;
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
        let all = vec![0; (subject.len(0) - body) as usize];
        assert!(subject.with(&[(body, &all)]).is_ok_and(|refused| refused.0 == 6));
    }
    // The data alone, under entries that stay.
    let [_, _, shape] = shapes();
    let subject = Subject::new("holes-data", shape);
    assert_eq!(subject.with(&[(DATA, &vec![0; subject.len(1) as usize])]), Ok((6, 0)));
}

#[test]
fn what_was_cut_off_is_missed() {
    for shape in one_slot() {
        let subject = Subject::new("cut", shape);
        (0..subject.stored.len()).for_each(|of| cut(&subject, of));
    }
}

/// Cuts one of a file's files short at many lengths.
fn cut(subject: &Subject, of: usize) {
    let mut random = random();
    let (_, bytes) = &subject.stored[of];
    let len = bytes.len() as u64;
    let mut lengths: Vec<u64> = (0..400).map(|_| random.random_range(0..len)).collect();
    let places = subject.meaningful().into_iter().filter(|range| (range.start / DATA) as usize == of);
    lengths.extend(places.flat_map(|range| [range.start, range.start + 1, range.end - 1]).map(|at| at % DATA));
    lengths.extend([1, 7, 8, 17, 18, 4095, 4096, 4097, 8191, 8192, len - 1]);
    let path = subject.folder.path("cut");
    let is_detached = subject.geometry.detached;
    let copies = files(&path, is_detached);
    // The last that there is, the plain strip at the end of its block, nobody vouches for.
    let strip = (len - if of == subject.stored.len() - 1 { 24 } else { 0 }) as usize;
    for length in lengths.into_iter().filter(|&length| length < len) {
        for ((_, whole), copy) in subject.stored.iter().zip(&copies) {
            fs::write(copy, whole).unwrap();
        }
        fs::write(&copies[of], &bytes[..length as usize]).unwrap();
        if gambeson_file::Head::read(below(&path, is_detached).sealed()).unwrap().is_none() {
            assert!(of == 0 && length < 4096 + 18, "{length} bytes are no sealed file any more");
            continue;
        }
        match subject.look_at(&path, &subject.keys) {
            Ok((refused, _)) => {
                let is_missed = bytes[(length as usize).min(strip)..strip].iter().any(|byte| *byte != 0);
                assert_eq!(refused > 0, is_missed, "{length} of {len} bytes");
            }
            Err(cause) => assert_eq!((of, cause), (0, Cause::Header), "{length} bytes"),
        }
    }
}

#[test]
fn an_old_version_is_not_believed() {
    for shape in one_slot() {
        let subject = Subject::new("old", shape);
        let geometry = &subject.geometry;
        let version = subject.folder.path("version 0");
        let old: Vec<_> = files(&version, geometry.detached).into_iter().map(|path| fs::read(path).unwrap()).collect();
        let of_old = |(at, len): (u64, usize)| {
            let bytes = &old[usize::from(at >= DATA)];
            let from = (at % DATA) as usize;
            (at, &bytes[from..(from + len).min(bytes.len())])
        };
        // One share with its entry, in its own place; and either of them alone.
        for block in [0, 1, 5] {
            let slot: Vec<_> = subject.block(block).into_iter().map(of_old).collect();
            assert_eq!(subject.with(&slot), Ok((2, 0)), "block {block}");
            for part in slot {
                assert_eq!(subject.with(&[part]), Ok((2, 0)), "block {block}");
            }
        }
        // With ever more of what speaks for it.
        let table = (geometry.entry_table(0), geometry.entry_table_len());
        let digests = (geometry.digest_table(0), geometry.digest_table_len());
        let changes: Vec<_> = subject.block(0).into_iter().chain([table, digests]).map(of_old).collect();
        assert!(subject.with(&changes[..changes.len() - 1]).is_ok_and(|refused| refused.0 == 4));
        assert!(subject.with(&changes).is_ok_and(|refused| refused.0 == 6));
        // Old headers over what is new, and everything as it was.
        let headers = of_old((0, 8192));
        assert_eq!(subject.with(&[headers]), Err(Cause::Altered));
        assert_eq!(subject.look_at(&version, &subject.keys), Err(Cause::Altered));
        // Who never saw the file has no anchor: that is said, not hidden.
        let stranger = Ring::all();
        let file = open(&version, &stranger).unwrap();
        assert!(matches!(file.anchoring(), Anchoring::NotCovered(_)));
        assert_eq!(open(&subject.path, &subject.keys).unwrap().anchoring(), &Anchoring::Covered);
        // Old headers over what is new: no anchor is needed to see that they do not belong together.
        let sealed = &files(&version, geometry.detached)[0];
        fs::write(sealed, [&old[0][..8192], &subject.stored[0].1[8192..]].concat()).unwrap();
        assert!(subject.look_at(&version, &stranger).is_ok_and(|refused| refused.0 == 6));
    }
}
