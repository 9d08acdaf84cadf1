//! What one job's processes share: its identity, its secret, its policy and the keys of its partitions (rule 7).
//!
//! ```text
//! magic "GBSNJOB1" | version u16 | job id 16 | job secret 32
//! policy length u32, canonical bytes
//! tuning: epoch records u64, epoch blocks u64, cached sessions u32, unexpected bytes u64
//! partitions u16 x { epoch u32, key 32 }
//! SHA-256 of all before it
//! ```
//! On its way to another host it lacks the key of the partition that the job runs in, which stands there as zeros: each
//! host has that from its own daemon, so that a host that is no member has none.
//!
//! Big endian. The trailer tells damage from a wrong file; it is no protection: whoever can
//! write the file holds the secret.

use std::fmt;

use aws_lc_rs::digest;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::key_schedule::{JobKeys, PartitionKey};
use crate::policy::{Partition, Policy};
use crate::secret::Secret32;

/// Everything a process of the job needs to talk to the others.
pub struct Credential {
    /// Tells jobs apart; not secret.
    pub job_id: [u8; 16],
    /// Known to the job's processes and nobody else.
    pub job_secret: Secret32,
    /// What the launcher resolved.
    pub policy: Policy,
    /// One key for each of the policy's partitions, in their order.
    pub partitions: Vec<PartitionKey>,
    /// The provider's own knobs.
    pub tuning: Tuning,
}

/// The provider's own knobs; zero leaves a knob to the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Records before an epoch ends.
    pub epoch_records: u64,
    /// Cipher blocks before an epoch ends.
    pub epoch_blocks: u64,
    /// Expanded session contexts kept.
    pub cached_sessions: u32,
    /// Memory for messages that no receive matched yet.
    pub unexpected_bytes: u64,
}

/// Bytes that are no credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialError {
    /// Not a credential at all.
    Foreign,
    /// Written by another version of Gambeson.
    Version(u16),
    /// Cut short or altered.
    Damaged,
    /// As it travels: the key of the partition that the job runs in is not in it.
    Incomplete,
}

