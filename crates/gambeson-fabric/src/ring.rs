//! The provider's own record buffers: a ring of posted receives, and pools of outgoing records.
//!
//! Both are allocated when an endpoint opens; receives are added only when strangers hold some. The core provider gets each buffer's
//! header as its context, so the header begins with the space that a core may demand.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use gambeson_proto::endpoint::PeerId;

use crate::core::{Domain, Registration, Span};
use crate::fid::Outcome;
use gambeson_libfabric_sys::fi_context2;

/// Receives that are posted to the core at a time.
pub(crate) const RECEIVES: usize = 16;
/// Lots of receives that an endpoint may come to have.
const BLOCKS: usize = 16;
/// Outgoing records of any size that may be in flight.
const LARGE: usize = 12;
/// Outgoing records of up to [`SMALL_LEN`] bytes that may be in flight.
const SMALL: usize = 128;
/// Size of the smaller kind, in bytes.
const SMALL_LEN: usize = 8 << 10;
/// Completions of the core that may be outstanding.
pub(crate) const DEPTH: usize = RECEIVES + LARGE + SMALL;

/// What the core knows a buffer by.
#[repr(C)]
pub(crate) struct Header {
    /// The core's, while it has the buffer.
    context: fi_context2,
    data: *mut u8,
    len: usize,
    descriptor: *mut c_void,
    /// Receiver of an outgoing record.
    peer: PeerId,
    /// Number of a posted receive, where the order of completions has to be restored.
    number: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Receive,
    Small,
    Large,
}

/// A buffer that the core does not have.
pub(crate) struct Buffer(NonNull<Header>);

// SAFETY: a buffer has one owner at a time: the core, or whoever holds this.
unsafe impl Send for Buffer {}

impl Buffer {
    /// The buffer whose header was the context of a completion.
    ///
    /// # Safety
    /// The completion is of a transfer that [`Buffer::lend`] began, and was seen once.
    pub(crate) unsafe fn from_context(context: *mut c_void) -> Option<Self> {
        NonNull::new(context.cast()).map(Buffer)
    }

    /// Gives the buffer to the core, which gives its context back with the completion.
    pub(crate) fn lend(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.header().kind
    }

    pub(crate) fn peer(&self) -> PeerId {
        self.header().peer
    }

    pub(crate) fn set_peer(&mut self, peer: PeerId) {
        // SAFETY: headers live as long as their store, and this is the only owner.
        unsafe { self.0.as_mut() }.peer = peer;
    }

    pub(crate) fn number(&self) -> u64 {
        self.header().number
    }

    pub(crate) fn set_number(&mut self, number: u64) {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }.number = number;
    }

    /// The first `len` bytes, for the core.
    pub(crate) fn span(&self, len: usize) -> Span {
        let header = self.header();
        debug_assert!(len <= header.len);
        Span { base: header.data, len: len.min(header.len), descriptor: header.descriptor }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.header().len
    }

    fn header(&self) -> &Header {
        // SAFETY: headers live as long as their store.
        unsafe { self.0.as_ref() }
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        let header = self.header();
        // SAFETY: the data lives as long as the store and this buffer is its only owner.
        unsafe { std::slice::from_raw_parts_mut(header.data, header.len) }
    }
}

/// All buffers of an endpoint. It must outlive the core's endpoint, which writes into them.
pub(crate) struct Store {
    small: Vec<Buffer>,
    large: Vec<Buffer>,
    /// Receives that the core does not have: at the beginning, and when it was busy.
    idle: Vec<Buffer>,
    blocks: Vec<Block>,
}

/// Buffers that were allocated together.
struct Block {
    // Dropped in this order.
    registration: Option<Registration>,
    headers: Headers,
    _memory: Memory,
}

impl Store {
    /// Allocates everything. `domain` is given when the core wants its memory registered.
    pub(crate) fn new(record_capacity: usize, domain: Option<&Domain>) -> Outcome<Self> {
        let mut store = Store {
            small: Vec::with_capacity(SMALL),
            large: Vec::with_capacity(LARGE),
            idle: Vec::with_capacity(RECEIVES),
            blocks: Vec::new(),
        };
        store.adopt(Block::new(
            &[(Kind::Receive, RECEIVES), (Kind::Large, LARGE), (Kind::Small, SMALL)],
            record_capacity,
            domain,
        )?);
        Ok(store)
    }

