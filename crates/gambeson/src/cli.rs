//! The subcommands and what they have in common.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{completion, manual, policy};
use crate::failure::{Failure, STATUSES};

/// Runs parallel programs so that every message between their processes is sealed.
#[derive(Parser)]
#[command(name = "gambeson", version, after_long_help = STATUSES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Policy(policy::Arguments),
    Completion(completion::Arguments),
    #[command(hide = true)]
    Manual(manual::Arguments),
}

impl Command {
    pub(crate) fn execute(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Policy(arguments) => policy::execute(&arguments),
            Self::Completion(arguments) => completion::execute(&arguments),
            Self::Manual(arguments) => manual::execute(&arguments),
        }
    }
}
