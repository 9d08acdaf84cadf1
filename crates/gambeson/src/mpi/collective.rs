//! Collective operations in their three forms, all complete on return (MPI 4.0, chapters 6 and 8).

use std::ffi::c_int;

use super::layout::WORD;
use super::symbols::Aint;
use super::{Abi, Communicator, Outcome, call, count};

/// The three forms in which the standard has every collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Blocking,
    Nonblocking,
    Persistent,
}

/// A buffer cut into one block for each process, of differing lengths, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    counts: Vec<c_int>,
    offsets: Vec<c_int>,
    total: usize,
}

impl Blocks {
    /// Blocks of these lengths.
    pub(crate) fn new(lengths: impl IntoIterator<Item = usize>) -> Self {
        let mut blocks = Self { counts: Vec::new(), offsets: Vec::new(), total: 0 };
        for length in lengths {
            blocks.counts.push(count(length));
            blocks.offsets.push(count(blocks.total));
            blocks.total += length;
        }
        blocks
    }

    /// Length of the whole buffer.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Where a block is in the buffer.
    pub(crate) fn range(&self, block: usize) -> std::ops::Range<usize> {
        let [at, length] = [self.offsets[block], self.counts[block]].map(|value| usize::try_from(value).unwrap_or(0));
        at..at + length
    }

    fn check(&self, buffer: usize, blocks: usize) {
        assert!(self.counts.len() == blocks && self.total <= buffer, "the blocks are as many as the peers and fit");
    }

    fn wide_offsets(&self) -> Vec<Aint> {
        self.offsets.iter().map(|&at| at as Aint).collect()
    }
}

/// Neighbours of a process in a ring: the one before and the one behind it.
pub(crate) const RING_NEIGHBOURS: usize = 2;

macro_rules! collective {
    ($self:ident, $form:ident, $blocking:ident | $nonblocking:ident | $persistent:ident ($($argument:expr),* $(,)?)) => {{
        let mut request = $self.mpi.handles.request_null;
        let info = $self.mpi.handles.info_null;
        match $form {
            Form::Blocking => call!($self.mpi, $blocking($($argument,)* $self.handle)),
            Form::Nonblocking => call!($self.mpi, $nonblocking($($argument,)* $self.handle, &mut request))
                .and_then(|()| $self.wait(&mut request)),
            Form::Persistent => call!($self.mpi, $persistent($($argument,)* $self.handle, info, &mut request))
                .and_then(|()| $self.start_and_wait(request)),
        }
    }};
}

impl<A: Abi> Communicator<A> {
    /// `MPI_Bcast`.
    pub(crate) fn broadcast(&self, form: Form, buffer: &mut [u8], root: c_int) -> Outcome {
        let (address, length, byte) = (buffer.as_mut_ptr().cast(), count(buffer.len()), self.mpi.handles.byte);
        // SAFETY: the buffer is borrowed mutably until the operation is complete.
        unsafe { collective!(self, form, bcast | ibcast | bcast_init(address, length, byte, root)) }
    }

    /// `MPI_Reduce` with `MPI_BOR` over words; `result` is written at the root only.
    pub(crate) fn reduce(&self, form: Form, data: &[u8], result: &mut [u8], root: c_int) -> Outcome {
        let words = self.same_words(data, result);
        let (from, to) = (data.as_ptr().cast(), result.as_mut_ptr().cast());
        let (word, or) = (self.mpi.handles.word, self.mpi.handles.bit_or);
        // SAFETY: both buffers hold `words` words and are borrowed until completion.
        unsafe { collective!(self, form, reduce | ireduce | reduce_init(from, to, words, word, or, root)) }
    }

    /// `MPI_Allreduce` with `MPI_BOR`.
    pub(crate) fn all_reduce(&self, form: Form, data: &[u8], result: &mut [u8]) -> Outcome {
        let words = self.same_words(data, result);
        let (from, to) = (data.as_ptr().cast(), result.as_mut_ptr().cast());
        let (word, or) = (self.mpi.handles.word, self.mpi.handles.bit_or);
        // SAFETY: both buffers hold `words` words and are borrowed until completion.
        unsafe { collective!(self, form, allreduce | iallreduce | allreduce_init(from, to, words, word, or)) }
    }

