//! `gambeson sim keys`: what getting keys to adapters costs.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gambeson_sim::security::key_distribution::{Cluster, Path, Way, cost, ways};
use gambeson_sim::time as clock;
use gambeson_study::time;
use serde::Serialize;

use super::write;
use crate::failure::Failure;

/// Says what getting keys to the adapters of a cluster costs, by each way of doing so, in packets, bytes and time
#[derive(Args)]
#[command(after_long_help = METHOD)]
pub(crate) struct Arguments {
    /// Adapters of a subnet
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=65_536))]
    adapters: u64,
    /// Those of them in a partition [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    members: Option<u64>,
    /// Subnets that the partition is in, with so many members in each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    subnets: u64,
    /// Others that one adapter speaks to [default: all others of its subnet]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    peers: Option<u64>,
    /// Gigabits a second of a sender's link
    #[arg(long, value_name = "GBPS", default_value_t = 2.5, value_parser = rate)]
    rate: f64,
    /// Microseconds from the last bit out to the receiver
    #[arg(long, value_name = "US", default_value_t = 2.0, value_parser = latency)]
    latency: f64,
    /// Write the same, with each way's messages, to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const METHOD: &str = "\
SM_SK is a subnet's key, P_SK a partition's, CA_SK_ij that of a pair of adapters, under which sessions
agree on theirs: the messages of \"A Comprehensive Framework for Enhancing Security in InfiniBand
Architecture\". Beside them a key in the address, as `gambeson run` has it, and keys that a receiver
derives from a secret of its own, as Google's PSP has them.

  gambeson sim keys --adapters 1024 --rate 100
  gambeson sim keys --adapters 1024 --members 64 --subnets 4 --peers 63 --json keys.json

A sender's packets follow one another at its link's rate; sessions are one adapter's, one after the
other. No other traffic is in the way: what is here is the least. Of SM_SK one is made for each subnet,
so that an adapter which is broken into gives away all keys sent under it; keys of 128 bits.";

#[derive(Serialize)]
struct Report {
    version: &'static str,
    cluster: Cluster,
    rate_gbps: f64,
    latency_us: f64,
    ways: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    what: String,
    /// Each kind of message once, in order.
    messages: Vec<&'static str>,
    packets: u64,
    bytes: u64,
    time_ns: f64,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let &Arguments { adapters, members, subnets, peers, rate, latency, .. } = arguments;
    let members = members.unwrap_or(adapters);
    if members > adapters {
        return Err(Failure::usage(format!(
            "--members {members} is more than the {adapters} adapters of a subnet; give at most {adapters}, and --subnets \
             for a partition that is in several"
        )));
    }
    let cluster = Cluster { adapters, members, subnets, peers: peers.unwrap_or(adapters - 1) };
    let path = Path { rate_gbps: rate, latency: clock::from_ns(latency * 1e3), ..Path::default() };
    let row = |Way { what, steps }| {
        let cost = cost(&steps, &path);
        let mut messages = Vec::new();
        for step in &steps {
            if !messages.contains(&step.name) {
                messages.push(step.name);
            }
        }
        Row { what, messages, packets: cost.packets, bytes: cost.bytes, time_ns: clock::to_ns(cost.time) }
    };
    let report = Report {
        version: gambeson_sim::VERSION,
        cluster,
        rate_gbps: rate,
        latency_us: latency,
        ways: ways(&cluster).into_iter().map(row).collect(),
    };
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report).expect("a report is plain data");
        write(path, json + "\n")?;
    }
    print!("{}", text(&report));
    Ok(ExitCode::SUCCESS)
}

fn text(report: &Report) -> String {
    let widest = report.ways.iter().map(|row| row.what.len()).max().unwrap_or_default();
    let mut text = format!("{:widest$}{:>12}{:>15}{:>11}\n", "", "packets", "bytes", "time");
    for Row { what, packets, bytes, time_ns, messages } in &report.ways {
        let _ = writeln!(text, "{what:widest$}{packets:>12}{bytes:>15}{:>11}", time(*time_ns));
        messages.iter().for_each(|message| text.push_str(&format!("    {message}\n")));
    }
    text
}

fn rate(text: &str) -> Result<f64, String> {
    within(text, 0.1, 1e4).ok_or("give 0.1 to 10000 Gb/s".into())
}

fn latency(text: &str) -> Result<f64, String> {
    within(text, 0.0, 1e6).ok_or("give 0 to 1000000 us".into())
}

fn within(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse().ok().filter(|value| (least..=most).contains(value))
}
