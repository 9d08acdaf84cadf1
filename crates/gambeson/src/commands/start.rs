//! `gambeson start`: becomes the launcher, bound to the life of `gambeson run`. Not for people.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal, setpgid};

use crate::failure::Failure;

/// Starts a launcher
#[derive(Args)]
pub(crate) struct Arguments {
    /// Give it a process group of its own
    #[arg(long)]
    own_group: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (program, rest) = arguments.command.split_first().expect("clap requires a program");
    if arguments.own_group {
        // Being the leader of a group already is as good.
        let _ = setpgid(None, None);
    }
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Failure::system(format!("the job cannot be bound to this process ({error})")))?;
    let error = Command::new(program).args(rest).exec();
    Err(Failure::unavailable(format!("{} cannot be started ({error})", program.display())))
}
