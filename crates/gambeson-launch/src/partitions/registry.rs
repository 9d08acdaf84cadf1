//! What the authority's host has of each partition: `authority/partitions/NAME.toml`, and its secrets in `NAME.secrets`.
//!
//! ```toml
//! [members]
//! h1 = { since = 1 }                    # the first epoch whose secret it may have
//! w7 = { since = 3, site = "west" }     # a host of a partner site
//!
//! [sites]
//! west = "<SHA-256 of the key of its authority's host>"
//! ```
//! At a partner site the file says from whom the partition is, `[source]`, and there are no secrets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gambeson_link::KeyHash;
use gambeson_proto::policy::is_partition;
use gambeson_proto::secret::Secret32;
use gambeson_site::directory::now;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::message::Grant;
use crate::Error;
use crate::authority::{check_name, files};

/// All partitions that a site has, or takes part in.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Partition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    #[serde(default)]
    members: BTreeMap<String, Member>,
    #[serde(default)]
    sites: BTreeMap<String, String>,
}

/// Where a partner site has a partition from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The daemon of the authority's host there, as `HOST:PORT`.
    pub address: String,
    /// SHA-256 of that host's key.
    pub key: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    since: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    site: Option<String>,
}

/// One of the secrets that a partition has had.
struct Epoch {
    number: u32,
    /// In seconds since 1970.
    began: u64,
    secret: Secret32,
}

/// A partition, for people.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed {
    /// What it is called.
    pub name: String,
    /// The epoch that it is in, and since when, in seconds since 1970; none at a partner site.
    pub epoch: Option<(u32, u64)>,
    /// Hosts, with the partner site that each is of, if it is of one.
    pub members: Vec<(String, Option<String>)>,
    /// Partner sites, and their keys.
    pub sites: Vec<(String, String)>,
    /// Where it is from, at a partner site.
    pub source: Option<String>,
}

/// Who wants a secret.
pub(super) enum Wanting<'w> {
    /// A host of this site, under its names.
    Host(&'w [String]),
    /// A partner site, for a host of it.
    Site(&'w str, &'w [String]),
}

