//! Where a domain listens, and which way to another: shared memory inside a host, libfabric where both ends have a
//! network of its own kind, TCP elsewhere.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use gambeson_proto::startpoint::{Address, AddressKind};
use rustix::event::epoll::EventFlags;

use crate::carrier::{Carrier, ofi, shm, tcp};
use crate::error::Error;
use crate::identity::KeyHash;
use crate::relay;

/// What a domain listens on.
#[derive(Default)]
pub(crate) struct Doors {
    tcp: Vec<tcp::Listener>,
    shm: Option<shm::Listener>,
    fabric: Vec<ofi::Listener>,
    relays: Vec<String>,
    /// Who came through a relay, and was not let in yet.
    arrived: VecDeque<tcp::Tcp>,
}

impl Doors {
    /// Listens on TCP addresses and, if there is one and it may, for processes of this host; and over libfabric's
    /// providers. At relays others find it, too.
    pub(crate) fn open(
        listen: &[SocketAddr],
        shm: bool,
        fabric: &[(String, Option<String>)],
        relays: &[String],
        owner: KeyHash,
    ) -> Result<Self, Error> {
        let failed = || Error::system("the domain cannot be opened");
        let tcp = listen.iter().map(|address| tcp::Listener::bind(*address).map_err(failed()));
        let tcp = tcp.collect::<Result<Vec<_>, _>>()?;
        let shm = if (tcp.is_empty() && fabric.is_empty()) || !shm {
            None
        } else {
            Some(local_door(owner).map_err(failed())?)
        };
        let fabric = fabric.iter().map(|(provider, node)| ofi::Listener::bind(provider, node.as_deref()));
        let fabric = fabric.map(|bound| bound.map_err(failed())).collect::<Result<Vec<_>, _>>()?;
        Ok(Doors { tcp, shm, fabric, relays: relays.to_vec(), arrived: VecDeque::new() })
    }

    /// Has those who connect over TCP watched ([`Config::watch`](crate::Config::watch)).
    pub(crate) fn watch(&self, silence: Duration) -> Result<(), Error> {
        let watched = self.tcp.iter().try_for_each(|listener| listener.watch(silence));
        watched.map_err(Error::system("the hosts of those who connect cannot be watched"))
    }

    /// Where others find it, the shortest way first.
    pub(crate) fn addresses(&self, owner: KeyHash) -> Vec<Address> {
        let local = self.shm.iter().filter_map(|_| {
            Some(Address { kind: AddressKind::Shm, text: format!("{}/{}", this_host()?, name(owner)) })
        });
        let tcp =
            self.tcp.iter().map(|listener| Address { kind: AddressKind::Tcp, text: listener.address().to_string() });
        let fabric = self.fabric.iter().map(|listener| {
            let text = format!("{}/{}", listener.provider(), ofi::hexadecimal(listener.address()));
            Address { kind: AddressKind::Fabric, text }
        });
        let relays = self.relays.iter().map(|relay| relay::address(relay, owner));
        local.chain(fabric).chain(tcp).chain(relays).collect()
    }

    pub(crate) fn tcp(&self) -> Vec<SocketAddr> {
        self.tcp.iter().map(tcp::Listener::address).collect()
    }

    /// What becomes readable when somebody has connected.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, EventFlags)> {
        let edges = self.tcp.iter().map(AsFd::as_fd).chain(self.shm.iter().map(AsFd::as_fd));
        let edges = edges.map(|descriptor| (descriptor, EventFlags::IN | EventFlags::ET));
        edges.chain(self.fabric.iter().map(|listener| (listener.as_fd(), EventFlags::IN)))
    }

    /// Before a sleep; whether somebody may have connected already.
    pub(crate) fn arm(&mut self) -> bool {
        let waits = !self.arrived.is_empty();
        self.fabric.iter_mut().fold(waits, |any, listener| listener.arm().unwrap_or(false) | any)
    }

    /// Somebody has come through a relay.
    pub(crate) fn arrive(&mut self, carrier: tcp::Tcp) {
        self.arrived.push_back(carrier);
    }

    /// The next one that has connected over libfabric, if there is one. That opens an endpoint, which takes its time.
    pub(crate) fn accept_fabric(&mut self) -> Option<Box<dyn Carrier>> {
        let carrier = self.fabric.iter_mut().find_map(|listener| listener.accept().ok().flatten())?;
        Some(Box::new(carrier))
    }

    /// The next one that has connected, if there is one.
    pub(crate) fn accept(&mut self) -> Option<Box<dyn Carrier>> {
        if let Some(came) = self.arrived.pop_front() {
            return Some(Box::new(came));
        }
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
fn this_host() -> Option<&'static str> {
    static HOST: OnceLock<Option<String>> = OnceLock::new();
    let read = || Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned());
    HOST.get_or_init(read).as_deref()
}

