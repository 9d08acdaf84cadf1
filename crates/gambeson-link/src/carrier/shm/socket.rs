//! How two processes of a host find each other and share their memory.
//!
//! Unix sockets stand in a folder that belongs to the user and lets nobody else in, so that no stranger can connect, or
//! listen under somebody's name. The kernel's word on the other end's user is asked for as well. Who connects makes the
//! memory and sends it at once; nobody waits for an answer.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::mapping::{Mapping, Side};
use super::{Pair, Shm, credentials};
use crate::carrier::Kind;

/// What each ring holds.
const CAPACITY: u64 = 1 << 20;
/// How long to leave alone a listener whose queue is full.
const PATIENCE: Duration = Duration::from_millis(1);
const BACKLOG: i32 = 128;

/// A folder for the sockets of one user.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The user's own on this host: `/dev/shm/gambeson-UID`, which is made if it is missing.
    ///
    /// `$XDG_RUNTIME_DIR` would do as well where there is one, but batch jobs have none, and two processes must come to
    /// the same place.
    pub fn of_user() -> io::Result<Folder> {
        Folder::at(Path::new("/dev/shm").join(format!("gambeson-{}", rustix::process::geteuid().as_raw())))
    }

    /// The folder at `path`, which is made if it is missing.
    pub fn at(path: impl Into<PathBuf>) -> io::Result<Folder> {
        let path = path.into();
        let refuse = |kind, why: String| {
            let path = path.display();
            Err(io::Error::new(kind, format!("{path} cannot hold the sockets of shared memory: {why}")))
        };
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return refuse(error.kind(), error.to_string()),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(folder) => File::from(folder),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return refuse(ErrorKind::NotADirectory, "it is no folder; remove it or choose another".to_owned());
            }
            Err(error) => return refuse(error.kind(), error.to_string()),
        };
        let about = folder.metadata()?;
        let (user, owner, mode) = (rustix::process::geteuid().as_raw(), about.uid(), about.mode() & 0o777);
        if owner != user {
            let why = format!("it belongs to user {owner} and not to user {user}; choose another");
            return refuse(ErrorKind::PermissionDenied, why);
        }
        if mode & 0o077 != 0 {
            let why = format!("others than its owner may use it (mode {mode:o}); chmod 700 keeps them out");
            return refuse(ErrorKind::PermissionDenied, why);
        }
        Ok(Folder { path })
    }

    /// Listens under `name`, and removes what dead processes have left in the folder.
    pub fn listen(&self, name: &str) -> io::Result<Listener> {
        let failed = |error: io::Error| {
            let path = self.path.display();
            io::Error::new(error.kind(), format!("cannot listen for shared memory under {name} in {path}: {error}"))
        };
        self.bind(name).map_err(failed)
    }

    fn bind(&self, name: &str) -> io::Result<Listener> {
        let (path, address) = self.address(name)?;
        // One at a time, or two that find a dead one's socket would remove each other's. Closing the folder lets go.
        let folder = File::open(&self.path)?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
        self.sweep()?;
        let socket = new_socket(SocketType::SEQPACKET)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                return Err(io::Error::new(ErrorKind::AddrInUse, "somebody listens there already"));
            }
            bound => bound?,
        }
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket, name: name.to_owned(), path })
    }

    /// Removes the sockets that processes left which were killed. A stream never connects to a socket of packets, so
    /// those that live do not notice.
    fn sweep(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)?.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_socket()) {
                continue;
            }
            let Ok(address) = SocketAddrUnix::new(entry.path()) else { continue };
            if rustix::net::connect(new_socket(SocketType::STREAM)?, &address) == Err(Errno::CONNREFUSED) {
                // Whoever ends right now removes it itself.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Connects to the one that listens under `name`, and waits no longer for it than `deadline`.
    pub fn connect(&self, name: &str, deadline: Duration) -> io::Result<Shm> {
        self.reach(name, deadline).map_err(|error| {
            let path = self.path.display();
            let connecting = format!("cannot connect to {name} in {path} over shared memory: {error}");
            io::Error::new(error.kind(), connecting)
        })
    }

    fn reach(&self, name: &str, deadline: Duration) -> io::Result<Shm> {
        let (_, address) = self.address(name)?;
        let begun = Instant::now();
        let socket = new_socket(SocketType::SEQPACKET)?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::AGAIN) if begun.elapsed() < deadline => std::thread::sleep(PATIENCE),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let why = format!("it has not accepted anybody within {deadline:?}");
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
                Err(Errno::NOENT) => return Err(io::Error::new(ErrorKind::NotFound, "nobody has that name")),
                Err(Errno::CONNREFUSED) => {
                    return Err(io::Error::new(ErrorKind::ConnectionRefused, "the process of that name has ended"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let process = same_user(&socket)?;
        let (mapping, memory) = Mapping::create(CAPACITY)?;
        send_memory(&socket, CAPACITY, &[memory.as_fd()])?;
        let kind = Kind::Shm { name: name.to_owned(), process };
        Ok(Shm { socket, kind, pair: Some(Pair::new(mapping, Side::Connecting)), ended: false })
    }

    fn address(&self, name: &str) -> io::Result<(PathBuf, SocketAddrUnix)> {
        let refuse = |why: String| Err(io::Error::new(ErrorKind::InvalidInput, why));
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return refuse("a name must be that of a file in the folder, and must not begin with a dot".to_owned());
        }
        let path = self.path.join(name);
        match SocketAddrUnix::new(&path) {
            Ok(address) => Ok((path, address)),
            Err(_) => {
                let length = path.as_os_str().len();
                refuse(format!("a socket's path may have 107 bytes and this one has {length}; choose a shorter one"))
            }
        }
    }
}

/// Where other processes of this host connect to.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    name: String,
    path: PathBuf,
}

