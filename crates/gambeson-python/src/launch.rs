//! Processes on other hosts, for gambeson.launch: `start_process` and `init_process`.

use std::ffi::OsString;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use gambeson_launch::Error;
use gambeson_launch::authority::user_folder;
use gambeson_launch::child::{self, Child};
use gambeson_launch::creator::{Creator, Wanted};
use gambeson_launch::processes::{Here, Output, Processes, Stream};
use gambeson_launch::requester::Controls;
use gambeson_launch::wire::{Host, Program, Secret, Status, Streams, Text};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::link::buffer::Payload;
use crate::link::domain::NativeDomain;
use crate::link::future::{NativeTask, Teller};
use crate::link::held::Held;
use crate::link::startpoint::{NativeCapability, NativeStartpoint};
use crate::link::{elsewhere, in_python, patience, raised};

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeCreator>()?;
    module.add_class::<NativeProcesses>()?;
    module.add_class::<NativeChild>()?;
    module.add_function(wrap_pyfunction!(init_process, module)?)
}

/// As an error of links, of which Python has the exceptions.
fn as_link(error: Error) -> gambeson_link::Error {
    let sentence = error.to_string();
    match error {
        Error::Rules(_) | Error::Refused(_) => gambeson_link::Error::Refused(sentence),
        _ => gambeson_link::Error::Lost(sentence),
    }
}

fn launch_raised(error: Error) -> PyErr {
    match error {
        Error::Senseless(sentence) => PyValueError::new_err(sentence),
        error => raised(as_link(error)),
    }
}

fn addresses(py: Python<'_>, listen: &[String]) -> PyResult<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for address in listen {
        let wrong = |cause| PyValueError::new_err(format!("{address:?} is no address to listen at: {cause}"));
        found.extend(py.detach(|| address.to_socket_addrs()).map_err(wrong)?);
    }
    Ok(found)
}

/// What is there until it is closed.
type Closable<T> = Mutex<Option<Held<T>>>;

fn open<T: Send + Sync>(closable: &Closable<T>, what: &str) -> PyResult<Held<T>> {
    let found = closable.lock().unwrap_or_else(PoisonError::into_inner).clone();
    found.ok_or_else(|| raised(gambeson_link::Error::Lost(format!("{what} closed"))))
}

fn close<T: Send + Sync>(py: Python<'_>, closable: &Closable<T>) {
    let taken = closable.lock().unwrap_or_else(PoisonError::into_inner).take();
    py.detach(|| drop(taken));
}

/// Who starts processes, until it is closed.
#[pyclass(frozen, module = "gambeson._native")]
struct NativeCreator(Closable<Creator>);

#[pymethods]
impl NativeCreator {
    /// With a `child` its domain and its job; otherwise a new domain, which listens at these addresses.
    #[new]
    fn new(
        py: Python<'_>,
        folder: Option<PathBuf>,
        listen: Vec<String>,
        child: Option<&NativeChild>,
    ) -> PyResult<Self> {
        let folder = folder.unwrap_or_else(user_folder);
        let listen = addresses(py, &listen)?;
        let child = child.map(NativeChild::child).transpose()?;
        let creator = py.detach(|| match &child {
            Some(child) => Creator::of_child(&folder, child),
            None => Creator::open(&folder, &listen),
        });
        Ok(NativeCreator(Mutex::new(Some(Held::new(creator.map_err(launch_raised)?)))))
    }

    fn domain(&self) -> PyResult<NativeDomain> {
        Ok(NativeDomain::shared(open(&self.0, "the creator was")?.domain().clone()))
    }

    /// `streams` are `output`, `all`, or the rows and columns of a terminal; `output` is called with a process's number,
    /// whether it is its standard error, and bytes.
    #[expect(clippy::too_many_arguments, reason = "Creator.start_process names them all")]
    fn start_process(
        &self,
        py: Python<'_>,
        hosts: Vec<String>,
        executable: OsString,
        argv: Vec<OsString>,
        directory: OsString,
        environment: Vec<(OsString, OsString)>,
        account: String,
        input: bool,
        terminal: Option<(u16, u16)>,
        context: Payload,
        startpoint: Option<&NativeCapability>,
        output: Option<Py<PyAny>>,
    ) -> PyResult<NativeProcesses> {
        let variable = |(name, value): (OsString, OsString)| (name.into(), value.into());
        let program = Program {
            directory: directory.into(),
            executable: executable.into(),
            arguments: argv.into_iter().map(Text::from).collect(),
            environment: environment.into_iter().map(variable).collect(),
            streams: match (terminal, input) {
                (Some((rows, columns)), _) => Streams::Terminal(rows, columns),
                (None, true) => Streams::All,
                (None, false) => Streams::Output,
            },
        };
        let wanted = Wanted {
            hosts: hosts.iter().map(|host| Host::parse(host)).collect(),
            program,
            account,
            context: Secret::from(&*context),
            creator: startpoint.map(|startpoint| startpoint.0.clone()),
        };
        let creator = open(&self.0, "the creator was")?;
        let processes = py.detach(|| match output {
            Some(output) => creator.start_process(wanted, Callback(output)),
            None => creator.start_process(wanted, Here),
        });
        let processes = processes.map_err(launch_raised)?;
        Ok(NativeProcesses {
            controls: processes.controls().clone(),
            processes: Mutex::new(Some(Held::new(processes))),
            teller: Teller::default(),
        })
    }

