//! Futures: what is under way, and the thread that tells Python of its end.
//!
//! A domain wakes a task while it is locked. The task then only goes into a channel; the thread behind it asks the domain
//! again, and calls into Python when there is something.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use gambeson_link::Error;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::held::apart;
use super::{in_python, raised};

/// An answer, or `None` at a stream's end.
pub(crate) type Outcome = Result<Option<Vec<u8>>, Error>;

type Ask = Box<dyn FnMut(&mut Context<'_>) -> Poll<Outcome> + Send>;

/// A domain's thread that tells Python; it is there once something is under way.
#[derive(Clone, Default)]
pub(crate) struct Teller(Arc<OnceLock<Sender<Arc<Task>>>>);

impl Teller {
    fn sender(&self) -> Sender<Arc<Task>> {
        let begin = || {
            let (sender, receiver) = channel::<Arc<Task>>();
            std::thread::spawn(move || receiver.into_iter().for_each(Task::proceed));
            sender
        };
        self.0.get_or_init(begin).clone()
    }
}

/// Something under way, and who in Python is called with its outcome.
pub(crate) struct Task {
    thread: Sender<Arc<Task>>,
    /// `None` once it is over, or cancelled.
    ask: Mutex<Option<Ask>>,
    /// Called with an answer or `None`, and an exception or `None`.
    done: Py<PyAny>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let thread = self.thread.clone();
        let _ = thread.send(self);
    }
}

impl Task {
    fn proceed(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut slot = self.ask.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ask) = slot.as_mut() else { return };
        let Poll::Ready(outcome) = ask(&mut Context::from_waker(&waker)) else { return };
        let over = slot.take();
        drop(slot);
        drop(over);
        in_python(|py| {
            let none = || py.None().into_bound(py);
            let told = match outcome {
                Ok(Some(bytes)) => (PyBytes::new(py, &bytes).into_any(), none()),
                Ok(None) => (none(), none()),
                Err(error) => (none(), raised(error).into_value(py).into_bound(py).into_any()),
            };
            if let Err(error) = self.done.call1(py, told) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// What is under way, for who wants to cancel it.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeTask(Arc<Task>);

impl NativeTask {
    /// Calls `done` when `ask` has an outcome.
    pub(crate) fn begin(
        py: Python<'_>,
        teller: &Teller,
        ask: impl FnMut(&mut Context<'_>) -> Poll<Outcome> + Send + 'static,
        done: Py<PyAny>,
    ) -> Self {
        let task = Arc::new(Task { thread: teller.sender(), ask: Mutex::new(Some(Box::new(ask))), done });
        // Not here: whoever asked is told by the thread, always.
        py.detach(|| task.clone().wake());
        NativeTask(task)
    }
}

impl Drop for NativeTask {
    fn drop(&mut self) {
        // Of a domain that has ended, perhaps.
        if Arc::strong_count(&self.0) == 1 {
            let ask = self.0.ask.lock().unwrap_or_else(PoisonError::into_inner).take();
            apart(ask);
        }
    }
}

#[pymethods]
impl NativeTask {
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| {
            let ask = self.0.ask.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(ask);
        });
    }
}
