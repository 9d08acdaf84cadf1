//! Long arrays that are read in no order: in huge pages, where the system gives them to who asks, as a large network's
//! every event otherwise misses the processor's table of pages several times.
#![allow(unsafe_code)]

use rustix::mm::{Advice, madvise};

/// The size of a huge page; a shorter array has no use for one.
const HUGE: usize = 2 << 20;

/// An empty vector with room for `count` elements.
pub(crate) fn scattered<T>(count: usize) -> Vec<T> {
    let mut vector = Vec::new();
    reserve(&mut vector, count);
    vector
}

/// Makes room for `more` elements beyond those that a vector has, as [`Vec::reserve`] does.
pub(crate) fn reserve<T>(vector: &mut Vec<T>, more: usize) {
    vector.reserve(more);
    let bytes = vector.capacity() * size_of::<T>();
    let begin = vector.as_mut_ptr().addr().next_multiple_of(HUGE);
    let end = (vector.as_mut_ptr().addr() + bytes) / HUGE * HUGE;
    if end > begin {
        let begin = vector.as_mut_ptr().with_addr(begin);
        // SAFETY: the range is within the vector's own memory, and this advice alters none of it. A system without huge
        // pages refuses; then the pages are small.
        let _ = unsafe { madvise(begin.cast(), end - begin.addr(), Advice::LinuxHugepage) };
    }
}
