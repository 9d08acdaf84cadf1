//! Parts, overlaps and block maps against a model that looks at every byte; a failure says its seed, and
//! `GAMBESON_SEED=n cargo test -p gambeson-proto --lib file::region` looks at that one alone.

use super::*;

/// The plainest random numbers there are.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    /// A part with a period of up to `extent` bytes.
    fn part(&mut self, displacement: u64, extent: u64) -> Part {
        let displacement = self.below(displacement);
        if self.below(8) == 0 {
            return Part::from(displacement);
        }
        let extent = 1 + self.below(extent);
        let mut pieces = Vec::new();
        let mut at = self.below(extent);
        while at < extent && pieces.len() < 6 {
            let len = 1 + self.below((extent - at).min(1 + extent / 4));
            pieces.push(Piece { offset: at, len });
            at += len + self.below(extent / 4 + 1);
        }
        Part::new(displacement, extent, pieces).expect("pieces in order, within the extent")
    }
}

/// Whether a byte is a part's, as its definition says.
fn has(part: &Part, byte: u64) -> bool {
    let Some(behind) = byte.checked_sub(part.displacement()) else { return false };
    let within = behind % part.extent();
    part.pieces().iter().any(|piece| (piece.offset..piece.offset + piece.len).contains(&within))
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let named = std::env::var("GAMBESON_SEED").ok();
    let first = named.as_ref().map_or(0, |seed| seed.parse().expect("GAMBESON_SEED is a number"));
    let count = if named.is_some() { 1 } else { count };
    first..first + count
}

#[test]
fn overlaps_are_found_exactly() {
    for seed in seeds(20_000) {
        let mut random = Random(seed);
        let (a, b) = (random.part(40, 24), random.part(40, 24));
        // Both begin by byte 40 and their periods together are below 24 * 24.
        let meet = (0..40 + 2 * 24 * 24).any(|byte| has(&a, byte) && has(&b, byte));
        for (a, b) in [(&a, &b), (&b, &a)] {
            match a.overlap(b) {
                Some(Overlapping { offset, length }) => {
                    assert!(length > 0);
                    for byte in offset..offset + u128::from(length.min(100)) {
                        assert!(has(a, byte as u64) && has(b, byte as u64), "seed {seed}: byte {byte}, {a:?}, {b:?}");
                    }
                }
                None => assert!(!meet, "seed {seed}: {a:?}, {b:?}"),
            }
        }
    }
}

#[test]
fn what_is_there_once_has_a_long_extent() {
    let once = Part::once;
    let comb = Part::new(5, 24, [Piece { offset: 0, len: 3 }]).unwrap();
    assert!(once(0, 1000).overlap(&once(1000, 500)).is_none());
    assert_eq!(once(0, 1001).overlap(&once(1000, 500)).map(|at| (at.offset, at.length)), Some((1000, 1)));
    assert_eq!(once(8, 30).overlap(&comb).map(|at| (at.offset, at.length)), Some((29, 3)));
    assert!(once(8, 21).overlap(&comb).is_none());
    assert_eq!(once(8, 30).overlap(&Part::from(10)).map(|at| at.offset), Some(10));
    assert!(once(0, 10).overlap(&Part::from(10)).is_none());
    // Two tiles in all files there are: the second one counts.
    let twice = Part::new(8, 1 << 62, [Piece { offset: 0, len: 21 }]).unwrap();
    assert!(twice.overlap(&once(29, 1 << 62)).is_some_and(|at| at.offset == 8 + (1 << 62)));
    assert!(twice.overlap(&once(29, (1 << 62) - 21)).is_none());
    // With extents that are both short enough to come again often, a meeting may be behind the end of all files.
    let long = |displacement, extent| Part::new(displacement, extent, [Piece { offset: 0, len: 1 }]).unwrap();
    let meeting = long(0, (1 << 50) - 1).overlap(&long(1, 1 << 50)).expect("they have no divisor in common");
    assert_eq!(meeting.offset % ((1 << 50) - 1), 0);
    assert_eq!(meeting.offset % (1 << 50), 1);
}

/// A model of a file: whose each byte is.
fn model(parts: &[Vec<Part>], len: u64) -> Vec<RegionId> {
    let owner = |byte| {
        let claims = |parts: &Vec<Part>| parts.iter().any(|part| has(part, byte));
        parts.iter().position(claims).map_or(0, |region| region as RegionId + 1)
    };
    (0..len).map(owner).collect()
}

