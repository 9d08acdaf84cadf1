//! `rows`: the row-wise aggregation of a large file. Each rank reads its rows, a few MiB at a time and collectively, adds
//! each up, and writes the sums.

use crate::mpi::{Abi, Access, FileMode, Outcome};

use super::grid::{ELEMENT, Grid};
use super::pattern::{bytes as bytes_of, numbers};
use super::stage::{Stage, wrong};
use super::work::{Quantity, Split};

const TABLE: &str = "table";
const SUMS: &str = "sums";
const COLUMNS: usize = 2048;
/// What a rank has in memory at a time.
const CHUNK_ROWS: usize = (4 << 20) / (COLUMNS * ELEMENT);

pub(super) fn perform<A: Abi>(stage: &Stage<'_, A>, bytes: usize) -> Outcome {
    let count = (bytes / (COLUMNS * ELEMENT)).max(stage.ranks());
    let (array, grid) = ([count, COLUMNS], Grid::of(Split::Rows, stage.ranks()));
    let part = grid.part(&array, stage.rank());
    let view = part.filetype(stage.mpi, &array)?;
    let data: Vec<f64> = part.places(&array).map(|place| stage.pattern.small(place)).collect();
    let file = stage.create(TABLE, &grid, &array)?;
    file.set_view(0, Some(&view))?;
    file.write(Access::Collective, 0, &bytes_of(&data))?;
    file.close()?;
    stage.tell(TABLE)?;
    stage.evict(TABLE)?;

    let (first, own) = (part.starts[0], part.lengths[0]);
    // A rank that has fewer rows takes part to the end.
    let turns = count.div_ceil(stage.ranks()).div_ceil(CHUNK_ROWS);
    let mut room = vec![0xff; CHUNK_ROWS * COLUMNS * ELEMENT];
    let mut sums = Vec::with_capacity(own);
    stage.timed(Quantity::Run, 0, || {
        let file = stage.world.open(&stage.path(TABLE), FileMode::Read)?;
        file.set_view(0, Some(&view))?;
        for turn in 0..turns {
            let [from, until] = [turn, turn + 1].map(|turn| (turn * CHUNK_ROWS).min(own) * COLUMNS * ELEMENT);
            let chunk = &mut room[..until - from];
            file.read(Access::Collective, from as u64, chunk)?;
            sums.extend(chunk.chunks_exact(COLUMNS * ELEMENT).map(|row| numbers(row).iter().sum::<f64>()));
        }
        file.close()?;
        let file = stage.world.open(&stage.path(SUMS), FileMode::Create)?;
        file.write(Access::Collective, (first * ELEMENT) as u64, &bytes_of(&sums))?;
        file.close()
    })?;

    let expected: Vec<f64> = data.chunks_exact(COLUMNS).map(|row| row.iter().sum()).collect();
    let mut written = vec![0; own * ELEMENT];
    let file = stage.world.open(&stage.path(SUMS), FileMode::Read)?;
    file.read(Access::Collective, (first * ELEMENT) as u64, &mut written)?;
    file.close()?;
    if sums != expected || numbers(&written) != expected {
        return Err(wrong(format!("the sums of rank {} are not those of its rows", stage.rank())));
    }
    stage.remove(&[TABLE, SUMS])
}
