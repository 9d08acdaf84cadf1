//! `gambeson sim`: experiments on a simulated fabric.

mod run;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gambeson_sim::Error;

use crate::failure::{Failure, Status};

/// Simulates fabrics whose adapters seal what they send
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Run(run::Arguments),
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match &arguments.what {
        What::Run(arguments) => run::execute(arguments),
    }
}

fn write(path: &Path, content: String) -> Result<(), Failure> {
    std::fs::write(path, content)
        .map_err(|error| Failure::system(format!("{} cannot be written: {error}", path.display())))
}

/// An error of the simulator as one of the command line.
fn failure(error: Error) -> Failure {
    let status = match error {
        Error::File { .. } => Status::Unavailable,
        _ => Status::Data,
    };
    Failure::new(status, error.to_string())
}

/// Nanoseconds as people write them.
fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e4 => format!("{ns:.0} ns"),
        _ if ns < 1e7 => format!("{:.1} us", ns / 1e3),
        _ if ns < 1e10 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}
