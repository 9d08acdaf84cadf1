//! A request at its endpoint, for a handler in Python.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gambeson_link::{Error, Request};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Payload;
use super::held::apart;
use super::raised;

/// A request until it is answered.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeRequest(Mutex<Option<Request>>);

/// Key, name, roles, host and its address.
type Peer = ([u8; 32], String, Vec<String>, String, Option<String>);

impl Drop for NativeRequest {
    fn drop(&mut self) {
        if let Some(request) = self.lock().take() {
            apart(request);
        }
    }
}

impl NativeRequest {
    pub(crate) fn new(request: Request) -> Self {
        NativeRequest(Mutex::new(Some(request)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with it; who has it may wait for its domain, so that it is not waited for with Python's lock.
    fn with<T: Send>(&self, py: Python<'_>, then: impl FnOnce(&mut Request) -> T + Send) -> PyResult<T> {
        py.detach(|| self.lock().as_mut().map(then)).ok_or_else(answered)
    }

    fn take(&self, py: Python<'_>) -> PyResult<Request> {
        py.detach(|| self.lock().take()).ok_or_else(answered)
    }
}

#[pymethods]
impl NativeRequest {
    fn handler(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |request| request.handler)
    }

    /// What was sent; once.
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let payload = self.with(py, |request| std::mem::take(&mut request.payload))?;
        Ok(PyBytes::new(py, &payload))
    }

    fn peer(&self, py: Python<'_>) -> PyResult<Peer> {
        self.with(py, |request| {
            let peer = &request.peer;
            let address = peer.address.map(|address| address.to_string());
            (peer.key.0, peer.name.clone(), peer.roles.clone(), peer.host.clone(), address)
        })
    }

    /// Whether nothing has ended it yet.
    fn is_open(&self, py: Python<'_>) -> bool {
        py.detach(|| self.lock().is_some())
    }

    fn is_cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |request| request.is_cancelled())
    }

    fn item(&self, py: Python<'_>, bytes: Payload) -> PyResult<()> {
        self.with(py, |request| request.item(&bytes))?.map_err(raised)
    }

    fn answer(&self, py: Python<'_>, bytes: Payload) -> PyResult<()> {
        let request = self.take(py)?;
        py.detach(|| request.answer(&bytes));
        Ok(())
    }

    fn refuse(&self, py: Python<'_>, why: &str) -> PyResult<()> {
        let request = self.take(py)?;
        py.detach(|| request.refuse(why));
        Ok(())
    }

    /// Ends it without a word: a stream of answers is at its end.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().take()));
    }
}

fn answered() -> PyErr {
    raised(Error::Handler("this request was answered before".into()))
}
