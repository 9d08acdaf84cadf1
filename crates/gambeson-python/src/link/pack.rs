//! Requests that are packed buffer by buffer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gambeson_link::{Error, Pack, Startpoint};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Payload;
use super::future::{NativeTask, Teller};
use super::held::{Held, apart};
use super::startpoint::{NativeAnswers, flushed, told, waited};
use super::{raised, too_late, wait};

type Packed = Option<Pack<Arc<Startpoint>>>;

/// A request that is being packed, until it is sent or given up.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativePack {
    pack: Mutex<Packed>,
    startpoint: Held<Startpoint>,
    teller: Teller,
}

impl Drop for NativePack {
    fn drop(&mut self) {
        if let Some(pack) = self.lock().take() {
            apart(pack);
        }
    }
}

impl NativePack {
    pub(crate) fn new(pack: Pack<Arc<Startpoint>>, startpoint: Held<Startpoint>, teller: Teller) -> Self {
        NativePack { pack: Mutex::new(Some(pack)), startpoint, teller }
    }

    fn lock(&self) -> MutexGuard<'_, Packed> {
        self.pack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends it, when nothing of it waits for room any more.
    fn finished<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        finish: impl FnOnce(Pack<Arc<Startpoint>>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let turn = |turn: Duration| Ok(self.lock().as_mut().ok_or_else(over)?.flush(turn)?.then_some(()));
        wait(py, timeout, turn, too_late(NO_ROOM))?;
        py.detach(|| finish(self.lock().take().ok_or_else(over)?)).map_err(raised)
    }
}

#[pymethods]
impl NativePack {
    fn put(&self, py: Python<'_>, bytes: Payload, timeout: Option<f64>) -> PyResult<()> {
        let mut rest = &*bytes;
        let turn = |turn: Duration| {
            let put = self.lock().as_mut().ok_or_else(over)?.put_within(rest, turn)?;
            rest = &rest[put..];
            Ok(rest.is_empty().then_some(()))
        };
        wait(py, timeout, turn, too_late(NO_ROOM))
    }

    fn send(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.finished(py, timeout, Pack::post)?;
        flushed(py, &self.startpoint, timeout)
    }

    fn call<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyBytes>> {
        let pending = self.finished(py, timeout, Pack::start)?;
        waited(py, pending, timeout).map(|answer| PyBytes::new(py, &answer))
    }

    /// `done` is called with the answer, or with the exception.
    fn submit(&self, py: Python<'_>, done: Py<PyAny>) -> PyResult<NativeTask> {
        let pending = self.finished(py, None, Pack::start)?;
        Ok(told(py, &self.teller, pending, done))
    }

    fn stream(&self, py: Python<'_>) -> PyResult<NativeAnswers> {
        let answers = self.finished(py, None, Pack::stream)?;
        Ok(NativeAnswers::new(answers, self.teller.clone()))
    }

    /// Gives it up, if it was not sent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().take()));
    }
}

const NO_ROOM: &str = "no room for what was put";

fn over() -> Error {
    Error::Message("this request was sent or given up".into())
}
