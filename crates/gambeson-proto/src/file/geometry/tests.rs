//! Every offset, against a walk through a small file.

use super::*;

/// What stands in a file, in order.
#[derive(Debug, PartialEq)]
enum Item {
    DigestTable(u64),
    EntryTable(u64),
    Entry(u64, u8, Half),
    Data(u64, Half),
}

fn walk(geometry: &Geometry, blocks: u64) -> Vec<(u64, Item)> {
    let mut at = 2 * u64::from(geometry.header_len);
    let mut items = Vec::new();
    let mut push = |item, len: u64| {
        items.push((at, item));
        at += len;
    };
    for block in 0..blocks {
        let group = block / u64::from(geometry.group_blocks);
        if block % u64::from(geometry.group_blocks) == 0 {
            if group % u64::from(geometry.groups) == 0 {
                push(Item::DigestTable(group / u64::from(geometry.groups)), u64::from(geometry.groups) * 32);
            }
            let entries = u64::from(geometry.group_blocks) * u64::from(geometry.shares);
            push(Item::EntryTable(group), entries * 64);
        }
        for half in [Half::First, Half::Second].into_iter().take(1 + usize::from(geometry.two_slots)) {
            (0..geometry.shares).for_each(|index| push(Item::Entry(block, index, half), 64));
            if !geometry.detached {
                push(Item::Data(block, half), geometry.block_len.into());
            }
        }
    }
    items
}

fn small() -> impl Iterator<Item = Geometry> {
    [(1, false, false), (3, false, false), (2, true, false), (1, false, true), (255, false, true)].into_iter().map(
        |(shares, two_slots, detached)| Geometry {
            shares,
            two_slots,
            detached,
            group_blocks: 3,
            groups: 2,
            ..Geometry::new(4096)
        },
    )
}

#[test]
fn everything_stands_where_a_walk_finds_it() {
    for geometry in small() {
        let items = walk(&geometry, 20);
        for (at, item) in &items {
            let found = match *item {
                Item::DigestTable(chapter) => geometry.digest_table(chapter),
                Item::EntryTable(group) => geometry.entry_table(group),
                Item::Entry(block, index, half) => geometry.entry(block, index, half),
                Item::Data(block, half) => geometry.data(block, half),
            };
            assert_eq!(found, *at, "{item:?} of {geometry:?}");
        }
        for block in 0..20 {
            assert_eq!(geometry.group(block), block / 3);
            assert_eq!(geometry.chapter(geometry.group(block)), block / 6);
            let place = geometry.entry_in_table(block, geometry.shares - 1);
            assert_eq!(place, ((block % 3 + 1) * u64::from(geometry.shares) - 1) as usize * 64);
            if geometry.detached {
                assert_eq!(geometry.data(block, Half::First), block * 4096);
            }
        }
    }
}

#[test]
fn a_length_tells_how_many_slots_it_has_begun() {
    for geometry in small() {
        let starts: Vec<u64> = (0..20).map(|block| geometry.slot(block)).collect();
        for block in 0..20 {
            assert_eq!(geometry.slots_begun(geometry.len(block)), block);
            for len in [geometry.slot(block), geometry.slot(block) + 1, geometry.slot(block) - 1] {
                let begun = starts.iter().filter(|&&start| start < len).count() as u64;
                assert_eq!(geometry.slots_begun(len), begun, "{len} bytes of {geometry:?}");
            }
        }
        for len in [0, 1, 4095, u64::from(geometry.header_len) * 2] {
            assert_eq!(geometry.slots_begun(len), 0);
        }
    }
}

#[test]
fn no_offset_is_beyond_what_a_file_can_have() {
    for block_len in (12..=20).map(|log2| 1 << log2) {
        for (shares, two_slots, detached) in [(1, false, false), (255, true, false), (255, false, true)] {
            let geometry = Geometry { shares, two_slots, detached, ..Geometry::new(block_len) };
            assert!(geometry.is_legal());
            let last = geometry.blocks_max();
            assert!(geometry.len(last) <= OFFSET_MAX);
            assert!(geometry.data(last - 1, Half::First) + u64::from(block_len) <= OFFSET_MAX);
            assert!(geometry.holds(last * u64::from(block_len)));
            assert!(!geometry.holds(last * u64::from(block_len) + 1));
            assert_eq!(geometry.slots_begun(u64::MAX), last);
        }
    }
    // Little is lost: the default holds above 99.9 % of what offsets reach.
    assert!(Geometry::default().holds(OFFSET_MAX / 1000 * 998));
}

#[test]
#[should_panic(expected = "no file has a block number")]
fn a_block_behind_the_last_is_refused() {
    let geometry = Geometry::default();
    geometry.slot(geometry.blocks_max());
}

#[test]
fn measures_that_no_file_has() {
    let good = Geometry::default();
    assert!(good.is_legal());
    for bad in [
        Geometry { block_len: 2048, ..good },
        Geometry { block_len: 2 << 20, ..good },
        Geometry { block_len: 65537, ..good },
        Geometry { header_len: 2048, ..good },
        Geometry { header_len: 32 << 20, ..good },
        Geometry { header_len: 12288, ..good },
        Geometry { group_blocks: 0, ..good },
        Geometry { group_blocks: 4097, ..good },
        Geometry { groups: 0, ..good },
        Geometry { groups: 4097, ..good },
        Geometry { shares: 0, ..good },
        Geometry { two_slots: true, detached: true, ..good },
    ] {
        assert!(!bad.is_legal(), "{bad:?}");
    }
}
