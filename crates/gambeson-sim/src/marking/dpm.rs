//! Deterministic packet marking on a fat tree (IBA paper, section 5.4.2).
//!
//! Each switch on the way up writes the number of the port that the packet came in through; these are the digits of
//! the source's address, whichever of the parallel switches the way led through. A packet turns at the first common
//! switch, so the digits above it are never written. They are the same in both addresses, though: the mark begins as
//! the destination's address, and what is written makes it the source's. This takes no bit more than the digits.

use super::field::{index_bits, too_small};

/// Port marks on one fat tree.
#[derive(Clone, Debug)]
pub struct Dpm {
    levels: Vec<Level>,
    nodes: u64,
    bits: u32,
}

/// The ports downwards of a level's switches and the place of their digit in the mark.
#[derive(Clone, Copy, Debug)]
struct Level {
    ports: u32,
    shift: u32,
    mask: u64,
}

impl Dpm {
    /// Marks on a fat tree whose switches have so many ports downwards, the leaf switches first; node n is at port
    /// n mod `down_ports[0]` of its leaf switch, and so on upwards. The field has so many bits, 64 at the most.
    pub fn new(down_ports: &[u32], field_bits: u32) -> Result<Self, String> {
        if down_ports.is_empty() || down_ports.contains(&0) {
            return Err("a fat tree needs at least one level, and ports downwards on each".into());
        }
        let bits: u32 = down_ports.iter().map(|&ports| index_bits(ports)).sum();
        let nodes = down_ports.iter().try_fold(1u64, |product, &ports| product.checked_mul(ports.into()));
        let Some(nodes) = nodes.filter(|_| bits <= field_bits.min(u64::BITS)) else {
            return Err(too_small(bits, field_bits.min(u64::BITS)));
        };
        let mut shift = 0;
        let levels = down_ports.iter().map(|&ports| {
            // A level of one port has no digit, and its place may lie behind the last bit.
            let level = Level { ports, shift: shift % u64::BITS, mask: (1 << index_bits(ports)) - 1 };
            shift += index_bits(ports);
            level
        });
        Ok(Dpm { levels: levels.collect(), nodes, bits })
    }

    /// Bits that the marks take.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// How many nodes the tree has.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The mark of a packet that enters the fabric for `destination`.
    #[must_use]
    pub fn injected(&self, destination: u64) -> u64 {
        let mut rest = destination;
        self.levels.iter().fold(0, |mark, level| {
            let digit = rest % u64::from(level.ports);
            rest /= u64::from(level.ports);
            mark | digit << level.shift
        })
    }

    /// The mark behind a switch of `level` (0: leaf) that got the packet through its port downwards `port`, on its way
    /// up or at its turn. On the way down nothing is written.
    #[must_use]
    pub fn up(&self, mark: u64, level: usize, port: u32) -> u64 {
        let Level { shift, mask, .. } = self.levels[level];
        (mark & !(mask << shift)) | (u64::from(port) & mask) << shift
    }

    /// The node that a packet with this mark comes from; `None` for a mark that no way leads to.
    #[must_use]
    pub fn source(&self, mark: u64) -> Option<u64> {
        if self.bits < u64::BITS && mark >> self.bits != 0 {
            return None;
        }
        let (mut source, mut stride) = (0, 1);
        for level in &self.levels {
            let digit = mark >> level.shift & level.mask;
            if digit >= u64::from(level.ports) {
                return None;
            }
            source += digit * stride;
            stride *= u64::from(level.ports);
        }
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::FIELD_BITS;
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// A packet's way up a tree and the port it comes in through at each level; it turns at the first switch that
    /// both ends are below, or at a higher one, as routing may have it.
    fn travel(dpm: &Dpm, down_ports: &[u32], source: u64, destination: u64, detour: usize) -> u64 {
        let mut mark = dpm.injected(destination);
        let (mut from, mut to) = (source, destination);
        let mut beyond = detour;
        for (level, &ports) in down_ports.iter().enumerate() {
            mark = dpm.up(mark, level, (from % u64::from(ports)) as u32);
            (from, to) = (from / u64::from(ports), to / u64::from(ports));
            if from == to {
                if beyond == 0 {
                    break;
                }
                beyond -= 1;
            }
        }
        mark
    }

    fn check_walks(down_ports: &[u32], walks: u64) {
        let dpm = Dpm::new(down_ports, FIELD_BITS).expect("the field is large enough");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(dpm.nodes());
        for walk in 0..walks {
            let (source, mut destination) = (random.random_range(0..dpm.nodes()), random.random_range(0..dpm.nodes()));
            if random.random() {
                // A near one, so that packets turn at every level.
                destination = source ^ (random.random_range(0..dpm.nodes()) >> random.random_range(0..38));
                destination = destination.min(dpm.nodes() - 1);
            }
            let mark = travel(&dpm, down_ports, source, destination, random.random_range(0..3));
            assert_eq!(dpm.source(mark), Some(source), "{down_ports:?}, walk {walk} to {destination}");
        }
    }

    #[test]
    fn one_packet_tells_the_source_on_any_of_a_million_ways_through_a_fat_tree() {
        check_walks(&[4, 4, 4], 300_000);
        check_walks(&[18, 18, 36], 300_000);
        check_walks(&[3, 1, 5, 2], 200_000);
        check_walks(&[24; 7], 100_000);
        check_walks(&[2; 38], 100_000);
    }

    #[test]
    fn the_papers_node_6_is_00_01_10() {
        let dpm = Dpm::new(&[4, 4, 4], FIELD_BITS).expect("six bits");
        let mark = travel(&dpm, &[4, 4, 4], 6, 63, 0);
        assert_eq!((mark, dpm.bits(), dpm.source(mark)), (0b00_01_10, 6, Some(6)));
    }

    #[test]
    fn a_mark_that_no_way_leads_to_has_no_source() {
        let dpm = Dpm::new(&[3, 3], FIELD_BITS).expect("four bits");
        assert_eq!(dpm.source(0b1000), Some(6));
        assert_eq!(dpm.source(0b1100), None);
        assert_eq!(dpm.source(0b1_0000), None);
    }

    #[test]
    fn a_field_too_small_for_the_tree_is_refused() {
        let check = |down_ports: &[u32], field_bits, complaint: &str| {
            let sentence = Dpm::new(down_ports, field_bits).expect_err("no such tree");
            assert!(sentence.contains(complaint), "{sentence}");
        };
        assert_eq!(Dpm::new(&[24; 7], FIELD_BITS).map(|dpm| dpm.bits()), Ok(35));
        check(&[24; 8], FIELD_BITS, "take 40 bits and the field has 38");
        check(&[4; 33], 80, "take 66 bits and the field has 64");
        check(&[], FIELD_BITS, "at least one level");
        check(&[4, 0], FIELD_BITS, "ports downwards");
        assert_eq!(Dpm::new(&[16; 16], 64).map(|dpm| dpm.bits()).map_err(|_| ()), Err(()), "2^64 nodes");
    }
}
