//! Makes one policy of the floor under /etc and the document chosen for the job (rule 8 of the threat model).
//!
//! A chosen document can only strengthen what is below it. Both stay as layers of the policy and
//! the stronger answer holds for every pair, so that no arrangement of rules can undercut the floor.

use std::time::Duration;

use super::document::{At, Document, Side, WrittenPartition, WrittenRule, is_partition};
use super::{
    DEFAULT_GAP_TIMEOUT, FileRule, HOSTS_MAX, IntraHost, Layer, PARTITIONS_MAX, Partition, Policy, PolicyError,
    RULES_MAX, Rule, Selector, index,
};
use crate::suite::{Protection, Suite};

/// The document chosen for the job, and how it came to be chosen.
#[derive(Clone, Copy, Debug)]
pub enum Chosen<'d> {
    /// Named on the command line: without a floor under /etc it may weaken the default.
    Named(&'d Document),
    /// Found in the working directory: anybody may have put it there, so the default is its floor.
    Found(&'d Document),
}

/// What [`resolve`] made.
#[derive(Debug)]
pub struct Resolution {
    /// The policy of the job.
    pub policy: Policy,
    /// Where the secret of each of the policy's partitions lies, in their order; nowhere for one of the site's.
    pub secret_files: Vec<Option<SecretFile>>,
    /// Sentences about what a document asked for without effect.
    pub notes: Vec<String>,
}

impl Resolution {
    /// Has the job run in a partition of the site, whatever else the policy says.
    ///
    /// # Errors
    /// A sentence: that cannot be its name, or the policy has the job run in another.
    pub fn run_in(&mut self, name: &str) -> Result<(), String> {
        if !is_partition(name) {
            return Err(format!("{name:?} is no name of a partition: up to 64 letters, digits, '-', '_' or '.' are"));
        }
        let partitions = &mut self.policy.partitions;
        match partitions.iter().find(|held| held.is_of_job() || held.name == name) {
            Some(held) if held.name == name && held.is_of_job() => return Ok(()),
            Some(held) if held.is_of_job() => return Err(two_partitions(&held.name, name)),
            Some(_) => {
                return Err(format!(
                    "the policy has a partition {name:?} with hosts and a secret of its own; rename that one, or leave its \
                     hosts and secret_file out if the site's is meant"
                ));
            }
            None if partitions.len() == PARTITIONS_MAX => return Err("the policy has no room for a partition".into()),
            None => partitions.push(Partition { name: name.to_owned(), epoch: 0, hosts: None }),
        }
        self.secret_files.push(None);
        Ok(())
    }
}

fn two_partitions(one: &str, other: &str) -> String {
    format!("the job is to run in partition \"{one}\" and in \"{other}\", and it runs in one; name one of them")
}

/// The file a partition's secret lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile {
    /// As written, perhaps relative to the document's directory.
    pub path: String,
    /// The document that says so.
    pub origin: String,
    /// The line of the partition.
    pub line: usize,
}

/// Makes one policy of the floor and the chosen document; neither has to exist.
pub fn resolve(floor: Option<&Document>, chosen: Option<Chosen<'_>>) -> Result<Resolution, PolicyError> {
    let mut builder = Builder::default();
    if let Some(document) = floor {
        builder.lower(document)?;
    }
    match chosen {
        None => {}
        Some(Chosen::Named(document)) if floor.is_none() => builder.lower(document)?,
        Some(Chosen::Named(document) | Chosen::Found(document)) => builder.raise(document)?,
    }
    builder.finish()
}

#[derive(Default)]
struct Builder {
    suite: Option<Suite>,
    gap_timeout: Option<Duration>,
    intra_host: Option<IntraHost>,
    hosts: Vec<String>,
    partitions: Vec<(WrittenPartition, String)>,
    layers: Vec<(Protection, Vec<WrittenRule>, String)>,
    files: Vec<Vec<FileRule>>,
    notes: Vec<String>,
}

impl Builder {
    /// Takes a document at its word: it is the lowest layer.
    fn lower(&mut self, document: &Document) -> Result<(), PolicyError> {
        self.suite = document.suite.as_ref().map(|suite| suite.value);
        self.gap_timeout = document.gap_timeout.as_ref().map(|time| time.value);
        self.intra_host = document.intra_host.as_ref().map(|place| place.value);
        self.layer(document)
    }

    /// Takes from a document only what strengthens what is there.
    fn raise(&mut self, document: &Document) -> Result<(), PolicyError> {
        let floor = self.floor_protection();
        if self.layers.is_empty() {
            // The default is the floor of a document that was merely found.
            self.layers.push((Protection::Privacy, Vec::new(), "the default".to_owned()));
            self.files.push(Vec::new());
        }
        if let Some(suite) = &document.suite {
            let held = self.suite.unwrap_or(Suite::Aes256Gcm);
            if (suite.value as u8) <= (held as u8) {
                self.suite = Some(suite.value);
            } else {
                self.note(document, suite.line, "its suite is weaker than the floor's");
            }
        }
        if let Some(time) = &document.gap_timeout {
            let held = self.gap_timeout.unwrap_or(DEFAULT_GAP_TIMEOUT);
            if time.value <= held {
                self.gap_timeout = Some(time.value);
            } else {
                self.note(document, time.line, "its gap_timeout is longer than the floor's");
            }
        }
        if let Some(place) = &document.intra_host {
            let held = self.intra_host.unwrap_or_default();
            if place.value >= held {
                self.intra_host = Some(place.value);
            } else {
                self.note(document, place.line, "its intra_host is weaker than the floor's");
            }
        }
        if let Some(At { value, line }) = &document.protection
            && *value > floor
        {
            self.note(document, *line, "its protection is weaker than the floor's default");
        }
        for rule in &document.rules {
            if rule.protection > floor {
                self.note(document, rule.line, "this rule is weaker than the floor's default");
            }
        }
        self.layer(document)
    }

