//! `gambeson sim sweep`: one experiment under every combination of other values.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gambeson_study::pool;
use gambeson_study::sweep::{Over, Sweep, Template};
use indicatif::{ProgressBar, ProgressStyle};

use super::failure;
use crate::failure::Failure;

/// Carries an experiment out under every combination of other values, on all cores
#[derive(Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Arguments {
    /// The experiment, in TOML
    #[arg(value_name = "FILE")]
    experiment: PathBuf,
    /// A key and the values it takes; pictures have the first one along their bottom
    #[arg(long, value_name = "KEY=V1,V2,...", required = true)]
    over: Vec<Over>,
    /// Another value for one of its keys, in every run
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Runs of each combination, with seeds that follow the experiment's
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Runs at a time; as many as there are cores, when it is not said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,
    /// Where results go; what is there already is not run again
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

const EXAMPLE: &str = "\
How large a session-key cache, under which scheduler?

  gambeson sim sweep key-cache.toml --over security.cache.entries=4,8,16,32 \\
      --over replay.processes.scheduler=spin-block,gang --repeat 3 --out cache-sweep

A value is TOML, or else a string: topology={kind='mesh',dims=[4,4]},{kind='torus',dims=[4,4]}

DIR then has report.html (all of it on one page), results.csv and results.parquet (a row for each
run and flow, with its whole experiment), a picture of each quantity as SVG and PNG, and
results.jsonl, from which an interrupted sweep goes on. A run counts as done when its complete
experiment, the content of the files it names and the simulator's sources are the same.";

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let template = Template::read(&arguments.experiment, &arguments.set).map_err(failure)?;
    let sweep = Sweep::new(&template, &arguments.over, arguments.repeat).map_err(failure)?;
    let jobs = arguments.jobs.map_or_else(pool::cores, |jobs| jobs as usize);
    let progress = if std::io::stderr().is_terminal() { ProgressBar::new(1) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{pos}/{len} runs [{bar:40}] {elapsed}, {eta} to go");
    progress.set_style(style.expect("the template is well formed"));
    progress.set_length(sweep.runs() as u64);
    let result = sweep.run(&arguments.out, jobs, |done| progress.set_position(done as u64));
    progress.finish_and_clear();
    let held = result.map_err(failure)?;
    let before = if held > 0 { format!(", {held} of them held already") } else { String::new() };
    println!("{} runs{before}: {}", sweep.runs(), arguments.out.join("report.html").display());
    Ok(ExitCode::SUCCESS)
}
