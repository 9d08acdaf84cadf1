//! Opening and closing: which files are sealed, and the handle of those that are.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use gambeson_file::{Shape, remove_sidecar, sidecar};
use gambeson_keys::Keys;
use gambeson_proto::file::FileSuite;

use crate::decide::{Decision, decide};
use crate::error::Failure;
use crate::file::Sealed;
use crate::mpi::{Inside, Mpi};
use crate::no_keys::NoKeys;
use crate::sealed::{New, Place, Ranks};
use crate::{handles, plain, sealed};

/// MPI_File_open; nothing, if the file is not to be sealed.
///
/// # Safety
/// The name is a C string, and `file` is where the program's handle is to be.
pub(crate) unsafe fn open(
    communicator: usize,
    name: *const c_char,
    mode: c_int,
    info: usize,
    file: *mut usize,
) -> Option<c_int> {
    if Inside::is() || name.is_null() {
        return None;
    }
    // What the library would say itself to a program that calls it before MPI_Init is its own to say.
    let mpi = Mpi::get().ok()?;
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let (communicator, info) = (mpi.abi.handle(communicator), mpi.abi.handle(info));
    match open_sealed(mpi, communicator, name, mode, info) {
        Ok(None) => None,
        Ok(Some(sealed)) => {
            // SAFETY: the caller's promise.
            unsafe { *file = sealed.file };
            handles::insert(sealed);
            Some(0)
        }
        Err(failure) => Some(failure.raise_without_file(mpi)),
    }
}

fn open_sealed(
    mpi: &'static Mpi,
    communicator: usize,
    name: &CStr,
    mode: c_int,
    info: usize,
) -> Result<Option<Sealed>, Failure> {
    let path = path(name);
    let (rank, size) = mpi.rank_and_size(communicator)?;
    // The first rank decides for all; with its word goes a number that no other handle has.
    let decision = if rank == 0 { Some(decide(path)) } else { None };
    let word = decision.as_ref().map(|decision| encode(mpi, decision));
    let ranks = Ranks { communicator, rank, size };
    let word = ranks.told_bytes(mpi, 0, word)?;
    let Some((token, is_detached, new)) = decode(&word) else { return Ok(None) };
    let file = open_below(mpi, communicator, name, mode, info)?;
    let beside = match is_detached.then(|| open_sidecar(mpi, communicator, name, mode, new.is_some())).transpose() {
        Ok(beside) => beside,
        Err(failure) => {
            close_all(mpi, [file]);
            return Err(failure);
        }
    };
    let mut own = 0_usize;
    // SAFETY: the communicator is one, as the library opened a file on it.
    mpi.check(unsafe { (mpi.call.comm_dup)(communicator, &raw mut own) }, "MPI_Comm_dup")?;
    let own = mpi.abi.handle(own);
    // SAFETY: errors of our own communicator come back to us.
    unsafe { (mpi.call.comm_set_errhandler)(own, mpi.abi.errors_return) };
    let ranks = Ranks { communicator: own, rank, size };
    let name = name.to_string_lossy().into_owned();
    let place = Place { file, sidecar: beside, name: &name, path, is_writable: mode & mpi.abi.mode.read_only == 0 };
    let engine = match sealed::open(mpi, ranks, place, keys(), new.as_ref()) {
        Ok(engine) => Box::new(engine),
        Err(failure) => {
            close_all(mpi, beside.into_iter().chain([file]));
            let mut own = own;
            // SAFETY: the communicator was just made, and nobody else has it.
            unsafe { (mpi.call.comm_free)(&raw mut own) };
            return Err(failure);
        }
    };
    let mut sealed = Sealed::new(mpi, (file, own), (name, path), (mode, token), engine)?;
    sealed.below.extend(beside);
    Ok(Some(sealed))
}

/// Closes handles on files below.
pub(crate) fn close_all(mpi: &Mpi, files: impl IntoIterator<Item = usize>) {
    for mut file in files {
        // SAFETY: the handle is open, and nobody else has it.
        unsafe { (mpi.call.file_close)(&raw mut file) };
    }
}

/// The keys that this rank has here, or why it has none.
pub(crate) fn keys() -> Arc<dyn Keys> {
    match gambeson_keys::open() {
        Ok(keys) => Arc::new(keys),
        Err(error) => Arc::new(NoKeys(error)),
    }
}

/// What the first rank tells of a file that is sealed.
fn encode(mpi: &Mpi, decision: &Decision) -> Result<Vec<u8>, Failure> {
    let mut word = token().to_le_bytes().to_vec();
    match decision {
        Decision::Plain => word.clear(),
        Decision::Sealed { detached } => word.push(u8::from(*detached)),
        Decision::New(new) => {
            word.push(u8::from(new.shape.detached));
            word.push(new.suite as u8);
            word.push(u8::from(new.shape.two_slots));
            word.extend(new.shape.block_len.to_le_bytes());
            word.extend(new.label.as_bytes());
        }
        Decision::Refused(sentence) => return Err(Failure::new(mpi.abi.class.access, sentence)),
    }
    Ok(word)
}

