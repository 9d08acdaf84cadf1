//! The file below: what the MPI library opened, read and written at explicit offsets.

use std::ffi::c_int;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gambeson_file::{Below, Body, Held, Locks, Mode, Piece, sidecar};

use super::open::Place;
use crate::error::Failure;
use crate::mpi::Mpi;

/// What is below a place.
pub(crate) fn below(mpi: &'static Mpi, place: Place<'_>) -> Below<MpiBody> {
    let file = MpiBody::new(mpi, place.file, place.path);
    match place.sidecar {
        Some(beside) => Below::detached(MpiBody::new(mpi, beside, &sidecar(place.path)), file),
        None => Below::attached(file),
    }
}

/// An MPI file, and a descriptor of our own for locks.
pub(crate) struct MpiBody {
    mpi: &'static Mpi,
    file: usize,
    locks: Option<Locks>,
}

impl MpiBody {
    /// Over a file that is open for reading, and for writing if it is to be written.
    pub(crate) fn new(mpi: &'static Mpi, file: usize, path: &Path) -> Self {
        let opened = OpenOptions::new().read(true).write(true).open(path).or_else(|_| File::open(path));
        MpiBody { mpi, file, locks: opened.ok().map(|file| Locks::new(Arc::new(file))) }
    }

    fn check(&self, status: c_int, doing: &str) -> io::Result<()> {
        self.mpi.check(status, doing).map_err(|failure| io::Error::other(LibraryFailure(failure)))
    }

    /// Makes what all ranks wrote last.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn sync_all(&self) -> Result<(), Failure> {
        // SAFETY: the handle is open.
        self.mpi.check(unsafe { (self.mpi.call.file_sync)(self.file) }, "MPI_File_sync")
    }

    /// Has the file reach to the end of what this rank is about to write with all others, before any of them does.
    ///
    /// ROMIO reads the gaps between pieces and writes them back. Behind the file's end that is whatever its buffer holds,
    /// and a block that was never written would look altered.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn reach(&self, pieces: &[Piece]) -> io::Result<()> {
        let end = pieces.last().map_or(0, |last| last.offset + last.length as u64);
        if end == 0 || self.length()? >= end {
            return Ok(());
        }
        self.write(&[Piece { offset: end - 1, length: 1 }], &[0])
    }

    /// Writes pieces of all ranks at once; each has its own, sorted, or none.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn write_all(&self, pieces: &[Piece], from: &[u8], are_contiguous: bool) -> io::Result<()> {
        let count = count(from.len())?;
        let (call, byte) = (&self.mpi.call, self.mpi.abi.byte);
        let mut status = StatusRoom::default();
        if are_contiguous {
            let offset = pieces.first().map_or(0, |piece| piece.offset.cast_signed());
            // SAFETY: the buffer has so many bytes.
            let done = unsafe {
                (call.file_write_at_all)(self.file, offset, from.as_ptr().cast(), count, byte, status.address())
            };
            return self.check(done, "MPI_File_write_at_all");
        }
        let filetype = self.filetype(pieces)?;
        let (native, info) = (c"native", self.mpi.abi.info_null);
        // SAFETY: the types are committed, and the buffer has as many bytes as the filetype.
        let (viewed, done, reset) = unsafe {
            let viewed = (call.file_set_view)(self.file, 0, byte, filetype.handle, native.as_ptr(), info);
            let done = (call.file_write_at_all)(self.file, 0, from.as_ptr().cast(), count, byte, status.address());
            let reset = (call.file_set_view)(self.file, 0, byte, byte, native.as_ptr(), info);
            (viewed, done, reset)
        };
        self.check(viewed, "MPI_File_set_view")?;
        self.check(done, "MPI_File_write_at_all")?;
        self.check(reset, "MPI_File_set_view")
    }

    fn filetype(&self, pieces: &[Piece]) -> io::Result<Filetype> {
        let lengths = pieces.iter().map(|piece| count(piece.length)).collect::<io::Result<Vec<c_int>>>()?;
        let offsets: Vec<i64> = pieces.iter().map(|piece| piece.offset.cast_signed()).collect();
        let mut handle = 0_usize;
        let (call, byte) = (&self.mpi.call, self.mpi.abi.byte);
        // SAFETY: both arrays have as many elements as the count states.
        let status = unsafe {
            (call.type_create_hindexed)(count(pieces.len())?, lengths.as_ptr(), offsets.as_ptr(), byte, &raw mut handle)
        };
        self.check(status, "MPI_Type_create_hindexed")?;
        let mut filetype = Filetype { mpi: self.mpi, handle };
        // SAFETY: the type was just made.
        self.check(unsafe { (call.type_commit)(&raw mut filetype.handle) }, "MPI_Type_commit")?;
        filetype.handle = self.mpi.abi.handle(filetype.handle);
        Ok(filetype)
    }
}

