//! `matmul`: C = A B out of core. Each rank has the rows of C that it has of A, a quarter of them at a time, and for each
//! quarter all of B comes by in panels of rows. So B, which is the greater part of what is read, is read four times.

use crate::mpi::{Abi, Access, FileMode, Outcome};

use super::grid::{ELEMENT, Grid};
use super::pattern::{bytes as bytes_of, numbers};
use super::stage::{Stage, wrong};
use super::work::{Quantity, Split};

const A_FILE: &str = "a";
const B_FILE: &str = "b";
const C_FILE: &str = "c";
/// Rows of B in memory at a time.
const PANEL: usize = 128;
/// Parts of a rank's rows, one of which is in memory at a time.
const STRIPS: usize = 4;
/// A matrix has a sixteenth of the bytes that the pattern was given: the work grows with its length to the third.
const SHARE: usize = 16;

pub(super) fn perform<A: Abi>(stage: &Stage<'_, A>, bytes: usize) -> Outcome {
    let side = ((bytes / SHARE / ELEMENT) as f64).sqrt() as usize;
    let (array, grid) = ([side, side], Grid::of(Split::Rows, stage.ranks()));
    let part = grid.part(&array, stage.rank());
    let (first, own) = (part.starts[0], part.lengths[0]);
    let line = side * ELEMENT;
    for name in [A_FILE, B_FILE] {
        let file = stage.create(name, &grid, &array)?;
        let data: Vec<f64> = part.places(&array).map(|place| element(stage, name, place)).collect();
        file.write(Access::Collective, (first * line) as u64, &bytes_of(&data))?;
        file.close()?;
        stage.evict(name)?;
    }
    stage.timed(Quantity::Run, 0, || {
        let a = stage.world.open(&stage.path(A_FILE), FileMode::Read)?;
        let b = stage.world.open(&stage.path(B_FILE), FileMode::Read)?;
        let c = stage.create(C_FILE, &grid, &array)?;
        let mut room = vec![0; own.div_ceil(STRIPS).max(PANEL) * line];
        for strip in 0..STRIPS {
            let [from, until] = [strip, strip + 1].map(|strip| first + strip * own / STRIPS);
            let rows = &mut room[..(until - from) * line];
            a.read(Access::Collective, (from * line) as u64, rows)?;
            let a_rows = numbers(rows);
            let mut c_rows = vec![0.0; a_rows.len()];
            for panel in (0..side).step_by(PANEL) {
                let height = PANEL.min(side - panel);
                let rows = &mut room[..height * line];
                b.read(Access::Collective, (panel * line) as u64, rows)?;
                multiply(&mut c_rows, &a_rows, &numbers(rows), (side, panel));
            }
            c.write(Access::Collective, (from * line) as u64, &bytes_of(&c_rows))?;
        }
        c.close()?;
        b.close()?;
        a.close()
    })?;
    stage.tell(C_FILE)?;
    let c = stage.world.open(&stage.path(C_FILE), FileMode::Read)?;
    let mut rows = vec![0; own * line];
    c.read(Access::Collective, (first * line) as u64, &mut rows)?;
    c.close()?;
    if !is_product(stage, side, first, &numbers(&rows)) {
        return Err(wrong(format!("the rows of rank {} are not those of the product", stage.rank())));
    }
    stage.remove(&[A_FILE, B_FILE, C_FILE])
}

fn element<A: Abi>(stage: &Stage<'_, A>, name: &str, place: u64) -> f64 {
    stage.pattern.small(place + if name == B_FILE { 1 << 40 } else { 0 })
}

/// Adds to rows of C what rows of B from `panel` on make of rows of A.
fn multiply(c: &mut [f64], a: &[f64], b: &[f64], (side, panel): (usize, usize)) {
    for (c_row, a_row) in c.chunks_exact_mut(side).zip(a.chunks_exact(side)) {
        for (factor, b_row) in a_row[panel..].iter().zip(b.chunks_exact(side)) {
            for (sum, value) in c_row.iter_mut().zip(b_row) {
                *sum += factor * value;
            }
        }
    }
}

/// Freivalds' test with one vector: C x = A (B x). All numbers are small enough to be exact.
fn is_product<A: Abi>(stage: &Stage<'_, A>, side: usize, first: usize, c: &[f64]) -> bool {
    let x: Vec<f64> = (0..side as u64).map(|place| stage.pattern.small(place + (1 << 41))).collect();
    let dot = |row: &mut dyn Iterator<Item = f64>, vector: &[f64]| -> f64 { row.zip(vector).map(|(a, b)| a * b).sum() };
    let row =
        |name, row: usize| ((row * side) as u64..((row + 1) * side) as u64).map(move |at| element(stage, name, at));
    let bx: Vec<f64> = (0..side).map(|line| dot(&mut row(B_FILE, line), &x)).collect();
    let mut lines = c.chunks_exact(side).zip(first..);
    lines.all(|(c_row, line)| dot(&mut c_row.iter().copied(), &x) == dot(&mut row(A_FILE, line), &bx))
}

#[cfg(test)]
mod tests {
    use super::multiply;

    #[test]
    fn panels_make_the_product() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], [1.0, 0.0, 2.0, 0.0, 1.0, 0.0, 3.0, 0.0, 1.0]);
        let mut c = [0.0; 9];
        multiply(&mut c, &a, &b[..6], (3, 0));
        multiply(&mut c, &a, &b[6..], (3, 2));
        assert_eq!(c, [10.0, 2.0, 5.0, 22.0, 5.0, 14.0, 34.0, 8.0, 23.0]);
    }
}
