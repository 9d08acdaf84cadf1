//! Sealed files: headers, entries and regions that somebody made up.

use gambeson_proto::file::entry::{Decoded, ENTRY_LEN, HOLE};
use gambeson_proto::file::header::{self, Distrust, HeaderError, Unverified};
use gambeson_proto::file::region::{Overlap, Piece, RegionId};
use gambeson_proto::file::share::Write;
use gambeson_proto::file::table::Fields;
use gambeson_proto::file::{DataKey, Entry, FileSuite, KeyId, Part, Regions, Table};
use gambeson_proto::secret::Secret32;

use super::input::Input;

/// The labels of the seeds; nobody who fuzzes can sign for them.
pub(crate) const LABELS: [(&str, u8); 2] = [("clinical", 1), ("research", 2)];

/// A header copy, as it is or with a right checksum, or the table of one.
pub fn file_header(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else { return };
    if mode % 3 == 2 {
        return table(data);
    }
    let copy = if mode % 3 == 0 { data.to_vec() } else { enclosed(data) };
    match Unverified::decode(&copy) {
        Ok(header) => {
            assert_eq!(header::header_len(&copy), Some(header.fields().geometry.header_len));
            assert!(header.state().is_legal());
            // A reader asks where digest tables are before it verifies.
            let geometry = header.fields().geometry;
            if let Some(last) = geometry.chapters_of(geometry.blocks(header.state().size)).checked_sub(1) {
                assert!(geometry.digest_table(last) < i64::MAX as u64);
            }
            judge(header, &copy);
        }
        Err(error) => {
            assert_ne!(error, HeaderError::Mixed);
            assert!(!error.to_string().is_empty());
        }
    }
    let twice = header::choose(&copy, &copy).map(|(header, _)| header);
    assert_eq!(twice, Unverified::decode(&copy));
}

/// A body with what stands around it.
pub(crate) fn enclosed(body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_be_bytes();
    let mut copy = [header::MAGIC, &[0, 1, 0, 0, 0x40, 0][..], &len, body].concat();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &copy);
    copy.extend(digest.as_ref());
    copy
}

fn judge(header: Unverified, copy: &[u8]) {
    assert_eq!(header.clone().verify(|_| None), Err(Distrust::Unknown));
    match header.verify(|label| Some(label.verifying_key)) {
        Ok(header) => {
            let again = header.encode().expect("it was as long before");
            assert_eq!(again, copy[..again.len()], "there is one way to write a header");
            let names: Vec<&str> = header.table().labels().iter().map(|label| &*label.name).collect();
            assert_eq!(names, LABELS.map(|label| label.0), "nobody else can sign");
        }
        Err(distrust) => assert!(!distrust.to_string().is_empty()),
    }
}

fn table(data: &[u8]) {
    let fields = match Fields::decode(data) {
        Ok(fields) => fields,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    match Table::new(fields) {
        Ok(table) => {
            assert_eq!(table.encode(), data, "there is one way to write a table");
            assert!(table.layout().sealed() <= table.geometry().shares.into());
            let last = table.geometry().blocks_max() - 1;
            assert!(table.geometry().len(last + 1) <= i64::MAX as u64);
            for block in [0, 1, 1000, last] {
                let map = table.layout().block(block);
                let bytes: u32 = map.shares().iter().map(|share| share.len).sum();
                assert_eq!(bytes, table.geometry().block_len);
                let entries = map.shares().iter().filter_map(|share| share.entry);
                entries.for_each(|entry| assert!(entry < table.geometry().shares));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An entry and the share behind it: what a data key opens, it sealed.
pub fn file_entry(data: &[u8]) {
    let Some((block, data)) = data.split_first() else { return };
    let Some((bytes, share)) = data.split_first_chunk::<ENTRY_LEN>() else { return };
    let entry = match Entry::decode(bytes) {
        Decoded::Entry(entry) => entry,
        Decoded::Hole => return assert_eq!(*bytes, HOLE),
        Decoded::Malformed => return,
    };
    assert_eq!(entry.encode(), *bytes, "there is one way to write an entry");
    let block = u64::from(*block);
    for suite in FileSuite::ALL {
        let key = file_key(suite);
        let mut opened = share.to_vec();
        let Ok(()) = key.open_in_place(&entry, block, &mut opened) else {
            assert!(opened.iter().all(|byte| *byte == 0));
            continue;
        };
        let mut sealed = vec![0; opened.len()];
        let write = Write { nonce: entry.nonce, block, generation: entry.generation };
        assert_eq!((key.seal(&write, &opened, &mut sealed), &sealed[..]), (entry, share));
    }
}

pub(crate) fn file_key(suite: FileSuite) -> DataKey {
    DataKey::new(suite, &Secret32::from_bytes([3; 32]), KeyId { file: [5; 16], region: 1, epoch: 2 })
}

/// Regions of blocks of 64 bytes, against a model that asks for every byte of the first blocks whose it is.
pub fn file_regions(data: &[u8]) {
    let mut input = Input(data);
    let mut regions = Regions::new(BLOCK, input.byte() % 2 == 0);
    let mut all: Vec<Vec<Part>> = vec![Vec::new()];
    while !input.is_empty() && all.len() < 8 {
        let is_sealed = input.byte() % 2 == 0;
        let parts: Vec<Part> = (0..input.byte() % 4).filter_map(|_| part(&mut input)).collect();
        match regions.add(is_sealed, parts.clone()) {
            Ok(region) => {
                assert_eq!(usize::from(region), all.len());
                all.push(parts);
            }
            Err(Overlap { region, offset, length }) => {
                assert!(length > 0);
                for byte in [offset, offset + u128::from(length) - 1] {
                    for claimed in [&parts, &all[usize::from(region)]] {
                        assert!(claimed.iter().any(|part| has(part, byte)), "byte {byte} of {claimed:?}");
                    }
                }
            }
        }
    }
    let first = input.number() % (1 << 40);
    for block in (0..8).chain(first..first + 4) {
        let map = regions.block(block);
        assert_eq!(map, regions.block(regions.like(block)));
        for byte in 0..BLOCK {
            let owners: Vec<usize> = (1..all.len())
                .filter(|&region| {
                    all[region].iter().any(|part| has(part, u128::from(block * u64::from(BLOCK) + u64::from(byte))))
                })
                .collect();
            assert!(owners.len() <= 1, "regions overlap");
            assert_eq!(map.locate(byte).0.region, owners.first().map_or(0, |&owner| owner as RegionId));
        }
        assert_eq!(map.shares().iter().map(|share| share.len).sum::<u32>(), BLOCK);
    }
}

fn part(input: &mut Input) -> Option<Part> {
    let (displacement, extent, count) = (input.number(), input.number(), input.byte() % 5);
    let pieces: Vec<Piece> = (0..count).map(|_| Piece { offset: input.number(), len: input.number() }).collect();
    Part::new(displacement, extent, pieces).ok()
}

fn has(part: &Part, byte: u128) -> bool {
    let Some(behind) = byte.checked_sub(part.displacement().into()) else { return false };
    let within = (behind % u128::from(part.extent())) as u64;
    part.pieces().iter().any(|piece| (piece.offset..piece.offset + piece.len).contains(&within))
}

const BLOCK: u32 = 64;
