//! One-sided communication (MPI 4.0, chapter 12).

use std::ffi::{c_int, c_void};

use super::layout::WORD;
use super::symbols::Aint;
use super::{Abi, Communicator, Outcome, call, count};

/// How origin and target are synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Epoch {
    Fence,
    Lock,
    /// Post, start, complete, wait.
    Pscw,
}

/// Who provided a window's memory.
enum Memory {
    /// `MPI_Win_create` over this.
    Ours(Vec<u64>),
    /// `MPI_Win_allocate` gave it.
    Library(*mut u8, usize),
}

/// A window of bytes, the same length in every process.
pub(crate) struct Window<'c, A: Abi> {
    communicator: &'c Communicator<A>,
    handle: A::Handle,
    memory: Memory,
}

impl<'c, A: Abi> Window<'c, A> {
    /// `MPI_Win_create` over zeroed memory.
    pub(crate) fn create(communicator: &'c Communicator<A>, length: usize) -> Outcome<Self> {
        let mut memory = vec![0u64; length.div_ceil(WORD)];
        let mpi = &communicator.mpi;
        let mut handle = mpi.handles.request_null;
        let (address, bytes) = (memory.as_mut_ptr().cast(), aint(length));
        // SAFETY: the memory holds `length` bytes and lives in the returned value, whose drop
        // frees the window first.
        unsafe { call!(mpi, win_create(address, bytes, 1, mpi.handles.info_null, communicator.handle, &mut handle)) }?;
        Self { communicator, handle, memory: Memory::Ours(memory) }.returning_errors()
    }

    /// `MPI_Win_allocate`, zeroed.
    pub(crate) fn allocate(communicator: &'c Communicator<A>, length: usize) -> Outcome<Self> {
        let mpi = &communicator.mpi;
        let mut handle = mpi.handles.request_null;
        let mut address: *mut u8 = std::ptr::null_mut();
        let out: *mut c_void = (&raw mut address).cast();
        // SAFETY: `out` is the address of a pointer, as this function wants it.
        unsafe {
            call!(mpi, win_allocate(aint(length), 1, mpi.handles.info_null, communicator.handle, out, &mut handle))
        }?;
        // SAFETY: the library has given `length` bytes at `address`, not yet shown to anybody else:
        // callers come to a barrier before the first access.
        unsafe { address.write_bytes(0, length) };
        Self { communicator, handle, memory: Memory::Library(address, length) }.returning_errors()
    }

    /// Runs `access` on the origin, between the calls that open and close an epoch on both sides.
    ///
    /// Every process of the communicator calls this; `access` runs where `rank == origin`.
    pub(crate) fn epoch(&self, kind: Epoch, origin: c_int, target: c_int, access: impl FnOnce() -> Outcome) -> Outcome {
        let (mpi, window) = (&self.communicator.mpi, self.handle);
        let rank = self.communicator.rank;
        match kind {
            Epoch::Fence => {
                // SAFETY: the window is live.
                unsafe { call!(mpi, win_fence(0, window)) }?;
                let outcome = if rank == origin { access() } else { Ok(()) };
                // SAFETY: as above; the epoch ends on both sides even if the access was refused.
                outcome.and(unsafe { call!(mpi, win_fence(0, window)) })
            }
            Epoch::Lock => {
                self.communicator.barrier()?;
                let mut outcome = Ok(());
                if rank == origin {
                    // SAFETY: the window is live and `target` is a rank of it.
                    unsafe { call!(mpi, win_lock(A::LOCK_EXCLUSIVE, target, 0, window)) }?;
                    outcome = access();
                    // SAFETY: the lock was taken above.
                    outcome = outcome.and(unsafe { call!(mpi, win_unlock(target, window)) });
                }
                outcome.and(self.communicator.barrier())
            }
            Epoch::Pscw if rank == origin => {
                let mut group = self.group_of(target)?;
                // SAFETY: group and window are live; the group may be freed after the start.
                unsafe {
                    call!(mpi, win_start(group, 0, window))?;
                    call!(mpi, group_free(&mut group))?;
                }
                // SAFETY: the epoch was started above.
                access().and(unsafe { call!(mpi, win_complete(window)) })
            }
            Epoch::Pscw if rank == target => {
                let mut group = self.group_of(origin)?;
                // SAFETY: group and window are live; the group may be freed after the post.
                unsafe {
                    call!(mpi, win_post(group, 0, window))?;
                    call!(mpi, group_free(&mut group))?;
                    call!(mpi, win_wait(window))
                }
            }
            Epoch::Pscw => Ok(()),
        }
    }

    /// This process's part of the window, between epochs.
    pub(crate) fn local(&self) -> Vec<u8> {
        let (address, length) = match &self.memory {
            Memory::Ours(words) => (words.as_ptr().cast::<u8>(), words.len() * WORD),
            Memory::Library(address, length) => (address.cast_const(), *length),
        };
        // SAFETY: so many bytes are there; between epochs nobody else writes them, and a volatile
        // copy does not assume what the compiler has seen before.
        (0..length).map(|at| unsafe { address.add(at).read_volatile() }).collect()
    }

