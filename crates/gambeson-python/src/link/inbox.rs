//! Where messages of several buffers wait in Rust until Python takes them, some at a time, and their buffers stay where they
//! came: Python sees them as memoryviews.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gambeson_link::{Error, Request};
use gambeson_proto::frame::Frame;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySlice};

use super::{LOOK, patience, raised};

/// Buffers up to this length are copied: that takes less than a view.
const COPIED: usize = 32 << 10;
/// The kind of what came and is no message of this form.
pub(crate) const GARBLED: u32 = u32::MAX;

/// Where messages wait until they are taken.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeInbox(Arc<Inbox>);

#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    more: Condvar,
    /// Readable while something waits; for who sleeps on descriptors.
    bell: OnceLock<OwnedFd>,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    sleepers: usize,
    closed: bool,
}

enum Message {
    Came {
        source: u64,
        request: Request,
    },
    /// Of the program's own.
    Own {
        source: u64,
        kind: u32,
        number: u64,
        word: u32,
        said: Py<PyBytes>,
    },
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request came over the links of this source.
    pub(crate) fn came(&self, source: u64, request: Request) {
        self.put(Message::Came { source, request });
    }

    fn put(&self, message: Message) {
        let mut waiting = self.waiting();
        // What nobody will take goes at once: its link is free again.
        if waiting.closed {
            return;
        }
        waiting.messages.push_back(message);
        let first = waiting.messages.len() == 1;
        let sleeps = waiting.sleepers > 0;
        drop(waiting);
        if sleeps {
            self.more.notify_one();
        }
        if first && let Some(bell) = self.bell.get() {
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Takes what waits, at most so many; waits for the first one at most so long. `None`: the inbox is closed.
    fn take(&self, most: usize, wait: Duration) -> Option<Vec<Message>> {
        let deadline = Instant::now() + wait;
        let mut waiting = self.waiting();
        while waiting.messages.is_empty() && !waiting.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            waiting.sleepers += 1;
            waiting = self.more.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
            waiting.sleepers -= 1;
        }
        if waiting.closed {
            return None;
        }
        let count = waiting.messages.len().min(most);
        let taken: Vec<_> = waiting.messages.drain(..count).collect();
        let emptied = waiting.messages.is_empty();
        if let Some(bell) = self.bell.get().filter(|_| emptied) {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        Some(taken)
    }
}

/// Who sent it, its kind, its number, its word, and its buffers.
type Taken<'py> = (u64, u32, u64, u32, Bound<'py, PyList>);

#[pymethods]
impl NativeInbox {
    #[new]
    fn new() -> Self {
        NativeInbox(Arc::default())
    }

    /// Takes what waits, at most so many; waits for the first one at most so long.
    fn take<'py>(&self, py: Python<'py>, most: usize, timeout: Option<f64>) -> PyResult<Vec<Taken<'py>>> {
        let deadline = Instant::now() + patience(timeout)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let taken = py.detach(|| self.0.take(most, left.min(LOOK)));
            let taken = taken.ok_or_else(|| raised(Error::Lost("this inbox was closed".into())))?;
            if !taken.is_empty() {
                let (read, over): (Vec<_>, Vec<_>) = taken.into_iter().map(|message| read(py, message)).unzip();
                // Whoever drops a request may wait for its domain.
                py.detach(|| drop(over));
                return read.into_iter().collect();
            }
            py.check_signals()?;
            if left <= LOOK {
                return Ok(Vec::new());
            }
        }
    }

    /// Puts something of the program's own between what comes.
    fn put(&self, py: Python<'_>, source: u64, kind: u32, number: u64, word: u32, said: Py<PyBytes>) {
        let inbox = &self.0;
        let message = Message::Own { source, kind, number, word, said };
        // A message that a closed inbox drops needs Python's lock; waiting for the inbox takes no time.
        let _ = py;
        inbox.put(message);
    }

    /// A descriptor that is readable while something waits.
    fn fileno(&self) -> PyResult<RawFd> {
        let waiting = self.0.waiting();
        if self.0.bell.get().is_none() {
            let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
            let made = rustix::event::eventfd(u32::from(!waiting.messages.is_empty()), flags);
            let no_bell =
                |cause: rustix::io::Errno| Error::System { what: "no event descriptor".into(), cause: cause.into() };
            let _ = self.0.bell.set(made.map_err(no_bell).map_err(raised)?);
        }
        Ok(self.0.bell.get().expect("it was made above").as_raw_fd())
    }

    fn close(&self, py: Python<'_>) {
        let left = py.detach(|| {
            let mut waiting = self.0.waiting();
            waiting.closed = true;
            self.0.more.notify_all();
            std::mem::take(&mut waiting.messages)
        });
        let (own, came): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|message| matches!(message, Message::Own { .. }));
        drop(own);
        py.detach(|| drop(came));
    }
}

impl NativeInbox {
    pub(crate) fn inbox(&self) -> Arc<Inbox> {
        self.0.clone()
    }
}

/// A message as Python gets it, and what is left of it.
fn read(py: Python<'_>, message: Message) -> (PyResult<Taken<'_>>, Option<Request>) {
    match message {
        Message::Own { source, kind, number, word, said } => {
            (PyList::new(py, [said]).map(|said| (source, kind, number, word, said)), None)
        }
        Message::Came { source, mut request } => {
            let payload = std::mem::take(&mut request.payload);
            let kind = request.handler;
            (buffers(py, source, kind, payload), Some(request))
        }
    }
}

fn buffers(py: Python<'_>, source: u64, kind: u32, payload: Vec<u8>) -> PyResult<Taken<'_>> {
    let Some(frame) = Frame::parse(&payload) else {
        return Ok((source, GARBLED, 0, 0, PyList::empty(py)));
    };
    Ok((source, kind, frame.number, frame.word, parts(py, payload, &frame)?))
}

/// The buffers of a message, as Python sees them.
pub(crate) fn parts<'py>(py: Python<'py>, payload: Vec<u8>, frame: &Frame) -> PyResult<Bound<'py, PyList>> {
    if payload.len() <= COPIED {
        let copies = frame.buffers.iter().map(|&(from, to)| PyBytes::new(py, &payload[from..to]));
        return PyList::new(py, copies.collect::<Vec<_>>());
    }
    let parcel = Bound::new(py, NativeParcel::new(payload))?;
    let whole = PyMemoryView::from(parcel.as_any())?;
    let list = PyList::empty(py);
    for &(from, to) in &frame.buffers {
        list.append(whole.get_item(PySlice::new(py, from as isize, to as isize, 1))?)?;
    }
    Ok(list)
}

/// Memory of a message that came. Nobody else has it, so whoever gets it may write into it.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeParcel {
    memory: *mut [u8],
}

// SAFETY: the memory is this object's own, from a box; it is reached by the buffer protocol alone, under which Python's
// programs answer for who writes when, as for a bytearray's.
unsafe impl Send for NativeParcel {}
// SAFETY: as above.
unsafe impl Sync for NativeParcel {}

impl NativeParcel {
    fn new(bytes: Vec<u8>) -> Self {
        NativeParcel { memory: Box::into_raw(bytes.into_boxed_slice()) }
    }
}

impl Drop for NativeParcel {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and whoever had a buffer of it kept this object alive.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

#[pymethods]
impl NativeParcel {
    /// # Safety
    /// Python calls it, with a view to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let memory = slf.get().memory;
        let length = memory.len() as ffi::Py_ssize_t;
        // SAFETY: the view is Python's, the memory lives as long as this object, which the view keeps.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.cast(), length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
