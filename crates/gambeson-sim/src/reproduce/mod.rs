//! The two papers' figures and tables again: what each claims, what comes out here, and whether that agrees.
//!
//! One preset for each paper says all parameters of its figures. What a paper leaves open has a default there, two of
//! them chosen by values of the paper, and tables beside the findings show what another would change.

mod alone;
mod attacks;
mod estimates;
mod figure;
mod filters;
mod floods;
mod infiniband;
mod key_cache;
mod key_streams;
mod page;
mod placement;
mod request_reply;
mod scheduled;
mod sealing;
mod traces;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::error::Error;
use crate::experiment::Experiment;
use crate::model::tables::Paper;

pub use figure::{Figure, Panel, Scale, Series, Shape};
pub use page::page;

/// What is reproduced at a time: a paper's figures that share their runs.
pub struct Figures {
    /// What it is asked for by.
    pub name: &'static str,
    paper: Paper,
    title: &'static str,
    run: fn(&Setting<'_>) -> Result<Outcome, Error>,
}

/// All of both papers, those first that take no time.
pub const FIGURES: [Figures; 13] = [
    of("iba-tables", Paper::InfiniBandSecurity, "Tables 1 to 3 and the estimates", estimates::infiniband),
    of("skc-tables", Paper::SessionKeyCache, "Table 1 and the estimates", estimates::key_cache),
    of("skc-fig-3", Paper::SessionKeyCache, "Fig. 3: capacity of a cache", key_streams::capacity),
    of("skc-fig-8", Paper::SessionKeyCache, "Fig. 8: thousands of keys in one adapter", key_streams::thousands),
    of("skc-fig-9", Paper::SessionKeyCache, "Fig. 9: associativity", key_streams::associativity),
    of("skc-placement", Paper::SessionKeyCache, "Where the cryptography sits", placement::placements),
    of("iba-fig-1", Paper::InfiniBandSecurity, "Fig. 1: floods", floods::floods),
    of("iba-fig-7", Paper::InfiniBandSecurity, "Fig. 7: what sealing costs", sealing::sealing),
    of("iba-fig-8", Paper::InfiniBandSecurity, "Fig. 8: filters", filters::filters),
    of("iba-attacks", Paper::InfiniBandSecurity, "Attacks I to IV, captured keys and replays", attacks::attacks),
    of("skc-fig-5", Paper::SessionKeyCache, "Fig. 5: one application", alone::alone),
    of("skc-fig-6", Paper::SessionKeyCache, "Fig. 6: schedulers and prefetching", scheduled::schedulers),
    of("skc-fig-7", Paper::SessionKeyCache, "Fig. 7: sizes of cache and buffer", scheduled::sizes),
];

const fn of(
    name: &'static str,
    paper: Paper,
    title: &'static str,
    run: fn(&Setting<'_>) -> Result<Outcome, Error>,
) -> Figures {
    Figures { name, paper, title, run }
}

/// What a reproduction is given.
pub struct Setting<'s> {
    /// The folder of the recorded traces, where there is one.
    pub traces: Option<&'s Path>,
    /// Whole traces beside the window.
    pub full: bool,
    /// Results of runs that were carried out before, and where new ones go.
    pub held: Option<&'s dyn Held>,
    /// How many runs at a time. No result depends on it.
    pub threads: usize,
    /// Who wants to know how far it is.
    pub progress: &'s dyn Progress,
}

/// Hears of runs.
pub trait Progress: Sync {
    /// So many more are to come.
    fn planned(&self, runs: usize);
    /// One is over.
    fn done(&self);
}

/// Keeps what runs of traces gave, so that a reproduction that was interrupted goes on where it was.
pub trait Held: Sync {
    /// What was kept under a key: all that a run is made of.
    fn find(&self, key: &str) -> Option<String>;

    /// Keeps it.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn keep(&self, key: &str, value: &str) -> Result<(), Error>;
}

impl Setting<'_> {
    /// Carries independent runs out, several at a time; results in the order of the runs.
    fn each<T: Sync, R: Send>(
        &self,
        runs: &[T],
        carry_out: impl Fn(&T) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        self.progress.planned(runs.len());
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, runs.len().max(1)) {
                scope.spawn(|| {
                    while let Some((number, run)) =
                        Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, runs.get(n)?)))
                    {
                        let result = carry_out(run);
                        results.lock().expect("no run panics with the lock").push((number, result));
                        self.progress.done();
                    }
                });
            }
        });
        let mut results = results.into_inner().expect("no run panics with the lock");
        results.sort_by_key(|&(number, _)| number);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// A claim of a paper, and what came out here.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Where in the paper.
    pub figure: String,
    /// The paper's words, in numbers.
    pub claim: String,
    /// What comes out here.
    pub ours: String,
    /// Whether that is the same.
    pub verdict: Verdict,
    /// Why it is not, or what to know of it.
    pub reason: String,
    /// What comes out of whole traces, and whether that is the same; where it was asked for and there are any.
    pub whole: Option<(String, Verdict)>,
}

