//! What is written down of a partition: in a folder `NAME.toml`, and its secret in `NAME.secret`; in a database both in one
//! record, the line of the secret first, which is empty at a partner site.
//!
//! ```toml
//! hosts = ["h1", "h2"]                  # members that are this site's
//!
//! [sites.west]                          # a partner site
//! key = "<SHA-256 of the key of its authority's host>"
//! hosts = ["w7"]                        # members that are its
//! ```
//! At a partner site the file says from whom the partition is, `[source]`, and there is no secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gambeson_proto::secret::Secret32;
use gambeson_site::directory::now;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::Error;
use crate::authority::check_name;

/// Who takes part in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<Source>,
    #[serde(default)]
    pub(super) hosts: BTreeSet<String>,
    #[serde(default)]
    pub(super) sites: BTreeMap<String, Partner>,
}

/// Where a partner site has a partition from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The key service there, or the daemon of the authority's host, as `HOST:PORT`.
    pub address: String,
    /// SHA-256 of its host's key.
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Partner {
    pub(super) key: String,
    pub(super) hosts: BTreeSet<String>,
}

/// The secret that a partition has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    pub(super) number: u32,
    /// In seconds since 1970.
    pub(super) began: u64,
    pub(super) secret: Secret32,
}

/// All that is written down of a partition.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// Who takes part.
    pub partition: Partition,
    /// Its secret; none at a partner site.
    pub epoch: Option<Epoch>,
}

impl Record {
    /// As one record, in one allocation.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let line = self.epoch.as_ref().map_or_else(|| Zeroizing::new("\n".to_owned()), Epoch::encode);
        let rest = self.partition.encode();
        let mut bytes = Zeroizing::new(Vec::with_capacity(line.len() + rest.len()));
        bytes.extend(line.as_bytes());
        bytes.extend(rest.as_bytes());
        bytes
    }

    /// From a record, if it is one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (line, rest) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        let partition: Partition = toml::from_str(rest).ok()?;
        let epoch = match line {
            "" => None,
            _ => Some(Epoch::parse_line(line)?),
        };
        (partition.is_own() == epoch.is_some()).then_some(Record { partition, epoch })
    }
}

impl Partition {
    /// Whether it is this site's, which decides on its members and epochs.
    pub(super) fn is_own(&self) -> bool {
        self.source.is_none()
    }

    pub(super) fn encode(&self) -> String {
        toml::to_string(self).expect("words and numbers are TOML")
    }

    pub(super) fn add(&mut self, hosts: &[String], site: Option<&str>) -> Result<(), Error> {
        for host in hosts {
            check_name(host)?;
            let host = host.to_ascii_lowercase();
            // A job tells its hosts by their names.
            if self.hosts.contains(&host) || self.sites.values().any(|partner| partner.hosts.contains(&host)) {
                return Err(Error::Senseless(format!("a host {host} is a member already")));
            }
            match site {
                None => self.hosts.insert(host),
                Some(site) => self.sites.get_mut(site).expect("the caller has looked").hosts.insert(host),
            };
        }
        Ok(())
    }
}

impl Epoch {
    pub(super) fn new(number: u32) -> Result<Self, Error> {
        let mut drawn = Ok(());
        let secret = Secret32::filled(|bytes| drawn = getrandom::fill(bytes));
        drawn.map_err(|cause| Error::Unavailable(format!("the kernel gives no random numbers: {cause}")))?;
        Ok(Epoch { number, began: now(), secret })
    }

    /// A line: its number, when it began, and the secret in 64 hexadecimal digits.
    pub(super) fn encode(&self) -> Zeroizing<String> {
        // With room for all of it, so that no copy is left where a longer one did not fit.
        let mut text = Zeroizing::new(String::with_capacity(128));
        write!(*text, "{} {} ", self.number, self.began).expect("there is room");
        self.secret.as_bytes().iter().for_each(|byte| write!(*text, "{byte:02x}").expect("there is room"));
        text.push('\n');
        text
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::parse_line(text.strip_suffix('\n')?)
    }

    fn parse_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (number, began, digits) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
        let is_hex = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if number == 0 || !is_hex || words.next().is_some() {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("two digits");
        let secret = Secret32::filled(|bytes| bytes.iter_mut().enumerate().for_each(|(at, to)| *to = byte(at)));
        (!secret.is_wiped()).then_some(Epoch { number, began, secret })
    }
}
