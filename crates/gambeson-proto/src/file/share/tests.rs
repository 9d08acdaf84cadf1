//! Shares sealed and opened, and everything that must not open.

use super::*;
use crate::file::entry::{Decoded, ENTRY_LEN};

const ID: KeyId = KeyId { file: [0xf1; 16], region: 2, epoch: 3 };
const WRITE: Write = Write { nonce: *b"ABCDEFGHIJKLMNOPQRSTUVWX", block: 5, generation: 7 };

fn secret() -> Secret32 {
    Secret32::from_bytes([0x42; 32])
}

fn key(suite: FileSuite) -> DataKey {
    DataKey::new(suite, &secret(), ID)
}

/// Bytes for lengths around every block and stride of the ciphers.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 5) as u8).collect()
}

fn hexadecimal(digits: &str) -> Vec<u8> {
    digits.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The published vectors (C2SP, XAES-256-GCM.md): key's byte, associated data, ciphertext and tag.
#[test]
fn xaes_gives_what_c2sp_publishes() {
    let cases: [(u8, &[u8], &str); 2] = [
        (1, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (3, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ];
    for (byte, ad, expected) in cases {
        let xaes = Xaes::expand(&Secret32::from_bytes([byte; 32]));
        let mut text = *b"XAES-256-GCM";
        let tag = xaes.with(&WRITE.nonce, |context| context.seal_in_place(0, ad, &mut text));
        assert_eq!([&text[..], &tag].concat(), hexadecimal(expected));
    }
}

/// RFC 8452, appendix C.2: a plaintext of 8 and of 16 bytes without associated data.
#[test]
fn gcm_siv_gives_what_the_rfc_publishes() {
    let mut siv = PageBox::<Siv>::zeroed();
    let mut key = [0; 32];
    key[0] = 1;
    siv.install(&key);
    let mut nonce = [0; 12];
    nonce[0] = 3;
    for (len, expected) in [
        (8, "c2ef328e5c71c83b843122130f7364b761e0b97427e3df28"),
        (16, "85a01b63025ba19b7fd3ddfc033b3e76c9eac6fa700942702e90862383c6c366"),
    ] {
        let mut text = vec![0; len];
        text[0] = 1;
        let tag = siv.seal(&nonce, &[], Text::InPlace(&mut text));
        assert_eq!([&text[..], &tag].concat(), hexadecimal(expected));
    }
}

/// Seals what is in a buffer, whose place the sealed bytes take.
fn seal_in_place(key: &DataKey, write: &Write, share: &mut [u8]) -> Entry {
    let plain = share.to_vec();
    key.seal(write, &plain, share)
}

#[test]
fn both_ways_of_opening_agree() {
    for suite in FileSuite::ALL {
        let key = key(suite);
        for len in [1, 15, 16, 17, 31, 32, 33, 255, 256, 4096, 65_535, 65_536, 1 << 20] {
            let plain = bytes(len);
            let mut sealed = vec![0; len];
            let entry = key.seal(&WRITE, &plain, &mut sealed);
            assert_eq!((entry.length as usize, entry.epoch, entry.suite), (len, 3, suite));
            assert_eq!(Entry::decode(&entry.encode()), Decoded::Entry(entry));
            assert!(len < 16 || sealed != plain);
            let mut place = sealed.clone();
            let mut opened = vec![0xaa; len];
            assert_eq!(key.open(&entry, 5, &sealed, &mut opened), Ok(()));
            assert_eq!(key.open_in_place(&entry, 5, &mut place), Ok(()));
            assert!(opened == plain && place == plain, "{suite}, {len} bytes");
        }
    }
}

/// What is not exactly what was sealed, where it was sealed, is refused, and nothing of it is left.
#[test]
fn every_altered_bit_is_refused_and_wiped() {
    for suite in [FileSuite::Xaes256Gcm, FileSuite::Aes256GcmSiv] {
        let key = key(suite);
        let mut sealed = bytes(40);
        let entry = seal_in_place(&key, &WRITE, &mut sealed);
        let refuse = |key: &DataKey, entry: &Entry, block, sealed: &[u8], what: &str| {
            let mut plain = vec![0xaa; sealed.len()];
            assert_eq!(key.open(entry, block, sealed, &mut plain), Err(Unauthentic), "{suite}, {what}");
            assert!(plain.iter().all(|byte| *byte == 0), "{suite}, {what}");
            let mut place = sealed.to_vec();
            assert_eq!(key.open_in_place(entry, block, &mut place), Err(Unauthentic), "{suite}, {what}");
            assert!(place.iter().all(|byte| *byte == 0), "{suite}, {what}");
        };
        for bit in 0..sealed.len() * 8 {
            let mut altered = sealed.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            refuse(&key, &entry, 5, &altered, "ciphertext");
        }
        let mut refused = 0;
        for bit in 0..ENTRY_LEN * 8 {
            let mut altered = entry.encode();
            altered[bit / 8] ^= 1 << (bit % 8);
            match Entry::decode(&altered) {
                // The second half of its nonce is not used by GCM-SIV; entries are in the tree with all their bits.
                Decoded::Entry(altered) if suite == FileSuite::Aes256GcmSiv && (12..24).contains(&(bit / 8)) => {
                    assert_ne!(altered, entry);
                    refused += 1;
                }
                Decoded::Entry(altered) => {
                    refuse(&key, &altered, 5, &sealed, &format!("bit {bit} of the entry"));
                    refused += 1;
                }
                Decoded::Malformed => refused += 1,
                Decoded::Hole => panic!("one bit does not make a hole"),
            }
        }
        assert_eq!(refused, ENTRY_LEN * 8);
        refuse(&key, &entry, 4, &sealed, "another block");
        refuse(&key, &entry, 5, &sealed[..39], "cut short");
        let other = |suite, id| DataKey::new(suite, &secret(), id);
        refuse(&other(suite, KeyId { file: [0xf2; 16], ..ID }), &entry, 5, &sealed, "another file");
        refuse(&other(suite, KeyId { region: 1, ..ID }), &entry, 5, &sealed, "another region");
        refuse(&other(suite, KeyId { epoch: 4, ..ID }), &entry, 5, &sealed, "another epoch");
        for suite in FileSuite::ALL.into_iter().filter(|other| *other != suite) {
            refuse(&other(suite, ID), &entry, 5, &sealed, "another suite");
        }
    }
}

#[test]
fn xts_tells_nothing_of_what_is_alike_and_nothing_of_what_was_moved() {
    let key = key(FileSuite::Aes256Xts);
    for len in [3, 16, 4096] {
        let seal = |write| {
            let mut share = bytes(len);
            let entry = seal_in_place(&key, &write, &mut share);
            (entry, share)
        };
        let (entry, here) = seal(WRITE);
        assert_eq!(entry.tag, [0; TAG_LEN]);
        let (_, again) = seal(Write { nonce: [9; 24], ..WRITE });
        let (_, there) = seal(Write { block: 6, ..WRITE });
        assert!(here != again && here != there && again != there);
        let mut moved = here;
        assert_eq!(key.open_in_place(&entry, 6, &mut moved), Ok(()));
        assert_ne!(moved, bytes(len), "it is noise, and nobody notices");
    }
}

#[test]
fn a_commitment_tells_one_key_from_all_others() {
    let commitment =
        |secret: [u8; 32], id| *DataKey::new(FileSuite::Xaes256Gcm, &Secret32::from_bytes(secret), id).commitment();
    let all = [
        commitment([1; 32], ID),
        commitment([2; 32], ID),
        commitment([1; 32], KeyId { file: [1; 16], ..ID }),
        commitment([1; 32], KeyId { region: 1, ..ID }),
        commitment([1; 32], KeyId { epoch: 1, ..ID }),
    ];
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

#[test]
fn threads_share_a_key() {
    let key = key(FileSuite::Xaes256Gcm);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let key = &key;
            scope.spawn(move || {
                for round in 0..50 {
                    let write = Write { nonce: [thread; 24], block: round, generation: 1 };
                    let mut share = bytes(1000);
                    let entry = seal_in_place(key, &write, &mut share);
                    assert_eq!(key.open_in_place(&entry, round, &mut share), Ok(()));
                    assert_eq!(share, bytes(1000));
                }
            });
        }
    });
}