/// Regions with short blocks, which no file has: the model looks at every byte.
const BLOCK: u32 = 64;
const BLOCKS: u64 = 24;

fn random_regions(random: &mut Random) -> (Regions, Vec<Vec<Part>>) {
    let mut regions = Regions::new(BLOCK, random.below(2) == 0);
    let mut added = Vec::new();
    // First a pattern that regions share, each with a period and a start of its own.
    let (pattern, displacement) = ([8, 16, 48, 64, 96, 200][random.below(6) as usize], random.below(100));
    let count = random.below(5);
    let mut owners: Vec<u64> = Vec::new();
    while owners.len() < pattern {
        let owner = random.below(count + 1);
        let run = 1 + random.below(pattern as u64 / 3);
        owners.extend((0..run).map(|_| owner));
    }
    for region in 1..=count {
        let bytes = |times: usize| (0..times * pattern).filter(|at| owners[at % pattern] == region);
        let parts: Vec<Part> = (0..1 + random.below(3))
            .filter_map(|_| {
                let (times, skipped) = (1 + random.below(3) as usize, random.below(4) * pattern as u64);
                let pieces = bytes(times).map(|at| Piece { offset: at as u64, len: 1 });
                Part::new(displacement + skipped, (times * pattern) as u64, pieces).ok()
            })
            .collect();
        if !parts.is_empty() && regions.add(random.below(3) > 0, parts.clone()).is_ok() {
            added.push(parts);
        }
    }
    // Then whatever else has room.
    for _ in 0..6 {
        let parts = match random.below(2) {
            0 => vec![random.part(200, 100), random.part(200, 100)],
            _ => vec![Part::once(random.below(1000), 1 + random.below(20)), Part::once(random.below(1000), 3)],
        };
        if regions.add(random.below(3) > 0, parts.clone()).is_ok() {
            added.push(parts);
        }
    }
    (regions, added)
}

#[test]
fn block_maps_agree_with_the_model() {
    let mut several = 0;
    for seed in seeds(2_000) {
        let mut random = Random(seed);
        let (regions, parts) = random_regions(&mut random);
        let owners = model(&parts, BLOCKS * u64::from(BLOCK));
        several += usize::from(parts.len() > 1);
        for (block, owners) in (0..).zip(owners.chunks(BLOCK as usize)) {
            let map = regions.block(block);
            check(&map, &regions, owners, seed);
            let like = regions.like(block);
            assert!(like <= block);
            assert_eq!(regions.block(like), map, "seed {seed}: block {block} is not like {like}");
        }
        split(&regions, &mut random, seed);
    }
    assert!(
        several > 1000 || std::env::var("GAMBESON_SEED").is_ok(),
        "regions fit beside each other often enough: {several} times"
    );
}

fn check(map: &BlockMap, regions: &Regions, owners: &[RegionId], seed: u64) {
    let mut area = 0;
    let mut entry = 0;
    let mut sorted = owners.to_vec();
    sorted.sort_unstable_by_key(|&region| (!regions.is_sealed(region), region));
    let there: Vec<RegionId> = sorted.chunk_by(|a, b| a == b).map(|same| same[0]).collect();
    assert_eq!(map.shares().iter().map(|share| share.region).collect::<Vec<_>>(), there, "seed {seed}");
    assert_eq!(map.is_whole(), there.len() == 1);
    let block: Vec<u8> = (0..owners.len() as u8).collect();
    let mut back = vec![0xff; block.len()];
    for (place, share) in map.shares().iter().enumerate() {
        let bytes: Vec<u8> = (0..).zip(owners).filter(|(_, owner)| **owner == share.region).map(|(at, _)| at).collect();
        assert_eq!((share.area, share.len as usize), (area, bytes.len()), "seed {seed}");
        assert_eq!(share.entry, regions.is_sealed(share.region).then_some(entry), "seed {seed}");
        assert_eq!(map.share(share.region), Some((place, share)));
        let mut gathered = vec![0; bytes.len()];
        map.gather(place, &block, &mut gathered);
        assert_eq!(gathered, bytes, "seed {seed}");
        map.scatter(place, &gathered, &mut back);
        let mut short = vec![0; bytes.len() / 2];
        map.gather(place, &block[..bytes.get(short.len()).map_or(0, |end| *end as usize)], &mut short);
        assert_eq!(short, bytes[..short.len()], "seed {seed}");
        for (within, &byte) in (0..).zip(&bytes) {
            let (found, run) = map.locate(byte.into());
            assert_eq!((found, run.within + u32::from(byte) - run.offset), (share, within), "seed {seed}");
        }
        for offset in 0..=BLOCK {
            let before = bytes.iter().filter(|&&byte| u32::from(byte) < offset).count();
            assert_eq!(map.before(place, offset) as usize, before, "seed {seed}");
        }
        // Runs are as long as can be.
        let touching = |pair: &[Run]| pair[0].offset + pair[0].len >= pair[1].offset;
        assert!(!map.runs(place).windows(2).any(touching), "seed {seed}");
        area += share.len;
        entry += u8::from(share.entry.is_some());
    }
    assert_eq!(back, block);
    assert_eq!(area, BLOCK);
}

