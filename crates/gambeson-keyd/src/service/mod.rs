//! The key service: an endpoint of links, at which people, hosts and jobs ask for keys under their certificates.
//!
//! ```text
//!  question ── desk ── uses, changes: decided and logged in the database's own thread ── commit ──┐
//!               │                                                                                 │
//!               └── looks: on threads of their own             answer, once it is on the disk <───┘
//!                                                              of a standby in step, too, if it is a change
//!  hosts' daemons ── partitions' distribution: an endpoint of its own ── the same transactions
//! ```
//! What uses keys is decided in the same transaction that its row of the log is written in: nothing goes out that is not in
//! the log, and in the order of the log nobody has a key that was taken from him before.

mod bounds;
mod changes;
mod desk;
mod looks;
mod partitions;
mod uses;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gambeson_launch::authority::{Kind, Member, Renewer, renew};
use gambeson_launch::partitions::Distribution;
use gambeson_link::{Attributes, Config, Domain, Endpoint, Handlers, Protection};
use gambeson_site::directory::now;

use crate::page::{Following, Live, Standby};
use crate::partitions::Vault;
use crate::rules::Rules;
use crate::standby::{Doing, Duty, FollowerState, Standing};
use crate::wire::{ASK, ENDPOINT, LENGTH_MAX, LOOK};
use crate::{Database, Error};
pub(crate) use changes::{administer, effect_of, number_of};
use desk::Desk;
pub(crate) use desk::who;

/// What a service is opened with.
pub struct Setup {
    /// Where its host's identity is, and the authorities that it accepts.
    pub folder: PathBuf,
    /// The name of its host, which its certificate is for.
    pub host: String,
    /// What its administrator decides.
    pub rules: Rules,
    /// Labels, keys and the log.
    pub database: Database,
}

/// A service that answers until it is dropped.
pub struct Service {
    _renewer: Renewer,
    _endpoints: [Endpoint; 2],
    _partitions: Distribution,
    domain: Arc<Domain>,
    desk: Arc<Desk>,
}

impl Service {
    /// Begins to answer.
    ///
    /// # Errors
    /// When the host's identity cannot be used, or an address not be listened on.
    pub fn open(setup: Setup) -> Result<Self, Error> {
        let Setup { folder, host, rules, database } = setup;
        let say = |why: &str| eprintln!("gambeson keyd: {why}");
        let member = Member::read(&folder, Kind::Host)?;
        // On the authority's own host that works even when it has expired; others are told what to do then.
        if member.validity.until < now() {
            renew(&member, false)?;
        }
        let member = Member::read(&folder, Kind::Host)?;
        let mut config = Config::new(member.again()?, member.trust()?);
        config.listen.clone_from(&rules.listen);
        (config.host, config.shm) = (host.clone(), false);
        (config.patience, config.silence, config.watch) = (PATIENCE, SILENCE, true);
        let domain = Arc::new(Domain::open(config).map_err(unopened)?);
        // Before the first question: another may have been promoted while this one was down.
        let duty = Duty::open(database.clone(), &host, &domain, &rules.standbys)?;
        let called = (host, member.identity.key_hash().to_string());
        let desk = Arc::new(Desk::open(database.clone(), rules, duty.clone(), called, &domain)?);
        let (asked, looked) = (desk.clone(), desk.clone());
        let handlers = Handlers::new()
            .queued(ASK, move |request| asked.ask(request))
            .threaded(LOOK, move |request| looked.look(request));
        let attributes = Attributes::default().protection(Protection::Privacy).message_max(LENGTH_MAX);
        let endpoint = domain.endpoint(attributes, handlers)?;
        endpoint.publish(ENDPOINT, &["user", "host"], [])?;
        let for_others = duty.serve(&domain)?;
        let partitions = Distribution::open(&domain, Arc::new(Vault::new(database, move || duty.gives())), None, say)?;
        let renewer = Renewer::start(&domain, folder, Kind::Host, None, say)?;
        Ok(Service { _renewer: renewer, _endpoints: [endpoint, for_others], _partitions: partitions, domain, desk })
    }

    /// Where it listens.
    #[must_use]
    pub fn listening(&self) -> &[SocketAddr] {
        self.domain.listening()
    }

    /// What the officers' page is to be told of it.
    #[must_use]
    pub fn live(&self) -> Arc<dyn Live> {
        Arc::new(Connected { domain: Arc::downgrade(&self.domain), duty: self.duty() })
    }

    /// What it does among those with the same labels.
    #[must_use]
    pub fn duty(&self) -> Arc<Duty> {
        self.desk.duty.clone()
    }

    /// Since when, in seconds since 1970.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.desk.since()
    }
}

/// An address is what the administrator chooses.
fn unopened(cause: gambeson_link::Error) -> Error {
    let why = cause.to_string();
    match cause {
        gambeson_link::Error::System { .. } if why.contains("cannot listen") => {
            Error::Site { why: format!("{why}; name another address: `listen` in keyd.toml, or --listen") }
        }
        _ => Error::Site { why },
    }
}

/// What the officers' page is told of a service.
struct Connected {
    domain: Weak<Domain>,
    duty: Arc<Duty>,
}

impl Live for Connected {
    fn clients(&self) -> Option<u64> {
        let domain = self.domain.upgrade()?;
        domain.sessions().ok().map(|sessions| sessions as u64)
    }

    fn standbys(&self) -> Vec<Standby> {
        let Ok(Standing { doing: Doing::Primary { standbys, .. }, .. }) = self.duty.standing() else {
            return Vec::new();
        };
        let seen =
            |one: FollowerState| Standby { name: one.name, has: one.heard.and(Some(one.has)), heard: ago(one.heard) };
        standbys.into_iter().map(seen).collect()
    }

    fn following(&self) -> Option<Following> {
        let Ok(Standing { doing: Doing::Standby { primary, heard, behind, .. }, .. }) = self.duty.standing() else {
            return None;
        };
        let has = heard.map(|_| self.duty.tail().number + behind);
        Some(Following { primary, has, heard: ago(heard) })
    }
}

/// When that was, in seconds since 1970.
fn ago(seconds: Option<u64>) -> Option<u64> {
    seconds.map(|seconds| now().saturating_sub(seconds))
}

/// So long a session whose connection is lost may take to come back.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long a peer may owe an answer to the connection.
const SILENCE: Duration = Duration::from_secs(10);
