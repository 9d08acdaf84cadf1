//! Random regions, writes, cuts and reopenings against a plain vector of bytes. A failure prints its seed; one seed alone:
//! `GAMBESON_SEED=7 cargo test -p gambeson-file --test model`.
#![allow(missing_docs)]

mod common;

use common::{Folder, Ring, close, make_shaped, map, open, open_to_write, shape};
use gambeson_file::{Extent, Map};
use gambeson_proto::file::region::{Part, Piece};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u32 = 4096;

#[test]
fn files_hold_what_was_written() {
    let seeds = match std::env::var("GAMBESON_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..150).collect(),
    };
    let folder = Folder::new("model");
    for seed in seeds {
        println!("GAMBESON_SEED={seed}");
        one(&folder, seed);
    }
}

fn one(folder: &Folder, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let keys = Ring::all();
    let path = folder.path(&format!("{seed}"));
    let shape = shape(BLOCK, &mut random);
    make_shaped(&path, &keys, shape, &maps(&mut random));
    let mut model: Vec<u8> = Vec::new();
    for _ in 0..random.random_range(1..5) {
        let mut file = open_to_write(&path, &keys);
        for _ in 0..random.random_range(1..12) {
            match random.random_range(0..10) {
                0 => {
                    // Anywhere, or in the last block; now and then nothing is left.
                    let all = 10 * u64::from(BLOCK);
                    let range =
                        if random.random_bool(0.5) { 0..all } else { model.len() as u64..model.len() as u64 + all };
                    let size = random.random_range(range).saturating_sub(u64::from(BLOCK));
                    file.set_size(size).unwrap();
                    model.resize(size as usize, 0);
                }
                1 => file.anchor(gambeson_file::Then::GoOn).unwrap(),
                2..5 => check(&mut file, &model, &mut random),
                _ => {
                    let extents = extents(&mut random, 14 * u64::from(BLOCK));
                    let mut bytes = vec![0; extents.iter().map(|extent| extent.length).sum::<u64>() as usize];
                    random.fill(&mut bytes[..]);
                    file.write(&extents, &bytes).unwrap();
                    let mut from = &bytes[..];
                    for Extent { offset, length } in extents {
                        let end = (offset + length) as usize;
                        if length == 0 {
                            continue;
                        }
                        if model.len() < end {
                            model.resize(end, 0);
                        }
                        let (part, rest) = from.split_at(length as usize);
                        model[offset as usize..][..part.len()].copy_from_slice(part);
                        from = rest;
                    }
                }
            }
            assert_eq!(file.size().unwrap(), model.len() as u64);
        }
        check(&mut file, &model, &mut random);
        close(file);
        let mut file = open(&path, &keys).unwrap();
        assert_eq!(file.size().unwrap(), model.len() as u64);
        check(&mut file, &model, &mut random);
    }
}

fn check(
    file: &mut gambeson_file::SealedFile<gambeson_file::LocalBody>,
    model: &[u8],
    random: &mut Xoshiro256PlusPlus,
) {
    let whole = Extent { offset: 0, length: model.len() as u64 + 100 };
    let mut bytes = vec![1; model.len() + 100];
    assert_eq!(file.read(&[whole], &mut bytes).unwrap(), model.len());
    let differs = bytes.iter().zip(model).position(|(read, wrote)| read != wrote);
    assert_eq!(differs, None, "the first byte that differs");
    let extents = extents(random, model.len() as u64 + 1);
    let mut bytes = vec![0; extents.iter().map(|extent| extent.length).sum::<u64>() as usize];
    file.read(&extents, &mut bytes).unwrap();
    let mut from = &bytes[..];
    for Extent { offset, length } in extents {
        let (part, rest) = from.split_at(length as usize);
        let there = (model.len() as u64).saturating_sub(offset).min(length) as usize;
        let wrote = model.get(offset as usize..).map_or(&[][..], |rest| &rest[..there]);
        assert!(part[..there] == *wrote);
        from = rest;
    }
}

/// Sorted extents that do not overlap.
fn extents(random: &mut Xoshiro256PlusPlus, end: u64) -> Vec<Extent> {
    let longest = *[10, 300, 3 * u64::from(BLOCK)].choose(random).unwrap();
    let mut extents = Vec::new();
    let mut at = random.random_range(0..end);
    for _ in 0..random.random_range(1..30) {
        let length = random.random_range(0..longest).min(end.saturating_sub(at));
        extents.push(Extent { offset: at, length });
        at += length + random.random_range(0..longest);
        if at >= end {
            break;
        }
    }
    extents
}

/// One region, or the rest and some that tile.
fn maps(random: &mut Xoshiro256PlusPlus) -> Vec<Map> {
    let labels = [Some("clinical"), Some("trial"), None];
    if random.random_bool(0.3) {
        return vec![map(Some("clinical"), Vec::new())];
    }
    let rest = *labels.choose(random).unwrap();
    let mut maps = vec![map(rest, Vec::new())];
    let tile = *[64, 1000, 4096, 10_000].choose(random).unwrap();
    let count = random.random_range(1..4);
    for number in 0..count {
        // Each has its own part of the tile.
        let (from, to) = (tile * number / (count + 1), tile * (number + 1) / (count + 1));
        let (offset, end) = (random.random_range(from..to), to);
        let pieces = [Piece { offset, len: end - offset }];
        let label = if number == 0 { Some("trial") } else { *labels.choose(random).unwrap() };
        maps.push(map(label, vec![Part::new(0, tile, pieces).unwrap()]));
    }
    maps
}
