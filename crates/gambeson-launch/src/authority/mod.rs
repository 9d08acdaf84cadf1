//! A site's authority: it certifies hosts and people for a few days at a time.
//!
//! ```text
//!  a host or a person                          the authority's host
//!    a key, which never leaves
//!    Request: its public half, signed ──────────> who it is, an administrator says (first time)
//!        over ssh, or links by a token            or the log of what was issued (renewals)
//!    files: host.pem or identity.pem, <────────── Certified: a certificate, the authorities, where to renew
//!           authority.pem, site.toml
//! ```
//!
//! What a certificate says is never taken from the request. Whoever has a key says so by a signature under the request;
//! over links the session's key has to be the same.
//!
//! | module | what it is |
//! |---|---|
//! | `authority_key`, `public_key` | what an authority signs with, and the keys that it certifies |
//! | `certificate` | certificates as X.509 has them, and what can be told from one |
//! | `request` | what asks for a certificate, and what answers |
//! | `issued` | the log of what was issued and revoked |
//! | `files` | where a host and a person have their site's files, and how they are written |
//! | `token` | enrolment of a host by a token that is good once |
//! | `renewal` | certificates that renew themselves |
//! | `pages` | certificates that browsers take: of a host's page, and of a person's browser |

mod authority_key;
mod certificate;
pub(crate) mod files;
mod issued;
mod pages;
mod public_key;
mod renewal;
mod request;
mod token;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gambeson_link::KeyHash;
use gambeson_pkcs11::Uri;
use gambeson_site::directory::now;
use nix::unistd::User;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::identities::Mechanism;
use authority_key::AuthorityKey;
pub(crate) use certificate::AUTHORITY;
pub use certificate::{Subject, Validity, check_name};
use certificate::{authority_certificate, issue};
pub(crate) use files::accepted_in;
pub use files::{Kind, Member, Newcomer, Site, host_folder, key_place, pem, user_folder};
pub use issued::Standing;
use issued::{Entry, Log, Record};
pub use pages::{Browser, Page, Pages, browser};
pub use public_key::PublicKey;
pub use renewal::{Renewer, hosts, renew, serve};
pub(crate) use request::LENGTH_MAX;
pub use request::{Certified, Request};
pub use token::{Offer, Token, join};

/// Where the daemon of an authority's host listens, if nobody says otherwise.
pub const PORT: u16 = 7200;
/// The folder of an authority, in that of its host.
const FOLDER: &str = "authority";
/// What signs.
const KEY: &str = "authority.key";
/// What it is called, and how long it certifies for.
const SETTINGS: &str = "authority.toml";
/// Hosts whose clock is further away are not certified: one of both would find the certificate not valid.
const SKEW_MAX: u64 = certificate::SKEW;

/// What an administrator decides about an authority.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The site's name, which stands in every certificate.
    pub name: String,
    /// For how many days hosts and people are certified.
    pub days: f64,
    /// Who is certified without an administrator.
    #[serde(default)]
    pub identities: Identities,
}

/// Who is certified by what he has anyway ([`crate::identities`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Identities {
    /// By what. Nothing, unless an administrator says so.
    pub mechanisms: Vec<Mechanism>,
    /// For how many hours; 12 at most, and no longer than a ticket is good.
    pub hours: f64,
    /// System accounts that may come so, too: root, nobody, and those with a uid below 1000.
    pub system_accounts: Vec<String>,
}

impl Default for Identities {
    fn default() -> Self {
        Identities { mechanisms: Vec::new(), hours: HOURS_MAX, system_accounts: Vec::new() }
    }
}

impl Identities {
    fn check(&self) -> Result<(), Error> {
        if self.hours > 0.0 && self.hours <= HOURS_MAX {
            return Ok(());
        }
        Err(Error::Senseless(format!(
            "{SETTINGS}: identities for {} hours: give a number above 0, and {HOURS_MAX} at most",
            self.hours
        )))
    }

    /// Whether the owner of an account may have himself certified.
    pub(crate) fn admit(&self, account: &User) -> Result<(), Error> {
        let (name, uid) = (&account.name, account.uid.as_raw());
        let no = |why: &str| Err(Error::Refused(format!("the account {name} (uid {uid}) is not certified so: {why}")));
        if (uid < FIRST_UID || uid == NOBODY) && !self.system_accounts.contains(name) {
            return no("it is the system's; an administrator can name it under system_accounts in authority.toml");
        }
        // Names of the site are in small letters, and accounts can be meant by their numbers.
        if name.bytes().any(|byte| byte.is_ascii_uppercase())
            || name.parse::<u32>().is_ok()
            || check_name(name).is_err()
        {
            return no("its name could be taken for another one's; an administrator can enroll it under another name");
        }
        Ok(())
    }
}

const HOURS_MAX: f64 = 12.0;
const FIRST_UID: u32 = 1000;
/// Who is nobody on this host, or somebody whom a container does not show.
const NOBODY: u32 = 65534;

/// What a site certifies its hosts and people with.
pub struct Authority {
    settings: Settings,
    site: Site,
    folder: PathBuf,
    key: AuthorityKey,
    authorities: String,
    log: Mutex<Log>,
}

