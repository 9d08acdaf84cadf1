//! Hands out secrets of partitions, and asks others who do.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gambeson_link::{Attributes, Domain, Endpoint, Expected, Handlers, KeyHash, Peer, Protection};

use gambeson_proto::policy::is_partition;

use super::cabinet::{About, Cabinet, Decision};
use super::message::{Fetch, Grant, LENGTH_MAX, decode, encode};
use super::record::Source;
use super::registry::{self, Wanting};
use crate::Error;
use crate::authority::{AUTHORITY, Site};
use crate::services::Place;
use crate::wire;

/// What the endpoint is published as.
const NAME: &str = "partitions";
const FETCH: u32 = 0;
/// Longer than the names of a host are together, in bytes.
const NAMES_MAX: usize = 4096;
/// The role of a partner site's authority's host, by its pinned key; and with a name behind it, which site.
const SITE: &str = "site";
/// That of the host that a partition is from: it may ask for nothing here.
const SOURCE: &str = "partition-source";
/// So long who hands out may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look whether partitions are shared with others now.
const LOOK: Duration = Duration::from_secs(1);

/// Hands out the secrets of a site's partitions as long as it is held: where the site has a key service that does, else the
/// daemon of its authority's host.
pub struct Distribution {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _endpoint: Endpoint,
}

/// Who hands out.
struct Counter {
    domain: Weak<Domain>,
    cabinet: Arc<dyn Cabinet>,
    /// The folder of the site's files, where what is not in the cabinet may be had from the site's key service.
    folder: Option<PathBuf>,
}

