//! Certificates as RFC 5280 has them: an authority's, those of hosts and people, and what can be told from one.

use std::time::Duration;

use gambeson_site::directory::now;
use pki_types::{CertificateDer, UnixTime, pem::PemObject};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyUsagePurpose, NameConstraints, SanType, SerialNumber,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::{AuthorityKey, PublicKey};
use crate::Error;
use crate::identities::Mechanism;

/// Certificates begin so many seconds before they are issued, as clocks differ.
pub(super) const SKEW: u64 = 300;
const AUTHORITY_DAYS: f64 = 3652.5;
const ROLE: &str = "gambeson:role:";
/// The role of the host whose daemon renews certificates.
pub(crate) const AUTHORITY: &str = "authority";
const HOST: &str = "host";
const USER: &str = "user";
/// The role of people's certificates in browsers, beside their own.
const BROWSER: &str = "browser";
const NAME_MAX: usize = 200;

/// Whom a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// A host's names, as it calls itself and as others do; a person has none.
    pub names: Vec<String>,
    /// What it may be asked to be.
    pub roles: Vec<String>,
}

impl Subject {
    /// A host under its names.
    ///
    /// # Errors
    /// When one cannot be a name, or there is none.
    pub fn host<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, Error> {
        let mut known: Vec<String> = Vec::new();
        for name in names.into_iter().map(str::to_ascii_lowercase) {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        let subject = Subject { names: known, roles: vec![HOST.into()] };
        subject.check().map(|()| subject)
    }

    /// A person.
    ///
    /// # Errors
    /// When that cannot be a name.
    pub fn user(name: &str) -> Result<Self, Error> {
        let name = name.to_ascii_lowercase();
        let subject = Subject { names: Vec::new(), roles: vec![USER.into(), format!("{USER}:{name}")] };
        check_name(&name).map(|()| subject)
    }

    /// The same, certified by what a person had anyway. His name stays the last of his roles.
    #[must_use]
    pub(super) fn by(mut self, mechanism: Mechanism) -> Self {
        self.roles.insert(1, mechanism.role().into());
        self
    }

    /// By what it was certified, if no administrator did.
    #[must_use]
    pub fn mechanism(&self) -> Option<Mechanism> {
        Mechanism::of(self.roles.iter().map(String::as_str))
    }

    /// The same in a browser: the certificate that it has there is not renewed.
    #[must_use]
    pub(super) fn in_browser(mut self) -> Self {
        self.roles.insert(1, BROWSER.into());
        self
    }

    /// Whether it is the certificate of a browser.
    #[must_use]
    pub fn is_browser(&self) -> bool {
        self.roles.iter().any(|role| role == BROWSER)
    }

    /// The same with the role of the site's authority.
    #[must_use]
    pub fn authority(mut self) -> Self {
        self.roles.push(AUTHORITY.into());
        self
    }

    /// Whether it is a host.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.roles.iter().any(|role| role == HOST)
    }

    /// What people call it: a host's first name, or `user:NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.first().or(self.roles.last()).map_or("nobody", String::as_str)
    }

    /// Whether this is one of its names.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name) || (!self.is_host() && self.name() == name)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_host() && self.names.is_empty() {
            return Err(Error::Senseless("a host needs a name, as it calls itself; --alias gives one".into()));
        }
        self.names.iter().try_for_each(|name| check_name(name))
    }
}

/// Whether that can be the name of a host, a person or a site.
///
/// # Errors
/// When it cannot.
pub fn check_name(name: &str) -> Result<(), Error> {
    let legal = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let part = |part: &str| !part.is_empty() && part.len() <= 63 && !part.starts_with('-') && !part.ends_with('-');
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    if !is_address && name.len() <= NAME_MAX && name.chars().all(legal) && name.split('.').all(part) {
        return Ok(());
    }
    Err(Error::Senseless(format!("{name:?} is no name: letters, digits and - _ . make one, such as h1.cluster or ada")))
}

/// What a certificate claims: the first DNS name, and the roles.
pub(super) fn claims(der: &[u8]) -> Option<(Option<String>, Vec<String>)> {
    let der = CertificateDer::from(der);
    let certificate = webpki::EndEntityCert::try_from(&der).ok()?;
    let roles = certificate.valid_uri_names().filter_map(|uri| uri.strip_prefix(ROLE)).map(str::to_owned);
    let host = certificate.valid_dns_names().next().map(str::to_owned);
    Some((host, roles.collect()))
}

/// All DNS names of a certificate.
pub(super) fn names(der: &[u8]) -> Vec<String> {
    let der = CertificateDer::from(der);
    let certificate = webpki::EndEntityCert::try_from(&der);
    certificate.map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default()
}

fn unmade(cause: &rcgen::Error) -> Error {
    Error::Unavailable(format!("no certificate can be made: {cause}"))
}

fn moment(seconds: u64) -> Result<OffsetDateTime, Error> {
    let clock = |_| Error::Unavailable("this host's clock shows no year of this age; set it".into());
    OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap_or(i64::MAX)).map_err(clock)
}

/// How the authority of a site is called in certificates.
fn authority_params(site: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{site} authority"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn valid_for(params: &mut CertificateParams, days: f64) -> Result<u64, Error> {
    let until = now() + (days * 86_400.0) as u64;
    (params.not_before, params.not_after) = (moment(now() - SKEW)?, moment(until)?);
    Ok(until)
}

