//! The SKC paper's runs on recorded traces: which jobs, how much of them, and what was run before.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Finding, Outcome, Setting, Verdict, key_cache};
use crate::error::Error;
use crate::experiment::{self, Experiment};
use crate::trace::Job;

/// The NAS benchmarks of the paper.
pub(super) const BENCHMARKS: [&str; 6] = ["cg", "mg", "lu", "sp", "bt", "ft"];
const NO_TRACES: &str = "needs recorded traces; give --traces DIR";

/// A job, and what tells it from others.
#[derive(Clone)]
pub(super) struct Trace {
    pub(super) job: Arc<Job>,
    identity: String,
}

impl Trace {
    /// A job that was made and not recorded.
    pub(super) fn made(job: Job, identity: String) -> Self {
        Self { job: job.into(), identity }
    }
}

/// The trace of a benchmark in a folder.
pub(super) fn file(folder: &Path, benchmark: &str) -> PathBuf {
    folder.join(format!("{benchmark}.A.16.npbt.zst"))
}

fn load(setting: &Setting<'_>, folder: &Path, names: &[&str], whole: bool) -> Result<Vec<Trace>, Error> {
    let mut replay = key_cache::preset().replay.unwrap_or_default();
    if whole {
        replay.window = None;
    }
    setting.each(names, |name| {
        let path = file(folder, name);
        let bytes = std::fs::read(&path).map_err(|cause| Error::File { file: path.clone(), cause })?;
        let mut content = DefaultHasher::new();
        content.write(&bytes);
        let identity = format!("{name} {:016x} {:?}", content.finish(), replay.window);
        Ok(Trace { job: experiment::load(&path, &replay)?, identity })
    })
}

/// Figures from the window of the traces, and from whole traces beside if those are wanted.
pub(super) fn figures(
    setting: &Setting<'_>,
    names: &[&str],
    claims: &[(&str, &str)],
    run: impl Fn(&[Trace], bool) -> Result<Outcome, Error>,
) -> Result<Outcome, Error> {
    let Some(folder) = setting.traces else {
        let findings = claims.iter().map(|(figure, claim)| Finding::missing(figure, claim, NO_TRACES)).collect();
        return Ok(Outcome { findings, ..Outcome::default() });
    };
    let mut outcome = run(&load(setting, folder, names, false)?, false)?;
    if setting.full {
        let whole = run(&load(setting, folder, names, true)?, true)?;
        for (finding, whole) in outcome.findings.iter_mut().zip(whole.findings) {
            debug_assert_eq!(finding.claim, whole.claim);
            // What stands in for something is no trace.
            if whole.verdict != Verdict::NotReproducible {
                finding.whole = Some((whole.ours, whole.verdict));
            }
        }
        let panels = outcome.figures.iter_mut().flat_map(|figure| &mut figure.panels);
        for (panel, whole) in panels.zip(whole.figures.into_iter().flat_map(|figure| figure.panels)) {
            debug_assert_eq!(panel.y_title, whole.y_title);
            panel.whole = whole.series;
        }
    }
    Ok(outcome)
}

/// What a run gives: latency in ns, hit rate (none without a look-up), end of the last job in us.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Met {
    pub(super) latency: f64,
    pub(super) hits: Option<f64>,
    pub(super) ended: f64,
}

/// Replays jobs, or finds what it gave before.
pub(super) fn met(setting: &Setting<'_>, experiment: &Experiment, traces: &[Trace]) -> Result<Met, Error> {
    let names: Vec<&str> = traces.iter().map(|trace| &*trace.identity).collect();
    let experiment_text = serde_json::to_string(experiment).map_err(|error| Error::config(error.to_string()))?;
    let key = format!("{} on {experiment_text}", names.join(", "));
    if let Some(met) = setting.held.and_then(|held| held.find(&key)).and_then(|text| serde_json::from_str(&text).ok()) {
        return Ok(met);
    }
    let jobs: Vec<Arc<Job>> = traces.iter().map(|trace| trace.job.clone()).collect();
    let outcome = experiment.run_jobs(&jobs)?;
    let met = Met {
        latency: outcome.flows[0].latency.mean_ns,
        hits: (outcome.lookups > 0).then_some(outcome.hit_rate),
        ended: outcome.jobs.iter().filter_map(|job| job.ended_us).fold(0.0, f64::max),
    };
    if let Some(held) = setting.held {
        held.keep(&key, &serde_json::to_string(&met).expect("numbers are plain data"))?;
    }
    Ok(met)
}