    /// `MPI_Scan` with `MPI_BOR`.
    pub(crate) fn scan(&self, form: Form, data: &[u8], result: &mut [u8]) -> Outcome {
        let words = self.same_words(data, result);
        let (from, to) = (data.as_ptr().cast(), result.as_mut_ptr().cast());
        let (word, or) = (self.mpi.handles.word, self.mpi.handles.bit_or);
        // SAFETY: both buffers hold `words` words and are borrowed until completion.
        unsafe { collective!(self, form, scan | iscan | scan_init(from, to, words, word, or)) }
    }

    /// `MPI_Exscan` with `MPI_BOR`; `result` stays as it is on rank 0.
    pub(crate) fn exclusive_scan(&self, form: Form, data: &[u8], result: &mut [u8]) -> Outcome {
        let words = self.same_words(data, result);
        let (from, to) = (data.as_ptr().cast(), result.as_mut_ptr().cast());
        let (word, or) = (self.mpi.handles.word, self.mpi.handles.bit_or);
        // SAFETY: both buffers hold `words` words and are borrowed until completion.
        unsafe { collective!(self, form, exscan | iexscan | exscan_init(from, to, words, word, or)) }
    }

    /// `MPI_Reduce_scatter` with `MPI_BOR` and blocks of `result.len()` bytes each.
    pub(crate) fn reduce_scatter(&self, form: Form, data: &[u8], result: &mut [u8]) -> Outcome {
        let words = self.scattered_words(data, result);
        let counts = vec![words; self.processes()];
        let (from, to) = (data.as_ptr().cast(), result.as_mut_ptr().cast());
        let (word, or) = (self.mpi.handles.word, self.mpi.handles.bit_or);
        // SAFETY: `data` holds a block for each process, `result` one; `counts` has one for each.
        unsafe {
            collective!(
                self,
                form,
                reduce_scatter | ireduce_scatter | reduce_scatter_init(from, to, counts.as_ptr(), word, or)
            )
        }
    }

    /// `MPI_Reduce_scatter_block` with `MPI_BOR`.
    pub(crate) fn reduce_scatter_block(&self, form: Form, data: &[u8], result: &mut [u8]) -> Outcome {
        let words = self.scattered_words(data, result);
        let (from, to) = (data.as_ptr().cast(), result.as_mut_ptr().cast());
        let (word, or) = (self.mpi.handles.word, self.mpi.handles.bit_or);
        // SAFETY: `data` holds a block for each process, `result` one.
        unsafe {
            collective!(
                self,
                form,
                reduce_scatter_block | ireduce_scatter_block | reduce_scatter_block_init(from, to, words, word, or)
            )
        }
    }

    /// `MPI_Gather`; `room` holds a block for each process at the root.
    pub(crate) fn gather(&self, form: Form, block: &[u8], room: &mut [u8], root: c_int) -> Outcome {
        assert!(self.rank != root || room.len() >= block.len() * self.processes());
        let (from, to, length) = (block.as_ptr().cast(), room.as_mut_ptr().cast(), count(block.len()));
        let byte = self.mpi.handles.byte;
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe { collective!(self, form, gather | igather | gather_init(from, length, byte, to, length, byte, root)) }
    }

