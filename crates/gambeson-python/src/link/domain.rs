//! Domains and endpoints.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gambeson_link::{Attributes, Config, Domain, Endpoint, Error, Expected, Handlers, Progress, Protection};
use gambeson_proto::staging::Staged;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::buffer::Payload;
use super::future::Teller;
use super::group::{self, NativeGroup};
use super::held::Held;
use super::identity::{NativeIdentity, NativeTrust, key_hash};
use super::inbox::NativeInbox;
use super::policy::NativePolicy;
use super::region::NativeRegion;
use super::request::NativeRequest;
use super::startpoint::{NativeCapability, NativeStartpoint, caveat, transport_of};
use super::transform::Module;
use super::{elsewhere, in_python, patience, raised, wait};

/// A process's place among links, until it is closed.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeDomain(Mutex<Option<Held<Domain>>>, Teller);

/// What a domain is opened with: the arguments of `Domain.__init__` and `Domain.from_job`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    identity: Option<Py<NativeIdentity>>,
    trust: Option<Py<NativeTrust>>,
    listen: Vec<String>,
    fabric: Vec<(String, Option<String>)>,
    relays: Vec<String>,
    host: Option<String>,
    address: Option<String>,
    rank: Option<u32>,
    site: bool,
    directory: Option<(PathBuf, PathBuf)>,
    shm: bool,
    manual: bool,
    policy: Option<Py<NativePolicy>>,
    transforms: Vec<Module>,
    patience: f64,
    silence: f64,
}

/// Connections, tampering, names, and startpoints by the numbers of reasons.
type Refused = (u64, u64, u64, Vec<(u8, u64)>);

impl NativeDomain {
    /// A domain that somebody else has, too.
    pub(crate) fn shared(domain: Arc<Domain>) -> Self {
        NativeDomain(Mutex::new(Some(Held::shared(domain))), Teller::default())
    }

    fn domain(&self) -> PyResult<Held<Domain>> {
        let domain = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        domain.ok_or_else(|| raised(Error::Lost("this domain was closed".into())))
    }
}

#[pymethods]
impl NativeDomain {
    /// Without an identity and a trust, the job's.
    #[new]
    fn new(py: Python<'_>, options: Options) -> PyResult<Self> {
        let mut config = match (&options.identity, &options.trust) {
            (Some(identity), Some(trust)) => Config::new(identity.get().take()?, trust.get().0.clone()),
            _ => py.detach(Config::from_job).map_err(raised)?,
        };
        for address in &options.listen {
            let found = py.detach(|| std::net::ToSocketAddrs::to_socket_addrs(address));
            let wrong = |cause| PyValueError::new_err(format!("{address:?} is no address to listen at: {cause}"));
            config.listen.extend(found.map_err(wrong)?);
        }
        if let Some(address) = &options.address {
            let wrong = |_| PyValueError::new_err(format!("{address:?} is no address of a host"));
            config.address = Some(address.parse().map_err(wrong)?);
        }
        if let Some(host) = options.host {
            config.host = host;
        }
        config.rank = options.rank.or(config.rank);
        if let Some(policy) = &options.policy {
            config.policy = policy.get().0.clone();
        }
        if options.site {
            py.detach(|| config.site()).map_err(raised)?;
        }
        if let Some((file, key)) = &options.directory {
            py.detach(|| config.directory(file, key)).map_err(raised)?;
        }
        for module in options.transforms {
            config = config.transform(module);
        }
        config.fabric = options.fabric;
        config.relays = options.relays;
        config.shm = options.shm;
        config.progress = if options.manual { Progress::Manual } else { Progress::Auto };
        config.patience = patience(Some(options.patience))?;
        config.silence = patience(Some(options.silence))?;
        let domain = py.detach(|| Domain::open(config)).map_err(raised)?;
        Ok(NativeDomain(Mutex::new(Some(Held::new(domain))), Teller::default()))
    }

    fn set_policy(&self, py: Python<'_>, policy: &NativePolicy) -> PyResult<()> {
        let (domain, policy) = (self.domain()?, policy.0.clone());
        py.detach(|| domain.set_policy(policy)).map_err(raised)
    }

    fn refusals(&self, py: Python<'_>) -> PyResult<Refused> {
        let domain = self.domain()?;
        let found = py.detach(|| domain.refusals()).map_err(raised)?;
        let startpoints = found.startpoints.iter().map(|(reason, count)| (*reason as u8, *count)).collect();
        Ok((found.connections, found.tampered, found.names, startpoints))
    }

    fn key_hash(&self) -> PyResult<[u8; 32]> {
        Ok(self.domain()?.key_hash().0)
    }

    fn listening(&self) -> PyResult<Vec<String>> {
        Ok(self.domain()?.listening().iter().map(ToString::to_string).collect())
    }

