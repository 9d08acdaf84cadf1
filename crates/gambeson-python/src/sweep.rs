//! A sweep whose runs somebody else carries out: Python's executors.

use std::path::PathBuf;

use gambeson_study::sweep::{Over, Runs, Sweep, Template};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::table::NativeTable;
use crate::{json, outcomes, study_raised};

/// The runs of a sweep, and the folder that keeps them.
#[pyclass(module = "gambeson._native")]
pub(crate) struct NativeSweep {
    sweep: Sweep,
    runs: Option<Runs>,
}

#[pymethods]
impl NativeSweep {
    #[new]
    fn new(
        py: Python<'_>,
        text: String,
        path: Option<PathBuf>,
        set: Vec<String>,
        over: Vec<(String, Vec<String>)>,
        repeat: u32,
        folder: Option<PathBuf>,
    ) -> PyResult<Self> {
        let over = over.into_iter().map(|(key, values)| Over::new(&key, values)).collect::<Result<Vec<_>, _>>();
        let over = over.map_err(PyValueError::new_err)?;
        let template = Template { text, path, set };
        let begun = py.detach(|| {
            let sweep = Sweep::new(&template, &over, repeat)?;
            let runs = sweep.open(folder.as_deref())?;
            Ok((sweep, runs))
        });
        let (sweep, runs) = begun.map_err(study_raised)?;
        Ok(Self { sweep, runs: Some(runs) })
    }

    /// How many runs it has.
    fn __len__(&self) -> usize {
        self.sweep.runs()
    }

    /// The runs that the folder does not hold.
    fn missing(&self) -> PyResult<Vec<usize>> {
        Ok(self.runs.as_ref().ok_or_else(over)?.missing())
    }

    /// What `run_task` takes.
    fn task(&self, at: usize) -> String {
        self.sweep.task(at)
    }

    /// What a run is told by: its values and its seed.
    fn told(&self, at: usize) -> String {
        self.sweep.told(at)
    }

    /// Takes what `run_task` gave.
    fn keep(&mut self, at: usize, line: &str) -> PyResult<()> {
        self.runs.as_mut().ok_or_else(over)?.keep_line(at, line).map_err(study_raised)
    }

    /// Writes tables, pictures and the page; the outcomes as JSON.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Vec<String>> {
        let runs = self.runs.take().ok_or_else(over)?;
        let sweep = &self.sweep;
        let outcomes = py.detach(|| runs.finish(sweep)).map_err(study_raised)?;
        Ok(outcomes.iter().map(json).collect())
    }

    /// Lets go of the folder.
    fn close(&mut self) {
        self.runs = None;
    }

    /// The table of outcomes in the sweep's order.
    fn table(&self, texts: Vec<String>) -> PyResult<NativeTable> {
        Ok(NativeTable::new(self.sweep.table(&outcomes(&texts)?)))
    }
}

fn over() -> PyErr {
    PyRuntimeError::new_err("this sweep has come to its end")
}
