//! Two sessions and what is between them, in memory: what the fuzz targets drive.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::key_schedule::{SessionKeys, Side};
use gambeson_proto::record::{answer, request};
use gambeson_proto::secret::Secret32;
use gambeson_proto::startpoint::{self, EndpointKey, Limits, StartpointBook, Terms, Transforms};
use gambeson_proto::suite::{Protection, Suite};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use zeroize::Zeroizing;

use super::{Desk, Incident, Opened, Session};
use crate::carrier::{Carrier, Kind as Carried};
use crate::endpoint::{Attributes, Binding, Handlers, Table};
use crate::handshake::Agreed;
use crate::identity::{KeyHash, Peer};
use crate::link::Bytes;

/// One direction of a connection.
pub(crate) type Wire = Arc<Mutex<VecDeque<u8>>>;

struct Connection {
    to: Wire,
    from: Wire,
    kind: Carried,
    /// Never rung: nobody sleeps here.
    bell: OwnedFd,
    /// How much of what there is moves at a time.
    pace: Pace,
}

/// How many of so many bytes move.
pub(crate) type Pace = Box<dyn FnMut(usize) -> usize + Send>;

impl Carrier for Connection {
    fn write(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let whole: usize = bytes.iter().map(|slice| slice.len()).sum();
        let taken = (self.pace)(whole);
        let bytes = bytes.iter().flat_map(|slice| slice.iter().copied()).take(taken);
        self.to.lock().expect("no panic").extend(bytes);
        Ok(taken)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut from = self.from.lock().expect("no panic");
        let count = (self.pace)(from.len().min(into.len()));
        for (slot, byte) in into.iter_mut().zip(from.drain(..count)) {
            *slot = byte;
        }
        Ok(count)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn interest(&self) -> EventFlags {
        EventFlags::empty()
    }

    fn arm(&mut self, _want_write: bool) -> io::Result<bool> {
        Ok(true)
    }

    fn kind(&self) -> &Carried {
        &self.kind
    }
}

/// A connection's two ends, and its wires: to the server and to the client.
pub(crate) fn connect(paces: [Pace; 2]) -> ([Box<dyn Carrier>; 2], [Wire; 2]) {
    let wires: [Wire; 2] = Default::default();
    let [one, other] = paces;
    let end = |to: usize, from: usize, pace| -> Box<dyn Carrier> {
        let (to, from) = (wires[to].clone(), wires[from].clone());
        let kind = Carried::Tcp { peer: "127.0.0.1:1".parse().expect("an address"), relayed: false };
        Box::new(Connection { to, from, kind, bell: eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor"), pace })
    };
    ([end(0, 1, one), end(1, 0, other)], wires)
}

pub(crate) const OWNER: [u8; 32] = [2; 32];

pub(crate) struct Endpoint {
    pub(crate) book: StartpointBook,
    table: Arc<Table>,
    pub(crate) requests: u64,
    /// What has come over which link, if somebody wants to know.
    pub(crate) came: Option<Vec<(u64, Vec<u8>)>>,
    /// How often an answer says what was asked.
    pub(crate) times: usize,
}

impl Endpoint {
    pub(crate) fn new() -> Self {
        let table = Arc::new(Table::new(Attributes::default(), Handlers::new(), Box::default()).expect("no handlers"));
        let book = StartpointBook::new(OWNER, Limits::default());
        Endpoint { book, table, requests: 0, came: None, times: 1 }
    }

    /// With an endpoint of which `client` opens a link.
    pub(crate) fn opened(client: &mut Session, cache: &mut KeyCache, protection: Protection) -> (Self, u64) {
        let mut endpoint = Self::new();
        endpoint
            .book
            .open_endpoint(1, EndpointKey::from_bytes([3; 32]), "data", Transforms::default())
            .expect("a class");
        let link = endpoint.link(4, client, cache, protection);
        (endpoint, link)
    }

    /// A link of `client` to it, by a startpoint of its own.
    pub(crate) fn link(&mut self, root: u8, client: &mut Session, cache: &mut KeyCache, protection: Protection) -> u64 {
        let capability = self.book.mint(1, [root; 16], Vec::new(), []).expect("a startpoint");
        let opening = capability.activate(client.links(), [5; 16], protection, None).expect("ours to use");
        client.open_link(cache, opening, "data", None)
    }
}

impl Desk for Endpoint {
    fn admit(&mut self, links: &mut startpoint::Session, _: &Peer, activation: &[u8]) -> Result<Opened, String> {
        let terms = |_: &str| Terms { floor: Protection::None, partition: None };
        let admitted = self.book.admit(links, activation, 1, terms).map_err(|refusal| refusal.to_string())?;
        let (number, protection) = (admitted.activation.number, admitted.activation.protection);
        let binding = Arc::new(Binding { table: self.table.clone(), grant: admitted.grant });
        Ok(Opened { number, keys: admitted.keys, protection, binding, stack: None })
    }

    fn named(&mut self, _: &Peer, name: &[u8]) -> Zeroizing<Vec<u8>> {
        name.to_vec().into()
    }

    fn has_session(&self, _: &[u8]) -> bool {
        true
    }

    fn too_long(&mut self, _: &Peer, _: &str) {}

    fn tampered(&mut self, _: &str) {}

    fn request<'i>(&mut self, incident: Incident<'i>) -> Result<(), Bytes<'i>> {
        let Incident { envelope, bytes, credit, link, out, cache, .. } = incident;
        self.requests += 1;
        if let Some(came) = &mut self.came {
            came.push((link.number(), bytes.get().to_vec()));
        }
        if envelope.flags & request::ANSWER != 0 {
            let bytes: Vec<u8> = bytes.get().iter().map(|byte| byte ^ 0x55).collect::<Vec<u8>>().repeat(self.times);
            crate::request::answer(link, out, cache, envelope.data, answer::LAST, &bytes);
        }
        link.handled(out, cache, credit);
        Ok(())
    }
}

pub(crate) fn agreed(side: Side) -> Agreed {
    let (own, peer) = if side == Side::Client { ([1; 32], OWNER) } else { (OWNER, [1; 32]) };
    let exporter = Secret32::from_bytes([7; 32]);
    let keys = SessionKeys { exporter, own, peer, job_id: [0; 16], policy_hash: [0; 32], suite: Suite::Aes256Gcm };
    let peer =
        Peer { key: KeyHash(peer), name: "the other".into(), roles: Vec::new(), host: "here".into(), address: None };
    Agreed { side, keys, peer, binding: [0; 32] }
}
