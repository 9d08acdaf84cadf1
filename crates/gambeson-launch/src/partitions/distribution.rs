//! Daemons hand out secrets of partitions, and ask each other for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gambeson_link::{Attributes, Domain, Endpoint, Expected, Handlers, KeyHash, Peer, Protection};
use serde_json::Value;

use super::message::{Fetch, Grant, LENGTH_MAX, decode, encode};
use super::record::Source;
use super::registry::{Registry, Wanting};
use crate::Error;
use crate::audit_log::AuditLog;
use crate::authority::{Authority, Site};
use crate::wire;

/// What the endpoint is published as.
const NAME: &str = "partitions";
const FETCH: u32 = 0;
/// The role of a partner site's authority's host, by its pinned key; and with a name behind it, which site.
const SITE: &str = "site";
/// That of the host that a partition is from: it may ask for nothing here.
const SOURCE: &str = "partition-source";
/// So long an authority's host may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long a member goes on with what it knows while its authority's host does not answer.
const LEASE: Duration = Duration::from_secs(24 * 3600);
/// How often to look whether partitions are shared with others now.
const LOOK: Duration = Duration::from_secs(1);

/// Hands out the secrets of a site's partitions, on its authority's host, as long as it is held.
pub(crate) struct Distribution {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _endpoint: Endpoint,
}

