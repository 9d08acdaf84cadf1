//! A domain: a process's place among links. It listens, holds the sessions and endpoints, and moves everything on.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gambeson_pages::PageBox;
use gambeson_proto::key_schedule::PartitionKey;
use gambeson_proto::policy::Policy;
use gambeson_proto::staging::Staged;
use gambeson_proto::startpoint::{
    AddressKind as Transport, Caveat, EndpointKey, Limits, Refusal, Startpoint as Capability, StartpointBook,
    Transforms, Voucher,
};
use gambeson_proto::suite::Protection;
use gambeson_site::job::{leave, who};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::desk::in_handler;
use crate::endpoint::{Attributes, Handlers, Table};
use crate::error::Error;
use crate::group::Kept;
use crate::handshake::Party;
use crate::identity::{Expected, Identity, KeyHash, Peer, Signed, Trust};
use crate::names;
use crate::policy::Judge;
use crate::pool::Pool;
use crate::refusals::Refusals;
use crate::region::Region;
use crate::relay;
use crate::route::Doors;
use crate::shared::{Deferred, Shared};
use crate::site::{Site, Source};
use crate::startpoint::Startpoint;
use crate::state::State;
use crate::transform::{Modules, Transform};

/// Who moves bytes while the program computes (libfabric's FI_PROGRESS_MANUAL and FI_PROGRESS_AUTO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// A thread of the domain's own.
    #[default]
    Auto,
    /// The program, whenever it calls or waits: the shortest way, and nothing happens in between.
    Manual,
}

/// What a domain is opened with.
pub struct Config {
    /// Who it is.
    pub identity: Identity,
    /// Whom it talks to.
    pub trust: Trust,
    /// The host it is on, for people and policies.
    pub host: String,
    /// The address of its host that it states, for policy rules about subnets; without one the first that it listens on,
    /// if that is one that others can reach. Of who states none, the stronger answer holds.
    pub address: Option<IpAddr>,
    /// Its rank in the job, if it has one.
    pub rank: Option<u32>,
    /// Where it listens; empty for one that only connects.
    pub listen: Vec<SocketAddr>,
    /// Whether processes of this host may come over shared memory, too, if it listens at all.
    pub shm: bool,
    /// Providers of libfabric over which others may come, too, each on the interface of this address or name, or on its
    /// first. The rule prefers them to TCP if they have a network of their own kind.
    pub fabric: Vec<(String, Option<String>)>,
    /// Relays at which it waits for others, each `HOST:PORT`. Links through one are sealed, whatever the policy says.
    pub relays: Vec<String>,
    /// Who moves bytes.
    pub progress: Progress,
    /// How its links are protected, by where they lead and by their class. Everything is sealed unless it says otherwise.
    pub policy: Policy,
    /// How long a session that lost its connection waits for another one before it is over.
    pub patience: Duration,
    /// Transform modules of the program's own, beside those that every domain has.
    pub transforms: Vec<Arc<dyn Transform>>,
    /// After how long a connection is given up over which a peer says nothing that owes an answer.
    pub silence: Duration,
    /// Whether the system watches the hosts of those who connect over TCP, so that a session is lost when such a host answers
    /// nothing for [`silence`](Config::silence), also while nobody owes anything: for who works for peers that may vanish.
    pub watch: bool,
    /// The site directory that it goes by: [`Config::site`], [`Config::directory`].
    pub(crate) site: Option<Source>,
    /// The job's partitions, with the policy that says who is in which.
    pub(crate) partitions: Option<(Policy, Vec<PartitionKey>)>,
    /// Where the launcher of the job looks who has links.
    pub(crate) job: Option<PathBuf>,
}

impl Config {
    /// A domain that listens nowhere, moves bytes by itself and seals everything.
    #[must_use]
    pub fn new(identity: Identity, trust: Trust) -> Self {
        Config {
            identity,
            trust,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            address: None,
            rank: None,
            listen: Vec::new(),
            shm: true,
            fabric: Vec::new(),
            relays: Vec::new(),
            progress: Progress::Auto,
            policy: Policy::default(),
            patience: Duration::from_secs(60),
            transforms: Vec::new(),
            silence: Duration::from_secs(20),
            watch: false,
            site: None,
            partitions: None,
            job: None,
        }
    }

    /// Has this transform module, too, so that endpoints can name it and startpoints with it be bound.
    #[must_use]
    pub fn transform(mut self, module: impl Transform + 'static) -> Self {
        self.transforms.push(Arc::new(module));
        self
    }

    /// Listens there too; port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }

