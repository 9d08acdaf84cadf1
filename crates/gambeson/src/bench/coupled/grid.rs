//! A field on a slab of the plane: rows from south to north, columns from west to east, and around them one more of each,
//! for what neighbours and walls say.

/// Values at cells, or at their eastern or northern faces: `[row][column]`, both from 1; 0 and the last are around them.
#[derive(Clone)]
pub(super) struct Field {
    width: usize,
    values: Vec<f64>,
}

impl Field {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Field { width: columns + 2, values: vec![0.0; (columns + 2) * (rows + 2)] }
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.width..][..self.width]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.width..][..self.width]
    }

    /// The values of a row that are not around the slab.
    pub(super) fn inside(&self, row: usize) -> &[f64] {
        &self.row(row)[1..self.width - 1]
    }

    pub(super) fn copy_row(&mut self, from: usize, to: usize) {
        let width = self.width;
        self.values.copy_within(from * width..(from + 1) * width, to * width);
    }

    /// What is west and east of the slab is as it is at its edge: nothing flows down a gradient there.
    pub(super) fn close_west_and_east(&mut self) {
        for row in self.values.chunks_exact_mut(self.width) {
            row[0] = row[1];
            row[self.width - 1] = row[self.width - 2];
        }
    }

    /// Itself, times `own`, and what two others sum up to, times `others`; the second is a rate over `dt`.
    pub(super) fn blend(&mut self, own: f64, first: &Field, rate: &Field, dt: f64, others: f64) {
        for ((value, one), rate) in self.values.iter_mut().zip(&first.values).zip(&rate.values) {
            *value = own * *value + others * (one + dt * rate);
        }
    }
}

/// A slab of the plane: some of the rows of one component.
#[derive(Clone, Copy)]
pub(super) struct Slab {
    pub(super) columns: usize,
    pub(super) rows: usize,
    /// How many rows are south of it.
    pub(super) south: usize,
    /// Of the whole plane.
    pub(super) rows_of_all: usize,
}

impl Slab {
    /// Process `index` of `processes`, which have `cells` by `cells` among them.
    pub(super) fn new(cells: usize, processes: usize, index: usize) -> Self {
        let rows = cells / processes;
        Slab { columns: cells, rows, south: rows * index, rows_of_all: cells }
    }

    /// Width of a cell, in m.
    pub(super) fn spacing(&self) -> f64 {
        EXTENT / self.rows_of_all as f64
    }

    /// How far north of the plane's middle, in m, the point is that lies `up` rows above this slab's southern edge.
    pub(super) fn northward(&self, up: f64) -> f64 {
        (self.south as f64 + up) * self.spacing() - EXTENT / 2.0
    }

    pub(super) fn at_southern_wall(&self) -> bool {
        self.south == 0
    }

    pub(super) fn at_northern_wall(&self) -> bool {
        self.south + self.rows == self.rows_of_all
    }
}

/// The plane is a square of this many m, tangent to the earth at [`LATITUDE`].
pub(super) const EXTENT: f64 = 5.0e6;
/// Of the plane's middle, in degrees north.
pub(super) const LATITUDE: f64 = 40.0;
/// Of the earth, in m.
pub(super) const RADIUS: f64 = 6.371e6;
/// How often the components exchange, in s.
pub(super) const INTERVAL: f64 = 3600.0;
/// In s.
pub(super) const DAY: f64 = 86_400.0;
