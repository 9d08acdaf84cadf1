//! The TCP connections of this network, as the kernel lists them: whose socket the other end of one is (proc_pid_net(5)).

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Where it is.
    pub local: SocketAddr,
    /// Where its peer is.
    pub remote: SocketAddr,
    /// Whether it waits for connections.
    pub listens: bool,
    /// Whose it is.
    pub uid: u32,
    /// By which processes' descriptors are told; 0 when no process has it any more.
    pub inode: u64,
}

/// All of this process's network.
pub fn sockets() -> Vec<Socket> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let text: Vec<_> = tables.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
    text.iter().flat_map(|table| table.lines()).filter_map(socket).collect()
}

/// The socket at the other end of a connection inside this host, if a process still has it.
pub fn other_end(local: SocketAddr, remote: SocketAddr) -> Option<Socket> {
    let [local, remote] = [local, remote].map(canonical);
    sockets().into_iter().find(|it| it.local == remote && it.remote == local && !it.listens && it.inode != 0)
}

/// The inodes of the sockets that a process has open.
pub fn inodes(process: u32) -> Vec<u64> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.filter_map(|target| target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// One line of a table.
fn socket(line: &str) -> Option<Socket> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = fields.next()?;
    let mut rest = fields.skip(3);
    let (uid, inode) = (rest.next()?.parse().ok()?, rest.nth(1)?.parse().ok()?);
    Some(Socket { local, remote, listens: state == LISTENS, uid, inode })
}

/// Words of four bytes in the host's order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = [0; 16];
    for (word, place) in address.as_bytes().chunks(8).zip(bytes.chunks_mut(4)) {
        place.copy_from_slice(&u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes());
    }
    let address = match address.len() {
        8 => IpAddr::from(<[u8; 4]>::try_from(&bytes[..4]).ok()?),
        32 => IpAddr::from(Ipv6Addr::from(bytes)),
        _ => return None,
    };
    Some(canonical(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?)))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

const LISTENS: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_other_end_is_found_while_it_is_there() {
        for place in ["127.0.0.1:0", "[::1]:0"] {
            // Not every host has IPv6.
            let Ok(listener) = TcpListener::bind(place) else { continue };
            let here = listener.local_addr().unwrap();
            assert!(sockets().iter().any(|it| it.local == here && it.listens));
            let stream = TcpStream::connect(here).unwrap();
            let (accepted, there) = listener.accept().unwrap();
            let found = other_end(accepted.local_addr().unwrap(), there).unwrap();
            assert_eq!((found.local, found.remote), (there, here));
            assert!(inodes(std::process::id()).contains(&found.inode));
            drop(stream);
            assert_eq!(other_end(here, there), None, "nobody has it any more");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_are_read_as_the_kernel_writes_them() {
        let line =
            "   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000 0 4711 1 0 20 4 30";
        let found = socket(line).unwrap();
        assert_eq!(found.local, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(found.remote, "127.0.0.1:50000".parse().unwrap());
        assert_eq!((found.listens, found.uid, found.inode), (false, 1000, 4711));
        assert_eq!(socket("  sl  local_address rem_address   st tx_queue"), None);
    }
}
