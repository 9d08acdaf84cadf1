//! Headers as they are written, and everything that must not pass for one.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

use super::*;
use crate::file::FileSuite;
use crate::file::geometry::Geometry;
use crate::file::region::{Part, PartError, Piece};
use crate::file::state::{STATE_LEN, Status};
use crate::file::table::{Region, WrappedKey};

fn signing(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed has 32 bytes")
}

fn label(name: &str, seed: u8) -> Label {
    let verifying_key = signing(seed).public_key().as_ref().try_into().expect("32 bytes");
    Label { name: name.to_owned(), version: 1, verifying_key }
}

fn key(epoch: u16, label: u16) -> WrappedKey {
    WrappedKey { epoch, label, wrapped: vec![7; 60], commitment: [epoch as u8; 32] }
}

fn column(offset: u64) -> Part {
    Part::new(100, 24, [Piece { offset, len: 8 }]).expect("a piece within its extent")
}

fn fields() -> Fields {
    let region = |keys, parts| Region { suite: FileSuite::Xaes256Gcm, keys, parts };
    Fields {
        file: [5; 16],
        geometry: Geometry { shares: 2, header_len: 4096, ..Geometry::default() },
        labels: vec![label("clinical", 1), label("research", 2)],
        regions: vec![
            region(vec![key(0, 0)], vec![]),
            region(vec![key(0, 0), key(0, 1), key(1, 1)], vec![column(0), column(16)]),
            region(vec![], vec![column(8)]),
        ],
    }
}

fn state(serial: u64) -> State {
    State { serial, generation: 3, status: Status::Closed, size: 1000, root: [9; 32], closed: 3, base: 3 }
}

fn sign(seed: u8, message: &[u8]) -> Signature {
    signing(seed).sign(message).as_ref().try_into().expect("64 bytes")
}

fn header(fields: Fields, state: State) -> Header {
    let table = Table::new(fields).expect("a legal table");
    let signatures = [1, 2].map(|seed| sign(seed, &table.message())).to_vec();
    let signature = sign(2, &state.message(table.digest()));
    Header::new(table, signatures, state, 1, signature)
}

fn good() -> Vec<u8> {
    header(fields(), state(4)).encode().expect("it is short")
}