    fn close(&self, py: Python<'_>) {
        close(py, &self.0);
    }
}

/// Python is called with what processes write.
struct Callback(Py<PyAny>);

impl Output for Callback {
    fn write(&mut self, process: u32, stream: Stream, bytes: &[u8]) {
        in_python(|py| {
            let told = (process, stream == Stream::Errors, PyBytes::new(py, bytes));
            if let Err(error) = self.0.call1(py, told) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// Processes that were started together; they end when it is closed.
#[pyclass(frozen, module = "gambeson._native")]
struct NativeProcesses {
    processes: Closable<Processes>,
    controls: Controls,
    teller: Teller,
}

impl NativeProcesses {
    fn processes(&self, process: u32) -> PyResult<Held<Processes>> {
        let processes = open(&self.processes, "the processes were")?;
        if process as usize >= processes.len() {
            return Err(PyIndexError::new_err(format!("there is no process {process}")));
        }
        Ok(processes)
    }

    /// Calls `done` when something has come, as bytes.
    fn told<T: 'static>(
        &self,
        py: Python<'_>,
        coming: impl Future<Output = Result<T, Error>> + Send + 'static,
        encode: fn(T) -> Vec<u8>,
        done: Py<PyAny>,
    ) -> NativeTask {
        let mut coming = Box::pin(coming);
        let ask = move |context: &mut std::task::Context<'_>| {
            let polled = Pin::new(&mut coming).poll(context);
            polled.map(|came| came.map(|found| Some(encode(found))).map_err(as_link))
        };
        NativeTask::begin(py, &self.teller, ask, done)
    }

    fn control(&self, py: Python<'_>, act: impl FnOnce(&Controls) -> Result<(), Error> + Send) -> PyResult<()> {
        py.detach(|| act(&self.controls)).map_err(launch_raised)
    }
}

#[pymethods]
impl NativeProcesses {
    fn pid(&self, process: u32) -> PyResult<Option<u32>> {
        Ok(self.processes(process)?.pid(process))
    }

    /// `done` is called with a startpoint's bytes, or with the exception.
    fn submit_startpoint(&self, py: Python<'_>, process: u32, done: Py<PyAny>) -> PyResult<NativeTask> {
        let coming = self.processes(process)?.startpoint(process);
        Ok(self.told(py, coming, |startpoint| startpoint.encode().to_vec(), done))
    }

    /// `done` is called with two bytes, whether it was a signal and which, or the status; or with the exception.
    fn submit_status(&self, py: Python<'_>, process: u32, done: Py<PyAny>) -> PyResult<NativeTask> {
        let coming = self.processes(process)?.status(process);
        let encode = |status| match status {
            Status::Exited(code) => vec![0, code],
            Status::Killed(signal) => vec![1, signal],
        };
        Ok(self.told(py, coming, encode, done))
    }

    fn input(&self, py: Python<'_>, process: u32, bytes: Payload) -> PyResult<()> {
        self.control(py, |controls| controls.input(process, &bytes))
    }

    fn signal(&self, py: Python<'_>, process: Option<u32>, signal: u8) -> PyResult<()> {
        self.control(py, |controls| controls.signal(process, signal))
    }

    fn window(&self, py: Python<'_>, process: u32, rows: u16, columns: u16) -> PyResult<()> {
        self.control(py, |controls| controls.window(process, rows, columns))
    }

    fn close(&self, py: Python<'_>) {
        let taken = self.processes.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Of who asks for something at this moment it is dropped, which ends them, too.
        py.detach(|| taken.and_then(Held::last).map(Processes::end));
    }
}

/// A process that was made by `start_process`, until it is closed.
#[pyclass(frozen, module = "gambeson._native")]
struct NativeChild(Closable<Child>);

impl NativeChild {
    fn child(&self) -> PyResult<Held<Child>> {
        open(&self.0, "what this process had from its creator was")
    }
}

/// Takes this process's security context.
#[pyfunction]
fn init_process(py: Python<'_>, listen: Vec<String>) -> PyResult<NativeChild> {
    let listen = addresses(py, &listen)?;
    let child = py.detach(|| child::init_process(&listen)).map_err(launch_raised)?;
    Ok(NativeChild(Mutex::new(Some(Held::new(child)))))
}

#[pymethods]
impl NativeChild {
    fn number(&self) -> PyResult<u32> {
        Ok(self.child()?.number())
    }

    fn context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.child()?.context()))
    }

    fn domain(&self) -> PyResult<NativeDomain> {
        Ok(NativeDomain::shared(self.child()?.domain().clone()))
    }

    fn ready(
        &self,
        py: Python<'_>,
        startpoint: &NativeCapability,
        timeout: Option<f64>,
    ) -> PyResult<Option<NativeStartpoint>> {
        let (child, own, patient) = (Arc::clone(&*self.child()?), startpoint.0.clone(), patience(timeout)?);
        let creator = elsewhere(py, timeout, move || child.ready(&own, patient).map_err(as_link))?;
        Ok(creator.map(|creator| NativeStartpoint::new(creator, Teller::default())))
    }

    fn close(&self, py: Python<'_>) {
        close(py, &self.0);
    }
}
