//! Socket addresses in the three forms that meet here: C's, Rust's, and unsigned cards in fi_info.
//!
//! An endpoint's address is its card (64 bytes, `FI_FORMAT_UNSPEC`). Before there is an endpoint
//! there is no card, but interfaces must be told apart: fi_info's `src_addr` then holds a card
//! with nothing but the address in it, which no endpoint accepts as a peer.

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use gambeson_proto::identity::CARD_LEN;

/// A socket address as C has it.
#[derive(Clone, Copy)]
pub(crate) struct Raw {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    len: usize,
}

impl Raw {
    /// The bytes C reads.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl From<SocketAddr> for Raw {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => {
                // SAFETY: all-zero bytes are a sockaddr_in.
                let mut raw: libc::sockaddr_in = unsafe { MaybeUninit::zeroed().assume_init() };
                raw.sin_family = libc::AF_INET as _;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                bytes_of(&raw)
            }
            SocketAddr::V6(v6) => {
                // SAFETY: all-zero bytes are a sockaddr_in6.
                let mut raw: libc::sockaddr_in6 = unsafe { MaybeUninit::zeroed().assume_init() };
                raw.sin6_family = libc::AF_INET6 as _;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                raw.sin6_scope_id = v6.scope_id();
                bytes_of(&raw)
            }
        }
    }
}

/// Reads a sockaddr; `None` when it is no IP address.
///
/// # Safety
/// `raw` is null or `len` readable bytes.
pub(crate) unsafe fn read(raw: *const u8, len: usize) -> Option<SocketAddr> {
    if raw.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: promised by the caller; nothing is said of alignment.
    let family = unsafe { raw.cast::<libc::sa_family_t>().read_unaligned() };
    match i32::from(family) {
        libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: as above, with the length checked.
            let v4 = unsafe { raw.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above, with the length checked.
            let v6 = unsafe { raw.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// A card with nothing but an address in it.
pub(crate) fn unsigned_card(address: SocketAddr) -> [u8; CARD_LEN] {
    let mut card = [0; CARD_LEN];
    card[1..3].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            card[0] = VERSION | 4;
            card[3..7].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            card[0] = VERSION | 6;
            card[3..19].copy_from_slice(&ip.octets());
        }
    }
    card
}

/// The address in a card, signed or not.
pub(crate) fn of_card(card: &[u8]) -> Option<SocketAddr> {
    let card: &[u8; CARD_LEN] = card.try_into().ok()?;
    let ip: IpAddr = match card[0] {
        four if four == VERSION | 4 => Ipv4Addr::from(<[u8; 4]>::try_from(&card[3..7]).ok()?).into(),
        six if six == VERSION | 6 => Ipv6Addr::from(<[u8; 16]>::try_from(&card[3..19]).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::from((ip, u16::from_be_bytes([card[1], card[2]]))))
}

fn bytes_of<T: Copy>(raw: &T) -> Raw {
    const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_in6>()) };
    let mut bytes = [0; size_of::<libc::sockaddr_in6>()];
    // SAFETY: a sockaddr has no padding, and the assertion says that it fits.
    let from = unsafe { std::slice::from_raw_parts((raw as *const T).cast::<u8>(), size_of::<T>()) };
    bytes[..from.len()].copy_from_slice(from);
    Raw { bytes, len: from.len() }
}

/// The cards' version, in the upper half of their first byte.
const VERSION: u8 = 1 << 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_both_forms() {
        for text in ["10.77.0.1:4242", "[fe80::1:2]:65535", "[::1]:1", "127.0.0.1:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = Raw::from(address);
            // SAFETY: the slice is readable for its length.
            let read = unsafe { read(raw.as_bytes().as_ptr(), raw.as_bytes().len()) };
            assert_eq!(read, Some(address), "{text}");
            assert_eq!(of_card(&unsigned_card(address)), Some(address), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let unix = [libc::AF_UNIX as u8; 64];
        // SAFETY: the array is readable for its length.
        assert_eq!(unsafe { read(unix.as_ptr(), unix.len()) }, None);
        assert_eq!(of_card(&[0; 64]), None);
        assert_eq!(of_card(&[0x14; 63]), None);
    }
}
