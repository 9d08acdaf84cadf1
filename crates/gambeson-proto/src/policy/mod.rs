//! The policy decides how the messages between two processes are protected (rule 8 of the threat model).
//!
//! A [`Document`] is a `gambeson.toml` as somebody wrote it. [`resolve`] turns the floor and the
//! chosen document into one [`Policy`], which has a canonical form: that form travels with the
//! job's credential, and its hash goes into every key, so that two ends that disagree cannot talk.
//!
//! ```text
//!   /etc/gambeson/gambeson.toml ──parse──┐
//!                                        ├──resolve──> Policy ──canonical──> credential, hash
//!   --policy FILE or ./gambeson.toml ────┘               └──decide(a, b)──> Decision
//! ```

mod canonical;
mod decide;
mod document;
mod error;
mod files;
mod resolve;

use std::time::Duration;

use crate::identity::HostIndex;
use crate::suite::{Protection, Suite};

pub use canonical::CanonicalError;
pub(crate) use decide::Subnet;
pub use decide::{Decision, Place};
pub use document::{Document, is_class, is_label, is_partition};
pub use error::PolicyError;
pub use files::FileRule;
pub use resolve::{Chosen, Resolution, SecretFile, resolve};

/// What carries the messages between two processes of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum IntraHost {
    /// The MPI library's own shared memory, in clear inside the host.
    #[default]
    Mpi = 1,
    /// The provider, sealed as between hosts.
    Sealed = 2,
}

impl IntraHost {
    /// The word `gambeson.toml` and the command line use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpi => "mpi",
            Self::Sealed => "sealed",
        }
    }

    /// The variant a word stands for.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Mpi, Self::Sealed].into_iter().find(|variant| variant.name() == name)
    }
}

/// A resolved policy: what every process of the job obeys.
#[derive(Clone, Debug)]
pub struct Policy {
    suite: Suite,
    gap_timeout: Duration,
    intra_host: IntraHost,
    /// Sorted, lower case, without duplicates: a host's place here is its [`HostIndex`].
    hosts: Vec<String>,
    partitions: Vec<Partition>,
    /// The strongest answer of all layers holds.
    layers: Vec<Layer>,
    /// The rules about files of each layer.
    files: Vec<Vec<FileRule>>,
    /// Where each rule was written, flat over the layers, for people only: neither
    /// canonical nor hashed, and empty in a policy that came with a credential.
    origins: Vec<String>,
}

/// Hosts that share a partition secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    name: String,
    epoch: u32,
    /// Sorted. None: all hosts of the job, each of which has the key from its own daemon, if the site lets it.
    hosts: Option<Vec<HostIndex>>,
}

impl Partition {
    /// The name the policy gives it, which goes into its key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which of the partition's successive secrets is in use.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether a host belongs to the partition.
    pub fn contains(&self, host: HostIndex) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.contains(&host))
    }

    /// Whether it is the one that the job runs in: a partition of the site, which all hosts of the job have to be in.
    pub fn is_of_job(&self) -> bool {
        self.hosts.is_none()
    }
}

/// One document's answer: the first rule that matches, else its default.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layer {
    protection: Protection,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    between: [Selector; 2],
    subject: Subject,
    protection: Protection,
}

/// What a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    /// Messages and all links.
    All,
    /// Links of this class alone.
    Links(Box<str>),
    /// Messages on the communicators of this class that ask for a protection of their own; without one, of all that do.
    Communicators(Option<Box<str>>),
}

/// What somebody asks a policy about.
#[derive(Clone, Copy, Debug)]
enum Asked<'a> {
    Messages,
    Links(&'a str),
    Communicators(Option<&'a str>),
}

/// One side of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selector {
    Anywhere,
    Host(HostIndex),
    Subnet(decide::Subnet),
    /// Index into the policy's partitions.
    Partition(u16),
}

impl Policy {
    /// The same protection for everything, and nothing else said.
    pub fn uniform(protection: Protection) -> Self {
        Policy { layers: vec![Layer { protection, rules: Vec::new() }], ..Policy::default() }
    }

    /// Parses and resolves one document that stands alone, without a floor.
    pub fn parse(text: &str, origin: &str) -> Result<Self, PolicyError> {
        let document = Document::parse(text, origin)?;
        Ok(resolve(None, Some(Chosen::Named(&document)))?.policy)
    }

    /// The cipher suite of the whole job.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// How long a gap in a peer's records may stay without progress.
    pub fn gap_timeout(&self) -> Duration {
        self.gap_timeout
    }

    /// What carries the messages inside a host.
    pub fn intra_host(&self) -> IntraHost {
        self.intra_host
    }

    /// The same policy with messages inside a host taken through the provider.
    pub fn with_sealed_hosts(mut self) -> Self {
        self.intra_host = IntraHost::Sealed;
        self
    }

