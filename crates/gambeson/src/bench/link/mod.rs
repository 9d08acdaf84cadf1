//! Links between two processes of this host, beside their bare carriers and beside others' libraries.

mod aims;
mod bare;
pub(crate) mod other;
pub(crate) mod paper;
mod peers;
mod pictures;
mod put;
pub(crate) mod side;
mod table;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde::Serialize;

use super::statistics::median;
use crate::failure::Failure;

pub(crate) use aims::Aim;
use side::{Kind, Side, Work};

/// What to measure.
pub(crate) struct Wanted {
    /// Of requests and their answers.
    pub(crate) lengths: Vec<usize>,
    /// How often everything is measured; each time all sides in turn.
    pub(crate) runs: usize,
    /// Where others' libraries are, built from bench/peers, if they are to be measured.
    pub(crate) peers: Option<PathBuf>,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    runs: usize,
    processors: usize,
    /// Load averages of one, five and fifteen minutes before the first run.
    load: [f64; 3],
    series: Vec<Series>,
    /// Sealed links beside others' libraries.
    peers: Vec<Series>,
    aims: Vec<Aim>,
}

/// One side at one work, a value for each run: run i of all sides belongs together.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    carrier: String,
    side: String,
    kind: Kind,
    /// Bytes of a message.
    length: usize,
    /// Of one message, there and back but in a stream.
    seconds: Vec<f64>,
    /// Processor time of both processes for one message, in seconds.
    cpu: Vec<f64>,
}

/// How many times as long one side takes as another.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    /// The least time by the least time.
    of_least: f64,
    /// Median of the runs' own ratios.
    median: f64,
}

impl Series {
    fn least(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn median(&self) -> f64 {
        median(&self.seconds)
    }

    fn cpu_ns_per_byte(&self) -> f64 {
        median(&self.cpu) * 1e9 / self.length as f64
    }

    fn by(&self, other: &Series) -> Ratio {
        let each: Vec<f64> = self.seconds.iter().zip(&other.seconds).map(|(one, other)| one / other).collect();
        Ratio { of_least: self.least() / other.least(), median: median(&each) }
    }
}

impl Report {
    fn find(&self, carrier: &str, side: &str, kind: Kind, length: usize) -> Option<&Series> {
        let wanted = |series: &&Series| {
            (&*series.carrier, &*series.side, series.kind, series.length) == (carrier, side, kind, length)
        };
        self.series.iter().find(wanted)
    }

    /// Tables and aims, for people.
    pub(crate) fn text(&self) -> String {
        table::text(self)
    }

    /// Draws it into a folder.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(crate) fn draw(&self, dir: &Path) -> Result<(), Failure> {
        let drawn = gambeson_study::figures::draw(&pictures::figures(self), dir);
        drawn.map_err(|error| Failure::system(error.to_string()))
    }
}

/// Lengths of messages in a stream.
const STREAMED: usize = 1 << 20;
/// Of what is outstanding.
const SMALL: usize = 8;

/// Measures links over both carriers.
///
/// # Errors
/// When the other processes do not come up, or a link fails.
pub(crate) fn bench(wanted: &Wanted, load: [f64; 3], progress: &ProgressBar) -> Result<Report, Failure> {
    let mut works: Vec<Work> = wanted.lengths.iter().map(|&length| trips(length)).collect();
    works.push(Work { kind: Kind::Outstanding, length: SMALL, count: 2000 });
    works.push(Work { kind: Kind::Stream, length: STREAMED, count: 8 });
    let mut series = Vec::new();
    progress.set_length(((2 + usize::from(wanted.peers.is_some())) * wanted.runs) as u64);
    for shm in [true, false] {
        series.extend(alternate(&mut side::links(shm)?, &works, wanted.runs, progress)?);
    }
    let peers = match &wanted.peers {
        Some(dir) => beside(dir, wanted.runs, progress)?,
        None => Vec::new(),
    };
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        runs: wanted.runs,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        load,
        series,
        peers,
        aims: Vec::new(),
    };
    report.aims = aims::of(&report);
    Ok(report)
}