impl Registry {
    /// The partitions of the authority in the folder of a host, whether there are any yet or not.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Registry { folder: folder.join("authority").join("partitions") }
    }

    /// Makes a partition of some hosts, with a secret of its own.
    ///
    /// # Errors
    /// When there is one of that name, or a name cannot be.
    pub fn create(&self, name: &str, hosts: &[String]) -> Result<(), Error> {
        let _alone = self.lock()?;
        self.is_free(name)?;
        let mut partition = Partition::default();
        partition.add(hosts, None, 1)?;
        self.write_secrets(name, &[Epoch::new(1)?])?;
        self.write(name, &partition)
    }

    /// Takes part in a partition of another site.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn follow(&self, name: &str, source: Source) -> Result<(), Error> {
        let _alone = self.lock()?;
        self.is_free(name)?;
        parse_key(&source.key)?;
        self.write(name, &Partition { source: Some(source), ..Partition::default() })
    }

    /// Makes hosts members, of this site or of a partner; they get the secrets from this epoch on, which is what comes back.
    ///
    /// # Errors
    /// When there is no such partition or site, or another member is called so.
    pub fn add(&self, name: &str, hosts: &[String], site: Option<&str>) -> Result<u32, Error> {
        let _alone = self.lock()?;
        let mut partition = self.own(name)?;
        if let Some(site) = site.filter(|site| !partition.sites.contains_key(*site)) {
            return Err(Error::Senseless(format!(
                "{name} is shared with no site {site}; `gambeson partition share {name} --with {site} --key KEY` does that first"
            )));
        }
        let since = self.current(name)?.number;
        partition.add(hosts, site, since)?;
        self.write(name, &partition).map(|()| since)
    }

    /// Makes hosts members no longer. Unless `rotates` is said to be false a new epoch begins, which is what comes back:
    /// what they have of the secrets until now nobody can take from them.
    ///
    /// # Errors
    /// When one is no member.
    pub fn remove(&self, name: &str, hosts: &[String], rotates: bool) -> Result<Option<u32>, Error> {
        let _alone = self.lock()?;
        let mut partition = self.own(name)?;
        for host in hosts {
            let host = host.to_ascii_lowercase();
            if partition.members.remove(&host).is_none() {
                return Err(Error::Senseless(format!(
                    "{host} is no member of {name}; `gambeson partition list` shows who is"
                )));
            }
        }
        // First, so that they get nothing even if the rest cannot be written.
        self.write(name, &partition)?;
        rotates.then(|| self.begin_epoch(name)).transpose()
    }

    /// Begins a new epoch, with a new secret; its number.
    ///
    /// # Errors
    /// When there is no such partition.
    pub fn rotate(&self, name: &str) -> Result<u32, Error> {
        let _alone = self.lock()?;
        self.own(name)?;
        self.begin_epoch(name)
    }

    /// Lets the authority's host of another site ask for its hosts, by that host's key.
    ///
    /// # Errors
    /// When that cannot be a site's name, or the key is known under another.
    pub fn share(&self, name: &str, site: &str, key: &str) -> Result<(), Error> {
        let _alone = self.lock()?;
        check_name(site)?;
        let key = parse_key(key)?.to_string();
        for other in self.names()? {
            let known = self.read(&other)?.sites;
            if let Some((known, _)) = known.iter().find(|(known, held)| (**held == key) != (*known == site)) {
                return Err(Error::Senseless(format!(
                    "{other} is shared with {known}, which has that name or that key and not both; a site has one key here: end \
                     that with `gambeson partition unshare {other} --with {known}`"
                )));
            }
        }
        let mut partition = self.own(name)?;
        partition.sites.insert(site.to_owned(), key);
        self.write(name, &partition)
    }

    /// Ends that: its hosts are members no longer, and a new epoch begins, whose number comes back.
    ///
    /// # Errors
    /// When it is not shared with that site.
    pub fn unshare(&self, name: &str, site: &str) -> Result<u32, Error> {
        let _alone = self.lock()?;
        let mut partition = self.own(name)?;
        if partition.sites.remove(site).is_none() {
            return Err(Error::Senseless(format!("{name} is shared with no site {site}")));
        }
        partition.members.retain(|_, member| member.site.as_deref() != Some(site));
        self.write(name, &partition)?;
        self.begin_epoch(name)
    }

    /// All partitions.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let mut listed = Vec::new();
        for name in self.names()? {
            let partition = self.read(&name)?;
            let current = if partition.source.is_none() { Some(self.current(&name)?) } else { None };
            listed.push(Listed {
                epoch: current.map(|epoch| (epoch.number, epoch.began)),
                members: partition.members.into_iter().map(|(host, member)| (host, member.site)).collect(),
                sites: partition.sites.into_iter().collect(),
                source: partition.source.map(|source| source.address),
                name,
            });
        }
        Ok(listed)
    }

    /// The secret of an epoch, or of the current one (0), for whoever may have it.
    pub(super) fn grant(&self, name: &str, epoch: u32, wanting: &Wanting<'_>) -> Result<Grant, Error> {
        let partition = self.own(name)?;
        let (hosts, site) = match wanting {
            Wanting::Host(hosts) => (*hosts, None),
            Wanting::Site(site, hosts) => (*hosts, Some(*site)),
        };
        let members = hosts.iter().filter_map(|host| partition.members.get(host));
        let member = members.filter(|member| member.site.as_deref() == site).min_by_key(|member| member.since);
        let member = member.ok_or_else(|| {
            let host = hosts.first().map_or("a host without a name", String::as_str);
            Error::Refused(format!("{host} is no member of partition {name}"))
        })?;
        let current = self.current(name)?;
        let wanted = if epoch == 0 { current.number } else { epoch };
        if wanted < member.since {
            return Err(Error::Refused(format!(
                "epoch {wanted} of partition {name} was over before this host became a member"
            )));
        }
        let found = self.secrets(name)?.into_iter().find(|epoch| epoch.number == wanted);
        let found = found.ok_or_else(|| {
            let days = FORMER / 86_400;
            Error::Refused(format!("partition {name} has no epoch {wanted}, or it was over more than {days} days ago"))
        })?;
        Ok(Grant { epoch: wanted, secret: found.secret })
    }

    /// Where a partition is from, if it is another site's.
    pub(super) fn source(&self, name: &str) -> Result<Option<Source>, Error> {
        Ok(self.read(name)?.source)
    }

    /// The keys of other sites' authorities' hosts: of those that partitions are shared with under the site's name, of those
    /// that they are from without.
    pub(super) fn partners(&self) -> Result<BTreeMap<KeyHash, Option<String>>, Error> {
        let mut partners = BTreeMap::new();
        for name in self.names()? {
            let Partition { source, sites, .. } = self.read(&name)?;
            if let Some(source) = source {
                partners.entry(parse_key(&source.key)?).or_insert(None);
            }
            for (site, key) in sites {
                partners.insert(parse_key(&key)?, Some(site));
            }
        }
        Ok(partners)
    }

    /// When any of it was changed last.
    pub(super) fn changed(&self) -> Option<SystemTime> {
        fs::metadata(&self.folder).and_then(|metadata| metadata.modified()).ok()
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => {
                return Err(Error::Unavailable(format!("{} cannot be read ({cause})", self.folder.display())));
            }
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names
            .filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()))
            .filter(|name| is_partition(name))
            .collect();
        // What is being written has a name that begins so.
        names.retain(|name| !name.starts_with('.'));
        names.sort_unstable();
        Ok(names)
    }

    fn lock(&self) -> Result<File, Error> {
        let unwritten = |cause: io::Error| files::unwritten(&self.folder, &cause);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(unwritten)?;
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.folder.join(".lock"));
        let lock = lock.map_err(unwritten)?;
        lock.lock().map_err(unwritten)?;
        Ok(lock)
    }

    fn is_free(&self, name: &str) -> Result<(), Error> {
        check_partition(name)?;
        if self.file(name, "toml").exists() || self.file(name, "secrets").exists() {
            return Err(Error::Refused(format!("there is a partition {name} already; take another name")));
        }
        Ok(())
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{kind}"))
    }

    fn read(&self, name: &str) -> Result<Partition, Error> {
        check_partition(name)?;
        let path = self.file(name, "toml");
        if !path.exists() {
            return Err(Error::Refused(format!("this site has no partition {name}")));
        }
        files::read_toml(&path, "bring it back from a copy")
    }

    /// A partition of this site.
    fn own(&self, name: &str) -> Result<Partition, Error> {
        let partition = self.read(name)?;
        match &partition.source {
            None => Ok(partition),
            Some(source) => Err(Error::Refused(format!(
                "partition {name} is another site's; its members and epochs are decided there, at {}",
                source.address
            ))),
        }
    }

    fn write(&self, name: &str, partition: &Partition) -> Result<(), Error> {
        let text = toml::to_string(partition).expect("words and numbers are TOML");
        files::write(&self.file(name, "toml"), 0o600, text.as_bytes())
    }

    fn begin_epoch(&self, name: &str) -> Result<u32, Error> {
        let mut epochs = self.secrets(name)?;
        let number = self.current(name)?.number.checked_add(1);
        let number =
            number.ok_or_else(|| Error::Refused(format!("partition {name} has no number left for an epoch")))?;
        epochs.push(Epoch::new(number)?);
        // An epoch is over when the next one begins.
        let over: Vec<_> = epochs.iter().skip(1).map(|next| next.began).collect();
        let mut over = over.into_iter();
        epochs.retain(|_| over.next().is_none_or(|over| over + FORMER > now()));
        self.write_secrets(name, &epochs)?;
        Ok(number)
    }

    fn current(&self, name: &str) -> Result<Epoch, Error> {
        let last = self.secrets(name)?.pop();
        last.ok_or_else(|| {
            Error::Refused(format!("{} holds no secret; bring it back", self.file(name, "secrets").display()))
        })
    }

    /// A line each: number, when it began, 64 hexadecimal digits.
    fn secrets(&self, name: &str) -> Result<Vec<Epoch>, Error> {
        let path = self.file(name, "secrets");
        let text = files::read_secret(&path, "the secrets of a partition", "bring them back from a copy")?;
        let mut epochs: Vec<Epoch> = Vec::new();
        for line in text.lines() {
            let epoch = Epoch::parse(line).filter(|epoch| epochs.last().is_none_or(|last| last.number < epoch.number));
            epochs.push(epoch.ok_or_else(|| {
                Error::Refused(format!("{} is not as it was written; bring it back from a copy", path.display()))
            })?);
        }
        Ok(epochs)
    }

    fn write_secrets(&self, name: &str, epochs: &[Epoch]) -> Result<(), Error> {
        let mut text = Zeroizing::new(String::with_capacity(epochs.len() * 100));
        for Epoch { number, began, secret } in epochs {
            write!(*text, "{number} {began} ").expect("there is room");
            secret.as_bytes().iter().for_each(|byte| write!(*text, "{byte:02x}").expect("there is room"));
            text.push('\n');
        }
        files::write(&self.file(name, "secrets"), 0o600, text.as_bytes())
    }
}

