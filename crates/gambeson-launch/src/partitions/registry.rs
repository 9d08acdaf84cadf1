//! What becomes of partitions: who is a member, and who may have a secret.
//!
//! Secrets of former epochs are nowhere: jobs that began in them have their keys, and nobody who was removed can have a
//! member begin another there.

use std::collections::{BTreeMap, BTreeSet};

use gambeson_link::KeyHash;
use gambeson_proto::policy::is_partition;
use serde::{Deserialize, Serialize};

use super::cabinet::{About, Drawer, Shelf};
use super::message::Grant;
use super::record::{Epoch, Partition, Partner, Record, Source};
use crate::Error;
use crate::authority::check_name;

/// What is to become of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It is made, of some hosts, with a secret of its own.
    Create {
        /// Its members.
        hosts: Vec<String>,
    },
    /// This site takes part in another site's, or asks for it elsewhere from now on.
    Follow {
        /// Where it is from.
        source: Source,
    },
    /// Hosts become members.
    Add {
        /// Which.
        hosts: Vec<String>,
        /// The partner site that they are of, if they are of one.
        site: Option<String>,
    },
    /// Hosts are members no longer.
    Remove {
        /// Which.
        hosts: Vec<String>,
        /// Whether a new epoch begins: the secret that they have nobody can take from them.
        rotates: bool,
    },
    /// A new epoch begins, with a new secret.
    Rotate,
    /// The host that distributes another site's partitions may ask for that site's hosts.
    Share {
        /// What the site is called here.
        site: String,
        /// The host's key. If the site has another one here, this takes its place.
        key: String,
    },
    /// That ends: its hosts are members no longer, and a new epoch begins.
    Unshare {
        /// The site.
        site: String,
    },
}

/// A partition, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
pub(super) enum Wanting {
    /// A host of this site, under its names.
    Host(Vec<String>),
    /// A partner site, for a host of it.
    Site(String, Vec<String>),
}

/// Changes a partition; the number of the epoch that began.
///
/// # Errors
/// What makes no sense of it, or cannot be written.
pub fn change(drawer: &mut dyn Drawer, name: &str, what: &Change) -> Result<Option<u32>, Error> {
    check_partition(name)?;
    let about = &what.about(name);
    match what {
        Change::Create { hosts } => {
            is_free(drawer, name)?;
            let mut partition = Partition::default();
            partition.add(hosts, None)?;
            begin(drawer, name, &partition, 1, about)
        }
        Change::Follow { source } => {
            parse_key(&source.key)?;
            if drawer.partition(name)?.is_none_or(|there| there.is_own()) {
                is_free(drawer, name)?;
            }
            let partition = Partition { source: Some(source.clone()), ..Partition::default() };
            drawer.put(name, &partition, None, about).map(|()| None)
        }
        Change::Add { hosts, site } => {
            let mut partition = own(drawer, name)?;
            if let Some(site) = site.as_ref().filter(|site| !partition.sites.contains_key(*site)) {
                return Err(Error::Senseless(format!(
                    "{name} is shared with no site {site}; `gambeson partition share {name} --with {site} --key KEY` \
                     does that first"
                )));
            }
            partition.add(hosts, site.as_deref())?;
            drawer.put(name, &partition, None, about).map(|()| None)
        }
        Change::Remove { hosts, rotates } => {
            let mut partition = own(drawer, name)?;
            for host in hosts {
                let host = host.to_ascii_lowercase();
                let mut of_site = || partition.sites.values_mut().any(|partner| partner.hosts.remove(&host));
                if !partition.hosts.remove(&host) && !of_site() {
                    return Err(Error::Senseless(format!(
                        "{host} is no member of {name}; `gambeson partition list` shows who is"
                    )));
                }
            }
            if *rotates {
                return begin_next(drawer, name, &partition, about);
            }
            drawer.put(name, &partition, None, about).map(|()| None)
        }
        Change::Rotate => {
            let partition = own(drawer, name)?;
            begin_next(drawer, name, &partition, about)
        }
        Change::Share { site, key } => share(drawer, name, site, key, about).map(|()| None),
        Change::Unshare { site } => {
            let mut partition = own(drawer, name)?;
            if partition.sites.remove(site).is_none() {
                return Err(Error::Senseless(format!("{name} is shared with no site {site}")));
            }
            begin_next(drawer, name, &partition, about)
        }
    }
}

