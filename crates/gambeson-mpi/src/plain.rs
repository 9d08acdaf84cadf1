//! Files that no rule seals: a map that is laid over one without data makes it a sealed file whose rest stays in clear.
//!
//! Until then the MPI library has the file, and nothing is kept of it but its name. When a map comes, the file is
//! opened a second time below the sealed one, since the program's own handle may be for writing alone and have a view.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use gambeson_file::sidecar;

use crate::control::is_external;
use crate::decide::is_detached;
use crate::engine::Engine;
use crate::error::Failure;
use crate::file::{Sealed, State, drop_type};
use crate::handles;
use crate::mpi::Mpi;
use crate::open::{close_all, keys, open_below, open_sidecar, path, token};
use crate::sealed::{MapPart, Place, Ranks, map_plain};
use crate::view::View;

/// A handle on a file in clear, open for writing.
struct Plain {
    /// With the kind of file system before a colon, if the program gave it.
    name: CString,
    mode: c_int,
}

/// By the library's handles.
static OPEN: Mutex<Option<HashMap<usize, Plain>>> = Mutex::new(None);

fn known<T>(act: impl FnOnce(&mut HashMap<usize, Plain>) -> T) -> T {
    act(OPEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Takes note of a file that the library has opened.
///
/// # Safety
/// The name is a C string, and `file` is where the handle is.
pub(crate) unsafe fn opened(name: *const c_char, mode: c_int, file: *const usize) {
    let Ok(mpi) = Mpi::get() else { return };
    if mode & mpi.abi.mode.read_only != 0 {
        return;
    }
    // SAFETY: the caller's promise.
    let (name, file) = unsafe { (CStr::from_ptr(name), *file) };
    // The program may be in another folder when it lays a map.
    let path = path(name);
    let kind = &name.to_bytes()[..name.to_bytes().len() - path.as_os_str().len()];
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if let Ok(name) = CString::new([kind, whole.as_os_str().as_bytes()].concat()) {
        known(|open| open.insert(file, Plain { name, mode }));
    }
}

/// The handle is being closed.
pub(crate) fn forget(file: usize) {
    known(|open| open.remove(&file));
}

/// Lays the first map over a file in clear; from then on the handle is that of a sealed file.
///
/// # Errors
/// On all ranks alike: the file has data, a rank's part is wrong, or what a map over a sealed file fails for. The file
/// is then as it was.
pub(crate) fn lay(mpi: &'static Mpi, file: usize, own: Result<MapPart, Failure>) -> Result<(), Failure> {
    let Some((name, mode)) = known(|open| open.get(&file).map(|plain| (plain.name.clone(), plain.mode))) else {
        let what = "the file is in clear and not open for writing, so no map can be laid over it";
        return Err(Failure::new(mpi.abi.class.read_only, what));
    };
    let shown = name.to_string_lossy().into_owned();
    if mode & mpi.abi.mode.sequential != 0 {
        let what = format!("{shown}: no rule seals it, and a file of MPI_MODE_SEQUENTIAL then takes no map");
        return Err(Failure::new(mpi.abi.class.unsupported_operation, what));
    }
    let mut communicator = communicator(mpi, file, &shown)?;
    let laid = mpi.rank_and_size(communicator).and_then(|(rank, size)| {
        let own =
            own.map_err(|failure| Failure::new(failure.class, format!("{shown}, rank {rank}: {}", failure.sentence)));
        take_over(mpi, file, &name, mode, Ranks { communicator, rank, size }, own)
    });
    match laid {
        Ok(Some(sealed)) => {
            forget(file);
            handles::insert(sealed);
            Ok(())
        }
        other => {
            // SAFETY: it was just made, and nobody else has it.
            unsafe { (mpi.call.comm_free)(&raw mut communicator) };
            other.map(|_| ())
        }
    }
}

/// A communicator of the handle's ranks, which MPI does not give.
fn communicator(mpi: &Mpi, file: usize, shown: &str) -> Result<usize, Failure> {
    let (call, world) = (&mpi.call, mpi.abi.comm_world);
    let (mut group, mut all, mut size, mut made) = (0_usize, 0_usize, 0, 0_usize);
    // SAFETY: the handles are live, and the results ours.
    unsafe {
        mpi.check((call.file_get_group)(file, &raw mut group), "MPI_File_get_group")?;
        mpi.check((call.comm_group)(world, &raw mut all), "MPI_Comm_group")?;
        let (ours, everybody) = (mpi.abi.handle(group), mpi.abi.handle(all));
        mpi.check((call.group_size)(ours, &raw mut size), "MPI_Group_size")?;
        let ranks: Vec<c_int> = (0..size).collect();
        let mut there = vec![-1; ranks.len()];
        let found = (call.group_translate_ranks)(ours, size, ranks.as_ptr(), everybody, there.as_mut_ptr());
        let outcome = mpi.check(found, "MPI_Group_translate_ranks").and_then(|()| {
            // Who is in another world is MPI_UNDEFINED, which is negative.
            if there.iter().any(|&rank| rank < 0) {
                let what =
                    format!("{shown}: no rule seals it, and processes that were spawned then lay no map over it");
                return Err(Failure::new(mpi.abi.class.unsupported_operation, what));
            }
            mpi.check((call.comm_create_group)(world, ours, TAG, &raw mut made), "MPI_Comm_create_group")
        });
        (call.group_free)(&raw mut group);
        (call.group_free)(&raw mut all);
        outcome?;
        let made = mpi.abi.handle(made);
        (call.comm_set_errhandler)(made, mpi.abi.errors_return);
        Ok(made)
    }
}

/// The sealed file; nothing, if no rank's map has a byte.
fn take_over(
    mpi: &'static Mpi,
    file: usize,
    name: &CStr,
    mode: c_int,
    ranks: Ranks,
    own: Result<MapPart, Failure>,
) -> Result<Option<Sealed>, Failure> {
    let (shown, path) = (name.to_string_lossy().into_owned(), path(name).to_owned());
    let carried = Carried::of(mpi, file);
    let own = own.and_then(|own| carried.map(|carried| (own, carried)));
    // One rank's mistake is told to all before they begin.
    let mut length = 0;
    // SAFETY: the handle is open, and the result ours.
    let sized = mpi.check(unsafe { (mpi.call.file_get_size)(file, &raw mut length) }, "MPI_File_get_size");
    let own = sized.and(own);
    let [fails, length] = ranks.max(mpi, [i64::from(own.is_err()), length])?;
    let (own, mut carried) = own?;
    if fails != 0 {
        let what = format!("{shown}: another rank's part of the map is wrong, and says why");
        return Err(Failure::new(mpi.abi.class.argument, what));
    }
    if length > 0 {
        let what = format!(
            "{shown}: it is in clear and has data; a map is laid over a file before anything is written to it, and `gambeson file seal` seals one that is there"
        );
        return Err(Failure::new(mpi.abi.class.argument, what));
    }
    // The first rank looks what the rules say, for all.
    let detached = (ranks.rank == 0).then(|| vec![u8::from(is_detached(&path))]);
    let detached = ranks.broadcast(mpi, 0, detached)? == [1];
    let mut below = vec![reopen(mpi, ranks, file, name)?];
    if detached {
        match open_sidecar(mpi, ranks.communicator, name, mpi.abi.mode.read_write, true) {
            Ok(beside) => below.push(beside),
            Err(failure) => {
                close_all(mpi, below);
                return Err(failure);
            }
        }
    }
    let place = Place { file: below[0], sidecar: below.get(1).copied(), name: &shown, path: &path, is_writable: true };
    let sealed = map_plain(mpi, ranks, place, keys(), &own).and_then(|engine| {
        let Some(mut engine) = engine else { return Ok(None) };
        engine.set_atomic(carried.atomic)?;
        let token = ranks.broadcast(mpi, 0, (ranks.rank == 0).then(|| token().to_le_bytes().to_vec()))?;
        let token = u64::from_le_bytes(token.try_into().expect("8 bytes"));
        let (handles, called) = ((file, ranks.communicator), (shown.clone(), path.as_path()));
        let mut sealed = Sealed::new(mpi, handles, called, (mode, token), Box::new(engine))?;
        sealed.below.clone_from(&below);
        carried.give(&mut sealed.state());
        Ok(Some(sealed))
    });
    if !matches!(sealed, Ok(Some(_))) {
        close_all(mpi, below);
        let beside = sidecar(&path);
        if detached && ranks.rank == 0 && beside.metadata().is_ok_and(|data| data.len() == 0) {
            let _ = std::fs::remove_file(beside);
        }
    }
    sealed
}

/// Opens the file again, with the same hints.
fn reopen(mpi: &Mpi, ranks: Ranks, file: usize, name: &CStr) -> Result<usize, Failure> {
    let mut info = 0_usize;
    // SAFETY: the handle is open, and the result ours.
    mpi.check(unsafe { (mpi.call.file_get_info)(file, &raw mut info) }, "MPI_File_get_info")?;
    let below = open_below(mpi, ranks.communicator, name, mpi.abi.mode.read_write, mpi.abi.handle(info));
    // SAFETY: the library made it for us.
    unsafe { (mpi.call.info_free)(&raw mut info) };
    below
}

/// What the program has set of its handle before.
struct Carried {
    mpi: &'static Mpi,
    view: Option<View>,
    /// The individual pointer, in etypes.
    position: i64,
    atomic: bool,
}

impl Carried {
    fn of(mpi: &'static Mpi, file: usize) -> Result<Self, Failure> {
        let (mut displacement, mut position, mut atomic) = (0, 0, 0);
        let (mut etype, mut filetype) = (0_usize, 0_usize);
        let mut name = [0_u8; DATAREP_MAX];
        // SAFETY: the handle is open, the results are ours, and no name is longer.
        unsafe {
            let call = &mpi.call;
            mpi.check((call.file_get_position)(file, &raw mut position), "MPI_File_get_position")?;
            mpi.check((call.file_get_atomicity)(file, &raw mut atomic), "MPI_File_get_atomicity")?;
            let view = (call.file_get_view)(
                file,
                &raw mut displacement,
                &raw mut etype,
                &raw mut filetype,
                name.as_mut_ptr().cast(),
            );
            mpi.check(view, "MPI_File_get_view")?;
        }
        let (etype, filetype) = (mpi.abi.handle(etype), mpi.abi.handle(filetype));
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_bytes();
        let view = is_external(name)
            .ok_or_else(|| Failure::new(mpi.abi.class.unsupported_datarep, UNKNOWN_DATAREP))
            .and_then(|external| View::new(mpi, displacement, etype, filetype, external, true));
        if view.is_err() {
            drop_type(mpi, etype);
            drop_type(mpi, filetype);
        }
        Ok(Carried { mpi, view: Some(view?), position, atomic: atomic != 0 })
    }

    fn give(&mut self, state: &mut State) {
        let view = self.view.take().expect("it is given once");
        state.atomic = self.atomic;
        state.position = self.position * view.etype_size;
        state.view = view;
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(view) = &self.view {
            drop_type(self.mpi, view.etype);
            drop_type(self.mpi, view.filetype);
        }
    }
}

/// Of MPI_Comm_create_group: no other of ours is at work on the same ranks.
const TAG: c_int = 0x6d61;
/// More than MPI_MAX_DATAREP_STRING of any ABI.
const DATAREP_MAX: usize = 256;
const UNKNOWN_DATAREP: &str = "the view's data representation is none of native, internal and external32";
