//! `gambeson sim capacity`: how many keys a session-key cache is enough for, without a job.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gambeson_sim::model::markov::{active_share, at_most, capacity, entries};
use gambeson_sim::model::on_off::{StreamConfig, streamed_hit_rate};
use gambeson_sim::security::CacheConfig;
use serde::Serialize;

use super::write;
use crate::failure::Failure;

/// Says how many keys a session-key cache is enough for, or how large one for so many must be, by a model
#[derive(Args)]
#[command(after_long_help = METHOD)]
pub(crate) struct Arguments {
    /// Keys that the cache holds
    #[arg(long, value_name = "N", required_unless_present = "keys", conflicts_with = "keys",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    entries: Option<u32>,
    /// Keys that the adapter has: one for each peer of each of its processes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: Option<u32>,
    /// How long a key rests on average, by how long it is in use
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    off_over_on: f64,
    /// The share of time, of 100, in which all keys in use must fit
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, value_parser = share)]
    target: f64,
    /// Packets under a key each time that it is in use, on average: short uses make for more misses
    #[arg(long, value_name = "N", default_value_t = 100.0, value_parser = packets)]
    packets: f64,
    /// Write the table to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const METHOD: &str = "\
Each key is in use and rests for exponential times of its own; the number in use is a birth-death
chain, whose solution in closed form says how often all of them fit: the column \"all fit\". The paper
that has it (\"A session key caching and prefetching scheme\") calls that a hit rate. It is none: the
column \"hits\" is, of an LRU cache of that size and a million packets drawn by the same chain.

  gambeson sim capacity --entries 1024 --off-over-on 7.67
  gambeson sim capacity --keys 5000 --off-over-on 7.67 --target 99

For a job that was recorded, `gambeson sim advise` needs no model.";

#[derive(Serialize)]
struct Report {
    version: &'static str,
    entries: u64,
    keys: u64,
    target_percent: f64,
    stream: StreamConfig,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    keys: u64,
    in_use: f64,
    all_fit: f64,
    hit_rate: f64,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let &Arguments { off_over_on, target, packets, .. } = arguments;
    let (q, p) = (active_share(off_over_on), target / 100.0);
    let (held, keys) = match (arguments.entries, arguments.keys) {
        (None, Some(keys)) => (entries(keys.into(), p, q).max(1), keys.into()),
        (entries, _) => {
            let entries = u64::from(entries.unwrap_or(1));
            (entries, capacity(entries, p, q).unwrap_or(u64::MAX))
        }
    };
    if keys > KEYS_MAX {
        return Err(Failure::usage(format!(
            "{held} entries are enough for more than {KEYS_MAX} keys if each rests {off_over_on} times as long as it is in \
             use; give a smaller --off-over-on"
        )));
    }
    let cache = CacheConfig::of_entries(held as u32);
    let stream = StreamConfig { off_over_on, packets_per_on: packets, ..StreamConfig::default() };
    let row = |by: f64| {
        let keys = (keys as f64 * by).round().max(1.0) as u64;
        let hit_rate = streamed_hit_rate(&cache, &StreamConfig { keys: keys as u32, ..stream });
        Row { keys, in_use: keys as f64 * q, all_fit: at_most(keys, held, q), hit_rate }
    };
    let report = Report {
        version: gambeson_sim::VERSION,
        entries: held,
        keys,
        target_percent: target,
        stream: StreamConfig { keys: keys as u32, ..stream },
        rows: [0.5, 0.9, 1.0, 1.1, 1.5, 2.0].map(row).into(),
    };
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report).expect("a report is plain data");
        write(path, json + "\n")?;
    }
    print!("{}", text(&report));
    Ok(ExitCode::SUCCESS)
}

const KEYS_MAX: u64 = 1_000_000;

fn text(report: &Report) -> String {
    let mut text = format!("{:>9}{:>12}{:>12}{:>12}\n", "keys", "in use", "all fit", "hits");
    for &Row { keys, in_use, all_fit, hit_rate } in &report.rows {
        let mark = if keys == report.keys { "  <--" } else { "" };
        let (all_fit, hits) = (100.0 * all_fit, 100.0 * hit_rate);
        let _ = writeln!(text, "{keys:>9}{in_use:>12.1}{all_fit:>10.2} %{hits:>10.2} %{mark}");
    }
    let Report { entries, keys, target_percent, .. } = report;
    let _ = writeln!(
        text,
        "\nA cache of {entries} entries holds all keys in use {target_percent} % of the time, of up to {keys} keys."
    );
    text
}

fn ratio(text: &str) -> Result<f64, String> {
    within(text, 0.001, 1e6).ok_or("give the ratio of two times, 0.001 to 1000000".into())
}

fn share(text: &str) -> Result<f64, String> {
    within(text.trim_end_matches('%'), 0.001, 99.9999).ok_or("give a number above 0 and below 100".into())
}

fn packets(text: &str) -> Result<f64, String> {
    within(text, 1.0, 1e6).ok_or("give 1 to 1000000".into())
}

fn within(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse().ok().filter(|value| (least..=most).contains(value))
}