impl Credential {
    /// The bytes a credential file holds.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        self.write(false)
    }

    /// The bytes that go to another host: without the key of the partition that the job runs in.
    pub fn encode_to_travel(&self) -> Zeroizing<Vec<u8>> {
        self.write(true)
    }

    fn write(&self, travels: bool) -> Zeroizing<Vec<u8>> {
        let policy = self.policy.canonical();
        // One allocation: a vector that grows leaves copies of the secret behind.
        let length = HEADER + 4 + policy.len() + TUNING + 2 + PARTITION * self.partitions.len() + TRAILER;
        let mut out = Zeroizing::new(Vec::with_capacity(length));
        out.extend(MAGIC);
        out.extend(VERSION.to_be_bytes());
        out.extend(self.job_id);
        out.extend(self.job_secret.as_bytes());
        out.extend(u32::try_from(policy.len()).expect("a policy is small").to_be_bytes());
        out.extend(policy);
        out.extend(self.tuning.epoch_records.to_be_bytes());
        out.extend(self.tuning.epoch_blocks.to_be_bytes());
        out.extend(self.tuning.cached_sessions.to_be_bytes());
        out.extend(self.tuning.unexpected_bytes.to_be_bytes());
        let partitions = u16::try_from(self.partitions.len()).expect("a policy bounds its partitions");
        out.extend(partitions.to_be_bytes());
        for (partition, told) in self.partitions.iter().zip(self.policy.partitions()) {
            out.extend(partition.epoch.to_be_bytes());
            let left_out = travels && told.is_of_job();
            out.extend(if left_out { &[0; 32] } else { partition.key.as_bytes() });
        }
        let digest = digest::digest(&digest::SHA256, &out);
        out.extend(digest.as_ref());
        debug_assert_eq!(out.len(), length);
        out
    }

    /// Reads what [`Credential::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, CredentialError> {
        let read = Self::decode_travelling(bytes)?;
        if read.lacking().is_some() { Err(CredentialError::Incomplete) } else { Ok(read) }
    }

    /// Which partition's key is not in it.
    pub fn lacking(&self) -> Option<usize> {
        self.partitions.iter().position(|partition| partition.key.is_wiped())
    }

    /// Reads what [`Credential::encode_to_travel`] wrote. Who is to use it has to see to what is [`Self::lacking`].
    pub fn decode_travelling(bytes: &[u8]) -> Result<Self, CredentialError> {
        if !bytes.starts_with(&MAGIC[..MAGIC.len() - 1]) {
            return Err(CredentialError::Foreign);
        }
        let mut reader = Reader(bytes);
        let magic = reader.array::<8>()?;
        let version = u16::from_be_bytes(reader.array()?);
        if magic != MAGIC || version != VERSION {
            return Err(CredentialError::Version(version));
        }
        let (body, trailer) = bytes.split_last_chunk::<TRAILER>().ok_or(CredentialError::Damaged)?;
        let digest = digest::digest(&digest::SHA256, body);
        if !bool::from(digest.as_ref().ct_eq(trailer)) {
            return Err(CredentialError::Damaged);
        }
        reader.0 = body.get(MAGIC.len() + 2..).ok_or(CredentialError::Damaged)?;
        reader.body()
    }

    /// What the key schedule starts from.
    pub fn job_keys(&self) -> JobKeys {
        JobKeys {
            job_id: self.job_id,
            job_secret: self.job_secret.clone(),
            policy_hash: self.policy.hash(),
            suite: self.policy.suite(),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Credential").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl fmt::Display for CredentialError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(out, "it is not a Gambeson credential"),
            Self::Version(version) => write!(
                out,
                "it is a credential of version {version}, and this build knows version {VERSION}; use the same Gambeson everywhere in the job"
            ),
            Self::Damaged => write!(out, "it is damaged"),
            Self::Incomplete => {
                write!(
                    out,
                    "it lacks the key of the partition that the job runs in, which this host's daemon has to give"
                )
            }
        }
    }
}

impl std::error::Error for CredentialError {}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn body(&mut self) -> Result<Credential, CredentialError> {
        let job_id = self.array()?;
        let job_secret = self.secret()?;
        let length = u32::from_be_bytes(self.array()?);
        let length = usize::try_from(length).map_err(|_| CredentialError::Damaged)?;
        let (policy, rest) = self.0.split_at_checked(length).ok_or(CredentialError::Damaged)?;
        let policy = Policy::from_canonical(policy).map_err(|_| CredentialError::Damaged)?;
        self.0 = rest;
        let tuning = Tuning {
            epoch_records: u64::from_be_bytes(self.array()?),
            epoch_blocks: u64::from_be_bytes(self.array()?),
            cached_sessions: u32::from_be_bytes(self.array()?),
            unexpected_bytes: u64::from_be_bytes(self.array()?),
        };
        let count = usize::from(u16::from_be_bytes(self.array()?));
        if count != policy.partitions().len() {
            return Err(CredentialError::Damaged);
        }
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            partitions.push(PartitionKey { epoch: u32::from_be_bytes(self.array()?), key: self.secret()? });
        }
        // No other partition's key is ever left out.
        let legal = |(key, told): (&PartitionKey, &Partition)| told.is_of_job() || !key.key.is_wiped();
        if !partitions.iter().zip(policy.partitions()).all(legal) {
            return Err(CredentialError::Damaged);
        }
        if !self.0.is_empty() {
            return Err(CredentialError::Damaged);
        }
        Ok(Credential { job_id, job_secret, policy, partitions, tuning })
    }

    fn secret(&mut self) -> Result<Secret32, CredentialError> {
        let bytes = Zeroizing::new(self.array()?);
        Ok(Secret32::from_bytes(*bytes))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CredentialError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(CredentialError::Damaged)?;
        self.0 = rest;
        Ok(*array)
    }
}

