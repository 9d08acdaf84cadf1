//! A box on pages for secrets.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::arena::{BOXES, SLOT};

/// A type of which all zero is a value, and that owns nothing: what is left of it in a forked child may be looked at.
///
/// # Safety
/// That is so. [`wipeable!`](crate::wipeable) declares structs for which the compiler checks it.
pub unsafe trait Wipeable {}

// SAFETY: zero is a number.
unsafe impl Wipeable for u8 {}
// SAFETY: as above.
unsafe impl Wipeable for u32 {}
// SAFETY: as above.
unsafe impl Wipeable for u64 {}
// SAFETY: zero is false.
unsafe impl Wipeable for bool {}
// SAFETY: it is made of nothing else.
unsafe impl<T: Wipeable, const N: usize> Wipeable for [T; N] {}

/// Declares a struct that is [`Wipeable`], as all its fields are.
#[macro_export]
macro_rules! wipeable {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$about:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$about])* $field: $type),* }

        // SAFETY: every field is, as the bounds say.
        unsafe impl $crate::Wipeable for $name where $($type: $crate::Wipeable),* {}
    };
}

/// A value on a page that a forked child finds empty and no core dump holds. It is overwritten when it goes.
///
/// ```text
///  | mark 1 | padding | value |     mark: 1 in the process that made it, 0 in its children
/// ```
/// Small ones share the mark of their page.
pub struct PageBox<T: Wipeable> {
    value: NonNull<T>,
    owned: PhantomData<T>,
}

// SAFETY: it owns what it points to, as a Box does.
unsafe impl<T: Wipeable + Send> Send for PageBox<T> {}
// SAFETY: as above.
unsafe impl<T: Wipeable + Sync> Sync for PageBox<T> {}

impl<T: Wipeable> PageBox<T> {
    /// A copy of the value may be left where it was made; [`PageBox::zeroed`] leaves none.
    pub fn new(value: T) -> Self {
        let boxed = Self::zeroed();
        // SAFETY: the place is valid for a value and ours, and what is there needs no drop.
        unsafe { boxed.value.write(value) };
        boxed
    }

    /// A value, all zero.
    pub fn zeroed() -> Self {
        PageBox { value: allocate(1), owned: PhantomData }
    }

    /// Whether this process made it. If not, a fork lies in between, and all of it is zero.
    pub fn is_here(&self) -> bool {
        // SAFETY: the value was allocated there, once.
        unsafe { is_here(self.value, 1) }
    }
}

impl<T: Wipeable> Deref for PageBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it stands there, initialised, or all zero, which is a value, too.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Wipeable> DerefMut for PageBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and nobody else refers to it.
        unsafe { self.value.as_mut() }
    }
}

impl<T: Wipeable> Drop for PageBox<T> {
    fn drop(&mut self) {
        // SAFETY: it was allocated there, once, and is gone now.
        unsafe { free(self.value, 1) }
    }
}

/// Several values of one type, as a [`PageBox`] is one.
pub struct PageSlice<T: Wipeable> {
    first: NonNull<T>,
    count: usize,
    owned: PhantomData<T>,
}

// SAFETY: it owns what it points to, as a Box does.
unsafe impl<T: Wipeable + Send> Send for PageSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Wipeable + Sync> Sync for PageSlice<T> {}

impl<T: Wipeable> PageSlice<T> {
    /// So many values, all zero.
    pub fn zeroed(count: usize) -> Self {
        PageSlice { first: allocate(count), count, owned: PhantomData }
    }
}

impl<T: Wipeable> Deref for PageSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many values stand there, initialised, or all zero, which is a value, too.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T: Wipeable> DerefMut for PageSlice<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }
}

impl<T: Wipeable> Drop for PageSlice<T> {
    fn drop(&mut self) {
        // SAFETY: they were allocated there, so many, once, and are gone now.
        unsafe { free(self.first, self.count) }
    }
}

const HERE: u8 = 1;

