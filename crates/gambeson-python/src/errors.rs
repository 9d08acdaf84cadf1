//! The simulator's errors as Python's exceptions, with the same sentences.

use std::io;

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(gambeson.sim, ExperimentError, PyValueError, "An experiment that makes no sense.");
create_exception!(gambeson.sim, TraceError, PyValueError, "A trace that breaks its format, or the rules of MPI.");
create_exception!(gambeson.sim, StuckError, PyRuntimeError, "A simulated network or job that came to a standstill.");
create_exception!(gambeson.sim, StoppedError, PyRuntimeError, "A run that was not let go on.");

/// A simulator's error.
pub(crate) fn raised(error: gambeson_sim::Error) -> PyErr {
    with_sentence(&error, error.to_string())
}

/// An error of a study.
pub(crate) fn study_raised(error: gambeson_study::Error) -> PyErr {
    use gambeson_study::Error;
    let sentence = error.to_string();
    match error {
        Error::Input(cause) | Error::Run { cause, .. } => with_sentence(&cause, sentence),
        Error::Folder { kind, .. } => io::Error::new(kind, sentence).into(),
        _ => ExperimentError::new_err(sentence),
    }
}

fn with_sentence(error: &gambeson_sim::Error, sentence: String) -> PyErr {
    use gambeson_sim::Error;
    match error {
        // FileNotFoundError, PermissionError and so on, as the system said.
        Error::File { cause, .. } => io::Error::new(cause.kind(), sentence).into(),
        Error::Trace { .. } => TraceError::new_err(sentence),
        Error::Stuck(_) => StuckError::new_err(sentence),
        Error::Stopped => StoppedError::new_err(sentence),
        _ => ExperimentError::new_err(sentence),
    }
}
