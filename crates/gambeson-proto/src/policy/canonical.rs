//! The policy's one byte form, which travels with the credential and is hashed into every key.
//!
//! ```text
//! version u8 | suite u8 | intra host u8 | gap timeout in ms u64
//! hosts u16 x { length u8, name }
//! partitions u16 x { length u8, name, epoch u32, members u16 x { host u16 } }
//! members: 0xFFFF alone for the partition that the job runs in, which all its hosts have to be in
//! layers u8 x { protection u8, rules u16 x { protection u8, class, 2 x selector } }
//! and, if there are rules about files: for each layer u16 x { pattern, label, suite u8, block u32, kind u8 }
//! pattern: length u8, name; label: the same, of length 0 for files in clear
//! kind: 1 one slot for each block, 2 two slots, 3 detached
//! class: length u8, name; of length 0 for a rule that speaks of messages, too; with the length's top bit, a class of
//!        communicators, of length 0 for all of them
//! selector: 0 | 1 host u16 | 4 address 4 bytes, prefix u8 | 6 address 16 bytes, prefix u8 | 2 partition u16
//! ```
//! Big endian. Decoding accepts exactly what encoding produces.

use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::digest;

use super::decide::Subnet;
use super::document::{GAP_TIMEOUT_MAX, GAP_TIMEOUT_MIN, is_class};
use super::{
    FileRule, HOSTS_MAX, IntraHost, Layer, PARTITIONS_MAX, Partition, Policy, RULES_MAX, Rule, Selector, Subject,
};
use crate::file::FileSuite;
use crate::identity::HostIndex;
use crate::suite::{Protection, Suite};

/// Bytes that are no policy's canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanonicalError;

impl Policy {
    /// The canonical bytes.
    pub fn canonical(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.suite as u8, self.intra_host as u8];
        let milliseconds = u64::try_from(self.gap_timeout.as_millis()).expect("at most an hour");
        out.extend(milliseconds.to_be_bytes());
        count(&mut out, self.hosts.len());
        for host in &self.hosts {
            name(&mut out, host);
        }
        count(&mut out, self.partitions.len());
        for partition in &self.partitions {
            name(&mut out, &partition.name);
            out.extend(partition.epoch.to_be_bytes());
            let hosts = partition.hosts.as_deref().unwrap_or(&[HostIndex::UNLISTED]);
            count(&mut out, hosts.len());
            for host in hosts {
                out.extend(host.0.to_be_bytes());
            }
        }
        out.push(u8::try_from(self.layers.len()).expect("a layer per document"));
        for layer in &self.layers {
            out.push(layer.protection as u8);
            count(&mut out, layer.rules.len());
            for rule in &layer.rules {
                out.push(rule.protection as u8);
                subject(&mut out, &rule.subject);
                for side in rule.between {
                    selector(&mut out, side);
                }
            }
        }
        for layer in &self.files {
            count(&mut out, layer.len());
            for rule in layer {
                name(&mut out, &rule.pattern);
                name(&mut out, rule.label.as_deref().unwrap_or_default());
                out.push(rule.suite as u8);
                out.extend(rule.block_len.to_be_bytes());
                out.push(1 + u8::from(rule.two_slots) + 2 * u8::from(rule.detached));
            }
        }
        out
    }

    /// The policy that has these canonical bytes.
    pub fn from_canonical(bytes: &[u8]) -> Result<Self, CanonicalError> {
        let mut reader = Reader(bytes);
        let policy = reader.policy()?;
        if !reader.0.is_empty() {
            return Err(CanonicalError);
        }
        Ok(policy)
    }

    /// SHA-256 of the canonical bytes under a prefix of its own: part of every key of the job.
    pub fn hash(&self) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(HASH_PREFIX);
        context.update(&self.canonical());
        let digest = context.finish();
        digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

fn count(out: &mut Vec<u8>, count: usize) {
    out.extend(u16::try_from(count).expect("resolving bounds every list").to_be_bytes());
}

fn name(out: &mut Vec<u8>, name: &str) {
    out.push(u8::try_from(name.len()).expect("parsing bounds every name"));
    out.extend(name.as_bytes());
}

fn subject(out: &mut Vec<u8>, subject: &Subject) {
    let (mark, class) = match subject {
        Subject::All => (0, ""),
        Subject::Links(class) => (0, &**class),
        Subject::Communicators(class) => (COMMUNICATORS, class.as_deref().unwrap_or_default()),
    };
    out.push(mark | u8::try_from(class.len()).expect("a class is at most CLASS_MAX long"));
    out.extend(class.as_bytes());
}

