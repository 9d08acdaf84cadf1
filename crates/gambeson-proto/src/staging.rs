//! Code that is staged to others: its owner signs which code it is, and what for (threat-model.md, rule 13).
//!
//! What is signed has the form of TLS 1.3 (RFC 8446, 4.4.3), as vouchers for startpoints have, so that no signature under the
//! same key that a handshake wants can be taken for it:
//!
//! ```text
//! 64 spaces | "Gambeson, staged code\0" | job 16 | version 8, big-endian | SHA-256 of the code 32 | name of the stage
//! ```

use crate::key_schedule::KeyHash;
use crate::primitives::ed25519_verifies;
use crate::startpoint::{Voucher, key_hash};

/// What is staged: which code, as which stage of which job.
#[derive(Clone, Copy, Debug)]
pub struct Staged<'s> {
    /// The job, as its owner names it.
    pub job: [u8; 16],
    /// The stage's name.
    pub stage: &'s str,
    /// Counts the codes that this stage has had.
    pub version: u64,
    /// SHA-256 of the code.
    pub hash: [u8; 32],
}

impl Staged<'_> {
    /// What its owner signs (Ed25519).
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let version = self.version.to_be_bytes();
        let parts: [&[u8]; 6] = [&[0x20; 64], CONTEXT, &self.job, &version, &self.hash, self.stage.as_bytes()];
        parts.concat()
    }

    /// Whether the domain with this key has signed it.
    #[must_use]
    pub fn is_signed(&self, owner: &KeyHash, voucher: &Voucher) -> bool {
        key_hash(&voucher.key) == *owner && ed25519_verifies(&voucher.key, &self.message(), &voucher.signature)
    }
}

const CONTEXT: &[u8; 22] = b"Gambeson, staged code\0";

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

    #[test]
    fn a_signature_is_for_its_owner_job_stage_version_and_code_alone() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed has 32 bytes");
        let key: [u8; 32] = pair.public_key().as_ref().try_into().expect("a key has 32 bytes");
        let staged = Staged { job: [1; 16], stage: "render", version: 3, hash: [2; 32] };
        let signature = pair.sign(&staged.message()).as_ref().try_into().expect("a signature has 64 bytes");
        let (owner, voucher) = (key_hash(&key), Voucher { key, signature });
        assert!(staged.is_signed(&owner, &voucher));
        assert!(!staged.is_signed(&key_hash(&[9; 32]), &voucher));
        let others = [
            Staged { job: [3; 16], ..staged },
            Staged { stage: "filter", ..staged },
            Staged { stage: "renderer", ..staged },
            Staged { version: 4, ..staged },
            Staged { hash: [4; 32], ..staged },
        ];
        for other in others {
            assert!(!other.is_signed(&owner, &voucher), "{other:?}");
        }
    }
}
