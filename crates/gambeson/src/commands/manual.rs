//! `gambeson manual DIRECTORY`: writes the man pages; for the installation.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::failure::Failure;

/// Writes a man page per subcommand
#[derive(Args)]
pub(crate) struct Arguments {
    /// Where to write gambeson.1, gambeson-run.1, ...
    directory: PathBuf,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    clap_mangen::generate_to(Cli::command(), &arguments.directory).map_err(|error| {
        Failure::system(format!(
            "the man pages cannot be written to {} ({error}); name a directory that you may write",
            arguments.directory.display()
        ))
    })?;
    Ok(ExitCode::SUCCESS)
}
