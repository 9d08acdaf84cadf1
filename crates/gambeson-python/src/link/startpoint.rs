//! Startpoints: as bytes, and bound, with requests that go out from them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use gambeson_link::{Answers, Capability, Caveat, Error, Pending, Startpoint, Transport};
use gambeson_proto::startpoint::Window;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::{Message, Payload, Room};
use super::domain::protection;
use super::future::{NativeTask, Teller};
use super::held::Held;
use super::pack::NativePack;
use super::{elsewhere, patience, raised, startpoint_raised, too_late, wait};

/// A startpoint that is not bound.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeCapability(pub(crate) Capability);

#[pymethods]
impl NativeCapability {
    #[staticmethod]
    fn decode(bytes: Payload) -> PyResult<Self> {
        Capability::decode(&bytes).map(NativeCapability).map_err(startpoint_raised)
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.encode())
    }

    fn owner(&self) -> [u8; 32] {
        *self.0.owner()
    }

    fn holder(&self) -> Option<[u8; 32]> {
        self.0.holder().copied()
    }

    fn class_name(&self) -> &str {
        self.0.class()
    }

    fn transforms(&self) -> Vec<&str> {
        self.0.transforms().iter().collect()
    }

    fn narrow(&self, kind: &str, numbers: Vec<u64>) -> PyResult<Self> {
        let mut narrowed = self.0.clone();
        narrowed.narrow(caveat(kind, &numbers)?).map_err(startpoint_raised)?;
        Ok(NativeCapability(narrowed))
    }
}

/// A caveat, as Python has it: its name, and numbers.
pub(crate) fn caveat(kind: &str, numbers: &[u64]) -> PyResult<Caveat> {
    let wrong = || PyValueError::new_err(format!("{kind} of {numbers:?} is no caveat"));
    match (kind, numbers) {
        ("methods", methods) => {
            let methods = methods.iter().map(|&method| u32::try_from(method)).collect::<Result<Vec<_>, _>>();
            Ok(Caveat::methods(methods.map_err(|_| wrong())?))
        }
        ("uses", &[uses]) => Ok(Caveat::Uses(uses)),
        ("expires", &[second]) => Ok(Caveat::Expires(second)),
        ("memory", &[region, offset, length, rights]) => {
            let rights = u8::try_from(rights).map_err(|_| wrong())?;
            Ok(Caveat::Memory(vec![Window { region, offset, length, rights }]))
        }
        (name, []) => protection(name).map(Caveat::Protection),
        _ => Err(wrong()),
    }
}

/// A transport, as Python has it: its number.
pub(crate) fn transport_of(number: u8) -> PyResult<Transport> {
    let found = [Transport::Tcp, Transport::Shm, Transport::Fabric].into_iter().find(|one| *one as u8 == number);
    found.ok_or_else(|| PyValueError::new_err(format!("{number} is no transport")))
}

/// A startpoint that is bound, until it is closed.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeStartpoint(Mutex<Option<Held<Startpoint>>>, Teller);

impl NativeStartpoint {
    pub(crate) fn new(startpoint: Startpoint, teller: Teller) -> Self {
        NativeStartpoint(Mutex::new(Some(Held::new(startpoint))), teller)
    }

    pub(crate) fn startpoint(&self) -> PyResult<Held<Startpoint>> {
        let startpoint = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        startpoint.ok_or_else(|| raised(Error::Lost("this startpoint was closed".into())))
    }

    fn called(&self, py: Python<'_>, handler: u32, message: &Message, timeout: Option<f64>) -> PyResult<Vec<u8>> {
        self.asked(py, timeout, |startpoint| start(startpoint, handler, message))
    }

    /// Begins something; `done` is called with its answer, or with the exception.
    fn submitted(
        &self,
        py: Python<'_>,
        done: Py<PyAny>,
        begin: impl FnOnce(&Arc<Startpoint>) -> Result<Pending<Arc<Startpoint>>, Error> + Send,
    ) -> PyResult<NativeTask> {
        let startpoint = self.startpoint()?;
        let pending = py.detach(|| begin(&startpoint)).map_err(raised)?;
        Ok(told(py, &self.1, pending, done))
    }

