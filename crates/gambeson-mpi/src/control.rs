//! The routines about a handle as a whole: view, pointers, size, atomic mode.

use std::ffi::{CStr, c_char, c_int};

use crate::error::Failure;
use crate::file::{Sealed, State, drop_type};
use crate::memory::EXTERNAL32;
use crate::mpi::Inside;
use crate::view::View;

type Done = Result<(), Failure>;

/// MPI_File_set_view. No rank waits for another, but to place a view of a sequential file at the shared pointer.
///
/// # Safety
/// The representation is a C string.
pub(crate) unsafe fn set_view(
    file: &Sealed,
    displacement: i64,
    etype: usize,
    filetype: usize,
    representation: *const c_char,
    info: usize,
) -> Done {
    let _inside = Inside::enter();
    let (mpi, class) = (file.mpi, &file.mpi.abi.class);
    let (etype, filetype, info) = (mpi.abi.handle(etype), mpi.abi.handle(filetype), mpi.abi.handle(info));
    let current = displacement == mpi.abi.displacement_current;
    if current != (file.mode & mpi.abi.mode.sequential != 0) {
        let what = "a view begins at MPI_DISPLACEMENT_CURRENT if the file is of MPI_MODE_SEQUENTIAL, and only then";
        return Err(file.failure(class.argument, what));
    }
    if displacement < 0 && !current {
        return Err(file.failure(class.argument, &format!("the view's displacement {displacement} is negative")));
    }
    let name = if representation.is_null() {
        &[][..]
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(representation) }.to_bytes()
    };
    let Some(external) = is_external(name) else {
        let name = String::from_utf8_lossy(name);
        let what = format!(
            "sealed files have the data representations native, internal and external32, and \"{name}\" is none of them"
        );
        return Err(file.failure(class.unsupported_datarep, &what));
    };
    let mut state = file.state();
    let displacement = if current { shared_byte(file, &mut state)? } else { displacement };
    let mut view = View::new(mpi, displacement, etype, filetype, external, file.is_writable())
        .map_err(|failure| file.failure(failure.class, &failure.sentence))?;
    view.etype = file.keep(etype)?;
    view.filetype = file.keep(filetype)?;
    if info != mpi.abi.info_null {
        // SAFETY: the library says whether these are hints.
        mpi.check(unsafe { (mpi.call.file_set_info)(file.file, info) }, "MPI_File_set_info")?;
    }
    let old = std::mem::replace(&mut state.view, view);
    drop_type(mpi, old.etype);
    drop_type(mpi, old.filetype);
    state.position = 0;
    state.shared.set(0);
    Ok(())
}

/// Whether a data representation is external32; nothing, if it is none that sealed files have.
pub(crate) fn is_external(name: &[u8]) -> Option<bool> {
    let external = name.eq_ignore_ascii_case(EXTERNAL32.to_bytes());
    (external || name.eq_ignore_ascii_case(b"native") || name.eq_ignore_ascii_case(b"internal")).then_some(external)
}

/// The byte of the file at which the shared pointer is, when all ranks are here.
fn shared_byte(file: &Sealed, state: &mut State) -> Result<i64, Failure> {
    file.mpi.barrier(file.communicator)?;
    let position = state.shared.position().map_err(|error| file.no_pointer(&error));
    file.mpi.barrier(file.communicator)?;
    let at = position?.checked_mul(state.view.etype_size).and_then(|at| state.view.place(at));
    at.ok_or_else(|| file.failure(file.mpi.abi.class.io, "the shared pointer is beyond every file"))
}

/// MPI_File_get_view. Types with a constructor are copies that the program frees.
///
/// # Safety
/// The addresses are those of the results, the last one of MPI_MAX_DATAREP_STRING bytes.
pub(crate) unsafe fn view(
    file: &Sealed,
    displacement: *mut i64,
    etype: usize,
    filetype: usize,
    representation: *mut c_char,
) -> Done {
    let _inside = Inside::enter();
    let state = file.state();
    let name = if state.view.external { EXTERNAL32 } else { c"native" };
    // SAFETY: the caller's promise.
    unsafe {
        *displacement = state.view.displacement;
        file.mpi.abi.write_handle(etype, file.keep(state.view.etype)?);
        file.mpi.abi.write_handle(filetype, file.keep(state.view.filetype)?);
        representation.copy_from_nonoverlapping(name.as_ptr(), name.to_bytes_with_nul().len());
    }
    Ok(())
}

/// MPI_File_seek.
///
/// # Safety
/// None is needed: the table of routines takes all alike.
pub(crate) unsafe fn seek(file: &Sealed, offset: i64, whence: c_int) -> Done {
    let _inside = Inside::enter();
    not_sequential(file)?;
    let mut state = file.state();
    let current = state.position / state.view.etype_size;
    let to = target(file, &mut state, offset, whence, current)?;
    state.position = bytes(file, &state, to)?;
    Ok(())
}

/// MPI_File_seek_shared, which all ranks call alike.
///
/// # Safety
/// As for `seek`.
pub(crate) unsafe fn seek_shared(file: &Sealed, offset: i64, whence: c_int) -> Done {
    let _inside = Inside::enter();
    let mut state = file.state();
    file.same(offset, "the offset")?;
    file.same(whence.into(), "whence")?;
    let current = state.shared.position().map_err(|error| file.no_pointer(&error));
    // Nobody moves it on before all have seen where it was.
    let barrier = file.mpi.barrier(file.communicator);
    let to = current.and_then(|current| target(file, &mut state, offset, whence, current));
    let to = barrier.and(to)?;
    bytes(file, &state, to)?;
    state.shared.set(to);
    Ok(())
}

