//! Who watches a run: a Python function that is called ten times a second and may raise, KeyboardInterrupt for one.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gambeson_sim::fabric::Watch;
use gambeson_sim::time::{Time, US};
use pyo3::prelude::*;

/// Works without Python's lock, and calls `watch` with the microseconds simulated so far. What it raises stops the work
/// and is raised here.
pub(crate) fn watched<R: Send>(
    py: Python<'_>,
    watch: Option<&Py<PyAny>>,
    work: impl FnOnce(Watch<'_>) -> PyResult<R> + Send,
) -> PyResult<R> {
    let Some(watch) = watch else { return py.detach(|| work(&|_| true)) };
    let last = Mutex::new(Instant::now());
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let ask = |now: Time| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() < PERIOD {
            return true;
        }
        *last = Instant::now();
        drop(last);
        let answer = Python::attach(|py| watch.call1(py, (now as f64 / US as f64,)).map(drop));
        match answer {
            Ok(()) => raised.lock().unwrap_or_else(PoisonError::into_inner).is_none(),
            Err(error) => {
                raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                false
            }
        }
    };
    let result = py.detach(|| work(&ask));
    match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => result,
    }
}

const PERIOD: Duration = Duration::from_millis(100);
