//! Deterministic distance packet marking (IBA paper, section 5.4.3 and Algorithm 2).
//!
//! V is zero where the packet enters; each switch adds the step to the next one, V := V + (Y - X); the receiver at D
//! finds the source D - V. On a hypercube both are exclusive or; on a torus all is modulo the side, or a packet that
//! went round would point out of the network. (The paper's algorithm says `Routing(V)` for `Routing(D)`.)

use super::field::{index_bits, too_small};

/// A regular network; its switches are numbered with the first dimension fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Sides of a mesh.
    Mesh(Vec<u32>),
    /// Sides of a torus.
    Torus(Vec<u32>),
    /// Dimensions of a hypercube.
    Hypercube(u32),
}

/// Distance marks on one network.
#[derive(Clone, Debug)]
pub struct Ddpm {
    kind: Kind,
    switches: u64,
    bits: u32,
}

#[derive(Clone, Debug)]
enum Kind {
    Grid { dimensions: Vec<Dimension>, wraps: bool },
    Hypercube,
}

/// A dimension's side and the place of its part of the mark.
#[derive(Clone, Copy, Debug)]
struct Dimension {
    side: u32,
    shift: u32,
    mask: u64,
}

impl Ddpm {
    /// The mark of a packet that enters the fabric.
    pub const INJECTED: u64 = 0;

    /// Marks on `shape` in a field of so many bits, 64 at the most.
    pub fn new(shape: &Shape, field_bits: u32) -> Result<Self, String> {
        let (kind, switches, bits) = match shape {
            Shape::Hypercube(dimensions) => (Kind::Hypercube, 1u64.checked_shl(*dimensions), *dimensions),
            Shape::Mesh(sides) | Shape::Torus(sides) => {
                let wraps = matches!(shape, Shape::Torus(_));
                if sides.is_empty() || sides.contains(&0) {
                    return Err("a mesh or torus needs at least one dimension, and no side may be 0".into());
                }
                // A distance on a mesh has a sign, in two's complement.
                let widths: Vec<u32> = sides.iter().map(|&side| index_bits(side) + u32::from(!wraps)).collect();
                let bits = widths.iter().sum();
                let mut shift = 0;
                let dimensions = std::iter::zip(sides, &widths).map(|(&side, &width)| {
                    let dimension = Dimension { side, shift, mask: (1u64 << width) - 1 };
                    shift += width;
                    dimension
                });
                // Beyond 64 bits the shifts would mean nothing; the marks are refused below.
                let dimensions = if bits <= u64::BITS { dimensions.collect() } else { Vec::new() };
                let switches = sides.iter().try_fold(1u64, |product, &side| product.checked_mul(side.into()));
                (Kind::Grid { dimensions, wraps }, switches, bits)
            }
        };
        match switches {
            Some(switches) if bits <= field_bits.min(u64::BITS) => Ok(Ddpm { kind, switches, bits }),
            _ => Err(too_small(bits, field_bits.min(u64::BITS))),
        }
    }

    /// Bits that the marks take.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The mark behind switch `from`, which sends the packet on to its neighbour `to`.
    #[must_use]
    pub fn hop(&self, mark: u64, from: u64, to: u64) -> u64 {
        match &self.kind {
            Kind::Hypercube => mark ^ from ^ to,
            Kind::Grid { dimensions, wraps } => combine(dimensions, mark, from, to, |dimension, v, x, y| {
                let moved = v + y - x;
                if *wraps { moved.rem_euclid(dimension.side.into()) } else { moved }
            }),
        }
    }

    /// The switch where a packet with this mark entered, as seen at `here`; `None` for a mark that no way leads to.
    #[must_use]
    pub fn source(&self, mark: u64, here: u64) -> Option<u64> {
        if self.bits < u64::BITS && mark >> self.bits != 0 {
            return None;
        }
        match &self.kind {
            Kind::Hypercube => Some(mark ^ here),
            Kind::Grid { dimensions, wraps } => {
                let (mut source, mut stride, mut rest) = (0, 1, here);
                for dimension in dimensions {
                    let side = i64::from(dimension.side);
                    let v = dimension.component(mark, *wraps);
                    let mut x = (rest % dimension.side as u64) as i64 - v;
                    if *wraps && v < side {
                        x = x.rem_euclid(side);
                    }
                    if !(0..side).contains(&x) {
                        return None;
                    }
                    source += x as u64 * stride;
                    stride *= side as u64;
                    rest /= side as u64;
                }
                Some(source)
            }
        }
    }