/// Where a seek leads, in etypes.
fn target(file: &Sealed, state: &mut State, offset: i64, whence: c_int, current: i64) -> Result<i64, Failure> {
    let (seek, class) = (&file.mpi.abi.seek, &file.mpi.abi.class);
    let from = match whence {
        set if set == seek.set => 0,
        here if here == seek.current => current,
        end if end == seek.end => {
            let data = state.view.data_before(state.engine.size()?.cast_signed());
            // The first etype that is not wholly there.
            (data + state.view.etype_size - 1) / state.view.etype_size
        }
        _ => return Err(file.failure(class.argument, &format!("{whence} is no way to seek"))),
    };
    from.checked_add(offset)
        .filter(|&to| to >= 0)
        .ok_or_else(|| file.failure(class.argument, &format!("a seek by {offset} from {from} leaves the file")))
}

/// Etypes as bytes of the view's data.
fn bytes(file: &Sealed, state: &State, etypes: i64) -> Result<i64, Failure> {
    let bytes = etypes.checked_mul(state.view.etype_size);
    bytes.ok_or_else(|| file.failure(file.mpi.abi.class.argument, &format!("the offset {etypes} is beyond every file")))
}

/// MPI_File_get_position.
///
/// # Safety
/// The address is that of the result.
pub(crate) unsafe fn position(file: &Sealed, offset: *mut i64) -> Done {
    let _inside = Inside::enter();
    not_sequential(file)?;
    let state = file.state();
    // SAFETY: the caller's promise.
    unsafe { *offset = state.position / state.view.etype_size };
    Ok(())
}

/// MPI_File_get_position_shared.
///
/// # Safety
/// The address is that of the result.
pub(crate) unsafe fn position_shared(file: &Sealed, offset: *mut i64) -> Done {
    let _inside = Inside::enter();
    let position = file.state().shared.position().map_err(|error| file.no_pointer(&error))?;
    // SAFETY: the caller's promise.
    unsafe { *offset = position };
    Ok(())
}

/// MPI_File_get_byte_offset.
///
/// # Safety
/// The address is that of the result.
pub(crate) unsafe fn byte_offset(file: &Sealed, offset: i64, displacement: *mut i64) -> Done {
    let _inside = Inside::enter();
    not_sequential(file)?;
    let state = file.state();
    let class = file.mpi.abi.class.argument;
    if offset < 0 {
        return Err(file.failure(class, &format!("the offset {offset} is negative")));
    }
    let at = state.view.place(bytes(file, &state, offset)?);
    // SAFETY: the caller's promise.
    unsafe { *displacement = at.ok_or_else(|| file.failure(class, "the offset is beyond every file"))? };
    Ok(())
}

/// MPI_File_get_size.
///
/// # Safety
/// The address is that of the result.
pub(crate) unsafe fn size(file: &Sealed, size: *mut i64) -> Done {
    let _inside = Inside::enter();
    let bytes = file.state().engine.size()?;
    // SAFETY: the caller's promise.
    unsafe { *size = bytes.cast_signed() };
    Ok(())
}

/// MPI_File_set_size.
///
/// # Safety
/// As for `seek`.
pub(crate) unsafe fn set_size(file: &Sealed, size: i64) -> Done {
    let _inside = Inside::enter();
    let size = new_size(file, size)?;
    file.state().engine.set_size(size)
}

/// MPI_File_preallocate.
///
/// # Safety
/// As for `seek`.
pub(crate) unsafe fn preallocate(file: &Sealed, size: i64) -> Done {
    let _inside = Inside::enter();
    let size = new_size(file, size)?;
    file.state().engine.preallocate(size)
}

fn new_size(file: &Sealed, size: i64) -> Result<u64, Failure> {
    let class = &file.mpi.abi.class;
    not_sequential(file)?;
    writable(file)?;
    file.same(size, "the size")?;
    u64::try_from(size).map_err(|_| file.failure(class.argument, &format!("the size {size} is negative")))
}

/// MPI_File_get_amode: the mode that the program opened the file with.
///
/// # Safety
/// The address is that of the result.
pub(crate) unsafe fn mode(file: &Sealed, mode: *mut c_int) -> Done {
    // SAFETY: the caller's promise.
    unsafe { *mode = file.mode };
    Ok(())
}

/// MPI_File_set_atomicity.
///
/// # Safety
/// As for `seek`.
pub(crate) unsafe fn set_atomicity(file: &Sealed, atomic: c_int) -> Done {
    let _inside = Inside::enter();
    let atomic = atomic != 0;
    file.same(atomic.into(), "the atomic mode")?;
    let mut state = file.state();
    state.engine.set_atomic(atomic)?;
    state.atomic = atomic;
    Ok(())
}

/// MPI_File_get_atomicity.
///
/// # Safety
/// The address is that of the result.
pub(crate) unsafe fn atomicity(file: &Sealed, atomic: *mut c_int) -> Done {
    // SAFETY: the caller's promise.
    unsafe { *atomic = file.state().atomic.into() };
    Ok(())
}

/// MPI_File_sync.
///
/// # Safety
/// As for `seek`.
pub(crate) unsafe fn sync(file: &Sealed) -> Done {
    let _inside = Inside::enter();
    writable(file)?;
    file.state().engine.sync()
}

fn not_sequential(file: &Sealed) -> Done {
    if file.mode & file.mpi.abi.mode.sequential != 0 {
        let what = "a file of MPI_MODE_SEQUENTIAL has a shared pointer only";
        return Err(file.failure(file.mpi.abi.class.unsupported_operation, what));
    }
    Ok(())
}

fn writable(file: &Sealed) -> Done {
    if file.is_writable() {
        return Ok(());
    }
    Err(file.failure(file.mpi.abi.class.read_only, "the file was opened for reading only"))
}
