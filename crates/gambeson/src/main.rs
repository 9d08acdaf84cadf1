//! The `gambeson` command line.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod fabric_info;
mod failure;
mod hosts;
mod job;
mod launcher;
mod libraries;
mod machine;
mod plan;
mod policy_files;
mod report;
mod supervise;

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
