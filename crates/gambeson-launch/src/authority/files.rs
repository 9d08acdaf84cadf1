//! Where hosts and people have their site's files, and how those are read and written.
//!
//! ```text
//! host.pem, identity.pem    a host's and a person's private key and certificate, for nobody else to read; or, before the
//!                           certificate, a line with the PKCS #11 URI of a key in a token
//! authority.pem             whose certificates are accepted: the site's authority's, and others that an administrator appends
//! site.toml                 the site's name, and where certificates are renewed
//! page.pem, pages.pem       on a host that has a page for browsers: its key and certificate, and by what browsers know it
//! authority/                on the authority's host alone: its key, its settings and its log
//! ```
//!
//! A host has them in `/etc/gambeson`; a person, and a site that one person made for himself, in `~/.config/gambeson`.

use std::env;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use gambeson_link::{Identity, Trust};
use gambeson_pkcs11::{Made, SCHEME, Uri};
use pki_types::CertificateDer;
use pki_types::pem::PemObject;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::certificate::{self, Validity, verify};
use super::{Certified, Request};
use crate::Error;
use crate::identities::Mechanism;
use crate::services::Place;

pub(super) const AUTHORITIES: &str = "authority.pem";
pub(super) const SITE: &str = "site.toml";
const LENGTH_MAX: u64 = 1 << 20;

/// The folder of this host, if this is root, or else of a site that one person made for himself.
#[must_use]
pub fn host_folder() -> PathBuf {
    if rustix::process::geteuid().is_root() { gambeson_site::directory::FOLDER.into() } else { user_folder() }
}

/// The folder of whoever runs this.
#[must_use]
pub fn user_folder() -> PathBuf {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    config.unwrap_or_else(|| "/root/.config".into()).join("gambeson")
}

/// What a host or a person knows of its site.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// What it is called.
    pub name: String,
    /// Where certificates are renewed, as `HOST:PORT`.
    pub authority: String,
    /// What people can have themselves certified by without an administrator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<Mechanism>,
    /// Where its keys are, for whoever names no key store: `keyd://HOST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
}

impl Site {
    /// Reads it from a folder.
    ///
    /// # Errors
    /// When it is not there, or makes no sense.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        read_toml(&folder.join(SITE), "enroll this host, or yourself, with `gambeson enroll`")
    }

    /// Its key services, if it has any.
    ///
    /// # Errors
    /// When what is named is none.
    pub fn key_services(&self) -> Result<Option<Place>, Error> {
        let place = self.keys.as_deref().map(str::parse).transpose();
        place.map_err(|why| Error::Senseless(format!("{SITE} of {} names its key service so: {why}", self.name)))
    }

    /// Whether a folder has one.
    pub(crate) fn is_in(folder: &Path) -> bool {
        folder.join(SITE).exists() && folder.join(AUTHORITIES).exists()
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), Error> {
        write(&folder.join(SITE), 0o644, toml::to_string(self).expect("two words are TOML").as_bytes())
    }
}

/// Whose identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The host's.
    Host,
    /// That of a person.
    User,
}

impl Kind {
    /// The file of it.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Kind::Host => "host.pem",
            Kind::User => "identity.pem",
        }
    }

    /// Where it is unless somebody says otherwise.
    #[must_use]
    pub fn folder(self) -> PathBuf {
        match self {
            Kind::Host => host_folder(),
            Kind::User => user_folder(),
        }
    }
}

/// Whoever is to get an identity: has a key, and no certificate yet.
pub struct Newcomer {
    folder: PathBuf,
    kind: Kind,
    replace: bool,
    identity: Identity,
    made: Made,
}