/// The addresses that may lead somewhere from here, in the order in which they are tried: first what is wished for, then
/// what the site has the session go over, in its order, or the shortest way.
pub(crate) fn ways(addresses: &[Address], wish: Option<AddressKind>, site: Option<&[AddressKind]>) -> Vec<Address> {
    let turn = |kind| site.unwrap_or(&SHORTEST_FIRST).iter().position(|&transport| transport == kind);
    let leads = |address: &&Address| match address.kind {
        AddressKind::Shm => address.text.split_once('/').is_some_and(|(there, _)| this_host() == Some(there)),
        AddressKind::Fabric => provider_of(&address.text).is_some_and(|provider| {
            (wish == Some(AddressKind::Fabric) || site.is_some() || has_own_network(provider))
                && ofi::has(provider).is_ok()
        }),
        AddressKind::Tcp => true,
    };
    let mut ways: Vec<Address> =
        addresses.iter().filter(|address| turn(address.kind).is_some() && leads(address)).cloned().collect();
    ways.sort_by_key(|address| (Some(address.kind) != wish, turn(address.kind)));
    ways
}

const SHORTEST_FIRST: [AddressKind; 3] = [AddressKind::Shm, AddressKind::Fabric, AddressKind::Tcp];

fn provider_of(text: &str) -> Option<&str> {
    Some(text.split_once('/')?.0)
}

/// Whether a provider has something better than the kernel's networks and shared memory, which there are carriers for.
fn has_own_network(provider: &str) -> bool {
    let core = provider.split(';').next().unwrap_or_default();
    !["tcp", "udp", "sockets", "net", "shm", "sm2"].contains(&core)
}

/// As [`ways`], of which the first must be what is wished for.
///
/// # Errors
/// When nothing of that kind leads anywhere from here, or nothing that the site has the session go over.
pub(crate) fn wished(
    addresses: &[Address],
    wish: Option<AddressKind>,
    site: Option<&[AddressKind]>,
) -> Result<Vec<Address>, Error> {
    let ways = ways(addresses, wish, site);
    let unnamed = |wish| site.is_some_and(|site| !site.contains(&wish));
    match wish {
        Some(wish) if unnamed(wish) => {
            Err(Error::Refused(format!("the site directory does not have sessions with that host go over {wish}")))
        }
        None if ways.is_empty() && site.is_some() && !addresses.is_empty() => {
            let named: Vec<_> = site.unwrap_or_default().iter().map(ToString::to_string).collect();
            Err(Error::Refused(format!(
                "the site directory has sessions with that host go over {}, and the startpoint's owner is not to be reached \
                 so from here; let it listen there, or let the directory name what it listens over",
                if named.is_empty() { "nothing that this host has, too".to_owned() } else { named.join(" or ") }
            )))
        }
        Some(wish) if ways.first().is_none_or(|first| first.kind != wish) => {
            let fabric = addresses.iter().filter(|address| address.kind == wish && wish == AddressKind::Fabric);
            let missing = fabric.filter_map(|address| ofi::has(provider_of(&address.text)?).err()).next();
            let why = missing.unwrap_or_else(|| "it listens elsewhere".into());
            let what = format!("the startpoint's owner is not to be reached over {wish} from here: {why}");
            Err(Error::Lost(what))
        }
        _ => Ok(ways),
    }
}

/// Those of them that come before the transport that there is.
pub(crate) fn better(
    addresses: &[Address],
    wish: Option<AddressKind>,
    site: Option<&[AddressKind]>,
    present: AddressKind,
) -> Vec<Address> {
    let mut ways = ways(addresses, wish, site);
    ways.truncate(ways.iter().take_while(|address| address.kind != present).count());
    ways
}

/// Why no address leads anywhere.
pub(crate) struct Unreachable {
    /// The one's reason that says most.
    pub(crate) why: Error,
    pub(crate) says: Says,
}

/// What a host says of an address; what says more counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Says {
    /// Nothing can be known: libfabric does not tell a process that is gone from one that is busy.
    Nothing,
    /// Nobody listens there.
    Nobody,
    /// Somebody may.
    Otherwise,
}