    /// Begins something and waits for its answer.
    fn asked(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        begin: impl FnOnce(&Arc<Startpoint>) -> Result<Pending<Arc<Startpoint>>, Error> + Send,
    ) -> PyResult<Vec<u8>> {
        let startpoint = self.startpoint()?;
        let pending = py.detach(|| begin(&startpoint)).map_err(raised)?;
        waited(py, pending, timeout)
    }
}

/// A request that has begun; `done` is called with its answer, or with the exception.
pub(crate) fn told(
    py: Python<'_>,
    teller: &Teller,
    mut pending: Pending<Arc<Startpoint>>,
    done: Py<PyAny>,
) -> NativeTask {
    let ask = move |context: &mut Context<'_>| Pin::new(&mut pending).poll(context).map(|answer| answer.map(Some));
    NativeTask::begin(py, teller, ask, done)
}

/// The answer to a request that has begun.
pub(crate) fn waited(py: Python<'_>, mut pending: Pending<Arc<Startpoint>>, timeout: Option<f64>) -> PyResult<Vec<u8>> {
    let mut answer = Vec::new();
    let turn = |turn: Duration| match pending.wait_into(&mut answer, turn) {
        Ok(()) => Ok(Some(())),
        Err(Error::TimedOut(_)) => Ok(None),
        Err(error) => Err(error),
    };
    let waited = wait(py, timeout, turn, too_late("no answer"));
    // A request that nobody waits for any more is cancelled, for which its domain is waited for.
    py.detach(|| drop(pending));
    waited.map(|()| answer)
}

/// Waits until there was room for all that was sent.
pub(crate) fn flushed(py: Python<'_>, startpoint: &Startpoint, timeout: Option<f64>) -> PyResult<()> {
    wait(py, timeout, |turn| Ok(startpoint.flush(turn)?.then_some(())), too_late("no room for what was sent"))
}

fn start(startpoint: &Arc<Startpoint>, handler: u32, message: &Message) -> Result<Pending<Arc<Startpoint>>, Error> {
    match message {
        Message::One(payload) => startpoint.start_owned(handler, payload),
        Message::Several(payloads) => startpoint.gather_owned(handler, &pieces(payloads)).start(),
    }
}

fn pieces(payloads: &[Payload]) -> Vec<&[u8]> {
    payloads.iter().map(|payload| &**payload).collect()
}

#[pymethods]
impl NativeStartpoint {
    fn capability(&self) -> PyResult<NativeCapability> {
        Ok(NativeCapability(self.startpoint()?.capability().clone()))
    }

    /// The transport's number, and a text.
    fn carrier(&self, py: Python<'_>) -> PyResult<Option<(u8, String)>> {
        let startpoint = self.startpoint()?;
        let carrier = py.detach(|| startpoint.carrier()).map_err(raised)?;
        Ok(carrier.map(|carrier| (carrier.transport() as u8, carrier.to_string())))
    }

    fn prefer(&self, py: Python<'_>, transport: Option<u8>, timeout: Option<f64>) -> PyResult<()> {
        let startpoint = Arc::clone(&*self.startpoint()?);
        let transport = transport.map(transport_of).transpose()?;
        let patient = patience(timeout)?;
        elsewhere(py, timeout, move || startpoint.prefer(transport, patient))
    }

    fn pack(&self, py: Python<'_>, handler: u32, size: usize) -> PyResult<NativePack> {
        let startpoint = self.startpoint()?;
        let pack = py.detach(|| startpoint.pack_owned(handler, size)).map_err(raised)?;
        Ok(NativePack::new(pack, startpoint, self.1.clone()))
    }

