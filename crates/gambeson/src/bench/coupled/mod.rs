//! A coupled model of ocean and atmosphere, whose processes speak over links alone: the application of the secure-nexus
//! paper (section 8.2) again, with its three settings and its table.
//!
//! [`ocean`] and [`atmosphere`] are the science, [`exchange`] is what links do, [`partition`] a process, and here the runs
//! are started and compared. Nothing of the model depends on how its links are protected or what carries them, and so all
//! runs must end in the same state, to the last bit.

mod atmosphere;
mod exchange;
mod grid;
mod ocean;
pub(crate) mod partition;
mod table;

use aws_lc_rs::digest::{Context, SHA256};
use indicatif::ProgressBar;
use serde::Serialize;

use super::part::{Job, Part, Task};
use super::statistics::median;
use crate::failure::Failure;
use exchange::{Offer, Peers};
use grid::{DAY, EXTENT};
use partition::{Component, FINER, Outcome, Setting};

/// What to run.
pub(crate) struct Wanted {
    pub(crate) days: u32,
    /// Of each component.
    pub(crate) processes: usize,
    /// Cells of the ocean, eastward and northward.
    pub(crate) cells: usize,
    /// How often; each time all settings in turn.
    pub(crate) rounds: usize,
}

/// The three settings of the paper's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Secure {
    None,
    Coupler,
    All,
}

const MODES: [Secure; 3] = [Secure::None, Secure::Coupler, Secure::All];

impl Secure {
    /// All that differs between the settings: what the `gambeson.toml` of the processes says.
    fn policy(self) -> &'static str {
        match self {
            Secure::None => "protection = \"none\"",
            Secure::Coupler => {
                "protection = \"none\"

                [[rule]]
                between = [\"ocean\", \"atmosphere\"]
                class = \"coupler\"
                protection = \"privacy\""
            }
            Secure::All => "protection = \"privacy\"",
        }
    }

    /// Whether links within the components, and those between them, must be sealed then.
    fn seals(self) -> (bool, bool) {
        (self == Secure::All, self != Secure::None)
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    days: u32,
    processes: usize,
    cells: usize,
    rounds: usize,
    processors: usize,
    /// Load averages of one, five and fifteen minutes before the first run.
    load: [f64; 3],
    runs: Vec<Run>,
    heat: Heat,
    /// SHA-256 of all that ocean and atmosphere are at the end, the same after every run.
    state: String,
}

/// One setting over one carrier within the components.
#[derive(Debug, Serialize)]
struct Run {
    mode: Secure,
    /// Shared memory within the components, or TCP; between them always TCP.
    within: &'static str,
    /// For each simulated day, in every round.
    seconds_per_day: Vec<f64>,
}

/// The heat budget, in W/m2 over the plane and the time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Heat {
    /// What the atmosphere gave the ocean.
    given: f64,
    /// What the ocean got, and what its content rose by.
    received: f64,
    ocean_gained: f64,
    atmosphere_gained: f64,
    /// What came from the sun, less what went to space.
    radiated: f64,
}

/// A budget is closed within so many W/m2: sums of millions of numbers of some 1e9 J/m2 leave less.
const ROUNDING: f64 = 1e-5;

impl Heat {
    /// # Errors
    /// A sentence, when heat came from nowhere or was lost.
    fn check(&self) -> Result<(), Failure> {
        let Heat { given, received, ocean_gained, atmosphere_gained, radiated } = self;
        let pairs = [
            ("what the atmosphere gave and what the ocean got", given, *received),
            ("what the ocean got and what it gained", received, *ocean_gained),
            ("what came by radiation and what both gained", radiated, ocean_gained + atmosphere_gained),
        ];
        for (what, one, other) in pairs {
            let apart = (one - other).abs();
            if apart.is_nan() || apart > ROUNDING {
                return Err(Failure::system(format!(
                    "the heat budget is not closed: {what} differ, {one} and {other} W/m2"
                )));
            }
        }
        Ok(())
    }
}

/// Runs all settings over both carriers, and checks budget and state.
///
/// # Errors
/// When processes do not come up, a budget is not closed, or two runs end in different states.
pub(crate) fn bench(wanted: &Wanted, load: [f64; 3], progress: &ProgressBar) -> Result<Report, Failure> {
    let carriers = [(false, "TCP"), (true, "shared memory")];
    let mut runs = Vec::new();
    for (shm, within) in carriers {
        runs.extend(MODES.map(|mode| (shm, Run { mode, within, seconds_per_day: Vec::new() })));
    }
    progress.set_length((runs.len() * wanted.rounds) as u64);
    let mut end: Option<(String, Heat)> = None;
    for round in 0..wanted.rounds {
        for turn in 0..runs.len() {
            let at = (turn + round) % runs.len();
            let (shm, run) = &mut runs[at];
            let outcomes = one_run(wanted, *shm, run.mode)?;
            for (halo, coupler) in outcomes.iter().flatten().map(|outcome| outcome.sealed) {
                let (halo_must, coupler_must) = run.mode.seals();
                if halo.is_some_and(|sealed| sealed != halo_must) || coupler != Some(coupler_must) {
                    let mode = run.mode;
                    return Err(Failure::refused(format!("links are not protected as the setting {mode:?} says")));
                }
            }
            let seconds = outcomes.iter().flatten().map(|outcome| outcome.seconds).fold(0.0, f64::max);
            run.seconds_per_day.push(seconds / f64::from(wanted.days));
            let (state, heat) = summary(&outcomes, wanted.days);
            heat.check()?;
            match &end {
                Some((first, _)) if *first != state => {
                    return Err(Failure::system(format!(
                        "the model ended in another state ({state}) than before ({first}), with {:?} over {}: links have \
                         changed what it computes",
                        run.mode, run.within
                    )));
                }
                _ => end = Some((state, heat)),
            }
            progress.inc(1);
        }
    }
    let (state, heat) = end.ok_or_else(|| Failure::usage("no rounds were asked for"))?;
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        days: wanted.days,
        processes: wanted.processes,
        cells: wanted.cells,
        rounds: wanted.rounds,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        load,
        runs: runs.into_iter().map(|(_, run)| run).collect(),
        heat,
        state,
    })
}

