//! Requests made of several buffers: gathered at once, or packed one after the other.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use gambeson_link::{Gather, Pack, Startpoint};

use crate::failure::{Failure, done, free, gambeson_link_status};
use crate::raw::{bytes, given, list, make, seconds};
use crate::startpoint::{answered, gambeson_link_answers, gambeson_link_pending, gambeson_link_startpoint};

/// Bytes somewhere in memory, as `struct iovec` has them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gambeson_link_piece {
    /// The first of them; null if there are none.
    pub start: *const c_void,
    /// How many.
    pub length: usize,
}

/// So many pieces need no memory.
const FEW: usize = 16;

/// Does something with a request made of these pieces.
///
/// # Safety
/// Unless it is null, so many are there, and the bytes that they speak of, as of `bytes`.
unsafe fn gather<T>(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    (pieces, count): (*const gambeson_link_piece, usize),
    then: impl FnOnce(Gather<'_, Arc<Startpoint>>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let startpoint = given(startpoint, "the startpoint")?.get();
    // SAFETY: the caller's promise.
    let pieces = unsafe { list(pieces, count, "the list of pieces")? };
    let (mut few, mut many) = ([&[][..]; FEW], Vec::new());
    let slices = if count <= FEW {
        &mut few[..count]
    } else {
        many.resize(count, &[][..]);
        &mut many[..]
    };
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        // SAFETY: the caller's promise.
        *slice = unsafe { bytes(piece.start, piece.length)? };
    }
    then(startpoint.gather_owned(handler, slices))
}

/// As `gambeson_link_startpoint_send`.
///
/// `pieces` are `count`, and are read before it returns; so are those of the functions below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_gather_send(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    pieces: *const gambeson_link_piece,
    count: usize,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    done(|| unsafe { gather(startpoint, handler, (pieces, count), |gather| Ok(gather.send()?)) })
}

/// As `gambeson_link_startpoint_post`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_gather_post(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    pieces: *const gambeson_link_piece,
    count: usize,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    done(|| unsafe { gather(startpoint, handler, (pieces, count), |gather| Ok(gather.post()?)) })
}

/// As `gambeson_link_startpoint_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_gather_call(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    pieces: *const gambeson_link_piece,
    count: usize,
    into: *mut c_void,
    room: usize,
    answer_length: Option<&mut MaybeUninit<usize>>,
    patience: f64,
) -> gambeson_link_status {
    done(|| {
        let patience = seconds(patience)?;
        let call = |gather: Gather<'_, Arc<Startpoint>>| {
            // SAFETY: the caller's promise.
            unsafe { answered(into, room, answer_length, |answer| gather.call_into(answer, patience)) }
        };
        // SAFETY: the caller's promise.
        unsafe { gather(startpoint, handler, (pieces, count), call) }
    })
}

/// As `gambeson_link_startpoint_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_gather_start(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    pieces: *const gambeson_link_piece,
    count: usize,
    pending: Option<&mut MaybeUninit<Option<Box<gambeson_link_pending>>>>,
) -> gambeson_link_status {
    done(|| {
        make(pending, || {
            // SAFETY: the caller's promise.
            let started = unsafe { gather(startpoint, handler, (pieces, count), |gather| Ok(gather.start()?)) };
            started.map(gambeson_link_pending::new)
        })
    })
}

/// As `gambeson_link_startpoint_stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_gather_stream(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    pieces: *const gambeson_link_piece,
    count: usize,
    answers: Option<&mut MaybeUninit<Option<Box<gambeson_link_answers>>>>,
) -> gambeson_link_status {
    done(|| {
        make(answers, || {
            // SAFETY: the caller's promise.
            let begun = unsafe { gather(startpoint, handler, (pieces, count), |gather| Ok(gather.stream()?)) };
            begun.map(gambeson_link_answers::new)
        })
    })
}

/// A request that is being packed. It belongs to the thread that began it, whose other requests over this link are
/// refused meanwhile: they would wait for it. Any thread may drop it.
///
/// It may outlive its startpoint's handle.
pub struct gambeson_link_pack(Pack<Arc<Startpoint>>);

/// Begins to pack a request whose message will have `size` bytes. Over links with transform modules it is put together
/// first.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_startpoint_pack(
    startpoint: Option<&gambeson_link_startpoint>,
    handler: u32,
    size: usize,
    pack: Option<&mut MaybeUninit<Option<Box<gambeson_link_pack>>>>,
) -> gambeson_link_status {
    done(|| {
        make(pack, || Ok(gambeson_link_pack(given(startpoint, "the startpoint")?.get().pack_owned(handler, size)?)))
    })
}

/// Puts these bytes behind those that were put before. What of them is not sealed yet when it returns was copied.
/// Waits, as `gambeson_link_startpoint_send` does, while there is no room or others' messages go first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_pack_put(
    pack: Option<&mut gambeson_link_pack>,
    from: *const c_void,
    length: usize,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    done(|| Ok(given(pack, "the pack")?.0.put(unsafe { bytes(from, length)? })?))
}

/// Sends it; nobody answers.
///
/// It frees the pack, whatever it returns; so do the functions below.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_pack_send(pack: Option<Box<gambeson_link_pack>>) -> gambeson_link_status {
    done(|| Ok(given(pack, "the pack")?.0.send()?))
}

/// Sends it and waits for the answer, at most so long.
///
/// As `gambeson_link_startpoint_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_pack_call(
    pack: Option<Box<gambeson_link_pack>>,
    into: *mut c_void,
    room: usize,
    answer_length: Option<&mut MaybeUninit<usize>>,
    patience: f64,
) -> gambeson_link_status {
    done(|| {
        let (pack, patience) = (given(pack, "the pack")?, seconds(patience)?);
        // SAFETY: the caller's promise.
        unsafe { answered(into, room, answer_length, |answer| pack.0.start()?.wait_into(answer, patience)) }
    })
}

/// Sends it; the answer is waited for later, or awaited.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_pack_start(
    pack: Option<Box<gambeson_link_pack>>,
    pending: Option<&mut MaybeUninit<Option<Box<gambeson_link_pending>>>>,
) -> gambeson_link_status {
    done(|| make(pending, || Ok(gambeson_link_pending::new(given(pack, "the pack")?.0.start()?))))
}

/// Sends it; a stream answers.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_pack_stream(
    pack: Option<Box<gambeson_link_pack>>,
    answers: Option<&mut MaybeUninit<Option<Box<gambeson_link_answers>>>>,
) -> gambeson_link_status {
    done(|| make(answers, || Ok(gambeson_link_answers::new(given(pack, "the pack")?.0.stream()?))))
}

/// Frees a pack whose message is given up. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_pack_free(pack: Option<Box<gambeson_link_pack>>) {
    free(pack);
}
