//! Blocking point-to-point communication and probing (MPI 4.0, chapter 3).

use std::ffi::c_int;

use super::abi::Status;
use super::{ANY_TAG, Abi, Communicator, Failure, Outcome, Source, Target, call, count};

/// The four ways of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Standard,
    Synchronous,
    Buffered,
    Ready,
}

/// A message that a probe has taken out of the queue.
pub(crate) struct Matched<A: Abi> {
    handle: A::Handle,
    /// Its length in bytes.
    pub(crate) length: usize,
}

impl<A: Abi> Communicator<A> {
    /// `MPI_Send`, `MPI_Ssend`, `MPI_Bsend`, `MPI_Rsend`.
    pub(crate) fn send(&self, mode: Mode, data: Source<'_, A>, to: c_int, tag: c_int) -> Outcome {
        let Source { address, count, datatype, .. } = data;
        // SAFETY: the source is borrowed for the call, and these return when it may be used again.
        unsafe {
            match mode {
                Mode::Standard => call!(self.mpi, send(address, count, datatype, to, tag, self.handle)),
                Mode::Synchronous => call!(self.mpi, ssend(address, count, datatype, to, tag, self.handle)),
                Mode::Buffered => call!(self.mpi, bsend(address, count, datatype, to, tag, self.handle)),
                Mode::Ready => call!(self.mpi, rsend(address, count, datatype, to, tag, self.handle)),
            }
        }
    }

    /// `MPI_Recv`.
    pub(crate) fn receive(&self, room: Target<'_, A>, from: c_int, tag: c_int) -> Outcome {
        let mut status = Status::default();
        let Target { address, count, datatype, .. } = room;
        // SAFETY: the target is borrowed mutably for the call.
        unsafe { call!(self.mpi, recv(address, count, datatype, from, tag, self.handle, &mut status)) }?;
        self.check_status(&status, from, tag)
    }

    /// `MPI_Sendrecv` with the same partner both ways.
    pub(crate) fn exchange(&self, data: Source<'_, A>, room: Target<'_, A>, peer: c_int, tag: c_int) -> Outcome {
        let mut status = Status::default();
        // SAFETY: one side is borrowed shared and the other mutably, so they do not overlap.
        unsafe {
            call!(
                self.mpi,
                sendrecv(
                    data.address,
                    data.count,
                    data.datatype,
                    peer,
                    tag,
                    room.address,
                    room.count,
                    room.datatype,
                    peer,
                    tag,
                    self.handle,
                    &mut status,
                )
            )
        }?;
        self.check_status(&status, peer, tag)
    }

    /// `MPI_Isendrecv`, completed.
    pub(crate) fn exchange_nonblocking(
        &self,
        data: Source<'_, A>,
        room: Target<'_, A>,
        peer: c_int,
        tag: c_int,
    ) -> Outcome {
        let mut request = self.mpi.handles.request_null;
        // SAFETY: as for MPI_Sendrecv; the wait ends the operation before the borrows do.
        unsafe {
            call!(
                self.mpi,
                isendrecv(
                    data.address,
                    data.count,
                    data.datatype,
                    peer,
                    tag,
                    room.address,
                    room.count,
                    room.datatype,
                    peer,
                    tag,
                    self.handle,
                    &mut request,
                )
            )?;
        }
        self.wait(&mut request)
    }

    /// `MPI_Sendrecv_replace`.
    pub(crate) fn replace(&self, room: Target<'_, A>, peer: c_int, tag: c_int) -> Outcome {
        let mut status = Status::default();
        let Target { address, count, datatype, .. } = room;
        // SAFETY: the target is borrowed mutably for the call.
        unsafe {
            call!(self.mpi, sendrecv_replace(address, count, datatype, peer, tag, peer, tag, self.handle, &mut status))
        }?;
        self.check_status(&status, peer, tag)
    }

    /// `MPI_Isendrecv_replace`, completed.
    pub(crate) fn replace_nonblocking(&self, room: Target<'_, A>, peer: c_int, tag: c_int) -> Outcome {
        let mut request = self.mpi.handles.request_null;
        let Target { address, count, datatype, .. } = room;
        // SAFETY: the target is borrowed mutably until the wait has ended the operation.
        unsafe {
            call!(
                self.mpi,
                isendrecv_replace(address, count, datatype, peer, tag, peer, tag, self.handle, &mut request)
            )
        }?;
        self.wait(&mut request)
    }

    /// `MPI_Probe` with wildcards where `from` or `tag` is absent: sender, tag and length.
    pub(crate) fn probe(&self, from: Option<c_int>, tag: Option<c_int>) -> Outcome<(c_int, c_int, usize)> {
        let (from, tag) = (from.unwrap_or(A::ANY_SOURCE), tag.unwrap_or(ANY_TAG));
        let mut status = Status::default();
        // SAFETY: plain integers and room for a status.
        unsafe { call!(self.mpi, probe(from, tag, self.handle, &mut status)) }?;
        self.describe(&status)
    }