impl Newcomer {
    /// Makes a key for an identity in a folder; nothing is written yet. With a token it is the key of that name in it, made
    /// there if there is none.
    ///
    /// # Errors
    /// When there is an identity, which is not to be replaced, or the folder or the key cannot be made.
    pub fn new(folder: &Path, kind: Kind, replace: bool, token: Option<&Uri>) -> Result<Self, Error> {
        let path = folder.join(kind.file());
        if path.exists() && !replace {
            return Err(Error::Refused(format!(
                "{} is there already, and renews itself; `gambeson enroll --replace` puts another in its place, and --folder \
                 names another place",
                path.display()
            )));
        }
        let made =
            DirBuilder::new().recursive(true).mode(if kind == Kind::Host { 0o755 } else { 0o700 }).create(folder);
        made.map_err(|cause| unwritten(folder, &cause))?;
        let (identity, made) = match token {
            Some(uri) => Identity::in_token(uri)?,
            None => (Identity::generate()?, Made::Now),
        };
        Ok(Newcomer { folder: folder.to_owned(), kind, replace, identity, made })
    }

    /// Where its files will be.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its key, in a certificate that nobody else has signed: what it shows as long as it has no other.
    pub(crate) fn identity(&self) -> Result<Identity, Error> {
        let own = self.identity.certificates().next().expect("it was made with one");
        Ok(self.identity.certified(pem("CERTIFICATE", own).as_bytes())?)
    }

    /// Whether its key was in a token before.
    #[must_use]
    pub fn made(&self) -> Made {
        self.made
    }

    /// Asks for a certificate for its key.
    ///
    /// # Errors
    /// Never, for a key that was made here.
    pub fn request(&self) -> Result<Request, Error> {
        Request::new(&self.identity)
    }

    /// Writes the files of a member: the identity last.
    ///
    /// # Errors
    /// When the certificate is for another key, other authorities are accepted here, or a file cannot be written.
    pub fn install(&self, certified: &Certified) -> Result<PathBuf, Error> {
        let der = certificate_of(certified, &self.identity, certified.authorities.as_bytes())?;
        let authorities = self.folder.join(AUTHORITIES);
        if fs::read_to_string(&authorities).is_ok_and(|there| there != certified.authorities) && !self.replace {
            return Err(Error::Refused(format!(
                "{} names other authorities than {:?} has; say --replace if those of that site are to be in its place",
                authorities.display(),
                certified.site.name
            )));
        }
        write(&authorities, 0o644, certified.authorities.as_bytes())?;
        certified.site.write(&self.folder)?;
        let path = self.folder.join(self.kind.file());
        write(&path, 0o600, identity_text(&self.identity, &der).as_bytes())?;
        Ok(path)
    }
}

/// The certificate of an answer, if it is for this identity's key and one of these authorities'.
fn certificate_of(
    certified: &Certified,
    identity: &Identity,
    authorities: &[u8],
) -> Result<CertificateDer<'static>, Error> {
    let none = |why: &str| Error::Refused(format!("what the authority answers is not used: {why}"));
    let der = CertificateDer::from_pem_slice(certified.certificate.as_bytes());
    let der = der.map_err(|_| none("it holds no certificate"))?;
    verify(&der, authorities).map_err(|cause| {
        none(&format!("its certificate is not valid here ({cause}); compare the clocks, and {AUTHORITIES}"))
    })?;
    let of = identity.certified(certified.certificate.as_bytes());
    of.map(|_| der).map_err(|_| none("its certificate is for another key"))
}

/// A private key, or where it is, and a certificate for it.
fn identity_text(identity: &Identity, certificate: &[u8]) -> Zeroizing<String> {
    let mut text = match identity.token() {
        Some(uri) => Zeroizing::new(format!("{uri}\n")),
        None => pem("PRIVATE KEY", identity.private_key().expect("it is in memory")),
    };
    text.push_str(&pem("CERTIFICATE", certificate));
    text
}

/// A host or a person with an identity of its site.
pub struct Member {
    /// Where its files are.
    pub folder: PathBuf,
    /// The file of its identity.
    pub path: PathBuf,
    /// Its key and certificate.
    pub identity: Identity,
    /// When that is valid.
    pub validity: Validity,
    authorities: String,
}

