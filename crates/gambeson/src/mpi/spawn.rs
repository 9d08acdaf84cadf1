//! Processes started by processes (MPI 4.0, chapter 11).

use std::ffi::{CString, c_int};
use std::path::Path;
use std::rc::Rc;

use super::{Abi, Communicator, Failure, Mpi, Outcome, Ownership, call};

impl<A: Abi> Communicator<A> {
    /// `MPI_Comm_spawn` of one process by rank 0; returns the communicator with it.
    pub(crate) fn spawn(&self, program: &Path, arguments: &[String]) -> Outcome<Child<A>> {
        let c_string = |text: &str| {
            CString::new(text).map_err(|_| Failure::WrongData("an argument to spawn holds a zero byte".into()))
        };
        let program = c_string(&program.to_string_lossy())?;
        let arguments = arguments.iter().map(|text| c_string(text)).collect::<Outcome<Vec<_>>>()?;
        let mut pointers: Vec<*mut _> = arguments.iter().map(|text| text.as_ptr().cast_mut()).collect();
        pointers.push(std::ptr::null_mut());
        let info = self.mpi.handles.info_null;
        let mut handle = self.mpi.handles.comm_null;
        let mut codes: [c_int; 1] = [0];
        // SAFETY: program and arguments are C strings that outlive the call, the list ends with
        // null, and there is room for the one error code.
        unsafe {
            call!(
                self.mpi,
                comm_spawn(
                    program.as_ptr(),
                    pointers.as_mut_ptr(),
                    1,
                    info,
                    0,
                    self.handle,
                    &mut handle,
                    codes.as_mut_ptr(),
                )
            )
        }?;
        Ok(Child(Communicator::adopt(&self.mpi, handle, Ownership::Predefined)?))
    }
}

impl<A: Abi> Mpi<A> {
    /// The communicator with the processes that spawned this one, if any did.
    pub(crate) fn parent(self: &Rc<Self>) -> Outcome<Option<Child<A>>> {
        let mut handle = self.handles.comm_null;
        // SAFETY: room for a handle.
        unsafe { call!(self, comm_get_parent(&mut handle)) }?;
        if handle == self.handles.comm_null {
            return Ok(None);
        }
        Ok(Some(Child(Communicator::adopt(self, handle, Ownership::Predefined)?)))
    }
}

/// An intercommunicator between a spawned process and those that spawned it.
pub(crate) struct Child<A: Abi>(pub(crate) Communicator<A>);

impl<A: Abi> Child<A> {
    /// `MPI_Comm_disconnect`.
    pub(crate) fn disconnect(mut self) -> Outcome {
        // SAFETY: the handle is live and not used again (nothing is freed on drop).
        unsafe { call!(self.0.mpi, comm_disconnect(&mut self.0.handle)) }
    }
}