    /// `MPI_Gatherv`.
    pub(crate) fn gather_v(&self, form: Form, block: &[u8], room: &mut [u8], blocks: &Blocks, root: c_int) -> Outcome {
        if self.rank == root {
            blocks.check(room.len(), self.processes());
        }
        assert!(blocks.range(self.place()).len() == block.len());
        let (from, to, length) = (block.as_ptr().cast(), room.as_mut_ptr().cast(), count(block.len()));
        let (byte, counts, offsets) = (self.mpi.handles.byte, blocks.counts.as_ptr(), blocks.offsets.as_ptr());
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                gatherv | igatherv | gatherv_init(from, length, byte, to, counts, offsets, byte, root)
            )
        }
    }

    /// `MPI_Scatter`; `data` holds a block for each process at the root.
    pub(crate) fn scatter(&self, form: Form, data: &[u8], block: &mut [u8], root: c_int) -> Outcome {
        assert!(self.rank != root || data.len() >= block.len() * self.processes());
        let (from, to, length) = (data.as_ptr().cast(), block.as_mut_ptr().cast(), count(block.len()));
        let byte = self.mpi.handles.byte;
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe {
            collective!(self, form, scatter | iscatter | scatter_init(from, length, byte, to, length, byte, root))
        }
    }

    /// `MPI_Scatterv`.
    pub(crate) fn scatter_v(&self, form: Form, data: &[u8], blocks: &Blocks, block: &mut [u8], root: c_int) -> Outcome {
        if self.rank == root {
            blocks.check(data.len(), self.processes());
        }
        assert!(blocks.range(self.place()).len() == block.len());
        let (from, to, length) = (data.as_ptr().cast(), block.as_mut_ptr().cast(), count(block.len()));
        let (byte, counts, offsets) = (self.mpi.handles.byte, blocks.counts.as_ptr(), blocks.offsets.as_ptr());
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                scatterv | iscatterv | scatterv_init(from, counts, offsets, byte, to, length, byte, root)
            )
        }
    }

    /// `MPI_Allgather`.
    pub(crate) fn all_gather(&self, form: Form, block: &[u8], room: &mut [u8]) -> Outcome {
        assert!(room.len() >= block.len() * self.processes());
        let (from, to, length) = (block.as_ptr().cast(), room.as_mut_ptr().cast(), count(block.len()));
        let byte = self.mpi.handles.byte;
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe {
            collective!(self, form, allgather | iallgather | allgather_init(from, length, byte, to, length, byte))
        }
    }

    /// `MPI_Allgatherv`.
    pub(crate) fn all_gather_v(&self, form: Form, block: &[u8], room: &mut [u8], blocks: &Blocks) -> Outcome {
        blocks.check(room.len(), self.processes());
        assert!(blocks.range(self.place()).len() == block.len());
        let (from, to, length) = (block.as_ptr().cast(), room.as_mut_ptr().cast(), count(block.len()));
        let (byte, counts, offsets) = (self.mpi.handles.byte, blocks.counts.as_ptr(), blocks.offsets.as_ptr());
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                allgatherv | iallgatherv | allgatherv_init(from, length, byte, to, counts, offsets, byte)
            )
        }
    }

    /// `MPI_Alltoall`.
    pub(crate) fn all_to_all(&self, form: Form, data: &[u8], room: &mut [u8]) -> Outcome {
        assert!(data.len() == room.len() && data.len().is_multiple_of(self.processes()));
        let (from, to, length) = (data.as_ptr().cast(), room.as_mut_ptr().cast(), count(data.len() / self.processes()));
        let byte = self.mpi.handles.byte;
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe { collective!(self, form, alltoall | ialltoall | alltoall_init(from, length, byte, to, length, byte)) }
    }

    /// `MPI_Alltoallv`.
    pub(crate) fn all_to_all_v(
        &self,
        form: Form,
        data: &[u8],
        sent: &Blocks,
        room: &mut [u8],
        received: &Blocks,
    ) -> Outcome {
        sent.check(data.len(), self.processes());
        received.check(room.len(), self.processes());
        let (from, to, byte) = (data.as_ptr().cast(), room.as_mut_ptr().cast(), self.mpi.handles.byte);
        let (counts, offsets) = (sent.counts.as_ptr(), sent.offsets.as_ptr());
        let (room_counts, room_offsets) = (received.counts.as_ptr(), received.offsets.as_ptr());
        // SAFETY: lengths checked above; buffers and arrays are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                alltoallv
                    | ialltoallv
                    | alltoallv_init(from, counts, offsets, byte, to, room_counts, room_offsets, byte)
            )
        }
    }

    /// `MPI_Alltoallw`, with bytes as the type of every block.
    pub(crate) fn all_to_all_w(
        &self,
        form: Form,
        data: &[u8],
        sent: &Blocks,
        room: &mut [u8],
        received: &Blocks,
    ) -> Outcome {
        sent.check(data.len(), self.processes());
        received.check(room.len(), self.processes());
        let types = vec![self.mpi.handles.byte; self.processes()];
        let (from, to, types) = (data.as_ptr().cast(), room.as_mut_ptr().cast(), types.as_ptr());
        let (counts, offsets) = (sent.counts.as_ptr(), sent.offsets.as_ptr());
        let (room_counts, room_offsets) = (received.counts.as_ptr(), received.offsets.as_ptr());
        // SAFETY: lengths checked above; buffers and arrays are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                alltoallw
                    | ialltoallw
                    | alltoallw_init(from, counts, offsets, types, to, room_counts, room_offsets, types)
            )
        }
    }

    /// `MPI_Neighbor_allgather` on a [`ring`](Self::ring).
    pub(crate) fn neighbour_all_gather(&self, form: Form, block: &[u8], room: &mut [u8]) -> Outcome {
        assert!(room.len() >= block.len() * RING_NEIGHBOURS);
        let (from, to, length) = (block.as_ptr().cast(), room.as_mut_ptr().cast(), count(block.len()));
        let byte = self.mpi.handles.byte;
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                neighbor_allgather
                    | ineighbor_allgather
                    | neighbor_allgather_init(from, length, byte, to, length, byte)
            )
        }
    }

    /// `MPI_Neighbor_allgatherv` on a ring.
    pub(crate) fn neighbour_all_gather_v(&self, form: Form, block: &[u8], room: &mut [u8], blocks: &Blocks) -> Outcome {
        blocks.check(room.len(), RING_NEIGHBOURS);
        let (from, to, length) = (block.as_ptr().cast(), room.as_mut_ptr().cast(), count(block.len()));
        let (byte, counts, offsets) = (self.mpi.handles.byte, blocks.counts.as_ptr(), blocks.offsets.as_ptr());
        // SAFETY: lengths checked above; buffers and arrays are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                neighbor_allgatherv
                    | ineighbor_allgatherv
                    | neighbor_allgatherv_init(from, length, byte, to, counts, offsets, byte)
            )
        }
    }

    /// `MPI_Neighbor_alltoall` on a ring.
    pub(crate) fn neighbour_all_to_all(&self, form: Form, data: &[u8], room: &mut [u8]) -> Outcome {
        assert!(data.len() == room.len() && data.len().is_multiple_of(RING_NEIGHBOURS));
        let (from, to, length) = (data.as_ptr().cast(), room.as_mut_ptr().cast(), count(data.len() / RING_NEIGHBOURS));
        let byte = self.mpi.handles.byte;
        // SAFETY: lengths checked above; both buffers are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                neighbor_alltoall | ineighbor_alltoall | neighbor_alltoall_init(from, length, byte, to, length, byte)
            )
        }
    }

    /// `MPI_Neighbor_alltoallv` on a ring.
    pub(crate) fn neighbour_all_to_all_v(&self, form: Form, data: &[u8], room: &mut [u8], blocks: &Blocks) -> Outcome {
        blocks.check(data.len(), RING_NEIGHBOURS);
        blocks.check(room.len(), RING_NEIGHBOURS);
        let (from, to, byte) = (data.as_ptr().cast(), room.as_mut_ptr().cast(), self.mpi.handles.byte);
        let (counts, offsets) = (blocks.counts.as_ptr(), blocks.offsets.as_ptr());
        // SAFETY: lengths checked above; buffers and arrays are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                neighbor_alltoallv
                    | ineighbor_alltoallv
                    | neighbor_alltoallv_init(from, counts, offsets, byte, to, counts, offsets, byte)
            )
        }
    }

    /// `MPI_Neighbor_alltoallw` on a ring.
    pub(crate) fn neighbour_all_to_all_w(&self, form: Form, data: &[u8], room: &mut [u8], blocks: &Blocks) -> Outcome {
        blocks.check(data.len(), RING_NEIGHBOURS);
        blocks.check(room.len(), RING_NEIGHBOURS);
        let (types, offsets) = (vec![self.mpi.handles.byte; RING_NEIGHBOURS], blocks.wide_offsets());
        let (from, to) = (data.as_ptr().cast(), room.as_mut_ptr().cast());
        let (counts, offsets, types) = (blocks.counts.as_ptr(), offsets.as_ptr(), types.as_ptr());
        // SAFETY: lengths checked above; buffers and arrays are borrowed until completion.
        unsafe {
            collective!(
                self,
                form,
                neighbor_alltoallw
                    | ineighbor_alltoallw
                    | neighbor_alltoallw_init(from, counts, offsets, types, to, counts, offsets, types)
            )
        }
    }

    fn start_and_wait(&self, mut request: A::Handle) -> Outcome {
        // SAFETY: a persistent request just made, started, completed and freed here.
        let outcome = unsafe { call!(self.mpi, start(&mut request)) }.and_then(|()| self.wait(&mut request));
        // SAFETY: as above.
        outcome.and(unsafe { call!(self.mpi, request_free(&mut request)) })
    }

    fn same_words(&self, data: &[u8], result: &[u8]) -> c_int {
        assert!(data.len() == result.len() && data.len().is_multiple_of(WORD));
        count(data.len() / WORD)
    }

    fn scattered_words(&self, data: &[u8], result: &[u8]) -> c_int {
        assert!(data.len() == result.len() * self.processes() && result.len().is_multiple_of(WORD));
        count(result.len() / WORD)
    }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    #[test]
    fn blocks_follow_one_another() {
        let blocks = Blocks::new([3, 0, 5]);
        assert_eq!(blocks.total(), 8);
        assert_eq!([blocks.range(0), blocks.range(1), blocks.range(2)], [0..3, 3..3, 3..8]);
    }
}
