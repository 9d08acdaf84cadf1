//! `gambeson._native`: what `gambeson.open` and the Python packages `gambeson.link`, `gambeson.launch` and `gambeson.sim` call.
//! Experiments and outcomes cross as JSON, tables as Arrow; Python's lock is held by no run. The Python side (python/gambeson) has the types and the words.
#![deny(unsafe_code)]

mod errors;
mod file;
mod journal;
mod launch;
mod link;
mod sweep;
mod table;
mod watch;

use std::path::PathBuf;

use gambeson_sim::experiment::Outcome;
use gambeson_sim::trace;
use gambeson_study::Error;
use gambeson_study::advise::{Request, advise};
use gambeson_study::sweep::{Template, carry_out};
use pyo3::prelude::*;
use serde::Serialize;

use errors::{ExperimentError, StoppedError, StuckError, TraceError, raised, study_raised};
use sweep::NativeSweep;
use table::NativeTable;
use watch::watched;

/// Sealed files, for gambeson.open; links, for gambeson.link; processes, for gambeson.launch; the simulator, for gambeson.sim.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("ExperimentError", py.get_type::<ExperimentError>())?;
    module.add("TraceError", py.get_type::<TraceError>())?;
    module.add("StuckError", py.get_type::<StuckError>())?;
    module.add("StoppedError", py.get_type::<StoppedError>())?;
    link::add(module)?;
    launch::add(module)?;
    module.add_class::<file::NativeFile>()?;
    module.add_class::<journal::NativeJournalKeys>()?;
    module.add_class::<NativeSweep>()?;
    module.add_class::<NativeTable>()?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(complete, module)?)?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(run_task, module)?)?;
    module.add_function(wrap_pyfunction!(advise_job, module)?)?;
    module.add_function(wrap_pyfunction!(summarise_trace, module)?)
}

/// The text of an experiment's file.
#[pyfunction]
fn read(path: PathBuf) -> PyResult<String> {
    Template::read(&path, &[]).map(|template| template.text).map_err(study_raised)
}

/// An experiment's text with changes, complete with its defaults, as JSON.
#[pyfunction]
fn complete(text: String, path: Option<PathBuf>, set: Vec<String>) -> PyResult<String> {
    let template = Template { text, path, set };
    template.experiment().map(|experiment| json(&experiment)).map_err(raised)
}

/// Carries an experiment out; the outcome as JSON.
#[pyfunction]
fn run(
    py: Python<'_>,
    text: String,
    path: Option<PathBuf>,
    set: Vec<String>,
    watch: Option<Py<PyAny>>,
) -> PyResult<String> {
    let experiment = Template { text, path, set }.experiment().map_err(raised)?;
    let outcome = watched(py, watch.as_ref(), |watch| experiment.run_watched(watch).map_err(raised))?;
    Ok(json(&outcome))
}

/// Carries one run of a sweep out, perhaps in another process or on another machine; the line that the sweep keeps.
#[pyfunction]
fn run_task(py: Python<'_>, task: &str, told: &str, base: PathBuf, watch: Option<Py<PyAny>>) -> PyResult<String> {
    watched(py, watch.as_ref(), |watch| {
        carry_out(task, &base, watch).map_err(|cause| study_raised(Error::Run { point: told.into(), cause }))
    })
}

/// Which session-key cache a job wants, as JSON and as a table.
#[pyfunction]
fn advise_job(
    py: Python<'_>,
    trace: PathBuf,
    target_percent: f64,
    machine: Option<(String, Option<PathBuf>, Vec<String>)>,
    iterations: Option<u32>,
    buffer: Option<u32>,
    watch: Option<Py<PyAny>>,
) -> PyResult<(String, NativeTable)> {
    let machine = machine.map(|(text, path, set)| Template { text, path, set }.experiment());
    let machine = machine.transpose().map_err(raised)?;
    let request = Request { trace, target_percent, machine, iterations, buffer };
    let advice = watched(py, watch.as_ref(), |watch| advise(&request, watch, |_, _| ()).map_err(raised))?;
    Ok((json(&advice), NativeTable::new(advice.table())))
}

/// What a trace holds, as JSON.
#[pyfunction]
fn summarise_trace(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let job = py.detach(|| trace::read(&path)).map_err(raised)?;
    let totals = job.totals();
    let computed: u64 = job.ranks.iter().flatten().map(|op| op.gap).sum();
    Ok(json(&serde_json::json!({
        "name": job.name,
        "ranks": job.ranks.len(),
        "operations": job.ranks.iter().map(Vec::len).sum::<usize>(),
        "sends": totals.sends,
        "receives": totals.receives + totals.any_source,
        "any_source": totals.any_source,
        "collectives": totals.collectives,
        "bytes": totals.bytes,
        "communicators": job.communicators.len(),
        "compute_us": gambeson_sim::time::to_ns(computed) / 1e3,
    })))
}

fn outcomes(texts: &[String]) -> PyResult<Vec<Outcome>> {
    let parse = |text: &String| serde_json::from_str(text);
    texts.iter().map(parse).collect::<Result<_, _>>().map_err(|error| ExperimentError::new_err(error.to_string()))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("experiments and outcomes are plain data")
}
