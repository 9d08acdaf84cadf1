//! Which files are sealed: those that say so themselves, and new ones for which the job's policy has a rule.

use std::path::Path;
use std::sync::OnceLock;

use gambeson_file::{Form, Shape, data_missing, form, sidecar};
use gambeson_proto::policy::{FileRule, Policy};
use gambeson_site::job;
use gambeson_site::policy::decide_file;

use crate::sealed::New;

/// What becomes of a file that is being opened.
pub(crate) enum Decision {
    /// The MPI library has it.
    Plain,
    /// It is sealed already.
    Sealed { detached: bool },
    /// It is to be sealed, and there is nothing in it yet.
    New(New),
    /// The policy has it sealed, and it is not.
    Refused(String),
}

/// Decides at the first rank, for all.
pub(crate) fn decide(path: &Path) -> Decision {
    // What can't be looked at the library says itself.
    let is_empty = match form(path).unwrap_or(Form::Empty) {
        Form::Attached => return Decision::Sealed { detached: false },
        Form::Detached => return Decision::Sealed { detached: true },
        Form::DataMissing => return Decision::Refused(format!("{}: {}", path.display(), data_missing(path))),
        Form::Empty => true,
        Form::Plain => false,
    };
    let Some(rule) = rule(path) else { return Decision::Plain };
    let Some(label) = rule.label.clone() else { return Decision::Plain };
    if !is_empty {
        let lost = match rule.detached {
            true => format!(", or its sidecar {} is gone", sidecar(path).file_name().unwrap_or_default().display()),
            false => String::new(),
        };
        return Decision::Refused(format!(
            "{}: the policy has it sealed under label \"{label}\" (pattern \"{}\"), and it is in clear{lost}; seal it with `gambeson file seal`, or remove it",
            path.display(),
            rule.pattern
        ));
    }
    let shape = Shape { block_len: rule.block_len, two_slots: rule.two_slots, detached: rule.detached };
    Decision::New(New { label, suite: rule.suite, shape })
}

/// Whether a file that no rule seals is to be a detached one, should a map be laid over it.
pub(crate) fn is_detached(path: &Path) -> bool {
    rule(path).is_some_and(|rule| rule.detached)
}

/// What the policy of the job says of a file. A process of no job has none.
fn rule(path: &Path) -> Option<&'static FileRule> {
    static POLICY: OnceLock<Option<Policy>> = OnceLock::new();
    let policy = POLICY.get_or_init(|| job::find("the library for files").ok().map(|job| job.credential.policy));
    decide_file(policy.as_ref()?, path)
}