/// Whether a claim was found to be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// By shape and ratio.
    Agrees,
    /// Not so here.
    Differs,
    /// What it needs is not to be had.
    NotReproducible,
}

impl Finding {
    fn new(figure: &str, claim: impl Into<String>, ours: impl Into<String>, agrees: bool, reason: &str) -> Self {
        Self {
            figure: figure.into(),
            claim: claim.into(),
            ours: ours.into(),
            verdict: if agrees { Verdict::Agrees } else { Verdict::Differs },
            reason: reason.into(),
            whole: None,
        }
    }

    fn missing(figure: &str, claim: &str, reason: &str) -> Self {
        Self { verdict: Verdict::NotReproducible, ..Self::new(figure, claim, "", false, reason) }
    }

    /// Says what stands in for what is missing.
    fn with(self, ours: impl Into<String>) -> Self {
        Self { ours: ours.into(), ..self }
    }
}

/// Values behind findings.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What they are.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// One value for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(title: impl Into<String>, head: &[&str]) -> Self {
        Self { title: title.into(), head: head.iter().map(|&name| name.into()).collect(), rows: Vec::new() }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

/// A parameter of a paper's preset.
#[derive(Clone, Debug, Serialize)]
pub struct Parameter {
    /// What it is.
    pub name: &'static str,
    /// Its value in the preset.
    pub value: String,
    /// Whether the paper states it; else it is a default here.
    pub stated: bool,
    /// Where it is stated, or why it is this value.
    pub why: &'static str,
    /// The table below that shows what other values would change, of one that is not stated.
    pub swept: &'static str,
}

impl Parameter {
    fn stated(name: &'static str, value: impl Into<String>, why: &'static str) -> Self {
        Self { name, value: value.into(), stated: true, why, swept: "" }
    }

    fn open(name: &'static str, value: impl Into<String>, why: &'static str, swept: &'static str) -> Self {
        Self { name, value: value.into(), stated: false, why, swept }
    }
}

/// What came out of some figures.
#[derive(Debug, Default)]
struct Outcome {
    findings: Vec<Finding>,
    figures: Vec<Figure>,
    tables: Vec<Table>,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.figures.extend(other.figures);
        self.tables.extend(other.tables);
    }
}

/// What came out of one entry of [`FIGURES`].
#[derive(Debug, Serialize)]
pub struct Section {
    /// Its name there.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Which of the papers.
    pub paper: &'static str,
    /// Claims and what came out.
    pub findings: Vec<Finding>,
    /// The paper's figures, anew.
    pub figures: Vec<Figure>,
    /// Values behind findings that are in no figure.
    pub tables: Vec<Table>,
}

/// Reproduces the figures of a name, or all.
///
/// # Errors
/// A name that is none, or what is wrong with a trace.
pub fn reproduce(name: &str, setting: &Setting<'_>) -> Result<Vec<Section>, Error> {
    let wanted: Vec<&Figures> = FIGURES.iter().filter(|figures| name == "all" || name == figures.name).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = FIGURES.iter().map(|figures| figures.name).collect();
        return Err(Error::config(format!("{name} is no figure here; take all, or one of {}", names.join(", "))));
    }
    let section = |figures: &Figures| {
        let Figures { name, paper, title, run } = *figures;
        let Outcome { findings, figures, tables } = run(setting)?;
        Ok(Section { name, title, paper: short(paper), findings, figures, tables })
    };
    wanted.into_iter().map(section).collect()
}

/// All parameters that the figures of a paper share.
#[must_use]
pub fn preset(paper: Paper) -> Experiment {
    match paper {
        Paper::InfiniBandSecurity => infiniband::preset(),
        Paper::SessionKeyCache => key_cache::preset(),
    }
}

/// The parameters of a paper's preset, with what the paper says of each.
#[must_use]
pub fn parameters(paper: Paper) -> Vec<Parameter> {
    match paper {
        Paper::InfiniBandSecurity => infiniband::parameters(),
        Paper::SessionKeyCache => key_cache::parameters(),
    }
}

fn short(paper: Paper) -> &'static str {
    match paper {
        Paper::InfiniBandSecurity => "infiniband-security-framework",
        Paper::SessionKeyCache => "session-key-cache",
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}

/// Microseconds of nanoseconds, to be read.
fn us(ns: f64) -> String {
    match ns / 1e3 {
        us if us < 10.0 => format!("{us:.2} us"),
        us if us < 1e3 => format!("{us:.1} us"),
        us => format!("{:.1} ms", us / 1e3),
    }
}

#[cfg(test)]
mod tests;