/// Who knows the labels of these names.
fn knows(names: &[&'static str]) -> impl FnMut(&Label) -> Option<[u8; 32]> {
    let known: Vec<Label> = [("clinical", 1), ("research", 2)].map(|(name, seed)| label(name, seed)).to_vec();
    move |asked| {
        known
            .iter()
            .find(|label| names.contains(&&*label.name) && label.name == asked.name)
            .map(|label| label.verifying_key)
    }
}

/// A copy with something else in it, and a right SHA-256.
fn altered(alter: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut copy = good();
    let end = copy.len() - 32;
    alter(&mut copy[..end]);
    let digest = tree::sha256(&copy[..end]);
    copy[end..].copy_from_slice(&digest);
    copy
}

#[test]
fn a_header_is_read_as_it_was_written() {
    let header = header(fields(), state(4));
    let mut copy = header.encode().expect("it is short");
    for behind in [0, 1, 1000] {
        copy.resize(copy.len() + behind, 0xff);
        for known in [&["clinical"][..], &["research"], &["clinical", "research"]] {
            let read = Unverified::decode(&copy).expect("a header").verify(knows(known));
            assert_eq!(read.as_ref(), Ok(&header));
        }
    }
    assert_eq!(header_len(&copy[..PREFIX_LEN]), Some(4096));
    assert_eq!(header.signer().name, "research");
    assert_eq!(header.table().layout().sealed(), 2);
    assert_eq!(header.table().regions()[1].epoch(), Some(1));
    assert_eq!(header.table().regions()[1].keys_of(0).count(), 2);
    let next = State { serial: 5, ..*header.state() };
    let again = header.with_state(next, 0, sign(1, &next.message(header.table().digest())));
    let read = Unverified::decode(&again.encode().unwrap()).unwrap().verify(knows(&["clinical"]));
    assert_eq!(read, Ok(again));
}

/// With the SHA-256 put right, so that only signatures and rules are left to notice it.
#[test]
fn every_altered_bit_is_refused() {
    let len = good().len() - 32;
    for bit in 0..len * 8 {
        let copy = altered(|copy| copy[bit / 8] ^= 1 << (bit % 8));
        if let Ok(header) = Unverified::decode(&copy) {
            assert!(header.verify(knows(&["clinical", "research"])).is_err(), "bit {bit} of {len} bytes");
        }
    }
}

#[test]
fn a_damaged_copy_is_none() {
    let copy = good();
    for len in 0..copy.len() {
        let expected = if len < 8 { HeaderError::Foreign } else { HeaderError::Damaged };
        assert_eq!(Unverified::decode(&copy[..len]), Err(expected), "{len} bytes");
    }
    for bit in 0..copy.len() * 8 {
        let mut copy = copy.clone();
        copy[bit / 8] ^= 1 << (bit % 8);
        assert!(Unverified::decode(&copy).is_err(), "bit {bit}");
    }
    assert_eq!(Unverified::decode(&altered(|copy| copy[9] = 2)), Err(HeaderError::Version(2)));
    assert_eq!(Unverified::decode(&[&MAGIC[..], &[0, 2]].concat()), Err(HeaderError::Version(2)));
    // H of 8 KiB, though the table says 4.
    assert_eq!(Unverified::decode(&altered(|copy| copy[12] = 0x20)), Err(HeaderError::Malformed));
}

#[test]
fn the_greater_serial_counts() {
    let (old, new) = (header(fields(), state(4)), header(fields(), state(5)));
    let [old, new] = [old, new].map(|header| header.encode().unwrap());
    let serial = |a: &[u8], b: &[u8]| choose(a, b).map(|(header, copy)| (header.state().serial, copy));
    assert_eq!(serial(&old, &new), Ok((5, HeaderCopy::B)));
    assert_eq!(serial(&new, &old), Ok((5, HeaderCopy::A)));
    assert_eq!(serial(&new, &new), Ok((5, HeaderCopy::A)));
    assert_eq!(serial(&old, &new[..100]), Ok((4, HeaderCopy::A)));
    assert_eq!(serial(&[], &old), Ok((4, HeaderCopy::B)));
    assert_eq!(serial(&old[..99], &[]), Err(HeaderError::Damaged));
    assert_eq!(serial(&[], &[]), Err(HeaderError::Foreign));
    let other = header(Fields { file: [6; 16], ..fields() }, state(7)).encode().unwrap();
    assert_eq!(serial(&old, &other), Err(HeaderError::Mixed));
    let twin = header(fields(), State { size: 1001, ..state(4) }).encode().unwrap();
    assert_eq!(serial(&old, &twin), Err(HeaderError::Mixed));
}

#[test]
fn only_known_labels_are_believed() {
    let verify = |names: &[&'static str]| Unverified::decode(&good()).unwrap().verify(knows(names));
    assert_eq!(verify(&[]), Err(Distrust::Unknown));
    let mut thief = knows(&["clinical"]);
    let other = |label: &Label| thief(label).map(|_| [1; 32]);
    let distrust = Unverified::decode(&good()).unwrap().verify(other).unwrap_err();
    assert_eq!(distrust, Distrust::OtherKey(label("clinical", 1)));
    // Somebody who has research's key alone makes a table of his own: whoever knows clinical notices.
    let table = Table::new(Fields { file: [6; 16], ..fields() }).unwrap();
    let signature = sign(2, &state(4).message(table.digest()));
    let forged = vec![sign(2, &table.message()); 2];
    let copy = Header::new(table, forged, state(4), 1, signature).encode().unwrap();
    let verify = |names: &[&'static str]| Unverified::decode(&copy).unwrap().verify(knows(names)).map(drop);
    assert_eq!(verify(&["clinical"]), Err(Distrust::Table(label("clinical", 1))));
    assert_eq!(verify(&["clinical", "research"]), Err(Distrust::Table(label("clinical", 1))));
    // The state that research signed for another table.
    let header = header(fields(), state(4));
    let copy = header.with_state(state(4), 1, signature).encode().unwrap();
    let distrust = Unverified::decode(&copy).unwrap().verify(knows(&["clinical"])).unwrap_err();
    assert_eq!(distrust, Distrust::State(label("research", 2)));
}

#[test]
fn tables_that_are_none() {
    let none = |alter: &dyn Fn(&mut Fields)| {
        let mut fields = fields();
        alter(&mut fields);
        Table::new(fields).expect_err("it is none")
    };
    assert_eq!(none(&|fields| fields.geometry.groups = 0), TableError::Geometry);
    assert_eq!(none(&|fields| fields.labels[1] = label("clinical", 3)), TableError::Label(1));
    assert_eq!(none(&|fields| fields.labels[0].name.clear()), TableError::Label(0));
    assert_eq!(none(&|fields| fields.labels[0].name = "a\nb".to_owned()), TableError::Label(0));
    assert_eq!(none(&|fields| fields.labels[0].name = "a".repeat(256)), TableError::Label(0));
    assert_eq!(none(&|fields| fields.labels[1].version = 0), TableError::Label(1));
    assert_eq!(none(&|fields| fields.regions.clear()), TableError::Regions);
    assert_eq!(none(&|fields| fields.regions[0].parts = vec![Part::from(0)]), TableError::Regions);
    assert_eq!(none(&|fields| fields.geometry.shares = 1), TableError::Sealed { sealed: 2, entries: 1 });
    let plain = |fields: &mut Fields| fields.regions.iter_mut().for_each(|region| region.keys.clear());
    assert_eq!(none(&plain), TableError::Sealed { sealed: 0, entries: 2 });
    assert_eq!(none(&|fields| fields.regions[1].keys.swap(0, 1)), TableError::Keys(1));
    assert_eq!(none(&|fields| fields.regions[1].keys[1] = key(0, 0)), TableError::Keys(1));
    assert_eq!(none(&|fields| fields.regions[1].keys[0].commitment = [8; 32]), TableError::Keys(1));
    assert_eq!(none(&|fields| fields.regions[0].keys[0].label = 2), TableError::Keys(0));
    assert_eq!(none(&|fields| fields.regions[0].keys[0].wrapped.clear()), TableError::Keys(0));
    let overlap = none(&|fields| fields.regions[2].parts = vec![column(15)]);
    assert_eq!(overlap.to_string(), "of what region 2 claims bytes 120 to 122 belong to region 1 already");
}

/// Nobody has to have signed a header for its measures and size to be some that can be asked about.
#[test]
fn measures_that_no_file_has_are_refused() {
    let sized = |size: u64| {
        let at = good().len() - (STATE_LEN + 98) + 17;
        Unverified::decode(&altered(|copy| copy[at..at + 8].copy_from_slice(&size.to_be_bytes())))
    };
    let most = fields().geometry.blocks_max() << 16;
    assert!(sized(most).is_ok());
    assert_eq!(sized(most + 1), Err(HeaderError::Malformed));
    // The table begins at byte 22; behind the file's id are B, H, E, N and G.
    let table = PREFIX_LEN + 4;
    for (at, bytes) in [(16, vec![21]), (18, vec![0]), (19, vec![0; 4]), (23, vec![0; 4]), (27, vec![3])] {
        let copy = altered(|copy| copy[table + at..][..bytes.len()].copy_from_slice(&bytes));
        assert_eq!(Unverified::decode(&copy), Err(HeaderError::Table(TableError::Geometry)), "byte {at}");
    }
}

/// What stands in the bytes, not in the fields.
#[test]
fn parts_have_one_spelling() {
    let bytes = Table::new(fields()).unwrap().encode().to_vec();
    assert_eq!(Fields::decode(&bytes).as_ref(), Ok(&fields()));
    // The last part: a piece that fills its tile, which is to be of one byte.
    let end = bytes.len();
    let mut full = bytes.clone();
    full[end - 28..end - 20].copy_from_slice(&8_u64.to_be_bytes());
    full[end - 16..end - 8].fill(0);
    assert_eq!(Fields::decode(&full), Err(TableError::Part(2, PartError::Disordered)));
    let mut outside = bytes.clone();
    outside[end - 1] = 200;
    assert_eq!(Fields::decode(&outside), Err(TableError::Part(2, PartError::Outside)));
    let mut many = bytes.clone();
    many[end - 20..end - 16].fill(0xff);
    assert_eq!(Fields::decode(&many), Err(TableError::Malformed));
    for len in 0..bytes.len() {
        assert!(Fields::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert_eq!(Fields::decode(&[&bytes[..], &[0]].concat()), Err(TableError::Malformed));
}

#[test]
fn a_header_that_is_longer_than_its_room_is_refused() {
    let mut fields = fields();
    fields.regions[2].parts =
        vec![Part::new(108, 24 * 200, (0..200).map(|at| Piece { offset: 24 * at, len: 8 })).unwrap()];
    assert_eq!(header(fields.clone(), state(4)).encode().map_err(|long| long.room), Err(4096));
    fields.geometry.header_len = 8192;
    let header = header(fields, state(4));
    let read = Unverified::decode(&header.encode().unwrap()).unwrap().verify(knows(&["research"]));
    assert_eq!(read, Ok(header));
}

#[test]
fn states_that_are_none() {
    let good = state(1);
    assert!(good.is_legal());
    let open = State { status: Status::Open, generation: 4, base: 2, ..good };
    assert_eq!(State::decode(&open.encode()), Some(open));
    for bad in [
        State { serial: 0, ..good },
        State { generation: 4, ..good },
        State { closed: 2, ..good },
        State { base: 2, ..good },
        State { base: 4, ..open },
        State { generation: 0, closed: 0, ..good },
        State { size: 1 << 63, ..good },
        State { status: Status::Open, ..good },
    ] {
        assert_eq!(State::decode(&bad.encode()), None, "{bad:?}");
    }
    let mut bytes = good.encode();
    bytes[16] = 3;
    assert_eq!(State::decode(&bytes), None);
}
