//! What the site directory says of this domain's sessions and links (secure-nexus paper, sections 3.3 and 5.1).
//!
//! What a host's entry says holds for every session with a domain on it, at both ends: what both hosts' entries name is
//! what a session goes over and what its ends prove themselves by. Of a host that is not in the directory nothing is said,
//! and the policy decides alone.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use gambeson_proto::directory::{self, Authentication, Directory, Host, Network, transport_name};
use gambeson_proto::startpoint::{Address, AddressKind as Transport};
use gambeson_site::directory::{DIRECTORY, FOLDER, SITE_KEY, load, now, of_folder};

use crate::domain::Config;
use crate::error::Error;
use crate::identity::{Expected, KeyHash, Peer};

/// A directory, and where it was read.
pub(crate) struct Source {
    file: PathBuf,
    key: PathBuf,
    directory: Directory,
}

impl Source {
    /// What lies in a folder, if a site's key does.
    pub(crate) fn of_folder(folder: &Path) -> Result<Option<Self>, Error> {
        let directory = of_folder(folder).map_err(unusable)?;
        Ok(directory.map(|directory| Source { file: folder.join(DIRECTORY), key: folder.join(SITE_KEY), directory }))
    }
}

fn unusable(cause: gambeson_site::directory::Error) -> Error {
    Error::identity(cause.to_string())
}

impl Config {
    /// Goes by the directory of the site that this host is of: `/etc/gambeson/directory.toml`, which the owner of
    /// `/etc/gambeson/site.pub` has signed. A host without a site's key is of none, and the policy decides alone.
    ///
    /// # Errors
    /// When the host is of a site, and its directory is not there, not signed by the site, or its time is over.
    pub fn site(&mut self) -> Result<(), Error> {
        self.site = Source::of_folder(Path::new(FOLDER))?;
        Ok(())
    }

    /// Goes by this directory, which the owner of the key in the other file has signed. When its time is over no session
    /// begins, until a newer one lies in its place.
    ///
    /// # Errors
    /// When one of the files cannot be read, or the directory is not signed by that key, or its time is over.
    pub fn directory(&mut self, file: &Path, site_key: &Path) -> Result<(), Error> {
        let directory = load(file, site_key).map_err(unusable)?;
        self.site = Some(Source { file: file.to_owned(), key: site_key.to_owned(), directory });
        Ok(())
    }
}

/// The directory that a domain goes by, if it does, and where the domain is.
#[derive(Default)]
pub(crate) struct Site {
    host: String,
    address: Option<IpAddr>,
    files: Option<(PathBuf, PathBuf)>,
    directory: RwLock<Option<Arc<Directory>>>,
    /// When the files were last looked at.
    looked: AtomicU64,
}

impl Site {
    pub(crate) fn new(source: Option<Source>, host: String, address: Option<IpAddr>) -> Self {
        let (files, directory) = match source {
            Some(Source { file, key, directory }) => (Some((file, key)), Some(Arc::new(directory))),
            None => (None, None),
        };
        Site { host, address, files, directory: RwLock::new(directory), looked: AtomicU64::new(now()) }
    }