    fn protection(&self) -> PyResult<&'static str> {
        Ok(self.startpoint()?.protection().name())
    }

    fn post(&self, py: Python<'_>, handler: u32, message: Message) -> PyResult<()> {
        let startpoint = self.startpoint()?;
        let post = || match &message {
            Message::One(payload) => startpoint.post(handler, payload),
            Message::Several(payloads) => startpoint.gather(handler, &pieces(payloads)).post(),
        };
        py.detach(post).map_err(raised)
    }

    /// Whether there was room for all that was sent.
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        flushed(py, &*self.startpoint()?, timeout)
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        handler: u32,
        message: Message,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.called(py, handler, &message, timeout).map(|answer| PyBytes::new(py, &answer))
    }

    fn call_into(
        &self,
        py: Python<'_>,
        handler: u32,
        message: Message,
        into: Room,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        into.fill(&self.called(py, handler, &message, timeout)?)
    }

    fn put(&self, py: Python<'_>, region: u64, offset: u64, bytes: Payload, timeout: Option<f64>) -> PyResult<()> {
        self.asked(py, timeout, |startpoint| startpoint.start_put_owned(region, offset, &bytes)).map(drop)
    }

    fn get<'py>(
        &self,
        py: Python<'py>,
        region: u64,
        offset: u64,
        length: u64,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let came = self.asked(py, timeout, |startpoint| startpoint.start_get_owned(region, offset, length))?;
        Ok(PyBytes::new(py, &came))
    }

    fn get_into(&self, py: Python<'_>, region: u64, offset: u64, into: Room, timeout: Option<f64>) -> PyResult<usize> {
        let length = into.len() as u64;
        into.fill(&self.asked(py, timeout, |startpoint| startpoint.start_get_owned(region, offset, length))?)
    }

    fn submit_put(
        &self,
        py: Python<'_>,
        region: u64,
        offset: u64,
        bytes: Payload,
        done: Py<PyAny>,
    ) -> PyResult<NativeTask> {
        self.submitted(py, done, |startpoint| startpoint.start_put_owned(region, offset, &bytes))
    }

    fn submit_get(
        &self,
        py: Python<'_>,
        region: u64,
        offset: u64,
        length: u64,
        done: Py<PyAny>,
    ) -> PyResult<NativeTask> {
        self.submitted(py, done, |startpoint| startpoint.start_get_owned(region, offset, length))
    }

    /// `done` is called with the answer, or with the exception.
    fn submit(&self, py: Python<'_>, handler: u32, message: Message, done: Py<PyAny>) -> PyResult<NativeTask> {
        self.submitted(py, done, |startpoint| start(startpoint, handler, &message))
    }

    fn stream(&self, py: Python<'_>, handler: u32, message: Message) -> PyResult<NativeAnswers> {
        let startpoint = self.startpoint()?;
        let begin = || match &message {
            Message::One(payload) => startpoint.stream_owned(handler, payload),
            Message::Several(payloads) => startpoint.gather_owned(handler, &pieces(payloads)).stream(),
        };
        let answers = py.detach(begin).map_err(raised)?;
        Ok(NativeAnswers::new(answers, self.1.clone()))
    }

    fn close(&self, py: Python<'_>) {
        let startpoint = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(startpoint));
    }
}

type Stream = Option<Answers<Arc<Startpoint>>>;

/// A stream of answers, until it is closed.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeAnswers(Held<Mutex<Stream>>, Teller);

impl NativeAnswers {
    pub(crate) fn new(answers: Answers<Arc<Startpoint>>, teller: Teller) -> Self {
        NativeAnswers(Held::new(Mutex::new(Some(answers))), teller)
    }
}

fn lock(stream: &Mutex<Stream>) -> MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl NativeAnswers {
    /// The next answer, or `None` at the end.
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let turn = |turn: Duration| match lock(&self.0).as_mut() {
            None => Ok(Some(None)),
            Some(answers) => match answers.next(turn) {
                Ok(answer) => Ok(Some(answer)),
                Err(Error::TimedOut(_)) => Ok(None),
                Err(error) => Err(error),
            },
        };
        let answer = wait(py, timeout, turn, too_late("no further answer"))?;
        Ok(answer.map(|answer| PyBytes::new(py, &answer)))
    }

    /// `done` is called with the next answer or `None` at the end, or with the exception.
    fn submit_next(&self, py: Python<'_>, done: Py<PyAny>) -> NativeTask {
        let stream = Arc::clone(&self.0);
        let ask = move |context: &mut Context<'_>| match lock(&stream).as_mut() {
            None => Poll::Ready(Ok(None)),
            Some(answers) => answers.poll_next(context).map(Option::transpose),
        };
        NativeTask::begin(py, &self.1, ask, done)
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(lock(&self.0).take()));
    }
}
