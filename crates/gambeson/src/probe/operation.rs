//! What the operations of the audit have in common: who takes part, markers, checking.

use crate::mpi::{Abi, Communicator, Failure, Mpi, Outcome};

use super::marker::{Marker, Stamp};

/// One operation being carried out.
pub(crate) struct Trial<'t, A: Abi> {
    pub(crate) mpi: &'t std::rc::Rc<Mpi<A>>,
    pub(crate) world: &'t Communicator<A>,
    pub(crate) marker: Marker,
}

/// The part a process plays in a point-to-point operation: the first and the last process talk,
/// so that with several hosts in their usual order two hosts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Talks, to this rank.
    First(i32),
    Last(i32),
    Bystander,
}

/// Tag of everything the audit sends.
pub(crate) const TAG: i32 = 7;
/// Tag of messages that say "go on" and carry nothing.
pub(crate) const GO_ON: i32 = 8;

impl<A: Abi> Trial<'_, A> {
    /// This process's part.
    pub(crate) fn role(&self) -> Role {
        match self.world.rank {
            0 => Role::First(self.world.size - 1),
            rank if rank == self.world.size - 1 => Role::Last(0),
            _ => Role::Bystander,
        }
    }

    /// A block from this process.
    pub(crate) fn block(&self, length: usize, to: i32, round: u32) -> Vec<u8> {
        self.marker.block(length, Stamp { from: self.world.rank, to, round })
    }

    /// Checks a block that came from `from` and was meant for `to`.
    pub(crate) fn check(&self, received: &[u8], from: i32, to: i32, round: u32) -> Outcome {
        let checked = self.marker.check(received, Stamp { from, to, round });
        checked.map_err(|text| Failure::WrongData(format!("rank {}: {text}", self.world.rank)))
    }

    /// An [`Outcome`] from a comparison.
    pub(crate) fn demand(&self, holds: bool, otherwise: &str) -> Outcome {
        if holds { Ok(()) } else { Err(Failure::WrongData(format!("rank {}: {otherwise}", self.world.rank))) }
    }
}
