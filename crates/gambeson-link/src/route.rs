//! Where a domain listens, and which way to another: shared memory inside a host, TCP elsewhere.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use gambeson_proto::startpoint::{Address, AddressKind};

use crate::carrier::{Carrier, shm, tcp};
use crate::error::Error;
use crate::identity::KeyHash;

/// What a domain listens on.
pub(crate) struct Doors {
    tcp: Vec<tcp::Listener>,
    shm: Option<shm::Listener>,
}

impl Doors {
    /// Listens on TCP addresses and, if there is one and it may, for processes of this host.
    pub(crate) fn open(listen: &[SocketAddr], shm: bool, owner: KeyHash) -> Result<Self, Error> {
        let failed = || Error::system("the domain cannot be opened");
        let tcp = listen.iter().map(|address| tcp::Listener::bind(*address).map_err(failed()));
        let tcp = tcp.collect::<Result<Vec<_>, _>>()?;
        let shm = if tcp.is_empty() || !shm { None } else { Some(local_door(owner).map_err(failed())?) };
        Ok(Doors { tcp, shm })
    }

    /// Where others find it, the shortest way first.
    pub(crate) fn addresses(&self, owner: KeyHash) -> Vec<Address> {
        let local = self.shm.iter().filter_map(|_| {
            Some(Address { kind: AddressKind::Shm, text: format!("{}/{}", this_host()?, name(owner)) })
        });
        let tcp =
            self.tcp.iter().map(|listener| Address { kind: AddressKind::Tcp, text: listener.address().to_string() });
        local.chain(tcp).collect()
    }

    pub(crate) fn tcp(&self) -> Vec<SocketAddr> {
        self.tcp.iter().map(tcp::Listener::address).collect()
    }

    /// What becomes readable when somebody has connected.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tcp.iter().map(AsFd::as_fd).chain(self.shm.iter().map(AsFd::as_fd))
    }

    /// The next one that has connected, if there is one.
    pub(crate) fn accept(&self) -> Option<Box<dyn Carrier>> {
        if let Some(Ok(Some(carrier))) = self.shm.as_ref().map(shm::Listener::accept) {
            return Some(Box::new(carrier));
        }
        let came = self.tcp.iter().find_map(|listener| listener.accept().ok().flatten())?;
        Some(Box::new(came))
    }
}

fn local_door(owner: KeyHash) -> io::Result<shm::Listener> {
    shm::Folder::of_user()?.listen(&name(owner))
}

/// Under which name a domain listens on its host.
fn name(owner: KeyHash) -> String {
    owner.to_string()[..32].to_owned()
}

/// What tells this host, since it was started, from all others.
fn this_host() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Why no address leads anywhere.
pub(crate) struct Unreachable {
    /// The last one's reason.
    pub(crate) why: String,
    /// Whether all of them say that nobody listens there.
    pub(crate) nobody: bool,
}

/// The first of these addresses that answers, the shortest way first.
pub(crate) fn reach(addresses: &[Address], deadline: Instant) -> Result<Box<dyn Carrier>, Unreachable> {
    let mut unreachable =
        Unreachable { why: "its owner listens nowhere that is to be reached from here".to_owned(), nobody: true };
    let host = this_host();
    let local = |address: &&Address| address.kind == AddressKind::Shm;
    for address in addresses.iter().filter(local).chain(addresses.iter().filter(|address| !local(address))) {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let reached: io::Result<Box<dyn Carrier>> = match (address.kind, address.text.split_once('/')) {
            (AddressKind::Shm, Some((there, name))) if host.as_deref() == Some(there) => {
                // Another user's folder, or a container's: there is a way by TCP.
                shm::Folder::of_user().and_then(|folder| Ok(Box::new(folder.connect(name, left)?) as _))
            }
            (AddressKind::Tcp, _) => match address.text.parse() {
                Ok(address) => tcp::Tcp::connect(address, left).map(|carrier| Box::new(carrier) as _),
                Err(_) => continue,
            },
            _ => continue,
        };
        match reached {
            Ok(carrier) => return Ok(carrier),
            Err(cause) => {
                unreachable.nobody &=
                    matches!(cause.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
                unreachable.why = cause.to_string();
            }
        }
    }
    Err(unreachable)
}
