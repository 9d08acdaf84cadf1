//! The paper's matrices: written and read by rows, by columns and by blocks, in one collective call each.

use crate::mpi::{Abi, Access, FileMode, Outcome};

use super::grid::{ELEMENT, Grid};
use super::stage::{Stage, wrong};
use super::work::{Quantity, Split};

const FILE: &str = "matrix";

pub(super) fn perform<A: Abi>(stage: &Stage<'_, A>, split: Split, side: usize) -> Outcome {
    let (array, grid) = ([side, side], Grid::of(split, stage.ranks()));
    let part = grid.part(&array, stage.rank());
    let view = part.filetype(stage.mpi, &array)?;
    let element = |place| stage.pattern.word(stage.rank(), place).to_le_bytes();
    let data: Vec<u8> = part.places(&array).flat_map(element).collect();
    let bytes = (side * side * ELEMENT) as u64;
    stage.timed(Quantity::Write, bytes, || {
        let file = stage.create(FILE, &grid, &array)?;
        file.set_view(0, Some(&view))?;
        file.write(Access::Collective, 0, &data)?;
        file.close()
    })?;
    stage.tell(FILE)?;
    // Not zeroed pages that the system hands out while the clock runs.
    let mut room = vec![0xff; data.len()];
    let mut read = |quantity| {
        room.fill(0xff);
        stage.timed(quantity, bytes, || {
            let file = stage.world.open(&stage.path(FILE), FileMode::Read)?;
            file.set_view(0, Some(&view))?;
            file.read(Access::Collective, 0, &mut room)?;
            file.close()
        })?;
        match room == data {
            true => Ok(()),
            false => Err(wrong(format!("rank {} read a matrix that is not what it wrote", stage.rank()))),
        }
    };
    read(Quantity::Read)?;
    if stage.has_disk() {
        stage.evict(FILE)?;
        read(Quantity::ReadDisk)?;
    }
    stage.remove(&[FILE])
}