    /// Listens over this provider of libfabric too, on the interface of `node`, or on its first.
    #[must_use]
    pub fn listen_fabric(mut self, provider: &str, node: Option<&str>) -> Self {
        self.fabric.push((provider.into(), node.map(str::to_owned)));
        self
    }
}

/// A process's place among links.
///
/// It closes when it is dropped, whatever else is held of it: it listens no more, its links and those to its endpoints
/// end, and what is asked of those that are still held gets an error. What was handed over before goes out first, as long
/// as the peers take it, for at most ten seconds; a peer that takes nothing is waited for one second. If something was left,
/// a line on stderr says so. What is not answered yet is not waited for.
pub struct Domain {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Domain {
    /// Opens a domain.
    ///
    /// # Errors
    /// When the identity cannot be used, or an address not be listened on.
    pub fn open(config: Config) -> Result<Self, Error> {
        let Config { identity, trust, host, address, rank, listen, fabric, watch, .. } = config;
        let Config { shm, relays, progress, policy, patience, transforms, silence, site, partitions, job, .. } = config;
        let modules = Modules::new(transforms)?;
        let reachable = |address: &IpAddr| !address.is_unspecified() && !address.is_loopback();
        let address = address.or_else(|| listen.iter().map(SocketAddr::ip).find(reachable));
        let site = Arc::new(Site::new(site, host.clone(), address));
        let judge = Judge::new(policy, site.clone(), host.clone(), address, partitions);
        let party = Arc::new(Party::new(identity, trust, site, host, address, rank)?);
        let doors = Doors::open(&listen, shm, &fabric, &relays, party.key_hash())?;
        if watch {
            doors.watch(silence)?;
        }
        let no_epoll = |cause: rustix::io::Errno| Error::system("the domain cannot be opened")(cause.into());
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(no_epoll)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(no_epoll)?;
        let bells = [(bell.as_fd(), epoll::EventFlags::IN | epoll::EventFlags::ET)];
        for (watched, flags) in doors.descriptors().chain(bells) {
            epoll::add(&queue, watched, epoll::EventData::new_u64(0), flags).map_err(no_epoll)?;
        }
        let (listening, addresses) = (doors.tcp(), doors.addresses(party.key_hash()));
        let book = StartpointBook::new(party.key_hash().0, Limits::default());
        let state = State::new(doors, book, judge);
        let shared = Arc::new_cyclic(|me| Shared {
            state: Some(Mutex::new(state)),
            here: PageBox::new(1),
            moved: Condvar::new(),
            deferred: Deferred::default(),
            party,
            listening,
            addresses,
            progress,
            modules,
            patience,
            silence,
            epoll: queue,
            bell,
            pool: Pool::default(),
            signing: Pool::of(1),
            groups: Kept::default(),
            me: me.clone(),
        });
        let thread = (progress == Progress::Auto).then(|| {
            let shared = shared.clone();
            std::thread::Builder::new().name("gambeson-link".into()).spawn(move || shared.serve())
        });
        let thread = thread.transpose().map_err(Error::system("the domain's thread cannot be started"))?;
        let domain = Domain { shared, thread };
        for relay in &relays {
            relay::offer(domain.shared.weak(), relay)?;
        }
        if let Some(job) = job {
            leave(&job, "linked", &who(), "");
        }
        Ok(domain)
    }

    #[cfg(feature = "fuzzing")]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// By what others know this domain.
    #[must_use]
    pub fn key_hash(&self) -> KeyHash {
        self.shared.party.key_hash()
    }

    /// Where it listens for other hosts.
    #[must_use]
    pub fn listening(&self) -> &[SocketAddr] {
        &self.shared.listening
    }

    /// Makes an endpoint.
    ///
    /// # Errors
    /// When two handlers have one number, the class is no name, or this domain lacks a transform module.
    pub fn endpoint(&self, attributes: Attributes, handlers: Handlers) -> Result<Endpoint, Error> {
        let names = Transforms::new(attributes.transforms.iter().map(String::as_str));
        let names = names.map_err(|cause| Error::Startpoint(cause.to_string()))?;
        let modules = self.shared.modules.select(&names)?;
        let table = Arc::new(Table::new(attributes, handlers, modules)?);
        let mut state = self.shared.lock()?;
        let number = state.next_endpoint;
        state.next_endpoint += 1;
        let key = EndpointKey::from_bytes(random()?);
        let opened = state.book.open_endpoint(number, key, &table.attributes.class, names);
        opened.map_err(|cause| Error::Startpoint(cause.to_string()))?;
        state.tables.insert(number, table.clone());
        drop(state);
        Ok(Endpoint { shared: self.shared.clone(), number, table })
    }

