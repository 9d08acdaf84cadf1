//! The carrier between processes of one host: two rings in shared memory.
//!
//! A unix socket brings the two together ([`socket`]) and stays open: one byte over it wakes a peer that sleeps, and its
//! end tells of the peer's. An eventfd would wake more cheaply, but whoever is at the other end has proved nothing yet,
//! and an eventfd in hostile hands can be made to block the one who writes to it.

#[allow(unsafe_code)]
mod credentials;
#[allow(unsafe_code)]
mod mapping;
mod ring;
mod socket;

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::{Carrier, Kind};
use mapping::{Mapping, Side};
use ring::{Moved, Nonsense, Reader, Writer};
pub use socket::{Folder, Listener};

/// Shared memory with one other domain on this host.
#[derive(Debug)]
pub struct Shm {
    socket: OwnedFd,
    kind: Kind,
    /// Missing until the one who connected has sent it.
    pair: Option<Pair>,
    /// The socket has ended: what the rings hold is all that will ever come.
    ended: bool,
}

#[derive(Debug)]
struct Pair {
    mapping: Mapping,
    side: Side,
    writer: Writer,
    reader: Reader,
}

impl Pair {
    fn new(mapping: Mapping, side: Side) -> Pair {
        Pair { mapping, side, writer: Writer::default(), reader: Reader::default() }
    }
}

impl Shm {
    /// The pair, if the other end has sent its memory by now.
    fn pair(&mut self) -> io::Result<Option<&mut Pair>> {
        if self.pair.is_none() && !self.ended {
            match socket::take_memory(&self.socket) {
                Ok(Some(mapping)) => self.pair = Some(Pair::new(mapping, Side::Accepting)),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.ended = true,
                Err(error) => {
                    let refused = format!("refused {}: {error}", self.kind);
                    return Err(io::Error::new(error.kind(), refused));
                }
            }
        }
        Ok(self.pair.as_mut())
    }

    /// Wakes the peer if it sleeps.
    fn wake(&mut self, moved: Moved) -> usize {
        if moved.wake {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, &[1], flags) {
                // As many as fit are on their way already.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(_) => self.ended = true,
            }
        }
        moved.bytes
    }

    /// Takes the wake-ups that have come. True: there may be more, for a peer has sent more than it ever owed us.
    fn drain(&mut self) -> bool {
        for _ in 0..16 {
            match rustix::net::recv(&self.socket, &mut [0u8; 8], RecvFlags::DONTWAIT) {
                Ok((_, 1..)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                // A peer that ends with our wake-ups unread resets the socket.
                Ok((_, 0)) | Err(_) => {
                    self.ended = true;
                    return false;
                }
            }
        }
        true
    }

    fn lies(&self, nonsense: Nonsense) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, format!("{} is out of its mind: {nonsense}", self.kind))
    }

    fn closed(&self, kind: ErrorKind) -> io::Error {
        io::Error::new(kind, format!("{} has closed the connection or has died", self.kind))
    }
}

impl Carrier for Shm {
    fn write(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.ended {
            return Err(self.closed(ErrorKind::BrokenPipe));
        }
        let Some(Pair { mapping, side, writer, .. }) = self.pair()? else { return Ok(0) };
        match writer.write(&mapping.ring(*side), bytes) {
            Ok(moved) => Ok(self.wake(moved)),
            Err(nonsense) => Err(self.lies(nonsense)),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let ended = self.ended;
        let moved = match self.pair()? {
            Some(Pair { mapping, side, reader, .. }) => reader.read(&mapping.ring(side.other()), into),
            None => Ok(Moved { bytes: 0, wake: false }),
        };
        match moved {
            Ok(Moved { bytes: 0, .. }) if ended => Err(self.closed(ErrorKind::UnexpectedEof)),
            Ok(moved) => Ok(self.wake(moved)),
            Err(nonsense) => Err(self.lies(nonsense)),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn interest(&self) -> EventFlags {
        EventFlags::IN | EventFlags::RDHUP | EventFlags::ET
    }

    fn arm(&mut self, want_write: bool) -> io::Result<bool> {
        if self.pair.is_none() {
            // With the memory something may have come already.
            return Ok(self.pair()?.is_some() || self.ended);
        }
        if self.drain() || self.ended {
            return Ok(true);
        }
        let Some(Pair { mapping, side, writer, reader }) = self.pair.as_mut() else { return Ok(false) };
        let readable = reader.arm(&mapping.ring(side.other()));
        let writable = if want_write { writer.arm(&mapping.ring(*side)) } else { Ok(false) };
        match (readable, writable) {
            (Ok(readable), Ok(writable)) => Ok(readable || writable),
            (Err(nonsense), _) | (_, Err(nonsense)) => Err(self.lies(nonsense)),
        }
    }

    fn kind(&self) -> &Kind {
        &self.kind
    }
}

#[cfg(test)]
mod tests;
