//! What asks for a partition's secret, or for a job's key, and what answers.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::Error;
use gambeson_proto::secret::Secret32;

/// Asks for the secret of a partition in the epoch that it is in.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Fetch {
    pub(super) partition: String,
    /// From one site to another, and from the authority's host to the key service: the names of the host that it is for.
    /// None, for who asks for himself.
    pub(super) host: Option<Vec<String>>,
}

/// Asks a host's own daemon for the key of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) partition: String,
    /// The one that the job began in; 0: it begins now.
    pub(super) epoch: u32,
    pub(super) job: [u8; 16],
}

/// A secret and its epoch: a partition's, or a job's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub(super) epoch: u32,
    pub(super) secret: Secret32,
}

const GRANTED: u8 = 0;
/// It may be to be had later, or from memory.
const UNAVAILABLE: u8 = 1;
const REFUSED: u8 = 2;

/// `mark u8`, then `epoch u32 | secret 32`, big endian, or a sentence.
pub(super) fn encode(outcome: &Result<Grant, Error>) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(LENGTH));
    match outcome {
        Ok(grant) => {
            bytes.push(GRANTED);
            bytes.extend(grant.epoch.to_be_bytes());
            bytes.extend(grant.secret.as_bytes());
        }
        Err(cause) => {
            bytes.push(if matches!(cause, Error::Unavailable(_)) { UNAVAILABLE } else { REFUSED });
            bytes.extend(cause.to_string().bytes());
        }
    }
    bytes
}

/// Reads an answer.
pub(super) fn decode(bytes: &[u8]) -> Result<Grant, Error> {
    let sentence = |rest: &[u8]| String::from_utf8_lossy(rest).chars().filter(|one| !one.is_control()).collect();
    match bytes.split_first() {
        Some((&GRANTED, rest)) if rest.len() == LENGTH - 1 => {
            let (epoch, secret) = rest.split_first_chunk().expect("36 bytes");
            let secret = Secret32::filled(|to| to.copy_from_slice(secret));
            if !secret.is_wiped() {
                return Ok(Grant { epoch: u32::from_be_bytes(*epoch), secret });
            }
        }
        Some((&UNAVAILABLE, rest)) => return Err(Error::Unavailable(sentence(rest))),
        Some((&REFUSED, rest)) => return Err(Error::Refused(sentence(rest))),
        _ => {}
    }
    Err(Error::Refused("what was answered is no key of a partition; install the same Gambeson on all hosts".into()))
}

const LENGTH: usize = 1 + 4 + 32;
/// No question or answer is longer.
pub(super) const LENGTH_MAX: usize = 8 << 10;
