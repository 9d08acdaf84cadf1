//! One side of a connection that is carried: a TCP socket with a thread for each direction.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::{set_socket_keepalive, set_socket_linger};

/// That a connection is to be reset, for whoever waits on its socket.
pub(crate) struct Reset {
    rung: AtomicBool,
    bell: OwnedFd,
}

impl Reset {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Reset { rung: AtomicBool::new(false), bell }))
    }

    pub(crate) fn now(&self) {
        self.rung.store(true, Ordering::Release);
        // It is never read, so whoever waits later finds it, too.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }
}

/// A socket whose connection is reset when it is closed, also by the end of this process, unless both directions have
/// ended.
pub(crate) struct Socket {
    stream: TcpStream,
    reset: Arc<Reset>,
    /// A write has heard that the connection is broken: the kernel tells that once, and reads an end of file afterwards.
    broken: Mutex<bool>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, given_up: Arc<Reset>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        reset(&stream);
        // The other end may be switched off, and nobody say so.
        set_socket_keepalive(&stream, true)?;
        Ok(Socket { stream, reset: given_up, broken: Mutex::new(false) })
    }

    /// Reads what is there, and waits for something at most so long, if not for ever; [`ErrorKind::WouldBlock`] if nothing
    /// came. (A connection that the kernel gives up has timed out.)
    pub(crate) fn read(&self, into: &mut [u8], patience: Option<Duration>) -> io::Result<usize> {
        loop {
            match (&self.stream).read(into) {
                Ok(0) if *self.broken.lock().unwrap_or_else(PoisonError::into_inner) => {
                    return Err(ErrorKind::ConnectionReset.into());
                }
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::IN, patience)?,
                read => return read,
            }
        }
    }

    pub(crate) fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = {
                let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
                let written = (&self.stream).write(bytes);
                let waits = |cause: &io::Error| matches!(cause.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock);
                *broken |= written.as_ref().is_err_and(|cause| !waits(cause));
                written
            };
            match written {
                Ok(count) => bytes = &bytes[count..],
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT, None)?,
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    /// Says that nothing more will be written.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Both directions have ended: there is nothing to reset.
    pub(crate) fn end(&self) {
        let _ = set_socket_linger(&self.stream, None);
    }

    fn wait(&self, what: PollFlags, patience: Option<Duration>) -> io::Result<()> {
        let timeout = patience.map(|patience| Timespec {
            tv_sec: patience.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        });
        let mut watched = [PollFd::new(&self.stream, what), PollFd::new(&self.reset.bell, PollFlags::IN)];
        let ready = match poll(&mut watched, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            ready => ready?,
        };
        if self.reset.is_rung() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        if ready == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }
}

/// Has a connection end with a reset, when its socket is closed.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}
