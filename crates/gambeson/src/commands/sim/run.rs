//! `gambeson sim run`: one experiment.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gambeson_sim::experiment::{Experiment, Outcome};
use gambeson_sim::fabric::Refusals;
use gambeson_study::time;

use super::{failure, write};
use crate::failure::Failure;

/// Carries one experiment out
#[derive(Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Arguments {
    /// The experiment: topology, links, security, filters and traffic, in TOML
    #[arg(value_name = "FILE")]
    experiment: PathBuf,
    /// Another value for one of its keys: --set fabric.rate=4x-ndr --set traffic.0.load=0.7
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the outcome, with the whole experiment in it, to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const EXAMPLE: &str = "\
The smallest experiment, to be written to a file:

  topology = { kind = \"mesh\", dims = [4, 4] }
  [[traffic]]
  load = 0.4                      # of a link's rate, at every node

and one with what an architect asks:

  seed     = 7
  routing  = \"adaptive\"
  topology = { kind = \"fat-tree\", arity = 8, levels = 3 }
  [fabric]
  rate = \"4x-ndr\"                 # or gigabits a second
  level_rates = [\"4x-ndr\", \"800g\"] # of the links between switches, from below
  [security]
  level = \"queue-pair\"            # a key for each pair
  cache = { entries = 64 }
  [security.memory]
  access_ns = 300
  [[traffic]]
  load  = 0.4
  bytes = 2048

Latency is from the sender's adapter to the packet opened in the receiver's. Examples: examples/simulator.";

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let experiment = Experiment::read_with(&arguments.experiment, &arguments.set).map_err(failure)?;
    let outcome = experiment.run().map_err(failure)?;
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&outcome).expect("an outcome is plain data");
        write(path, json + "\n")?;
    }
    print!("{}", text(&outcome));
    Ok(ExitCode::SUCCESS)
}

/// An outcome for people.
fn text(outcome: &Outcome) -> String {
    let mut text = format!(
        "{}: {} nodes, {} simulated, {} packets, {} events in {:.2} s\n\n",
        outcome.experiment.name,
        outcome.nodes,
        time(outcome.simulated_us * 1e3),
        outcome.sent,
        outcome.events,
        outcome.seconds
    );
    let heads = ["packets", "mean", "deviation", "half", "99 of 100", "most"];
    let _ = write!(text, "{:16}", "latency");
    for head in heads {
        let _ = write!(text, "{head:>11}");
    }
    let synthetic = outcome.jobs.is_empty();
    let _ = writeln!(text, "{}", if synthetic { "   accepted    links" } else { "" });
    for flow in &outcome.flows {
        let latency = &flow.latency;
        let _ = write!(text, "{:16}{:>11}", flow.name, latency.count);
        for ns in [latency.mean_ns, latency.deviation_ns, latency.p50_ns, latency.p99_ns, latency.max_ns] {
            let _ = write!(text, "{:>11}", time(ns));
        }
        let _ = match synthetic {
            true => writeln!(text, "{:>11.3}{:>9.2}", flow.accepted, flow.hops),
            false => writeln!(text),
        };
    }
    text.push('\n');
    for job in &outcome.jobs {
        let ended = job.ended_us.map_or("did not end".into(), |us| format!("ended at {}", time(us * 1e3)));
        let recorded = job.recorded_us.map_or(String::new(), |us| format!(", took {} when recorded", time(us * 1e3)));
        let _ = writeln!(text, "{:16}{ended}{recorded}", job.name);
    }
    if outcome.lookups > 0 {
        let rate = outcome.hit_rate * 100.0;
        let _ = writeln!(text, "keys            {} looked up, {rate:.2} % found in cache or buffer", outcome.lookups);
    }
    if outcome.dropped + outcome.leaked > 0 {
        let Outcome { dropped, leaked, traps, blamed: [right, wrong], .. } = outcome;
        let _ = writeln!(text, "forged keys     {dropped} packets filtered, {leaked} came through, {traps} traps");
        let _ = writeln!(text, "senders named   {right} times the true one, {wrong} times another");
    }
    if outcome.acknowledged > 0 {
        let _ = writeln!(text, "acknowledged    {} packets", outcome.acknowledged);
    }
    if outcome.refused.sum() > 0 {
        let _ = writeln!(text, "honest, refused {}", refusals(&outcome.refused));
    }
    if let Some(attack) = &outcome.attack {
        let _ =
            writeln!(text, "attacker heard  {} packets of others, could read {}", attack.overheard, attack.readable);
        if attack.overheard == 0 {
            let _ = writeln!(
                text,
                "  none came through the switch that it listens at; attack.tap = N names another, a switch on their way"
            );
        }
        let _ = writeln!(text, "attacker sent   {} packets, of which {} were taken", attack.sent, attack.taken);
        if attack.refused.sum() > 0 {
            let _ = writeln!(text, "  refused       {}; {} alerts", refusals(&attack.refused), attack.alerts);
        }
        let [[right, wrong], [found, mistaken]] = [attack.sender_claimed, attack.sender_traced];
        let _ = writeln!(text, "  its address   right in {right}, false in {wrong}");
        if outcome.experiment.marking_bits.is_some() {
            let _ = writeln!(text, "  its marks     led to it in {found}, to another in {mistaken}");
        }
    }
    let _ = writeln!(text, "busiest link    {:.1} %", outcome.busiest_link * 100.0);
    text
}

/// How many packets adapters did not take, by what was wrong with them.
fn refusals(refused: &Refusals) -> String {
    let met = refused.each().into_iter().filter(|(_, count)| *count > 0);
    let named: Vec<String> = met.map(|(refusal, count)| format!("{count} {}", refusal.name())).collect();
    named.join(", ")
}
