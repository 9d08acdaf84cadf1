//! `gambeson completion SHELL`: the completion script of a shell.

use std::io;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;

/// Prints the completion script of a shell
#[derive(Args)]
pub(crate) struct Arguments {
    /// Which shell
    shell: Shell,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    clap_complete::generate(arguments.shell, &mut Cli::command(), "gambeson", &mut io::stdout());
    Ok(ExitCode::SUCCESS)
}
