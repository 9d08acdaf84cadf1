//! What C gives, as references, slices, texts and durations; and what it is given.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

use gambeson_link::Protection;

use crate::failure::Failure;

/// Where C wants a handle, a number or a pointer.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Who is meant must be there.
pub(crate) fn given<T>(pointer: Option<T>, what: &str) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::argument(format!("{what} is null")))
}

/// Makes a new handle; what C then has is null if it fails.
pub(crate) fn make<T>(out: Out<'_, Option<Box<T>>>, made: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
    let out = given(out, "the place for the result")?;
    out.write(None);
    out.write(Some(Box::new(made()?)));
    Ok(())
}

/// The bytes from here on.
///
/// # Safety
/// Unless it is null, so many bytes stay there, unchanged, while they are used.
pub(crate) unsafe fn bytes<'b>(start: *const c_void, length: usize) -> Result<&'b [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() || isize::try_from(length).is_err() {
        return Err(Failure::argument(format!("{length} bytes at {start:p} are none")));
    }
    // SAFETY: not null, no longer than memory can be, and the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) })
}

/// Memory for so many bytes of C's.
pub(crate) fn room_for(length: usize) -> Result<Vec<u8>, Failure> {
    let mut memory = Vec::new();
    let reserved = memory.try_reserve_exact(length);
    reserved.map_err(|_| Failure::argument(format!("there is no memory for {length} bytes")))?;
    Ok(memory)
}

/// A key, a secret or a hash.
///
/// # Safety
/// Unless it is null, as many bytes as the result has are there.
pub(crate) unsafe fn array<const N: usize>(start: *const u8, what: &str) -> Result<[u8; N], Failure> {
    given((!start.is_null()).then_some(()), what)?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(start.cast(), N)? };
    Ok(bytes.try_into().expect("so many were taken"))
}

/// A list of at most 65,535.
///
/// # Safety
/// Unless it is null, so many are there.
pub(crate) unsafe fn list<'l, T>(start: *const T, count: usize, what: &str) -> Result<&'l [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    given((!start.is_null() && count < 1 << 16).then_some(()), what)?;
    // SAFETY: not null, and the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// A text.
///
/// # Safety
/// Unless it is null, a zero byte ends it.
pub(crate) unsafe fn text<'t>(start: *const c_char, what: &str) -> Result<&'t str, Failure> {
    given((!start.is_null()).then_some(()), what)?;
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(start) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is no UTF-8")))
}

/// A list of texts.
///
/// # Safety
/// Unless it is null, so many are there, and a zero byte ends each.
pub(crate) unsafe fn texts<'t>(start: *const *const c_char, count: usize, what: &str) -> Result<Vec<&'t str>, Failure> {
    // SAFETY: the caller's promise, for the list and for each.
    unsafe { list(start, count, what)?.iter().map(|&one| text(one, what)).collect() }
}

/// Tells C something.
pub(crate) fn hand_out<T>(out: Out<'_, T>, value: T) -> Result<(), Failure> {
    given(out, "the place for the result")?.write(value);
    Ok(())
}

/// Lets C read bytes of ours.
pub(crate) fn show(found: &[u8], start: Out<'_, *const c_void>, length: Out<'_, usize>) -> Result<(), Failure> {
    hand_out(start, found.as_ptr().cast())?;
    hand_out(length, found.len())
}

/// Fills the caller's memory; `length` is told even if there is too little of it.
///
/// # Safety
/// Unless it is null, so many bytes may be written there.
pub(crate) unsafe fn fill(from: &[u8], into: *mut c_void, room: usize, length: Out<'_, usize>) -> Result<(), Failure> {
    if let Some(length) = length {
        length.write(from.len());
    }
    if from.len() > room {
        return Err(Failure::room(from.len(), room));
    }
    if from.is_empty() {
        return Ok(());
    }
    given((!into.is_null()).then_some(()), "the place for the result")?;
    // SAFETY: there is room, by the caller's promise, and it is not ours, so that nothing overlaps.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.cast(), from.len()) };
    Ok(())
}

/// [`fill`] with a text and the zero byte at its end, which `length` does not count.
///
/// # Safety
/// As there.
pub(crate) unsafe fn fill_text(
    from: &str,
    into: *mut c_char,
    room: usize,
    length: Out<'_, usize>,
) -> Result<(), Failure> {
    if let Some(length) = length {
        length.write(from.len());
    }
    let ended = [from.as_bytes(), &[0]].concat();
    // SAFETY: the caller's promise.
    unsafe { fill(&ended, into.cast(), room, None) }
}

/// How long; ten years is for ever.
pub(crate) fn seconds(seconds: f64) -> Result<Duration, Failure> {
    const LONGEST: f64 = 3650.0 * 86_400.0;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(Failure::argument(format!("{seconds} seconds are none; give zero or more")));
    }
    Ok(Duration::from_secs_f64(seconds.min(LONGEST)))
}

/// A `gambeson_link_protection`.
pub(crate) fn protection_of(number: u32) -> Result<Protection, Failure> {
    let found = Protection::ALL.into_iter().find(|&protection| protection as u32 == number);
    found.ok_or_else(|| Failure::argument(format!("{number} is no gambeson_link_protection")))
}
