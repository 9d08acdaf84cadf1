//! What ranks tell each other about a file: short messages of all to all, over the handle's own communicator.

use std::ffi::c_int;

use crate::error::Failure;
use crate::mpi::Mpi;

/// The ranks of a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks {
    pub(crate) communicator: usize,
    pub(crate) rank: i32,
    pub(crate) size: i32,
}

impl Ranks {
    /// As many numbers of each rank, in order of rank.
    pub(crate) fn gather(&self, mpi: &Mpi, own: &[i64]) -> Result<Vec<i64>, Failure> {
        let mut all = vec![0_i64; own.len() * self.size as usize];
        let count = own.len() as c_int;
        let int64 = mpi.abi.int64;
        let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: every rank gives and takes this many MPI_INT64_T.
        let begin = |request| unsafe {
            (mpi.call.iallgather)(from, count, int64, to, count, int64, self.communicator, request)
        };
        mpi.complete(begin, "MPI_Iallgather")?;
        Ok(all)
    }

    /// The greatest of each of some numbers of all ranks.
    pub(crate) fn max<const N: usize>(&self, mpi: &Mpi, own: [i64; N]) -> Result<[i64; N], Failure> {
        mpi.max(own, self.communicator)
    }

    /// Whether anything is so at any rank.
    pub(crate) fn any(&self, mpi: &Mpi, own: bool) -> Result<bool, Failure> {
        Ok(self.max(mpi, [i64::from(own)])? != [0])
    }

    /// Waits until all ranks are here.
    pub(crate) fn wait(&self, mpi: &Mpi) -> Result<(), Failure> {
        mpi.barrier(self.communicator)
    }

    /// Bytes of one rank for all. Those of a short message go with their number.
    pub(crate) fn broadcast(&self, mpi: &Mpi, root: i32, own: Option<Vec<u8>>) -> Result<Vec<u8>, Failure> {
        let mut first = [0_u8; FIRST];
        if let Some(bytes) = &own {
            let short = bytes.len().min(FIRST - 8);
            first[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            first[8..8 + short].copy_from_slice(&bytes[..short]);
        }
        mpi.broadcast(&mut first, root, self.communicator)?;
        let (length, short) = first.split_first_chunk::<8>().expect("it is longer");
        let length = u64::from_le_bytes(*length) as usize;
        let mut bytes = own.unwrap_or_else(|| short[..length.min(short.len())].to_vec());
        bytes.resize(length, 0);
        for part in bytes.chunks_mut(CHUNK).filter(|_| length > short.len()) {
            mpi.broadcast(part, root, self.communicator)?;
        }
        Ok(bytes)
    }

    /// How something went that one rank alone has done: all hear of it, and fail if it has failed.
    pub(crate) fn told(&self, mpi: &Mpi, who: i32, done: Option<Result<(), Failure>>) -> Result<(), Failure> {
        self.told_bytes(mpi, who, done.map(|done| done.map(|()| Vec::new()))).map(|_| ())
    }

    /// As [`Ranks::told`], with what came of it.
    pub(crate) fn told_bytes(
        &self,
        mpi: &Mpi,
        who: i32,
        done: Option<Result<Vec<u8>, Failure>>,
    ) -> Result<Vec<u8>, Failure> {
        let message = done.as_ref().map(|done| match done {
            Ok(bytes) => [&[0; 5], &bytes[..]].concat(),
            Err(failure) => [&[1], &failure.class.to_le_bytes()[..], failure.sentence.as_bytes()].concat(),
        });
        let mut message = self.broadcast(mpi, who, message)?;
        if let Some(Err(failure)) = done {
            return Err(failure);
        }
        let bytes = message.split_off(5);
        let class = c_int::from_le_bytes(message[1..].try_into().expect("4 of 5 bytes"));
        if message[0] == 0 { Ok(bytes) } else { Err(Failure::new(class, String::from_utf8_lossy(&bytes))) }
    }

    /// The same message of each rank for all.
    pub(crate) fn told_by_all(&self, mpi: &Mpi, message: Vec<u8>) -> Result<Messages, Failure> {
        self.exchange(mpi, &vec![message; self.size as usize])
    }

    /// A message of each rank for each. Who has none for another sends it nothing.
    pub(crate) fn exchange(&self, mpi: &Mpi, outgoing: &[Vec<u8>]) -> Result<Messages, Failure> {
        let lengths: Vec<i64> = outgoing.iter().map(|message| message.len() as i64).collect();
        let mut incoming = vec![0_i64; lengths.len()];
        let (from, to, int64) = (lengths.as_ptr().cast(), incoming.as_mut_ptr().cast(), mpi.abi.int64);
        // SAFETY: one MPI_INT64_T for each rank goes out and comes in.
        let begin = |request| unsafe { (mpi.call.ialltoall)(from, 1, int64, to, 1, int64, self.communicator, request) };
        mpi.complete(begin, "MPI_Ialltoall")?;
        let mut messages = Messages::of(&incoming);
        let own = self.rank as usize;
        let communicator = self.communicator;
        let mut transfers = Transfers { mpi, communicator, under_way: Vec::new(), failed: None };
        for (source, room) in messages.each_mut().enumerate() {
            if source == own {
                room.copy_from_slice(&outgoing[own]);
            } else {
                room.chunks_mut(CHUNK).for_each(|part| transfers.receive(part, source));
            }
        }
        // Not all to the first of them at once.
        for to in (1..outgoing.len()).map(|next| (own + next) % outgoing.len()) {
            outgoing[to].chunks(CHUNK).for_each(|part| transfers.send(part, to));
        }
        transfers.finish()?;
        Ok(messages)
    }
}

/// What all ranks have sent to this one.
#[derive(Debug)]
pub(crate) struct Messages {
    /// One after the other, in order of rank.
    pub(crate) bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Messages {
    fn of(lengths: &[i64]) -> Self {
        let lengths: Vec<usize> = lengths.iter().map(|&length| length as usize).collect();
        Messages { bytes: vec![0; lengths.iter().sum()], lengths }
    }

    fn each_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut rest = &mut self.bytes[..];
        self.lengths.iter().map(move |&length| rest.split_off_mut(..length).expect("they have as many bytes together"))
    }