    /// Runs `read` under a lock on this process's own part of the window.
    pub(crate) fn locked<T>(&self, own_rank: c_int, read: impl FnOnce() -> T) -> Outcome<T> {
        // SAFETY: the window is live and `own_rank` a rank of it.
        unsafe { call!(self.communicator.mpi, win_lock(A::LOCK_EXCLUSIVE, own_rank, 0, self.handle)) }?;
        let result = read();
        // SAFETY: the lock was taken above.
        unsafe { call!(self.communicator.mpi, win_unlock(own_rank, self.handle)) }?;
        Ok(result)
    }

    /// Writes this process's part of the window, between epochs and followed by a barrier.
    pub(crate) fn set_local(&mut self, bytes: &[u8]) {
        let (address, length) = match &mut self.memory {
            Memory::Ours(words) => (words.as_mut_ptr().cast::<u8>(), words.len() * WORD),
            Memory::Library(address, length) => (*address, *length),
        };
        assert!(bytes.len() <= length);
        // SAFETY: so many bytes are there, and nobody else touches them between epochs.
        unsafe { address.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// `MPI_Put` to the start of the target's window. The data has to outlive the epoch, hence `'c`.
    pub(crate) fn put(&self, data: &'c [u8], target: c_int) -> Outcome {
        self.check(data.len());
        let (byte, length) = (self.communicator.mpi.handles.byte, count(data.len()));
        let address = data.as_ptr().cast();
        // SAFETY: source and window hold so many bytes, and the source outlives the window.
        unsafe { call!(self.communicator.mpi, put(address, length, byte, target, 0, length, byte, self.handle)) }
    }

    /// `MPI_Rput`, completed locally.
    pub(crate) fn put_request(&self, data: &'c [u8], target: c_int) -> Outcome {
        self.check(data.len());
        let mpi = &self.communicator.mpi;
        let (byte, length, mut request) = (mpi.handles.byte, count(data.len()), mpi.handles.request_null);
        // SAFETY: as for MPI_Put.
        unsafe {
            call!(mpi, rput(data.as_ptr().cast(), length, byte, target, 0, length, byte, self.handle, &mut request))
        }?;
        self.communicator.wait(&mut request)
    }

    /// `MPI_Get` from the start of the target's window; the room is filled when the epoch ends.
    pub(crate) fn get(&self, room: &Room, target: c_int) -> Outcome {
        self.check(room.length);
        let (byte, length) = (self.communicator.mpi.handles.byte, count(room.length));
        // SAFETY: room and window hold so many bytes; see `Room` for its life.
        unsafe { call!(self.communicator.mpi, get(room.address(), length, byte, target, 0, length, byte, self.handle)) }
    }

    /// `MPI_Rget`, completed.
    pub(crate) fn get_request(&self, room: &Room, target: c_int) -> Outcome {
        self.check(room.length);
        let mpi = &self.communicator.mpi;
        let (byte, length, mut request) = (mpi.handles.byte, count(room.length), mpi.handles.request_null);
        // SAFETY: as for MPI_Get.
        unsafe { call!(mpi, rget(room.address(), length, byte, target, 0, length, byte, self.handle, &mut request)) }?;
        self.communicator.wait(&mut request)
    }

    /// `MPI_Accumulate` with `MPI_BOR` over words.
    pub(crate) fn accumulate(&self, data: &'c [u8], target: c_int) -> Outcome {
        let words = self.words(data.len());
        let (word, or) = (self.communicator.mpi.handles.word, self.communicator.mpi.handles.bit_or);
        let address = data.as_ptr().cast();
        // SAFETY: as for MPI_Put.
        unsafe {
            call!(self.communicator.mpi, accumulate(address, words, word, target, 0, words, word, or, self.handle))
        }
    }

    /// `MPI_Raccumulate` with `MPI_BOR`, completed locally.
    pub(crate) fn accumulate_request(&self, data: &'c [u8], target: c_int) -> Outcome {
        let words = self.words(data.len());
        let mpi = &self.communicator.mpi;
        let (word, or, mut request) = (mpi.handles.word, mpi.handles.bit_or, mpi.handles.request_null);
        let address = data.as_ptr().cast();
        // SAFETY: as for MPI_Put.
        unsafe {
            call!(mpi, raccumulate(address, words, word, target, 0, words, word, or, self.handle, &mut request))
        }?;
        self.communicator.wait(&mut request)
    }

    /// `MPI_Get_accumulate` with `MPI_BOR`: the window's former content comes back.
    pub(crate) fn get_accumulate(&self, data: &'c [u8], former: &Room, target: c_int) -> Outcome {
        let words = self.words(data.len());
        assert!(former.length == data.len());
        let (word, or) = (self.communicator.mpi.handles.word, self.communicator.mpi.handles.bit_or);
        // SAFETY: as for MPI_Put and MPI_Get.
        unsafe {
            call!(
                self.communicator.mpi,
                get_accumulate(
                    data.as_ptr().cast(),
                    words,
                    word,
                    former.address(),
                    words,
                    word,
                    target,
                    0,
                    words,
                    word,
                    or,
                    self.handle,
                )
            )
        }
    }

    /// `MPI_Rget_accumulate` with `MPI_BOR`, completed.
    pub(crate) fn get_accumulate_request(&self, data: &'c [u8], former: &Room, target: c_int) -> Outcome {
        let words = self.words(data.len());
        assert!(former.length == data.len());
        let mpi = &self.communicator.mpi;
        let (word, or, mut request) = (mpi.handles.word, mpi.handles.bit_or, mpi.handles.request_null);
        // SAFETY: as for MPI_Put and MPI_Get.
        unsafe {
            call!(
                mpi,
                rget_accumulate(
                    data.as_ptr().cast(),
                    words,
                    word,
                    former.address(),
                    words,
                    word,
                    target,
                    0,
                    words,
                    word,
                    or,
                    self.handle,
                    &mut request,
                )
            )
        }?;
        self.communicator.wait(&mut request)
    }

    /// `MPI_Fetch_and_op` with `MPI_REPLACE` on the word at index `at` of the target's window.
    pub(crate) fn fetch_and_replace(&self, value: &'c [u8; WORD], former: &Room, target: c_int, at: usize) -> Outcome {
        self.check((at + 1) * WORD);
        assert!(former.length == WORD);
        let (word, replace) = (self.communicator.mpi.handles.word, self.communicator.mpi.handles.replace);
        let (value, former) = (value.as_ptr().cast(), former.address());
        // SAFETY: value, room and the window at this place hold a word; see MPI_Put and MPI_Get.
        unsafe {
            call!(
                self.communicator.mpi,
                fetch_and_op(value, former, word, target, aint(at * WORD), replace, self.handle)
            )
        }
    }

    /// `MPI_Compare_and_swap` on the word at index `at` of the target's window.
    pub(crate) fn compare_and_swap(
        &self,
        value: &'c [u8; WORD],
        expected: &'c [u8; WORD],
        former: &Room,
        target: c_int,
        at: usize,
    ) -> Outcome {
        self.check((at + 1) * WORD);
        assert!(former.length == WORD);
        let word = self.communicator.mpi.handles.word;
        let (value, expected, former) = (value.as_ptr().cast(), expected.as_ptr().cast(), former.address());
        // SAFETY: all three and the window at this place hold a word; see MPI_Put and MPI_Get.
        unsafe {
            call!(
                self.communicator.mpi,
                compare_and_swap(value, expected, former, word, target, aint(at * WORD), self.handle)
            )
        }
    }

    fn returning_errors(self) -> Outcome<Self> {
        let mpi = &self.communicator.mpi;
        // SAFETY: the window is live and the handler predefined.
        unsafe { call!(mpi, win_set_errhandler(self.handle, mpi.handles.errors_return)) }?;
        Ok(self)
    }

    fn group_of(&self, rank: c_int) -> Outcome<A::Handle> {
        let (mpi, ranks) = (&self.communicator.mpi, [rank]);
        let (mut all, mut one) = (mpi.handles.request_null, mpi.handles.request_null);
        // SAFETY: the communicator is live, and the array has the one element the count states.
        unsafe {
            call!(mpi, comm_group(self.communicator.handle, &mut all))?;
            let made = call!(mpi, group_incl(all, 1, ranks.as_ptr(), &mut one));
            call!(mpi, group_free(&mut all))?;
            made?;
        }
        Ok(one)
    }

    fn length(&self) -> usize {
        match &self.memory {
            Memory::Ours(words) => words.len() * WORD,
            Memory::Library(_, length) => *length,
        }
    }

    fn check(&self, length: usize) {
        assert!(length <= self.length(), "the access lies within the window, which every process made as long");
    }

    fn words(&self, length: usize) -> c_int {
        self.check(length);
        assert!(length.is_multiple_of(WORD));
        count(length / WORD)
    }
}

impl<A: Abi> Drop for Window<'_, A> {
    fn drop(&mut self) {
        // SAFETY: the window is live, and its memory is freed after it. Every process drops its
        // part at the same point of the program.
        let _ = unsafe { call!(self.communicator.mpi, win_free(&mut self.handle)) };
    }
}

/// Room that the library fills when an epoch ends; never given back, so that no order of drops can
/// make the library write to freed memory. The audit makes a few dozen in a process's life.
pub(crate) struct Room {
    address: *mut u8,
    length: usize,
}

impl Room {
    /// Zeroed room.
    pub(crate) fn new(length: usize) -> Self {
        Self { address: vec![0u64; length.div_ceil(WORD)].leak().as_mut_ptr().cast(), length }
    }

    /// What is in it, after the epoch.
    pub(crate) fn content(&self) -> Vec<u8> {
        // SAFETY: so many bytes were leaked for this, and the epoch is over.
        (0..self.length).map(|at| unsafe { self.address.add(at).read_volatile() }).collect()
    }

    fn address(&self) -> *mut c_void {
        self.address.cast()
    }
}

fn aint(length: usize) -> Aint {
    Aint::try_from(length).expect("no buffer here is longer than the address space")
}