    /// Binds a startpoint that came from elsewhere: connects to its owner, unless there is a session with it, and opens
    /// a link.
    ///
    /// # Errors
    /// When its owner is not to be reached within `patience`, is another than the startpoint says, or does not accept
    /// this domain, or when this domain lacks a transform module. That the endpoint refuses the startpoint shows with the
    /// first request.
    pub fn startpoint(&self, capability: &Capability, patience: Duration) -> Result<Startpoint, Error> {
        bind(&self.shared, capability, None, patience)
    }

    /// As [`Domain::startpoint`], over this transport, whatever the rule says. Links to one owner share a session if they
    /// wish for the same.
    ///
    /// # Errors
    /// As there, and when the owner is not to be reached over this transport. If that is lost later, the link goes over
    /// what there is, and back when it can.
    pub fn startpoint_over(
        &self,
        transport: Transport,
        capability: &Capability,
        patience: Duration,
    ) -> Result<Startpoint, Error> {
        bind(&self.shared, capability, Some(transport), patience)
    }

    /// Attaches to a program that runs: asks at an address, `10.0.0.1:4000` or a host's name and a port, for the endpoint
    /// that is published there under a name ([`Endpoint::publish`]), and binds a startpoint to it. Both prove who they are,
    /// and who is there must be who is `expected`.
    ///
    /// # Errors
    /// When nobody answers within `patience`, somebody else is at the address or does not accept this domain, or nothing is
    /// published so that this domain may have.
    pub fn attach(
        &self,
        address: impl ToSocketAddrs + fmt::Debug,
        expected: &Expected,
        name: &str,
        patience: Duration,
    ) -> Result<Startpoint, Error> {
        let deadline = Instant::now() + patience;
        let what =
            format!("{address:?} is no address to attach at; give one as 10.0.0.1:4000, or a host's name and a port");
        let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(Error::system(what))?.collect();
        names::attach(&self.shared, &names::over_tcp(&addresses), expected, name, deadline)
    }

    /// As [`Domain::attach`], to the owner of a key, who waits at a relay, `HOST:PORT` ([`Config::relays`]). The links are
    /// sealed, whatever policies say.
    ///
    /// # Errors
    /// As there.
    pub fn attach_via(&self, relay: &str, owner: KeyHash, name: &str, patience: Duration) -> Result<Startpoint, Error> {
        let deadline = Instant::now() + patience;
        names::attach(&self.shared, &[relay::address(relay, owner)], &Expected::Key(owner), name, deadline)
    }

    /// As [`Domain::attach`], to the program that the site directory has on a host: it says where that listens, and who has
    /// to be there.
    ///
    /// # Errors
    /// As there, and when this domain goes by no site directory, or that has no program there, or its time is over.
    pub fn attach_host(&self, host: &str, name: &str, patience: Duration) -> Result<Startpoint, Error> {
        let deadline = Instant::now() + patience;
        let (addresses, expected) = self.shared.party.site().program(host)?;
        names::attach(&self.shared, &names::over_tcp(&addresses), &expected, name, deadline)
    }

    /// A copy of a startpoint for another domain, and for it alone: stolen bytes of it open nothing. It descends from this
    /// one: what narrows or ends this one narrows or ends the copy.
    ///
    /// # Errors
    /// When the startpoint is bound to another domain than this one, when it is this one's and this domain's key is no
    /// Ed25519 key, which alone vouches for copies, or when it has too many caveats.
    pub fn copy_for(&self, capability: &Capability, holder: KeyHash) -> Result<Capability, Error> {
        copy_for(&self.shared, capability, holder)
    }

    /// What it refused so far, by reason.
    ///
    /// # Errors
    /// Inside a handler that is not threaded.
    pub fn refusals(&self) -> Result<Refusals, Error> {
        let state = self.shared.lock()?;
        let counts = Refusal::ALL.into_iter().map(|reason| (reason, state.book.refused(reason)));
        let startpoints = counts.filter(|(_, count)| *count > 0).collect();
        let (connections, tampered, names) = (state.refused, state.tampered, state.names.refused());
        Ok(Refusals { connections, tampered, names, startpoints })
    }

    /// Follows another policy from now on. Links that are weaker than it allows end, and say why; the others stay as they
    /// are. The domains at the other ends keep theirs.
    ///
    /// # Errors
    /// Inside a handler that is not threaded.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        let mut state = self.shared.lock()?;
        let State { sessions, judge, cache, .. } = &mut *state;
        judge.set(policy);
        for session in sessions.values_mut() {
            let peer = session.peer.clone();
            session.end_links(cache, |class, protection| {
                let verdict = judge.decide(class, &peer);
                (protection > verdict.protection).then(|| judge.refusal(class, &peer, protection, &verdict))
            });
            session.flush();
        }
        self.shared.stirred(&state);
        drop(state);
        self.shared.ring();
        Ok(())
    }

