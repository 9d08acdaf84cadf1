//! Files (MPI 4.0, chapter 14): explicit offsets, views of subarrays, and Gambeson's encryption maps.

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use super::abi::Status;
use super::symbols;
use super::{Abi, Communicator, Failure, Mpi, Outcome, call, count};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `MPI_MODE_CREATE | MPI_MODE_RDWR`
    Create,
    /// `MPI_MODE_RDONLY`
    Read,
}

/// By each rank for itself, or by all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Independent,
    Collective,
}

/// An open file. It is closed with [`File::close`], which is collective; dropped it stays open.
pub(crate) struct File<A: Abi> {
    mpi: Rc<Mpi<A>>,
    handle: symbols::File,
}

impl<A: Abi> Communicator<A> {
    /// `MPI_File_open`.
    pub(crate) fn open(&self, path: &Path, mode: Mode) -> Outcome<File<A>> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Failure::WrongData(format!("{} holds a zero byte", path.display())))?;
        // The numbers are those of both ABIs.
        let mode: c_int = match mode {
            Mode::Create => 1 | 8,
            Mode::Read => 2,
        };
        let mut file = File { mpi: self.mpi.clone(), handle: std::ptr::null_mut() };
        let info = self.mpi.handles.info_null;
        // SAFETY: a live communicator, a C string, and room for a handle.
        unsafe { call!(self.mpi, file_open(self.handle, name.as_ptr(), mode, info, &mut file.handle)) }?;
        Ok(file)
    }
}

impl<A: Abi> File<A> {
    /// `MPI_File_write_at` or `MPI_File_write_at_all`.
    pub(crate) fn write(&self, access: Access, offset: u64, data: &[u8]) -> Outcome {
        let (from, length, byte) = (data.as_ptr().cast(), count(data.len()), self.mpi.handles.byte);
        let (offset, mut status) = (wide(offset), Status::default());
        // SAFETY: the file is open, and the data is borrowed for the call.
        unsafe {
            match access {
                Access::Independent => {
                    call!(self.mpi, file_write_at(self.handle, offset, from, length, byte, &mut status))
                }
                Access::Collective => {
                    call!(self.mpi, file_write_at_all(self.handle, offset, from, length, byte, &mut status))
                }
            }
        }?;
        self.moved("written", &status, length)
    }

    /// `MPI_File_read_at` or `MPI_File_read_at_all`.
    pub(crate) fn read(&self, access: Access, offset: u64, room: &mut [u8]) -> Outcome {
        let (to, length, byte) = (room.as_mut_ptr().cast(), count(room.len()), self.mpi.handles.byte);
        let (offset, mut status) = (wide(offset), Status::default());
        // SAFETY: the file is open, and the room is borrowed mutably for the call.
        unsafe {
            match access {
                Access::Independent => {
                    call!(self.mpi, file_read_at(self.handle, offset, to, length, byte, &mut status))
                }
                Access::Collective => {
                    call!(self.mpi, file_read_at_all(self.handle, offset, to, length, byte, &mut status))
                }
            }
        }?;
        self.moved("read", &status, length)
    }

    /// `MPI_File_set_view` with bytes as elementary type.
    pub(crate) fn set_view(&self, displacement: u64, filetype: Option<&Filetype<A>>) -> Outcome {
        let (byte, info) = (self.mpi.handles.byte, self.mpi.handles.info_null);
        let filetype = filetype.map_or(byte, |filetype| filetype.handle);
        // SAFETY: the file is open, both types are live, and the representation is a C string.
        unsafe {
            call!(self.mpi, file_set_view(self.handle, wide(displacement), byte, filetype, c"native".as_ptr(), info))
        }
    }

    /// `MPIX_File_set_encryption_map` from the file's start, with the policy's block; the library has it in a job of
    /// `gambeson run` alone.
    pub(crate) fn set_encryption_map(&self, filetype: &Filetype<A>, label: &str, suite: &str) -> Outcome {
        let [label, suite] = [label, suite].map(|word| CString::new(word).expect("names hold no zero byte"));
        let (byte, info, native) = (self.mpi.handles.byte, self.mpi.handles.info_null, c"native".as_ptr());
        // SAFETY: the file is open, both types are live, and all words are C strings.
        unsafe {
            call!(
                self.mpi,
                file_set_encryption_map(
                    self.handle,
                    0,
                    byte,
                    filetype.handle,
                    native,
                    label.as_ptr(),
                    suite.as_ptr(),
                    0,
                    info
                )
            )
        }
    }

    /// `MPI_File_sync`.
    pub(crate) fn sync(&self) -> Outcome {
        // SAFETY: the file is open.
        unsafe { call!(self.mpi, file_sync(self.handle)) }
    }

    /// `MPI_File_close`.
    pub(crate) fn close(mut self) -> Outcome {
        // SAFETY: the file is open, and this is the handle's last use.
        unsafe { call!(self.mpi, file_close(&mut self.handle)) }
    }

    fn moved(&self, done: &str, status: &Status, length: c_int) -> Outcome {
        let mut moved = 0;
        // SAFETY: a status that a data access has filled in.
        unsafe { call!(self.mpi, get_count(status, self.mpi.handles.byte, &mut moved)) }?;
        match moved == length {
            true => Ok(()),
            false => Err(Failure::WrongData(format!("{moved} bytes were {done} where {length} were asked for"))),
        }
    }
}

impl<A: Abi> Mpi<A> {
    /// Whether there are encryption maps: in a job of `gambeson run` alone.
    pub(crate) fn has_encryption_maps(&self) -> bool {
        self.symbols.file_set_encryption_map.1.is_some()
    }
}

/// A committed type that says which bytes of a file a view or a map is over.
pub(crate) struct Filetype<A: Abi> {
    mpi: Rc<Mpi<A>>,
    handle: A::Handle,
}

impl<A: Abi> Filetype<A> {
    /// `MPI_Type_create_subarray` over bytes: the lengths of an array, and of the part of it that begins at `starts`; the
    /// last dimension is in bytes.
    pub(crate) fn subarray(mpi: &Rc<Mpi<A>>, lengths: &[usize], part: &[usize], starts: &[usize]) -> Outcome<Self> {
        assert!(lengths.len() == part.len() && part.len() == starts.len());
        let [lengths, part, starts] =
            [lengths, part, starts].map(|each| Vec::from_iter(each.iter().map(|&one| count(one))));
        let byte = mpi.handles.byte;
        let mut filetype = Self { mpi: mpi.clone(), handle: byte };
        // SAFETY: the three arrays have as many elements as the count states, and the type is live.
        unsafe {
            call!(
                mpi,
                type_create_subarray(
                    count(lengths.len()),
                    lengths.as_ptr(),
                    part.as_ptr(),
                    starts.as_ptr(),
                    A::ORDER_C,
                    byte,
                    &mut filetype.handle
                )
            )?;
            call!(mpi, type_commit(&mut filetype.handle))?;
        }
        Ok(filetype)
    }
}

impl<A: Abi> Drop for Filetype<A> {
    fn drop(&mut self) {
        if self.handle != self.mpi.handles.byte {
            // SAFETY: the type is ours; views and maps that were made of it keep what they need.
            let _ = unsafe { call!(self.mpi, type_free(&mut self.handle)) };
        }
    }
}

fn wide(offset: u64) -> symbols::Offset {
    symbols::Offset::try_from(offset).expect("no file here is longer than an offset can say")
}
