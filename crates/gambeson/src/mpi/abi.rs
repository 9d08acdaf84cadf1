//! The two C ABIs an MPI library on Linux comes in, as two tables of constants.
//!
//! MPICH and everything that keeps its ABI (Intel MPI, MVAPICH, Cray MPICH) have integer handles
//! whose values are fixed; Open MPI (4.1 and 5.0 alike) has pointers to objects that the library
//! exports. The values are those of the two `mpi.h` files.

use std::ffi::{CStr, c_int, c_void};
use std::fmt::Debug;

use super::library;

/// What a program has to know of an MPI library's ABI before it can call it.
pub(crate) trait Abi: Copy + 'static {
    /// `MPI_Comm`, `MPI_Datatype`, `MPI_Request` and the rest: all of one kind in either ABI.
    type Handle: Copy + PartialEq + Debug + 'static;

    /// Name for people.
    const NAME: &'static str;
    /// `MPI_ANY_SOURCE`.
    const ANY_SOURCE: c_int;
    /// `MPI_LOCK_EXCLUSIVE`.
    const LOCK_EXCLUSIVE: c_int;
    /// `MPI_ORDER_C`.
    const ORDER_C: c_int;
    /// `MPI_STATUSES_IGNORE`.
    const STATUSES_IGNORE: *mut Status;
    /// Where `MPI_SOURCE` and `MPI_TAG` are, counted in `int`s from the start of a status.
    const STATUS_SOURCE_AND_TAG: (usize, usize);
    /// Room that `MPI_Buffer_attach` needs for each message besides its bytes.
    const BSEND_OVERHEAD: usize;

    /// The predefined handles, looked up in the library where they are addresses.
    ///
    /// # Errors
    /// Names the symbol that the library lacks.
    fn handles() -> Result<Handles<Self::Handle>, &'static CStr>;
}

/// `MPI_ANY_TAG`, the same in both.
pub(crate) const ANY_TAG: c_int = -1;

/// Predefined handles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handles<H> {
    pub(crate) world: H,
    pub(crate) comm_null: H,
    pub(crate) request_null: H,
    pub(crate) info_null: H,
    pub(crate) byte: H,
    /// `MPI_UINT64_T`, the element of every reduction here.
    pub(crate) word: H,
    pub(crate) bit_or: H,
    pub(crate) replace: H,
    pub(crate) errors_return: H,
}

/// Room for a status of either ABI (20 or 24 bytes), read only through [`Status::source_and_tag`].
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status([c_int; 8]);

impl Status {
    /// Sender and tag of the message that the status speaks of.
    pub(crate) fn source_and_tag<A: Abi>(&self) -> (c_int, c_int) {
        let (source, tag) = A::STATUS_SOURCE_AND_TAG;
        (self.0[source], self.0[tag])
    }
}

/// MPICH, Intel MPI, MVAPICH.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mpich;

impl Abi for Mpich {
    type Handle = c_int;

    const NAME: &'static str = "MPICH ABI";
    const ANY_SOURCE: c_int = -2;
    const LOCK_EXCLUSIVE: c_int = 234;
    const ORDER_C: c_int = 56;
    const STATUSES_IGNORE: *mut Status = std::ptr::without_provenance_mut(1);
    const STATUS_SOURCE_AND_TAG: (usize, usize) = (2, 3);
    const BSEND_OVERHEAD: usize = 96;

    fn handles() -> Result<Handles<c_int>, &'static CStr> {
        Ok(Handles {
            world: 0x4400_0000,
            comm_null: 0x0400_0000,
            request_null: 0x2c00_0000,
            info_null: 0x1c00_0000,
            byte: 0x4c00_010d,
            word: 0x4c00_083e,
            bit_or: 0x5800_0008,
            replace: 0x5800_000d,
            errors_return: 0x5400_0001,
        })
    }
}

/// Open MPI 4.1 and 5.0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMpi;

impl Abi for OpenMpi {
    type Handle = *mut c_void;

    const NAME: &'static str = "Open MPI ABI";
    const ANY_SOURCE: c_int = -1;
    const LOCK_EXCLUSIVE: c_int = 1;
    const ORDER_C: c_int = 0;
    const STATUSES_IGNORE: *mut Status = std::ptr::null_mut();
    const STATUS_SOURCE_AND_TAG: (usize, usize) = (0, 1);
    const BSEND_OVERHEAD: usize = 128;

    fn handles() -> Result<Handles<*mut c_void>, &'static CStr> {
        let object = |name: &'static CStr| library::symbol(name).ok_or(name);
        Ok(Handles {
            world: object(c"ompi_mpi_comm_world")?,
            comm_null: object(c"ompi_mpi_comm_null")?,
            request_null: object(c"ompi_request_null")?,
            info_null: object(c"ompi_mpi_info_null")?,
            byte: object(c"ompi_mpi_byte")?,
            word: object(c"ompi_mpi_uint64_t")?,
            bit_or: object(c"ompi_mpi_op_bor")?,
            replace: object(c"ompi_mpi_op_replace")?,
            errors_return: object(c"ompi_mpi_errors_return")?,
        })
    }
}