const MAGIC: [u8; 8] = *b"GBSNJOB1";
const VERSION: u16 = 1;
const HEADER: usize = 8 + 2 + 16 + 32;
const TUNING: usize = 8 + 8 + 4 + 8;
const PARTITION: usize = 4 + 32;
const TRAILER: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn credential() -> Credential {
        let policy = Policy::parse(
            "gap_timeout = \"3 s\"\n[[partition]]\nname = \"p\"\nhosts = [\"a\"]\nsecret_file = \"f\"",
            "test",
        )
        .unwrap();
        Credential {
            job_id: [1; 16],
            job_secret: Secret32::from_bytes([2; 32]),
            policy,
            partitions: vec![PartitionKey { epoch: 9, key: Secret32::from_bytes([3; 32]) }],
            tuning: Tuning { epoch_records: 4, epoch_blocks: 5, cached_sessions: 6, unexpected_bytes: 7 },
        }
    }

    #[test]
    fn what_was_encoded_comes_back() {
        let before = credential();
        let after = Credential::decode(&before.encode()).unwrap();
        assert_eq!(after.job_id, before.job_id);
        assert_eq!(after.job_secret.as_bytes(), before.job_secret.as_bytes());
        assert_eq!(after.policy, before.policy);
        assert_eq!(after.partitions[0].epoch, 9);
        assert_eq!(after.partitions[0].key.as_bytes(), &[3; 32]);
        assert_eq!(after.tuning, before.tuning);
        assert_eq!(after.job_keys().policy_hash, before.policy.hash());
    }

    #[test]
    fn damage_anywhere_is_refused() {
        let bytes = credential().encode();
        for length in 0..bytes.len() {
            assert!(Credential::decode(&bytes[..length]).is_err());
        }
        for position in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[position] ^= 1;
            assert!(Credential::decode(&altered).is_err(), "byte {position}");
        }
    }

    #[test]
    fn kinds_of_error_are_told_apart() {
        let error = |bytes: &[u8]| Credential::decode(bytes).unwrap_err();
        assert_eq!(error(b"#!/bin/sh"), CredentialError::Foreign);
        assert_eq!(error(b""), CredentialError::Foreign);
        let mut later = credential().encode();
        later[9] = 2;
        assert_eq!(error(&later), CredentialError::Version(2));
        assert_eq!(error(b"GBSNJOB1\0\x01"), CredentialError::Damaged);
    }

    #[test]
    fn no_partition_key_is_missing() {
        let mut lacking = credential();
        lacking.partitions.clear();
        assert_eq!(Credential::decode(&lacking.encode()).unwrap_err(), CredentialError::Damaged);
    }

    #[test]
    fn the_key_of_the_jobs_partition_does_not_travel() {
        let mut whole = credential();
        whole.policy = Policy::parse("[[partition]]\nname = \"ward\"", "test").unwrap().with_epoch(0, 9);
        assert_eq!(Credential::decode(&whole.encode()).unwrap().lacking(), None);
        let travels = whole.encode_to_travel();
        assert!(!travels.windows(32).any(|bytes| bytes == [3; 32]));
        assert_eq!(Credential::decode(&travels).unwrap_err(), CredentialError::Incomplete);
        let arrived = Credential::decode_travelling(&travels).unwrap();
        assert_eq!((arrived.lacking(), arrived.partitions[0].epoch), (Some(0), 9));
        // Those of partitions whose secret lies in a file do.
        assert_eq!(*credential().encode_to_travel(), *credential().encode());
        let mut zero = credential();
        zero.partitions[0].key = Secret32::from_bytes([0; 32]);
        assert_eq!(Credential::decode_travelling(&zero.encode()).unwrap_err(), CredentialError::Damaged);
    }

    #[test]
    fn debugging_shows_no_secret() {
        assert!(!format!("{:?}", credential()).contains("job_secret"));
    }
}
