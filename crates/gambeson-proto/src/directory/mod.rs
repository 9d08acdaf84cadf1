//! The signed site directory: for each host its transports and the ways of authentication that it accepts, and which
//! networks need sealing (secure-nexus paper, 3.3, 5.1 and 10: the Metacomputing Directory Service).
//!
//! ```text
//! issued = 2026-11-21T20:52:10Z
//! expires = 2026-12-21T20:52:10Z
//!
//! [[host]]
//! name = "ocean1"                             as the host calls itself
//! addresses = ["10.1.0.1"]                    where it is; optional
//! transports = ["shm", "tcp"]                 what sessions with it go over, in the order to try
//! authentication = ["job", "certificate"]     how the ends of a session with it may have proved who they are
//! attach = { addresses = ["10.1.0.1:4000"], role = "model" }    the program that is attached to there; optional
//!
//! [[network]]
//! subnet = "10.9.0.0/16"                      links with whoever is in it, or may be,
//! protection = "privacy"                      have this at least
//! # signature = 128 hexadecimal digits
//! ```
//!
//! The last line is an Ed25519 signature (RFC 8032) over [`message`] of all bytes before it. What is signed by somebody
//! else, is over, or was issued before one that was seen is refused before a word of it counts.

mod document;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::policy::Subnet;
use crate::primitives::ed25519_verifies;
use crate::startpoint::AddressKind;
use crate::suite::Protection;

/// What a site says of its hosts and networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// When it was made, in seconds since 1970. Its serial number, too: one that was issued before another is older.
    pub issued: u64,
    /// From then on it is not valid, in seconds since 1970.
    pub expires: u64,
    /// In the order in which they are written; no two have one name.
    pub hosts: Vec<Host>,
    /// The networks that need protection.
    pub networks: Vec<Network>,
}

/// What a site says of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As it calls itself, in lower case.
    pub name: String,
    /// Where it is, as far as the site says; where its program listens, too.
    pub addresses: Vec<IpAddr>,
    /// What sessions with it go over, in the order to try.
    pub transports: Vec<AddressKind>,
    /// How the ends of a session with it may have proved who they are.
    pub authentication: Vec<Authentication>,
    /// The program that is attached to there.
    pub attach: Option<Attach>,
}

/// A program that others attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// Who has to be there: never whoever answers.
    pub expected: Expected,
}

/// Who has to be at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The owner of the public key with this SHA-256.
    Key([u8; 32]),
    /// Whoever proves to have this role.
    Role(String),
}

/// How somebody proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// It has the secret of the job.
    Job,
    /// It owns a key that was known before.
    Pinned,
    /// It has a certificate of an authority.
    Certificate,
}

/// A network, and what links with whoever is in it have at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    subnet: Subnet,
    /// [`Protection::Privacy`] or [`Protection::Integrity`].
    pub protection: Protection,
}

/// Why a directory is not taken. All but the first two are about one that the site did sign.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectoryError {
    /// There is no signature at its end.
    Unsigned,
    /// The signature is somebody else's, or the text was altered.
    Forged,
    /// It makes no sense: in this line, for this reason.
    Senseless(Option<usize>, String),
    /// It was issued later than now.
    Early {
        /// When, in seconds since 1970.
        issued: u64,
    },
    /// Its time is over.
    Stale {
        /// Since when, in seconds since 1970.
        expires: u64,
    },
    /// It was issued before one that was seen.
    RolledBack {
        /// When, in seconds since 1970.
        issued: u64,
        /// When the one that was seen was issued.
        seen: u64,
    },
}

impl Directory {
    /// Reads a signed directory at a time, in seconds since 1970; `seen` is when the latest one was issued that the
    /// reader has ever taken.
    pub fn verify(bytes: &[u8], site_key: &[u8; 32], now: u64, seen: u64) -> Result<Self, DirectoryError> {
        let (text, signature) = split(bytes).ok_or(DirectoryError::Unsigned)?;
        if !ed25519_verifies(site_key, &message(text), &signature) {
            return Err(DirectoryError::Forged);
        }
        let directory = Self::parse(text)?;
        let issued = directory.issued;
        if issued < seen {
            return Err(DirectoryError::RolledBack { issued, seen });
        }
        directory.is_valid(now)?;
        Ok(directory)
    }

    /// Reads a directory, whoever wrote and signed it: for those who sign it.
    pub fn parse(bytes: &[u8]) -> Result<Self, DirectoryError> {
        document::read(split(bytes).map_or(bytes, |(text, _)| text))
    }

    /// Whether its time has come and is not over. The reader's clock may be some minutes behind the signer's.
    pub fn is_valid(&self, now: u64) -> Result<(), DirectoryError> {
        let Directory { issued, expires, .. } = *self;
        if now.saturating_add(CLOCKS_APART) < issued {
            return Err(DirectoryError::Early { issued });
        }
        if expires <= now {
            return Err(DirectoryError::Stale { expires });
        }
        Ok(())
    }