impl Partition {
    fn add(&mut self, hosts: &[String], site: Option<&str>, since: u32) -> Result<(), Error> {
        for host in hosts {
            check_name(host)?;
            let host = host.to_ascii_lowercase();
            if let Some(member) = self.members.get(&host) {
                let of = member.site.as_deref().map_or("this site".to_owned(), |site| format!("site {site}"));
                return Err(Error::Senseless(format!("{host} of {of} is a member already")));
            }
            self.members.insert(host, Member { since, site: site.map(str::to_owned) });
        }
        Ok(())
    }
}

impl Epoch {
    fn new(number: u32) -> Result<Self, Error> {
        let mut drawn = Ok(());
        let secret = Secret32::filled(|bytes| drawn = getrandom::fill(bytes));
        drawn.map_err(|cause| Error::Unavailable(format!("the kernel gives no random numbers: {cause}")))?;
        Ok(Epoch { number, began: now(), secret })
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (number, began, digits) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
        let is_hex = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if number == 0 || !is_hex || words.next().is_some() {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("two digits");
        let secret = Secret32::filled(|bytes| bytes.iter_mut().enumerate().for_each(|(at, to)| *to = byte(at)));
        Some(Epoch { number, began, secret })
    }
}

fn parse_key(key: &str) -> Result<KeyHash, Error> {
    KeyHash::parse(key).ok_or_else(|| {
        Error::Senseless(format!(
            "{key:?} is no key: 64 hexadecimal digits, as `gambeson partition list` prints them there"
        ))
    })
}

fn check_partition(name: &str) -> Result<(), Error> {
    if is_partition(name) && !name.starts_with('.') {
        return Ok(());
    }
    Err(Error::Senseless(format!("{name:?} is no name of a partition: up to 64 letters, digits, '-', '_' or '.' are")))
}

/// So long an epoch's secret is given out after the next has begun, in seconds: jobs that began in it may go on to hosts.
const FORMER: u64 = 7 * 86_400;
