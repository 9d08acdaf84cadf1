//! Certificates that renew themselves: the same key, names and roles, and more time.
//!
//! Whoever has a certificate that is still valid asks, over a link that it proves itself in with; what it says comes
//! from the authority's log. The key stays, since sessions, startpoints and pins go by it; a new key is what enrolment
//! gives.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gambeson_link::{Attributes, Config, Domain, Endpoint, Expected, Handlers, KeyHash, Protection};
use gambeson_proto::directory::date;
use gambeson_site::directory::now;

use super::certificate::AUTHORITY;
use super::request::LENGTH_MAX;
use super::{Authority, Certified, Kind, Member, Request, Site, host_folder};
use crate::Error;
use crate::identities::ask_again;

const RENEW: u32 = 0;
const HOSTS: u32 = 1;
pub(super) const PAGE: u32 = 2;
pub(super) const BROWSER: u32 = 3;
const ROLES: [&str; 2] = ["host", "user"];
const PATIENCE: Duration = Duration::from_secs(20);
/// Between attempts, in seconds: twice as long every time, but no longer than a tenth of what is left, or an hour.
const RETRY_MAX: u64 = 3_600;

/// Renews the certificates of whoever asks for it at a domain, and says which hosts there are, as long as the endpoint is held.
///
/// # Errors
/// When the domain publishes an authority already, or is closed.
pub fn serve(domain: &Domain, authority: Arc<Authority>) -> Result<Endpoint, Error> {
    let known = authority.clone();
    let handlers = Handlers::new().threaded(HOSTS, move |asked| match known.hosts() {
        Ok(names) => asked.answer(names.join("\n").as_bytes()),
        Err(cause) => asked.refuse(&cause.to_string()),
    });
    type Certify = fn(&Authority, &Request, KeyHash) -> Result<Certified, Error>;
    let asked_for: [(u32, Certify); 3] =
        [(RENEW, Authority::renew), (PAGE, Authority::page), (BROWSER, Authority::browser)];
    let handlers = asked_for.into_iter().fold(handlers, |handlers, (number, certify)| {
        let authority = authority.clone();
        handlers.threaded(number, move |asked| {
            let certified =
                Request::decode(&asked.payload).and_then(|request| certify(&authority, &request, asked.peer.key));
            match certified {
                Ok(certified) => asked.answer(certified.encode().as_bytes()),
                Err(cause) => asked.refuse(&cause.to_string()),
            }
        })
    });
    let attributes = Attributes::default().protection(Protection::Privacy).message_max(LENGTH_MAX);
    let unserved = |cause: gambeson_link::Error| Error::Unavailable(cause.to_string());
    let endpoint = domain.endpoint(attributes, handlers).map_err(unserved)?;
    endpoint.publish(AUTHORITY, &ROLES, []).map_err(unserved)?;
    Ok(endpoint)
}

