//! The core's own sockets, as far as strangers can do harm through them.
//!
//! Core tcp reads a request from a socket that blocks, inside the call that drives it and so under
//! our domain's lock: whoever sends half of one would hold the rank for ever. What a listener
//! accepts inherits its receive time-out: a read that times out sends the core back to us, and what
//! comes late is no request any more. Messages are read without blocking, hence without time-out.

use std::ffi::c_int;
use std::net::SocketAddr;

use crate::address;

/// Sets the time-out on the listener at an endpoint's own address. A core without one needs none.
pub(crate) fn bound_requests(own: SocketAddr) {
    for socket in descriptors().filter(|&socket| is_bound(socket, own) && listens(socket)) {
        let wait = libc::timeval { tv_sec: 0, tv_usec: REQUEST_WAIT_US };
        let len = size_of::<libc::timeval>() as libc::socklen_t;
        // SAFETY: the option takes a time of this length.
        unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const wait).cast(), len) };
    }
}

/// How many connections that others made to this address are open.
pub(crate) fn accepted(own: SocketAddr) -> usize {
    descriptors().filter(|&socket| is_bound(socket, own) && !listens(socket)).count()
}

/// All numbers that an open descriptor may have; to list them in /proc would allocate.
fn descriptors() -> std::ops::Range<c_int> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    0..limit.rlim_cur.min(DESCRIPTORS_MAX) as c_int
}

fn listens(socket: c_int) -> bool {
    let mut listens: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the option is an integer. What is no socket, or not open any more, is an error.
    let known = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, (&raw mut listens).cast(), &raw mut len)
    };
    known == 0 && listens != 0
}

/// Whether a socket has this address. What a listener accepts has the listener's.
fn is_bound(socket: c_int, own: SocketAddr) -> bool {
    let mut raw = [0_u8; size_of::<libc::sockaddr_storage>()];
    let mut len = raw.len() as libc::socklen_t;
    // SAFETY: the buffer has room for every address, and is read as far as it was written.
    let bound = unsafe {
        let named = libc::getsockname(socket, raw.as_mut_ptr().cast(), &raw mut len) == 0;
        named.then(|| address::read(raw.as_ptr(), raw.len().min(len as usize))).flatten()
    };
    bound.is_some_and(|bound| bound.port() == own.port() && (bound.ip() == own.ip() || bound.ip().is_unspecified()))
}

/// The kernel gives the lowest free number, so that only processes with more open files than this have higher ones.
const DESCRIPTORS_MAX: libc::rlim_t = 8192;
/// A request is one segment of 40 bytes: what has not come with its first byte hardly ever comes.
const REQUEST_WAIT_US: libc::suseconds_t = 50_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_the_listener_accepts_does_not_wait_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        bound_requests(own);
        let silent = TcpStream::connect(own).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(accepted.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(super::accepted(own), 1);
        drop((silent, accepted));
        assert_eq!(super::accepted(own), 0);
    }
}
