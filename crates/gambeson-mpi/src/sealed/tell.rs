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
        // SAFETY: every rank gives and takes this many MPI_INT64_T.
        let status = unsafe {
            (mpi.call.allgather)(
                own.as_ptr().cast(),
                count,
                int64,
                all.as_mut_ptr().cast(),
                count,
                int64,
                self.communicator,
            )
        };
        mpi.check(status, "MPI_Allgather")?;
        Ok(all)
    }

    /// The greatest number of any rank.
    pub(crate) fn max(&self, mpi: &Mpi, own: i64) -> Result<i64, Failure> {
        mpi.reduce(own, mpi.abi.max, self.communicator)
    }

    /// Bytes of one rank for all.
    pub(crate) fn broadcast(&self, mpi: &Mpi, root: i32, own: Option<Vec<u8>>) -> Result<Vec<u8>, Failure> {
        let mut length = own.as_ref().map_or(0, Vec::len).to_le_bytes();
        mpi.broadcast(&mut length, root, self.communicator)?;
        let mut bytes = own.unwrap_or_default();
        bytes.resize(usize::from_le_bytes(length), 0);
        for part in bytes.chunks_mut(CHUNK) {
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

    /// A message of each rank for each.
    pub(crate) fn exchange(&self, mpi: &Mpi, outgoing: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Failure> {
        let lengths: Vec<i64> = outgoing.iter().map(|message| message.len() as i64).collect();
        let mut incoming = vec![0_i64; lengths.len()];
        let (call, int64) = (&mpi.call, mpi.abi.int64);
        // SAFETY: one MPI_INT64_T for each rank goes out and comes in.
        let status = unsafe {
            (call.alltoall)(
                lengths.as_ptr().cast(),
                1,
                int64,
                incoming.as_mut_ptr().cast(),
                1,
                int64,
                self.communicator,
            )
        };
        mpi.check(status, "MPI_Alltoall")?;
        let mut received: Vec<Vec<u8>> = incoming.iter().map(|&length| Vec::with_capacity(length as usize)).collect();
        // Counts and places are `int`s: what is longer goes in rounds, the same number at all ranks.
        let longest = lengths.iter().chain(&incoming).max().copied().unwrap_or(0);
        let per_round = (ROUND / self.size as usize).max(1);
        let rounds = (self.max(mpi, longest)? as usize).div_ceil(per_round);
        for round in 0..rounds {
            let part = |length: usize| length.saturating_sub(round * per_round).min(per_round);
            let mut out = buffer(outgoing.iter().map(|message| part(message.len())).sum());
            for message in outgoing {
                let from = (round * per_round).min(message.len());
                out.extend_from_slice(&message[from..][..part(message.len())]);
            }
            let (out_counts, out_places) = places(outgoing.iter().map(|message| part(message.len())));
            let (in_counts, in_places) = places(incoming.iter().map(|&length| part(length as usize)));
            let length = in_counts.iter().map(|&count| count as usize).sum();
            let mut room = buffer(length);
            room.resize(length, 0);
            // SAFETY: counts and places describe both buffers.
            let status = unsafe {
                (call.alltoallv)(
                    out.as_ptr().cast(),
                    out_counts.as_ptr(),
                    out_places.as_ptr(),
                    mpi.abi.byte,
                    room.as_mut_ptr().cast(),
                    in_counts.as_ptr(),
                    in_places.as_ptr(),
                    mpi.abi.byte,
                    self.communicator,
                )
            };
            mpi.check(status, "MPI_Alltoallv")?;
            for (message, (&at, &count)) in received.iter_mut().zip(in_places.iter().zip(&in_counts)) {
                message.extend_from_slice(&room[at as usize..][..count as usize]);
            }
        }
        Ok(received)
    }
}

/// A buffer with an address of its own even if it is to stay empty: that of an empty vector is MPI_IN_PLACE to Open MPI.
fn buffer(length: usize) -> Vec<u8> {
    Vec::with_capacity(length.max(1))
}

fn places(lengths: impl Iterator<Item = usize>) -> (Vec<c_int>, Vec<c_int>) {
    let counts: Vec<c_int> = lengths.map(|length| length as c_int).collect();
    let places = counts.iter().scan(0, |at, &count| Some(std::mem::replace(at, *at + count))).collect();
    (counts, places)
}

/// Bytes that are broadcast at once.
const CHUNK: usize = 1 << 30;
/// Bytes that a rank has out or in at once.
const ROUND: usize = 1 << 30;