impl Member {
    /// Reads an identity; a token that has its key is opened.
    ///
    /// # Errors
    /// When it is not there, others could read it, or makes no sense.
    pub fn read(folder: &Path, kind: Kind) -> Result<Self, Error> {
        let path = folder.join(kind.file());
        let remedy = "`gambeson enroll --help` says how this host and you get one; --folder names another place";
        let text = read_secret(&path, "the identity", remedy)?;
        let none = |why: String| Error::Refused(format!("{} is no identity: {why}; enroll again", path.display()));
        let identity = identity_of(&text, &path)?;
        let validity = identity.certificates().next().and_then(Validity::of);
        let validity = validity.ok_or_else(|| none("it does not say when it is valid".into()))?;
        let authorities = read(&folder.join(AUTHORITIES), remedy)?;
        Ok(Member { folder: folder.to_owned(), path, identity, validity, authorities })
    }

    /// Whose certificates are accepted here.
    ///
    /// # Errors
    /// When the file holds none.
    pub fn trust(&self) -> Result<Trust, Error> {
        trust(&self.authorities, &self.folder)
    }

    /// What its certificate calls this host, if it is a host's.
    pub(crate) fn host(&self) -> Option<String> {
        certificate::claims(self.identity.certificates().next()?)?.0
    }

    /// What its certificate is for: the names of hosts.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.identity.certificates().next().map(certificate::names).unwrap_or_default()
    }

    /// By what its owner was certified, if no administrator did.
    pub(crate) fn mechanism(&self) -> Option<Mechanism> {
        let (_, roles) = certificate::claims(self.identity.certificates().next()?)?;
        Mechanism::of(roles.iter().map(String::as_str))
    }

    /// Its key in a certificate that claims nothing, with which it comes as a guest.
    pub(crate) fn bare(&self) -> Result<Identity, Error> {
        Ok(self.identity.bare()?)
    }

    /// Its identity once more: a domain takes one for itself.
    ///
    /// # Errors
    /// When the file has changed since.
    pub fn again(&self) -> Result<Identity, Error> {
        let text = read_secret(&self.path, "the identity", "enroll again")?;
        identity_of(&text, &self.path)
    }

    /// Whether a certificate is one of the authorities' that are accepted here.
    pub(super) fn accepts(&self, certificate: &CertificateDer<'_>) -> Result<(), String> {
        verify(certificate, self.authorities.as_bytes())
    }

    /// Whether a folder has the same authorities.
    pub(super) fn is_of_site_in(&self, folder: &Path) -> bool {
        fs::read_to_string(folder.join(AUTHORITIES)).is_ok_and(|there| there == self.authorities)
    }

    /// Puts a newer certificate in the place of its own.
    pub(super) fn renewed(&self, certified: &Certified) -> Result<(), Error> {
        let der = certificate_of(certified, &self.identity, self.authorities.as_bytes())?;
        write(&self.path, 0o600, identity_text(&self.identity, &der).as_bytes())?;
        // Where the authority is asked does not change, since an administrator may know another way to it.
        match Site::read(&self.folder) {
            Ok(site) if (&site.identities, &site.keys) != (&certified.site.identities, &certified.site.keys) => {
                let Site { identities, keys, .. } = certified.site.clone();
                Site { identities, keys, ..site }.write(&self.folder)
            }
            _ => Ok(()),
        }
    }
}

/// Whose certificates are accepted by the files in a folder.
pub(crate) fn accepted_in(folder: &Path) -> Result<Trust, Error> {
    let authorities = read(&folder.join(AUTHORITIES), "enroll this host with `gambeson enroll`")?;
    trust(&authorities, folder)
}

fn trust(authorities: &str, folder: &Path) -> Result<Trust, Error> {
    let trust = Trust::default().authorities(authorities.as_bytes());
    trust.map_err(|cause| Error::Refused(format!("{}: {cause}", folder.join(AUTHORITIES).display())))
}

/// Where the key of an identity is, for people: a token, or the file itself. `None`: there is no identity, or it is not for
/// this user to read.
#[must_use]
pub fn key_place(folder: &Path, kind: Kind) -> Option<String> {
    let path = folder.join(kind.file());
    let text = read_secret(&path, "the identity", "").ok()?;
    let uri = text.lines().find(|line| line.starts_with(SCHEME)).and_then(|line| line.trim_end().parse::<Uri>().ok());
    Some(uri.map_or_else(|| path.display().to_string(), |uri| uri.name().to_owned()))
}