    fn current(&self) -> Option<Arc<Directory>> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether sessions may begin: not by a directory whose time is over. Then it is read again, at most once a second.
    pub(crate) fn is_valid(&self) -> Result<(), Error> {
        let (Some(directory), Some((file, key))) = (self.current(), &self.files) else { return Ok(()) };
        let now = now();
        let Err(why) = directory.is_valid(now) else { return Ok(()) };
        let refused = |why: &dyn Display| Error::Refused(format!("no session begins here: {why}"));
        if self.looked.swap(now, Ordering::Relaxed) == now {
            return Err(refused(&format!("the site directory {} is refused: {why}", file.display())));
        }
        let renewed = load(file, key).map_err(|why| refused(&why))?;
        *self.directory.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(renewed));
        Ok(())
    }

    /// Where the program listens that the directory has on a host, and who has to be there.
    pub(crate) fn program(&self, host: &str) -> Result<(Vec<SocketAddr>, Expected), Error> {
        self.is_valid()?;
        let none = |why: &str| Error::Startpoint(format!("where to attach to on {host} is not known: {why}"));
        let directory = self.current().ok_or_else(|| {
            none("this domain goes by no site directory; open it with `Config::site`, or attach at an address")
        })?;
        let entry = directory.host(host).ok_or_else(|| none("the site directory has no such host"))?;
        let attach = entry.attach.as_ref();
        let attach = attach.ok_or_else(|| none("the site directory has `attach` for other hosts alone"))?;
        let expected = match &attach.expected {
            directory::Expected::Key(key) => Expected::Key(KeyHash(*key)),
            directory::Expected::Role(role) => Expected::Role(role.clone()),
        };
        Ok((attach.addresses.clone(), expected))
    }

    /// The host that the directory has at one of a startpoint's addresses.
    pub(crate) fn host_at(&self, addresses: &[Address]) -> Option<String> {
        let directory = self.current()?;
        let tcp = addresses.iter().filter(|address| address.kind == Transport::Tcp);
        let mut known = tcp.filter_map(|address| address.text.parse::<SocketAddr>().ok());
        known.find_map(|address| directory.host_at(address.ip())).map(|host| host.name.clone())
    }

    /// Whether who answers is on the host where the directory has the addresses.
    pub(crate) fn is_there(&self, addresses: &[Address], peer: &Peer) -> Result<(), Error> {
        let (Some(directory), Some(there)) = (self.current(), self.host_at(addresses)) else { return Ok(()) };
        if directory.host(&peer.host).is_some_and(|host| host.name == there) {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "the site directory has {there} at this address, and who answers is {} on {}; give the directory that host's \
             address, or its domain the host's name",
            peer.name, peer.host
        )))
    }

    /// What a session with a host goes over, in the order to try; `None`: what the rule says.
    pub(crate) fn transports(&self, peer: &str) -> Option<Vec<Transport>> {
        self.between(peer, |host| &host.transports)
    }

    /// What a session with a host may be authenticated by; `None`: whatever the other end's trust allows.
    fn authentication(&self, peer: &str) -> Option<Vec<Authentication>> {
        self.between(peer, |host| &host.authentication)
    }

    /// What the entries of both hosts name, in the order of the peer's.
    fn between<T: Copy + PartialEq>(&self, peer: &str, named: impl Fn(&Host) -> &Vec<T>) -> Option<Vec<T>> {
        let directory = self.current()?;
        match (directory.host(peer), directory.host(&self.host)) {
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => Some(named(one).clone()),
            (Some(there), Some(here)) => {
                let both = named(there).iter().filter(|value| named(here).contains(value));
                Some(both.copied().collect())
            }
        }
    }

    /// Whether a session with a host may be authenticated so.
    pub(crate) fn accepts(&self, peer: &str, way: Authentication) -> bool {
        self.authentication(peer).is_none_or(|ways| ways.contains(&way))
    }

    /// Whether a host may come as a guest: nobody does where the directory says what sessions are authenticated by.
    pub(crate) fn accepts_guests(&self, peer: &str) -> bool {
        self.authentication(peer).is_none()
    }

    /// Why a host that proves itself by these ways is refused.
    pub(crate) fn unaccepted(&self, peer: &str, proved: &[Authentication]) -> String {
        let accepted = self.authentication(peer).unwrap_or_default();
        format!(
            "the site directory accepts {} for sessions between {} and {peer}, and {peer} is known by {}; give both ends what \
             it accepts",
            listed(accepted.into_iter().map(Authentication::name)),
            self.host,
            listed(proved.iter().map(|way| way.name()))
        )
    }

    /// Whether a session with a host may go over this.
    pub(crate) fn carries(&self, peer: &str, transport: Transport) -> Result<(), Error> {
        let Some(named) = self.transports(peer).filter(|named| !named.contains(&transport)) else { return Ok(()) };
        Err(Error::Refused(format!(
            "the site directory has sessions between {} and {peer} go over {}, and this one came over {}; let both ends go \
             by the same directory",
            self.host,
            listed(named.into_iter().map(transport_name)),
            transport_name(transport)
        )))
    }

    /// The network that asks most of links with a peer.
    pub(crate) fn floor(&self, peer: &Peer) -> Option<Network> {
        self.current()?.floor([(&self.host, self.address), (&peer.host, peer.address)]).copied()
    }
}

fn listed(words: impl Iterator<Item = &'static str>) -> String {
    let words: Vec<_> = words.collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" or ") }
}
