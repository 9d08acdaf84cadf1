//! `gambeson completion SHELL`: the completion script of a shell.

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
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "gambeson", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}