impl Distribution {
    /// Begins to. `folder` is that of the host's files.
    ///
    /// # Errors
    /// When the domain is closed, or no thread can be started.
    pub(crate) fn open(domain: &Arc<Domain>, folder: &Path, log: Arc<Mutex<AuditLog>>) -> Result<Self, Error> {
        let unserved = |cause: gambeson_link::Error| Error::Unavailable(cause.to_string());
        let registry = Registry::of(folder);
        let (asked, partitions) = (Arc::downgrade(domain), registry.clone());
        let handlers = Handlers::new().threaded(FETCH, move |request| {
            let outcome = answer(&asked, &partitions, &request.peer, &request.payload, &log);
            request.answer(&encode(&outcome));
        });
        let attributes = Attributes::default().protection(Protection::Privacy).message_max(LENGTH_MAX);
        let endpoint = domain.endpoint(attributes, handlers).map_err(unserved)?;
        endpoint.publish(NAME, &["host", SITE], []).map_err(unserved)?;
        let (stop, stopped) = channel::<()>();
        let domain = Arc::downgrade(domain);
        let thread = thread::Builder::new().name("gambeson-partners".into()).spawn(move || {
            let mut pinned = BTreeMap::new();
            let mut seen = None;
            loop {
                let changed = registry.changed();
                // Two changes may have one time, as the file system's clock has it; so what is new is read again.
                let is_new = changed != seen || changed.is_some_and(|at| at.elapsed().is_ok_and(|age| age < 3 * LOOK));
                if is_new && let Some(domain) = domain.upgrade() {
                    match registry.partners() {
                        Ok(partners) => accept(&domain, &mut pinned, partners),
                        Err(cause) if changed != seen => eprintln!("gambesond: {cause}"),
                        Err(_) => {}
                    }
                    seen = changed;
                }
                if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        let thread = thread.map_err(|cause| Error::Unavailable(format!("no thread can be started ({cause})")))?;
        Ok(Distribution { stop: Some(stop), thread: Some(thread), _endpoint: endpoint })
    }
}

impl Drop for Distribution {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts the keys of partner sites, and of no others than these any more.
fn accept(
    domain: &Domain,
    pinned: &mut BTreeMap<KeyHash, Option<String>>,
    partners: BTreeMap<KeyHash, Option<String>>,
) {
    for (key, _) in pinned.iter().filter(|(key, site)| partners.get(key) != Some(site)) {
        let _ = domain.unpin(key);
    }
    for (key, site) in partners.iter().filter(|(key, site)| pinned.get(key) != Some(site)) {
        match site {
            Some(site) => domain.pin(*key, &format!("site {site}"), &[SITE, &format!("{SITE}:{site}")]),
            None => domain.pin(*key, SOURCE, &[SOURCE]),
        }
    }
    *pinned = partners;
}

fn names<'p>(peer: &'p Peer, kind: &'p str) -> impl Iterator<Item = String> + 'p {
    peer.roles.iter().filter_map(move |role| role.strip_prefix(kind)?.strip_prefix(':')).map(str::to_owned)
}

/// What a host or a partner site gets. Nothing goes out that is not in the log.
fn answer(
    domain: &Weak<Domain>,
    registry: &Registry,
    peer: &Peer,
    asked: &[u8],
    log: &Mutex<AuditLog>,
) -> Result<Grant, Error> {
    let fetch: Fetch = wire::decode(asked).map_err(Error::Refused)?;
    let Fetch { partition, host } = &fetch;
    let site = names(peer, SITE).next();
    let own: Vec<_> = names(peer, "dns").collect();
    let outcome = match (&site, host) {
        (Some(site), Some(hosts)) => registry.grant(partition, &Wanting::Site(site, hosts)),
        (Some(_), None) => Err(Error::Refused("a site asks for one of its hosts, and none was named".into())),
        (None, None) => registry.source(partition).and_then(|source| match source {
            None => registry.grant(partition, &Wanting::Host(&own)),
            Some(source) => from_source(&*alive(domain)?, &source, partition, &own),
        }),
        (None, Some(_)) => Err(Error::Refused("a host asks for itself alone".into())),
    };
    let hosts = host.as_ref().unwrap_or(&own);
    let mut about: Vec<(&str, Value)> = vec![
        ("partition", partition.as_str().into()),
        ("host", hosts.first().map(String::as_str).unwrap_or_default().into()),
        ("site", site.into()),
    ];
    let event = match &outcome {
        Ok(grant) => {
            about.push(("epoch", grant.epoch.into()));
            "partition"
        }
        Err(cause) => {
            about.push(("why", cause.to_string().into()));
            "refuse"
        }
    };
    let logged = log.lock().unwrap_or_else(PoisonError::into_inner).add(event, &about);
    let grant = outcome?;
    logged.map_err(Error::Unavailable)?;
    Ok(grant)
}

fn alive(domain: &Weak<Domain>) -> Result<Arc<Domain>, Error> {
    domain.upgrade().ok_or_else(|| Error::Unavailable("the daemon is ending".into()))
}

/// Asks the site that a partition is from, for a host of this one.
fn from_source(domain: &Domain, source: &Source, partition: &str, hosts: &[String]) -> Result<Grant, Error> {
    let fetch = Fetch { partition: partition.to_owned(), host: Some(hosts.to_vec()) };
    let key = KeyHash::parse(&source.key);
    let key =
        key.ok_or_else(|| Error::Refused(format!("the key that {partition} is pinned to is none; follow it again")))?;
    ask(domain, &source.address, &Expected::Key(key), &fetch)
}

fn ask(domain: &Domain, address: &str, expected: &Expected, fetch: &Fetch) -> Result<Grant, Error> {
    use gambeson_link::Error as Link;
    let told = |cause: Link| match cause {
        Link::Lost(_) | Link::TimedOut(_) | Link::System { .. } => Error::Unavailable(format!(
            "the daemon at {address}, which has partition {}, cannot be asked: {cause}",
            fetch.partition
        )),
        cause => Error::Refused(format!("the daemon at {address} gives nothing of a partition: {cause}")),
    };
    let there = domain.attach(address, expected, NAME, PATIENCE).map_err(told)?;
    let answer = there.call(FETCH, &wire::encode(fetch), PATIENCE).map_err(told)?;
    decode(&zeroize::Zeroizing::new(answer))
}

/// What a host's daemon has of partitions: the secrets of those that it is a member of, in memory alone.
pub(crate) struct Holder {
    domain: Weak<Domain>,
    folder: PathBuf,
    host: String,
    registry: Option<Registry>,
    held: Mutex<BTreeMap<String, Held>>,
}

/// What is known of one partition.
struct Held {
    grant: Grant,
    /// When the authority's host last said so.
    confirmed: Instant,
}

impl Holder {
    pub(crate) fn new(domain: &Arc<Domain>, folder: PathBuf, host: &str) -> Self {
        let registry = Authority::is_in(&folder).then(|| Registry::of(&folder));
        let host = host.to_ascii_lowercase();
        Holder { domain: Arc::downgrade(domain), folder, host, registry, held: Mutex::default() }
    }

    /// The secret for a job that began in some epoch, or begins now (0). The authority's host is asked each time, so
    /// that who was removed is refused at once; while it does not answer, what it said within [`LEASE`] holds.
    pub(super) fn secret(&self, partition: &str, epoch: u32) -> Result<Grant, Error> {
        let outcome = self.fetch(partition);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let grant = match outcome {
            Ok(grant) => {
                held.insert(partition.to_owned(), Held { grant: grant.clone(), confirmed: Instant::now() });
                grant
            }
            Err(cause @ Error::Unavailable(_)) => {
                held.retain(|_, known| known.confirmed.elapsed() < LEASE);
                held.get(partition).map(|known| known.grant.clone()).ok_or(cause)?
            }
            Err(cause) => {
                // It is a member no longer.
                held.remove(partition);
                return Err(cause);
            }
        };
        if epoch != 0 && epoch != grant.epoch {
            return Err(Error::Refused(format!(
                "the job began in epoch {epoch}, and the partition is in epoch {} here; start the job again",
                grant.epoch
            )));
        }
        Ok(grant)
    }

    fn fetch(&self, partition: &str) -> Result<Grant, Error> {
        let own = std::slice::from_ref(&self.host);
        if let Some(registry) = &self.registry {
            return match registry.source(partition)? {
                None => registry.grant(partition, &Wanting::Host(own)),
                Some(source) => from_source(&*alive(&self.domain)?, &source, partition, own),
            };
        }
        let site = Site::read(&self.folder)?;
        let fetch = Fetch { partition: partition.to_owned(), host: None };
        ask(&*alive(&self.domain)?, &site.authority, &Expected::Role("authority".into()), &fetch)
    }
}
