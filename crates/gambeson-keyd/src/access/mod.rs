//! Who may do what with a label.
//!
//! A label has grants, each for a role of certificates, with an end or without. What somebody is told who may not see a
//! label is the same whether it exists or not; the log has the true reason.

mod label;

use std::fmt;

use gambeson_keys::Entry;
use gambeson_proto::directory::date;
use serde::{Deserialize, Serialize};

pub(crate) use label::VERSIONS_MAX;
pub use label::{LABEL, LabelRecord};

use crate::Error;

/// Who asks, as his certificate and his connection say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// The name of his certificate.
    pub name: String,
    /// Its roles, as `user:ann` or `dns:h1`.
    pub roles: Vec<String>,
    /// The hash of his key, in hexadecimal.
    pub key: String,
    /// The host or address that he asks from.
    pub from: String,
}

/// What one may do with a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Unwrap data keys, and verify signatures.
    Read,
    /// Wrap data keys and sign, which implies to read.
    Write,
    /// Rotate, expire, grant, revoke, delete, and put anchors back, which does not imply to read.
    Administer,
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    /// See [`Right::Read`].
    pub read: bool,
    /// See [`Right::Write`].
    pub write: bool,
    /// See [`Right::Administer`].
    pub administer: bool,
}

/// That who has a role has rights, for some time or for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// A role: `user:ann`, `dns:h1`; `user:*` is everybody who has a role that begins so.
    pub who: String,
    /// What they may.
    pub rights: Rights,
    /// Until when, in seconds since 1970.
    pub until: Option<u64>,
}

/// Why somebody may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What he is told.
    pub answer: String,
    /// The true reason, for the log.
    pub reason: String,
}

/// Whether somebody may do something with a label, and until when at most. `record`: none if there is no such label.
///
/// # Errors
/// Why not.
pub fn decide(
    label: &str,
    record: Option<&LabelRecord>,
    who: &Who,
    right: Right,
    now: u64,
) -> Result<Option<u64>, Refusal> {
    let principal = who.principal();
    let unknown = |reason: String| Refusal {
        answer: format!(
            "no label \"{label}\" is known to you there: it does not exist or nobody granted it to {principal}; its \
             administrator can: gambeson key grant {label} {principal} --{right}"
        ),
        reason,
    };
    let Some(record) = record else {
        return Err(unknown("there is no such label".into()));
    };
    let theirs = || record.grants.iter().filter(|grant| grant.is_for(who));
    let in_force = || theirs().filter(|grant| !grant.is_over(now));
    let untils = in_force().filter(|grant| grant.rights.allow(right)).map(|grant| grant.until);
    // One without an end outlasts the others.
    if let Some(until) = untils.reduce(|one, other| one.zip(other).map(|(one, other)| one.max(other))) {
        return Ok(until);
    }
    if let Some(until) = theirs().filter(|grant| grant.rights.allow(right)).filter_map(|grant| grant.until).max() {
        let ended = format!("what was granted of label \"{label}\" to {principal} ended on {}", date(until));
        let answer = format!(
            "{ended}; its administrator can extend it: gambeson key grant {label} {principal} --{right} --until ..."
        );
        return Err(Refusal { answer, reason: ended });
    }
    let rights = in_force().map(|grant| grant.rights).reduce(Rights::or).unwrap_or_default();
    if rights == Rights::default() {
        return Err(unknown("no grant is for any of his roles".into()));
    }
    let reason = format!("{principal} may {rights} label \"{label}\", and not {right} it");
    let answer =
        format!("{reason}; its administrator can change that: gambeson key grant {label} {principal} --{right}");
    Err(Refusal { answer, reason })
}