/// The number of the handle, whether the file is detached, and what is to be made, if it is new.
fn decode(word: &[u8]) -> Option<(u64, bool, Option<New>)> {
    let (token, rest) = word.split_first_chunk::<8>()?;
    let (detached, rest) = rest.split_first()?;
    let detached = *detached != 0;
    let new = rest.split_first_chunk::<6>().map(|(numbers, label)| New {
        label: String::from_utf8_lossy(label).into_owned(),
        suite: FileSuite::from_number(numbers[0]).expect("the first rank names one that there is"),
        shape: Shape {
            two_slots: numbers[1] != 0,
            block_len: u32::from_le_bytes(numbers[2..].try_into().expect("4 of 6 bytes")),
            detached,
        },
    });
    Some((u64::from_le_bytes(*token), detached, new))
}

/// Opens the file below: to write into sealed blocks takes reading them, and where pointers begin is ours to say.
pub(crate) fn open_below(
    mpi: &Mpi,
    communicator: usize,
    name: &CStr,
    mode: c_int,
    info: usize,
) -> Result<usize, Failure> {
    let modes = &mpi.abi.mode;
    let mut below = mode & !modes.append;
    // Reading and writing a sequential file is an error that the library finds.
    if mode & modes.sequential != 0 && mode & modes.read_write == 0 {
        below &= !modes.sequential;
    }
    if mode & modes.write_only != 0 && mode & (modes.read_only | modes.read_write) == 0 {
        below = below & !modes.write_only | modes.read_write;
    }
    let mut file = 0_usize;
    // SAFETY: the arguments are the program's.
    let status = unsafe { (mpi.call.file_open)(communicator, name.as_ptr(), below, info, &raw mut file) };
    mpi.check(status, &name.to_string_lossy())?;
    Ok(file)
}

/// Opens the sidecar of a file that is open. It is small, and written as entries are: the program's hints are about the data.
pub(crate) fn open_sidecar(
    mpi: &Mpi,
    communicator: usize,
    name: &CStr,
    mode: c_int,
    is_new: bool,
) -> Result<usize, Failure> {
    let modes = &mpi.abi.mode;
    let access = match mode & modes.read_only != 0 {
        true => modes.read_only,
        false if is_new => modes.read_write | modes.create,
        false => modes.read_write,
    };
    let kept = mode & (modes.delete_on_close | modes.unique_open);
    let path = path(name);
    let kind = &name.to_bytes()[..name.to_bytes().len() - path.as_os_str().len()];
    let beside = CString::new([kind, sidecar(path).as_os_str().as_bytes()].concat()).expect("it has no zero");
    open_below(mpi, communicator, &beside, access | kept, mpi.abi.info_null)
}

/// MPI_File_delete has been called: of a detached file the sidecar goes, too.
///
/// # Safety
/// The name is a C string or null.
pub(crate) unsafe fn deleted(name: *const c_char) {
    if name.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let path = path(unsafe { CStr::from_ptr(name) });
    if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        // One that stays is refused when the file is made anew, with a sentence.
        let _ = remove_sidecar(path);
    }
}

/// MPI_File_close; nothing, if the file is not sealed.
///
/// # Safety
/// `file` is where the program's handle is.
pub(crate) unsafe fn close(file: *mut usize) -> Option<c_int> {
    if file.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { *file };
    plain::forget(handle);
    let sealed = handles::sealed(handle)?;
    let mpi = sealed.mpi;
    handles::remove(sealed.file);
    let closed = {
        let _inside = Inside::enter();
        let closed = sealed.state().engine.close();
        if sealed.rank == 0 {
            sealed.state().shared.remove();
        }
        closed
    };
    // The handle's error handler is gone with it, so the failure is told before.
    let told = closed.map_or_else(|failure| failure.raise(mpi, sealed.file), |()| 0);
    let _inside = Inside::enter();
    let mut communicator = sealed.communicator;
    // SAFETY: the handles are open, and nobody uses them any more.
    let status = unsafe {
        close_all(mpi, sealed.below.iter().copied());
        (mpi.call.comm_free)(&raw mut communicator);
        (mpi.call.file_close)(file)
    };
    Some(if told != 0 { told } else { status })
}

/// The file's path: MPI libraries take the kind of its file system before a colon.
pub(crate) fn path(name: &CStr) -> &Path {
    let bytes = name.to_bytes();
    let colon =
        bytes.iter().position(|&byte| byte == b':').filter(|&colon| colon > 1 && !bytes[..colon].contains(&b'/'));
    Path::new(OsStr::from_bytes(colon.map_or(bytes, |colon| &bytes[colon + 1..])))
}

pub(crate) fn token() -> u64 {
    let mut token = [0_u8; 8];
    // SAFETY: the buffer is ours; a few bytes always come at once.
    unsafe { libc::getrandom(token.as_mut_ptr().cast(), token.len(), 0) };
    u64::from_le_bytes(token)
}
