//! `gambeson sim advise`: which session-key cache a job wants.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use gambeson_sim::advise::{self, Observation, machine, with_cache};
use gambeson_sim::experiment::{Experiment, Outcome, ReplayConfig, load};
use gambeson_sim::trace::Job;
use gambeson_sim::trace::window::Window;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{failure, time, write};
use crate::failure::Failure;
use crate::pool;

/// Says how large a session-key cache a recorded job wants, and what a prefetch buffer would gain
#[derive(Args)]
#[command(after_long_help = METHOD)]
pub(crate) struct Arguments {
    /// The job: a trace as NPBT1, DUMPI (.meta) or GOAL (.goal)
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
  gambeson sim advise job.goal --target 99.9 --machine cluster.toml

A prefetch buffer only works where several processes share a processor: in the machine, [replay]
copies = 2 and processes.scheduler = \"spin-block\" run two copies of the job at a time.";

/// What comes out.
#[derive(Serialize)]
struct Advice {
    advice: String,
    target_percent: f64,
    /// The cache that reaches the target; none, if none does.
    entries: Option<u32>,
    /// The most keys that one adapter uses.
    keys: u32,
    lookups: u64,
    rows: Vec<Row>,
    /// Keys of the prefetch buffer, where one does anything.
    buffer: Option<u32>,
    machine: Experiment,
}

#[derive(Serialize)]
struct Row {
    /// None: no cache.
    entries: Option<u32>,
    cache: Cell,
    with_buffer: Option<Cell>,
}

#[derive(Clone, Copy, Serialize)]
struct Cell {
    hit_rate: f64,
    mean_ns: f64,
    p99_ns: f64,
}

/// A replay: entries of its cache and keys of its buffer.
type Size = (Option<u32>, Option<u32>);

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (machine, jobs) = prepare(arguments).map_err(failure)?;
    let progress = if std::io::stderr().is_terminal() { ProgressBar::new(1) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{pos}/{len} replays [{bar:40}] {elapsed}");
    progress.set_style(style.expect("the template is well formed"));
    let advice = advise(arguments, machine, &jobs, &progress);
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

/// The machine with the job in place of its traffic, and the job as often as the machine runs it.
fn prepare(arguments: &Arguments) -> Result<(Experiment, Vec<Arc<Job>>), gambeson_sim::Error> {
    let given = arguments.machine.as_ref().map(|path| Experiment::read(path)).transpose()?;
    let mut replay = given.as_ref().and_then(|machine| machine.replay.clone()).unwrap_or_default();
    replay.traces = vec![arguments.trace.display().to_string()];
    if let Some(iterations) = arguments.iterations {
        replay.window = Some(Window { from: 0, iterations });
    }
    let job = load(&arguments.trace, &replay)?;
    let mut machine = given.unwrap_or_else(|| machine(job.ranks.len() as u32));
    machine.traffic.clear();
    let copies = replay.copies.max(1) as usize;
    machine.replay = Some(ReplayConfig { copies: copies as u32, ..replay });
    Ok((machine, vec![job; copies]))
}

fn advise(
    arguments: &Arguments,
    machine: Experiment,
    jobs: &[Arc<Job>],
    progress: &ProgressBar,
) -> Result<Advice, gambeson_sim::Error> {
    let target = arguments.target / 100.0;
    let buffer = arguments.buffer.or(machine.security.prefetch.map(|prefetch| prefetch.entries)).unwrap_or(8);
    // A small cache, so that keys are evicted and the buffer has something to fetch.
    let (seen, _) = advise::observe(&with_cache(&machine, Some(4), Some(buffer)), jobs)?;
    let Observation { distances, prefetches } = seen;
    let buffer = prefetches.then_some(buffer);
    let mut cells: BTreeMap<Size, Cell> = BTreeMap::new();
    // Faster adapters change the order of the messages a little, so what the distances say must prove itself.
    let mut entries = distances.entries_for(target);
    while let Some(tried) = entries {
        let cell = Cell::of(&with_cache(&machine, entries, None).run_jobs(jobs)?);
        cells.insert((entries, None), cell);
        if cell.hit_rate >= target {
            break;
        }
        entries = Some(tried + 1).filter(|&next| next <= distances.keys());
    }
    let mut sizes: Vec<Option<u32>> = vec![None];
    sizes.extend(steps(distances.keys(), entries).into_iter().map(Some));
    let replays: Vec<Size> = sizes
        .iter()
        .flat_map(|&entries| {
            [Some((entries, None)), buffer.filter(|_| entries.is_some()).map(|keys| (entries, Some(keys)))]
        })
        .flatten()
        .filter(|size| !cells.contains_key(size))
        .collect();
    progress.set_length(replays.len() as u64 + 1);
    progress.set_position(1);
    let run = |&(entries, buffer): &Size| with_cache(&machine, entries, buffer).run_jobs(jobs);
    pool::each(replays, pool::cores(), run, |size, outcome| {
        progress.inc(1);
        cells.insert(size, Cell::of(&outcome));
        Ok(())
    })?;
    let mut advice = Advice {
        advice: String::new(),
        target_percent: arguments.target,
        entries,
        keys: distances.keys(),
        lookups: distances.lookups(),
        rows: sizes
            .iter()
            .map(|&entries| Row {
                entries,
                cache: cells[&(entries, None)],
                with_buffer: buffer.and_then(|buffer| cells.get(&(entries, Some(buffer))).copied()),
            })
            .collect(),
        buffer,
        machine,
    };
    advice.advice = sentence(&advice, &jobs[0].name, distances.hit_rate(u32::MAX));
    Ok(advice)
}

impl Cell {
    fn of(outcome: &Outcome) -> Self {
        let latency = &outcome.flows[0].latency;
        Self { hit_rate: outcome.hit_rate, mean_ns: latency.mean_ns, p99_ns: latency.p99_ns }
    }
}

/// Sizes up to the first that holds all keys, two for each factor of two, with the one that is advised.
fn steps(keys: u32, advised: Option<u32>) -> Vec<u32> {
    let both = |power: u32| [1_u32 << power, 3 << power >> 1];
    let mut sizes: Vec<u32> = (0..24).flat_map(both).filter(|&size| size < keys).chain([keys.max(1)]).collect();
    sizes.extend(advised);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn sentence(advice: &Advice, name: &str, best: f64) -> String {
    let Advice { target_percent, entries, keys, rows, .. } = advice;
    let mut text = match entries {
        Some(entries) => {
            let row = rows.iter().find(|row| row.entries == Some(*entries)).expect("what is advised is in the table");
            let plural = if *entries == 1 { "entry" } else { "entries" };
            let without = rows.first().filter(|row| row.entries.is_none());
            let gain = without.map_or(String::new(), |without| {
                format!(
                    "; mean latency is {} then, {} without a cache",
                    time(row.cache.mean_ns),
                    time(without.cache.mean_ns)
                )
            });
            format!(
                "{name} on this machine needs a session-key cache of {entries} {plural} for {target_percent} % hits{gain}."
            )
        }
        None => format!(
            "{name} on this machine gets no {target_percent} % hits from a session-key cache of any size: the first uses of keys leave \
             {:.2} %, which {keys} entries reach.",
            best * 100.0
        ),
    };
    text.push(' ');
    // Where the buffer gains most among the caches that miss at all.
    let gains = rows.iter().filter_map(|row| Some((row, row.with_buffer?)));
    let gain = |row: &Row, with: Cell| 1.0 - with.mean_ns / row.cache.mean_ns.max(f64::MIN_POSITIVE);
    let most = gains.max_by(|one, other| gain(one.0, one.1).total_cmp(&gain(other.0, other.1)));
    match (advice.buffer, most) {
        (Some(buffer), Some((row, with))) if gain(row, with) > 0.001 => {
            let _ = write!(
                text,
                "A prefetch buffer of {buffer} gains most beside {} entries: {:.1} % of mean latency, at {:+.1} points of hits.",
                row.entries.unwrap_or(0),
                gain(row, with) * 100.0,
                (with.hit_rate - row.cache.hit_rate) * 100.0
            );
        }
        (Some(buffer), _) => {
            let _ = write!(text, "A prefetch buffer of {buffer} gains nothing beside any of these caches.");
        }
        (None, _) => text
            .push_str("A prefetch buffer gains nothing: no message arrives for a process that is off its processor."),
    }
    text
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
    fn sizes_end_where_all_keys_are_held() {
        assert_eq!(steps(1, Some(1)), [1]);
        assert_eq!(steps(10, Some(7)), [1, 2, 3, 4, 6, 7, 8, 10]);
        assert_eq!(steps(0, None), [1]);
    }

    #[test]
    fn a_target_is_a_percentage() {
        assert_eq!(percent("99.5%"), Ok(99.5));
        for wrong in ["0", "101", "x", "nan"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