    /// The partitions; a [`Decision`] names them by their index here.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The same policy with the epoch that a partition is in now, as who keeps its secret says.
    #[must_use]
    pub fn with_epoch(mut self, partition: usize, epoch: u32) -> Self {
        self.partitions[partition].epoch = epoch;
        self
    }

    /// Which listed host a host's own name stands for, else [`HostIndex::UNLISTED`].
    ///
    /// Clusters are divided over whether `gethostname` answers with the domain, so a name
    /// without one matches the first label of a name with one, unless that is ambiguous.
    pub fn host_index(&self, hostname: &str) -> HostIndex {
        let hostname = hostname.trim_end_matches('.').to_ascii_lowercase();
        if let Ok(position) = self.hosts.binary_search(&hostname) {
            return index(position);
        }
        let first_label = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let mut alike = (0..self.hosts.len()).filter(|&position| {
            let listed = &self.hosts[position];
            if hostname.contains('.') { *listed == first_label(&hostname) } else { first_label(listed) == hostname }
        });
        match (alike.next(), alike.next()) {
            (Some(position), None) => index(position),
            _ => HostIndex::UNLISTED,
        }
    }

    /// The name the policy lists a host under.
    pub fn host_name(&self, host: HostIndex) -> Option<&str> {
        self.hosts.get(usize::from(host.0)).map(String::as_str)
    }

    /// What a rule says and where it was written, for people.
    pub fn rule_origin(&self, rule: usize) -> String {
        match self.origins.get(rule) {
            Some(origin) => origin.clone(),
            None => format!("rule {}", rule + 1),
        }
    }

    /// Where each rule was written, over all layers: what the canonical form leaves out.
    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    /// The same policy, whose rules were written there.
    pub fn with_origins(mut self, origins: Vec<String>) -> Self {
        self.origins = origins;
        self
    }

    /// Why a decision is as it is, for people: `the rule at FILE:LINE`.
    pub fn why(&self, decision: &Decision) -> String {
        match decision.rule {
            _ if decision.is_control => "what links of class \"control\" always have".to_owned(),
            Some(rule) => self.rule_origin(rule),
            None => "the default".to_owned(),
        }
    }

    /// Whether any pair of processes may exchange messages that are not private.
    pub fn weakens(&self) -> bool {
        self.allows(Protection::Integrity, Asked::Messages)
    }

    /// Whether any pair of processes may have links of this class that are not private.
    pub fn weakens_links(&self, class: &str) -> bool {
        self.allows(Protection::Integrity, Asked::Links(class))
    }

    /// Whether messages on a communicator of this class that asks for `protection` may have it between any pair at all.
    pub fn allows_communicator(&self, protection: Protection, class: Option<&str>) -> bool {
        self.allows(protection, Asked::Communicators(class))
    }

    fn allows(&self, protection: Protection, asked: Asked<'_>) -> bool {
        self.layers.iter().all(|layer| {
            let weak = |rule: &Rule| rule.protection >= protection && rule.speaks_of(asked);
            layer.protection >= protection || layer.rules.iter().any(weak)
        })
    }

    /// The classes of links that rules name, in alphabetical order.
    pub fn classes(&self) -> Vec<&str> {
        self.named(|subject| match subject {
            Subject::Links(class) => Some(class),
            _ => None,
        })
    }

    /// The classes of communicators that rules name, in alphabetical order; "*" for rules that speak of all.
    pub fn communicators(&self) -> Vec<&str> {
        self.named(|subject| match subject {
            Subject::Communicators(class) => Some(class.as_deref().unwrap_or("*")),
            _ => None,
        })
    }

    fn named(&self, name: impl Fn(&Subject) -> Option<&str>) -> Vec<&str> {
        let rules = self.layers.iter().flat_map(|layer| &layer.rules);
        let mut names: Vec<_> = rules.filter_map(|rule| name(&rule.subject)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Default for Policy {
    /// Everything private, nothing listed: what holds when nobody wrote a file.
    fn default() -> Self {
        Self {
            suite: Suite::Aes256Gcm,
            gap_timeout: DEFAULT_GAP_TIMEOUT,
            intra_host: IntraHost::Mpi,
            hosts: Vec::new(),
            partitions: Vec::new(),
            layers: vec![Layer { protection: Protection::Privacy, rules: Vec::new() }],
            files: Vec::new(),
            origins: Vec::new(),
        }
    }
}

/// Policies are equal when processes that hold them agree; where rules were written does not count.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for Policy {}

fn index(position: usize) -> HostIndex {
    HostIndex(u16::try_from(position).expect("a policy lists at most HOSTS_MAX hosts"))
}

/// The class of links that have [`Protection::Integrity`] at least, whatever a policy says.
pub const CONTROL: &str = "control";
const DEFAULT_GAP_TIMEOUT: Duration = Duration::from_secs(30);
/// 0xFFFF means "unlisted".
const HOSTS_MAX: usize = 0xFFFF;
const PARTITIONS_MAX: usize = 256;
const RULES_MAX: usize = 4096;

#[cfg(test)]
mod tests;
