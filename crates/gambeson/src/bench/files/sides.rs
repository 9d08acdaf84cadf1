//! Who is compared: the plain program, the sealed one in its variants, and the plain one over another file system.

use gambeson_proto::file::FileSuite;
use serde::Serialize;

use crate::failure::Failure;
use crate::probe::files::work::{LABELS, Map, Seal};
use crate::probe::job::Side as Job;
use crate::probe::plan::bytes;

/// The label of the policy's rules.
pub(super) const LABEL: &str = "bench";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "side", rename_all = "snake_case")]
pub(super) enum Side {
    Plain,
    Sealed {
        #[serde(serialize_with = "named")]
        suite: FileSuite,
        block: u32,
        detached: bool,
    },
    /// Plain, over a mount of gocryptfs.
    Gocryptfs,
}

fn named<S: serde::Serializer>(suite: &FileSuite, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(suite.name())
}

impl Side {
    /// For tables.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Plain => "plain".into(),
            Self::Sealed { suite, block, detached } => {
                let detached = if *detached { ", detached" } else { "" };
                format!("sealed, {}, blocks of {}{detached}", suite.name(), bytes(*block as usize))
            }
            Self::Gocryptfs => "gocryptfs".into(),
        }
    }

    /// The job that does it.
    pub(super) fn job(&self) -> Job {
        if matches!(self, Self::Sealed { .. }) { Job::Sealed } else { Job::Plain }
    }

    /// How the names of its files end: the policy's rules go by that.
    pub(super) fn ending(&self) -> String {
        match self {
            Self::Sealed { suite, block, detached: false } => format!("{}.{block}", suite.name()),
            Self::Sealed { suite, block, detached: true } => format!("{}.{block}.detached", suite.name()),
            Self::Plain | Self::Gocryptfs => "plain".into(),
        }
    }

    pub(super) fn suite(&self) -> FileSuite {
        if let Self::Sealed { suite, .. } = self { *suite } else { FileSuite::default() }
    }

    /// The policy's rule for its files.
    pub(super) fn rule(&self) -> Option<String> {
        let Self::Sealed { suite, block, detached } = self else { return None };
        Some(format!(
            "[[file]]\npattern = \"*.{}\"\nlabel = \"{LABEL}\"\nsuite = \"{}\"\nblock = \"{} KiB\"\ndetached = {detached}\n\n",
            self.ending(),
            suite.name(),
            block >> 10
        ))
    }

    /// Refuses to go on when a file is not what this side is about: then the comparison would say nothing.
    pub(super) fn check(&self, name: &str, seal: Option<&Seal>, map: Map, ranks: usize) -> Result<(), Failure> {
        let refused = |what: String| Err(Failure::refused(format!("nothing can be compared: {name}, {what}")));
        let side = self.name();
        match (self, seal) {
            (Self::Plain | Self::Gocryptfs, None) => Ok(()),
            (Self::Plain | Self::Gocryptfs, Some(_)) => refused(format!("which the {side} side wrote, is sealed")),
            (Self::Sealed { .. }, None) => refused(
                "which the sealed side wrote, is in clear; something keeps libgambeson-mpi.so from the ranks, or a rule \
                 under /etc/gambeson has such files in clear"
                    .into(),
            ),
            (Self::Sealed { suite, block, detached }, Some(seal)) => {
                let mut labels = vec![LABEL];
                if map != Map::Rule {
                    labels.extend(LABELS.iter().take(ranks));
                }
                let mut found: Vec<&str> = seal.labels.iter().map(String::as_str).collect();
                found.sort_unstable();
                let is_same = seal.suites == [suite.name()] && seal.block == *block && seal.detached == *detached;
                match found == labels && is_same {
                    true => Ok(()),
                    false => refused(format!(
                        "is sealed under {} with {} in blocks of {}{}, where the {side} side has {}",
                        found.join(", "),
                        seal.suites.join(", "),
                        bytes(seal.block as usize),
                        if seal.detached { ", detached" } else { "" },
                        labels.join(", ")
                    )),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEALED: Side = Side::Sealed { suite: FileSuite::Xaes256Gcm, block: 65_536, detached: false };

    fn seal(labels: &[&str], block: u32) -> Seal {
        let labels = labels.iter().map(|&label| label.into()).collect();
        Seal { labels, suites: vec!["xaes-256-gcm".into()], block, detached: false }
    }

    #[test]
    fn a_side_that_is_not_what_it_says_is_refused() {
        let sentence = |side: Side, seal: Option<&Seal>, map| {
            side.check("x", seal, map, 2).err().map(|failure| failure.to_string()).unwrap_or_default()
        };
        let whole = seal(&["bench"], 65_536);
        assert_eq!(sentence(SEALED, Some(&whole), Map::Rule), "");
        assert_eq!(sentence(Side::Plain, None, Map::View), "");
        assert!(sentence(SEALED, None, Map::Rule).contains("is in clear"));
        assert!(sentence(Side::Plain, Some(&whole), Map::Rule).contains("is sealed"));
        assert!(sentence(SEALED, Some(&whole), Map::View).contains("bench-two"));
        assert!(sentence(SEALED, Some(&seal(&["bench"], 4096)), Map::Rule).contains("4 KiB"));
        let detached = Seal { detached: true, ..seal(&["bench"], 65_536) };
        assert!(sentence(SEALED, Some(&detached), Map::Rule).contains("detached"));
        assert_eq!(sentence(SEALED, Some(&seal(&["bench", "bench-one", "bench-two"], 65_536)), Map::Other), "");
    }
}
