//! `coll_perf`, after ROMIO's test of that name: an array of three dimensions, shared out in blocks, is written and read
//! collectively. Computed are the elements, before, and whether they are right, afterwards.

use crate::mpi::{Abi, Access, FileMode, Outcome};

use super::grid::{ELEMENT, Grid};
use super::stage::{Stage, wrong};
use super::work::Quantity;

const FILE: &str = "array";

pub(super) fn perform<A: Abi>(stage: &Stage<'_, A>, bytes: usize) -> Outcome {
    let side = ((bytes / ELEMENT) as f64).cbrt() as usize;
    let (array, grid) = ([side; 3], Grid::blocks(3, stage.ranks()));
    let part = grid.part(&array, stage.rank());
    let view = part.filetype(stage.mpi, &array)?;
    let element = |place| stage.pattern.word(stage.rank(), place).to_le_bytes();
    stage.timed(Quantity::Run, 0, || {
        let mut data: Vec<u8> = Vec::with_capacity(part.count() * ELEMENT);
        data.extend(part.places(&array).flat_map(element));
        let file = stage.create(FILE, &grid, &array)?;
        file.set_view(0, Some(&view))?;
        file.write(Access::Collective, 0, &data)?;
        file.close()?;
        data.fill(0);
        let file = stage.world.open(&stage.path(FILE), FileMode::Read)?;
        file.set_view(0, Some(&view))?;
        file.read(Access::Collective, 0, &mut data)?;
        file.close()?;
        let is_right = data.chunks_exact(ELEMENT).zip(part.places(&array)).all(|(word, place)| word == element(place));
        if is_right { Ok(()) } else { Err(wrong(format!("rank {} read another array than it wrote", stage.rank()))) }
    })?;
    stage.tell(FILE)?;
    stage.remove(&[FILE])
}
