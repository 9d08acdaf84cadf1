//! Links, for gambeson.link: what `gambeson._native` has of them. The Python side has the words and the types.
//!
//! Nobody who has Python's lock waits for a domain's, not even where something is dropped ([`held`]): a domain that is locked
//! may wait for Python's, when messages go through transform modules in Python. No other Python runs while a domain is
//! locked: handlers are threaded ones, and who hears that an answer has come is a thread of this module's ([`future`]).

pub(crate) mod buffer;
pub(crate) mod domain;
pub(crate) mod future;
mod group;
pub(crate) mod held;
mod identity;
pub(crate) mod inbox;
pub(crate) mod outbox;
mod pack;
mod policy;
mod region;
mod request;
pub(crate) mod startpoint;
mod transform;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gambeson_link::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<identity::NativeIdentity>()?;
    module.add_class::<identity::NativeTrust>()?;
    module.add_class::<policy::NativePolicy>()?;
    module.add_class::<domain::NativeDomain>()?;
    module.add_class::<domain::NativeEndpoint>()?;
    module.add_class::<startpoint::NativeCapability>()?;
    module.add_class::<startpoint::NativeStartpoint>()?;
    module.add_class::<startpoint::NativeAnswers>()?;
    module.add_class::<pack::NativePack>()?;
    module.add_class::<group::NativeGroup>()?;
    module.add_class::<region::NativeRegion>()?;
    module.add_class::<request::NativeRequest>()?;
    module.add_class::<inbox::NativeInbox>()?;
    module.add("GARBLED", inbox::GARBLED)?;
    module.add_class::<inbox::NativeParcel>()?;
    module.add_class::<outbox::NativeOutbox>()?;
    module.add_function(wrap_pyfunction!(identity::is_signed, module)?)?;
    module.add_class::<future::NativeTask>()?;
    module.add_function(wrap_pyfunction!(leave, module)?)
}

/// Threads of ours that are in Python, or on their way.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Python is about to go down.
static LEAVING: AtomicBool = AtomicBool::new(false);

/// Calls into Python from a thread of ours; not while it goes down. A thread that still waited for Python's lock then would
/// be ended in the midst of Rust, and the process with it.
pub(crate) fn in_python(then: impl FnOnce(Python<'_>)) {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    if !LEAVING.load(Ordering::SeqCst) {
        Python::try_attach(then);
    }
    INSIDE.fetch_sub(1, Ordering::SeqCst);
}

/// Asks something of Python from a thread of ours; what it raises, as a sentence.
pub(crate) fn asked<T>(ask: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
    let mut answer = Err("Python has ended".into());
    in_python(|py| answer = ask(py).map_err(|error| error.to_string()));
    answer
}

/// Waits until no thread of ours is in Python, and lets none in any more. Handlers get a second to end.
#[pyfunction]
fn leave(py: Python<'_>) {
    py.detach(|| {
        LEAVING.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + Duration::from_secs(1);
        while INSIDE.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A link's error as one of gambeson.link's exceptions.
pub(crate) fn raised(error: Error) -> PyErr {
    let name = match &error {
        Error::Identity(_) => "IdentityUnusable",
        Error::Refused(_) => "Refused",
        Error::Protocol(_) => "Garbled",
        Error::Startpoint(_) => "StartpointRefused",
        Error::Transform(_) => "TransformRefused",
        Error::Message(_) => "MessageUnfit",
        Error::Policy(_) => "PolicyUnusable",
        Error::Handler(_) => "HandlerRefused",
        Error::TimedOut(_) => "TimedOut",
        Error::Lost(_) => "Lost",
        Error::System { .. } => "SystemRefused",
        _ => "Error",
    };
    exception(name, error.to_string())
}

/// An exception that gambeson.link defines.
pub(crate) fn exception(name: &str, sentence: String) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Python::attach(|py| {
        let module = MODULE.get_or_try_init(py, || py.import("gambeson.link._errors").map(Bound::unbind));
        let found = module.and_then(|module| module.bind(py).getattr(name)?.cast_into::<PyType>().map_err(PyErr::from));
        found.map_or_else(|error| error, |class| PyErr::from_type(class, (sentence,)))
    })
}

pub(crate) fn startpoint_raised(cause: impl ToString) -> PyErr {
    raised(Error::Startpoint(cause.to_string()))
}

/// How long; without an end, a hundred years.
pub(crate) fn patience(seconds: Option<f64>) -> PyResult<Duration> {
    const LONGEST: f64 = 100.0 * 365.0 * 86_400.0;
    match seconds {
        Some(seconds) if seconds.is_nan() || seconds < 0.0 => {
            Err(pyo3::exceptions::PyValueError::new_err(format!("{seconds} seconds are none; give zero or more")))
        }
        seconds => Ok(Duration::from_secs_f64(seconds.unwrap_or(LONGEST).min(LONGEST))),
    }
}

/// So often somebody who waits looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// Waits without Python's lock in turns short enough for Ctrl-C: `turn` waits at most so long, and says `None` for more.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    seconds: Option<f64>,
    mut turn: impl FnMut(Duration) -> Result<Option<T>, Error> + Send,
    late: impl FnOnce(f64) -> PyErr,
) -> PyResult<T> {
    let patience = patience(seconds)?;
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Some(found) = py.detach(|| turn(left.min(LOOK))).map_err(raised)? {
            return Ok(found);
        }
        py.check_signals()?;
        if left <= LOOK {
            return Err(late(patience.as_secs_f64()));
        }
    }
}

/// Does something that waits long in a thread of its own, so that Ctrl-C is noticed here. It says itself what is late.
pub(crate) fn elsewhere<T: Send + 'static>(
    py: Python<'_>,
    timeout: Option<f64>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let (tell, hear) = mpsc::sync_channel(1);
    let spawned = std::thread::Builder::new().name("gambeson-wait".into()).spawn(move || {
        let _ = tell.send(work());
    });
    spawned.map_err(|cause| raised(Error::System { what: "there is no thread to wait in".into(), cause }))?;
    let turn = move |turn: Duration| match hear.recv_timeout(turn) {
        Ok(done) => done.map(Some),
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(Error::Lost("the thread that waited has ended".into())),
    };
    wait(py, timeout.map(|seconds| seconds + 1.0), turn, too_late("there was no answer"))
}

/// What comes too late.
pub(crate) fn too_late(what: &str) -> impl FnOnce(f64) -> PyErr {
    move |seconds| raised(Error::TimedOut(format!("{what} within {seconds} s")))
}
