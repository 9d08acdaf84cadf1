//! The allocators over such pages: one for all that a library allocates, one for boxes.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use dlmalloc::{Allocator, Dlmalloc};

/// The global allocator of a library that others load: everything it knows is on these pages, keys, sessions, buffers,
/// queues. A forked child finds them all zero, and [`alive`] tells it so. It must then touch nothing: every entry point
/// asks first.
pub struct SecretPages;

static LIBRARY: Arena = Arena::new();
/// Where boxes come from. A child that makes one has a heap of its own for it.
pub(crate) static BOXES: Boxes = Boxes(Arena::new());

/// Whether this process is the one that loaded a library whose global allocator is [`SecretPages`], and no forked child
/// of it.
pub fn alive() -> bool {
    LIBRARY.existing().is_none_or(|anchor| anchor.live.load(Ordering::Relaxed))
}

/// Whether some page could not be locked into memory, so that it may reach a swap device.
pub fn may_swap() -> bool {
    UNLOCKED.load(Ordering::Relaxed)
}

/// How many blocks and boxes this process asked for so far. Nothing is to be asked for per message.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static UNLOCKED: AtomicBool = AtomicBool::new(false);

/// A heap on such pages, made when first needed.
struct Arena(AtomicPtr<Anchor>);

/// What a heap itself knows; on a page of the same kind, so that it is zero in a child.
struct Anchor {
    live: AtomicBool,
    heap: Mutex<Heap>,
}

struct Heap {
    blocks: UnsafeCell<Dlmalloc<Pages>>,
    /// Slots that nobody has; each holds the next one's address.
    slots: Cell<*mut u8>,
}

impl Arena {
    const fn new() -> Self {
        Arena(AtomicPtr::new(ptr::null_mut()))
    }

    fn existing(&self) -> Option<&'static Anchor> {
        let existing = self.0.load(Ordering::Acquire);
        // SAFETY: a published anchor is initialised and never unmapped, and all zero is a dead one.
        (!existing.is_null()).then(|| unsafe { &*existing })
    }

    /// The anchor of this process. A child's is its parent's, wiped, unless the arena `renews`.
    fn anchor(&self, renews: bool) -> Option<&'static Anchor> {
        let existing = self.existing();
        if let Some(anchor) = existing
            && (!renews || anchor.live.load(Ordering::Relaxed))
        {
            return Some(anchor);
        }
        let made: *mut Anchor = map(size_of::<Anchor>().next_multiple_of(PAGE)).cast();
        if made.is_null() {
            return None;
        }
        let blocks = UnsafeCell::new(Dlmalloc::new_with_allocator(Pages));
        let heap = Mutex::new(Heap { blocks, slots: Cell::new(ptr::null_mut()) });
        // SAFETY: the fresh mapping is large enough and page-aligned, and nobody else knows it yet.
        unsafe { made.write(Anchor { live: AtomicBool::new(true), heap }) };
        let before = existing.map_or(ptr::null_mut(), |anchor| ptr::from_ref(anchor).cast_mut());
        match self.0.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just initialised, and published for good.
            Ok(_) => Some(unsafe { &*made }),
            // SAFETY: another thread was faster; its anchor is the one. Ours is a page lost.
            Err(first) => Some(unsafe { &*first }),
        }
    }

    /// The heap; `None` in a forked child that has none.
    fn heap(&self, renews: bool) -> Option<MutexGuard<'static, Heap>> {
        let anchor = self.anchor(renews).filter(|anchor| anchor.live.load(Ordering::Relaxed))?;
        Some(anchor.heap.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Runs `work` on the blocks of the heap; `None` in a forked child that has none.
    fn with_heap<R>(&self, renews: bool, work: impl FnOnce(&mut Dlmalloc<Pages>) -> R) -> Option<R> {
        let heap = self.heap(renews)?;
        // SAFETY: the mutex is held, so this is the only reference to the blocks.
        Some(work(unsafe { &mut *heap.blocks.get() }))
    }
}

/// Bytes of a slot, and what it is aligned to.
pub(crate) const SLOT: usize = 32;
/// Bytes of slots under one mark, which takes the place of the first.
const SHEET: usize = 4 << 10;

/// The heap of boxes.
pub(crate) struct Boxes(Arena);