    /// Adds receives until there are `wanted` more than at the beginning, or as many as there may be;
    /// whether there are more now. Memory that must be registered is never added to.
    pub(crate) fn add_receives(&mut self, wanted: usize, record_capacity: usize) -> bool {
        let before = self.blocks.len();
        let has_room = |blocks: &[Block]| (blocks.len() - 1) * RECEIVES < wanted && blocks.len() < BLOCKS;
        while self.blocks[0].registration.is_none() && has_room(&self.blocks) {
            let Ok(block) = Block::new(&[(Kind::Receive, RECEIVES)], record_capacity, None) else { break };
            self.adopt(block);
        }
        self.blocks.len() > before
    }

    fn adopt(&mut self, block: Block) {
        for index in 0..block.headers.0.len() {
            // SAFETY: inside the slice.
            self.give(Buffer(unsafe { block.headers.0.cast::<Header>().add(index) }));
        }
        self.blocks.push(block);
    }

    /// A buffer for an outgoing record of `len` bytes, while there is one.
    pub(crate) fn take(&mut self, len: usize) -> Option<Buffer> {
        let small = (len <= SMALL_LEN).then(|| self.small.pop()).flatten();
        small.or_else(|| self.large.pop())
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        match buffer.kind() {
            Kind::Receive => self.idle.push(buffer),
            Kind::Small => self.small.push(buffer),
            Kind::Large => self.large.push(buffer),
        }
    }

    /// A receive that is to be posted.
    pub(crate) fn idle(&mut self) -> Option<Buffer> {
        self.idle.pop()
    }

    /// Whether the core has fewer than half of the receives.
    pub(crate) fn few_are_posted(&self) -> bool {
        self.idle.len() > RECEIVES / 2
    }

    /// Whether the core has no outgoing record of ours any more.
    pub(crate) fn all_sent(&self) -> bool {
        self.small.len() == SMALL && self.large.len() == LARGE
    }
}

impl Block {
    fn new(kinds: &[(Kind, usize)], record_capacity: usize, domain: Option<&Domain>) -> Outcome<Self> {
        let len = |kind| if kind == Kind::Small { SMALL_LEN } else { record_capacity.next_multiple_of(ALIGN) };
        let mut memory = Memory::new(kinds.iter().map(|&(kind, count)| len(kind) * count).sum());
        let registration = domain.map(|domain| domain.register(memory.bytes())).transpose()?;
        let descriptor = registration.as_ref().map_or(ptr::null_mut(), Registration::descriptor);
        let mut at = memory.bytes().as_mut_ptr();
        let headers = kinds.iter().flat_map(|&(kind, count)| (0..count).map(move |_| kind)).map(|kind| {
            let (data, len) = (at, len(kind));
            // SAFETY: the memory has room for all buffers, one after another.
            at = unsafe { at.add(len) };
            let context = fi_context2 { internal: [ptr::null_mut(); 8] };
            Header { context, data, len, descriptor, peer: PeerId(0), number: 0, kind }
        });
        let headers = Headers(NonNull::from(Box::leak(headers.collect())));
        Ok(Block { registration, headers, _memory: memory })
    }
}

/// The headers, which the core and the buffers point to.
struct Headers(NonNull<[Header]>);

// SAFETY: plain memory with one owner; buffers that point to it are given up first.
unsafe impl Send for Headers {}

impl Drop for Headers {
    fn drop(&mut self) {
        // SAFETY: leaked from a box when made.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Page-aligned bytes, whose address stays.
struct Memory {
    base: NonNull<u8>,
    layout: std::alloc::Layout,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Memory {}

impl Memory {
    fn new(len: usize) -> Self {
        let layout = std::alloc::Layout::from_size_align(len, ALIGN).expect("a few megabytes");
        // SAFETY: the size is not zero.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        Memory { base, layout }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: ours, zeroed, of this length.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Alignment of record buffers, in bytes.
const ALIGN: usize = 4096;
