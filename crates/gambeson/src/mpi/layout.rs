//! What a call sends or receives: a slice, seen as bytes, as 64-bit words or through a derived type.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::rc::Rc;

use super::symbols::Aint;
use super::{Abi, Mpi, Outcome, call, count};

/// Data to send.
#[derive(Clone, Copy)]
pub(crate) struct Source<'b, A: Abi> {
    pub(super) address: *const c_void,
    pub(super) count: c_int,
    pub(super) datatype: A::Handle,
    bytes: PhantomData<&'b [u8]>,
}

/// Room to receive into.
pub(crate) struct Target<'b, A: Abi> {
    pub(super) address: *mut c_void,
    pub(super) count: c_int,
    pub(super) datatype: A::Handle,
    bytes: PhantomData<&'b mut [u8]>,
}

/// Bytes of one `MPI_UINT64_T`.
pub(super) const WORD: usize = 8;

impl<A: Abi> Mpi<A> {
    /// A slice as bytes.
    pub(crate) fn source<'b>(&self, bytes: &'b [u8]) -> Source<'b, A> {
        Source {
            address: bytes.as_ptr().cast(),
            count: count(bytes.len()),
            datatype: self.handles.byte,
            bytes: PhantomData,
        }
    }

    /// Room for bytes.
    pub(crate) fn target<'b>(&self, bytes: &'b mut [u8]) -> Target<'b, A> {
        let (address, count) = (bytes.as_mut_ptr().cast(), count(bytes.len()));
        Target { address, count, datatype: self.handles.byte, bytes: PhantomData }
    }
}

/// A committed derived type over bytes.
pub(crate) struct Layout<A: Abi> {
    mpi: Rc<Mpi<A>>,
    handle: A::Handle,
    /// Where its blocks are: offset and length.
    blocks: Vec<(usize, usize)>,
}

impl<A: Abi> Layout<A> {
    /// `MPI_Type_vector`: `blocks` blocks of `length` bytes, `stride` bytes apart.
    pub(crate) fn vector(mpi: &Rc<Mpi<A>>, blocks: usize, length: usize, stride: usize) -> Outcome<Self> {
        let mut handle = mpi.handles.byte;
        let byte = mpi.handles.byte;
        // SAFETY: plain integers and a live type.
        unsafe { call!(mpi, type_vector(count(blocks), count(length), count(stride), byte, &mut handle)) }?;
        Self::commit(mpi, handle, (0..blocks).map(|block| (block * stride, length)).collect())
    }

    /// `MPI_Type_indexed` over blocks given as offset and length.
    pub(crate) fn indexed(mpi: &Rc<Mpi<A>>, blocks: &[(usize, usize)]) -> Outcome<Self> {
        let (offsets, lengths): (Vec<c_int>, Vec<c_int>) =
            blocks.iter().map(|&(at, length)| (count(at), count(length))).unzip();
        let mut handle = mpi.handles.byte;
        let byte = mpi.handles.byte;
        // SAFETY: both arrays have as many elements as the count states.
        unsafe {
            call!(mpi, type_indexed(count(blocks.len()), lengths.as_ptr(), offsets.as_ptr(), byte, &mut handle))
        }?;
        Self::commit(mpi, handle, blocks.to_vec())
    }

    /// `MPI_Type_create_struct`, whose members are in turn words and bytes.
    pub(crate) fn structure(mpi: &Rc<Mpi<A>>, members: &[(usize, usize)]) -> Outcome<Self> {
        let mut lengths = Vec::new();
        let mut types = Vec::new();
        for (index, &(_, length)) in members.iter().enumerate() {
            let words = index % 2 == 0 && length % WORD == 0;
            lengths.push(count(if words { length / WORD } else { length }));
            types.push(if words { mpi.handles.word } else { mpi.handles.byte });
        }
        let offsets: Vec<Aint> =
            members.iter().map(|&(at, _)| Aint::try_from(at).expect("offsets are small")).collect();
        let mut handle = mpi.handles.byte;
        // SAFETY: the three arrays have as many elements as the count states.
        unsafe {
            call!(
                mpi,
                type_create_struct(
                    count(members.len()),
                    lengths.as_ptr(),
                    offsets.as_ptr(),
                    types.as_ptr(),
                    &mut handle
                )
            )
        }?;
        Self::commit(mpi, handle, members.to_vec())
    }

    /// One element of this type, taken from `bytes`.
    pub(crate) fn source<'b>(&self, bytes: &'b [u8]) -> Source<'b, A> {
        self.check_fits(bytes.len());
        Source { address: bytes.as_ptr().cast(), count: 1, datatype: self.handle, bytes: PhantomData }
    }

    /// Room for one element of this type in `bytes`.
    pub(crate) fn target<'b>(&self, bytes: &'b mut [u8]) -> Target<'b, A> {
        self.check_fits(bytes.len());
        Target { address: bytes.as_mut_ptr().cast(), count: 1, datatype: self.handle, bytes: PhantomData }
    }

    /// The pieces of a buffer that the type covers.
    pub(crate) fn blocks(&self) -> &[(usize, usize)] {
        &self.blocks
    }

    /// Bytes from the buffer's start to the end of the last block.
    pub(crate) fn span(&self) -> usize {
        self.blocks.iter().map(|(at, length)| at + length).max().unwrap_or(0)
    }

    fn commit(mpi: &Rc<Mpi<A>>, handle: A::Handle, blocks: Vec<(usize, usize)>) -> Outcome<Self> {
        let mut layout = Self { mpi: mpi.clone(), handle, blocks };
        // SAFETY: the type was just made.
        unsafe { call!(mpi, type_commit(&mut layout.handle)) }?;
        Ok(layout)
    }

    fn check_fits(&self, length: usize) {
        assert!(length >= self.span(), "the buffer holds a whole element of the derived type");
    }
}

impl<A: Abi> Drop for Layout<A> {
    fn drop(&mut self) {
        // SAFETY: the type is live; communication that still uses it keeps it alive.
        let _ = unsafe { call!(self.mpi, type_free(&mut self.handle)) };
    }
}