    /// Accepts the owner of one more public key from now on, as [`Trust::pinned`] does from the beginning.
    pub fn pin(&self, key: KeyHash, name: &str, roles: &[&str]) {
        self.shared.party.pin(key, name, roles);
    }

    /// Accepts the owner of a pinned key no longer, and ends the sessions with it. Whether it was pinned.
    ///
    /// # Errors
    /// Inside a handler that is not threaded.
    pub fn unpin(&self, key: &KeyHash) -> Result<bool, Error> {
        let was = self.shared.party.unpin(key);
        let mut state = self.shared.lock()?;
        let State { sessions, cache, .. } = &mut *state;
        for session in sessions.values_mut().filter(|session| session.peer.key == *key && session.over().is_none()) {
            session.close(cache);
            session.part();
        }
        self.shared.stirred(&state);
        drop(state);
        self.shared.ring();
        Ok(was)
    }

    /// Shows this certificate in handshakes from now on: a newer one for the same key. Sessions that there are go on.
    ///
    /// # Errors
    /// When it is for another key, or cannot be used.
    pub fn set_identity(&self, identity: Identity) -> Result<(), Error> {
        self.shared.party.show(identity)
    }

    /// Signs code that others are to run for this domain.
    ///
    /// # Errors
    /// When this domain's key is no Ed25519 key, which alone signs code.
    pub fn sign(&self, staged: &Staged<'_>) -> Result<Voucher, Error> {
        let what = "this domain has no Ed25519 key, and no other signs code";
        self.shared.party.vouch(&staged.message()).ok_or_else(|| Error::Identity(what.into()))
    }

    /// Signs an order that is passed on from one to the next, for all who accept this domain's certificate.
    ///
    /// # Errors
    /// When its key cannot sign.
    pub fn sign_order(&self, order: &[u8]) -> Result<Signed, Error> {
        self.shared.party.sign(&order_message(order))
    }

    /// Who has signed an order, if that is somebody whose certificate is accepted here; nothing is said of his host.
    ///
    /// # Errors
    /// When it is nobody's.
    pub fn signer_of_order(&self, order: &[u8], signed: &Signed) -> Result<Peer, Error> {
        self.shared.party.signer(&order_message(order), signed)
    }

    /// Who has signed a message for a purpose, if that is somebody whose certificate is accepted here; nothing is said of his
    /// host. What is signed is 64 spaces, `Gambeson, PURPOSE`, a zero and the message.
    ///
    /// # Errors
    /// When it is nobody's.
    pub fn signer_of(&self, purpose: &str, message: &[u8], signed: &Signed) -> Result<Peer, Error> {
        let message = [&[0x20; 64], &b"Gambeson, "[..], purpose.as_bytes(), &[0], message].concat();
        self.shared.party.signer(&message, signed)
    }

    /// Does what there is to do: takes what has come, runs handlers, sends what waits. With [`Progress::Manual`] nothing
    /// else does. Waits for it at most so long; whether there was anything.
    ///
    /// # Errors
    /// Inside a handler that is not threaded.
    pub fn progress(&self, wait: Duration) -> Result<bool, Error> {
        self.shared.progress_once(Some(wait))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.shared.is_here() {
            // A forked child has no such thread, and asking after it would be asking after another.
            std::mem::forget(thread);
            return;
        }
        self.shared.groups.close();
        self.shared.tell(State::close);
        self.shared.ring();
        // A handler may be one that the domain's own thread runs, which then does the rest when that is through.
        if in_handler() {
            return;
        }
        match thread {
            Some(thread) => drop(thread.join()),
            None => self.shared.wind_up(),
        }
    }
}

/// Handlers that others can be given startpoints to. It stays as long as its domain, or until it is dropped.
pub struct Endpoint {
    shared: Arc<Shared>,
    number: u64,
    table: Arc<Table>,
}

impl Endpoint {
    /// A startpoint to give away, for whoever holds it, narrowed so.
    ///
    /// # Errors
    /// When a caveat cannot be, or the domain is closed.
    pub fn startpoint(&self, caveats: impl IntoIterator<Item = Caveat>) -> Result<Capability, Error> {
        let addresses = self.shared.addresses.clone();
        let least = self.table.attributes.protection;
        let least = (least != Protection::None).then_some(Caveat::Protection(least));
        let caveats = least.into_iter().chain(caveats);
        let mut state = self.shared.lock()?;
        state.check_open()?;
        let minted = state.book.mint(self.number, random()?, addresses, caveats);
        minted.map_err(|cause| Error::Startpoint(cause.to_string()))
    }

