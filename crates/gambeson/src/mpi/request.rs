//! Nonblocking and persistent operations whose buffers stay borrowed until they are complete.

use std::marker::PhantomData;

use super::{Abi, Communicator, Mode, Outcome, Source, Target, call, count};

/// Operations under way together; made by [`Communicator::together`] and [`Communicator::persistently`].
pub(crate) struct Requests<'b, 'c, A: Abi> {
    communicator: &'c Communicator<A>,
    handles: Vec<A::Handle>,
    buffers: PhantomData<&'b mut [u8]>,
}

impl<A: Abi> Communicator<A> {
    /// Starts nonblocking operations with `start` and returns when all of them are complete.
    pub(crate) fn together<'b>(&self, start: impl FnOnce(&mut Requests<'b, '_, A>) -> Outcome) -> Outcome {
        let mut requests = Requests { communicator: self, handles: Vec::new(), buffers: PhantomData };
        let guard = AbortOnUnwind;
        let started = start(&mut requests);
        if started.is_err() {
            requests.cancel();
        }
        let completed = requests.wait();
        std::mem::forget(guard);
        started.and(completed)
    }

    /// Makes persistent operations with `make`, starts them, does `meanwhile` and completes them.
    pub(crate) fn persistently<'b>(
        &self,
        make: impl FnOnce(&mut Requests<'b, '_, A>) -> Outcome,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome {
        let mut requests = Requests { communicator: self, handles: Vec::new(), buffers: PhantomData };
        let guard = AbortOnUnwind;
        // An operation that was made and never started touches no memory: an error here is safe.
        let outcome = make(&mut requests).and_then(|()| {
            requests.start()?;
            let done = meanwhile();
            done.and(requests.wait())
        });
        requests.free();
        std::mem::forget(guard);
        outcome
    }
}

impl<'b, A: Abi> Requests<'b, '_, A> {
    /// `MPI_Isend` and its three relatives.
    pub(crate) fn send(&mut self, mode: Mode, data: Source<'b, A>, to: i32, tag: i32) -> Outcome {
        let (mpi, communicator) = (&self.communicator.mpi, self.communicator.handle);
        let mut request = mpi.handles.request_null;
        let Source { address, count, datatype, .. } = data;
        // SAFETY: the source lives for 'b, which outlasts the wait at the end of `together`.
        unsafe {
            match mode {
                Mode::Standard => call!(mpi, isend(address, count, datatype, to, tag, communicator, &mut request)),
                Mode::Synchronous => call!(mpi, issend(address, count, datatype, to, tag, communicator, &mut request)),
                Mode::Buffered => call!(mpi, ibsend(address, count, datatype, to, tag, communicator, &mut request)),
                Mode::Ready => call!(mpi, irsend(address, count, datatype, to, tag, communicator, &mut request)),
            }
        }?;
        self.handles.push(request);
        Ok(())
    }

    /// `MPI_Irecv`.
    pub(crate) fn receive(&mut self, room: Target<'b, A>, from: i32, tag: i32) -> Outcome {
        let (mpi, communicator) = (&self.communicator.mpi, self.communicator.handle);
        let mut request = mpi.handles.request_null;
        let Target { address, count, datatype, .. } = room;
        // SAFETY: the target is borrowed mutably for 'b, which outlasts the wait.
        unsafe { call!(mpi, irecv(address, count, datatype, from, tag, communicator, &mut request)) }?;
        self.handles.push(request);
        Ok(())
    }

    /// `MPI_Send_init` and its three relatives, for [`Communicator::persistently`].
    pub(crate) fn send_init(&mut self, mode: Mode, data: Source<'b, A>, to: i32, tag: i32) -> Outcome {
        let (mpi, communicator) = (&self.communicator.mpi, self.communicator.handle);
        let mut request = mpi.handles.request_null;
        let Source { address, count, datatype, .. } = data;
        // SAFETY: the source lives for 'b, which outlasts the wait of `persistently`.
        unsafe {
            match mode {
                Mode::Standard => call!(mpi, send_init(address, count, datatype, to, tag, communicator, &mut request)),
                Mode::Synchronous => {
                    call!(mpi, ssend_init(address, count, datatype, to, tag, communicator, &mut request))
                }
                Mode::Buffered => call!(mpi, bsend_init(address, count, datatype, to, tag, communicator, &mut request)),
                Mode::Ready => call!(mpi, rsend_init(address, count, datatype, to, tag, communicator, &mut request)),
            }
        }?;
        self.handles.push(request);
        Ok(())
    }

    /// `MPI_Recv_init`, for [`Communicator::persistently`].
    pub(crate) fn receive_init(&mut self, room: Target<'b, A>, from: i32, tag: i32) -> Outcome {
        let (mpi, communicator) = (&self.communicator.mpi, self.communicator.handle);
        let mut request = mpi.handles.request_null;
        let Target { address, count, datatype, .. } = room;
        // SAFETY: the target is borrowed mutably for 'b, which outlasts the wait.
        unsafe { call!(mpi, recv_init(address, count, datatype, from, tag, communicator, &mut request)) }?;
        self.handles.push(request);
        Ok(())
    }

    fn start(&mut self) -> Outcome {
        for handle in &mut self.handles {
            // SAFETY: a persistent request that is not active.
            unsafe { call!(self.communicator.mpi, start(handle)) }?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Outcome {
        let (number, handles) = (count(self.handles.len()), self.handles.as_mut_ptr());
        // SAFETY: the array holds as many requests as the count states.
        unsafe { call!(self.communicator.mpi, waitall(number, handles, A::STATUSES_IGNORE)) }
    }

    fn cancel(&mut self) {
        for handle in &mut self.handles {
            // SAFETY: the request is active; it is waited for afterwards.
            let _ = unsafe { call!(self.communicator.mpi, cancel(handle)) };
        }
    }

    fn free(&mut self) {
        for handle in &mut self.handles {
            // SAFETY: the request is not active and is not used again.
            let _ = unsafe { call!(self.communicator.mpi, request_free(handle)) };
        }
    }
}

/// Buffers must not be given back while the library may still write to them, not even by a panic.
pub(super) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}
