//! Certificates that browsers take: of a host's page, and of a person's browser.
//!
//! ```text
//!  the administrator: which hosts have pages ──> Pages: a key on P-256 that certifies servers of those names alone
//!                                                  │                    └──> pages.pem: what browsers are given to trust
//!  a host ── its own key's session ──> Authority ──┴──> a page's certificate: the host's names, from the log
//!  a person ── his own key's session ──> Authority ───> a browser's certificate: his roles, from the log, and `browser`
//! ```
//!
//! Browsers know neither Ed25519 keys nor Ed25519 signatures in certificates. So a site whose authority has such a key
//! certifies pages by another one, on P-256. Who makes a browser trust it need not fear for the rest of the web: it
//! certifies servers, and none but of the names that the administrator has said. No link takes what it has certified.
//! A browser's own certificate is the authority's, since a browser asks nobody whether to trust itself.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use gambeson_link::{Domain, Identity, KeyHash};
use gambeson_pkcs11::Uri;
use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::authority_key::{AuthorityKey, p256};
use super::certificate::{Validity, issue_page, pages_certificate, verify_page};
use super::issued::{Entry, Standing};
use super::renewal::{BROWSER, PAGE, ask_for};
use super::{Authority, Certified, FOLDER, Kind, Member, Request, Subject, files, pem};
use crate::Error;

/// What signs certificates of pages.
const KEY: &str = "pages.key";
/// Which hosts have pages.
const SETTINGS: &str = "pages.toml";
/// What browsers trust, beside `authority.pem`.
const CERTIFICATE: &str = "pages.pem";
/// A host's key and certificate for its page.
const PAGE_FILE: &str = "page.pem";

/// Which hosts of a site have pages for browsers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    /// Their names, each host's all.
    pub hosts: Vec<String>,
    /// The file that browsers are given.
    #[serde(skip)]
    pub certificate: PathBuf,
}

impl Authority {
    /// Lets these hosts have pages, beside those that have. Their key is made the first time, in a token if one is named;
    /// the certificate anew each time, with the names of all of them.
    ///
    /// # Errors
    /// When one is no host of the site, or a file cannot be written.
    pub fn allow_pages(&self, hosts: &[String], token: Option<&Uri>) -> Result<Pages, Error> {
        let mut pages = self.pages()?.unwrap_or_default();
        let standings = self.standings()?;
        for host in hosts.iter().map(|host| host.to_ascii_lowercase()) {
            let known = standings.iter().filter(|one| one.subject.is_host() && !one.revoked);
            let known = known.filter(|one| one.subject.is_called(&host)).max_by_key(|one| one.issued);
            let known = known.ok_or_else(|| {
                Error::Senseless(format!("no host is certified as {host:?}; `gambeson site show` lists those that are"))
            })?;
            for name in &known.subject.names {
                if !pages.hosts.contains(name) {
                    pages.hosts.push(name.clone());
                }
            }
        }
        let own = self.folder.join(FOLDER);
        let key = if own.join(KEY).exists() {
            if token.is_some() {
                return Err(Error::Refused(format!(
                    "{} is there already, and what browsers were given is its; leave --pkcs11 out, or remove it and give \
                     browsers the new certificate",
                    own.join(KEY).display()
                )));
            }
            self.pages_key()?
        } else {
            let (key, text) = AuthorityKey::make_for_browsers(token)?;
            files::write(&own.join(KEY), 0o600, text.as_bytes())?;
            key
        };
        let certificate = pages_certificate(&self.settings.name, &key, &pages.hosts)?;
        files::write(&pages.certificate_in(&self.folder), 0o644, pem("CERTIFICATE", &certificate).as_bytes())?;
        let text = toml::to_string(&pages).expect("names are TOML");
        files::write(&own.join(SETTINGS), 0o600, text.as_bytes())?;
        Ok(Pages { certificate: pages.certificate_in(&self.folder), ..pages })
    }