    /// Makes memory that startpoints of this endpoint reach if they have a [`Caveat::Memory`] with a window onto it. It is
    /// the library's as long as the [`Region`] or a clone of it is held.
    #[must_use = "a region that nobody holds is gone"]
    pub fn region(&self, memory: Vec<u8>) -> Region {
        Region::new(&self.table, self.shared.weak().clone(), memory)
    }

    /// Puts this endpoint under a name, for who attaches to this domain ([`Domain::attach`]) and proves to have one of the
    /// roles: `rank` for processes of the job, else those of pinned keys and certificates. Each gets a startpoint narrowed
    /// so, bound to its own key; uses are counted over all of them.
    ///
    /// # Errors
    /// When the name is taken or is none, there are no roles, or a caveat cannot be.
    pub fn publish(&self, name: &str, roles: &[&str], caveats: impl IntoIterator<Item = Caveat>) -> Result<(), Error> {
        names::check(name)?;
        if roles.is_empty() {
            let what = format!("{name:?} would be published for nobody; name a role at least that may have it");
            return Err(Error::Startpoint(what));
        }
        let capability = self.startpoint(caveats)?;
        let mut state = self.shared.lock()?;
        let State { names, book, .. } = &mut *state;
        let published = names.publish(name, &capability, roles);
        if published.is_err() {
            book.revoke(&capability.name());
        }
        published
    }

    /// Takes a name away from this endpoint: all that was attached by it has ended.
    ///
    /// # Errors
    /// When this endpoint is not published so.
    pub fn withdraw(&self, name: &str) -> Result<(), Error> {
        let mut state = self.shared.lock()?;
        let State { names, book, .. } = &mut *state;
        let made = names.withdraw(name, self.number);
        let made = made.ok_or_else(|| Error::Startpoint(format!("this endpoint is not published as {name:?}")))?;
        book.revoke(&made);
        Ok(())
    }

    /// Ends a startpoint of this endpoint and all that descend from it.
    ///
    /// # Errors
    /// When this endpoint did not make it, or the domain is closed.
    pub fn revoke(&self, capability: &Capability) -> Result<(), Error> {
        let mut state = self.shared.lock()?;
        state.check_open()?;
        if state.book.revoke(&capability.name()) {
            return Ok(());
        }
        Err(Error::Startpoint("this endpoint made no such startpoint, or it was revoked before".into()))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let number = self.number;
        self.shared.tell(move |state| {
            state.names.forget(number);
            state.book.close_endpoint(number);
            state.tables.remove(&number);
        });
    }
}

/// Opens a link from a startpoint, over the session with its owner or a new one.
pub(crate) fn bind(
    shared: &Arc<Shared>,
    capability: &Capability,
    wish: Option<Transport>,
    patience: Duration,
) -> Result<Startpoint, Error> {
    let deadline = Instant::now() + patience;
    let owner = KeyHash(*capability.owner());
    let mut state = shared.lock()?;
    state.check_open()?;
    let known = state.session_with(owner, wish);
    drop(state);
    let session = match known {
        Some(session) => session,
        None => shared.connect(&Expected::Key(owner), (capability.addresses(), wish), deadline)?,
    };
    Startpoint::open(shared, session, capability)
}

pub(crate) fn copy_for(shared: &Shared, capability: &Capability, holder: KeyHash) -> Result<Capability, Error> {
    let mut unable = false;
    let copy = capability.copy_for(holder.0, random()?, |copy| {
        let voucher = shared.party.vouch(copy);
        unable = voucher.is_none();
        voucher.unwrap_or(Voucher { key: [0; 32], signature: [0; 64] })
    });
    copy.map_err(|cause| match unable {
        true => Error::Identity("this domain has no Ed25519 key, and no other vouches for copies".into()),
        false => Error::Startpoint(cause.to_string()),
    })
}

/// What is signed of an order has the form of TLS 1.3 (RFC 8446, 4.4.3), so that no signature of a handshake is taken for it.
fn order_message(order: &[u8]) -> Vec<u8> {
    [&[0x20; 64], &b"Gambeson, order of processes\0"[..], order].concat()
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|cause| {
        Error::system("the kernel gives no random numbers")(std::io::Error::other(cause.to_string()))
    })?;
    Ok(bytes)
}