impl Distribution {
    /// Begins to. `folder`: of the files of the authority's host, from which hosts that do not know yet that the site has a
    /// key service get what that has. `say` is told what goes wrong that nobody hears else.
    ///
    /// # Errors
    /// When the domain is closed, or no thread can be started.
    pub fn open(
        domain: &Arc<Domain>,
        cabinet: Arc<dyn Cabinet>,
        folder: Option<PathBuf>,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, Error> {
        let unserved = |cause: gambeson_link::Error| Error::Unavailable(cause.to_string());
        let counter = Counter { domain: Arc::downgrade(domain), cabinet: cabinet.clone(), folder };
        let handlers = Handlers::new().threaded(FETCH, move |request| {
            let outcome = counter.answer(&request.peer, &request.payload);
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
                let mark = cabinet.mark();
                let is_new = seen != Some(mark.at);
                if (is_new || !mark.is_settled)
                    && let Some(domain) = domain.upgrade()
                {
                    match registry::partners(&*cabinet) {
                        Ok(partners) => accept(&domain, &mut pinned, partners),
                        Err(cause) if is_new => say(&cause.to_string()),
                        Err(_) => {}
                    }
                    seen = Some(mark.at);
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

impl Counter {
    /// What a host or a partner site gets. Nothing goes out that is not in the log.
    fn answer(&self, peer: &Peer, asked: &[u8]) -> Result<Grant, Error> {
        let Fetch { partition, host } = wire::decode(asked).map_err(Error::Refused)?;
        // What is refused stands in a log: nobody makes that longer than what there is to say.
        let named = host.iter().flatten().map(String::len).sum::<usize>();
        if !is_partition(&partition) || named > NAMES_MAX {
            return Err(Error::Refused("what was asked for is no partition, or for more hosts than one".into()));
        }
        let site = names(peer, SITE).next();
        let own: Vec<_> = names(peer, "dns").collect();
        // The authority certifies hosts under any name: it needs no trust for this that it has not.
        let passes_on = site.is_none() && host.is_some() && peer.roles.iter().any(|role| role == AUTHORITY);
        let hosts = host.clone().unwrap_or_else(|| own.clone());
        let mut about: About = vec![
            ("partition", partition.as_str().into()),
            ("host", hosts.first().map(String::as_str).unwrap_or_default().into()),
            ("site", site.clone().into()),
        ];
        let wanting = match (site, host) {
            (Some(site), Some(hosts)) => Ok(Wanting::Site(site, hosts)),
            (Some(_), None) => Err(Error::Refused("a site asks for one of its hosts, and none was named".into())),
            (None, Some(_)) if !passes_on => Err(Error::Refused("a host asks for itself alone".into())),
            (None, _) => Ok(Wanting::Host(hosts.clone())),
        };
        let decide: Decision = match wanting.and_then(|wanting| Ok((self.beyond(&wanting, &partition)?, wanting))) {
            Ok((None, wanting)) => Box::new(move |shelf| {
                let outcome = registry::grant(shelf, &partition, &wanting);
                about.extend(outcome.iter().map(|grant| ("epoch", grant.epoch.into())));
                (about, outcome)
            }),
            Ok((Some(grant), _)) => {
                about.push(("epoch", grant.epoch.into()));
                Box::new(move |_| (about, Ok(grant)))
            }
            Err(cause) => Box::new(move |_| (about, Err(cause))),
        };
        self.cabinet.give(peer, decide)
    }

    /// What another has to be asked for: the site that a partition is from, or this site's key service.
    fn beyond(&self, wanting: &Wanting, partition: &str) -> Result<Option<Grant>, Error> {
        let Wanting::Host(hosts) = wanting else { return Ok(None) };
        if let Some(folder) = &self.folder
            && !registry::has(&*self.cabinet, partition)?
            && let Some(place) = Site::read(folder)?.key_services()?
        {
            return from_services(&*alive(&self.domain)?, &place, partition, Some(hosts)).map(Some);
        }
        let Some(source) = registry::source(&*self.cabinet, partition)? else { return Ok(None) };
        from_source(&*alive(&self.domain)?, &source, partition, hosts).map(Some)
    }
}

pub(super) fn alive(domain: &Weak<Domain>) -> Result<Arc<Domain>, Error> {
    domain.upgrade().ok_or_else(|| Error::Unavailable("the daemon is ending".into()))
}

/// Asks the site that a partition is from, for a host of this one.
pub(super) fn from_source(domain: &Domain, source: &Source, partition: &str, hosts: &[String]) -> Result<Grant, Error> {
    let fetch = Fetch { partition: partition.to_owned(), host: Some(hosts.to_vec()) };
    let key = KeyHash::parse(&source.key);
    let key =
        key.ok_or_else(|| Error::Refused(format!("the key that {partition} is pinned to is none; follow it again")))?;
    ask(domain, &source.address, &Expected::Key(key), &fetch)
}

/// Asks the key services of this site in turn, of which each knows all: as who this is, or as the authority's host for another.
pub(super) fn from_services(
    domain: &Domain,
    place: &Place,
    partition: &str,
    hosts: Option<&[String]>,
) -> Result<Grant, Error> {
    let fetch = Fetch { partition: partition.to_owned(), host: hosts.map(<[String]>::to_vec) };
    let mut missed = Vec::new();
    for host in place.hosts() {
        match ask(domain, &host.address, &Expected::Role(format!("dns:{}", host.name)), &fetch) {
            Err(Error::Unavailable(why)) => missed.push(why),
            decided => return decided,
        }
    }
    Err(Error::Unavailable(missed.join("; ")))
}

pub(super) fn ask(domain: &Domain, address: &str, expected: &Expected, fetch: &Fetch) -> Result<Grant, Error> {
    use gambeson_link::Error as Link;
    let told = |cause: Link| match cause {
        Link::Lost(_) | Link::TimedOut(_) | Link::System { .. } => {
            Error::Unavailable(format!("{address}, which has partition {}, cannot be asked: {cause}", fetch.partition))
        }
        cause => Error::Refused(format!("{address} gives nothing of a partition: {cause}")),
    };
    let there = domain.attach(address, expected, NAME, PATIENCE).map_err(told)?;
    let answer = there.call(FETCH, &wire::encode(fetch), PATIENCE).map_err(told)?;
    decode(&zeroize::Zeroizing::new(answer))
}