    /// What it says of a host. Clusters are divided over whether a host calls itself with its domain: a name without one
    /// means the one host whose name begins so.
    pub fn host(&self, name: &str) -> Option<&Host> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if let Some(host) = self.hosts.iter().find(|host| host.name == name) {
            return Some(host);
        }
        let label = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let mut alike = self.hosts.iter().filter(|host| match name.contains('.') {
            true => host.name == label(&name),
            false => label(&host.name) == name,
        });
        alike.next().filter(|_| alike.next().is_none())
    }

    /// The host that has an address.
    pub fn host_at(&self, address: IpAddr) -> Option<&Host> {
        self.hosts.iter().find(|host| host.addresses.contains(&address.to_canonical()))
    }

    /// The network that asks most of links between these two: hosts by their names, and the addresses that they state.
    /// A host of which nobody says where it is may be in any network.
    pub fn floor(&self, ends: [(&str, Option<IpAddr>); 2]) -> Option<&Network> {
        if self.networks.is_empty() {
            return None;
        }
        let known = ends.map(|(name, stated)| {
            let listed = self.host(name).map_or(&[][..], |host| &host.addresses);
            listed.iter().copied().chain(stated).collect::<Vec<_>>()
        });
        let may_be_in = |network: &Network, known: &Vec<IpAddr>| {
            known.is_empty() || known.iter().any(|&address| network.subnet.contains(address))
        };
        let meant = |network: &&Network| known.iter().any(|known| may_be_in(network, known));
        self.networks.iter().filter(meant).min_by_key(|network| network.protection)
    }
}

impl Network {
    /// As it is written: `10.9.0.0/16`.
    pub fn subnet(&self) -> String {
        format!("{}/{}", self.subnet.address(), self.subnet.prefix())
    }
}

impl Authentication {
    /// Every way there is.
    pub const ALL: [Authentication; 3] = [Authentication::Job, Authentication::Pinned, Authentication::Certificate];

    /// The word in a directory.
    pub const fn name(self) -> &'static str {
        match self {
            Authentication::Job => "job",
            Authentication::Pinned => "pinned",
            Authentication::Certificate => "certificate",
        }
    }
}

/// What is signed: the text behind a context of its own, in the form of TLS 1.3 (RFC 8446, 4.4.3).
pub fn message(text: &[u8]) -> Vec<u8> {
    [&[0x20; 64][..], b"Gambeson, site directory\0", text].concat()
}

/// What a directory has to say that is valid between these times, in seconds since 1970: `text`, with them in place of
/// whatever times and signature it had.
pub fn compose(text: &str, issued: u64, expires: u64) -> String {
    let is_ours = |line: &&str| ["issued =", "expires ="].iter().any(|word| line.starts_with(word));
    let body = match split(text.as_bytes()) {
        Some((body, _)) => &text[..body.len()],
        None => text,
    };
    let mut out = format!("issued = {}\nexpires = {}\n", date(issued), date(expires));
    out.extend(body.split_inclusive('\n').skip_while(is_ours));
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// A text with its signature.
pub fn enclose(text: &str, signature: &[u8; 64]) -> String {
    let digits = signature.iter().map(|byte| format!("{byte:02x}"));
    [text, SIGNATURE].into_iter().map(str::to_owned).chain(digits).chain(["\n".to_owned()]).collect()
}

/// Seconds since 1970 as a directory has them: `2026-11-21T20:52:10Z` (RFC 3339).
pub fn date(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let written = date.and_then(|date| date.format(&Rfc3339).ok());
    written.unwrap_or_else(|| format!("{seconds} seconds after 1970"))
}

/// The other way round; `None`: it is none, or before 1970.
pub fn seconds(date: &str) -> Option<u64> {
    OffsetDateTime::parse(date, &Rfc3339).ok()?.unix_timestamp().try_into().ok()
}

/// The word for a transport.
pub const fn transport_name(transport: AddressKind) -> &'static str {
    match transport {
        AddressKind::Shm => "shm",
        AddressKind::Fabric => "libfabric",
        AddressKind::Tcp => "tcp",
    }
}

/// The text and the signature behind it.
fn split(bytes: &[u8]) -> Option<(&[u8], [u8; 64])> {
    let lines = bytes.strip_suffix(b"\n")?;
    let start = lines.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let digits = lines[start..].strip_prefix(SIGNATURE.as_bytes())?;
    Some((&bytes[..start], hexadecimal(digits)?))
}

fn hexadecimal<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let &[high, low] = pair else { return None };
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(high)? << 4 | digit(low)?) as u8;
    }
    (digits.len() == 2 * N).then_some(bytes)
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned => {
                write!(out, "it has no signature at its end; sign it with `gambeson directory sign`, or get it again")
            }
            Self::Forged => write!(
                out,
                "its signature is not the site's: it was altered after signing, or signed with another key; get it again, \
                 or sign it again"
            ),
            Self::Senseless(Some(line), what) => write!(out, "line {line}: {what}"),
            Self::Senseless(None, what) => write!(out, "{what}"),
            Self::Early { issued } => write!(
                out,
                "it was issued {}, which is yet to come by this host's clock; set the clock that is wrong",
                date(*issued)
            ),
            Self::Stale { expires } => {
                write!(out, "it expired {} by this host's clock; get the present one, or sign it again", date(*expires))
            }
            Self::RolledBack { issued, seen } => write!(
                out,
                "it was issued {}, and one of {} was taken here before: somebody brought an old one back; get the \
                 present one",
                date(*issued),
                date(*seen)
            ),
        }
    }
}

impl std::error::Error for DirectoryError {}

const SIGNATURE: &str = "# signature = ";
/// The longest there is, in bytes: some thousand hosts.
pub const LENGTH_MAX: usize = 1 << 20;
/// How far clocks may be apart, in seconds.
const CLOCKS_APART: u64 = 300;