    /// `MPI_Iprobe`.
    pub(crate) fn probe_now(&self, from: c_int, tag: c_int) -> Outcome<Option<(c_int, c_int, usize)>> {
        let mut status = Status::default();
        let mut found = 0;
        // SAFETY: plain integers and room for a flag and a status.
        unsafe { call!(self.mpi, iprobe(from, tag, self.handle, &mut found, &mut status)) }?;
        if found == 0 { Ok(None) } else { self.describe(&status).map(Some) }
    }

    /// `MPI_Mprobe`.
    pub(crate) fn match_probe(&self, from: c_int, tag: c_int) -> Outcome<Matched<A>> {
        let mut status = Status::default();
        let mut handle = self.mpi.handles.request_null;
        // SAFETY: plain integers and room for a message handle and a status.
        unsafe { call!(self.mpi, mprobe(from, tag, self.handle, &mut handle, &mut status)) }?;
        Ok(Matched { handle, length: self.describe(&status)?.2 })
    }

    /// `MPI_Improbe`.
    pub(crate) fn match_probe_now(&self, from: c_int, tag: c_int) -> Outcome<Option<Matched<A>>> {
        let mut status = Status::default();
        let mut handle = self.mpi.handles.request_null;
        let mut found = 0;
        // SAFETY: plain integers and room for a flag, a message handle and a status.
        unsafe { call!(self.mpi, improbe(from, tag, self.handle, &mut found, &mut handle, &mut status)) }?;
        if found == 0 {
            return Ok(None);
        }
        Ok(Some(Matched { handle, length: self.describe(&status)?.2 }))
    }

    /// `MPI_Mrecv`.
    pub(crate) fn receive_matched(&self, mut message: Matched<A>, room: Target<'_, A>) -> Outcome {
        let mut status = Status::default();
        let Target { address, count, datatype, .. } = room;
        // SAFETY: the message was matched and not received yet; the target is borrowed mutably.
        unsafe { call!(self.mpi, mrecv(address, count, datatype, &mut message.handle, &mut status)) }
    }

    /// `MPI_Imrecv`, completed.
    pub(crate) fn receive_matched_nonblocking(&self, mut message: Matched<A>, room: Target<'_, A>) -> Outcome {
        let mut request = self.mpi.handles.request_null;
        let Target { address, count, datatype, .. } = room;
        // SAFETY: as for MPI_Mrecv; the wait ends the operation before the borrow ends.
        unsafe { call!(self.mpi, imrecv(address, count, datatype, &mut message.handle, &mut request)) }?;
        self.wait(&mut request)
    }

    /// Runs `work` with a buffer attached that buffered sends of `capacity` bytes in all may use.
    pub(crate) fn with_buffer(&self, capacity: usize, work: impl FnOnce() -> Outcome) -> Outcome {
        let mut buffer = vec![0u8; capacity + 16 * A::BSEND_OVERHEAD];
        // SAFETY: the buffer stays where it is until MPI_Buffer_detach below, which returns when
        // every message in it has been sent. Should `work` panic the process ends.
        unsafe { call!(self.mpi, buffer_attach(buffer.as_mut_ptr().cast(), count(buffer.len()))) }?;
        let guard = super::request::AbortOnUnwind;
        let outcome = work();
        let mut address: *mut u8 = std::ptr::null_mut();
        let mut length = 0;
        // SAFETY: room for the pointer and the length that were attached.
        let detached = unsafe { call!(self.mpi, buffer_detach((&raw mut address).cast(), &mut length)) };
        std::mem::forget(guard);
        if detached.is_err() {
            // The library may still send from it.
            std::mem::forget(buffer);
        }
        outcome.and(detached)
    }

    /// `MPI_Wait`.
    pub(super) fn wait(&self, request: &mut A::Handle) -> Outcome {
        let mut status = Status::default();
        // SAFETY: a request of this library and room for a status.
        unsafe { call!(self.mpi, wait(request, &mut status)) }
    }

    fn describe(&self, status: &Status) -> Outcome<(c_int, c_int, usize)> {
        let mut length = 0;
        // SAFETY: a status that a probe or receive has filled in.
        unsafe { call!(self.mpi, get_count(status, self.mpi.handles.byte, &mut length)) }?;
        let (source, tag) = status.source_and_tag::<A>();
        Ok((source, tag, usize::try_from(length).unwrap_or(0)))
    }

    fn check_status(&self, status: &Status, from: c_int, tag: c_int) -> Outcome {
        let (source, found) = status.source_and_tag::<A>();
        if source == from && found == tag {
            return Ok(());
        }
        Err(Failure::WrongData(format!(
            "rank {} received a message from rank {source} with tag {found} where rank {from} with tag {tag} was asked for",
            self.rank
        )))
    }
}
