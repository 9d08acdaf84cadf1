//! Listens on every interface of this host with a packet socket (packet(7), TPACKET_V3).
//!
//! The kernel writes frames into a ring of blocks shared with this process, so that whole
//! segments of a fast job are seen; frames that found the ring full are counted.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Why listening is not possible.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The kernel wants CAP_NET_RAW.
    Permission,
    Other(String),
}

/// The ring, 256 MiB, holds about what one side of the audit puts on the wire.
const BLOCK: usize = 1 << 22;
const BLOCKS: usize = 64;

/// A listening socket with its ring.
pub(crate) struct Capture {
    socket: OwnedFd,
    ring: *mut u8,
    next: usize,
    lost: u64,
}

impl Capture {
    /// Starts listening.
    ///
    /// # Errors
    /// [`Refusal::Permission`] without CAP_NET_RAW, else the kernel's reason.
    pub(crate) fn start() -> Result<Self, Refusal> {
        let protocol = c_int::from((libc::ETH_P_ALL as u16).to_be());
        // SAFETY: plain integers.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
        if descriptor < 0 {
            let error = std::io::Error::last_os_error();
            return Err(match error.kind() {
                std::io::ErrorKind::PermissionDenied => Refusal::Permission,
                _ => Refusal::Other(format!("a packet socket cannot be opened: {error}")),
            });
        }
        // SAFETY: the descriptor was just opened and is nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        set(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as c_int))?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: FRAME,
            tp_frame_nr: (BLOCK * BLOCKS) as u32 / FRAME,
            tp_retire_blk_tov: 20,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping of the ring the kernel has just made, of exactly its size.
        let ring = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), BLOCK * BLOCKS, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        if ring == libc::MAP_FAILED {
            return Err(Refusal::Other(format!(
                "the packet ring cannot be mapped: {}",
                std::io::Error::last_os_error()
            )));
        }
        Ok(Self { socket, ring: ring.cast(), next: 0, lost: 0 })
    }

    /// Hands every frame captured since the last call to `look`; waits up to `patience_ms` for one.
    pub(crate) fn frames(&mut self, patience_ms: c_int, mut look: impl FnMut(&[u8])) {
        if !self.block_ready() {
            let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, as the count says.
            unsafe { libc::poll(&mut poll, 1, patience_ms) };
        }
        // One turn of the ring at most, so that a flood does not keep the caller here.
        for _ in 0..BLOCKS {
            if !self.block_ready() {
                return;
            }
            self.look_through_block(&mut look);
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % BLOCKS;
        }
    }

    /// Frames that were not captured because the ring was full.
    pub(crate) fn lost(&mut self) -> u64 {
        let mut statistics = [0u32; 3];
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: room for a tpacket_stats_v3 (packets, drops, freezes), whose size is stated.
        let code = unsafe {
            let value: *mut c_void = statistics.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &mut length)
        };
        if code == 0 {
            // Reading sets the kernel's count back to zero.
            self.lost += u64::from(statistics[1]);
        }
        self.lost
    }

    fn block(&self) -> *mut u8 {
        // SAFETY: `next` is below BLOCKS, so this stays within the mapping.
        unsafe { self.ring.add(self.next * BLOCK) }
    }

    fn status(&self) -> &AtomicU32 {
        let block: *mut libc::tpacket_block_desc = self.block().cast();
        // SAFETY: every block begins with a descriptor, aligned to the page; kernel and process
        // hand the block over through this word.
        unsafe { AtomicU32::from_ptr(&raw mut (*block).hdr.bh1.block_status) }
    }

    fn block_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn look_through_block(&self, look: &mut impl FnMut(&[u8])) {
        let block = self.block();
        // SAFETY: the block was handed over, so the kernel has filled in the descriptor, the chain
        // of frames in it lies within the block, and nobody writes to it until it is given back.
        unsafe {
            let header = &(*block.cast::<libc::tpacket_block_desc>()).hdr.bh1;
            let mut frame = block.add(header.offset_to_first_pkt as usize);
            for _ in 0..header.num_pkts {
                let packet = &*frame.cast::<libc::tpacket3_hdr>();
                let address = &*frame.add(ADDRESS).cast::<libc::sockaddr_ll>();
                if !is_echo(address) {
                    look(std::slice::from_raw_parts(frame.add(usize::from(packet.tp_mac)), packet.tp_snaplen as usize));
                }
                frame = frame.add(packet.tp_next_offset as usize);
            }
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and not used again.
        unsafe { libc::munmap(self.ring.cast(), BLOCK * BLOCKS) };
    }
}

// SAFETY: the mapping belongs to this value alone, whichever thread has it.
unsafe impl Send for Capture {}

/// A frame's share of a block as the kernel reckons with; frames themselves are as long as they are.
const FRAME: u32 = 1 << 11;
/// Where the link-layer address follows a frame's header: TPACKET_ALIGN(sizeof(tpacket3_hdr)).
const ADDRESS: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

/// On the loopback interface every frame passes twice, out and in: one is enough.
fn is_echo(address: &libc::sockaddr_ll) -> bool {
    address.sll_hatype == libc::ARPHRD_LOOPBACK && address.sll_pkttype == libc::PACKET_OUTGOING
}

fn set<T>(socket: &OwnedFd, option: c_int, value: &T) -> Result<(), Refusal> {
    let (value, length): (*const T, _) = (value, size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of a plain C value.
    let code = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value.cast(), length) };
    match code {
        0 => Ok(()),
        _ => Err(Refusal::Other(format!("the packet socket cannot be set up: {}", std::io::Error::last_os_error()))),
    }
}
