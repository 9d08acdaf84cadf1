//! The carrier over TCP. Whether a peer answers is the session's business; whether its host is there yet, a listener can have
//! the system find out.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::{Carrier, Kind};

/// How connections within the host go about congestion.
const UNPACED: &str = "reno";

/// A TCP connection to one other domain.
#[derive(Debug)]
pub struct Tcp {
    stream: TcpStream,
    kind: Kind,
    /// The kernel said that nothing more is there, so whatever comes next is an edge.
    drained: bool,
    /// The kernel took less than it was given, so the next room is an edge.
    full: bool,
}

impl Tcp {
    /// Connects to `address`, and waits no longer for it than `deadline`.
    pub fn connect(address: SocketAddr, deadline: Duration) -> io::Result<Tcp> {
        let stream = TcpStream::connect_timeout(&address, deadline).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
                ErrorKind::TimedOut => format!("no answer within {deadline:?}"),
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("cannot connect to {address} over TCP: {why}"))
        })?;
        Tcp::new(stream, address, false)
    }

    /// A connection that a relay has joined to one of another domain's.
    pub(crate) fn relayed(stream: TcpStream) -> io::Result<Tcp> {
        let relay = stream.peer_addr()?;
        Tcp::new(stream, relay, true)
    }

    fn new(stream: TcpStream, peer: SocketAddr, relayed: bool) -> io::Result<Tcp> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let local = stream.local_addr()?.ip();
        if local == peer.ip() || local.is_loopback() {
            // Within the host there is nothing to be congested, and a system whose rule paces connections (BBR) would have
            // a timer between segments, which takes longer than they do. This rule every kernel has, and anybody may choose;
            // one that refuses keeps its own.
            let _ = rustix::net::sockopt::set_tcp_congestion(&stream, UNPACED);
        }
        Ok(Tcp { stream, kind: Kind::Tcp { peer, relayed }, drained: false, full: false })
    }

    fn failed(&self, doing: &str, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{doing} {}: {error}", self.kind))
    }
}

impl Carrier for Tcp {
    fn write(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        // Not writev: it would raise SIGPIPE in programs that have not told the kernel otherwise.
        let sent = loop {
            match rustix::net::sendmsg(&self.stream, bytes, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Ok(sent) => break sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break 0,
                Err(error) => return Err(self.failed("cannot write to", error.into())),
            }
        };
        self.full = sent < bytes.iter().map(|slice| slice.len()).sum();
        Ok(sent)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            match self.stream.read(into) {
                Ok(0) => {
                    let closed = format!("{} closed the connection", self.kind);
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, closed));
                }
                Ok(count) => {
                    self.drained = false;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.drained = true;
                    return Ok(0);
                }
                Err(error) => return Err(self.failed("cannot read from", error)),
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn interest(&self) -> EventFlags {
        EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
    }

    fn arm(&mut self, want_write: bool) -> io::Result<bool> {
        Ok(!self.drained || (want_write && !self.full))
    }

    fn kind(&self) -> &Kind {
        &self.kind
    }
}

/// Connections that wait to be accepted. When there are more, the kernel lets whoever comes try again after a second: the
/// standard library's 128 are there within milliseconds when strangers knock, and many more would make whoever comes wait.
const BACKLOG: i32 = 512;

/// Where other domains connect to.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            rustix::net::listen(&listener, BACKLOG)?;
            let address = listener.local_addr()?;
            Ok(Listener { listener, address })
        });
        bound.map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address} over TCP: {error}")))
    }

    /// Has the system ask hosts that say nothing whether they are there, in connections that are accepted from now on: one
    /// whose host answers nothing for so long fails. A process that is stopped has a host that answers for it.
    pub fn watch(&self, silence: Duration) -> io::Result<()> {
        use rustix::net::sockopt;
        // The system counts seconds.
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(&self.listener, (silence / 2).max(second))?;
        sockopt::set_tcp_keepintvl(&self.listener, (silence / 10).max(second))?;
        sockopt::set_tcp_user_timeout(&self.listener, u32::try_from(silence.as_millis()).unwrap_or(u32::MAX))?;
        Ok(sockopt::set_socket_keepalive(&self.listener, true)?)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next one that has connected, if there is one. After an error the listener goes on.
    pub fn accept(&self) -> io::Result<Option<Tcp>> {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => return Tcp::new(stream, peer, false).map(Some),
                // It was gone again before it was its turn.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => {
                    let address = self.address;
                    return Err(io::Error::new(error.kind(), format!("cannot accept on {address} over TCP: {error}")));
                }
            }
        }
    }
}

impl AsFd for Listener {
    /// Readable when somebody has connected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
