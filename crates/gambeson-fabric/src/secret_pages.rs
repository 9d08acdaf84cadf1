//! The allocator behind every Rust allocation of this library: pages that a forked child finds
//! empty and that no core dump holds (key discipline, rule 6).
//!
//! Everything the library knows lives on these pages: keys, sessions, buffers, queues. A child of
//! fork or of a raw clone without shared memory finds them all zero, and [`alive`] tells it so. It
//! must then touch nothing: every entry point asks first. A vfork child shares its parent's memory
//! until it calls exec, as it shares every other secret of its parent; it may do nothing else.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use dlmalloc::{Allocator, Dlmalloc};

/// The global allocator.
pub(crate) struct SecretPages;

/// Whether this process is the one that loaded the library, and no forked child of it.
pub(crate) fn alive() -> bool {
    let anchor = ANCHOR.load(Ordering::Acquire);
    // SAFETY: the anchor is null or points to a mapping that is never unmapped.
    anchor.is_null() || unsafe { (*anchor).live.load(Ordering::Relaxed) }
}

/// Whether some page could not be locked into memory, so that it may reach a swap device.
pub(crate) fn may_swap() -> bool {
    UNLOCKED.load(Ordering::Relaxed)
}

/// How many blocks this process asked for so far. Nothing is to be asked for per message.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// What the allocator itself knows; on a page of the same kind, so that it is zero in a child.
struct Anchor {
    live: AtomicBool,
    heap: Mutex<Heap>,
}

struct Heap(UnsafeCell<Dlmalloc<Pages>>);

static ANCHOR: AtomicPtr<Anchor> = AtomicPtr::new(ptr::null_mut());
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static UNLOCKED: AtomicBool = AtomicBool::new(false);

/// The anchor of this process, made when first needed.
fn anchor() -> Option<&'static Anchor> {
    let existing = ANCHOR.load(Ordering::Acquire);
    if !existing.is_null() {
        // SAFETY: a published anchor is initialised and never unmapped.
        return Some(unsafe { &*existing });
    }
    let made: *mut Anchor = map(size_of::<Anchor>().next_multiple_of(PAGE)).cast();
    if made.is_null() {
        return None;
    }
    let heap = Mutex::new(Heap(UnsafeCell::new(Dlmalloc::new_with_allocator(Pages))));
    // SAFETY: the fresh mapping is large enough and page-aligned, and nobody else knows it yet.
    unsafe { made.write(Anchor { live: AtomicBool::new(true), heap }) };
    match ANCHOR.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just initialised, and published for good.
        Ok(_) => Some(unsafe { &*made }),
        // SAFETY: another thread was faster; its anchor is the one. Ours is a page lost.
        Err(first) => Some(unsafe { &*first }),
    }
}

/// Runs `work` on the heap; `None` in a forked child, where there is none.
fn with_heap<R>(work: impl FnOnce(&mut Dlmalloc<Pages>) -> R) -> Option<R> {
    let anchor = anchor()?;
    if !anchor.live.load(Ordering::Relaxed) {
        return None;
    }
    let heap = anchor.heap.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: the mutex is held, so this is the only reference to the heap.
    Some(work(unsafe { &mut *heap.0.get() }))
}

// SAFETY: dlmalloc returns blocks of the layout asked for, disjoint and valid until freed; the
// mutex serialises it. In a forked child blocks come from the C library and are never freed.
unsafe impl GlobalAlloc for SecretPages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the heap accepts any size and any power-of-two alignment.
        with_heap(|heap| unsafe { heap.malloc(layout.size(), layout.align()) }).unwrap_or_else(|| in_child(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        with_heap(|heap| unsafe { heap.calloc(layout.size(), layout.align()) }).unwrap_or_else(|| {
            let block = in_child(layout);
            if !block.is_null() {
                // SAFETY: the block has this size.
                unsafe { block.write_bytes(0, layout.size()) };
            }
            block
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back a block of this allocator with its layout. What a child
        // frees is either a wiped block of its parent or lost with the child.
        with_heap(|heap| unsafe { heap.free(block, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller promises a block of this allocator with its layout.
        let moved = with_heap(|heap| unsafe { heap.realloc(block, layout.size(), layout.align(), size) });
        moved.unwrap_or_else(|| {
            let Ok(grown) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
            let to = in_child(grown);
            if !to.is_null() {
                // SAFETY: both blocks have at least the smaller size.
                unsafe { to.copy_from_nonoverlapping(block, layout.size().min(size)) };
            }
            to
        })
    }
}

/// Memory for the little that runs in a forked child.
fn in_child(layout: Layout) -> *mut u8 {
    // SAFETY: aligned_alloc takes any power-of-two alignment of at least a pointer's size.
    unsafe { libc::aligned_alloc(layout.align().max(size_of::<usize>()), layout.size().max(1)).cast() }
}

/// Where dlmalloc gets its memory.
struct Pages;

// SAFETY: regions are fresh private mappings of at least the size asked for, disjoint from all
// else; they are given back whole or not at all.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(PAGE);
        (map(size), size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, region: *mut u8, size: usize) -> bool {
        // SAFETY: dlmalloc gives back a region it got from `alloc`, with its size, unused.
        unsafe { libc::munmap(region.cast(), size) == 0 }
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// Pages that a child finds empty and no core dump holds; null when the kernel has none.
fn map(size: usize) -> *mut u8 {
    let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping anywhere touches nothing that exists.
    let region = unsafe { libc::mmap(ptr::null_mut(), size, read_write, private, -1, 0) };
    if region == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    // SAFETY: the mapping was just made and has this size.
    let guarded = unsafe {
        libc::madvise(region, size, libc::MADV_WIPEONFORK) == 0 && libc::madvise(region, size, libc::MADV_DONTDUMP) == 0
    };
    if !guarded {
        // A kernel before 4.14. Memory that a child could read is worse than none.
        // SAFETY: as above.
        unsafe { libc::munmap(region, size) };
        return ptr::null_mut();
    }
    // SAFETY: as above. Locking on first touch costs nothing for what is never used.
    if unsafe { libc::mlock2(region, size, libc::MLOCK_ONFAULT as _) } != 0 {
        UNLOCKED.store(true, Ordering::Relaxed);
    }
    region.cast()
}

/// A size that every Linux page divides or equals.
const PAGE: usize = 64 << 10;