/// Starts the processes, hands their startpoints around, and waits for what comes out: of the ocean and of the atmosphere,
/// from south to north.
fn one_run(wanted: &Wanted, shm: bool, mode: Secure) -> Result<[Vec<Outcome>; 2], Failure> {
    let job = Job::new()?;
    let mut parts: [Vec<Part>; 2] = [Vec::new(), Vec::new()];
    let mut offers: [Vec<Offer>; 2] = [Vec::new(), Vec::new()];
    for (side, component) in [Component::Ocean, Component::Atmosphere].into_iter().enumerate() {
        for index in 0..wanted.processes {
            let mut part = Part::start(Task::Coupled)?;
            part.tell(&Setting {
                job: job.clone(),
                component,
                index,
                processes: wanted.processes,
                cells: wanted.cells,
                days: wanted.days,
                shm,
                policy: mode.policy().to_owned(),
            })?;
            parts[side].push(part);
        }
        for part in &mut parts[side] {
            offers[side].push(part.hear()?);
        }
    }
    for (side, parts) in parts.iter_mut().enumerate() {
        for (index, part) in parts.iter_mut().enumerate() {
            let neighbour = |at: Option<usize>| at.and_then(|at| offers[side].get(at)).map(|offer| offer.halo.clone());
            part.tell(&Peers {
                south: neighbour(index.checked_sub(1)),
                north: neighbour(Some(index + 1)),
                partner: offers[1 - side][index].coupler.clone(),
            })?;
        }
    }
    for part in parts.iter_mut().flatten() {
        part.hear::<String>()?;
    }
    for part in parts.iter_mut().flatten() {
        part.tell(&"go")?;
    }
    let mut outcomes = [Vec::new(), Vec::new()];
    for (outcomes, parts) in outcomes.iter_mut().zip(&mut parts) {
        for part in parts {
            outcomes.push(part.hear()?);
        }
    }
    Ok(outcomes)
}

/// The digest of the state, and the heat budget. Sums go over rows from south to north, whoever had them.
fn summary(outcomes: &[Vec<Outcome>; 2], days: u32) -> (String, Heat) {
    let rows = |side: usize| outcomes[side].iter().flat_map(|outcome| &outcome.rows);
    let mut context = Context::new(&SHA256);
    for row in rows(0).chain(rows(1)) {
        context.update(&row.digest);
    }
    let state = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let per = EXTENT * EXTENT * f64::from(days) * DAY;
    let gained = |side| rows(side).map(|row| row.after - row.before).sum::<f64>() / per;
    let heat = Heat {
        given: rows(1).map(|row| row.exchanged).sum::<f64>() / per,
        received: rows(0).map(|row| row.exchanged).sum::<f64>() / per,
        ocean_gained: gained(0),
        atmosphere_gained: gained(1),
        radiated: rows(1).map(|row| row.radiated).sum::<f64>() / per,
    };
    (state, heat)
}

impl Run {
    fn least(&self) -> f64 {
        self.seconds_per_day.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Median of the rounds' own ratios, and the least time by the least time.
    fn by(&self, other: &Run) -> (f64, f64) {
        let each = self.seconds_per_day.iter().zip(&other.seconds_per_day).map(|(one, other)| one / other);
        (median(&each.collect::<Vec<_>>()), self.least() / other.least())
    }
}

impl Report {
    /// The table, for people.
    pub(crate) fn text(&self) -> String {
        table::text(self)
    }

    fn run(&self, mode: Secure, within: &str) -> &Run {
        let found = self.runs.iter().find(|run| run.mode == mode && run.within == within);
        found.expect("every setting was run over both carriers")
    }
}

/// Whether that many cells can be divided among that many processes of each component.
pub(crate) fn divides(cells: usize, processes: usize) -> bool {
    cells.is_multiple_of(FINER * processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_that_comes_from_nowhere_is_noticed() {
        let closed =
            Heat { given: 2.0, received: 2.0, ocean_gained: 2.0 + 1e-9, atmosphere_gained: -3.0, radiated: -1.0 };
        assert!(closed.check().is_ok());
        let leaks = |change: fn(&mut Heat)| {
            let mut heat = closed;
            change(&mut heat);
            heat.check().is_err()
        };
        assert!(leaks(|heat| heat.received += 0.001));
        assert!(leaks(|heat| heat.atmosphere_gained -= 0.001));
        assert!(leaks(|heat| heat.radiated = f64::NAN));
    }
}
