//! A `gambeson.toml` as somebody wrote it: read strictly, with the line of everything kept for later sentences.

use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::decide::Subnet;
use super::files::{self, FileRule};
use super::{CONTROL, IntraHost, PolicyError, Subject};
use crate::file::FileSuite;
use crate::file::geometry::BLOCK_LEN;
use crate::startpoint::CLASS_MAX;
use crate::suite::{Protection, Suite};

/// One parsed `gambeson.toml`; [`super::resolve`] makes it a policy.
#[derive(Clone, Debug)]
pub struct Document {
    pub(super) origin: String,
    pub(super) protection: Option<At<Protection>>,
    pub(super) suite: Option<At<Suite>>,
    pub(super) gap_timeout: Option<At<Duration>>,
    pub(super) intra_host: Option<At<IntraHost>>,
    pub(super) partitions: Vec<WrittenPartition>,
    pub(super) rules: Vec<WrittenRule>,
    pub(super) files: Vec<FileRule>,
}

/// A value and the line it was written on.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

#[derive(Clone, Debug)]
pub(super) struct WrittenPartition {
    pub(super) name: String,
    /// None: it is the site's, and so are its epoch and its secret.
    pub(super) hosts: Option<Vec<String>>,
    pub(super) epoch: u32,
    pub(super) secret_file: Option<String>,
    pub(super) line: usize,
}

#[derive(Clone, Debug)]
pub(super) struct WrittenRule {
    pub(super) between: [Side; 2],
    pub(super) subject: Subject,
    pub(super) protection: Protection,
    pub(super) line: usize,
}

/// One side of a rule before its names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Anywhere,
    Host(String),
    Subnet(Subnet),
    Partition(String),
}

impl Document {
    /// Reads the text of a `gambeson.toml`; `origin` is the path sentences about it name.
    pub fn parse(text: &str, origin: &str) -> Result<Self, PolicyError> {
        let raw: RawDocument = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, &span));
            let message = format!(
                "{}; see `gambeson policy check --help` for the words a policy knows",
                error.message().replace('\n', " ")
            );
            PolicyError::new(origin, line, message)
        })?;
        Reader { text, origin }.document(raw)
    }

    /// The path the document was read from.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// Turns raw strings into values that are already legal.
struct Reader<'t> {
    text: &'t str,
    origin: &'t str,
}