/// Whom a renewal is asked of.
enum Source<'s> {
    /// The authority of this very host.
    Here(&'s Authority),
    /// The site's, over a domain that is there, or one for this alone.
    There(Option<&'s Domain>),
}

/// Renews an identity if two thirds of its time are over, or in any case if `force` says so. Whether it was.
///
/// # Errors
/// When it has expired, nobody renews it, or the file cannot be written; the old one is whole then.
pub fn renew(member: &Member, force: bool) -> Result<bool, Error> {
    if !force && now() < member.validity.due() {
        return Ok(false);
    }
    let here = authority_here(member).transpose()?;
    renew_from(member, here.as_ref().map_or(Source::There(None), Source::Here)).map(|()| true)
}

/// The authority of an identity, if it is on this host, and for whoever runs this to use.
fn authority_here(member: &Member) -> Option<Result<Authority, Error>> {
    let folders = [member.folder.clone(), host_folder()];
    let own = folders.iter().find(|folder| Authority::is_in(folder) && member.is_of_site_in(folder))?;
    Some(Authority::open(own))
}

fn renew_from(member: &Member, source: Source<'_>) -> Result<(), Error> {
    if let Some(mechanism) = member.mechanism() {
        return member.renewed(&ask_again(member, mechanism)?);
    }
    let request = Request::new(&member.identity)?;
    let certified = match source {
        Source::Here(authority) => authority.renew(&request, member.identity.key_hash())?,
        Source::There(domain) => {
            still_valid(member)?;
            match domain {
                Some(domain) => ask(domain, member, &request)?,
                None => ask(&own_domain(member)?, member, &request)?,
            }
        }
    };
    member.renewed(&certified)
}

/// Has the member's authority certify another key than his own, by what its log says of his own: over a domain of this
/// process's, or one for this alone; on its own host without one.
pub(super) fn ask_for(
    member: &Member,
    domain: Option<&Domain>,
    request: &Request,
    handler: u32,
    here: impl FnOnce(&Authority) -> Result<Certified, Error>,
) -> Result<Certified, Error> {
    if let Some(authority) = authority_here(member).transpose()? {
        return here(&authority);
    }
    still_valid(member)?;
    let own = domain.is_none().then(|| own_domain(member)).transpose()?;
    let domain = domain.or(own.as_ref()).expect("one of them is there");
    Certified::decode(&call(domain, &member.folder, handler, request.encode().as_bytes())?)
}

fn own_domain(member: &Member) -> Result<Domain, Error> {
    let mut config = Config::new(member.again()?, member.trust()?);
    config.shm = false;
    Domain::open(config).map_err(|cause| Error::Unavailable(cause.to_string()))
}

/// Nobody talks to whoever shows an expired certificate, so it is said here what to do.
fn still_valid(member: &Member) -> Result<(), Error> {
    let (here, path) = (now(), member.path.display());
    if here > member.validity.until {
        return Err(Error::Refused(format!(
            "the certificate in {path} expired {} s ago by this host's clock, which shows {}, and is not renewed any more; \
             enroll again, with --replace, or set the clock",
            here - member.validity.until,
            date(here)
        )));
    }
    if here < member.validity.from {
        return Err(Error::Refused(format!(
            "the certificate in {path} is not valid yet: it will be in {} s by this host's clock, which shows {} and must be \
             behind the authority's; set it",
            member.validity.from - here,
            date(here)
        )));
    }
    Ok(())
}

fn ask(domain: &Domain, member: &Member, request: &Request) -> Result<Certified, Error> {
    Certified::decode(&call(domain, &member.folder, RENEW, request.encode().as_bytes())?)
}

/// The hosts that the site has, as its authority says: certified, and not revoked.
///
/// # Errors
/// When the authority cannot be asked.
pub fn hosts(domain: &Domain, folder: &Path) -> Result<Vec<String>, Error> {
    let names = call(domain, folder, HOSTS, &[])?;
    let names = String::from_utf8(names).map_err(|_| Error::Unavailable("the authority answers no names".into()))?;
    Ok(names.lines().map(str::to_owned).collect())
}

fn call(domain: &Domain, folder: &Path, handler: u32, payload: &[u8]) -> Result<Vec<u8>, Error> {
    use gambeson_link::Error as Link;
    let site = Site::read(folder)?;
    let told = |cause: Link| match cause {
        Link::Lost(_) | Link::TimedOut(_) | Link::System { .. } => {
            Error::Unavailable(format!("the authority of {} cannot be asked: {cause}", site.name))
        }
        cause => Error::Refused(format!("the authority of {} says no: {cause}", site.name)),
    };
    let expected = Expected::Role(AUTHORITY.into());
    let startpoint = domain.attach(&*site.authority, &expected, AUTHORITY, PATIENCE).map_err(told)?;
    startpoint.call(handler, payload, PATIENCE).map_err(told)
}

/// Renews the identity of a domain for as long as that is open and this is held.
pub struct Renewer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewer {
    /// For a domain that has the identity of a folder. `authority` is this process's own, if it has one; `say` hears a
    /// sentence when a renewal fails, which is tried again.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        domain: &Arc<Domain>,
        folder: PathBuf,
        kind: Kind,
        authority: Option<Arc<Authority>>,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, Error> {
        let (stop, stopped) = channel::<()>();
        let domain = Arc::downgrade(domain);
        let thread = thread::Builder::new().name("gambeson-renewal".into()).spawn(move || {
            let mut failures = 0;
            loop {
                let wait = match step(&domain, &folder, kind, authority.as_deref()) {
                    Ok(Some(due)) => {
                        failures = 0;
                        due.saturating_sub(now()).max(1)
                    }
                    Ok(None) => return,
                    Err((cause, left)) => {
                        say(&cause.to_string());
                        failures += 1;
                        (1_u64 << failures.min(12)).min((left / 10).clamp(1, RETRY_MAX))
                    }
                };
                // A clock that was set shows within a day.
                match stopped.recv_timeout(Duration::from_secs(wait.min(86_400))) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        });
        let thread = thread.map_err(|cause| Error::Unavailable(format!("no thread can be started ({cause})")))?;
        Ok(Renewer { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Renews if it is time, and has the domain show what is in the file, whoever wrote it. When it is time again; nothing:
/// the domain is gone. With a failure, for how long the certificate is valid yet.
fn step(
    domain: &Weak<Domain>,
    folder: &Path,
    kind: Kind,
    authority: Option<&Authority>,
) -> Result<Option<u64>, (Error, u64)> {
    let Some(domain) = domain.upgrade() else { return Ok(None) };
    let read = || Member::read(folder, kind).map_err(|cause| (cause, 0));
    let mut member = read()?;
    if now() >= member.validity.due() {
        let source = authority.map_or(Source::There(Some(&domain)), Source::Here);
        let left = member.validity.until.saturating_sub(now());
        renew_from(&member, source).map_err(|cause| (cause, left))?;
        member = read()?;
    }
    let due = member.validity.due();
    let shown = domain.set_identity(member.identity);
    shown.map_err(|cause| {
        let what = format!("{} has a new key ({cause}); start this program again", member.path.display());
        (Error::Refused(what), RETRY_MAX * 10)
    })?;
    Ok(Some(due))
}