/// Links whose programs move the bytes, and those whose domains have threads for it, as others' libraries do.
const OURS: [&str; 2] = ["Gambeson", "Gambeson, own thread"];

/// Sealed links beside others' libraries, all in turn.
fn beside(dir: &Path, runs: usize, progress: &ProgressBar) -> Result<Vec<Series>, Failure> {
    let mut sides = Vec::new();
    for shm in [true, false] {
        for (own_thread, name) in [false, true].into_iter().zip(OURS) {
            sides.push(side::sealed(shm, own_thread, name)?);
        }
    }
    sides.extend(peers::all(dir)?);
    alternate(&mut sides, &OTHERS_WORK, runs, progress)
}

/// What others' libraries do, too.
const OTHERS_WORK: [Work; 3] = [
    Work { kind: Kind::Trips, length: SMALL, count: 100 },
    Work { kind: Kind::Outstanding, length: SMALL, count: 2000 },
    Work { kind: Kind::Stream, length: STREAMED, count: 8 },
];

/// Requests and answers of a length: short runs, so that some have the machine to themselves.
fn trips(length: usize) -> Work {
    let count = match length {
        0..=4096 => 100,
        4097..=65_536 => 20,
        _ => 4,
    };
    Work { kind: Kind::Trips, length, count }
}

/// All sides in turn, run after run. Who is first changes: the next finds a warmer machine.
fn alternate(
    sides: &mut [Box<dyn Side>],
    works: &[Work],
    runs: usize,
    progress: &ProgressBar,
) -> Result<Vec<Series>, Failure> {
    let mut series = Vec::new();
    for side in &*sides {
        series.extend(works.iter().map(|work| Series {
            carrier: side.carrier().to_owned(),
            side: side.name().to_owned(),
            kind: work.kind,
            length: work.length,
            seconds: Vec::with_capacity(runs),
            cpu: Vec::with_capacity(runs),
        }));
    }
    for run in 0..runs {
        for (at, work) in works.iter().enumerate() {
            for turn in 0..sides.len() {
                let chosen = (turn + run) % sides.len();
                let cost = sides[chosen].perform(*work)?;
                let series = &mut series[chosen * works.len() + at];
                series.seconds.push(cost.seconds / f64::from(work.count));
                series.cpu.push(cost.cpu / f64::from(work.count));
            }
        }
        progress.inc(1);
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made-up values of two runs: integrity takes twice as long as a bare carrier, sealed three times.
    pub(super) fn report() -> Report {
        let mut series = Vec::new();
        for carrier in ["shared memory", "TCP"] {
            for (factor, side) in [(1.0, "bare"), (1.2, "in clear"), (2.0, "integrity"), (3.0, "sealed")] {
                for (kind, length) in
                    [(Kind::Trips, 8), (Kind::Trips, 1 << 20), (Kind::Outstanding, 8), (Kind::Stream, 1 << 20)]
                {
                    let seconds = vec![factor * 1e-6, factor * 2e-6];
                    let (carrier, side) = (carrier.to_owned(), side.to_owned());
                    series.push(Series { carrier, side, kind, length, cpu: seconds.clone(), seconds });
                }
            }
        }
        let mut report = Report {
            version: "0",
            runs: 2,
            processors: 2,
            load: [0.0; 3],
            series,
            peers: Vec::new(),
            aims: Vec::new(),
        };
        report.aims = aims::of(&report);
        report
    }

    #[test]
    fn ratios_are_of_the_runs_and_of_the_least() {
        let report = report();
        let find = |side| report.find("TCP", side, Kind::Trips, 8).expect("it was measured");
        let ratio = find("sealed").by(find("bare"));
        assert!((ratio.of_least - 3.0).abs() < 1e-9 && (ratio.median - 3.0).abs() < 1e-9);
    }

    #[test]
    fn an_aim_is_met_or_missed_and_says_which() {
        let text = report().text();
        assert!(text.contains("met") && text.contains("missed"), "{text}");
        assert!(report().aims.iter().any(|aim| aim.met) && report().aims.iter().any(|aim| !aim.met));
    }
}
