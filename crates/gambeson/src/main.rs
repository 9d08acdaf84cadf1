//! The `gambeson` command line.

#![deny(unsafe_code)]

mod audit;
mod bench;
mod cli;
mod commands;
mod fabric_info;
mod failure;
mod hosts;
mod job;
mod keys;
mod launcher;
mod libraries;
mod machine;
#[allow(unsafe_code)] // speaks C to the MPI library
mod mpi;
mod pem;
mod plan;
mod policy_files;
mod probe;
mod proxy;
mod python;
mod reach;
mod relay;
mod report;
mod supervise;
mod trace;

use std::env;
use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::Cli;
use failure::Status;

fn main() -> ExitCode {
    let complain = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !reader_left(info.payload_as_str()) {
            complain(info);
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|payload| {
        if reader_left(payload.downcast_ref::<String>().map(String::as_str)) {
            return Status::ReaderLeft.into();
        }
        panic::resume_unwind(payload)
    })
}

/// Whether a panic says that nobody reads what is printed any more, as behind `| head`. Then the command ends quietly, and
/// takes down what it has set up on the way; the signal would have ended it before that.
fn reader_left(panic: Option<&str>) -> bool {
    panic.is_some_and(|what| what.starts_with("failed printing to std") && what.contains("Broken pipe"))
}

fn command() -> ExitCode {
    gambeson_pkcs11::ask_with(keys::pin);
    let outcome = match as_agent() {
        Some(arguments) => commands::agent::execute(&arguments),
        None => match Cli::try_parse() {
            Ok(cli) => cli.command.execute(),
            Err(error) => {
                let _ = error.print();
                // What is forgotten first; clap takes mpiexec for an argument that it does not know.
                if error.to_string().contains("MPIEXEC") && !env::args_os().any(|word| word == "--") {
                    eprintln!("{SEPARATOR}");
                }
                return match error.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                    _ => Status::Usage.into(),
                };
            }
        },
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("gambeson: {failure}");
        failure.status.into()
    })
}

/// The arguments of a launcher that knows this program as its ssh, by the link in the job's directory.
fn as_agent() -> Option<Vec<OsString>> {
    let mut arguments = env::args_os();
    let name = arguments.next()?;
    (Path::new(&name).file_name()? == job::AGENT).then(|| arguments.collect())
}

const SEPARATOR: &str = "
Put `--` between Gambeson's own options and mpiexec: gambeson run -- mpiexec -n 4 ./program";
