//! Carriers move bytes in order between two domains. They know nothing of keys or records, and whoever is at the other
//! end has proved nothing yet.
//!
//! A carrier never blocks. Who has nothing to do watches the descriptors of its carriers in one epoll and, before each
//! sleep, arms every one of them:
//!
//! ```text
//!   loop {
//!       read and write, until all carriers said 0
//!       if no carrier's arm(..) said true { epoll_wait }
//!   }
//! ```
//!
//! One that keeps on reading instead needs no system call over shared memory, but learns only from `arm` that its peer
//! has died there.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use gambeson_proto::startpoint::AddressKind as Transport;
use rustix::event::epoll::EventFlags;

pub mod ofi;
pub mod shm;
pub mod tcp;

/// A duplex stream of bytes in order to one other domain; it never blocks. Dropping it says the end; what was written and
/// not yet read there may be lost then, which sessions are made for.
pub trait Carrier: Send {
    /// Takes as much of `bytes` as there is room for, and says how much that was.
    fn write(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Fills `into` with what has come; 0 while there is nothing. [`io::ErrorKind::UnexpectedEof`] when the peer has
    /// closed and everything it had written was read.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// What an epoll must watch for [`Carrier::interest`] while this carrier is idle. It stays the same, and nothing but
    /// an epoll may touch it.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The events to watch for; edge-triggered, so that a sleep needs no second call.
    fn interest(&self) -> EventFlags;

    /// Announces a sleep: from now on the descriptor reports when something comes, the peer closes or, with
    /// `want_write`, room is made. True: don't sleep, for there is something to read, or to write into, already.
    fn arm(&mut self, want_write: bool) -> io::Result<bool>;

    /// What moves the bytes, and where to.
    fn kind(&self) -> &Kind;
}

/// What moves the bytes, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A TCP connection.
    Tcp {
        /// The other end's address, or the relay's.
        peer: SocketAddr,
        /// Whether it goes through a relay.
        relayed: bool,
    },
    /// Memory shared with a process of this host.
    Shm {
        /// The name under which the one that was connected to listens.
        name: String,
        /// The other process, as the kernel tells it.
        process: i32,
    },
    /// Messages of one of libfabric's providers.
    Fabric {
        /// Its name.
        provider: String,
        /// Where the other end said that it is, in hexadecimal.
        peer: String,
    },
}

impl Kind {
    /// By which of the transports.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match self {
            Kind::Tcp { .. } => Transport::Tcp,
            Kind::Shm { .. } => Transport::Shm,
            Kind::Fabric { .. } => Transport::Fabric,
        }
    }

    /// Whether somebody who is neither end passes the bytes on.
    pub(crate) fn is_relayed(&self) -> bool {
        matches!(self, Kind::Tcp { relayed: true, .. })
    }

    /// Whether what it took arrives as long as both processes live.
    pub(crate) fn is_lossless(&self) -> bool {
        matches!(self, Kind::Shm { .. })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Tcp { peer, relayed: false } => write!(f, "tcp {peer}"),
            Kind::Tcp { peer, relayed: true } => write!(f, "the relay at {peer}"),
            Kind::Fabric { provider, peer } => write!(f, "libfabric's {provider} {peer}"),
            Kind::Shm { name, process } => write!(f, "shm {name} (process {process})"),
        }
    }
}