fn serial() -> Result<[u8; 16], Error> {
    let mut serial = [0; 16];
    getrandom::fill(&mut serial)
        .map_err(|cause| Error::Unavailable(format!("the kernel gives no random numbers: {cause}")))?;
    // Positive, and of full length.
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

/// The certificate of a site's authority, which it signs itself.
pub(super) fn authority_certificate(site: &str, key: &AuthorityKey) -> Result<CertificateDer<'static>, Error> {
    let mut params = authority_params(site);
    valid_for(&mut params, AUTHORITY_DAYS)?;
    params.serial_number = Some(SerialNumber::from_slice(&serial()?));
    let made = params.self_signed(key).map_err(|cause| key.unsigned(&cause))?;
    Ok(made.der().clone())
}

/// How what certifies a site's pages for browsers is called: for servers alone, and for none but these hosts.
fn pages_params(site: &str, hosts: &[String]) -> CertificateParams {
    let mut params = authority_params(site);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{site} pages"));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: hosts.iter().cloned().map(GeneralSubtree::DnsName).collect(),
        // What is permitted of names says nothing of addresses.
        excluded_subtrees: vec![
            GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])),
            GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])),
        ],
    });
    params
}

/// The certificate by which browsers know the pages of these hosts.
pub(super) fn pages_certificate(
    site: &str,
    key: &AuthorityKey,
    hosts: &[String],
) -> Result<CertificateDer<'static>, Error> {
    let mut params = pages_params(site, hosts);
    valid_for(&mut params, AUTHORITY_DAYS)?;
    params.serial_number = Some(SerialNumber::from_slice(&serial()?));
    let made = params.self_signed(key).map_err(|cause| key.unsigned(&cause))?;
    Ok(made.der().clone())
}

/// A certificate for a page of a host of these names. It claims no role and is no client's: no link takes it.
pub(super) fn issue_page(
    site: &str,
    pages: &AuthorityKey,
    public: &PublicKey,
    names: &[String],
    days: f64,
) -> Result<Made, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, site);
    for name in names {
        params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(&**name).map_err(|cause| unmade(&cause))?));
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    sign(params, &Issuer::from_params(&pages_params(site, &[]), pages), pages, public, days)
}

/// A certificate as it was made.
pub(super) struct Made {
    pub(super) der: CertificateDer<'static>,
    pub(super) serial: String,
    pub(super) until: u64,
}

/// A certificate for a public key, signed by the authority of a site.
pub(super) fn issue(
    site: &str,
    authority: &AuthorityKey,
    public: &PublicKey,
    subject: &Subject,
    days: f64,
) -> Result<Made, Error> {
    let text = |text: &str| Ia5String::try_from(text).map_err(|cause| unmade(&cause));
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, site);
    for name in &subject.names {
        params.subject_alt_names.push(SanType::DnsName(text(name)?));
    }
    for role in &subject.roles {
        params.subject_alt_names.push(SanType::URI(text(&format!("{ROLE}{role}"))?));
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if subject.is_host() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    sign(params, &Issuer::from_params(&authority_params(site), authority), authority, public, days)
}

fn sign(
    mut params: CertificateParams,
    issuer: &Issuer<'_, &AuthorityKey>,
    key: &AuthorityKey,
    public: &PublicKey,
    days: f64,
) -> Result<Made, Error> {
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let until = valid_for(&mut params, days)?;
    let serial = serial()?;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    let made = params.signed_by(public, issuer);
    let der = made.map_err(|cause| key.unsigned(&cause))?.der().clone();
    Ok(Made { der, serial: serial.iter().map(|byte| format!("{byte:02x}")).collect(), until })
}

/// Whether a certificate is one of these authorities', now, as a client's.
pub(super) fn verify(certificate: &CertificateDer<'_>, authorities: &[u8]) -> Result<(), String> {
    verify_for(certificate, authorities, webpki::KeyUsage::client_auth())
}

/// Whether a certificate is that of a page, now.
pub(super) fn verify_page(certificate: &CertificateDer<'_>, pages: &[u8]) -> Result<(), String> {
    verify_for(certificate, pages, webpki::KeyUsage::server_auth())
}

fn verify_for(certificate: &CertificateDer<'_>, authorities: &[u8], usage: webpki::KeyUsage) -> Result<(), String> {
    let mut anchors = Vec::new();
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authorities).collect();
    let parsed = parsed.map_err(|cause| format!("the authorities' file is not readable: {cause}"))?;
    for authority in &parsed {
        let anchor = webpki::anchor_from_trusted_cert(authority);
        anchors.push(anchor.map_err(|cause| format!("an authority's certificate cannot be used: {cause}"))?);
    }
    let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|cause| format!("it is none: {cause}"))?;
    let time = UnixTime::now();
    let checked = certificate.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, &[], time, usage, None, None);
    checked.map(drop).map_err(|cause| format!("{cause}"))
}

/// When a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From when on.
    pub from: u64,
    /// Until when.
    pub until: u64,
}

impl Validity {
    /// Of a certificate in DER. The checker reads it: it says what is wrong with the beginning and the end of time.
    pub(super) fn of(der: &[u8]) -> Option<Self> {
        let der = CertificateDer::from(der);
        let certificate = webpki::EndEntityCert::try_from(&der).ok()?;
        let at = |seconds| {
            let (time, usage) =
                (UnixTime::since_unix_epoch(Duration::from_secs(seconds)), webpki::KeyUsage::client_auth());
            certificate.verify_for_usage(&[], &[], &[], time, usage, None, None).map(drop)
        };
        let Err(webpki::Error::CertNotValidYet { not_before, .. }) = at(0) else { return None };
        let Err(webpki::Error::CertExpired { not_after, .. }) = at(u64::MAX) else { return None };
        Some(Validity { from: not_before.as_secs(), until: not_after.as_secs() })
    }

    /// From when on it is to be renewed: when two thirds of its time since it was issued are over.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.until - self.until.saturating_sub(self.from + SKEW) / 3
    }
}
