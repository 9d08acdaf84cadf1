//! A request at its endpoint, for a handler in Python.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gambeson_link::{Error, Request};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Payload;
use super::raised;

/// A request until it is answered.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeRequest(Mutex<Option<Request>>);

/// Key, name, roles, host and its address.
type Peer = ([u8; 32], String, Vec<String>, String, Option<String>);

impl NativeRequest {
    pub(crate) fn new(request: Request) -> Self {
        NativeRequest(Mutex::new(Some(request)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, then: impl FnOnce(&mut Request) -> T) -> PyResult<T> {
        self.lock().as_mut().map(then).ok_or_else(answered)
    }

    fn take(&self) -> PyResult<Request> {
        self.lock().take().ok_or_else(answered)
    }
}

#[pymethods]
impl NativeRequest {
    fn handler(&self) -> PyResult<u32> {
        self.with(|request| request.handler)
    }

    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.with(|request| PyBytes::new(py, &request.payload))
    }

    fn peer(&self) -> PyResult<Peer> {
        self.with(|request| {
            let peer = &request.peer;
            let address = peer.address.map(|address| address.to_string());
            (peer.key.0, peer.name.clone(), peer.roles.clone(), peer.host.clone(), address)
        })
    }

    /// Whether nothing has ended it yet.
    fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    fn is_cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.with(|request| request.is_cancelled()))
    }

    fn item(&self, py: Python<'_>, bytes: Payload) -> PyResult<()> {
        py.detach(|| self.with(|request| request.item(&bytes)))?.map_err(raised)
    }

    fn answer(&self, py: Python<'_>, bytes: Payload) -> PyResult<()> {
        let request = self.take()?;
        py.detach(|| request.answer(&bytes));
        Ok(())
    }

    fn refuse(&self, py: Python<'_>, why: &str) -> PyResult<()> {
        let request = self.take()?;
        py.detach(|| request.refuse(why));
        Ok(())
    }

    /// Ends it without a word: a stream of answers is at its end.
    fn close(&self, py: Python<'_>) {
        let request = self.lock().take();
        py.detach(|| drop(request));
    }
}

fn answered() -> PyErr {
    raised(Error::Handler("this request was answered before".into()))
}
