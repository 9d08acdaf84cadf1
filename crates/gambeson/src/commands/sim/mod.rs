//! `gambeson sim`: experiments on a simulated fabric.

mod advise;
mod capacity;
mod keys;
mod reproduce;
mod run;
mod sweep;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gambeson_study::Error;

use crate::failure::{Failure, Status};

/// Simulates fabrics whose adapters seal what they send
#[derive(Args)]
#[command(after_long_help = TOUR, version = gambeson_sim::VERSION)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Run(run::Arguments),
    Sweep(sweep::Arguments),
    Advise(advise::Arguments),
    Capacity(capacity::Arguments),
    Keys(keys::Arguments),
    Reproduce(reproduce::Arguments),
}

const TOUR: &str = "\
An experiment is a file: topology, links, security in the adapters, filters in the switches, and
traffic or recorded jobs. Some to begin with are in examples/simulator.

  gambeson sim run mesh.toml                                   latencies, key look-ups, filters
  gambeson sim run mesh.toml --set traffic.0.load=0.5          the same with another value
  gambeson sim sweep mesh.toml --over traffic.0.load=0.1,0.5 --out DIR
                                                               a page, pictures and tables
  gambeson sim advise job.goal                                 how large a key cache a job wants
  gambeson sim capacity --keys 5000 --off-over-on 8            the same without a job, by a model
  gambeson sim keys --adapters 1024 --rate 100                 what it costs to get keys around
  gambeson sim reproduce all                                   two papers' figures, claim by claim

What run --json writes has all keys with their defaults. Equal seeds give equal results, on any
machine and any number of cores.";

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match &arguments.what {
        What::Run(arguments) => run::execute(arguments),
        What::Advise(arguments) => advise::execute(arguments),
        What::Capacity(arguments) => capacity::execute(arguments),
        What::Keys(arguments) => keys::execute(arguments),
        What::Sweep(arguments) => sweep::execute(arguments),
        What::Reproduce(arguments) => reproduce::execute(arguments),
    }
}

fn write(path: &Path, content: String) -> Result<(), Failure> {
    std::fs::write(path, content)
        .map_err(|error| Failure::system(format!("{} cannot be written: {error}", path.display())))
}

/// An error of the simulator as one of the command line.
fn failure(error: impl Into<Error>) -> Failure {
    let error = error.into();
    let status = match &error {
        Error::Input(cause) | Error::Run { cause, .. } => match cause {
            gambeson_sim::Error::File { .. } => Status::Unavailable,
            _ => Status::Data,
        },
        Error::Folder { .. } => Status::System,
        _ => Status::Data,
    };
    Failure::new(status, error.to_string())
}
