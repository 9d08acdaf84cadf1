//! Who starts processes that talk to him and to each other: `start_process` (secure-nexus paper, section 5).
//!
//! ```text
//!  creator ── order, with the security context ──> daemon ── keeper ── descriptor ──> process: init_process
//!     ^ <──────────────────── READY: its startpoint ───────────────────────────────────── │
//!     └────────── links under the job's secret ─────────── siblings ──────────────────────┘
//! ```
//! Both ends of the way to the daemon always prove who they are: what the paper's `authenticate_flag` could leave out is not
//! to be had. The processes trust their creator and each other because all have the secret of one job.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gambeson_link::{Attributes, Capability, Caveat, Config, Domain, Endpoint, Handlers, Policy, Protection, Request};
use gambeson_proto::credential::{Credential, Tuning};
use gambeson_proto::secret::Secret32;
use gambeson_site::job;
use zeroize::Zeroizing;

use crate::authority::Site;
use crate::child::Child;
use crate::context::{Context, facing};
use crate::error::Error;
use crate::processes::{Board, Output, Processes};
use crate::requester::Requester;
use crate::wire::{self, CLASS, Host, Order, Process, Program, Secret};

/// Handler: a process is ready. Its order's name, its number and its startpoint.
pub(crate) const READY: u32 = 0;

/// A program that starts processes. When it is dropped, so is its domain; its processes end with their [`Processes`].
pub struct Creator {
    requester: Arc<Requester>,
    credential: Zeroizing<Vec<u8>>,
    ready: Endpoint,
    boards: Arc<Boards>,
    domain: Arc<Domain>,
}

/// Processes that are wanted: the arguments of the paper's `start_process`.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Where; as often as there are to be processes there.
    pub hosts: Vec<Host>,
    /// What each of them is to be: directory, executable, argv, environment and streams.
    pub program: Program,
    /// The account to use there; the creator's own if this is empty.
    pub account: String,
    /// What each of them finds as [`Child::context`].
    pub context: Secret,
    /// A startpoint to an endpoint of the creator's domain, for the initial link of each of them.
    pub creator: Option<Capability>,
}

impl Creator {
    /// As who this is, whose identity is in this folder. Under `gambeson run` the processes belong to its job, otherwise to
    /// a new one. The domain that they connect to listens at these addresses; without any, at the one of this host that
    /// the site's authority is reached from.
    ///
    /// # Errors
    /// When there is no identity, or an address cannot be listened on.
    pub fn open(folder: &Path, listen: &[SocketAddr]) -> Result<Self, Error> {
        let (credential, mut config) = if job::directory().is_some() {
            let found = job::find("this program").map_err(Error::Refused)?;
            (found.credential.encode(), Config::from_job()?)
        } else {
            let credential = draw()?;
            (credential.encode(), Config::of_job(credential)?)
        };
        config.listen = listen.to_vec();
        if listen.is_empty() {
            let own = facing([Site::read(folder)?.authority]);
            let unknown =
                || "where processes can reach this program is not known; say at which address it is to listen";
            config.listen = vec![SocketAddr::new(own.ok_or_else(|| Error::Senseless(unknown().into()))?, 0)];
        }
        Self::new(folder, credential, Arc::new(Domain::open(config)?))
    }

    /// A process that has a creator itself: what it starts belongs to the same job, and connects to its domain.
    ///
    /// # Errors
    /// When there is no identity in the folder.
    pub fn of_child(folder: &Path, child: &Child) -> Result<Self, Error> {
        Self::new(folder, Zeroizing::new(child.credential().to_vec()), child.domain().clone())
    }

    fn new(folder: &Path, credential: Zeroizing<Vec<u8>>, domain: Arc<Domain>) -> Result<Self, Error> {
        let requester = Arc::new(Requester::new(folder)?);
        let boards = Arc::new(Boards::default());
        let theirs = boards.clone();
        let handlers = Handlers::new().threaded(READY, move |request| match theirs.enter(&request) {
            Ok(()) => request.answer(&[]),
            Err(why) => request.refuse(&why),
        });
        let attributes = Attributes::default().class(CLASS).protection(Protection::Privacy);
        let ready = domain.endpoint(attributes, handlers)?;
        Ok(Creator { requester, credential, ready, boards, domain })
    }

    /// The domain that the processes connect to.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Has processes started, all at once, and does not wait for that: split-phase. What they write goes to `output`, on a
    /// thread of its own; their daemons wait while it does not come back.
    ///
    /// # Errors
    /// When nothing is wanted, or the system gives no randomness. What happens at a host shows with its processes.
    pub fn start_process(&self, wanted: Wanted, output: impl Output) -> Result<Processes, Error> {
        let mut id = [0; 16];
        random(&mut id)?;
        let Wanted { hosts: places, program, account, context, creator } = wanted;
        if places.is_empty() || program.arguments.is_empty() {
            return Err(Error::Senseless("no host or no command is given for the processes".into()));
        }
        let creator = creator.map(|creator| creator.encode());
        let context = Context {
            order: id,
            credential: Secret::from(self.credential.as_slice()),
            ready: Secret::from(self.ready.startpoint([Caveat::methods([READY])])?.encode().as_slice()),
            creator: Secret::from(creator.as_ref().map_or(&[][..], |creator| creator.as_slice())),
            own: context,
        };
        let mut hosts: Vec<Host> = Vec::new();
        let mut processes = Vec::with_capacity(places.len());
        for place in &places {
            let known = hosts.iter().position(|host| host == place);
            let host = known.unwrap_or_else(|| {
                hosts.push(place.clone());
                hosts.len() - 1
            });
            processes.push(Process { host: host as u32, program: 0, environment: Vec::new() });
        }
        let context = Secret::from(wire::encode(&context));
        let order = Order { id, until: 0, account, hosts, programs: vec![program], processes, context };
        let board = Arc::new(Board::new(places.into_iter().map(|place| place.name)));
        self.boards.add(id, &board);
        Processes::new(self.requester.begin(order)?, board, output)
    }
}

/// The orders whose processes may say that they are ready.
#[derive(Default)]
struct Boards(Mutex<HashMap<[u8; 16], Weak<Board>>>);

impl Boards {
    fn add(&self, id: [u8; 16], board: &Arc<Board>) {
        let mut boards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        boards.retain(|_, board| board.strong_count() > 0);
        boards.insert(id, Arc::downgrade(board));
    }

    /// A process is ready.
    fn enter(&self, request: &Request) -> Result<(), String> {
        let (order, number, startpoint): ([u8; 16], u32, &[u8]) = wire::decode(&request.payload)?;
        let startpoint = Capability::decode(startpoint).map_err(|cause| cause.to_string())?;
        if *startpoint.owner() != request.peer.key.0 {
            return Err("a process hands its creator a startpoint to an endpoint of its own domain alone".into());
        }
        let board = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&order).and_then(Weak::upgrade);
        board.ok_or("nobody waits for this process any more")?.ready(number, startpoint)
    }
}

/// The credential of a new job.
fn draw() -> Result<Credential, Error> {
    let mut job_id = [0; 16];
    random(&mut job_id)?;
    let mut drawn = Ok(());
    let job_secret = Secret32::filled(|secret| drawn = random(secret));
    drawn?;
    Ok(Credential { job_id, job_secret, policy: Policy::default(), partitions: Vec::new(), tuning: Tuning::default() })
}

fn random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|cause| Error::Unavailable(format!("the kernel gives no random numbers ({cause})")))
}