fn split(regions: &Regions, random: &mut Random, seed: u64) {
    let offset = random.below(BLOCKS * u64::from(BLOCK));
    let length = random.below(300);
    let mut at = offset;
    for stretch in regions.split(offset, length) {
        assert_eq!(stretch.block, at / u64::from(BLOCK), "seed {seed}");
        let map = regions.block(stretch.block);
        for step in 0..stretch.len {
            let (share, run) = map.locate((at % u64::from(BLOCK)) as u32);
            let within = run.within + (at % u64::from(BLOCK)) as u32 - run.offset;
            let expected = (share.region, share.entry, share.area, within);
            assert_eq!((stretch.region, stretch.entry, stretch.area, stretch.offset + step), expected, "seed {seed}");
            at += 1;
        }
    }
    assert_eq!(at, offset + length, "seed {seed}");
}

#[test]
fn regions_that_overlap_say_where_and_whose() {
    let mut regions = Regions::new(4096, true);
    let column = |offset| Part::new(0, 24, [Piece { offset, len: 8 }]).unwrap();
    assert_eq!(regions.add(true, vec![column(0)]), Ok(1));
    assert_eq!(regions.add(true, vec![column(8)]), Ok(2));
    let before = regions.clone();
    let overlap = regions.add(true, vec![column(16), Part::new(5000, 48, [Piece { offset: 2, len: 3 }]).unwrap()]);
    let Err(Overlap { region, offset, length }) = overlap else { panic!("5000 is 8 modulo 24") };
    assert_eq!((region, offset, length), (2, 5002, 3));
    assert_eq!(overlap.unwrap_err().to_string(), "bytes 5002 to 5004 belong to region 2 already");
    assert_eq!(regions, before);
    assert_eq!(regions.add(false, vec![column(16)]), Ok(3));
    assert_eq!(regions.block(0).shares().len(), 3, "nothing is left of region 0");
    assert_eq!(regions.sealed(), 3);
}

#[test]
fn parts_that_are_none() {
    let part =
        |extent, pieces: &[(u64, u64)]| Part::new(0, extent, pieces.iter().map(|&(offset, len)| Piece { offset, len }));
    assert_eq!(part(8, &[]), Err(PartError::Empty));
    assert_eq!(part(8, &[(0, 0)]), Err(PartError::Empty));
    assert_eq!(part(8, &[(4, 2), (0, 2)]), Err(PartError::Disordered));
    assert_eq!(part(8, &[(0, 3), (2, 2)]), Err(PartError::Disordered));
    assert_eq!(part(8, &[(7, 2)]), Err(PartError::Outside));
    assert_eq!(part(8, &[(u64::MAX, 2)]), Err(PartError::Outside));
    assert_eq!(part(0, &[]), Err(PartError::Empty));
    assert_eq!(part(1 << 63, &[(0, 2)]), Err(PartError::Far));
    assert_eq!(part(8, &[(0, 3), (3, 5)]), Ok(Part::from(0)));
    assert_eq!(part(8, &[(0, 3), (3, 2)]).unwrap().pieces(), [Piece { offset: 0, len: 5 }]);
}

#[test]
fn a_million_pieces_of_two_regions_are_told_apart() {
    // As many ranks set a map each: one region column by column, the other what is between.
    let columns = |first: u64| {
        (0..512_u64).map(move |rank| {
            let pieces = (0..64).map(|row| Piece { offset: first + rank * 16 + row * 8192, len: 8 });
            Part::new(0, 64 * 8192, pieces).unwrap()
        })
    };
    let mut regions = Regions::new(65536, true);
    assert_eq!(regions.add(true, columns(0).collect()), Ok(1));
    assert_eq!(regions.add(true, columns(8).collect()), Ok(2));
    assert_eq!(regions.block(3).shares().len(), 2);
    assert_eq!(regions.like(8 + 3), 3);
}
