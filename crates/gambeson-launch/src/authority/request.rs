//! What asks an authority for a certificate, and what it answers: a line of JSON each.

use data_encoding::BASE64;
use gambeson_link::Identity;
use gambeson_site::directory::now;
use serde::{Deserialize, Serialize};

use super::{PublicKey, Site, Subject};
use crate::Error;

const LABEL: &[u8] = b"gambeson enrolment request 1\0";
/// No request or answer is longer.
pub(crate) const LENGTH_MAX: usize = 256 << 10;

/// Asks for a certificate for a key, whose owner has signed it. It says nothing of who that is: the authority decides.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// How the host calls itself that the key is on.
    pub host: String,
    /// Its clock, in seconds since 1970.
    pub time: u64,
    key: String,
    signature: String,
}

impl Request {
    /// For the key of an identity, on this host.
    ///
    /// # Errors
    /// When that is neither an Ed25519 key nor one on P-256, or it signs nothing.
    pub fn new(identity: &Identity) -> Result<Self, Error> {
        let foreign =
            "the identity's key is of another kind than this site's authority certifies; who certified it can renew it";
        let key = PublicKey::from_info(&identity.public_key()?).ok_or_else(|| Error::Refused(foreign.into()))?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let time = now();
        let signature = identity.sign(&message(key.bytes(), &host, time))?;
        Ok(Request { host, time, key: BASE64.encode(key.bytes()), signature: BASE64.encode(&signature) })
    }

    /// Reads one.
    ///
    /// # Errors
    /// When it is none, or its signature is not by its key.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let none = |why: &str| Error::Refused(format!("what came is no request for a certificate: {why}"));
        if bytes.len() > LENGTH_MAX {
            return Err(none("it is too long"));
        }
        let request: Request = serde_json::from_slice(bytes).map_err(|cause| none(&cause.to_string()))?;
        let key = BASE64.decode(request.key.as_bytes()).ok().and_then(|key| PublicKey::new(&key));
        let key = key.ok_or_else(|| none("its key is neither an Ed25519 key nor one on P-256"))?;
        let signature = BASE64.decode(request.signature.as_bytes()).map_err(|_| none("its signature is none"))?;
        if !key.verifies(&message(key.bytes(), &request.host, request.time), &signature) {
            return Err(none("its signature is not by its key"));
        }
        if request.host.len() > 255 || request.host.chars().any(char::is_control) {
            return Err(none("its host's name is none"));
        }
        Ok(request)
    }

    /// As one line.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("words and numbers are JSON")
    }

    pub(crate) fn public_key(&self) -> PublicKey {
        let key = BASE64.decode(self.key.as_bytes()).ok().and_then(|key| PublicKey::new(&key));
        key.expect("it was made here, or checked when it came")
    }
}

fn message(key: &[u8], host: &str, time: u64) -> Vec<u8> {
    [LABEL, key, &time.to_be_bytes(), host.as_bytes()].concat()
}

/// A certificate, and what its owner needs beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certified {
    pub(super) certificate: String,
    pub(super) authorities: String,
    pub(super) site: Site,
    /// Whom it is for.
    pub subject: Subject,
    /// Until when it is valid, in seconds since 1970.
    pub until: u64,
}

impl Certified {
    /// Reads one.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let none = |why: &str| Error::Refused(format!("the authority's answer is no certificate: {why}"));
        if bytes.len() > LENGTH_MAX {
            return Err(none("it is too long"));
        }
        serde_json::from_slice(bytes).map_err(|cause| none(&cause.to_string()))
    }

    /// As one line.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("words and numbers are JSON")
    }
}