/// A type that is freed when it goes.
struct Filetype {
    mpi: &'static Mpi,
    handle: usize,
}

impl Drop for Filetype {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { (self.mpi.call.type_free)(&raw mut self.handle) };
    }
}

impl Body for MpiBody {
    fn read(&self, pieces: &[Piece], into: &mut [u8]) -> io::Result<()> {
        let mut rest = into;
        for piece in pieces {
            let (room, later) = rest.split_at_mut(piece.length);
            rest = later;
            let mut status = StatusRoom::default();
            let (call, byte) = (&self.mpi.call, self.mpi.abi.byte);
            let length = count(room.len())?;
            // SAFETY: the buffer has so many bytes.
            let done = unsafe {
                (call.file_read_at)(
                    self.file,
                    piece.offset.cast_signed(),
                    room.as_mut_ptr().cast(),
                    length,
                    byte,
                    status.address(),
                )
            };
            self.check(done, "MPI_File_read_at")?;
            let mut got: c_int = 0;
            // SAFETY: the status is that of the call above.
            self.check(unsafe { (call.get_count)(status.address(), byte, &raw mut got) }, "MPI_Get_count")?;
            room[usize::try_from(got).unwrap_or(0)..].fill(0);
        }
        Ok(())
    }

    fn write(&self, pieces: &[Piece], from: &[u8]) -> io::Result<()> {
        let mut rest = from;
        for piece in pieces {
            let (bytes, later) = rest.split_at(piece.length);
            rest = later;
            let mut status = StatusRoom::default();
            let length = count(bytes.len())?;
            // SAFETY: the buffer has so many bytes.
            let done = unsafe {
                (self.mpi.call.file_write_at)(
                    self.file,
                    piece.offset.cast_signed(),
                    bytes.as_ptr().cast(),
                    length,
                    self.mpi.abi.byte,
                    status.address(),
                )
            };
            self.check(done, "MPI_File_write_at")?;
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let mut length = 0_i64;
        // SAFETY: the handle is open, and the result ours.
        self.check(unsafe { (self.mpi.call.file_get_size)(self.file, &raw mut length) }, "MPI_File_get_size")?;
        Ok(length.cast_unsigned())
    }

    /// By the descriptor for locks: MPI's own call is one for all ranks together.
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.locks()?.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.locks()?.sync()
    }

    fn refresh(&self) -> io::Result<()> {
        self.locks.as_ref().map_or(Ok(()), Locks::refresh)
    }

    fn publish(&self) -> io::Result<()> {
        self.locks.as_ref().map_or(Ok(()), Locks::publish)
    }

    fn mark(&self) {
        if let Some(locks) = &self.locks {
            locks.mark();
        }
    }

    fn lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Held> {
        self.locks()?.lock(range, mode)
    }

    fn try_lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Option<Held>> {
        self.locks()?.try_lock(range, mode)
    }

    fn locked(&self, range: Range<u64>) -> io::Result<bool> {
        self.locks()?.locked(range)
    }
}

impl MpiBody {
    /// Whether ranges can be locked here: a file system without locks says so at the first.
    pub(crate) fn has_locks(&self) -> bool {
        let probe = self.locks().and_then(|locks| locks.try_lock(PROBE, Mode::Shared));
        probe.is_ok()
    }

    fn locks(&self) -> io::Result<&Locks> {
        self.locks.as_ref().ok_or_else(|| io::Error::other("this rank can't open the file beside MPI"))
    }
}

/// Room for a status of any ABI.
#[repr(C, align(8))]
#[derive(Default)]
struct StatusRoom([c_int; 8]);

impl StatusRoom {
    fn address(&mut self) -> usize {
        (&raw mut self.0) as usize
    }
}

fn count(length: usize) -> io::Result<c_int> {
    c_int::try_from(length).map_err(|_| io::Error::other("more than 2 GiB at once"))
}

/// A number that nobody locks.
const PROBE: Range<u64> = (1 << 61)..(1 << 61) + 1;

/// A failure of the library's, as the body of a sealed file has it.
#[derive(Debug)]
struct LibraryFailure(Failure);

impl fmt::Display for LibraryFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.sentence)
    }
}

impl std::error::Error for LibraryFailure {}

/// The class of a failure below.
pub(crate) fn class(mpi: &Mpi, error: &io::Error) -> c_int {
    if let Some(below) = error.get_ref().and_then(|inner| inner.downcast_ref::<LibraryFailure>()) {
        return below.0.class;
    }
    match error.kind() {
        io::ErrorKind::StorageFull => mpi.abi.class.no_space,
        io::ErrorKind::QuotaExceeded => mpi.abi.class.quota,
        io::ErrorKind::PermissionDenied => mpi.abi.class.access,
        _ => mpi.abi.class.io,
    }
}