/// Takes partitions in as they were elsewhere, with their epochs and secrets. What is there already as it was there stays;
/// how many were not there.
///
/// # Errors
/// When one of a name is there that is another; then none is taken in, if the drawer takes back what it was given.
pub fn take_in(drawer: &mut dyn Drawer, records: &[(String, Record)]) -> Result<usize, Error> {
    let mut taken = 0;
    for (name, record) in records {
        check_partition(name)?;
        if let Some(partition) = drawer.partition(name)? {
            let epoch = if partition.is_own() { Some(drawer.epoch(name)?) } else { None };
            if (Record { partition, epoch }) != *record {
                return Err(Error::Refused(format!(
                    "there is another partition {name} already; none was taken in, and all stay where they are"
                )));
            }
            continue;
        }
        let about = vec![("partition", name.as_str().into()), ("did", "move".into())];
        drawer.put(name, &record.partition, record.epoch.as_ref(), &about)?;
        taken += 1;
    }
    Ok(taken)
}

/// All partitions.
///
/// # Errors
/// When one cannot be read.
pub fn list(shelf: &dyn Shelf) -> Result<Vec<Listed>, Error> {
    let mut listed = Vec::new();
    for name in shelf.names()? {
        let partition = read(shelf, &name)?;
        let current = if partition.is_own() { Some(shelf.epoch(&name)?) } else { None };
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
pub(super) fn grant(shelf: &dyn Shelf, name: &str, wanting: &Wanting) -> Result<Grant, Error> {
    let partition = own(shelf, name)?;
    let (hosts, members) = match wanting {
        Wanting::Host(hosts) => (hosts, Some(&partition.hosts)),
        Wanting::Site(site, hosts) => (hosts, partition.sites.get(site).map(|partner| &partner.hosts)),
    };
    if !members.is_some_and(|members| hosts.iter().any(|host| members.contains(host))) {
        let host = hosts.first().map_or("a host without a name", String::as_str);
        return Err(Error::Refused(format!("{host} is no member of partition {name}")));
    }
    let Epoch { number, secret, .. } = shelf.epoch(name)?;
    Ok(Grant { epoch: number, secret })
}

/// Where a partition is from, if it is another site's.
pub(super) fn source(shelf: &dyn Shelf, name: &str) -> Result<Option<Source>, Error> {
    Ok(read(shelf, name)?.source)
}

/// Whether it is there, for who looks elsewhere if it is not.
pub(super) fn has(shelf: &dyn Shelf, name: &str) -> Result<bool, Error> {
    check_partition(name)?;
    Ok(shelf.partition(name)?.is_some())
}

/// The keys of the hosts that distribute other sites' partitions: of those that partitions are shared with under the site's
/// name, of those that they are from without.
pub(super) fn partners(shelf: &dyn Shelf) -> Result<BTreeMap<KeyHash, Option<String>>, Error> {
    let mut partners = BTreeMap::new();
    for name in shelf.names()? {
        // It may have been handed over since.
        let Some(Partition { source, sites, .. }) = shelf.partition(&name)? else { continue };
        if let Some(source) = source {
            partners.entry(parse_key(&source.key)?).or_insert(None);
        }
        for (site, partner) in sites {
            partners.insert(parse_key(&partner.key)?, Some(site));
        }
    }
    Ok(partners)
}

impl Change {
    /// What a log says of it.
    fn about(&self, name: &str) -> About {
        let mut about: About = vec![("partition", name.into())];
        let did = match self {
            Change::Create { hosts } => {
                about.push(("hosts", hosts.as_slice().into()));
                "create"
            }
            Change::Follow { source } => {
                about.push(("from", source.address.as_str().into()));
                about.push(("key", source.key.as_str().into()));
                "follow"
            }
            Change::Add { hosts, site } => {
                about.push(("hosts", hosts.as_slice().into()));
                about.extend(site.as_ref().map(|site| ("site", site.as_str().into())));
                "add"
            }
            Change::Remove { hosts, .. } => {
                about.push(("hosts", hosts.as_slice().into()));
                "remove"
            }
            Change::Rotate => "rotate",
            Change::Share { site, key } => {
                about.push(("site", site.as_str().into()));
                about.push(("key", key.as_str().into()));
                "share"
            }
            Change::Unshare { site } => {
                about.push(("site", site.as_str().into()));
                "unshare"
            }
        };
        about.push(("did", did.into()));
        about
    }
}

fn share(drawer: &mut dyn Drawer, name: &str, site: &str, key: &str, about: &About) -> Result<(), Error> {
    check_name(site)?;
    let key = parse_key(key)?.to_string();
    own(drawer, name)?;
    for other in drawer.names()? {
        let mut partition = read(drawer, &other)?;
        if let Some(known) = partition.sites.iter().find(|(known, held)| held.key == key && *known != site) {
            return Err(Error::Senseless(format!(
                "{other} is shared with {}, which has that key; a site has one key here and one name: end that with \
                 `gambeson partition unshare {other} --with {}`",
                known.0, known.0
            )));
        }
        let held = partition.sites.get_mut(site);
        if let Some(held) = held.filter(|held| held.key != key) {
            // It has another host distribute its partitions now, for all that it takes part in.
            held.key.clone_from(&key);
            let mut about = about.clone();
            about[0].1 = other.as_str().into();
            drawer.put(&other, &partition, None, &about)?;
        }
    }
    let mut partition = own(drawer, name)?;
    if partition.sites.contains_key(site) {
        return Ok(());
    }
    partition.sites.insert(site.to_owned(), Partner { key, hosts: BTreeSet::new() });
    drawer.put(name, &partition, None, about)
}

fn begin_next(drawer: &mut dyn Drawer, name: &str, partition: &Partition, about: &About) -> Result<Option<u32>, Error> {
    let number = drawer.epoch(name)?.number.checked_add(1);
    let number = number.ok_or_else(|| Error::Refused(format!("partition {name} has no number left for an epoch")))?;
    begin(drawer, name, partition, number, about)
}

fn begin(
    drawer: &mut dyn Drawer,
    name: &str,
    partition: &Partition,
    number: u32,
    about: &About,
) -> Result<Option<u32>, Error> {
    let mut about = about.clone();
    about.push(("epoch", number.into()));
    drawer.put(name, partition, Some(&Epoch::new(number)?), &about).map(|()| Some(number))
}

fn is_free(shelf: &dyn Shelf, name: &str) -> Result<(), Error> {
    match shelf.partition(name)? {
        None => Ok(()),
        Some(_) => Err(Error::Refused(format!("there is a partition {name} already; take another name"))),
    }
}

fn read(shelf: &dyn Shelf, name: &str) -> Result<Partition, Error> {
    check_partition(name)?;
    shelf.partition(name)?.ok_or_else(|| Error::Refused(format!("this site has no partition {name}")))
}

/// A partition of this site.
fn own(shelf: &dyn Shelf, name: &str) -> Result<Partition, Error> {
    let partition = read(shelf, name)?;
    match &partition.source {
        None => Ok(partition),
        Some(source) => Err(Error::Refused(format!(
            "partition {name} is another site's; its members and epochs are decided there, at {}",
            source.address
        ))),
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
