//! `gambeson sim advise`: which session-key cache a job wants.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gambeson_sim::experiment::Experiment;
use gambeson_study::advise::{Advice, Cell, Request, advise};
use gambeson_study::time;
use indicatif::{ProgressBar, ProgressStyle};

use super::{failure, write};
use crate::failure::Failure;

/// Says how large a session-key cache a recorded job wants, and what a prefetch buffer would gain
#[derive(Args)]
#[command(after_long_help = METHOD)]
pub(crate) struct Arguments {
    /// The job: what `gambeson run --trace` wrote (.gbt), or a trace as NPBT1, DUMPI (.meta) or GOAL (.goal)
    trace: PathBuf,
    /// Look-ups that must find their key, of 100
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = percent)]
    target: f64,
    /// The machine: an experiment whose traffic the job takes the place of. Without it: the adapters of the
    /// session-key-cache paper in a mesh, a node for each rank
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Only so many iterations of the job, from its first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Keys that the prefetch buffer holds; as the machine has it, else 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    buffer: Option<u32>,
    /// Write the table, with the whole machine in it, to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const METHOD: &str = "\
One replay notes which keys each adapter looks up. Their stack distances (how many others came
between two uses of a key) tell the hits of a fully associative LRU cache of every size. The sizes
in the table are then replayed, since latencies and with them the order of messages follow from the
size; what is advised has shown its hits in a replay.

  gambeson sim advise cg.A.16.npbt.zst
  gambeson sim advise job.gbt
  gambeson sim advise job.goal --target 99.9 --machine cluster.toml

A prefetch buffer only works where several processes share a processor: in the machine, [replay]
copies = 2 and processes.scheduler = \"spin-block\" run two copies of the job at a time.";

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let machine = arguments.machine.as_ref().map(|path| Experiment::read(path)).transpose().map_err(failure)?;
    let request = Request {
        trace: arguments.trace.clone(),
        target_percent: arguments.target,
        machine,
        iterations: arguments.iterations,
        buffer: arguments.buffer,
    };
    let progress = if std::io::stderr().is_terminal() { ProgressBar::new(1) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{pos}/{len} replays [{bar:40}] {elapsed}");
    progress.set_style(style.expect("the template is well formed"));
    let advice = advise(&request, &|_| true, |done, all| {
        progress.set_length(all as u64);
        progress.set_position(done as u64);
    });
    progress.finish_and_clear();
    let advice = advice.map_err(failure)?;
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&advice).expect("advice is plain data");
        write(path, json + "\n")?;
    }
    print!("{}", text(&advice));
    Ok(ExitCode::SUCCESS)
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    percent.filter(|percent| *percent > 0.0 && *percent <= 100.0).ok_or("give a number above 0 and up to 100".into())
}

fn text(advice: &Advice) -> String {
    let mut text = format!("{:>8}{:>10}{:>12}{:>12}", "entries", "hits", "mean", "99 of 100");
    if let Some(buffer) = advice.buffer {
        let _ = write!(text, "{:>28}{:>12}", format!("with a buffer of {buffer}: hits"), "mean");
    }
    text.push('\n');
    for row in &advice.rows {
        let entries = row.entries.map_or("none".into(), |entries| entries.to_string());
        let Cell { hit_rate, mean_ns, p99_ns } = row.cache;
        let _ = write!(text, "{entries:>8}{:>8.2} %{:>12}{:>12}", hit_rate * 100.0, time(mean_ns), time(p99_ns));
        if let Some(with) = row.with_buffer {
            let _ = write!(text, "{:>26.2} %{:>12}", with.hit_rate * 100.0, time(with.mean_ns));
        }
        text.push_str(if row.entries.is_some() && row.entries == advice.entries { "  <--\n" } else { "\n" });
    }
    let _ = writeln!(text, "\n{}", advice.advice);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_percentage() {
        assert_eq!(percent("99.5%"), Ok(99.5));
        for wrong in ["0", "101", "x", "nan"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
