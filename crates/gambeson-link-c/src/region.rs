//! Memory regions of endpoints, and puts and gets.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use gambeson_link::{Caveat, Region};
use gambeson_proto::startpoint::Window;

use crate::endpoint::gambeson_link_endpoint;
use crate::failure::{Failure, done, free, gambeson_link_status};
use crate::raw::{bytes, fill, given, hand_out, list, make, room_for, seconds};
use crate::startpoint::{answered, gambeson_link_pending, gambeson_link_startpoint};

/// Part of a memory region, with what may be done in it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gambeson_link_window {
    /// Number of the region at its owner.
    pub region: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes; not zero.
    pub length: u64,
    /// 1 to read, 2 to write, 3 for both.
    pub rights: u8,
}

/// A caveat of windows.
///
/// # Safety
/// Unless it is null, so many are there.
pub(crate) unsafe fn memory(windows: *const gambeson_link_window, count: usize) -> Result<Caveat, Failure> {
    // SAFETY: the caller's promise.
    let windows = unsafe { list(windows, count, "the list of windows")? };
    let window =
        |&gambeson_link_window { region, offset, length, rights }: &_| Window { region, offset, length, rights };
    Ok(Caveat::Memory(windows.iter().map(window).collect()))
}

/// Memory of an endpoint that startpoints reach, as far as their windows go. It is there as long as somebody holds it;
/// clones are the same memory.
///
/// Threads may share it. Freed, it is gone, and who reaches for it is refused.
pub struct gambeson_link_region(Region);

/// Makes memory that startpoints of this endpoint reach if they have a `gambeson_link_capability_narrow_memory` with a
/// window onto it. It is the library's as long as the `gambeson_link_region` or a clone of it is held.
///
/// It begins with a copy of the `length` bytes at `initial`, or with zeroes if that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_endpoint_region(
    endpoint: Option<&gambeson_link_endpoint>,
    initial: *const c_void,
    length: usize,
    region: Option<&mut MaybeUninit<Option<Box<gambeson_link_region>>>>,
) -> gambeson_link_status {
    done(|| {
        make(region, || {
            let endpoint = given(endpoint, "the endpoint")?;
            let mut memory = room_for(length)?;
            if initial.is_null() {
                memory.resize(length, 0);
            } else {
                // SAFETY: the caller's promise.
                memory.extend_from_slice(unsafe { bytes(initial, length)? });
            }
            Ok(gambeson_link_region(endpoint.get().region(memory)))
        })
    })
}

/// Its number at its endpoint, which no other region has or will have.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_region_number(
    region: Option<&gambeson_link_region>,
    number: Option<&mut MaybeUninit<u64>>,
) -> gambeson_link_status {
    done(|| hand_out(number, given(region, "the region")?.0.number()))
}

/// Its length in bytes; it never changes.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_region_length(
    region: Option<&gambeson_link_region>,
    length: Option<&mut MaybeUninit<u64>>,
) -> gambeson_link_status {
    done(|| hand_out(length, given(region, "the region")?.0.len()))
}

/// Copies from `offset` on into `into`. No put is seen in part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_region_read(
    region: Option<&gambeson_link_region>,
    offset: u64,
    into: *mut c_void,
    length: usize,
) -> gambeson_link_status {
    done(|| {
        let region = given(region, "the region")?;
        let mut copy = room_for(length)?;
        copy.resize(length, 0);
        region.0.read(offset, &mut copy)?;
        // SAFETY: the caller's promise.
        unsafe { fill(&copy, into, length, None) }
    })
}

/// Copies `from` to `offset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_region_write(
    region: Option<&gambeson_link_region>,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> gambeson_link_status {
    // SAFETY: the caller's promise.
    done(|| Ok(given(region, "the region")?.0.write(offset, unsafe { bytes(from, length)? })?))
}

/// Frees a region: it is gone. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_region_free(region: Option<Box<gambeson_link_region>>) {
    free(region);
}

/// Puts bytes into a memory region of the endpoint, from `offset` on, and waits until they are there, at most so long.
/// They land whole or not at all, in turn with the link's requests, other puts, and gets.
///
/// `patience` is in seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_put(
    startpoint: Option<&gambeson_link_startpoint>,
    region: u64,
    offset: u64,
    from: *const c_void,
    length: usize,
    patience: f64,
) -> gambeson_link_status {
    done(|| {
        let startpoint = given(startpoint, "the startpoint")?.get();
        // SAFETY: the caller's promise.
        Ok(startpoint.put(region, offset, unsafe { bytes(from, length)? }, seconds(patience)?)?)
    })
}

/// `gambeson_link_startpoint_put` without an answer: it lands before what follows on the link, or is refused and nobody
/// hears.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_put_one_way(
    startpoint: Option<&gambeson_link_startpoint>,
    region: u64,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> gambeson_link_status {
    done(|| {
        let startpoint = given(startpoint, "the startpoint")?.get();
        // SAFETY: the caller's promise.
        Ok(startpoint.put_one_way(region, offset, unsafe { bytes(from, length)? })?)
    })
}

/// A `gambeson_link_startpoint_put` that is waited for later, or awaited; its answer is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_start_put(
    startpoint: Option<&gambeson_link_startpoint>,
    region: u64,
    offset: u64,
    from: *const c_void,
    length: usize,
    pending: Option<&mut MaybeUninit<Option<Box<gambeson_link_pending>>>>,
) -> gambeson_link_status {
    done(|| {
        make(pending, || {
            let startpoint = given(startpoint, "the startpoint")?.get();
            // SAFETY: the caller's promise.
            let from = unsafe { bytes(from, length)? };
            Ok(gambeson_link_pending::new(startpoint.start_put_owned(region, offset, from)?))
        })
    })
}

/// Gets as many bytes of a memory region of the endpoint as `into` has, from `offset` on; waits at most so long. No put
/// is seen in part.
///
/// `patience` is in seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gambeson_link_startpoint_get(
    startpoint: Option<&gambeson_link_startpoint>,
    region: u64,
    offset: u64,
    into: *mut c_void,
    length: usize,
    patience: f64,
) -> gambeson_link_status {
    done(|| {
        let startpoint = given(startpoint, "the startpoint")?.get();
        let patience = seconds(patience)?;
        let get =
            |answer: &mut Vec<u8>| startpoint.start_get(region, offset, length as u64)?.wait_into(answer, patience);
        // SAFETY: the caller's promise.
        unsafe { answered(into, length, None, get) }
    })
}

/// A get of `length` bytes that is waited for later, or awaited.
///
/// What comes is the answer of `pending`.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_startpoint_start_get(
    startpoint: Option<&gambeson_link_startpoint>,
    region: u64,
    offset: u64,
    length: usize,
    pending: Option<&mut MaybeUninit<Option<Box<gambeson_link_pending>>>>,
) -> gambeson_link_status {
    done(|| {
        make(pending, || {
            let startpoint = given(startpoint, "the startpoint")?.get();
            Ok(gambeson_link_pending::new(startpoint.start_get_owned(region, offset, length as u64)?))
        })
    })
}