/// Whether values go into a slot that shares its page's mark.
fn is_small<T>(count: usize) -> bool {
    size_of::<T>() * count <= SLOT && align_of::<T>() <= SLOT
}

/// Room for values behind their own mark.
fn layout<T>(count: usize) -> Layout {
    let size = size_of::<T>().checked_mul(count).and_then(|size| size.checked_add(align_of::<T>()));
    let layout = size.and_then(|size| Layout::from_size_align(size, align_of::<T>()).ok());
    layout.expect("that much memory is nowhere")
}

fn allocate<T>(count: usize) -> NonNull<T> {
    let layout = layout::<T>(count);
    let place = if is_small::<T>(count) {
        BOXES.slot()
    } else {
        // SAFETY: the layout is not empty: it holds the mark.
        NonNull::new(unsafe { BOXES.alloc_zeroed(layout) }).map(|block| {
            // SAFETY: the block begins with the mark and has the values behind it, aligned: see `layout`.
            unsafe {
                block.write(HERE);
                block.add(align_of::<T>())
            }
        })
    };
    place.unwrap_or_else(|| handle_alloc_error(layout)).cast()
}

/// # Safety
/// So many values were allocated there and not freed.
unsafe fn is_here<T>(first: NonNull<T>, count: usize) -> bool {
    if is_small::<T>(count) {
        return BOXES.is_of_this_process(first.cast());
    }
    // SAFETY: the mark stands so far before the values. A fork changes it, so it is looked at and not remembered.
    unsafe { first.cast::<u8>().sub(align_of::<T>()).read_volatile() == HERE }
}

/// # Safety
/// So many values were allocated there and not freed, and nobody refers to them.
unsafe fn free<T>(first: NonNull<T>, count: usize) {
    // SAFETY: the caller says what the callees ask for. A wipeable value owns nothing that would have to be dropped. In a
    // child the allocator does not know the block: it goes with the child.
    unsafe {
        if !is_here(first, count) {
            return;
        }
        wipe(first.cast().as_ptr(), size_of::<T>() * count);
        if is_small::<T>(count) {
            BOXES.free_slot(first.cast());
        } else {
            BOXES.dealloc(first.cast::<u8>().sub(align_of::<T>()).as_ptr(), layout::<T>(count));
        }
    }
}

/// Overwrites memory that nobody will read.
///
/// # Safety
/// So many bytes from there are the caller's to write.
unsafe fn wipe(from: *mut u8, bytes: usize) {
    // SAFETY: the caller says so. The function is one that no compiler leaves out; Miri does not know it.
    unsafe { if cfg!(any(miri, asan)) { from.write_bytes(0, bytes) } else { libc::explicit_bzero(from.cast(), bytes) } }
}

impl<T: Wipeable> fmt::Debug for PageBox<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PageBox(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    wipeable! {
        /// As a slot of a key cache.
        #[repr(align(64))]
        struct Slot {
            key: [u8; 33],
            owner: u64,
            used: bool,
        }
    }

    #[test]
    fn values_are_aligned_and_begin_as_zero() {
        for count in [0, 1, 2, 100] {
            let mut slots = PageSlice::<Slot>::zeroed(count);
            assert_eq!(slots.as_ptr() as usize % 64, 0);
            assert_eq!(slots.len(), count);
            for slot in slots.iter_mut() {
                assert!(slot.key == [0; 33] && slot.owner == 0 && !slot.used);
                (slot.key, slot.owner, slot.used) = ([7; 33], 1, true);
            }
            assert!(slots.iter().all(|slot| slot.key == [7; 33]));
        }
    }

    #[test]
    fn many_come_and_go() {
        let mut kept = Vec::new();
        for round in 0..1000_u32 {
            kept.push(PageBox::new(round.to_le_bytes()));
            if round % 3 == 0 {
                kept.swap_remove(round as usize % kept.len());
            }
        }
        let mut seen: Vec<u32> = kept.iter().map(|held| u32::from_le_bytes(**held)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), kept.len());
    }
}
