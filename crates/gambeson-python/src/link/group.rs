//! Groups of endpoints that are called together.

use std::sync::Arc;
use std::time::Duration;

use gambeson_link::{Error, Group, Operation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::buffer::Payload;
use super::held::Held;
use super::{asked, elsewhere, patience, raised};

/// Endpoints with their order.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeGroup(pub(crate) Held<Group>);

impl NativeGroup {
    /// Asks every member; what came of each, for Python.
    fn each<'py>(
        &self,
        py: Python<'py>,
        payload: &[u8],
        timeout: Option<f64>,
        ask: impl FnOnce(&Group, &[u8], Duration) -> Vec<Result<Option<Vec<u8>>, Error>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyList>> {
        let (group, payload, patient) = (Arc::clone(&self.0), payload.to_vec(), patience(timeout)?);
        let came = elsewhere(py, timeout, move || Ok(ask(&group, &payload, patient)))?;
        PyList::new(py, came.into_iter().map(|one| outcome(py, one)).collect::<Vec<_>>())
    }
}

#[pymethods]
impl NativeGroup {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// For each member `None` or an exception.
    fn send<'py>(
        &self,
        py: Python<'py>,
        handler: u32,
        payload: Payload,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.each(py, &payload, timeout, move |group, payload, patience| {
            group.send(handler, payload, patience).into_iter().map(|one| one.map(|()| None)).collect()
        })
    }

    /// For each member its answer or an exception.
    fn call<'py>(
        &self,
        py: Python<'py>,
        handler: u32,
        payload: Payload,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.each(py, &payload, timeout, move |group, payload, patience| {
            group.call(handler, payload, patience).into_iter().map(|one| one.map(Some)).collect()
        })
    }

    fn reduce<'py>(
        &self,
        py: Python<'py>,
        handler: u32,
        payload: Payload,
        operation: Combination,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let operation = match operation {
            Combination::Own(name, combine) => own(&name, combine)?,
            Combination::BuiltIn(name) => match &*name {
                "concatenate" => Operation::CONCATENATE,
                "sum-i64" => Operation::SUM_I64,
                "min-i64" => Operation::MIN_I64,
                "max-i64" => Operation::MAX_I64,
                "sum-f64" => Operation::SUM_F64,
                "min-f64" => Operation::MIN_F64,
                "max-f64" => Operation::MAX_F64,
                other => return Err(PyValueError::new_err(format!("{other:?} is no operation"))),
            },
        };
        let (group, payload, patient) = (Arc::clone(&self.0), payload.to_vec(), patience(timeout)?);
        let answer = elsewhere(py, timeout, move || group.reduce(handler, &payload, &operation, patient))?;
        Ok(PyBytes::new(py, &answer))
    }
}

/// An operation, as Python has it: its name, for one of the program's own with the function.
#[derive(FromPyObject)]
enum Combination {
    BuiltIn(String),
    Own(String, Py<PyAny>),
}

/// An operation of the program's own. What its function raises is why there is no answer.
pub(crate) fn own(name: &str, combine: Py<PyAny>) -> PyResult<Operation> {
    if !Operation::is_name(name) {
        return Err(PyValueError::new_err(format!(
            "{name:?} is no name of an operation: it has 1 to 64 bytes and does not begin with +"
        )));
    }
    Ok(Operation::own(name, move |one, other| {
        asked(|py| {
            let made = combine.bind(py).call1((PyBytes::new(py, one), PyBytes::new(py, other)))?;
            made.extract::<Payload>().map(|made| made.to_vec())
        })
    }))
}

fn outcome<'py>(py: Python<'py>, one: Result<Option<Vec<u8>>, Error>) -> Bound<'py, PyAny> {
    match one {
        Ok(Some(bytes)) => PyBytes::new(py, &bytes).into_any(),
        Ok(None) => py.None().into_bound(py),
        Err(error) => raised(error).into_value(py).into_bound(py).into_any(),
    }
}