impl Listener {
    /// The next one that has connected, if there is one. After an error the listener goes on: it can be about a stranger
    /// who was turned away.
    pub fn accept(&self) -> io::Result<Option<Shm>> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) => {
                    let process = same_user(&socket)?;
                    let kind = Kind::Shm { name: self.name.clone(), process };
                    return Ok(Some(Shm { socket, kind, pair: None, ended: false }));
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => {
                    let error = io::Error::from(error);
                    let path = self.path.display();
                    return Err(io::Error::new(error.kind(), format!("cannot accept on {path}: {error}")));
                }
            }
        }
    }
}

impl AsFd for Listener {
    /// Readable when somebody has connected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // While it listens nobody else replaces it, so this is ours. What cannot be removed is replaced later.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn new_socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

/// The process at the other end, if it runs as the same user as this one.
fn same_user(socket: &OwnedFd) -> io::Result<i32> {
    let (other, process) = credentials::peer(socket)?;
    let user = rustix::process::geteuid().as_raw();
    if other != user {
        let why = format!("the process at the other end belongs to user {other} and not to user {user}");
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    Ok(process)
}

/// The message that comes with the memory: what it is for, and how much each ring holds.
const PURPOSE: &[u8; 16] = b"gambeson memory1";
const MESSAGE: usize = PURPOSE.len() + size_of::<u64>();

pub(super) fn send_memory(socket: impl AsFd, capacity: u64, memory: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(memory.is_empty() || control.push(SendAncillaryMessage::ScmRights(memory)), "there is space for them");
    let capacity = capacity.to_le_bytes();
    let parts = [IoSlice::new(PURPOSE), IoSlice::new(&capacity)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Maps the memory that the other end has sent; none while it has not.
pub(super) fn take_memory(socket: impl AsFd) -> io::Result<Option<Mapping>> {
    let refuse = |why: &str| Err(io::Error::new(ErrorKind::InvalidData, why));
    let mut message = [0; MESSAGE + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut control, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(Errno::CONNRESET) => return Err(ErrorKind::UnexpectedEof.into()),
        Err(error) => return Err(error.into()),
    };
    let mut sent = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            sent.extend(descriptors);
        }
    }
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let Some((PURPOSE, capacity)) = message[..received.bytes].split_first_chunk() else {
        return refuse("its first message is not that of a Gambeson of this version");
    };
    let Ok(capacity) = capacity.try_into() else {
        return refuse("its first message has a wrong length");
    };
    match (sent.pop(), sent.is_empty()) {
        (Some(memory), true) => Mapping::open(memory, u64::from_le_bytes(capacity)).map(Some),
        _ => refuse("it has sent no shared memory"),
    }
}
