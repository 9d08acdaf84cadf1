//! `gambeson file`: sealed files, looked at and changed from outside of any job.

mod accept;
mod cat;
mod diff;
mod held;
mod info;
mod map;
mod open;
mod opening;
mod parallel;
mod ranks;
mod rekey;
mod replace;
mod rewrap;
mod seal;
mod verify;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::machine;
use ranks::Ranks;

/// Looks at sealed files, and seals and opens whole ones
///
/// Programs under `gambeson run` seal what they write by the policy's file rules, and open what
/// they read; nothing here is needed for that. To look at a sealed file:
///
///   gambeson file info results.h5           what it says of itself, and what you may do with it
///   gambeson file verify results.h5         whether all of it is what was written
///   gambeson file cat results.h5 | head     its bytes
///
/// To seal what is plain, and to open what is sealed:
///
///   gambeson file seal results.h5 sealed.h5 --label clinical
///   gambeson file open sealed.h5 plain.h5
///
/// Keys come from your key store (`gambeson key`).
///
/// verify, seal, open, diff and rekey work on all cores, and started by mpiexec, on all ranks:
///
///   gambeson run -- mpiexec -n 8 gambeson file verify results.h5
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Info(info::Info),
    Verify(verify::Verify),
    Seal(seal::Seal),
    Open(open::Open),
    Cat(cat::Cat),
    Diff(diff::Diff),
    Accept(accept::Accept),
    Rewrap(rewrap::Rewrap),
    Rekey(rekey::Rekey),
}

/// What is said at the end of every command's help.
const STATUSES: &str = "\
Exit status:
  0   done; nothing is wrong
  1   something is wrong (verify), or the files differ (diff)
  64  the command line is wrong
  65  the file is no sealed file, or is one where a plain one is wanted
  69  a file, the key store or a label was not found
  70  refused: the file was altered, put back or never closed
  71  the operating system refused something
  75  nothing is wrong, but not everything could be looked at: keys are missing (verify)
  77  a key is missing, has expired or is for reading alone";

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Keys pass through this process: no other may look into it, and no core file hold them.
    machine::close_to_others()?;
    let started = ranks::started();
    let together = |act: &dyn Fn(&Ranks) -> Result<ExitCode, Failure>| ranks::together(started.as_ref(), act);
    match &arguments.action {
        Action::Verify(verify) => together(&|ranks| verify.execute(ranks)),
        Action::Seal(seal) => together(&|ranks| seal.execute(ranks)),
        Action::Open(open) => together(&|ranks| open.execute(ranks)),
        Action::Diff(diff) => together(&|ranks| diff.execute(ranks)),
        Action::Rekey(rekey) => together(&|ranks| rekey.execute(ranks)),
        // What is not shared one process does.
        _ if started.is_some_and(|started| started.rank > 0) => Ok(ExitCode::SUCCESS),
        Action::Info(info) => info.execute(),
        Action::Cat(cat) => cat.execute(),
        Action::Accept(accept) => accept.execute(),
        Action::Rewrap(rewrap) => rewrap.execute(),
    }
}
