//! What a pair of proxies costs: the same client and service directly, through ours, and through stunnel's.

mod sides;
mod work;

use std::fmt::Write;
use std::io;

use indicatif::ProgressBar;
use serde::Serialize;

use super::statistics::median;
use crate::failure::Failure;
use sides::{Folder, Side};

/// What to measure.
pub(crate) struct Wanted {
    /// Of one stream.
    pub(crate) bytes: u64,
    pub(crate) rounds: usize,
    /// Whether stunnel is measured, too.
    pub(crate) stunnel: bool,
}

/// Requests on one connection, and connections, of a round.
const REQUESTS: usize = 2000;
const CONNECTIONS: usize = 100;

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    bytes: u64,
    rounds: usize,
    processors: usize,
    /// Load averages of one, five and fifteen minutes before the first round.
    load: [f64; 3],
    sides: Vec<Values>,
}

/// One side's values, one of each round.
#[derive(Debug, Default, Serialize)]
struct Values {
    name: &'static str,
    /// Bytes per second of one stream.
    down: Vec<f64>,
    up: Vec<f64>,
    /// Seconds of processor time of both proxies for each gigabyte, both directions together.
    processor: Vec<f64>,
    /// Seconds for 64 bytes and back, and for that on a connection of its own.
    round_trip: Vec<f64>,
    connection: Vec<f64>,
}

/// Measures all sides in turn; who is first changes every round.
///
/// # Errors
/// When a side does not come up, or fails.
pub(crate) fn bench(wanted: &Wanted, load: [f64; 3], progress: &ProgressBar) -> Result<Report, Failure> {
    let folder = Folder::new()?;
    let service = work::serve().map_err(|cause| Failure::system(format!("no service can be started ({cause})")))?;
    let mut sides = vec![Side::direct(service), Side::gambeson(&folder, service)?];
    if wanted.stunnel {
        sides.push(Side::stunnel(&folder, service)?);
    }
    let mut values: Vec<Values> = sides.iter().map(|side| Values { name: side.name, ..Values::default() }).collect();
    progress.set_length((wanted.rounds * sides.len()) as u64);
    for round in 0..wanted.rounds {
        for turn in 0..sides.len() {
            let at = (turn + round) % sides.len();
            let side = &sides[at];
            progress.set_prefix(format!("round {} {}", round + 1, side.name));
            measure(side, wanted.bytes, &mut values[at])
                .map_err(|cause| Failure::unavailable(format!("the side {} has failed: {cause}", side.name)))?;
            progress.inc(1);
        }
    }
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        bytes: wanted.bytes,
        rounds: wanted.rounds,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        load,
        sides: values,
    })
}

fn measure(side: &Side, bytes: u64, values: &mut Values) -> io::Result<()> {
    let before = side.processor_time();
    values.down.push(work::down(side.address, bytes)?);
    values.up.push(work::up(side.address, bytes)?);
    values.processor.push((side.processor_time() - before) / (2.0 * bytes as f64) * 1e9);
    values.round_trip.push(work::round_trip(side.address, REQUESTS)?);
    values.connection.push(work::connection(side.address, CONNECTIONS)?);
    Ok(())
}

impl Report {
    /// The table, for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "One stream of {} MiB, {} rounds, load average before: {:.2} on {} processors\n\n",
            self.bytes >> 20,
            self.rounds,
            self.load[0],
            self.processors
        );
        let _ = writeln!(
            text,
            "{:10}{:>12}{:>12}{:>14}{:>14}{:>14}",
            "medians", "down, MB/s", "up, MB/s", "CPU, s/GB", "64 B, µs", "connect, µs"
        );
        for side in &self.sides {
            let Values { name, down, up, processor, round_trip, connection } = side;
            let _ = writeln!(
                text,
                "{name:10}{:>12.0}{:>12.0}{:>14.2}{:>14.1}{:>14.1}",
                median(down) / 1e6,
                median(up) / 1e6,
                median(processor),
                median(round_trip) * 1e6,
                median(connection) * 1e6
            );
        }
        let _ = writeln!(text, "\nmedians of the rounds' own ratios");
        let ours = &self.sides[1];
        for other in self.sides.iter().filter(|side| side.name != ours.name) {
            let ratio = |ours: &[f64], theirs: &[f64]| {
                median(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
            };
            let processor = match other.processor.iter().all(|&time| time > 0.0) {
                true => format!("{:.2}", ratio(&ours.processor, &other.processor)),
                false => "-".into(),
            };
            let _ = writeln!(
                text,
                "{:10}{:>12.2}{:>12.2}{processor:>14}{:>14.2}{:>14.2}",
                format!("/ {}", other.name),
                ratio(&ours.down, &other.down),
                ratio(&ours.up, &other.up),
                ratio(&ours.round_trip, &other.round_trip),
                ratio(&ours.connection, &other.connection)
            );
        }
        text
    }
}
