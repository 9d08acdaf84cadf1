//! Advice: which session-key cache a recorded job wants.
//!
//! One replay notes which keys each adapter looks up; their stack distances tell the hits of a fully associative cache of
//! every size. Since latencies, and with them the order of messages, follow from the size, what is advised is replayed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use gambeson_sim::advise::{self, Observation, machine, with_cache};
use gambeson_sim::experiment::{Experiment, Outcome, ReplayConfig, load};
use gambeson_sim::fabric::Watch;
use gambeson_sim::trace::Job;
use gambeson_sim::trace::window::Window;
use serde::Serialize;

use crate::sweep::{Column, Table, Values};
use crate::{pool, time};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The job's trace.
    pub trace: PathBuf,
    /// Look-ups that must find their key, of 100.
    pub target_percent: f64,
    /// An experiment whose traffic the job takes the place of. None: the adapters of the session-key-cache paper in a mesh,
    /// a node for each rank.
    pub machine: Option<Experiment>,
    /// Only so many iterations, from the first.
    pub iterations: Option<u32>,
    /// Keys that the prefetch buffer holds; as the machine has it, else 8.
    pub buffer: Option<u32>,
}

/// What comes out.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// A sentence or two.
    pub advice: String,
    /// As it was asked.
    pub target_percent: f64,
    /// The cache that reaches the target; none, if none does.
    pub entries: Option<u32>,
    /// The most keys that one adapter uses.
    pub keys: u32,
    /// Key look-ups of the whole job.
    pub lookups: u64,
    /// Caches that were replayed, by size.
    pub rows: Vec<Row>,
    /// Keys of the prefetch buffer, where one does anything.
    pub buffer: Option<u32>,
    /// The machine with the job on it.
    pub machine: Experiment,
}

/// A cache size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// None: no cache.
    pub entries: Option<u32>,
    /// The cache alone.
    pub cache: Cell,
    /// And with a prefetch buffer beside it.
    pub with_buffer: Option<Cell>,
}

/// What a replay measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cell {
    /// Share of look-ups that found their key.
    pub hit_rate: f64,
    /// Mean latency of packets.
    pub mean_ns: f64,
    /// 99 of 100 packets are no slower.
    pub p99_ns: f64,
}

/// A replay: entries of its cache and keys of its buffer.
type Size = (Option<u32>, Option<u32>);

/// Replays the job and says which cache it wants; `progress` hears how many replays are done, and of how many.
///
/// # Errors
/// A trace or a machine that makes no sense; and when `watch` says not to go on.
pub fn advise(
    request: &Request,
    watch: Watch<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<Advice, gambeson_sim::Error> {
    let (machine, jobs) = prepare(request)?;
    let jobs = &jobs[..];
    let target = request.target_percent / 100.0;
    let buffer = request.buffer.or(machine.security.prefetch.map(|prefetch| prefetch.entries)).unwrap_or(8);
    // A small cache, so that keys are evicted and the buffer has something to fetch.
    let (seen, _) = advise::observe(&with_cache(&machine, Some(4), Some(buffer)), jobs, watch)?;
    let Observation { distances, prefetches } = seen;
    let buffer = prefetches.then_some(buffer);
    let mut cells: BTreeMap<Size, Cell> = BTreeMap::new();
    // Faster adapters change the order of the messages a little, so what the distances say must prove itself.
    let mut entries = distances.entries_for(target);
    while let Some(tried) = entries {
        let cell = Cell::of(&with_cache(&machine, entries, None).run_jobs_watched(jobs, watch)?);
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
    let (mut done, all) = (1, replays.len() + 1);
    progress(done, all);
    let run = |&(entries, buffer): &Size| with_cache(&machine, entries, buffer).run_jobs_watched(jobs, watch);
    pool::each(replays, pool::cores(), run, |size, outcome| {
        done += 1;
        progress(done, all);
        cells.insert(size, Cell::of(&outcome));
        Ok(())
    })?;
    let mut advice = Advice {
        advice: String::new(),
        target_percent: request.target_percent,
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

/// The machine with the job in place of its traffic, and the job as often as the machine runs it.
fn prepare(request: &Request) -> Result<(Experiment, Vec<Arc<Job>>), gambeson_sim::Error> {
    let given = request.machine.clone();
    let mut replay = given.as_ref().and_then(|machine| machine.replay.clone()).unwrap_or_default();
    replay.traces = vec![request.trace.display().to_string()];
    if let Some(iterations) = request.iterations {
        replay.window = Some(Window { from: 0, iterations });
    }
    let job = load(&request.trace, &replay)?;
    let mut machine = given.unwrap_or_else(|| machine(job.ranks.len() as u32));
    machine.traffic.clear();
    let copies = replay.copies.max(1) as usize;
    machine.replay = Some(ReplayConfig { copies: copies as u32, ..replay });
    Ok((machine, vec![job; copies]))
}

impl Advice {
    /// The rows as columns; no cache is one of 0 entries.
    #[must_use]
    pub fn table(&self) -> Table {
        let measure = |of: &dyn Fn(&Row) -> Option<f64>| Values::Number(self.rows.iter().map(of).collect());
        let entries = self.rows.iter().map(|row| row.entries.unwrap_or(0).into()).collect();
        let columns = [
            ("entries", Values::Count(entries)),
            ("hit_rate", measure(&|row| Some(row.cache.hit_rate))),
            ("mean_ns", measure(&|row| Some(row.cache.mean_ns))),
            ("p99_ns", measure(&|row| Some(row.cache.p99_ns))),
            ("hit_rate_with_buffer", measure(&|row| Some(row.with_buffer?.hit_rate))),
            ("mean_ns_with_buffer", measure(&|row| Some(row.with_buffer?.mean_ns))),
            ("p99_ns_with_buffer", measure(&|row| Some(row.with_buffer?.p99_ns))),
        ];
        let columns = columns.map(|(name, values)| Column { name: name.into(), values });
        Table { columns: columns.into(), rows: self.rows.len() }
    }
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
            let without = rows.first().filter(|row| row.entries.is_none());
            let gain = without.map_or(String::new(), |without| {
                format!(
                    "; mean latency is {} then, {} without a cache",
                    time(row.cache.mean_ns),
                    time(without.cache.mean_ns)
                )
            });
            format!(
                "{name} on this machine needs a session-key cache of {} for {target_percent} % hits{gain}.",
                counted(*entries)
            )
        }
        None => format!(
            "{name} on this machine gets no {target_percent} % hits from a session-key cache of any size: the first uses of keys leave \
             {:.2} %, which a cache of {} reaches.",
            best * 100.0,
            counted(*keys)
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
                "A prefetch buffer of {buffer} gains most beside {}: {:.1} % of mean latency, at {:+.1} points of hits.",
                counted(row.entries.unwrap_or(0)),
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

/// Entries of a cache, in words.
fn counted(entries: u32) -> String {
    if entries == 1 { "1 entry".into() } else { format!("{entries} entries") }
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
}