impl Reader<'_> {
    fn document(&self, raw: RawDocument) -> Result<Document, PolicyError> {
        Ok(Document {
            origin: self.origin.to_owned(),
            protection: raw.protection.map(|word| self.protection(&word)).transpose()?,
            suite: raw.suite.map(|word| self.suite(&word)).transpose()?,
            gap_timeout: raw.gap_timeout.map(|word| self.duration(&word)).transpose()?,
            intra_host: raw.intra_host.map(|word| self.intra_host(&word)).transpose()?,
            partitions: raw
                .partition
                .into_iter()
                .map(|partition| self.partition(partition))
                .collect::<Result<_, _>>()?,
            rules: raw.rule.into_iter().map(|rule| self.rule(rule)).collect::<Result<_, _>>()?,
            files: raw.file.into_iter().map(|rule| self.file(rule)).collect::<Result<_, _>>()?,
        })
    }

    fn protection(&self, word: &Spanned<String>) -> Result<At<Protection>, PolicyError> {
        self.word(word, "protection", Protection::from_name, "\"privacy\", \"integrity\" or \"none\"")
    }

    fn suite(&self, word: &Spanned<String>) -> Result<At<Suite>, PolicyError> {
        self.word(word, "suite", Suite::from_name, "\"aes-256-gcm\" or \"aes-128-gcm\"")
    }

    fn intra_host(&self, word: &Spanned<String>) -> Result<At<IntraHost>, PolicyError> {
        self.word(word, "intra_host", IntraHost::from_name, "\"mpi\" or \"sealed\"")
    }

    fn word<T>(
        &self,
        word: &Spanned<String>,
        key: &str,
        from_name: fn(&str) -> Option<T>,
        known: &str,
    ) -> Result<At<T>, PolicyError> {
        match from_name(word.get_ref()) {
            Some(value) => Ok(self.at(word, value)),
            None => Err(self.wrong(word.span(), format!("{key} \"{}\" is unknown; write {known}", word.get_ref()))),
        }
    }

    fn duration(&self, word: &Spanned<String>) -> Result<At<Duration>, PolicyError> {
        match duration(word.get_ref()) {
            Some(value) if (GAP_TIMEOUT_MIN..=GAP_TIMEOUT_MAX).contains(&value) => Ok(self.at(word, value)),
            _ => Err(self.wrong(
                word.span(),
                format!(
                    "gap_timeout \"{}\" is no time between 100 ms and 1 h; write for example \"30 s\"",
                    word.get_ref()
                ),
            )),
        }
    }

    fn partition(&self, raw: Spanned<RawPartition>) -> Result<WrittenPartition, PolicyError> {
        let line = line_of(self.text, &raw.span());
        let raw = raw.into_inner();
        let name = raw.name.get_ref();
        if !is_partition(name) {
            return Err(self.wrong(
                raw.name.span(),
                format!("partition name \"{name}\" is not usable; use up to 64 letters, digits, '-', '_' or '.'"),
            ));
        }
        let of_site = match (&raw.hosts, &raw.secret_file) {
            (Some(_), Some(_)) => false,
            (None, None) if raw.epoch.is_none() => true,
            _ => {
                return Err(self.wrong(
                    raw.name.span(),
                    format!(
                        "partition \"{name}\" has some of hosts, epoch and secret_file; a partition of this file's has hosts and \
                         secret_file, and one of the site's (`gambeson partition`) has none of them"
                    ),
                ));
            }
        };
        let mut hosts = Vec::new();
        for host in raw.hosts.iter().flatten() {
            match self.side(host)? {
                Side::Host(host) => hosts.push(host),
                _ => {
                    return Err(self.wrong(
                        host.span(),
                        format!(
                            "partition \"{name}\" lists \"{}\", but only host names may be members: an address proves no membership",
                            host.get_ref()
                        ),
                    ));
                }
            }
        }
        Ok(WrittenPartition {
            name: name.clone(),
            hosts: (!of_site).then_some(hosts),
            epoch: raw.epoch.unwrap_or(u32::from(!of_site)),
            secret_file: raw.secret_file,
            line,
        })
    }

    fn rule(&self, raw: Spanned<RawRule>) -> Result<WrittenRule, PolicyError> {
        let line = line_of(self.text, &raw.span());
        let raw = raw.into_inner();
        let sides = raw.between.get_ref();
        let [one, other] = sides.as_slice() else {
            return Err(self.wrong(
                raw.between.span(),
                format!(
                    "a rule's `between` names two sides, this one names {}; write the same side twice for traffic within it",
                    sides.len()
                ),
            ));
        };
        let protection = self.protection(&raw.protection)?.value;
        let subject = match (&raw.class, &raw.communicator) {
            (None, None) => Subject::All,
            (Some(word), None) => Subject::Links(self.class(word)?.into()),
            (None, Some(word)) if word.get_ref() == "*" => Subject::Communicators(None),
            (None, Some(word)) => Subject::Communicators(Some(self.class(word)?.into())),
            (Some(_), Some(word)) => {
                let what = "a rule speaks of links of a class or of communicators, not of both; write two rules";
                return Err(self.wrong(word.span(), what.to_owned()));
            }
        };
        if subject == Subject::Links(CONTROL.into()) && protection == Protection::None {
            let what = "links of class \"control\" are never without protection; write \"integrity\" or \"privacy\"";
            return Err(self.wrong(raw.protection.span(), what.to_owned()));
        }
        Ok(WrittenRule { between: [self.side(one)?, self.side(other)?], subject, protection, line })
    }

    fn file(&self, raw: RawFile) -> Result<FileRule, PolicyError> {
        let (pattern, label) = (raw.pattern.get_ref(), raw.label.get_ref());
        if !files::is_pattern(pattern) {
            let what =
                format!("pattern \"{pattern}\" is no name of files; write for example \"*.h5\" or \"/data/trial/**\"");
            return Err(self.wrong(raw.pattern.span(), what));
        }
        if label != NO_LABEL && !is_label(label) {
            let what = format!(
                "label \"{label}\" is none; write the name of a key label (`gambeson key list`), or \"{NO_LABEL}\" for files that are to be in clear"
            );
            return Err(self.wrong(raw.label.span(), what));
        }
        let known = "\"xaes-256-gcm\" or \"aes-256-gcm-siv\"";
        let suite = raw.suite.map(|word| {
            let suite = self.word(&word, "suite", FileSuite::from_name, known)?.value;
            if suite.has_integrity() {
                return Ok(suite);
            }
            let what = format!(
                "suite \"{suite}\" is without integrity, which no rule gives to files that do not ask for it; write {known}"
            );
            Err(self.wrong(word.span(), what))
        });
        let block_len = raw.block.map(|word| {
            files::block_len(word.get_ref()).ok_or_else(|| {
                let what = format!(
                    "block \"{}\" is no power of two from 4 KiB to 1 MiB; write for example \"64 KiB\"",
                    word.get_ref()
                );
                self.wrong(word.span(), what)
            })
        });
        let two_slots = match raw.slots.as_ref().map(|slots| (slots.get_ref(), slots)) {
            None | Some((1, _)) => false,
            Some((2, _)) => true,
            Some((number, slots)) => {
                let what = format!("a block has 1 slot, or 2 so that a killed writer loses nothing; not {number}");
                return Err(self.wrong(slots.span(), what));
            }
        };
        let detached = raw.detached.filter(|detached| *detached.get_ref());
        if two_slots && let Some(detached) = detached {
            let what = "a detached file has one slot for each block; leave detached or slots away";
            return Err(self.wrong(detached.span(), what.to_owned()));
        }
        Ok(FileRule {
            pattern: pattern.clone(),
            label: (label != NO_LABEL).then(|| label.clone()),
            suite: suite.transpose()?.unwrap_or_default(),
            block_len: block_len.transpose()?.unwrap_or(BLOCK_LEN),
            two_slots,
            detached: detached.is_some(),
        })
    }

    fn class(&self, word: &Spanned<String>) -> Result<String, PolicyError> {
        let name = word.get_ref();
        if is_class(name) {
            return Ok(name.clone());
        }
        let what = format!("class \"{name}\" is none; use up to {CLASS_MAX} letters, digits, '-', '_' or '.'");
        Err(self.wrong(word.span(), what))
    }

    fn side(&self, word: &Spanned<String>) -> Result<Side, PolicyError> {
        let text = word.get_ref().as_str();
        if text == "*" {
            return Ok(Side::Anywhere);
        }
        if let Some(name) = text.strip_prefix("partition:") {
            return Ok(Side::Partition(name.to_owned()));
        }
        if text.contains('/') || text.parse::<std::net::IpAddr>().is_ok() {
            return match Subnet::parse(text) {
                Some(subnet) => Ok(Side::Subnet(subnet)),
                None => Err(self.wrong(
                    word.span(),
                    format!("\"{text}\" is no subnet; write the network's own address and its prefix, as 10.77.0.0/24 or fd00::/8"),
                )),
            };
        }
        let host = text.trim_end_matches('.').to_ascii_lowercase();
        if host.is_empty() || host.len() > 253 || !host.chars().all(is_name_character) {
            return Err(
                self.wrong(word.span(), format!("\"{text}\" is no host name, subnet, \"partition:NAME\" or \"*\""))
            );
        }
        Ok(Side::Host(host))
    }

    fn at<T>(&self, word: &Spanned<String>, value: T) -> At<T> {
        At { value, line: line_of(self.text, &word.span()) }
    }

    fn wrong(&self, span: Range<usize>, message: String) -> PolicyError {
        PolicyError::new(self.origin, Some(line_of(self.text, &span)), message)
    }
}