    /// The default of the layers so far, which a higher document is measured against.
    fn floor_protection(&self) -> Protection {
        self.layers.iter().map(|(protection, ..)| *protection).min().unwrap_or(Protection::Privacy)
    }

    fn layer(&mut self, document: &Document) -> Result<(), PolicyError> {
        for partition in &document.partitions {
            self.partition(document, partition)?;
        }
        for rule in &document.rules {
            for side in &rule.between {
                if let Side::Host(host) = side {
                    self.hosts.push(host.clone());
                }
            }
        }
        let protection = match &document.protection {
            Some(protection) => protection.value,
            None if self.layers.is_empty() => Protection::Privacy,
            // A higher document that does not say leaves it to the floor, whatever the floor says.
            None => Protection::None,
        };
        self.layers.push((protection, document.rules.clone(), document.origin.clone()));
        self.files.push(document.files.clone());
        Ok(())
    }

    fn partition(&mut self, document: &Document, partition: &WrittenPartition) -> Result<(), PolicyError> {
        let twin = self.partitions.iter().find(|(held, _)| held.name == partition.name);
        if let Some((held, origin)) = twin {
            return Err(PolicyError::new(
                &document.origin,
                Some(partition.line),
                format!(
                    "partition \"{}\" is already defined at {origin}:{}; a partition has one definition, so remove or rename one of them",
                    partition.name, held.line
                ),
            ));
        }
        let of_job = self.partitions.iter().find(|(held, _)| held.hosts.is_none() && partition.hosts.is_none());
        if let Some((held, _)) = of_job {
            let what = two_partitions(&held.name, &partition.name);
            return Err(PolicyError::new(&document.origin, Some(partition.line), what));
        }
        self.hosts.extend(partition.hosts.iter().flatten().cloned());
        self.partitions.push((partition.clone(), document.origin.clone()));
        Ok(())
    }

    fn note(&mut self, document: &Document, line: usize, what: &str) {
        self.notes.push(format!(
            "{}:{line} asks for less than what is below it: {what}. Such a file can only strengthen; the floor holds.",
            document.origin
        ));
    }

    fn finish(mut self) -> Result<Resolution, PolicyError> {
        self.hosts.sort();
        self.hosts.dedup();
        let rules: usize = self.layers.iter().map(|(_, rules, _)| rules.len()).sum();
        for (count, most, what) in [
            (self.hosts.len(), HOSTS_MAX, "hosts"),
            (self.partitions.len(), PARTITIONS_MAX, "partitions"),
            (rules, RULES_MAX, "rules"),
            (self.files.iter().map(Vec::len).sum(), RULES_MAX, "rules about files"),
        ] {
            if count > most {
                let origin = self.layers.last().map_or("the policy", |layer| &layer.2);
                let message = format!(
                    "the policy names {count} {what}, more than the {most} it may; use subnets or partitions to say it shorter"
                );
                return Err(PolicyError::new(origin, None, message));
            }
        }
        let mut policy = Policy {
            suite: self.suite.unwrap_or(Suite::Aes256Gcm),
            gap_timeout: self.gap_timeout.unwrap_or(DEFAULT_GAP_TIMEOUT),
            intra_host: self.intra_host.unwrap_or_default(),
            hosts: self.hosts,
            // Layers without any are as if there were none.
            files: if self.files.iter().all(Vec::is_empty) { Vec::new() } else { self.files },
            ..Policy::default()
        };
        let mut secret_files = Vec::new();
        for (written, origin) in self.partitions {
            let hosts = written.hosts.map(|hosts| {
                let mut hosts: Vec<_> = hosts.iter().map(|host| position(&policy.hosts, host)).collect();
                hosts.sort_by_key(|host| host.0);
                hosts.dedup();
                hosts
            });
            policy.partitions.push(Partition { name: written.name, epoch: written.epoch, hosts });
            let line = written.line;
            secret_files.push(written.secret_file.map(|path| SecretFile { path, origin, line }));
        }
        if !self.layers.is_empty() {
            policy.layers.clear();
        }
        for (protection, written, origin) in self.layers {
            let mut rules = Vec::new();
            for rule in written {
                policy.origins.push(format!("the rule at {origin}:{}", rule.line));
                rules.push(resolve_rule(&policy, rule, &origin)?);
            }
            policy.layers.push(Layer { protection, rules });
        }
        Ok(Resolution { policy, secret_files, notes: self.notes })
    }
}

fn resolve_rule(policy: &Policy, rule: WrittenRule, origin: &str) -> Result<Rule, PolicyError> {
    let [one, other] = rule.between;
    let side = |side| match side {
        Side::Anywhere => Ok(Selector::Anywhere),
        Side::Subnet(subnet) => Ok(Selector::Subnet(subnet)),
        Side::Host(host) => Ok(Selector::Host(position(&policy.hosts, &host))),
        Side::Partition(name) => {
            let number = policy.partitions.iter().position(|partition| partition.name == name);
            match number {
                Some(number) => {
                    Ok(Selector::Partition(u16::try_from(number).expect("at most PARTITIONS_MAX partitions")))
                }
                None => Err(PolicyError::new(
                    origin,
                    Some(rule.line),
                    format!("no partition \"{name}\" is defined; add a [[partition]] of that name or correct the rule"),
                )),
            }
        }
    };
    Ok(Rule { between: [side(one)?, side(other)?], subject: rule.subject, protection: rule.protection })
}

fn position(hosts: &[String], host: &String) -> crate::identity::HostIndex {
    index(hosts.binary_search(host).expect("every host written was listed before"))
}