/// The keys of a label that somebody may have: versions whose lifetime is not over, none longer than his grant, and signing
/// keys only for who may write and asks for it.
///
/// # Errors
/// Why he gets none.
pub fn keys_for(
    label: &str,
    record: Option<&LabelRecord>,
    who: &Who,
    rights: gambeson_keys::Rights,
    now: u64,
) -> Result<Entry, Refusal> {
    let writing = rights == gambeson_keys::Rights::ReadAndWrite;
    let until = decide(label, record, who, if writing { Right::Write } else { Right::Read }, now)?;
    let entry = &record.expect("nobody may do anything with no label").entry;
    let refusal = |reason: String, remedy: &str| Refusal { answer: format!("{reason}; {remedy}"), reason };
    let newest = entry.newest();
    if writing && !newest.may_write() {
        let reason = format!("label \"{label}\" is there for reading alone, without its signing key");
        return Err(refusal(reason, "ask its owner for an export that may write"));
    }
    // An older version that is served longer is no way round: what is new is not to be sealed with that.
    if let Some(since) = newest.expires.filter(|_| writing && newest.is_over(now)) {
        let reason = format!("version {} of label \"{label}\" expired on {}", newest.number, date(since));
        let remedy = format!("gambeson key expire {label} --on never, or rotate it: gambeson key rotate {label}");
        return Err(refusal(reason, &format!("its administrator can extend it: {remedy}")));
    }
    entry.narrowed(rights, until).in_force(now).ok_or_else(|| {
        let last = entry.versions().iter().filter_map(|version| version.expires).max().unwrap_or(now);
        let reason = format!("label \"{label}\" expired on {}, with all its versions", date(last));
        refusal(reason, &format!("its administrator can extend it: gambeson key expire {label} --on never"))
    })
}

/// Whether he may see that a label exists: who has any right to it. Officers may, too; the caller knows those.
pub fn may_see(record: &LabelRecord, who: &Who, now: u64) -> bool {
    record.grants.iter().any(|grant| grant.is_for(who) && !grant.is_over(now) && grant.rights != Rights::default())
}

impl Who {
    /// The role that is his own name: a person's, or a host's.
    pub fn principal(&self) -> &str {
        let named = |role: &&String| role.starts_with("user:") || role.starts_with("dns:");
        self.roles.iter().rfind(named).or(self.roles.last()).unwrap_or(&self.name)
    }

    /// Whether he has a role; `user:*` is any that begins so.
    pub fn has(&self, role: &str) -> bool {
        match role.strip_suffix('*') {
            Some(begin) => self.roles.iter().any(|held| held.len() > begin.len() && held.starts_with(begin)),
            None => self.roles.iter().any(|held| held == role),
        }
    }

    /// The service itself, where it does something that nobody asked for.
    pub fn service() -> Who {
        Who { name: "gambeson keyd".into(), roles: Vec::new(), key: String::new(), from: "here".into() }
    }
}

impl Grant {
    /// A grant, if its role is one.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(who: &str, rights: Rights, until: Option<u64>) -> Result<Self, Error> {
        let grant = Grant { who: who.to_owned(), rights, until };
        if grant.is_legal() { Ok(grant) } else { Err(Error::NoRole { who: who.to_owned() }) }
    }

    /// Whether it is for somebody.
    pub fn is_for(&self, who: &Who) -> bool {
        who.has(&self.who)
    }

    /// Whether its time is over.
    pub fn is_over(&self, now: u64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// A role has a kind, so that `*` is never everybody whoever it is.
    pub(crate) fn is_legal(&self) -> bool {
        let printable = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        self.who.len() <= ROLE_MAX
            && self.who.split_once(':').is_some_and(|(kind, name)| {
                let name = if name == "*" { "all" } else { name };
                !kind.is_empty()
                    && !name.is_empty()
                    && printable(&self.who)
                    && !kind.contains('*')
                    && !name.contains('*')
            })
    }
}

impl Rights {
    /// All of them: what who creates a label has.
    pub const ALL: Rights = Rights { read: true, write: true, administer: true };

    /// Whether the right is among them, or implied by one that is.
    pub fn allow(self, right: Right) -> bool {
        match right {
            Right::Read => self.read || self.write,
            Right::Write => self.write,
            Right::Administer => self.administer,
        }
    }

    /// What is in one of two sets.
    #[must_use]
    pub fn or(self, other: Rights) -> Rights {
        Rights {
            read: self.read || other.read,
            write: self.write || other.write,
            administer: self.administer || other.administer,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Administer => "administer",
        })
    }
}

/// As `read and write`.
impl fmt::Display for Rights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(self.read, "read"), (self.write, "write"), (self.administer, "administer")];
        let words: Vec<&str> = words.into_iter().filter_map(|(has, word)| has.then_some(word)).collect();
        out.write_str(if words.is_empty() { "nothing" } else { "" })?;
        out.write_str(&words.join(" and "))
    }
}

/// Longer than names of people and hosts are.
const ROLE_MAX: usize = 300;
