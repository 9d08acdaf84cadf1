//! The audit's dynamic processes: the job starts one more, talks to it and lets it go.

use std::path::Path;
use std::rc::Rc;

use crate::mpi::{Abi, Failure, Mode, Mpi, Outcome};

use super::marker::{Marker, Stamp};
use super::operation::{TAG, Trial};

const SIZE: usize = 64 << 10;
/// Ranks of an intercommunicator are those of the other side: the stamps name the sides.
const PARENT: i32 = 0;
const CHILD: i32 = 1;

impl<A: Abi> Trial<'_, A> {
    /// `MPI_Comm_spawn` of one more process of this program, a message there and one back.
    pub(crate) fn spawn(&self, program: &Path, arguments: &[String]) -> Outcome {
        let child = self.world.spawn(program, arguments)?;
        if self.world.rank == 0 {
            let data = self.marker.block(SIZE, Stamp { from: PARENT, to: CHILD, round: 0 });
            child.0.send(Mode::Standard, self.mpi.source(&data), 0, TAG)?;
            let mut room = vec![0; SIZE];
            child.0.receive(self.mpi.target(&mut room), 0, TAG)?;
            self.check(&room, CHILD, PARENT, 1)?;
        }
        child.disconnect()
    }
}

/// What the spawned process does.
pub(crate) fn answer<A: Abi>(mpi: &Rc<Mpi<A>>, marker: Marker) -> Outcome {
    let Some(parent) = mpi.parent()? else {
        return Err(Failure::WrongData("this process was to be started by MPI_Comm_spawn, and was not".into()));
    };
    let mut room = vec![0; SIZE];
    parent.0.receive(mpi.target(&mut room), 0, TAG)?;
    let checked = marker.check(&room, Stamp { from: PARENT, to: CHILD, round: 0 });
    // A changed answer tells the parent that what arrived here was changed.
    let round = if checked.is_ok() { 1 } else { 0 };
    let data = marker.block(SIZE, Stamp { from: CHILD, to: PARENT, round });
    parent.0.send(Mode::Standard, mpi.source(&data), 0, TAG)?;
    parent.disconnect()?;
    checked.map_err(Failure::WrongData)
}