    /// `handlers` get a NativeRequest each; `forwards` has operations of the program's own, if it passes messages on.
    #[expect(clippy::too_many_arguments, reason = "Domain.endpoint names them all")]
    fn endpoint(
        &self,
        py: Python<'_>,
        handlers: Vec<(u32, Py<PyAny>)>,
        class_name: &str,
        weakest: &str,
        message_max: usize,
        transforms: Vec<String>,
        forwards: Option<Vec<(String, Py<PyAny>)>>,
    ) -> PyResult<NativeEndpoint> {
        let attributes = Attributes::default().class(class_name).protection(protection(weakest)?);
        let attributes = attributes.message_max(message_max);
        let attributes = transforms.iter().fold(attributes, |attributes, name| attributes.transform(name));
        let handlers = handlers.into_iter().fold(Handlers::new(), |handlers, (number, handler)| {
            handlers.threaded(number, move |request| {
                in_python(|py| {
                    let request = NativeRequest::new(request);
                    let handled = Py::new(py, request).and_then(|request| handler.call1(py, (request,)));
                    if let Err(error) = handled {
                        error.write_unraisable(py, None);
                    }
                });
            })
        });
        let own = |(name, combine): (String, _)| group::own(&name, combine);
        let forwards =
            forwards.map(|own_ones| own_ones.into_iter().map(own).collect::<PyResult<Vec<_>>>()).transpose()?;
        let handlers = match forwards {
            Some(operations) => handlers.forwards(operations),
            None => handlers,
        };
        let domain = self.domain()?;
        let endpoint = py.detach(|| domain.endpoint(attributes, handlers)).map_err(raised)?;
        Ok(NativeEndpoint(Mutex::new(Some(Held::new(endpoint)))))
    }

    /// An endpoint whose requests wait in an inbox, by their numbers. With `echo` one more handler answers what it is asked.
    #[expect(clippy::too_many_arguments, reason = "a mailbox has all of them")]
    fn mailbox(
        &self,
        py: Python<'_>,
        inboxes: Vec<(u32, Py<NativeInbox>)>,
        echo: Option<u32>,
        source: u64,
        class_name: &str,
        weakest: &str,
        message_max: usize,
    ) -> PyResult<NativeEndpoint> {
        let attributes = Attributes::default().class(class_name).protection(protection(weakest)?);
        let attributes = attributes.message_max(message_max);
        let handlers = inboxes.into_iter().fold(Handlers::new(), |handlers, (number, inbox)| {
            let inbox = inbox.get().inbox();
            handlers.queued(number, move |request| inbox.came(source, request))
        });
        let handlers = match echo {
            Some(number) => handlers.inline(number, |call| call.answer(call.payload)),
            None => handlers,
        };
        let domain = self.domain()?;
        let endpoint = py.detach(|| domain.endpoint(attributes, handlers)).map_err(raised)?;
        Ok(NativeEndpoint(Mutex::new(Some(Held::new(endpoint)))))
    }

    fn pin(&self, key: Payload, name: &str, roles: Vec<String>) -> PyResult<()> {
        let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
        self.domain()?.pin(key_hash(&key)?, name, &roles);
        Ok(())
    }

    fn unpin(&self, py: Python<'_>, key: Payload) -> PyResult<bool> {
        let (domain, key) = (self.domain()?, key_hash(&key)?);
        py.detach(|| domain.unpin(&key)).map_err(raised)
    }

    /// Signs code: this domain's public key and the signature.
    fn sign(&self, job: [u8; 16], stage: &str, version: u64, hash: [u8; 32]) -> PyResult<([u8; 32], Vec<u8>)> {
        let signed = self.domain()?.sign(&Staged { job, stage, version, hash }).map_err(raised)?;
        Ok((signed.key, signed.signature.to_vec()))
    }

    fn startpoint(
        &self,
        py: Python<'_>,
        capability: &NativeCapability,
        transport: Option<u8>,
        timeout: Option<f64>,
    ) -> PyResult<NativeStartpoint> {
        let (domain, capability) = (Arc::clone(&*self.domain()?), capability.0.clone());
        let (transport, patient) = (transport.map(transport_of).transpose()?, patience(timeout)?);
        let bound = elsewhere(py, timeout, move || match transport {
            Some(transport) => domain.startpoint_over(transport, &capability, patient),
            None => domain.startpoint(&capability, patient),
        })?;
        Ok(NativeStartpoint::new(bound, self.1.clone()))
    }

    /// Expects the owner of `key`, or else whoever has `role`.
    fn attach(
        &self,
        py: Python<'_>,
        address: String,
        key: Option<Payload>,
        role: String,
        name: String,
        timeout: Option<f64>,
    ) -> PyResult<NativeStartpoint> {
        let (domain, patient) = (Arc::clone(&*self.domain()?), patience(timeout)?);
        let expected = match key {
            Some(key) => Expected::Key(key_hash(&key)?),
            None => Expected::Role(role),
        };
        let attached = elsewhere(py, timeout, move || domain.attach(address, &expected, &name, patient))?;
        Ok(NativeStartpoint::new(attached, self.1.clone()))
    }

