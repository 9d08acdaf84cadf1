//! The memory side of an access: a program's buffer as packed bytes.

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use crate::datatype::Layout;
use crate::error::Failure;
use crate::mpi::Mpi;

/// `count` elements of a type at an address.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) address: usize,
    pub(crate) count: i64,
    pub(crate) datatype: usize,
}

/// A buffer whose layout is known.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Memory,
    layout: Arc<Layout>,
    /// Bytes in the file: those of the memory, or of their `external32` form.
    pub(crate) length: usize,
    external: bool,
}

impl Buffer {
    /// Looks at what a program gave.
    ///
    /// # Errors
    /// The classes for counts and types.
    pub(crate) fn new(mpi: &Mpi, memory: Memory, external: bool) -> Result<Self, Failure> {
        if memory.count < 0 {
            return Err(Failure::new(mpi.abi.class.count, format!("the count {} is negative", memory.count)));
        }
        let layout = Layout::of(mpi, memory.datatype)?;
        let mut bytes = layout.size.checked_mul(memory.count).ok_or_else(|| {
            Failure::new(mpi.abi.class.count, format!("{} elements are more than memory holds", memory.count))
        })?;
        if external {
            let count = c_int::try_from(memory.count).map_err(|_| {
                Failure::new(mpi.abi.class.count, "more than 2147483647 elements at once cannot go to external32")
            })?;
            // SAFETY: the type is one, as its layout was found.
            let status =
                unsafe { (mpi.call.pack_external_size)(EXTERNAL32.as_ptr(), count, memory.datatype, &raw mut bytes) };
            mpi.check(status, "MPI_Pack_external_size")?;
        }
        let length = usize::try_from(bytes).expect("sizes are not negative");
        Ok(Buffer { memory, layout, length, external })
    }

    /// The bytes as they are in memory, if they lie there packed.
    fn direct(&self) -> Option<*mut u8> {
        let dense = self.layout.is_dense() || self.memory.count == 1;
        let from = self.layout.dense_from().filter(|_| dense && !self.external)?;
        Some((self.memory.address as i64 + from) as *mut u8)
    }

    /// The packed bytes, from memory where they lie packed there.
    ///
    /// # Safety
    /// The program's buffer is as it says, and stays so while the result lives.
    pub(crate) unsafe fn packed<'a>(&self, mpi: &Mpi, room: &'a mut Vec<u8>) -> Result<&'a [u8], Failure> {
        if self.length == 0 {
            return Ok(&[]);
        }
        if let Some(direct) = self.direct() {
            // SAFETY: the caller's promise.
            return Ok(unsafe { std::slice::from_raw_parts(direct, self.length) });
        }
        room.resize(self.length, 0);
        if self.external {
            let mut position = 0;
            // SAFETY: the caller's promise, and room for as many bytes as the library asked for.
            let status = unsafe {
                (mpi.call.pack_external)(
                    EXTERNAL32.as_ptr(),
                    self.memory.address as *const _,
                    self.memory.count as c_int,
                    self.memory.datatype,
                    room.as_mut_ptr().cast(),
                    self.length as i64,
                    &raw mut position,
                )
            };
            mpi.check(status, "MPI_Pack_external")?;
        } else {
            let mut at = 0;
            self.each(|memory, length| {
                // SAFETY: the caller's promise; the layout's bytes are as many as the room.
                unsafe { std::ptr::copy_nonoverlapping(memory, room.as_mut_ptr().add(at), length) };
                at += length;
            });
        }
        Ok(room)
    }

    /// Lets `fill` write the packed bytes, into memory where they lie packed there, and unpacks as many as it says.
    /// The result are the bytes of whole data that were filled, as a status counts them.
    ///
    /// # Safety
    /// As for `packed`.
    pub(crate) unsafe fn fill(
        &self,
        mpi: &Mpi,
        room: &mut Vec<u8>,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Failure>,
    ) -> Result<usize, Failure> {
        if self.length == 0 {
            return fill(&mut []);
        }
        if let Some(direct) = self.direct() {
            // SAFETY: the caller's promise.
            return fill(unsafe { std::slice::from_raw_parts_mut(direct, self.length) });
        }
        room.resize(self.length, 0);
        let mut left = fill(room)?;
        if self.external {
            return self.unpack_external(mpi, &room[..left]);
        }
        let (filled, mut at) = (left, 0);
        self.each(|memory, length| {
            let length = length.min(left);
            // SAFETY: the caller's promise; no more than was filled.
            unsafe { std::ptr::copy_nonoverlapping(room.as_ptr().add(at), memory, length) };
            at += length;
            left -= length;
        });
        Ok(filled)
    }

    fn unpack_external(&self, mpi: &Mpi, bytes: &[u8]) -> Result<usize, Failure> {
        let elements = self.memory.count.max(1) as usize;
        let whole = bytes.len() / (self.length / elements).max(1);
        let mut position = 0;
        // SAFETY: as for `packed`; the bytes hold this many elements.
        let status = unsafe {
            (mpi.call.unpack_external)(
                EXTERNAL32.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len() as i64,
                &raw mut position,
                self.memory.address as *mut _,
                whole as c_int,
                self.memory.datatype,
            )
        };
        mpi.check(status, "MPI_Unpack_external")?;
        Ok(whole * self.layout.size as usize)
    }

    /// Bytes of a status for as many in the file.
    pub(crate) fn native(&self, written: usize) -> usize {
        if self.external { (self.memory.count * self.layout.size) as usize } else { written }
    }

    /// Each run of each element, in order.
    fn each(&self, mut with: impl FnMut(*mut u8, usize)) {
        for element in 0..self.memory.count {
            let base = self.memory.address as i64 + element * self.layout.extent;
            for run in &self.layout.runs {
                with((base + run.at) as *mut u8, run.length as usize);
            }
        }
    }
}

/// The one data representation besides the native one that the standard defines (MPI-4.1 section 14.5.2).
pub(crate) const EXTERNAL32: &CStr = c"external32";
