//! `gambeson bench farm`, which the Python package carries out.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, STATUSES};
use crate::python::{self, Finds};

/// The task farm: the figures of the paper on secure muskel again, plain and sealed in alternation
#[derive(Args)]
#[command(after_long_help = format!("{WHAT_IS_MEASURED}\n\n{STATUSES}"))]
pub(super) struct Farm {
    /// Which figures
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "FIGURES",
        default_value = "speedup,bandwidth,iso-grain,share,serialisation,proxy"
    )]
    only: Vec<Figure>,
    /// As many workers at the most
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Rounds, each of all sides
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Less of everything: for a look, not for figures
    #[arg(long)]
    quick: bool,
    /// Workers on this host even where they can have network namespaces of their own
    #[arg(long)]
    local: bool,
    /// What random messages are made from
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw pictures into this folder, as SVG and PNG (matplotlib)
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// The Python that has Gambeson's package; without it python3 beside this program, of the virtual environment, or in PATH
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

/// One of the paper's figures, or the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Speed-up against workers (Fig. 3)
    Speedup,
    /// Bandwidth against the length of messages (Fig. 4, left)
    Bandwidth,
    /// Speed-up at the same grain (Fig. 4, right)
    IsoGrain,
    /// Speed-up against the share of sealed links, and who got how many tasks (Fig. 5)
    Share,
    /// Pickling beside sealing, which Fig. 6 is about
    Serialisation,
    /// Who seals: nobody, the sender, its native threads, or a proxy (Fig. 6)
    Proxy,
    /// A table, beside Python's and joblib's pools
    Peers,
}

const WHAT_IS_MEASURED: &str = "\
The figures are those of \"Securing skeletal systems with limited performance penalty: The muskel experience\"
(Aldinucci, Danelutto, 2008), on its axes. Workers have hosts of their own, network namespaces on a bridge,
which are gone when the command ends. That takes root; without, or with --local, they are processes of this
host over TCP, and the figures say so.

  plain     inside a network that is trusted: authenticated, and not encrypted. The farm has nothing weaker
  sealed    anywhere else

W is what a task takes, C the bytes there and back, Tc what those take, and G = W / Tc, measured in each turn.

Up to as many workers as there are processors tasks compute. Beyond that they can only wait, and waiting
tasks are curves of their own. A speed-up is against the same tasks one after the other without any farm.
A round measures all sides in turn, and who is first changes. Given are medians of the rounds.

  gambeson bench farm --json farm.json --pictures .
  gambeson bench farm --only share,iso-grain --rounds 3";

impl Farm {
    pub(super) fn execute(&self) -> Result<ExitCode, Failure> {
        Err(python::become_module(
            self.python.as_deref(),
            "gambeson.farm.bench",
            &self.arguments(),
            Finds::InstalledAlone,
        ))
    }

    fn arguments(&self) -> Vec<OsString> {
        let Self { only, workers, rounds, quick, local, seed, json, pictures, python: _ } = self;
        let mut given: Vec<OsString> = vec!["--only".into()];
        given.extend(only.iter().map(|figure| figure.to_possible_value().expect("none is hidden").get_name().into()));
        let numbers =
            [("--workers", workers.to_string()), ("--rounds", rounds.to_string()), ("--seed", seed.to_string())];
        given.extend(numbers.into_iter().flat_map(|(option, number)| [option.into(), number.into()]));
        let switches = [("--quick", quick), ("--local", local)];
        given.extend(switches.into_iter().filter(|(_, on)| **on).map(|(option, _)| option.into()));
        let files = [("--json", json), ("--pictures", pictures)];
        for (option, file) in files.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?))) {
            given.extend([option.into(), file.into()]);
        }
        if let Ok(program) = env::current_exe() {
            given.extend(["--gambeson".into(), program.into()]);
        }
        given
    }
}
