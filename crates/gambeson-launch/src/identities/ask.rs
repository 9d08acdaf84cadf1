//! The side of whoever asks: has a key, shows what he has anyway, and gets a certificate for some hours.

use std::path::Path;
use std::time::Duration;

use data_encoding::BASE64;
use gambeson_link::{Config, Domain, Expected, Identity};
use gambeson_proto::directory::date;
use gambeson_site::directory::FOLDER;
use zeroize::Zeroizing;

use super::kerberos::Initiator;
use super::{IDENTIFY, Identification, Identified, Mechanism, NAME, munge, payload};
use crate::Error;
use crate::authority::{AUTHORITY, Certified, Kind, Member, Newcomer, Request, Site, accepted_in};

const PATIENCE: Duration = Duration::from_secs(20);

/// Has a newcomer certified by what he has anyway. The authority is that of the site in his folder, or of this host's.
///
/// # Errors
/// When this host is of no site, there is no credential, or the authority refuses.
pub fn ask(newcomer: &Newcomer, mechanism: Mechanism) -> Result<Certified, Error> {
    identify(site_of(newcomer.folder()), newcomer.identity()?, &newcomer.request()?, mechanism)
}

/// The same once more for who came so before: the key stays.
///
/// # Errors
/// As [`ask`].
pub fn ask_again(member: &Member, mechanism: Mechanism) -> Result<Certified, Error> {
    identify(&member.folder, member.bare()?, &Request::new(&member.identity)?, mechanism)
}

/// The identity of whoever runs this. If he has none, and this host's site takes what he has anyway, he gets one now, and
/// `say` hears of it.
///
/// # Errors
/// When there is none to be had.
pub fn own(folder: &Path, say: impl Fn(&str)) -> Result<Member, Error> {
    let missing = match Member::read(folder, Kind::User) {
        Ok(member) => return Ok(member),
        Err(cause) if folder.join(Kind::User.file()).exists() => return Err(cause),
        Err(cause) => cause,
    };
    let Ok(site) = Site::read(site_of(folder)) else { return Err(missing) };
    let mut reasons = Vec::new();
    for mechanism in site.identities {
        let newcomer = Newcomer::new(folder, Kind::User, false, None)?;
        match ask(&newcomer, mechanism).and_then(|certified| newcomer.install(&certified).map(|_| certified)) {
            Ok(certified) => {
                let (name, until) = (certified.subject.name(), date(certified.until));
                say(&format!("{} knows you as {name} by {mechanism}, until {until}", site.name));
                return Member::read(folder, Kind::User);
            }
            Err(cause) => reasons.push(format!("by {mechanism}: {cause}")),
        }
    }
    if reasons.is_empty() { Err(missing) } else { Err(Error::Refused(format!("{missing}; {}", reasons.join("; ")))) }
}

/// Where the site is said: beside the identity, or else in the host's own folder.
fn site_of(folder: &Path) -> &Path {
    if Site::is_in(folder) { folder } else { Path::new(FOLDER) }
}

fn identify(site: &Path, identity: Identity, request: &Request, mechanism: Mechanism) -> Result<Certified, Error> {
    use gambeson_link::Error as Link;
    let place = Site::read(site)?;
    let told = |cause: Link| match cause {
        Link::Lost(_) | Link::TimedOut(_) | Link::System { .. } => {
            Error::Unavailable(format!("the authority of {} cannot be asked: {cause}", place.name))
        }
        Link::Handler(why) => Error::Refused(format!("the authority of {} says no: {why}", place.name)),
        cause => Error::Refused(format!(
            "the authority of {} hears no guests ({cause}); its administrator can name mechanisms in authority.toml",
            place.name
        )),
    };
    let mut config = Config::new(identity, accepted_in(site)?);
    config.shm = false;
    let domain = Domain::open(config).map_err(told)?;
    let there = domain.attach(&*place.authority, &Expected::Role(AUTHORITY.into()), NAME, PATIENCE).map_err(told)?;
    let host = there.peer().map_err(told)?.name.clone();
    let payload = payload(&there.binding().map_err(told)?, &host, request);
    let (credential, initiator) = match mechanism {
        Mechanism::Munge => (munge::encode(&payload).map_err(Error::Unavailable)?, None),
        Mechanism::Kerberos => {
            let (initiator, token) = Initiator::begin(&host, payload).map_err(Error::Unavailable)?;
            (BASE64.encode(&token), Some(initiator))
        }
    };
    let said = Zeroizing::new(Identification { mechanism, credential, request: request.clone() }.encode());
    let answer = there.call(IDENTIFY, said.as_bytes(), PATIENCE).map_err(told)?;
    let none = || Error::Refused(format!("what the authority of {} answers is no certificate", place.name));
    let Identified { certified, reply } = serde_json::from_slice(&answer).map_err(|_| none())?;
    if let Some(initiator) = initiator {
        let reply = BASE64.decode(reply.as_bytes()).map_err(|_| none())?;
        initiator.finish(&reply).map_err(Error::Refused)?;
    }
    Ok(certified)
}
