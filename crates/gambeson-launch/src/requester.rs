//! Who wants processes: connects to their hosts' daemons, and hears what becomes of them (secure-nexus paper, section 5).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use gambeson_link::{Config, Domain};
use gambeson_site::directory::now;

use crate::authority::{Kind, Member, hosts, renew};
pub use crate::branches::Controls;
use crate::branches::{self, Passed, WIDTH, pass_on};
use crate::error::Error;
use crate::identities::own;
use crate::wire::{self, Event, Health, Host, KILL, LIST, Order, Running, STATUS, Secret, Streams};

/// A domain from which somebody asks his site's services, with the identity in a folder. A certificate whose time is nearly
/// over is renewed in passing; who has none gets one, if his site takes what he has anyway ([`crate::identities`]).
///
/// # Errors
/// When there is no identity, or it has expired.
pub fn domain(folder: &Path) -> Result<Arc<Domain>, Error> {
    let refused = |cause: gambeson_link::Error| Error::Refused(cause.to_string());
    let member = own(folder, |what| eprintln!("gambeson: {what}"))?;
    // As long as it is valid, that its authority cannot be asked stops nobody.
    let renewed = renew(&member, false);
    if member.validity.until < now() {
        renewed?;
    }
    let member = Member::read(folder, Kind::User)?;
    let mut config = Config::new(member.again()?, member.trust()?);
    config.shm = false;
    (config.patience, config.silence) = (PATIENCE, SILENCE);
    Ok(Arc::new(Domain::open(config).map_err(refused)?))
}

/// A place from which processes are ordered.
pub struct Requester {
    domain: Arc<Domain>,
    folder: PathBuf,
}

impl Requester {
    /// As who this is, at hosts of his site. A certificate whose time is nearly over is renewed in passing; who has none
    /// gets one, if his site takes what he has anyway ([`crate::identities`]).
    ///
    /// # Errors
    /// When there is no identity, or it has expired.
    pub fn new(folder: &Path) -> Result<Self, Error> {
        Ok(Requester { domain: domain(folder)?, folder: folder.to_owned() })
    }

    /// Has the processes of an order started, all at once, and does not wait for that (the split-phase `start_process`).
    /// A host that cannot be reached, or refuses, shows as the failure of its processes. Where nothing is to be written to
    /// any process, and there are many hosts, their daemons pass the order on.
    ///
    /// # Errors
    /// When this identity's key signs nothing.
    pub fn begin(&self, mut order: Order) -> Result<Ordered, Error> {
        order.until = now() + TIME_TO_BEGIN;
        let hosts: BTreeSet<u32> = order.processes.iter().map(|process| process.host).collect();
        let hosts: Vec<u32> = hosts.into_iter().collect();
        let bytes = Secret::from(wire::encode(&order));
        let is_silent = order.programs.iter().all(|program| program.streams == Streams::Output);
        let signed = (is_silent && hosts.len() > WIDTH).then(|| self.domain.sign_order(bytes.as_bytes())).transpose();
        let signature = signed.map_err(|cause| Error::Refused(cause.to_string()))?.map(Into::into);
        let left = order.processes.len();
        let (say, events) = channel();
        let controls = Controls::default();
        let passed = Arc::new(Passed { order, bytes, signature });
        // Who asks no more hears no more.
        pass_on(&self.domain, &passed, &hosts, &controls, move |number, event| drop(say.send((number, event))));
        Ok(Ordered { events, controls, left })
    }

    /// Which orders run on a host, of those that this identity may end.
    ///
    /// # Errors
    /// When its daemon cannot be reached, or refuses.
    pub fn list(&self, host: &Host) -> Result<Vec<Running>, Error> {
        let answer = self.ask(host, LIST, &[])?;
        wire::decode(&answer).map_err(Error::Unavailable)
    }

    /// How the daemon of a host is.
    ///
    /// # Errors
    /// As [`Requester::list`].
    pub fn status(&self, host: &Host) -> Result<Health, Error> {
        let answer = self.ask(host, STATUS, &[])?;
        wire::decode(&answer).map_err(Error::Unavailable)
    }

    /// The hosts that the site's authority knows.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn hosts(&self) -> Result<Vec<String>, Error> {
        hosts(&self.domain, &self.folder)
    }

    /// Ends an order on a host, and where that has passed it on to.
    ///
    /// # Errors
    /// As [`Requester::list`], and when no such order runs there.
    pub fn kill(&self, host: &Host, id: [u8; 16]) -> Result<(), Error> {
        self.ask(host, KILL, &id).map(drop)
    }

    fn ask(&self, host: &Host, handler: u32, payload: &[u8]) -> Result<Vec<u8>, Error> {
        let told = |cause: gambeson_link::Error| match cause {
            gambeson_link::Error::Refused(_) | gambeson_link::Error::Handler(_) => {
                Error::Refused(format!("{}: {cause}", host.name))
            }
            cause => Error::Unavailable(format!("{}: {cause}", host.name)),
        };
        let there = branches::attach(&self.domain, host).map_err(told)?;
        there.call(handler, payload, PATIENCE).map_err(told)
    }
}

/// Processes that were ordered. Dropping it ends them.
pub struct Ordered {
    events: Receiver<(u32, Event)>,
    controls: Controls,
    /// How many have not ended.
    left: usize,
}

/// What there is to hear.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// This of that process.
    Event(u32, Event),
    /// Nothing yet.
    Nothing,
    /// All processes have ended, and what they left behind.
    End,
}

impl Ordered {
    /// What is said next of any of them, waited for at most so long. The last word of each process is how it ended.
    pub fn next(&mut self, patience: Duration) -> Heard {
        match self.events.recv_timeout(patience) {
            Ok((number, event)) => {
                self.left -= usize::from(matches!(event, Event::Ended(_) | Event::Failed(_)));
                Heard::Event(number, event)
            }
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }

    /// How many of them have not ended.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// What else can be done with them, from any thread.
    #[must_use]
    pub fn controls(&self) -> Controls {
        self.controls.clone()
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        self.controls.leave();
    }
}

/// So long a lost connection may take to come back.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long a daemon may say nothing, which looks after its links whatever else it does.
const SILENCE: Duration = Duration::from_secs(10);
/// So long an order may be on its way, with clocks that differ: after that nobody begins it.
const TIME_TO_BEGIN: u64 = 120;
