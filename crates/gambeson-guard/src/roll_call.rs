//! Calls the roll of MPI_COMM_WORLD, so that the provider learns which address MPI takes for which rank.
//!
//! The addresses come from MPI's own exchange, and only MPI knows whose it takes each for. So every
//! rank is sent an empty message through MPI: the provider looks at the address that it comes with,
//! sends nothing, and stops the process if the address belongs to another rank. A message that never
//! comes to the provider went through the shared memory of the host, and is received over there.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{provider, real, refusal};

/// Calls every other rank, once in a process.
pub(crate) fn call() {
    static CALLED: AtomicBool = AtomicBool::new(false);
    let (Some(provider), Some(mpi)) = (provider::roll_call(), Mpi::find()) else { return };
    if CALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    let (own, size) = (mpi.number(mpi.comm_rank), mpi.number(mpi.comm_size));
    // Cards say the launcher's number of their rank: only if that is MPI's, both can be compared.
    if refusal::rank().is_none_or(|rank| rank != own.to_string()) {
        return;
    }
    let others = (0..size).filter(|&rank| rank != own);
    let in_memory: Vec<_> = others
        .filter_map(|rank| {
            provider(i64::from(rank));
            let send = mpi.start(mpi.isend, rank);
            if provider(NOBODY) > 0 {
                mpi.finish(send);
                return None;
            }
            Some((rank, send))
        })
        .collect();
    for (rank, send) in in_memory {
        let receive = mpi.start(mpi.irecv, rank);
        mpi.finish(send);
        mpi.finish(receive);
    }
}

/// What is called of the MPI library. Handles and numbers are a machine word each, as in the stand-ins.
struct Mpi {
    comm_rank: Word2,
    comm_size: Word2,
    isend: Word7,
    irecv: Word7,
    wait: Word2,
    world: usize,
    byte: usize,
    status_ignore: usize,
}

type Word2 = unsafe extern "C" fn(usize, usize) -> c_int;
type Word7 = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> c_int;

impl Mpi {
    fn find() -> Option<Self> {
        let find = |name| real::function(name, std::ptr::null());
        // SAFETY: the addresses are those of the MPI library's functions of these names, which take two words.
        let two = |name| find(name).map(|address| unsafe { std::mem::transmute::<*const c_void, Word2>(address) });
        // SAFETY: as above, with seven.
        let seven = |name| find(name).map(|address| unsafe { std::mem::transmute::<*const c_void, Word7>(address) });
        // Open MPI's handles are the addresses of objects, MPICH's are numbers that its ABI fixes.
        let (world, byte, status_ignore) = match (real::object(c"ompi_mpi_comm_world"), real::object(c"ompi_mpi_byte"))
        {
            (Some(world), Some(byte)) => (world as usize, byte as usize, 0),
            _ => (0x4400_0000, 0x4c00_010d, 1),
        };
        Some(Mpi {
            comm_rank: two("PMPI_Comm_rank")?,
            comm_size: two("PMPI_Comm_size")?,
            isend: seven("PMPI_Isend")?,
            irecv: seven("PMPI_Irecv")?,
            wait: two("PMPI_Wait")?,
            world,
            byte,
            status_ignore,
        })
    }

    /// What MPI_Comm_rank or MPI_Comm_size says of the world.
    fn number(&self, function: Word2) -> c_int {
        let mut number: c_int = 0;
        // SAFETY: MPI is started, and the result is ours.
        unsafe { function(self.world, (&raw mut number) as usize) };
        number
    }

    /// Begins to send nothing to a rank, or to receive it; the request.
    fn start(&self, function: Word7, rank: c_int) -> usize {
        let (mut nothing, mut request) = (0_u8, 0_usize);
        let buffer = (&raw mut nothing) as usize;
        // SAFETY: no byte of the buffer is touched; a request is a word or less.
        unsafe { function(buffer, 0, self.byte, rank as usize, CALL_TAG, self.world, (&raw mut request) as usize) };
        request
    }

    fn finish(&self, mut request: usize) {
        // SAFETY: the request is one that `start` got from MPI.
        unsafe { (self.wait)((&raw mut request) as usize, self.status_ignore) };
    }
}

const NOBODY: i64 = -1;
/// The tag by which the provider knows the call; every MPI has tags up to 32767.
const CALL_TAG: usize = 0x4742;
