//! Who a domain is, and whom it accepts.

use std::sync::{Mutex, PoisonError};

use gambeson_link::{Identity, KeyHash, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::staging::Staged;
use gambeson_proto::startpoint::Voucher;
use gambeson_proto::suite::Suite;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::buffer::Payload;
use super::{exception, raised};

/// A domain's own key; the domain takes it.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeIdentity {
    hash: [u8; 32],
    identity: Mutex<Option<Identity>>,
}

impl NativeIdentity {
    fn new(identity: Identity) -> Self {
        NativeIdentity { hash: identity.key_hash().0, identity: Mutex::new(Some(identity)) }
    }

    pub(crate) fn take(&self) -> PyResult<Identity> {
        let taken = self.identity.lock().unwrap_or_else(PoisonError::into_inner).take();
        let what = "this identity belongs to a domain already; each domain has its own";
        taken.ok_or_else(|| exception("IdentityUnusable", what.into()))
    }
}

#[pymethods]
impl NativeIdentity {
    #[staticmethod]
    fn generate() -> PyResult<Self> {
        Identity::generate().map(Self::new).map_err(raised)
    }

    #[staticmethod]
    fn from_pem(chain: Payload, key: Payload) -> PyResult<Self> {
        Identity::from_pem(&chain, &key).map(Self::new).map_err(raised)
    }

    fn key_hash(&self) -> [u8; 32] {
        self.hash
    }
}

/// Whom a domain talks to.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeTrust(pub(crate) Trust);

#[pymethods]
impl NativeTrust {
    #[new]
    fn new() -> Self {
        NativeTrust(Trust::default())
    }

    fn job(&self, job_id: Payload, secret: Payload, policy_hash: Payload) -> PyResult<Self> {
        let keys = JobKeys {
            job_id: array(&job_id, "a job's name")?,
            job_secret: Secret32::from_bytes(array(&secret, "a job's secret")?),
            policy_hash: array(&policy_hash, "a policy's hash")?,
            suite: Suite::Aes256Gcm,
        };
        Ok(NativeTrust(self.0.clone().job(keys)))
    }

    fn pinned(&self, key: Payload, name: &str, roles: Vec<String>) -> PyResult<Self> {
        let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
        Ok(NativeTrust(self.0.clone().pinned(key_hash(&key)?, name, &roles)))
    }

    fn authorities(&self, pem: Payload) -> PyResult<Self> {
        self.0.clone().authorities(&pem).map(NativeTrust).map_err(raised)
    }
}

/// Whether the domain with this key has signed this code.
#[pyfunction]
pub(crate) fn is_signed(
    owner: Payload,
    staged: ([u8; 16], String, u64, [u8; 32]),
    signed: ([u8; 32], Payload),
) -> PyResult<bool> {
    let (job, stage, version, hash) = staged;
    let (key, signature) = signed;
    let voucher = Voucher { key, signature: array(&signature, "a signature")? };
    Ok(Staged { job, stage: &stage, version, hash }.is_signed(&key_hash(&owner)?.0, &voucher))
}

/// A public key's hash, as Python has it: 32 bytes.
pub(crate) fn key_hash(bytes: &[u8]) -> PyResult<KeyHash> {
    array(bytes, "a public key's hash").map(KeyHash)
}

fn array<const N: usize>(bytes: &[u8], what: &str) -> PyResult<[u8; N]> {
    let wrong = |_| PyValueError::new_err(format!("{what} has {N} bytes, and these are {}", bytes.len()));
    bytes.try_into().map_err(wrong)
}