    /// Each, with where it begins.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let starts = self.lengths.iter().scan(0, |at, &length| Some(std::mem::replace(at, *at + length)));
        starts.zip(&self.lengths).map(|(start, &length)| (start, &self.bytes[start..start + length]))
    }
}

/// Messages under way, whose buffers stay where they are until all are there.
struct Transfers<'m> {
    mpi: &'m Mpi,
    communicator: usize,
    under_way: Vec<usize>,
    failed: Option<Failure>,
}

impl Transfers<'_> {
    fn receive(&mut self, into: &mut [u8], source: usize) {
        let (mpi, count, mut request) = (self.mpi, into.len() as c_int, 0_usize);
        let (room, source) = (into.as_mut_ptr().cast(), source as c_int);
        // SAFETY: the buffer has so many bytes, and is there until `finish`.
        let status =
            unsafe { (mpi.call.irecv)(room, count, mpi.abi.byte, source, TAG, self.communicator, &raw mut request) };
        self.begun(status, request, "MPI_Irecv");
    }

    fn send(&mut self, from: &[u8], to: usize) {
        let (mpi, count, mut request) = (self.mpi, from.len() as c_int, 0_usize);
        let (data, to) = (from.as_ptr().cast(), to as c_int);
        // SAFETY: as above.
        let status =
            unsafe { (mpi.call.isend)(data, count, mpi.abi.byte, to, TAG, self.communicator, &raw mut request) };
        self.begun(status, request, "MPI_Isend");
    }

    fn begun(&mut self, status: c_int, request: usize, call: &str) {
        match self.mpi.check(status, call) {
            Ok(()) => self.under_way.push(self.mpi.abi.handle(request)),
            Err(failure) => self.note(failure),
        }
    }

    fn note(&mut self, failure: Failure) {
        self.failed.get_or_insert(failure);
    }

    /// Waits for all of them, whatever becomes of one: their buffers go next.
    fn finish(mut self) -> Result<(), Failure> {
        for request in std::mem::take(&mut self.under_way) {
            if let Err(failure) = self.mpi.wait(request, "MPI_Test") {
                self.note(failure);
            }
        }
        self.failed.map_or(Ok(()), Err)
    }
}

/// Bytes of a message of one rank for all that go with its length.
const FIRST: usize = 1024;
/// Bytes that go at once: the counts of the calls are `int`s.
const CHUNK: usize = 1 << 30;
const TAG: c_int = 0;
