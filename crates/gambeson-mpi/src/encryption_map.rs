//! `MPIX_File_set_encryption_map`: which bytes of a file are sealed under which label, independent of the view
//! (MPISec I/O, section 3). What it takes is in include/gambeson_mpi.h.

use std::ffi::{CStr, c_char, c_int};

use gambeson_proto::file::FileSuite;
use gambeson_proto::file::region::{Part, Piece};

use crate::completion::outcome;
use crate::error::Failure;
use crate::handles::sealed;
use crate::mpi::{Inside, Mpi};
use crate::sealed::{MapPart, map_shape};
use crate::view::View;
use crate::{fortran, plain};

/// Lays a map over a file that has no data yet. Collective.
///
/// # Safety
/// The handles are MPI's, and the strings are C strings or null.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
#[allow(clippy::too_many_arguments, reason = "the routine's arguments")]
pub(crate) unsafe extern "C" fn MPIX_File_set_encryption_map(
    file: usize,
    displacement: i64,
    etype: usize,
    filetype: usize,
    representation: *const c_char,
    label: *const c_char,
    suite: *const c_char,
    block_size: c_int,
    _info: usize,
) -> c_int {
    let handle = sealed(file);
    // Without an MPI library nobody can have opened a file.
    let Ok(mpi) = Mpi::get() else { return -1 };
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    let (representation, label, suite) = unsafe { (text(representation), text(label), text(suite)) };
    let types = (mpi.abi.handle(etype), mpi.abi.handle(filetype));
    let part = part(mpi, displacement, types, &representation, (label, &suite), block_size);
    let Some(handle) = handle else {
        return plain::lay(mpi, file, part).map_or_else(|failure| failure.raise(mpi, file), |()| 0);
    };
    let part = part.map_err(|failure| handle.failure(failure.class, &failure.sentence));
    outcome(&handle, handle.state().engine.set_map(part))
}

/// The same with the handles of Fortran. The module in include/gambeson_mpi.f90 calls it.
///
/// # Safety
/// The strings are C strings.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
#[allow(clippy::too_many_arguments, reason = "the routine's arguments")]
pub(crate) unsafe extern "C" fn MPIX_File_set_encryption_map_f(
    file: c_int,
    displacement: i64,
    etype: c_int,
    filetype: c_int,
    representation: *const c_char,
    label: *const c_char,
    suite: *const c_char,
    block_size: c_int,
    info: c_int,
) -> c_int {
    let Ok(mpi) = Mpi::get() else { return -1 };
    let (file, info) = (fortran::file(mpi, file), fortran::info(mpi, info));
    let (etype, filetype) = (fortran::datatype(mpi, etype), fortran::datatype(mpi, filetype));
    // SAFETY: the caller's promise.
    unsafe {
        MPIX_File_set_encryption_map(
            file,
            displacement,
            etype,
            filetype,
            representation,
            label,
            suite,
            block_size,
            info,
        )
    }
}

/// # Safety
/// The address is that of a C string, or null.
unsafe fn text(address: *const c_char) -> String {
    if address.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned()
}

fn part(
    mpi: &'static Mpi,
    displacement: i64,
    (etype, filetype): (usize, usize),
    representation: &str,
    (label, suite): (String, &str),
    block_size: c_int,
) -> Result<MapPart, Failure> {
    let class = &mpi.abi.class;
    if displacement < 0 {
        return Err(Failure::new(class.argument, format!("the map's displacement {displacement} is negative")));
    }
    if !["native", "internal", ""].contains(&representation) {
        let what = format!("a map has the data representation native, and not \"{representation}\"");
        return Err(Failure::new(class.unsupported_datarep, what));
    }
    if label.is_empty() {
        return Err(Failure::new(class.argument, "the map names no label"));
    }
    let suite = if suite.is_empty() { Some(FileSuite::default()) } else { FileSuite::from_name(suite) };
    let suite = suite.ok_or_else(|| {
        let known = FileSuite::ALL.map(FileSuite::name).join(", ");
        Failure::new(class.argument, format!("the map's suite is none of {known}"))
    })?;
    let block_len = match u32::try_from(block_size) {
        Ok(0) => None,
        Ok(length) if map_shape(length).is_some() => Some(length),
        _ => {
            let what = format!("a block of {block_size} bytes is no power of two from 4096 to 1048576");
            return Err(Failure::new(class.argument, what));
        }
    };
    // The types are checked as those of a view that is written through.
    let view = View::new(mpi, displacement, etype, filetype, false, true)?;
    let pieces = view.pieces().map(|(at, length)| Piece { offset: at.cast_unsigned(), len: length.cast_unsigned() });
    let pieces: Vec<Piece> = pieces.filter(|piece| piece.len > 0).collect();
    let part = (!pieces.is_empty())
        .then(|| Part::new(displacement.cast_unsigned(), view.extent().cast_unsigned(), pieces))
        .transpose()
        .map_err(|error| Failure::new(class.argument, format!("the filetype makes no map: {error}")))?;
    Ok(MapPart { label, suite, block_len, part })
}