/// A carrier to one address.
fn reach(way: &Address, deadline: Instant) -> Result<Box<dyn Carrier>, Unreachable> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let senseless = || io::Error::new(io::ErrorKind::InvalidInput, format!("{:?} is no address", way.text));
    let reached: io::Result<Box<dyn Carrier>> = match way.kind {
        // Another user's folder, or a container's: there is a way by TCP.
        AddressKind::Shm => way.text.split_once('/').ok_or_else(senseless).and_then(|(_, name)| {
            let folder = shm::Folder::of_user()?;
            Ok(Box::new(folder.connect(name, left)?) as _)
        }),
        AddressKind::Fabric => {
            let parsed = way.text.split_once('/').and_then(|(provider, text)| Some((provider, ofi::bytes(text)?)));
            parsed.ok_or_else(senseless).and_then(|(provider, address)| {
                let carrier = ofi::Ofi::connect(provider, &address, left)?;
                Ok(Box::new(carrier) as _)
            })
        }
        AddressKind::Tcp => match relay::parts(way) {
            Some((relay, key)) => relay::seek(relay, key, left).map(|carrier| Box::new(carrier) as _),
            None => way.text.parse().map_err(|_| senseless()).and_then(|address| {
                let carrier = tcp::Tcp::connect(address, left)?;
                Ok(Box::new(carrier) as _)
            }),
        },
    };
    reached.map_err(|cause| {
        let says = match cause.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Says::Nobody,
            _ if way.kind == AddressKind::Fabric => Says::Nothing,
            _ => Says::Otherwise,
        };
        Unreachable { why: Error::Lost(cause.to_string()), says }
    })
}

/// Goes through these addresses until `then` is through with one: somebody may listen there who is no Gambeson domain, or
/// another. None takes more than half of the time that is left, but the last.
pub(crate) fn first<T>(
    ways: &[Address],
    deadline: Instant,
    mut then: impl FnMut(Box<dyn Carrier>, Instant) -> Result<T, Error>,
) -> Result<T, Unreachable> {
    let nowhere = Error::Lost("its owner listens nowhere that is to be reached from here".to_owned());
    let mut failure = Unreachable { why: nowhere, says: Says::Nothing };
    for (at, way) in ways.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let turn = if at + 1 == ways.len() { deadline } else { Instant::now() + left / 2 };
        let answered = |why| Unreachable { why, says: Says::Otherwise };
        match reach(way, turn).and_then(|carrier| then(carrier, turn).map_err(answered)) {
            Ok(found) => return Ok(found),
            Err(other) if other.says >= failure.says => failure = other,
            Err(_) => {}
        }
    }
    Err(failure)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Shared memory of this host, and TCP.
    pub(crate) fn both_ways() -> Vec<Address> {
        let host = this_host().expect("the kernel tells");
        let local = Address { kind: AddressKind::Shm, text: format!("{host}/there") };
        vec![Address { kind: AddressKind::Tcp, text: "127.0.0.1:1".into() }, local]
    }

    fn kinds(ways: &[Address]) -> Vec<AddressKind> {
        ways.iter().map(|way| way.kind).collect()
    }

    #[test]
    fn the_shortest_way_comes_first_but_for_a_wish() {
        let addresses = both_ways();
        let [tcp, shm] = [AddressKind::Tcp, AddressKind::Shm];
        assert_eq!(kinds(&ways(&addresses, None, None)), [shm, tcp]);
        assert_eq!(kinds(&ways(&addresses, Some(tcp), None)), [tcp, shm]);
        assert_eq!(kinds(&better(&addresses, None, None, tcp)), [shm]);
        assert_eq!(kinds(&better(&addresses, Some(tcp), None, shm)), [tcp]);
        assert!(better(&addresses, None, None, shm).is_empty() && better(&addresses, Some(tcp), None, tcp).is_empty());
        let [site, shm_alone] = [&[tcp, shm][..], &[shm]];
        assert_eq!(kinds(&ways(&addresses, None, Some(site))), [tcp, shm]);
        assert_eq!(kinds(&ways(&addresses, Some(shm), Some(site))), [shm, tcp]);
        assert_eq!(kinds(&ways(&addresses, None, Some(shm_alone))), [shm]);
        assert!(better(&addresses, None, Some(site), tcp).is_empty());
        let why = wished(&addresses, Some(tcp), Some(shm_alone)).expect_err("the site does not name it").to_string();
        assert!(why.contains("does not have sessions with that host go over TCP"), "{why}");
        let why = wished(&addresses[..1], None, Some(shm_alone)).expect_err("it has TCP alone").to_string();
        assert!(why.contains("go over shared memory, and the startpoint's owner is not"), "{why}");
        let elsewhere = [Address { kind: shm, text: "another-host/there".into() }, addresses[0].clone()];
        assert_eq!(kinds(&ways(&elsewhere, None, None)), [tcp]);
        assert!(
            wished(&elsewhere, Some(shm), None).is_err_and(|cause| cause.to_string().contains("over shared memory"))
        );
        let unknown = [Address { kind: AddressKind::Fabric, text: "nobody;ofi_rxm/00".into() }, addresses[0].clone()];
        assert_eq!(kinds(&ways(&unknown, Some(AddressKind::Fabric), None)), [tcp]);
        let why = wished(&unknown, Some(AddressKind::Fabric), None).expect_err("there is no such provider").to_string();
        assert!(why.contains("has no provider nobody;ofi_rxm") || why.contains("no libfabric on this host"), "{why}");
        assert!(!has_own_network("tcp;ofi_rxm") && !has_own_network("shm") && has_own_network("verbs;ofi_rxm"));
    }
}
