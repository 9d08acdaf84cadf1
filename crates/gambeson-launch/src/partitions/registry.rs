//! What the authority's host has of each partition, in `authority/partitions`, and who may have its secret.
//!
//! Secrets of former epochs are nowhere: jobs that began in them have their keys, and nobody who was removed can have a
//! member begin another there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gambeson_link::KeyHash;
use gambeson_proto::policy::is_partition;

use super::message::Grant;
use super::record::{Epoch, Partition, Partner, Source};
use crate::Error;
use crate::authority::{check_name, files};

/// All partitions that a site has, or takes part in.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
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
        partition.add(hosts, None)?;
        self.write_epoch(name, &Epoch::new(1)?)?;
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

    /// Makes hosts members, of this site or of a partner.
    ///
    /// # Errors
    /// When there is no such partition or site, or another member is called so.
    pub fn add(&self, name: &str, hosts: &[String], site: Option<&str>) -> Result<(), Error> {
        let _alone = self.lock()?;
        let mut partition = self.own(name)?;
        if let Some(site) = site.filter(|site| !partition.sites.contains_key(*site)) {
            return Err(Error::Senseless(format!(
                "{name} is shared with no site {site}; `gambeson partition share {name} --with {site} --key KEY` does \
                 that first"
            )));
        }
        partition.add(hosts, site)?;
        self.write(name, &partition)
    }

    /// Makes hosts members no longer. If it `rotates` a new epoch begins, whose number comes back: the secret that they
    /// have nobody can take from them.
    ///
    /// # Errors
    /// When one is no member.
    pub fn remove(&self, name: &str, hosts: &[String], rotates: bool) -> Result<Option<u32>, Error> {
        let _alone = self.lock()?;
        let mut partition = self.own(name)?;
        for host in hosts {
            let host = host.to_ascii_lowercase();
            let mut of_site = || partition.sites.values_mut().any(|partner| partner.hosts.remove(&host));
            if !partition.hosts.remove(&host) && !of_site() {
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
            if let Some((known, _)) = known.iter().find(|(known, held)| (held.key == key) != (*known == site)) {
                return Err(Error::Senseless(format!(
                    "{other} is shared with {known}, which has that name or that key and not both; a site has one key \
                     here: end that with `gambeson partition unshare {other} --with {known}`"
                )));
            }
        }
        let mut partition = self.own(name)?;
        partition.sites.entry(site.to_owned()).or_insert(Partner { key, hosts: BTreeSet::new() });
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
            let current = if partition.source.is_none() { Some(self.epoch(&name)?) } else { None };
            let mut members: Vec<_> = partition.hosts.into_iter().map(|host| (host, None)).collect();
            for (site, partner) in &partition.sites {
                members.extend(partner.hosts.iter().map(|host| (host.clone(), Some(site.clone()))));
            }
            listed.push(Listed {
                epoch: current.map(|epoch| (epoch.number, epoch.began)),
                members,
                sites: partition.sites.into_iter().map(|(site, partner)| (site, partner.key)).collect(),
                source: partition.source.map(|source| source.address),
                name,
            });
        }
        Ok(listed)
    }

    /// The secret that a partition has now, for whoever may have it.
    pub(super) fn grant(&self, name: &str, wanting: &Wanting<'_>) -> Result<Grant, Error> {
        let partition = self.own(name)?;
        let (hosts, members) = match wanting {
            Wanting::Host(hosts) => (*hosts, Some(&partition.hosts)),
            Wanting::Site(site, hosts) => (*hosts, partition.sites.get(*site).map(|partner| &partner.hosts)),
        };
        if !members.is_some_and(|members| hosts.iter().any(|host| members.contains(host))) {
            let host = hosts.first().map_or("a host without a name", String::as_str);
            return Err(Error::Refused(format!("{host} is no member of partition {name}")));
        }
        let Epoch { number, secret, .. } = self.epoch(name)?;
        Ok(Grant { epoch: number, secret })
    }

    /// Where a partition is from, if it is another site's.
    pub(super) fn source(&self, name: &str) -> Result<Option<Source>, Error> {
        Ok(self.read(name)?.source)
    }

    /// The keys of other sites' authorities' hosts: of those that partitions are shared with under the site's name, of
    /// those that they are from without.
    pub(super) fn partners(&self) -> Result<BTreeMap<KeyHash, Option<String>>, Error> {
        let mut partners = BTreeMap::new();
        for name in self.names()? {
            let Partition { source, sites, .. } = self.read(&name)?;
            if let Some(source) = source {
                partners.entry(parse_key(&source.key)?).or_insert(None);
            }
            for (site, partner) in sites {
                partners.insert(parse_key(&partner.key)?, Some(site));
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
        if self.file(name, "toml").exists() || self.file(name, "secret").exists() {
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
        let number = self.epoch(name)?.number.checked_add(1);
        let number =
            number.ok_or_else(|| Error::Refused(format!("partition {name} has no number left for an epoch")))?;
        self.write_epoch(name, &Epoch::new(number)?).map(|()| number)
    }

    fn epoch(&self, name: &str) -> Result<Epoch, Error> {
        let path = self.file(name, "secret");
        let text = files::read_secret(&path, "the secret of a partition", "bring it back from a copy")?;
        Epoch::parse(&text).ok_or_else(|| {
            Error::Refused(format!("{} is not as it was written; bring it back from a copy", path.display()))
        })
    }

    fn write_epoch(&self, name: &str, epoch: &Epoch) -> Result<(), Error> {
        files::write(&self.file(name, "secret"), 0o600, epoch.encode().as_bytes())
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