impl Boxes {
    /// A slot, all zero: most secrets are 32 bytes, and a mark and a block's header would double that.
    pub(crate) fn slot(&self) -> Option<NonNull<u8>> {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        if cfg!(any(miri, asan)) {
            // SAFETY: not empty. Tools that look for misuse see it between blocks of the system, and not between slots.
            return NonNull::new(unsafe { std::alloc::alloc_zeroed(Layout::new::<[u128; 2]>()) });
        }
        let heap = self.0.heap(true)?;
        let free = heap.slots.get();
        if free.is_null() {
            let sheets = NonNull::new(map(PAGE))?;
            for sheet in (0..PAGE).step_by(SHEET) {
                // SAFETY: the mapping is ours, and every slot lies inside.
                unsafe {
                    sheets.add(sheet).write(1);
                    for slot in (sheet + SLOT..sheet + SHEET).step_by(SLOT) {
                        let slot = sheets.add(slot).cast();
                        slot.write(heap.slots.get());
                        heap.slots.set(slot.as_ptr().cast());
                    }
                }
            }
        }
        let slot = NonNull::new(heap.slots.get())?;
        // SAFETY: a free slot holds the next one's address, is aligned, and now is ours.
        unsafe {
            heap.slots.set(slot.cast().read());
            slot.cast().write(ptr::null_mut::<u8>());
        }
        Some(slot)
    }

    /// Whether a slot was given away by this process, and not by one that it was forked from.
    pub(crate) fn is_of_this_process(&self, slot: NonNull<u8>) -> bool {
        if cfg!(any(miri, asan)) {
            return true;
        }
        let sheet = slot.as_ptr().map_addr(|address| address & !(SHEET - 1));
        // SAFETY: the sheet's mark is there for as long as one of its slots, and that is for ever. A fork changes it, so it
        // is looked at and not remembered.
        unsafe { sheet.read_volatile() == 1 }
    }

    /// # Safety
    /// The slot is one of [`Boxes::slot`] in this process, all zero, and nobody refers to it.
    pub(crate) unsafe fn free_slot(&self, slot: NonNull<u8>) {
        if cfg!(any(miri, asan)) {
            // SAFETY: it came from there.
            return unsafe { std::alloc::dealloc(slot.as_ptr(), Layout::new::<[u128; 2]>()) };
        }
        if let Some(heap) = self.0.heap(true) {
            // SAFETY: the caller says that it is free.
            unsafe { slot.cast().write(heap.slots.get()) };
            heap.slots.set(slot.as_ptr());
        }
    }

    /// Null when there is no such memory.
    ///
    /// # Safety
    /// The layout is not empty.
    pub(crate) unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        if cfg!(any(miri, asan)) {
            // SAFETY: the caller says that it is not empty. As for slots.
            return unsafe { std::alloc::alloc_zeroed(layout) };
        }
        // SAFETY: the heap accepts any size and any power-of-two alignment.
        let block = self.0.with_heap(true, |heap| unsafe { heap.calloc(layout.size(), layout.align()) });
        block.unwrap_or(ptr::null_mut())
    }

    /// # Safety
    /// The block is one of [`Boxes::alloc_zeroed`] in this process, with its layout.
    pub(crate) unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if cfg!(any(miri, asan)) {
            // SAFETY: it came from there.
            return unsafe { std::alloc::dealloc(block, layout) };
        }
        // SAFETY: the caller says so.
        self.0.with_heap(true, |heap| unsafe { heap.free(block, layout.size(), layout.align()) });
    }
}

// SAFETY: dlmalloc returns blocks of the layout asked for, disjoint and valid until freed; the
// mutex serialises it. In a forked child blocks come from the C library and are never freed.
unsafe impl GlobalAlloc for SecretPages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the heap accepts any size and any power-of-two alignment.
        LIBRARY
            .with_heap(false, |heap| unsafe { heap.malloc(layout.size(), layout.align()) })
            .unwrap_or_else(|| in_child(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        LIBRARY.with_heap(false, |heap| unsafe { heap.calloc(layout.size(), layout.align()) }).unwrap_or_else(|| {
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
        LIBRARY.with_heap(false, |heap| unsafe { heap.free(block, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller promises a block of this allocator with its layout.
        let moved =
            LIBRARY.with_heap(false, |heap| unsafe { heap.realloc(block, layout.size(), layout.align(), size) });
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
