//! `MPI_File_set_view` alone, from one view to another and back.

use crate::mpi::{Abi, Access, FileMode, Filetype, Outcome};
use crate::probe::report::Event;

use super::pattern::PAGE;
use super::stage::Stage;
use super::work::Quantity;

const FILE: &str = "views";

pub(super) fn perform<A: Abi>(stage: &Stage<'_, A>, calls: u32) -> Outcome {
    let (rank, ranks) = (stage.rank(), stage.ranks());
    let view = Filetype::subarray(stage.mpi, &[ranks * PAGE], &[PAGE], &[rank * PAGE])?;
    let file = stage.world.open(&stage.path(FILE), FileMode::Create)?;
    file.write(Access::Collective, (rank * PAGE) as u64, &stage.pattern.buffer(PAGE))?;
    let seconds = stage
        .slowest(|| (0..calls).try_for_each(|call| file.set_view(u64::from(call % 2) * PAGE as u64, Some(&view))))?;
    if rank == 0 {
        Event::Timed { quantity: Quantity::SetView, bytes: 0, seconds: seconds / f64::from(calls) }.print();
    }
    file.close()?;
    stage.tell(FILE)?;
    stage.remove(&[FILE])
}
