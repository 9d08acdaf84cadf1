//! Which files are sealed: those that say so themselves, and new ones for which the job's policy has a rule.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use gambeson_file::{Shape, is_sealed};
use gambeson_proto::policy::{FileRule, Policy};
use gambeson_site::job;
use gambeson_site::policy::decide_file;

use crate::sealed::New;

/// What becomes of a file that is being opened.
pub(crate) enum Decision {
    /// The MPI library has it.
    Plain,
    /// It is sealed already.
    Sealed,
    /// It is to be sealed, and there is nothing in it yet.
    New(New),
    /// The policy has it sealed, and it is not.
    Refused(String),
}

/// Decides at the first rank, for all.
pub(crate) fn decide(path: &Path) -> Decision {
    let mut start = [0; 8];
    let length = match File::open(path) {
        Ok(mut file) => {
            let length = file.metadata().map_or(0, |metadata| metadata.len());
            if file.read_exact(&mut start).is_ok() && is_sealed(&start) {
                return Decision::Sealed;
            }
            length
        }
        Err(_) => 0,
    };
    let Some(rule) = rule(path) else { return Decision::Plain };
    let Some(label) = rule.label.clone() else { return Decision::Plain };
    if length > 0 {
        return Decision::Refused(format!(
            "{}: the policy has it sealed under label \"{label}\" (pattern \"{}\"), and it is in clear; seal it with `gambeson file seal`, or remove it",
            path.display(),
            rule.pattern
        ));
    }
    let shape = Shape { block_len: rule.block_len, two_slots: rule.two_slots };
    Decision::New(New { label, suite: rule.suite, shape })
}

/// What the policy of the job says of a file. A process of no job has none.
fn rule(path: &Path) -> Option<&'static FileRule> {
    static POLICY: OnceLock<Option<Policy>> = OnceLock::new();
    let policy = POLICY.get_or_init(|| job::find("the library for files").ok().map(|job| job.credential.policy));
    decide_file(policy.as_ref()?, path)
}
