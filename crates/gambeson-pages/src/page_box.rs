//! A box on pages for secrets.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::arena::BOXES;

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

/// A value, or several of one type, on pages that a forked child finds empty and no core dump holds. It is overwritten
/// when it goes.
///
/// ```text
///  | mark 1 | padding | value |     mark: 1 in the process that made it, 0 in its children
/// ```
pub struct PageBox<T: Wipeable> {
    first: NonNull<T>,
    count: usize,
    owned: PhantomData<T>,
}

// SAFETY: it owns what it points to, as a Box does.
unsafe impl<T: Wipeable + Send> Send for PageBox<T> {}
// SAFETY: as above.
unsafe impl<T: Wipeable + Sync> Sync for PageBox<T> {}

impl<T: Wipeable> PageBox<T> {
    /// One value. A copy of it may be left where it was made; [`PageBox::zeroed`] leaves none.
    pub fn new(value: T) -> Self {
        let boxed = Self::zeroed(1);
        // SAFETY: the place is valid for a value and ours, and what is there needs no drop.
        unsafe { boxed.first.write(value) };
        boxed
    }

    /// So many values, all zero.
    pub fn zeroed(count: usize) -> Self {
        let layout = layout::<T>(count);
        // SAFETY: the layout is not empty: it holds the mark.
        let block = unsafe { BOXES.alloc_zeroed(layout) };
        let Some(block) = NonNull::new(block) else { handle_alloc_error(layout) };
        // SAFETY: the block begins with the mark and has the values behind it, aligned: see `layout`.
        let first = unsafe {
            block.write(HERE);
            block.add(offset::<T>()).cast()
        };
        PageBox { first, count, owned: PhantomData }
    }

    /// Whether this process made it. If not, a fork lies in between, and all of it is zero.
    pub fn is_here(&self) -> bool {
        // SAFETY: the block begins there and is ours; a fork changes the mark, so it is looked at and not remembered.
        unsafe { self.block().read_volatile() == HERE }
    }

    fn block(&self) -> NonNull<u8> {
        // SAFETY: the values stand so far behind the block's beginning.
        unsafe { self.first.cast::<u8>().sub(offset::<T>()) }
    }
}

const HERE: u8 = 1;

/// Bytes between the mark and the first value.
const fn offset<T>() -> usize {
    align_of::<T>()
}

fn layout<T>(count: usize) -> Layout {
    let size = size_of::<T>().checked_mul(count).and_then(|size| size.checked_add(offset::<T>()));
    let layout = size.and_then(|size| Layout::from_size_align(size, align_of::<T>()).ok());
    layout.expect("that much memory is nowhere")
}

impl<T: Wipeable> Deref for PageBox<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many values stand there, initialised, or all zero, which is a value, too.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T: Wipeable> DerefMut for PageBox<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }
}

impl<T: Wipeable> Drop for PageBox<T> {
    fn drop(&mut self) {
        // In a child the allocator does not know the block: it goes with the child.
        if self.is_here() {
            let (block, layout) = (self.block(), layout::<T>(self.count));
            // SAFETY: the block is ours, of this layout, and a wipeable value owns nothing that would have to be dropped.
            unsafe {
                wipe(block.as_ptr(), layout.size());
                BOXES.dealloc(block.as_ptr(), layout);
            }
        }
    }
}

/// Overwrites memory that nobody will read.
///
/// # Safety
/// So many bytes from there are the caller's to write.
unsafe fn wipe(from: *mut u8, bytes: usize) {
    // SAFETY: the caller says so. The function is one that no compiler leaves out; Miri does not know it.
    unsafe { if cfg!(miri) { from.write_bytes(0, bytes) } else { libc::explicit_bzero(from.cast(), bytes) } }
}

impl<T: Wipeable> fmt::Debug for PageBox<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PageBox(.. {})", self.count)
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
            let mut slots = PageBox::<Slot>::zeroed(count);
            assert_eq!(slots.as_ptr() as usize % 64, 0);
            assert_eq!(slots.len(), count);
            for slot in slots.iter_mut() {
                assert!(slot.key == [0; 33] && slot.owner == 0 && !slot.used);
                (slot.key, slot.owner, slot.used) = ([7; 33], 1, true);
            }
            assert!(slots.iter().all(|slot| slot.key == [7; 33]) && slots.is_here());
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
        let mut seen: Vec<u32> = kept.iter().map(|held| u32::from_le_bytes(held[0])).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), kept.len());
    }
}
