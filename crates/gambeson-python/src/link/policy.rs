//! Policies, and what domains refused.

use std::path::PathBuf;

use gambeson_link::{Policy, read_policy};
use pyo3::prelude::*;

use super::domain::protection;
use super::raised;

/// How links are protected.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativePolicy(pub(crate) Policy);

#[pymethods]
impl NativePolicy {
    #[staticmethod]
    fn parse(document: &str, origin: &str) -> PyResult<Self> {
        Policy::parse(document, origin).map(NativePolicy).map_err(|cause| raised(cause.into()))
    }

    #[staticmethod]
    fn read(path: PathBuf) -> PyResult<Self> {
        read_policy(&path).map(NativePolicy).map_err(raised)
    }

    #[staticmethod]
    fn uniform(name: &str) -> PyResult<Self> {
        Ok(NativePolicy(Policy::uniform(protection(name)?)))
    }
}