/// `30 s`, `500 ms`, `2 min` or `1 h`, with or without the space.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit_at = text.find(|character: char| !character.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_at);
    let count: u64 = count.parse().ok()?;
    let milliseconds = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    count.checked_mul(milliseconds).map(Duration::from_millis)
}

/// Whether a link, or a communicator, can be of a class of this name.
pub fn is_class(name: &str) -> bool {
    (1..=CLASS_MAX).contains(&name.len()) && name.chars().all(is_name_character)
}

/// Whether a file rule, and a key store, can have a label of this name; `none` says that there is none.
pub fn is_label(name: &str) -> bool {
    (1..=LABEL_MAX).contains(&name.len()) && name != NO_LABEL && name.chars().all(is_name_character)
}

/// Whether a partition can be called so.
pub fn is_partition(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(is_name_character)
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// What a file rule says in place of a label, of files that are in clear by decision.
const NO_LABEL: &str = "none";
/// Bytes of a label's name.
const LABEL_MAX: usize = 64;
pub(super) const GAP_TIMEOUT_MIN: Duration = Duration::from_millis(100);
pub(super) const GAP_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDocument {
    protection: Option<Spanned<String>>,
    suite: Option<Spanned<String>>,
    gap_timeout: Option<Spanned<String>>,
    intra_host: Option<Spanned<String>>,
    #[serde(default)]
    partition: Vec<Spanned<RawPartition>>,
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
    #[serde(default)]
    file: Vec<RawFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    pattern: Spanned<String>,
    label: Spanned<String>,
    suite: Option<Spanned<String>>,
    block: Option<Spanned<String>>,
    slots: Option<Spanned<i64>>,
    detached: Option<Spanned<bool>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPartition {
    name: Spanned<String>,
    hosts: Option<Vec<Spanned<String>>>,
    epoch: Option<u32>,
    secret_file: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    between: Spanned<Vec<Spanned<String>>>,
    class: Option<Spanned<String>>,
    communicator: Option<Spanned<String>>,
    protection: Spanned<String>,
}
