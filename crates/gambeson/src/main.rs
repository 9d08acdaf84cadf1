//! The `gambeson` command line.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod failure;
mod policy_files;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::Cli;
use failure::Status;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => Status::Usage.into(),
            };
        }
    };
    match cli.command.execute() {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("gambeson: {failure}");
            failure.status.into()
        }
    }
}
