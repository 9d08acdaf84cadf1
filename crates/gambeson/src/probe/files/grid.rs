//! Arrays shared out among ranks: a grid of ranks, and the part of each.

use crate::mpi::{Abi, Filetype, Mpi, Outcome};
use std::rc::Rc;

use super::work::{Map, Split};

/// Bytes of an element.
pub(super) const ELEMENT: usize = 8;

/// How many ranks there are in each dimension of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid(Vec<usize>);

/// A rank's part of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) starts: Vec<usize>,
    pub(super) lengths: Vec<usize>,
}

impl Grid {
    /// All ranks in one dimension of several.
    pub(super) fn slabs(dimensions: usize, along: usize, ranks: usize) -> Self {
        Self((0..dimensions).map(|dimension| if dimension == along { ranks } else { 1 }).collect())
    }

    /// As many ranks in each dimension as can be, the most in the first.
    pub(super) fn blocks(dimensions: usize, ranks: usize) -> Self {
        let mut grid = vec![1; dimensions];
        let (mut left, mut factors) = (ranks, Vec::new());
        let mut factor = 2;
        while left > 1 {
            while left.is_multiple_of(factor) {
                factors.push(factor);
                left /= factor;
            }
            factor += 1;
        }
        for factor in factors.into_iter().rev() {
            *grid.iter_mut().min().expect("an array has dimensions") *= factor;
        }
        grid.sort_unstable_by(|one, other| other.cmp(one));
        Self(grid)
    }

    pub(super) fn of(split: Split, ranks: usize) -> Self {
        match split {
            Split::Rows => Self::slabs(2, 0, ranks),
            Split::Columns => Self::slabs(2, 1, ranks),
            Split::Blocks => Self::blocks(2, ranks),
        }
    }

    /// That of a map beside this one of a view.
    pub(super) fn of_map(&self, map: Map) -> Option<Self> {
        let (dimensions, ranks) = (self.0.len(), self.0.iter().product());
        let rows = Self::slabs(dimensions, 0, ranks);
        match map {
            Map::Rule => None,
            Map::View => Some(self.clone()),
            Map::Other if *self != rows => Some(rows),
            Map::Other => Some(Self::slabs(dimensions, dimensions - 1, ranks)),
        }
    }

    /// What a rank has of an array.
    pub(super) fn part(&self, array: &[usize], rank: usize) -> Part {
        let mut place = rank;
        let (mut starts, mut lengths) = (vec![0; array.len()], vec![0; array.len()]);
        for dimension in (0..array.len()).rev() {
            let (ranks, length) = (self.0[dimension], array[dimension]);
            let own = place % ranks;
            place /= ranks;
            starts[dimension] = own * length / ranks;
            lengths[dimension] = (own + 1) * length / ranks - starts[dimension];
        }
        Part { starts, lengths }
    }
}

impl Part {
    /// Its elements.
    pub(super) fn count(&self) -> usize {
        self.lengths.iter().product()
    }

    /// Its elements' places in the whole array, in order.
    pub(super) fn places(&self, array: &[usize]) -> impl Iterator<Item = u64> {
        let last = array.len() - 1;
        let rows: usize = self.lengths[..last].iter().product();
        (0..rows).flat_map(move |row| {
            let (mut left, mut place, mut weight) = (row, self.starts[last], array[last]);
            for dimension in (0..last).rev() {
                place += (self.starts[dimension] + left % self.lengths[dimension]) * weight;
                left /= self.lengths[dimension];
                weight *= array[dimension];
            }
            place as u64..(place + self.lengths[last]) as u64
        })
    }

    /// It as a view or map of a file that has the array in order.
    pub(super) fn filetype<A: Abi>(&self, mpi: &Rc<Mpi<A>>, array: &[usize]) -> Outcome<Filetype<A>> {
        let in_bytes = |lengths: &[usize]| {
            let mut lengths = lengths.to_vec();
            *lengths.last_mut().expect("an array has dimensions") *= ELEMENT;
            lengths
        };
        Filetype::subarray(mpi, &in_bytes(array), &in_bytes(&self.lengths), &in_bytes(&self.starts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_spread_evenly() {
        let blocks = |dimensions, ranks| Grid::blocks(dimensions, ranks).0;
        assert_eq!([blocks(2, 1), blocks(2, 4), blocks(2, 6), blocks(2, 16)], [[1, 1], [2, 2], [3, 2], [4, 4]]);
        assert_eq!([blocks(3, 2), blocks(3, 8), blocks(3, 16)], [[2, 1, 1], [2, 2, 2], [4, 2, 2]]);
        assert_eq!(blocks(2, 7), [7, 1]);
    }

    #[test]
    fn every_element_is_in_one_part() {
        let array = [7, 5, 6];
        for ranks in [1, 3, 4, 6] {
            for grid in [Grid::blocks(3, ranks), Grid::slabs(3, 0, ranks)] {
                let parts = (0..ranks).map(|rank| grid.part(&array, rank));
                let mut places: Vec<u64> = parts.flat_map(|part| Vec::from_iter(part.places(&array))).collect();
                places.sort_unstable();
                assert_eq!(places, Vec::from_iter(0..210));
            }
        }
    }

    #[test]
    fn a_map_that_is_not_the_view_is_by_rows_unless_the_view_is() {
        let other = |split| Grid::of(split, 4).of_map(Map::Other).expect("a map").0;
        assert_eq!([Split::Rows, Split::Columns, Split::Blocks].map(other), [[1, 4], [4, 1], [4, 1]]);
        assert_eq!(Grid::of(Split::Blocks, 4).of_map(Map::Rule), None);
    }
}
