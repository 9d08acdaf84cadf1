//! Messages between two processes, plain and sealed in alternation.

pub(crate) mod coupled;
pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod launch;
pub(crate) mod link;
pub(crate) mod part;
mod plot;
pub(crate) mod proxy;
mod statistics;
mod table;

use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::failure::Failure;
use crate::probe::job::{End, Side, Starter};
use crate::probe::report::Event;

pub(crate) use plot::{Picture, draw};
use statistics::{Quantity, Ratios, Series};

/// What to measure.
pub(crate) struct Wanted {
    pub(crate) sizes: Vec<usize>,
    pub(crate) rounds: usize,
    /// Time for each quantity, size, side and round.
    pub(crate) time: Duration,
    pub(crate) core: String,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) mpi: String,
    pub(crate) core: String,
    pub(crate) rounds: usize,
    /// Load averages of one, five and fifteen minutes before the first round.
    pub(crate) load: [f64; 3],
    pub(crate) processors: usize,
    /// In the order of the table; seconds, bytes per second, messages per second.
    series: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    #[serde(flatten)]
    series: Series,
    /// Sealed divided by plain.
    ratio: Ratios,
}

impl Report {
    fn of(&self, quantity: Quantity) -> impl Iterator<Item = &Series> {
        self.series.iter().map(|entry| &entry.series).filter(move |series| series.quantity == quantity)
    }

    /// The tables, for people.
    pub(crate) fn text(&self) -> String {
        table::text(self)
    }
}

/// Runs all rounds.
///
/// # Errors
/// When a job does not come up or does not measure all that was asked for.
pub(crate) fn bench(
    starter: &Starter,
    wanted: &Wanted,
    load: [f64; 3],
    progress: &ProgressBar,
) -> Result<Report, Failure> {
    let quantities = 2 * wanted.sizes.len() - usize::from(wanted.sizes.contains(&0)) + 1;
    progress.set_length((2 * wanted.rounds * quantities) as u64);
    let mut report = Report {
        mpi: String::new(),
        core: wanted.core.clone(),
        rounds: wanted.rounds,
        load,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        series: Vec::new(),
    };
    let mut series: Vec<Series> = Vec::new();
    for round in 0..wanted.rounds {
        // Whoever is second finds a warmer machine, so the order changes every round.
        let order = if round % 2 == 0 { [Side::Plain, Side::Sealed] } else { [Side::Sealed, Side::Plain] };
        for side in order {
            progress.set_prefix(format!("round {} {}", round + 1, side.name()));
            let (library, values) = one_job(starter, side, wanted, progress)?;
            report.mpi = library;
            add(&mut series, side, values);
        }
    }
    report.series = series.into_iter().map(|series| Entry { ratio: series.ratios(), series }).collect();
    match report
        .series
        .iter()
        .all(|Entry { series, .. }| [series.plain.len(), series.sealed.len()] == [wanted.rounds; 2])
    {
        true => Ok(report),
        false => Err(Failure::system("some measurements are missing: the probe did not report all of them")),
    }
}

type Value = (Quantity, usize, f64);

fn one_job(
    starter: &Starter,
    side: Side,
    wanted: &Wanted,
    progress: &ProgressBar,
) -> Result<(String, Vec<Value>), Failure> {
    let sizes = Vec::from_iter(wanted.sizes.iter().map(usize::to_string)).join(",");
    let arguments = ["--sizes", &sizes, "--time", &wanted.time.as_millis().to_string()].map(String::from);
    let mut job = starter.start(side, "bench", &arguments).map_err(Failure::unavailable)?;
    let patience = wanted.time * 10 + Duration::from_secs(60);
    let (mut library, mut values) = (String::new(), Vec::new());
    loop {
        match job.next(patience) {
            Ok(Event::Started { library: name, .. }) => library = name,
            Ok(Event::Measured { quantity, size, value }) => {
                progress.inc(1);
                if let Some(quantity) = Quantity::from_name(&quantity) {
                    values.push((quantity, size, value));
                }
            }
            Ok(Event::Finished) => {
                job.finish();
                return Ok((library, values));
            }
            Ok(_) => {}
            Err(end) => return Err(unfinished(side, &end, &job.said())),
        }
    }
}

pub(crate) fn unfinished(side: Side, end: &End, said: &str) -> Failure {
    let side = side.name();
    match end {
        End::Silence => Failure::unavailable(format!("the {side} job went silent and was ended. It said:\n{said}")),
        End::Exit(status) => {
            let sentence = format!("the {side} job ended early ({status}). It said:\n{said}");
            if status.code() == Some(70) { Failure::refused(sentence) } else { Failure::unavailable(sentence) }
        }
    }
}

fn add(series: &mut Vec<Series>, side: Side, values: Vec<Value>) {
    for (quantity, size, value) in values {
        let known = series.iter().position(|series| series.quantity == quantity && series.size == size);
        let index = known.unwrap_or_else(|| {
            series.push(Series { quantity, size, plain: Vec::new(), sealed: Vec::new() });
            series.len() - 1
        });
        match side {
            Side::Plain => series[index].plain.push(value),
            Side::Sealed => series[index].sealed.push(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds of made-up values: sealed takes a quarter longer.
    pub(super) fn report() -> Report {
        let mut series = Vec::new();
        for round in [1.0, 1.1] {
            let values = |factor: f64| {
                let sizes = [0usize, 8, 65_536];
                let time = |size: usize| round * factor * (5e-6 + size as f64 / 4e9);
                let latency = sizes.map(|size| (Quantity::Latency, size, time(size)));
                let bandwidth = [8, 65_536].map(|size| (Quantity::Bandwidth, size, size as f64 / time(size)));
                [latency.as_slice(), &bandwidth, &[(Quantity::Rate, 8, 1.0 / time(8))]].concat()
            };
            add(&mut series, Side::Plain, values(1.0));
            add(&mut series, Side::Sealed, values(1.25));
        }
        let series = series.into_iter().map(|series| Entry { ratio: series.ratios(), series }).collect();
        Report { mpi: "Some MPI 1.0".into(), core: "tcp".into(), rounds: 2, load: [0.0; 3], processors: 2, series }
    }

    #[test]
    fn values_of_all_rounds_come_together() {
        let report = report();
        let latency: Vec<_> = report.of(Quantity::Latency).map(|series| (series.size, series.plain.len())).collect();
        assert_eq!(latency, [(0, 2), (8, 2), (65_536, 2)]);
        assert!((report.series[0].ratio.of_best - 1.25).abs() < 1e-9);
    }

    #[test]
    fn the_table_has_every_size_and_quantity() {
        let text = report().text();
        for expected in ["Some MPI 1.0", "Latency", "Bandwidth", "Message rate", "64 KiB", "1.250", "0.800"] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }
}