    /// How many switches there are.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switches
    }
}

impl Dimension {
    /// This dimension's distance.
    fn component(&self, mark: u64, wraps: bool) -> i64 {
        let raw = mark >> self.shift & self.mask;
        let negative = !wraps && raw > self.mask >> 1;
        raw as i64 - if negative { self.mask as i64 + 1 } else { 0 }
    }
}

/// A new mark out of each dimension's distance and the coordinates of two switches.
fn combine(
    dimensions: &[Dimension],
    mark: u64,
    mut from: u64,
    mut to: u64,
    distance: impl Fn(&Dimension, i64, i64, i64) -> i64,
) -> u64 {
    let mut new = 0;
    for dimension in dimensions {
        let side = u64::from(dimension.side);
        let raw = (mark >> dimension.shift & dimension.mask) as i64;
        // Two's complement needs no sign here: what does not fit is cut off.
        let moved = distance(dimension, raw, (from % side) as i64, (to % side) as i64);
        new |= (moved as u64 & dimension.mask) << dimension.shift;
        (from, to) = (from / side, to / side);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::super::field::FIELD_BITS;
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn marks(shape: &Shape) -> Ddpm {
        Ddpm::new(shape, FIELD_BITS).expect("the field is large enough")
    }

    /// A neighbour of `at` on `shape`, which may be any one: adaptive routing at its worst.
    fn neighbour(shape: &Shape, at: u64, random: &mut Xoshiro256PlusPlus) -> u64 {
        let (sides, wraps) = match shape {
            Shape::Hypercube(dimensions) => return at ^ (1 << random.random_range(0..*dimensions)),
            Shape::Mesh(sides) => (sides, false),
            Shape::Torus(sides) => (sides, true),
        };
        loop {
            let dimension = random.random_range(0..sides.len());
            let stride: u64 = sides[..dimension].iter().map(|&side| u64::from(side)).product();
            let side = u64::from(sides[dimension]);
            let x = at / stride % side;
            let up = random.random();
            let y = match (up, wraps) {
                (true, true) => (x + 1) % side,
                (false, true) => (x + side - 1) % side,
                (true, false) if x + 1 < side => x + 1,
                (false, false) if x > 0 => x - 1,
                _ => continue,
            };
            return at + y * stride - x * stride;
        }
    }

    fn check_walks(shape: &Shape, walks: u64) {
        let ddpm = marks(shape);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(ddpm.switches());
        for walk in 0..walks {
            let source = random.random_range(0..ddpm.switches());
            let (mut at, mut mark) = (source, Ddpm::INJECTED);
            for _ in 0..random.random_range(0..32) {
                let next = neighbour(shape, at, &mut random);
                mark = ddpm.hop(mark, at, next);
                at = next;
            }
            assert_eq!(ddpm.source(mark, at), Some(source), "{shape:?}, walk {walk} to {at}");
        }
    }

    // A million walks each, on small networks with edges everywhere and on the largest that the field holds.

    #[test]
    fn one_packet_tells_the_source_on_any_walk_on_a_mesh() {
        check_walks(&Shape::Mesh(vec![4, 4]), 400_000);
        check_walks(&Shape::Mesh(vec![5, 1, 7]), 300_000);
        check_walks(&Shape::Mesh(vec![1 << 18, 1 << 18]), 300_000);
    }

    #[test]
    fn one_packet_tells_the_source_on_any_walk_on_a_torus() {
        check_walks(&Shape::Torus(vec![4, 4]), 300_000);
        check_walks(&Shape::Torus(vec![3, 5, 6]), 400_000);
        check_walks(&Shape::Torus(vec![1 << 19, 1 << 19]), 300_000);
    }

    #[test]
    fn one_packet_tells_the_source_on_any_walk_on_a_hypercube() {
        check_walks(&Shape::Hypercube(3), 500_000);
        check_walks(&Shape::Hypercube(38), 500_000);
    }

    /// The marks along a way, in coordinates of two dimensions.
    fn check_way(shape: &Shape, way: &[u64], distances: &[u64], source: u64) {
        let ddpm = marks(shape);
        let mut mark = Ddpm::INJECTED;
        for (step, &distance) in way.windows(2).zip(distances) {
            mark = ddpm.hop(mark, step[0], step[1]);
            assert_eq!(mark, distance, "{step:?}");
        }
        assert_eq!(ddpm.source(mark, *way.last().expect("a way has an end")), Some(source));
    }

    #[test]
    fn the_papers_two_walks() {
        // Fig. 6a, (1,1) to (2,3) on a 4 x 4 mesh; three bits a distance.
        let at = |x: u64, y: u64| x + 4 * y;
        let v = |x: i64, y: i64| (x & 7) as u64 | ((y & 7) as u64) << 3;
        let way = [at(1, 1), at(2, 1), at(3, 1), at(3, 0), at(2, 0), at(2, 1), at(2, 2), at(2, 3)];
        let distances = [v(1, 0), v(2, 0), v(2, -1), v(1, -1), v(1, 0), v(1, 1), v(1, 2)];
        check_way(&Shape::Mesh(vec![4, 4]), &way, &distances, at(1, 1));
        // Fig. 6b, from 110 to 000 on a 3-cube.
        let way = [0b110, 0b010, 0b011, 0b111, 0b101, 0b100, 0b000];
        let distances = [0b100, 0b101, 0b001, 0b011, 0b010, 0b110];
        check_way(&Shape::Hypercube(3), &way, &distances, 0b110);
    }

    #[test]
    fn a_torus_needs_the_modulus() {
        // Once round in the first dimension is no distance.
        check_way(&Shape::Torus(vec![3, 3]), &[0, 1, 2, 0], &[1, 2, 0], 0);
    }

    #[test]
    fn a_mark_that_no_way_leads_to_has_no_source() {
        let mesh = marks(&Shape::Mesh(vec![4, 4]));
        assert_eq!(mesh.source(3, 1), None, "two to the left of the edge");
        assert_eq!(mesh.source(1 << mesh.bits(), 1), None);
        assert_eq!(marks(&Shape::Torus(vec![3, 3])).source(3, 1), None, "distances modulo 3 end at 2");
    }

    #[test]
    fn a_field_too_small_for_the_topology_is_refused() {
        let check = |shape: Shape, field_bits, bits: Result<u32, &str>| match (Ddpm::new(&shape, field_bits), bits) {
            (Ok(ddpm), Ok(bits)) => assert_eq!(ddpm.bits(), bits, "{shape:?}"),
            (Err(sentence), Err(part)) => assert!(sentence.contains(part), "{sentence}"),
            (found, _) => panic!("{shape:?} in {field_bits} bits: {found:?}"),
        };
        check(Shape::Mesh(vec![64, 64]), 14, Ok(14));
        check(Shape::Mesh(vec![64, 64]), 13, Err("take 14 bits and the field has 13"));
        check(Shape::Mesh(vec![1 << 18, 1 << 18]), FIELD_BITS, Ok(38));
        check(Shape::Mesh(vec![1 << 19, 1 << 18]), FIELD_BITS, Err("take 39 bits"));
        check(Shape::Mesh(vec![1 << 11; 3]), FIELD_BITS, Ok(36));
        check(Shape::Torus(vec![1 << 19, 1 << 19]), FIELD_BITS, Ok(38));
        check(Shape::Torus(vec![1 << 31; 8]), 64, Err("take 248 bits and the field has 64"));
        check(Shape::Hypercube(38), FIELD_BITS, Ok(38));
        check(Shape::Hypercube(39), FIELD_BITS, Err("take 39 bits"));
        check(Shape::Hypercube(200), 64, Err("take 200 bits"));
        check(Shape::Mesh(vec![]), FIELD_BITS, Err("at least one dimension"));
        check(Shape::Torus(vec![4, 0]), FIELD_BITS, Err("no side may be 0"));
    }
}