fn selector(out: &mut Vec<u8>, selector: Selector) {
    match selector {
        Selector::Anywhere => out.push(ANYWHERE),
        Selector::Host(host) => {
            out.push(HOST);
            out.extend(host.0.to_be_bytes());
        }
        Selector::Partition(partition) => {
            out.push(PARTITION);
            out.extend(partition.to_be_bytes());
        }
        Selector::Subnet(subnet) => {
            match subnet.address() {
                IpAddr::V4(address) => {
                    out.push(SUBNET_V4);
                    out.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    out.push(SUBNET_V6);
                    out.extend(address.octets());
                }
            }
            out.push(subnet.prefix());
        }
    }
}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn policy(&mut self) -> Result<Policy, CanonicalError> {
        if self.byte()? != VERSION {
            return Err(CanonicalError);
        }
        let suite = Suite::from_number(self.byte()?).ok_or(CanonicalError)?;
        let intra_host = match self.byte()? {
            1 => IntraHost::Mpi,
            2 => IntraHost::Sealed,
            _ => return Err(CanonicalError),
        };
        let gap_timeout = Duration::from_millis(u64::from_be_bytes(self.array()?));
        if !(GAP_TIMEOUT_MIN..=GAP_TIMEOUT_MAX).contains(&gap_timeout) {
            return Err(CanonicalError);
        }
        let hosts = self.list(HOSTS_MAX, Self::name)?;
        ascending(&hosts)?;
        if hosts.iter().any(|host| host.bytes().any(|byte| byte.is_ascii_uppercase())) {
            return Err(CanonicalError);
        }
        let partitions = self.list(PARTITIONS_MAX, |reader| reader.partition(hosts.len()))?;
        let twins = (1..partitions.len())
            .any(|at| partitions[..at].iter().any(|earlier: &Partition| earlier.name == partitions[at].name));
        if twins || partitions.iter().filter(|partition| partition.is_of_job()).count() > 1 {
            return Err(CanonicalError);
        }
        let layers =
            (0..self.byte()?).map(|_| self.layer(hosts.len(), partitions.len())).collect::<Result<Vec<_>, _>>()?;
        let rules: usize = layers.iter().map(|layer| layer.rules.len()).sum();
        if layers.is_empty() || layers.len() > LAYERS_MAX || rules > RULES_MAX {
            return Err(CanonicalError);
        }
        let files = if self.0.is_empty() { Vec::new() } else { self.files(layers.len())? };
        Ok(Policy { suite, gap_timeout, intra_host, hosts, partitions, layers, files, origins: Vec::new() })
    }

    fn files(&mut self, layers: usize) -> Result<Vec<Vec<FileRule>>, CanonicalError> {
        let files = (0..layers).map(|_| self.list(RULES_MAX, Self::file)).collect::<Result<Vec<_>, _>>()?;
        let rules = files.iter().map(Vec::len).sum::<usize>();
        if (1..=RULES_MAX).contains(&rules) { Ok(files) } else { Err(CanonicalError) }
    }

    fn file(&mut self) -> Result<FileRule, CanonicalError> {
        let mut rule = FileRule {
            pattern: self.text()?,
            label: Some(self.text()?).filter(|label| !label.is_empty()),
            suite: FileSuite::from_number(self.byte()?).ok_or(CanonicalError)?,
            block_len: u32::from_be_bytes(self.array()?),
            two_slots: false,
            detached: false,
        };
        (rule.two_slots, rule.detached) = match self.byte()? {
            1 => (false, false),
            2 => (true, false),
            3 => (false, true),
            _ => return Err(CanonicalError),
        };
        if rule.is_legal() { Ok(rule) } else { Err(CanonicalError) }
    }

    fn text(&mut self) -> Result<String, CanonicalError> {
        let length = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(length).ok_or(CanonicalError)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| CanonicalError)
    }

    fn partition(&mut self, hosts_listed: usize) -> Result<Partition, CanonicalError> {
        let name = self.name()?;
        let epoch = u32::from_be_bytes(self.array()?);
        if let Some(rest) = self.0.strip_prefix(&ALL_HOSTS) {
            self.0 = rest;
            return Ok(Partition { name, epoch, hosts: None });
        }
        let hosts = self.list(HOSTS_MAX, |reader| reader.host(hosts_listed))?;
        ascending(&hosts.iter().map(|host| host.0).collect::<Vec<_>>())?;
        Ok(Partition { name, epoch, hosts: Some(hosts) })
    }

    fn layer(&mut self, hosts: usize, partitions: usize) -> Result<Layer, CanonicalError> {
        Ok(Layer {
            protection: self.protection()?,
            rules: self.list(RULES_MAX, |reader| {
                Ok(Rule {
                    protection: reader.protection()?,
                    subject: reader.subject()?,
                    between: [reader.selector(hosts, partitions)?, reader.selector(hosts, partitions)?],
                })
            })?,
        })
    }

    fn selector(&mut self, hosts: usize, partitions: usize) -> Result<Selector, CanonicalError> {
        match self.byte()? {
            ANYWHERE => Ok(Selector::Anywhere),
            HOST => self.host(hosts).map(Selector::Host),
            PARTITION => {
                let partition = u16::from_be_bytes(self.array()?);
                if usize::from(partition) >= partitions {
                    return Err(CanonicalError);
                }
                Ok(Selector::Partition(partition))
            }
            SUBNET_V4 => {
                let address = IpAddr::from(self.array::<4>()?);
                self.subnet(address)
            }
            SUBNET_V6 => {
                let address = IpAddr::from(self.array::<16>()?);
                self.subnet(address)
            }
            _ => Err(CanonicalError),
        }
    }

    fn subnet(&mut self, address: IpAddr) -> Result<Selector, CanonicalError> {
        Subnet::new(address, self.byte()?).map(Selector::Subnet).ok_or(CanonicalError)
    }

    fn host(&mut self, hosts_listed: usize) -> Result<HostIndex, CanonicalError> {
        let host = u16::from_be_bytes(self.array()?);
        if usize::from(host) >= hosts_listed {
            return Err(CanonicalError);
        }
        Ok(HostIndex(host))
    }

    fn protection(&mut self) -> Result<Protection, CanonicalError> {
        Protection::from_number(self.byte()?).ok_or(CanonicalError)
    }

    fn subject(&mut self) -> Result<Subject, CanonicalError> {
        let length = self.byte()?;
        let of_communicators = length & COMMUNICATORS != 0;
        let class = match length & !COMMUNICATORS {
            0 => None,
            length => Some(self.name_of(length)?).filter(|name| is_class(name)).ok_or(CanonicalError).map(Some)?,
        };
        Ok(match class.map(String::into_boxed_str) {
            class if of_communicators => Subject::Communicators(class),
            Some(class) => Subject::Links(class),
            None => Subject::All,
        })
    }

    fn name(&mut self) -> Result<String, CanonicalError> {
        let length = self.byte()?;
        self.name_of(length)
    }

    fn name_of(&mut self, length: u8) -> Result<String, CanonicalError> {
        let length = usize::from(length);
        let (name, rest) = self.0.split_at_checked(length).ok_or(CanonicalError)?;
        let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        if name.is_empty() || !name.iter().all(legal) {
            return Err(CanonicalError);
        }
        self.0 = rest;
        String::from_utf8(name.to_vec()).map_err(|_| CanonicalError)
    }

    fn list<T>(
        &mut self,
        most: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, CanonicalError>,
    ) -> Result<Vec<T>, CanonicalError> {
        let count = usize::from(u16::from_be_bytes(self.array()?));
        if count > most {
            return Err(CanonicalError);
        }
        // No capacity is reserved from a count that nothing has vouched for.
        (0..count).map(|_| item(self)).collect()
    }

    fn byte(&mut self) -> Result<u8, CanonicalError> {
        Ok(self.array::<1>()?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CanonicalError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(CanonicalError)?;
        self.0 = rest;
        Ok(*array)
    }
}

fn ascending<T: Ord>(items: &[T]) -> Result<(), CanonicalError> {
    if items.is_sorted_by(|one, next| one < next) { Ok(()) } else { Err(CanonicalError) }
}

const VERSION: u8 = 2;
const HASH_PREFIX: &[u8] = b"gambeson policy 2\0";
/// One member, which is no host that is listed.
const ALL_HOSTS: [u8; 4] = [0, 1, 0xFF, 0xFF];
const LAYERS_MAX: usize = 2;
/// A bit of a class's length, which is never that long.
const COMMUNICATORS: u8 = 0x80;
const ANYWHERE: u8 = 0;
const HOST: u8 = 1;
const PARTITION: u8 = 2;
const SUBNET_V4: u8 = 4;
const SUBNET_V6: u8 = 6;