impl Authority {
    /// Makes one in the folder of its host, with a key of its own, in a token if one is named, and the files by which hosts
    /// know it.
    ///
    /// # Errors
    /// When there is a site in the folder, a name cannot be, or a file not be written.
    pub fn create(folder: &Path, settings: &Settings, site: &Site, token: Option<&Uri>) -> Result<Self, Error> {
        check_name(&settings.name)?;
        if !(settings.days > 0.0 && settings.days <= 365.0) {
            return Err(Error::Senseless(format!(
                "certificates for {} days: give a number above 0, and 365 at most; short ones are renewed by themselves",
                settings.days
            )));
        }
        settings.identities.check()?;
        Self::none_in(folder)?;
        Self::make(folder, settings, site, token).inspect_err(|_| Self::remove(folder))?;
        Self::open(folder)
    }

    fn make(folder: &Path, settings: &Settings, site: &Site, token: Option<&Uri>) -> Result<(), Error> {
        let own = folder.join(FOLDER);
        let (key, text_of_key) = AuthorityKey::make(token)?;
        let certificate = authority_certificate(&settings.name, &key)?;
        files::make_folder(folder, 0o755)?;
        files::make_folder(&own, 0o700)?;
        let text = toml::to_string(settings).expect("a name and a number are TOML");
        files::write(&own.join(SETTINGS), 0o600, text.as_bytes())?;
        files::write(&own.join(KEY), 0o600, text_of_key.as_bytes())?;
        files::write(&folder.join(files::AUTHORITIES), 0o644, pem("CERTIFICATE", &certificate).as_bytes())?;
        Site { identities: settings.identities.mechanisms.clone(), ..site.clone() }.write(folder)
    }

    /// Makes sure that the folder of a host has no site's files.
    ///
    /// # Errors
    /// When it has.
    pub fn none_in(folder: &Path) -> Result<(), Error> {
        for taken in [folder.join(FOLDER), folder.join(files::AUTHORITIES), folder.join(files::SITE)] {
            if taken.exists() {
                return Err(Error::Refused(format!(
                    "{} is there: this is a host of a site already, and a second authority would lock out what the first \
                     certified; add hosts with `gambeson enroll`, or name another --folder",
                    taken.display()
                )));
            }
        }
        Ok(())
    }

    /// Takes away what was made of an authority that could not be made whole.
    pub fn remove(folder: &Path) {
        let _ = fs::remove_dir_all(folder.join(FOLDER));
        let _ = fs::remove_file(folder.join(files::AUTHORITIES));
        let _ = fs::remove_file(folder.join(files::SITE));
    }