fn identity_of(text: &str, path: &Path) -> Result<Identity, Error> {
    Identity::from_pem(text.as_bytes(), text.as_bytes()).map_err(|cause| {
        let what = format!("{} cannot be used: {cause}", path.display());
        match cause {
            // A token that does not answer may come back.
            gambeson_link::Error::System { .. } => Error::Unavailable(what),
            _ if text.lines().any(|line| line.starts_with(SCHEME)) => Error::Refused(what),
            _ => Error::Refused(what + "; enroll again"),
        }
    })
}

/// Text in PEM (RFC 7468).
#[must_use]
pub fn pem(what: &str, der: &[u8]) -> Zeroizing<String> {
    let coded = Zeroizing::new(BASE64.encode(der));
    let mut text = Zeroizing::new(String::with_capacity(2 * coded.len() + 80));
    text.push_str(&format!("-----BEGIN {what}-----\n"));
    for line in coded.as_bytes().chunks(64) {
        text.push_str(std::str::from_utf8(line).expect("base 64 is text"));
        text.push('\n');
    }
    text.push_str(&format!("-----END {what}-----\n"));
    text
}

pub(crate) fn unwritten(path: &Path, cause: &io::Error) -> Error {
    Error::Unavailable(format!("{} cannot be written ({cause}); make room, or run this as who may", path.display()))
}

/// Makes a folder if it is not there, whatever the umask says.
pub(super) fn make_folder(folder: &Path, mode: u32) -> Result<(), Error> {
    if folder.is_dir() {
        return Ok(());
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let made = made.and_then(|()| fs::set_permissions(folder, Permissions::from_mode(mode)));
    made.map_err(|cause| unwritten(folder, &cause))
}

/// Puts a file in its place at once and for good: whoever reads sees the old or the new, a crash included.
pub(crate) fn write(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().expect("a file is in a folder");
    let name = path.file_name().expect("a file has a name").to_string_lossy();
    let beside = folder.join(format!(".{name}.new-{}", std::process::id()));
    let _ = fs::remove_file(&beside);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(folder)?.sync_all()
    })();
    written.map_err(|cause| {
        let _ = fs::remove_file(&beside);
        unwritten(path, &cause)
    })
}

/// Reads what nobody else may write.
pub(super) fn read(path: &Path, remedy: &str) -> Result<String, Error> {
    let (text, metadata) = open(path, remedy)?;
    gambeson_site::policy::others_cannot_write("the file", path, &metadata).map_err(Error::Refused)?;
    Ok(text.to_string())
}

fn open(path: &Path, remedy: &str) -> Result<(Zeroizing<String>, Metadata), Error> {
    let cannot = |cause: &dyn std::fmt::Display| {
        Error::Unavailable(format!("{} cannot be read ({cause}); {remedy}", path.display()))
    };
    let file = File::open(path).map_err(|cause| cannot(&cause))?;
    let metadata = file.metadata().map_err(|cause| cannot(&cause))?;
    if metadata.len() > LENGTH_MAX {
        return Err(cannot(&"it is too long"));
    }
    // As long as the file is, so that no copy of a secret is left where a longer one did not fit.
    let mut text = Zeroizing::new(String::with_capacity(metadata.len() as usize + 1));
    file.take(LENGTH_MAX).read_to_string(&mut text).map_err(|cause| cannot(&cause))?;
    Ok((text, metadata))
}

/// Reads what nobody else may read.
pub(crate) fn read_secret(path: &Path, what: &str, remedy: &str) -> Result<Zeroizing<String>, Error> {
    let (text, metadata) = open(path, remedy)?;
    let mode = metadata.mode();
    if mode & 0o077 != 0 {
        return Err(Error::Refused(format!(
            "{what} {} is open to others (mode {:04o}); chmod 600 it, and make a new one if others could read it",
            path.display(),
            mode & 0o7777
        )));
    }
    gambeson_site::policy::others_cannot_write(what, path, &metadata).map_err(Error::Refused)?;
    Ok(text)
}

pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path, remedy: &str) -> Result<T, Error> {
    let text = read(path, remedy)?;
    toml::from_str(&text).map_err(|cause| Error::Senseless(format!("{}: {cause}", path.display())))
}
