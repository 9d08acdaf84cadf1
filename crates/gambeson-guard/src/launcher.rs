//! Keeps the sockets by which a launcher's own processes meet inside their host, and to their own user.
//!
//! Launchers listen on all addresses and believe whoever connects. Where the job's directory has a list of their programs
//! (`launchers`), these listen on the loopback address alone, reach each other there, and whoever else of this host connects
//! to them finds the connection at its end. Other processes' sockets, ranks' among them, are left as they are.

use std::ffi::{c_int, c_void};
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::OnceLock;

use gambeson_interpose::{Function, connections};
use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::environment;

static BIND: Function = Function::new(c"bind");
static CONNECT: Function = Function::new(c"connect");
static ACCEPT: Function = Function::new(c"accept");
static ACCEPT4: Function = Function::new(c"accept4");

type WithAddress = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type Accept = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
type Accept4 = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;

/// Stands in front of the C library's function.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the C library's function of this name and prototype.
    let real = unsafe { mem::transmute::<*const c_void, WithAddress>(behind(&BIND, bind as *const c_void)) };
    // SAFETY: the caller's own arguments.
    unsafe { inside(socket, address, length, |_| true, real) }
}

/// Stands in front of the C library's function.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the C library's function of this name and prototype.
    let real = unsafe { mem::transmute::<*const c_void, WithAddress>(behind(&CONNECT, connect as *const c_void)) };
    // SAFETY: the caller's own arguments.
    unsafe { inside(socket, address, length, is_own, real) }
}

/// Stands in front of the C library's function.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept(socket: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the C library's function of this name and prototype.
    let real = unsafe { mem::transmute::<*const c_void, Accept>(behind(&ACCEPT, accept as *const c_void)) };
    // SAFETY: the caller's own arguments.
    checked(unsafe { real(socket, address, length) })
}

/// Stands in front of the C library's function.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn accept4(
    socket: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the C library's function of this name and prototype.
    let real = unsafe { mem::transmute::<*const c_void, Accept4>(behind(&ACCEPT4, accept4 as *const c_void)) };
    // SAFETY: the caller's own arguments.
    checked(unsafe { real(socket, address, length, flags) })
}

fn behind(function: &Function, ours: *const c_void) -> *const c_void {
    function.behind(ours).expect("every C library has this function")
}

/// Whether this process is one of a launcher's own.
fn is_launcher() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let program = std::env::current_exe().ok();
        let name = program.as_ref().and_then(|program| program.file_name()).and_then(|name| name.to_str());
        let listed = environment::job().and_then(|job| std::fs::read_to_string(job.join("launchers")).ok());
        listed.zip(name).is_some_and(|(listed, name)| listed.lines().any(|line| line == name))
    })
}

/// Calls the real function, in a launcher's process with the loopback address in place of one that is `wanted`.
///
/// # Safety
/// As for the real function.
unsafe fn inside(
    socket: c_int,
    address: *const sockaddr,
    length: socklen_t,
    wanted: impl Fn(SocketAddr) -> bool,
    real: WithAddress,
) -> c_int {
    // SAFETY: the caller's address is as long as it says.
    let named = unsafe { read(address, length) };
    let Some(named) = named.filter(|it| !is_loopback(*it) && is_launcher() && is_tcp(socket) && wanted(*it)) else {
        // SAFETY: the caller's own arguments.
        return unsafe { real(socket, address, length) };
    };
    // SAFETY: all zero is a value of it.
    let mut changed: sockaddr_storage = unsafe { mem::zeroed() };
    // SAFETY: `read` found an address of one of the two kinds, of that length, and storage holds either.
    unsafe {
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut changed).cast(), length as usize);
        match named {
            SocketAddr::V4(_) => {
                let changed = (&raw mut changed).cast::<sockaddr_in>();
                (*changed).sin_addr.s_addr = u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets());
            }
            SocketAddr::V6(_) => {
                let changed = (&raw mut changed).cast::<sockaddr_in6>();
                (*changed).sin6_addr.s6_addr = Ipv6Addr::LOCALHOST.octets();
                (*changed).sin6_scope_id = 0;
            }
        }
        real(socket, (&raw const changed).cast(), length)
    }
}

/// An address of IPv4 or IPv6.
///
/// # Safety
/// `address` leads to `length` bytes.
unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || (length as usize) < size_of::<sockaddr>() || length as usize > size_of::<sockaddr_storage>()
    {
        return None;
    }
    // SAFETY: it is that long, and of the kind that its family says; nothing is said of its alignment.
    unsafe {
        match c_int::from((*address).sa_family) {
            AF_INET => {
                let it = address.cast::<sockaddr_in>().read_unaligned();
                Some(SocketAddr::from((it.sin_addr.s_addr.to_ne_bytes(), u16::from_be(it.sin_port))))
            }
            AF_INET6 if length as usize >= size_of::<sockaddr_in6>() => {
                let it = address.cast::<sockaddr_in6>().read_unaligned();
                Some(SocketAddr::from((it.sin6_addr.s6_addr, u16::from_be(it.sin6_port))))
            }
            _ => None,
        }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whether an address is this host's: nothing can be bound to another's.
fn is_own(address: SocketAddr) -> bool {
    std::net::UdpSocket::bind((address.ip(), 0)).is_ok()
}

fn is_tcp(socket: c_int) -> bool {
    let option = |name| {
        let mut value: c_int = 0;
        let mut length = size_of::<c_int>() as socklen_t;
        // SAFETY: the option is an int, and there is room for one.
        let status =
            unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length) };
        (status == 0).then_some(value)
    };
    option(libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// A connection as it came, or where a stranger made it, one that is at its end: all launchers go on after that.
fn checked(socket: c_int) -> c_int {
    if socket < 0 || !is_launcher() || !is_tcp(socket) {
        return socket;
    }
    // SAFETY: the descriptor was made for the caller just now, and it goes back to him or is closed.
    let stream = unsafe { std::net::TcpStream::from_raw_fd(socket) };
    let ends = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
    // SAFETY: it has no argument.
    let own = unsafe { libc::geteuid() };
    let is_ours =
        ends.is_ok_and(|(local, remote)| connections::other_end(local, remote).is_some_and(|peer| peer.uid == own));
    if is_ours {
        return stream.into_raw_fd();
    }
    eprintln!("gambeson: another user's process connected to the launcher, and was refused");
    // SAFETY: all zero is a value of it, that of no address, which ends a connection and drops what came by it.
    let nowhere: sockaddr = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is open, and the address as long as is said. Whatever fails, reading finds no byte then: of a
    // socket without a connection nothing can be read but its end.
    let ended = unsafe {
        let ended = libc::connect(socket, &raw const nowhere, size_of::<sockaddr>() as socklen_t) == 0;
        libc::shutdown(socket, libc::SHUT_RDWR);
        ended
    };
    if ended {
        return stream.into_raw_fd();
    }
    drop(stream);
    // SAFETY: the C library's own place for it.
    unsafe { *libc::__errno_location() = libc::ECONNABORTED };
    -1
}
