//! Patterns of MPI-IO for `gambeson bench files`: the ranks of a job that does what it is told, work by work.

mod coll_perf;
mod grid;
mod matmul;
mod matrix;
mod pattern;
mod rows;
mod stage;
mod synthetic;
mod transfers;
mod views;
pub(crate) mod work;

use std::path::Path;
use std::rc::Rc;

use crate::mpi::{Abi, Communicator, Mpi, Outcome};

use super::report::Event;
use pattern::Pattern;
use stage::{Stage, wrong};
use work::{Kernel, Order, Task};

/// Does what is ordered until nothing more is.
pub(super) fn serve<A: Abi>(mpi: &Rc<Mpi<A>>, world: &Communicator<A>, orders: &Path) -> Outcome {
    let mut done = 0;
    loop {
        let order = Order::wait(orders, done).map_err(|error| wrong(format!("{}: {error}", orders.display())))?;
        let Some(work) = &order.work else { return Ok(()) };
        let stage = Stage { mpi, world, work, pattern: Pattern::new(work.seed) };
        match &work.task {
            Task::Transfers(transfers) => transfers::perform(&stage, transfers)?,
            Task::Matrix { split, side } => matrix::perform(&stage, *split, *side)?,
            Task::Kernel { kernel: Kernel::CollPerf, bytes } => coll_perf::perform(&stage, *bytes)?,
            Task::Kernel { kernel: Kernel::Matmul, bytes } => matmul::perform(&stage, *bytes)?,
            Task::Kernel { kernel: Kernel::Synthetic, bytes } => synthetic::perform(&stage, *bytes)?,
            Task::Kernel { kernel: Kernel::Rows, bytes } => rows::perform(&stage, *bytes)?,
            Task::Views(calls) => views::perform(&stage, *calls)?,
        }
        world.barrier()?;
        done = order.serial;
        if world.rank == 0 {
            Event::Done { serial: done }.print();
        }
    }
}
