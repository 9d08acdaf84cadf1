//! Messages of several buffers on their way out. Short ones are sealed where they are posted; long ones by a thread of the
//! outbox, outside Python's lock and straight from the program's memory: the encrypting proxy of the secure-muskel paper,
//! section 4.6.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use gambeson_link::{Error, Startpoint};
use gambeson_proto::frame::{PAD, header, padding};
use pyo3::prelude::*;

use super::buffer::Payload;
use super::held::Held;
use super::startpoint::NativeStartpoint;
use super::{in_python, raised};

/// Messages up to this length are sealed by who posts them, if nothing long goes before.
const SHORT: usize = 128 << 10;

/// What goes out over one link.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeOutbox {
    startpoint: Mutex<Option<Held<Startpoint>>>,
    /// To the thread, once there is one.
    thread: Mutex<Option<Sender<Posted>>>,
    /// Long messages that the thread has not sent yet.
    waiting: Arc<AtomicUsize>,
}

struct Posted {
    kind: u32,
    header: Vec<u8>,
    parts: Vec<Payload>,
}

/// A message's buffers behind its header, with what stands between them.
pub(crate) fn pieces<'p>(header: &'p [u8], parts: &'p [Payload]) -> Vec<&'p [u8]> {
    let mut pieces: Vec<&[u8]> = Vec::with_capacity(1 + 2 * parts.len());
    pieces.push(header);
    for (at, part) in parts.iter().enumerate() {
        pieces.push(part);
        if at + 1 < parts.len() {
            pieces.push(&PAD[..padding(part.len())]);
        }
    }
    pieces
}

impl Posted {
    fn pieces(&self) -> Vec<&[u8]> {
        pieces(&self.header, &self.parts)
    }

    /// Seals it from where it is, and waits for room.
    fn send(&self, startpoint: &Startpoint) -> Result<(), Error> {
        let pieces = self.pieces();
        let mut pack = startpoint.pack(self.kind, pieces.iter().map(|piece| piece.len()).sum())?;
        for piece in pieces {
            pack.put(piece)?;
        }
        pack.send()
    }
}

#[pymethods]
impl NativeOutbox {
    #[new]
    fn new(startpoint: &NativeStartpoint) -> PyResult<Self> {
        let startpoint = Mutex::new(Some(startpoint.startpoint()?));
        Ok(NativeOutbox { startpoint, thread: Mutex::default(), waiting: Arc::default() })
    }

    /// Sends a message, and does not wait. A long one's buffers must not change until it has gone.
    fn post(&self, py: Python<'_>, kind: u32, number: u64, word: u32, parts: Vec<Payload>) -> PyResult<()> {
        let startpoint = self.startpoint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let startpoint = startpoint.ok_or_else(|| raised(Error::Lost("this link was closed".into())))?;
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let posted = Posted { kind, header: header(number, word, &lengths), parts };
        let length: usize = lengths.iter().sum();
        if length <= SHORT && self.waiting.load(Ordering::Acquire) == 0 {
            let sent = py.detach(|| startpoint.gather(kind, &posted.pieces()).post());
            return sent.map_err(raised);
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match &*thread {
            Some(sender) => sender,
            None => thread.insert(begin(startpoint, self.waiting.clone())?),
        };
        sender.send(posted).map_err(|_| raised(Error::Lost("this link's thread has ended".into())))
    }

    /// Long messages that have not gone yet.
    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Posts nothing more; what was posted still goes.
    fn close(&self, py: Python<'_>) {
        let startpoint = self.startpoint.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(thread);
        py.detach(|| drop(startpoint));
    }
}

/// The thread that seals long messages; it ends when its outbox does.
fn begin(startpoint: Held<Startpoint>, waiting: Arc<AtomicUsize>) -> PyResult<Sender<Posted>> {
    let (sender, receiver) = channel::<Posted>();
    let work = move || {
        for posted in receiver {
            // That the link is over its owner learns from the link itself.
            let _ = posted.send(&startpoint);
            waiting.fetch_sub(1, Ordering::AcqRel);
            // The buffers are Python's.
            let mut posted = Some(posted);
            in_python(|_| drop(posted.take()));
            // Of a Python that has gone down nothing may be given back.
            std::mem::forget(posted);
        }
    };
    let spawned = std::thread::Builder::new().name("gambeson-proxy".into()).spawn(work);
    let no_thread = |cause| raised(Error::System { what: "there is no thread to seal long messages".into(), cause });
    spawned.map(|_| sender).map_err(no_thread)
}