    /// Whether the folder of a host has one that this process can use.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        folder.join(FOLDER).join(KEY).exists()
    }

    /// The authority in the folder of its host.
    ///
    /// # Errors
    /// When there is none, or others could get at its key.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let own = folder.join(FOLDER);
        let remedy =
            "run this on the host where `gambeson init` was run, as the same user; --folder names another place";
        let key = files::read_secret(&own.join(KEY), "the authority's key", remedy)?;
        let key = AuthorityKey::read(&key, &own.join(KEY))?;
        let settings: Settings = files::read_toml(&own.join(SETTINGS), remedy)?;
        settings.identities.check()?;
        let authorities = files::read(&folder.join(files::AUTHORITIES), remedy)?;
        let site = Site { identities: settings.identities.mechanisms.clone(), ..Site::read(folder)? };
        let log = Mutex::new(Log::open(&own)?);
        Ok(Authority { settings, site, folder: folder.to_owned(), key, authorities, log })
    }

    /// The site's name, and for how long it certifies.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where its key is, for people: a token, or a file.
    #[must_use]
    pub fn key_place(&self) -> String {
        self.key
            .token()
            .map_or_else(|| self.folder.join(FOLDER).join(KEY).display().to_string(), |uri| uri.name().into())
    }

    /// The certificates that hosts accept, in PEM.
    #[must_use]
    pub fn authorities(&self) -> &str {
        &self.authorities
    }

    /// Certifies whoever asks as somebody: the caller has made sure of it.
    ///
    /// # Errors
    /// When the request is none, comes from a host of another name, or the clocks differ; when the certificate could
    /// not be written down.
    pub fn certify(&self, request: &Request, subject: &Subject) -> Result<Certified, Error> {
        let host = request.host.to_ascii_lowercase();
        if subject.is_host() && !subject.names.contains(&host) {
            return Err(Error::Refused(format!(
                "the host calls itself {host:?}, and is to be certified as {}; if it is the right one, say --alias {host}",
                subject.names.join(", ")
            )));
        }
        self.same_time(request)?;
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        self.issue(&request.public_key(), subject, self.settings.days, &mut log)
    }

    /// Certifies whoever owns an account, as a mechanism has shown, for some hours, and for no longer than `left`.
    ///
    /// # Errors
    /// When the name or the key was revoked, or the clocks differ; when the certificate could not be written down.
    pub(crate) fn identify(
        &self,
        request: &Request,
        account: &str,
        mechanism: Mechanism,
        left: Duration,
    ) -> Result<Certified, Error> {
        self.same_time(request)?;
        let subject = Subject::user(account)?.by(mechanism);
        let public = request.public_key();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let key = log.standing(&public.hash().to_string())?;
        if key.is_some_and(|standing| standing.revoked || standing.subject != subject)
            || log.is_revoked(subject.name())?
        {
            let name = subject.name();
            return Err(Error::Refused(format!(
                "{name} was revoked, or the key was somebody else's; an administrator can enroll {name} again, who \
                 then says --replace"
            )));
        }
        let hours = self.settings.identities.hours / 24.0;
        self.issue(&public, &subject, hours.min(left.as_secs_f64() / 86_400.0), &mut log)
    }

    /// Whether the clock of the host that a request comes from is that of this one, more or less.
    fn same_time(&self, request: &Request) -> Result<(), Error> {
        let (here, there, host) = (now(), request.time, &request.host);
        if here.abs_diff(there) > SKEW_MAX {
            let relation = if there < here { "behind" } else { "ahead of" };
            return Err(Error::Refused(format!(
                "the clock of {host} is {} s {relation} the authority's, so that a certificate would be valid for one of \
                 them alone; set the clocks, then enroll again",
                here.abs_diff(there)
            )));
        }
        Ok(())
    }

    /// Certifies whoever owns a key as what it is certified as, once more.
    ///
    /// # Errors
    /// When this authority never certified the key, or it was revoked.
    pub fn renew(&self, request: &Request, owner: KeyHash) -> Result<Certified, Error> {
        let public = request.public_key();
        if public.hash() != owner {
            return Err(Error::Refused("the request is for another key than the session's; ask with your own".into()));
        }
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = log.standing(&owner.to_string())?.ok_or_else(|| {
            Error::Refused(format!("this authority never certified the key {owner}; who did can renew its certificate"))
        })?;
        if standing.revoked {
            let name = standing.subject.name();
            return Err(Error::Refused(format!("{name} was revoked; if it is to be back, enroll it again")));
        }
        if standing.subject.is_browser() {
            return Err(Error::Refused(format!(
                "a browser's certificate is not renewed; {} makes the next one by `gambeson enroll --browser`",
                standing.subject.name()
            )));
        }
        if let Some(mechanism) = standing.subject.mechanism() {
            return Err(Error::Refused(format!(
                "{} was certified by {mechanism}, and is again by that alone: `gambeson enroll --{}`",
                standing.subject.name(),
                mechanism.name()
            )));
        }
        self.issue(&public, &standing.subject, self.settings.days, &mut log)
    }

    fn issue(&self, public: &PublicKey, subject: &Subject, days: f64, log: &mut Log) -> Result<Certified, Error> {
        subject.check()?;
        let made = issue(&self.settings.name, &self.key, public, subject, days)?;
        // An edited name or a key of another authority shows here and not on a host that it locks out.
        certificate::verify(&made.der, self.authorities.as_bytes()).map_err(|cause| {
            Error::Refused(format!(
                "what this authority signs is not of {} ({cause}); bring {KEY}, {SETTINGS} and that file back as \
                 `gambeson init` made them",
                files::AUTHORITIES
            ))
        })?;
        log.append(&Entry::Issued(Record {
            time: now(),
            serial: made.serial,
            key: public.hash().to_string(),
            subject: subject.clone(),
            until: made.until,
        }))?;
        Ok(Certified {
            certificate: pem("CERTIFICATE", &made.der).to_string(),
            authorities: self.authorities.clone(),
            site: self.site.clone(),
            subject: subject.clone(),
            until: made.until,
        })
    }

    /// Renews nothing any more for whoever is certified under a name, a host's or `user:NAME`. How many keys that were,
    /// and until when the last of their certificates is valid.
    ///
    /// # Errors
    /// When nobody is.
    pub fn revoke(&self, name: &str) -> Result<(usize, u64), Error> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name.to_ascii_lowercase();
        let found: Vec<_> = log.all()?.filter(|one| one.subject.is_called(&name) && !one.revoked).collect();
        // Who has not come yet may be told no before he does.
        let may_come = !self.settings.identities.mechanisms.is_empty() && name.starts_with("user:");
        let until = found.iter().map(|one| one.until).max().or_else(|| may_come.then(now));
        let Some(until) = until else {
            return Err(Error::Senseless(format!(
                "nobody is certified as {name:?}, or all such were revoked; `gambeson site show` lists them"
            )));
        };
        log.append(&Entry::Revoked { time: now(), name })?;
        Ok((found.len(), until))
    }

    /// Whom it certified, by key.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn standings(&self) -> Result<Vec<Standing>, Error> {
        Ok(self.log.lock().unwrap_or_else(PoisonError::into_inner).all()?.collect())
    }

    /// The names of the site's hosts whose certificates are valid and will be renewed: of each the one that it calls itself.
    fn hosts(&self) -> Result<Vec<String>, Error> {
        let now = now();
        let valid = self.standings()?.into_iter().filter(|one| !one.revoked && one.until >= now);
        let mut names: Vec<_> = valid.filter_map(|one| one.subject.names.into_iter().next()).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

#[cfg(test)]
mod tests;
