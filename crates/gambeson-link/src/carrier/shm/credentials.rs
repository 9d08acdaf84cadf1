//! Who the kernel says is at the other end of a unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The user and the process that connected or listened. The process is 0 if this one cannot see it, as between containers.
/// (rustix makes that a process id, which must not be 0.)
pub(super) fn peer(socket: impl AsFd) -> io::Result<(u32, i32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed, and the kernel writes no more than `length` bytes to `peer`, which is any bytes.
    let done = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length)
    };
    if done == 0 { Ok((peer.uid, peer.pid)) } else { Err(io::Error::last_os_error()) }
}