    /// Which hosts have pages; `None`: nobody has said yet.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn pages(&self) -> Result<Option<Pages>, Error> {
        let path = self.folder.join(FOLDER).join(SETTINGS);
        if !path.exists() {
            return Ok(None);
        }
        let pages: Pages = files::read_toml(&path, "run `gambeson site pages HOST` again")?;
        Ok(Some(Pages { certificate: pages.certificate_in(&self.folder), ..pages }))
    }

    fn pages_key(&self) -> Result<AuthorityKey, Error> {
        let path = self.folder.join(FOLDER).join(KEY);
        let text = files::read_secret(&path, "the pages' key", "run `gambeson site pages HOST` again")?;
        AuthorityKey::read(&text, &path)
    }

    /// Certifies a key for the page of the host that has another one: its names are in the log.
    pub(super) fn page(&self, request: &Request, owner: KeyHash) -> Result<Certified, Error> {
        self.same_time(request)?;
        let Standing { subject, .. } = self.standing_of(owner)?;
        let Some(pages) = self.pages()?.filter(|pages| subject.names.iter().all(|name| pages.hosts.contains(name)))
        else {
            return Err(Error::Refused(format!(
                "{0} is to have no page: nobody has said so where the authority is; `gambeson site pages {0}` there does",
                subject.name()
            )));
        };
        if !subject.is_host() {
            return Err(Error::Refused(format!("{} is no host, and has no page", subject.name())));
        }
        let (public, trusted) =
            (request.public_key(), files::read(&pages.certificate, "run `gambeson site pages` again")?);
        let made = issue_page(&self.settings.name, &self.pages_key()?, &public, &subject.names, self.settings.days)?;
        verify_page(&made.der, trusted.as_bytes()).map_err(|cause| {
            Error::Refused(format!(
                "what {KEY} signs is not of {} ({cause}); run `gambeson site pages {}` again, and give browsers what it \
                 makes",
                pages.certificate.display(),
                subject.name()
            ))
        })?;
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.append(&Entry::Page {
            time: now(),
            serial: made.serial,
            key: public.hash().to_string(),
            names: subject.names.clone(),
            until: made.until,
        })?;
        Ok(Certified {
            certificate: pem("CERTIFICATE", &made.der).to_string(),
            authorities: trusted,
            site: self.site.clone(),
            subject: Subject { names: subject.names, roles: Vec::new() },
            until: made.until,
        })
    }

    /// Certifies a key in a browser of the person who has another one: his roles are in the log.
    pub(super) fn browser(&self, request: &Request, owner: KeyHash) -> Result<Certified, Error> {
        self.same_time(request)?;
        let Standing { subject, until, .. } = self.standing_of(owner)?;
        let name = subject.name().to_owned();
        if subject.is_host() || subject.is_browser() {
            return Err(Error::Refused(format!(
                "{name} is {}: a browser's certificate is for a person, who asks with his own identity",
                if subject.is_host() { "a host" } else { "in a browser already" }
            )));
        }
        let public = request.public_key();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.standing(&public.hash().to_string())?.is_some() {
            return Err(Error::Refused("the key was certified before; make another one for the browser".into()));
        }
        // Whoever came by a ticket has the browser's for no longer than that.
        let days = match subject.mechanism() {
            Some(_) => until.saturating_sub(now()) as f64 / 86_400.0,
            None => self.settings.days,
        };
        let mut certified = self.issue(&public, &subject.in_browser(), days, &mut log)?;
        let pages = self.pages()?.map(|pages| files::read(&pages.certificate, "run `gambeson site pages` again"));
        certified.authorities = pages.transpose()?.unwrap_or_default();
        Ok(certified)
    }

    fn standing_of(&self, owner: KeyHash) -> Result<Standing, Error> {
        let standing = self.log.lock().unwrap_or_else(PoisonError::into_inner).standing(&owner.to_string())?;
        let standing =
            standing.ok_or_else(|| Error::Refused(format!("this authority never certified the key {owner}")))?;
        if standing.revoked {
            let name = standing.subject.name();
            return Err(Error::Refused(format!("{name} was revoked; if it is to be back, enroll it again")));
        }
        Ok(standing)
    }
}

impl Pages {
    fn certificate_in(&self, folder: &Path) -> PathBuf {
        folder.join(CERTIFICATE)
    }
}

/// A host's page, as browsers know it.
pub struct Page {
    /// Its key and certificate.
    pub identity: Identity,
    /// When that is valid.
    pub validity: Validity,
}

impl Page {
    /// That of a host, from its folder; a new one, with a new key, if there is none or two thirds of its time are over. It is
    /// asked for over a domain of this process's, or one for this alone. As long as the old one is good, an authority that
    /// does not answer is said to `say`, and no more.
    ///
    /// # Errors
    /// When there is none and none is to be had.
    pub fn of(folder: &Path, domain: Option<&Domain>, say: impl FnOnce(&str)) -> Result<Self, Error> {
        let old = Self::read(folder).ok().filter(|page| now() < page.validity.until);
        let old = match old {
            Some(page) if now() < page.validity.due() => return Ok(page),
            old => old,
        };
        match (Self::ask(folder, domain), old) {
            (Ok(()), _) => Self::read(folder),
            (Err(cause), Some(page)) => {
                let until = date(page.validity.until);
                say(&format!("the page's certificate was not renewed, and is good until {until}: {cause}"));
                Ok(page)
            }
            (Err(cause), None) => Err(cause),
        }
    }

    fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(PAGE_FILE);
        let text = files::read_secret(&path, "the page's key", "it is made anew")?;
        let identity = Identity::from_pem(text.as_bytes(), text.as_bytes());
        let identity = identity.map_err(|cause| Error::Refused(format!("{}: {cause}", path.display())))?;
        let validity = identity.certificates().next().and_then(Validity::of);
        let none = || Error::Refused(format!("{} does not say when it is valid", path.display()));
        Ok(Page { validity: validity.ok_or_else(none)?, identity })
    }

    fn ask(folder: &Path, domain: Option<&Domain>) -> Result<(), Error> {
        let member = Member::read(folder, Kind::Host)?;
        let (key, request) = new_key()?;
        let owner = member.identity.key_hash();
        let certified = ask_for(&member, domain, &request, PAGE, |authority| authority.page(&request, owner))?;
        verify_page(&certificate_of(&certified)?, certified.authorities.as_bytes()).map_err(unused)?;
        let text = together(key, &certified)?;
        // Beside it what its visitors have to trust, for those who are no browser and are set up on this host.
        files::write(&folder.join(CERTIFICATE), 0o644, certified.authorities.as_bytes())?;
        files::write(&folder.join(PAGE_FILE), 0o600, text.as_bytes())
    }
}

/// What a person's browser is given.
pub struct Browser {
    /// A private key and its certificate, in PEM.
    pub identity: Zeroizing<String>,
    /// By what the browser knows the pages of the site, in PEM; empty if there are none yet.
    pub pages: String,
    /// Whom it is for.
    pub subject: Subject,
    /// Until when, in seconds since 1970.
    pub until: u64,
}

/// A key and a certificate for a browser of the person who is a member here.
///
/// # Errors
/// When the authority cannot be asked, or says no.
pub fn browser(member: &Member) -> Result<Browser, Error> {
    let (key, request) = new_key()?;
    let owner = member.identity.key_hash();
    let certified = ask_for(member, None, &request, BROWSER, |authority| authority.browser(&request, owner))?;
    member.accepts(&certificate_of(&certified)?).map_err(unused)?;
    let identity = together(key, &certified)?;
    Ok(Browser { identity, pages: certified.authorities, subject: certified.subject, until: certified.until })
}

fn unused(why: String) -> Error {
    Error::Refused(format!("what the authority answers is not used: {why}"))
}

fn certificate_of(certified: &Certified) -> Result<CertificateDer<'static>, Error> {
    let certificate = CertificateDer::from_pem_slice(certified.certificate.as_bytes());
    certificate.map_err(|_| unused("it holds no certificate".into()))
}

/// A key with its certificate, which is for no other.
fn together(key: Zeroizing<String>, certified: &Certified) -> Result<Zeroizing<String>, Error> {
    let mut text = Zeroizing::new(String::with_capacity(key.len() + certified.certificate.len()));
    text.push_str(&key);
    text.push_str(&certified.certificate);
    let identity = Identity::from_pem(text.as_bytes(), text.as_bytes())?;
    match KeyHash::of_public_key(&identity.public_key()?) == identity.key_hash() {
        true => Ok(text),
        false => Err(unused("its certificate is for another key".into())),
    }
}

/// A new key on P-256 in PEM, and what asks for a certificate for it.
fn new_key() -> Result<(Zeroizing<String>, Request), Error> {
    let key = p256()?;
    let unmade = |cause: rcgen::Error| Error::Unavailable(format!("no key can be made: {cause}"));
    let pair = KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(&key[..]), &PKCS_ECDSA_P256_SHA256);
    let pair = pair.map_err(unmade)?;
    let own = CertificateParams::new(Vec::new()).and_then(|params| params.self_signed(&pair)).map_err(unmade)?;
    let text = pem("PRIVATE KEY", &key);
    let request = Request::new(&Identity::from_pem(pem("CERTIFICATE", own.der()).as_bytes(), text.as_bytes())?)?;
    Ok((text, request))
}
