//! Calls the roll of MPI_COMM_WORLD, so that the provider learns which address MPI takes for which rank.
//!
//! The addresses come from MPI's own exchange, and only MPI knows whose it takes each for. So every
//! rank is sent an empty message through MPI: the provider looks at the address that it comes with,
//! sends nothing, and stops the process if the address belongs to another rank. A message that never
//! comes to the provider went through the shared memory of the host, and is received over there.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mpi::{Missing, Mpi};
use crate::provider::RollCall;
use crate::{provider, refusal};

/// Calls every other rank, once in a process.
pub(crate) fn call() {
    static CALLED: AtomicBool = AtomicBool::new(false);
    let Some(provider) = provider::roll_call() else { return };
    if CALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    // Every MPI has these functions.
    let _ = call_all(&Mpi::find(), provider);
}

fn call_all(mpi: &Mpi, provider: RollCall) -> Result<(), Missing> {
    let (Some(own), Some(size)) = (mpi.rank(mpi.world)?, mpi.size(mpi.world)?) else { return Ok(()) };
    // Cards say the launcher's number of their rank: only if that is MPI's, both can be compared.
    if refusal::rank().is_none_or(|rank| rank != own.to_string()) {
        return Ok(());
    }
    let mut in_memory = Vec::new();
    for rank in (0..size).filter(|&rank| rank != own) {
        provider(i64::from(rank));
        let send = mpi.send(mpi.world, rank, CALL_TAG)?;
        if provider(NOBODY) > 0 {
            mpi.wait(send)?;
        } else {
            in_memory.push((rank, send));
        }
    }
    for (rank, send) in in_memory {
        let receive = mpi.receive(mpi.world, rank, CALL_TAG)?;
        mpi.wait(send)?;
        mpi.wait(receive)?;
    }
    Ok(())
}

const NOBODY: i64 = -1;
/// The tag by which the provider knows the call; every MPI has tags up to 32767.
const CALL_TAG: c_int = 0x4742;
