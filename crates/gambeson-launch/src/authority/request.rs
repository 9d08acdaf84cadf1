//! What asks an authority for a certificate, and what it answers: a line of JSON each.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use data_encoding::BASE64;
use gambeson_link::{Identity, KeyHash};
use gambeson_site::directory::now;
use serde::{Deserialize, Serialize};

use super::{Site, Subject};
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
    /// When that is no Ed25519 key.
    pub fn new(identity: &Identity) -> Result<Self, Error> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(identity.private_key());
        let foreign =
            "the identity has no Ed25519 key, so this site's authority did not certify it; who did can renew it";
        let pair = pair.map_err(|_| Error::Refused(foreign.into()))?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (key, time) = (pair.public_key().as_ref().to_vec(), now());
        let signature = pair.sign(&message(&key, &host, time));
        Ok(Request { host, time, key: BASE64.encode(&key), signature: BASE64.encode(signature.as_ref()) })
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
        let key = BASE64.decode(request.key.as_bytes()).ok().filter(|key| key.len() == 32);
        let key = key.ok_or_else(|| none("its key is no Ed25519 key"))?;
        let signature = BASE64.decode(request.signature.as_bytes()).map_err(|_| none("its signature is none"))?;
        let verified = UnparsedPublicKey::new(&ED25519, &key);
        let verified = verified.verify(&message(&key, &request.host, request.time), &signature);
        verified.map_err(|_| none("its signature is not by its key"))?;
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

    pub(crate) fn public_key(&self) -> [u8; 32] {
        let key = BASE64.decode(self.key.as_bytes()).expect("it was made here, or checked when it came");
        key.try_into().expect("it was made here, or checked when it came")
    }
}

fn message(key: &[u8], host: &str, time: u64) -> Vec<u8> {
    [LABEL, key, &time.to_be_bytes(), host.as_bytes()].concat()
}

/// By what a key is known: SHA-256 of its SubjectPublicKeyInfo.
#[must_use]
pub fn key_hash(public: &[u8; 32]) -> KeyHash {
    let info = [&gambeson_site::directory::ED25519[..], public].concat();
    KeyHash(digest(&SHA256, &info).as_ref().try_into().expect("SHA-256 has 32 bytes"))
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
