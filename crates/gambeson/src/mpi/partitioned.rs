//! Partitioned point-to-point communication (MPI 4.0, chapter 4), where the library has it.

use std::ffi::c_int;

use super::{Abi, Communicator, Outcome, call, count};

impl<A: Abi> Communicator<A> {
    /// `MPI_Psend_init`, started, every partition made ready in turn, completed.
    pub(crate) fn send_partitioned(&self, data: &[u8], partitions: usize, to: c_int, tag: c_int) -> Outcome {
        assert!(data.len().is_multiple_of(partitions));
        let (byte, info) = (self.mpi.handles.byte, self.mpi.handles.info_null);
        let (parts, each) = (count(partitions), i64::from(count(data.len() / partitions)));
        let mut request = self.mpi.handles.request_null;
        // SAFETY: `parts` partitions of `each` bytes are the whole of `data`, which stays borrowed
        // until the wait below has ended the operation.
        unsafe {
            call!(
                self.mpi,
                psend_init(data.as_ptr().cast(), parts, each, byte, to, tag, self.handle, info, &mut request)
            )?;
            call!(self.mpi, start(&mut request))?;
            for partition in 0..parts {
                call!(self.mpi, pready(partition, request))?;
            }
        }
        self.finish_partitioned(request)
    }

    /// `MPI_Precv_init`, started and completed.
    pub(crate) fn receive_partitioned(&self, room: &mut [u8], partitions: usize, from: c_int, tag: c_int) -> Outcome {
        assert!(room.len().is_multiple_of(partitions));
        let (byte, info) = (self.mpi.handles.byte, self.mpi.handles.info_null);
        let (parts, each) = (count(partitions), i64::from(count(room.len() / partitions)));
        let mut request = self.mpi.handles.request_null;
        // SAFETY: as for sending; `room` stays borrowed mutably until the wait.
        unsafe {
            call!(
                self.mpi,
                precv_init(room.as_mut_ptr().cast(), parts, each, byte, from, tag, self.handle, info, &mut request)
            )?;
            call!(self.mpi, start(&mut request))?;
        }
        self.finish_partitioned(request)
    }

    fn finish_partitioned(&self, mut request: A::Handle) -> Outcome {
        let waited = self.wait(&mut request);
        // SAFETY: the request is complete and not used again.
        waited.and(unsafe { call!(self.mpi, request_free(&mut request)) })
    }
}