    /// Expects the owner of `key`, who waits at a relay.
    fn attach_via(
        &self,
        py: Python<'_>,
        relay: String,
        key: Payload,
        name: String,
        timeout: Option<f64>,
    ) -> PyResult<NativeStartpoint> {
        let (domain, patient, key) = (Arc::clone(&*self.domain()?), patience(timeout)?, key_hash(&key)?);
        let attached = elsewhere(py, timeout, move || domain.attach_via(&relay, key, &name, patient))?;
        Ok(NativeStartpoint::new(attached, self.1.clone()))
    }

    fn attach_host(
        &self,
        py: Python<'_>,
        host: String,
        name: String,
        timeout: Option<f64>,
    ) -> PyResult<NativeStartpoint> {
        let (domain, patient) = (Arc::clone(&*self.domain()?), patience(timeout)?);
        let attached = elsewhere(py, timeout, move || domain.attach_host(&host, &name, patient))?;
        Ok(NativeStartpoint::new(attached, self.1.clone()))
    }

    fn group(&self, members: Vec<Py<NativeCapability>>, flat: bool) -> PyResult<NativeGroup> {
        let group = self.domain()?.group(members.iter().map(|member| member.get().0.clone()));
        Ok(NativeGroup(Held::new(if flat { group.flat() } else { group })))
    }

    fn copy_for(&self, capability: &NativeCapability, holder: Payload) -> PyResult<NativeCapability> {
        let copy = self.domain()?.copy_for(&capability.0, key_hash(&holder)?);
        copy.map(NativeCapability).map_err(raised)
    }

    fn progress(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let (domain, wanted) = (self.domain()?, patience(Some(seconds))?);
        let none = |_| raised(Error::TimedOut(String::new()));
        if wanted.is_zero() {
            return py.detach(|| domain.progress(wanted)).map_err(raised);
        }
        let moved = wait(py, Some(seconds), |turn| Ok(domain.progress(turn)?.then_some(())), none);
        match moved {
            Ok(()) => Ok(true),
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyTimeoutError>(py) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn close(&self, py: Python<'_>) {
        let domain = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(domain));
    }
}

/// Handlers that others can be given startpoints to, until it is closed.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeEndpoint(Mutex<Option<Held<Endpoint>>>);

impl NativeEndpoint {
    fn with<T: Send>(&self, py: Python<'_>, then: impl FnOnce(&Endpoint) -> Result<T, Error> + Send) -> PyResult<T> {
        let done = py.detach(|| {
            let endpoint = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            then(endpoint.as_ref().ok_or_else(|| Error::Lost("this endpoint was closed".into()))?)
        });
        done.map_err(raised)
    }
}

#[pymethods]
impl NativeEndpoint {
    fn startpoint(&self, py: Python<'_>, caveats: Vec<(String, Vec<u64>)>) -> PyResult<NativeCapability> {
        let caveats = caveats.iter().map(|(kind, numbers)| caveat(kind, numbers)).collect::<PyResult<Vec<_>>>()?;
        self.with(py, |endpoint| endpoint.startpoint(caveats)).map(NativeCapability)
    }

    /// `length` zeroes, or a copy of these bytes.
    fn region(&self, py: Python<'_>, initial: Option<Payload>, length: usize) -> PyResult<NativeRegion> {
        let memory = initial.map_or_else(|| vec![0; length], |initial| initial.to_vec());
        self.with(py, |endpoint| Ok(endpoint.region(memory))).map(|region| NativeRegion(Held::new(region)))
    }

    fn publish(
        &self,
        py: Python<'_>,
        name: String,
        roles: Vec<String>,
        caveats: Vec<(String, Vec<u64>)>,
    ) -> PyResult<()> {
        let caveats = caveats.iter().map(|(kind, numbers)| caveat(kind, numbers)).collect::<PyResult<Vec<_>>>()?;
        let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
        self.with(py, |endpoint| endpoint.publish(&name, &roles, caveats))
    }

    fn withdraw(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.with(py, |endpoint| endpoint.withdraw(&name))
    }

    fn revoke(&self, py: Python<'_>, capability: &NativeCapability) -> PyResult<()> {
        self.with(py, |endpoint| endpoint.revoke(&capability.0))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

pub(crate) fn protection(name: &str) -> PyResult<Protection> {
    let found = Protection::ALL.into_iter().find(|protection| protection.name() == name);
    found.ok_or_else(|| PyValueError::new_err(format!("{name:?} is no protection: privacy, integrity or none")))
}
