//! Every key of a job, from its secret (threat-model rule 1; HKDF is RFC 5869 with SHA-256).
//!
//! ```text
//!  job secret ──> admission key ──> MAC of the cards
//!            └──> registration key ──> proof in the ledger
//!            └─┐
//!  X25519 ─────┼──> pair secret ──> root per direction ──> epoch key and IV (AEAD)
//!  partition ──┘            │                         └──> epoch key and IV (GMAC)
//!                           └──> connection id per direction
//! ```
//!
//! Secrets that come from outside go through Extract and Expand, what comes from those through
//! Expand alone. `info` names the purpose and all that the key shall depend on, every field behind
//! its length, so that no two derivations have the same input. All epochs' keys follow from the
//! root, which stays: epochs serve limits and changes of policy, not forward secrecy.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use zeroize::Zeroizing;

use crate::aead::{Context, IV_LEN};
use crate::identity::{Identity, PublicKey};
use crate::primitives::{expand, extract, hmac};
use crate::secret::Secret32;
use crate::suite::{Protection, Suite};

/// Version of the key schedule, in every derivation.
const VERSION: u8 = 1;

/// The one registry of labels: no secret serves two purposes under one label.
#[derive(Clone, Copy)]
enum Label {
    Admission,
    Registration,
    Partition,
    Direction,
    Epoch,
    EpochIntegrity,
    Connection,
}

impl Label {
    const fn name(self) -> &'static str {
        match self {
            Label::Admission => "gambeson admission",
            Label::Registration => "gambeson registration",
            Label::Partition => "gambeson partition",
            Label::Direction => "gambeson direction",
            Label::Epoch => "gambeson epoch privacy",
            Label::EpochIntegrity => "gambeson epoch integrity",
            Label::Connection => "gambeson connection",
        }
    }
}

/// What the keys of a job are made of.
#[derive(Clone, Debug)]
pub struct JobKeys {
    /// Names the job; not secret.
    pub job_id: [u8; 16],
    /// The secret that its ranks share.
    pub job_secret: Secret32,
    /// Hash of the policy that they agreed on.
    pub policy_hash: [u8; 32],
    /// Suite of all its pairs.
    pub suite: Suite,
}

impl JobKeys {
    /// The key of the cards' MAC. It does not depend on the policy, so that a rank under another
    /// policy is told apart from one of another job.
    pub fn admission_key(&self) -> AdmissionKey {
        AdmissionKey(self.mac_key(Label::Admission))
    }

    /// The proof that a rank writes into its ledger: it has this job's secret.
    pub fn registration_proof(&self, pid: u64, rank: u64) -> [u8; 32] {
        let mut claim = [0; 32];
        claim[..16].copy_from_slice(&self.job_id);
        claim[16..24].copy_from_slice(&pid.to_le_bytes());
        claim[24..].copy_from_slice(&rank.to_le_bytes());
        hmac(&self.mac_key(Label::Registration), &claim)
    }

    fn mac_key(&self, label: Label) -> Secret32 {
        derive(&self.job_secret, &Info::new(label).field(&self.job_id))
    }
}

/// The key of the cards' MAC.
#[derive(Clone, Debug)]
pub struct AdmissionKey(Secret32);

impl AdmissionKey {
    pub(crate) fn mac(&self, bytes: &[u8]) -> [u8; 8] {
        assert!(!self.0.is_wiped(), "a forked process has no admission key");
        *hmac(&self.0, bytes).first_chunk().expect("HMAC-SHA256 has 32 bytes")
    }
}

/// A partition's key for one job: what a rank gets in place of the partition's secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKey {
    /// Epoch of the partition's secret.
    pub epoch: u32,
    /// HKDF(partition secret, hash of the name, epoch, job id).
    pub key: Secret32,
}

impl PartitionKey {
    /// Derives the key of job `job_id` from the partition's secret of an epoch.
    pub fn derive(secret: &Secret32, epoch: u32, name: &str, job_id: &[u8; 16]) -> Self {
        // A name may be long; its hash is not.
        let name = digest(&SHA256, name.as_bytes());
        let info = Info::new(Label::Partition).field(name.as_ref()).field(&epoch.to_be_bytes()).field(job_id);
        PartitionKey { epoch, key: derive(secret, &info) }
    }
}

/// The peer's key is of low order, our own, or not in the form that X25519 gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakKey;

/// The roots of a pair's two directions.
#[derive(Debug)]
pub struct PairRoots {
    /// From us to the peer.
    pub send: Root,
    /// From the peer to us.
    pub receive: Root,
}

/// Derives the roots of the pair that we and `peer` are.
pub fn pair_roots(
    keys: &JobKeys,
    own: &Identity,
    peer: &PublicKey,
    partition: Option<&PartitionKey>,
) -> Result<PairRoots, WeakKey> {
    // Our own key would make one direction of both; no other spelling of it may pass either.
    if !is_canonical(peer) || *peer == own.public {
        return Err(WeakKey);
    }
    let shared = own.agree(peer).ok_or(WeakKey)?;
    let mut material = Zeroizing::new([0; 96]);
    material[..32].copy_from_slice(shared.as_bytes());
    material[32..64].copy_from_slice(keys.job_secret.as_bytes());
    if let Some(partition) = partition {
        material[64..].copy_from_slice(partition.key.as_bytes());
    }
    let prk = extract(&*material);
    let root = |sender: &PublicKey, receiver: &PublicKey| {
        let info = |label| {
            Info::new(label)
                .field(&[keys.suite as u8])
                .field(&keys.job_id)
                .field(sender)
                .field(receiver)
                .field(&partition.map_or(0, |partition| partition.epoch).to_be_bytes())
                .field(&keys.policy_hash)
                .field(&[u8::from(partition.is_some())])
        };
        let mut id = [0; 8];
        expand(&prk, info(Label::Connection).bytes(), &mut id);
        let secret = Secret32::filled(|secret| expand(&prk, info(Label::Direction).bytes(), secret));
        Root { secret, connection_id: u64::from_le_bytes(id) }
    };
    Ok(PairRoots { send: root(&own.public, peer), receive: root(peer, &own.public) })
}

/// The secret of one direction of a pair, from which its epochs' keys come.
pub struct Root {
    secret: Secret32,
    connection_id: u64,
}

impl Root {
    /// Names the direction on the wire; says nothing to who lacks the root.
    pub fn connection_id(&self) -> u64 {
        self.connection_id
    }

    /// Key and IV of an epoch. Integrity has a key of its own (threat-model rule 9).
    pub fn epoch(&self, epoch: u32, suite: Suite, protection: Protection) -> Context {
        let mut context = Context::NONE;
        self.install(epoch, suite, protection, &mut context);
        context
    }

    /// [`Root::epoch`], expanded in the place where it is used.
    pub(crate) fn install(&self, epoch: u32, suite: Suite, protection: Protection, context: &mut Context) {
        assert!(!self.secret.is_wiped(), "a forked process has no sessions");
        let label = match protection {
            Protection::Privacy | Protection::None => Label::Epoch,
            Protection::Integrity => Label::EpochIntegrity,
        };
        let info = Info::new(label).field(&[suite as u8]).field(&epoch.to_be_bytes());
        let mut out = Zeroizing::new([0; 32 + IV_LEN]);
        expand(&self.secret, info.bytes(), &mut *out);
        let (key, iv) = out.split_at(32);
        context.install(suite, &key[..suite.key_len()], iv.try_into().expect("12 bytes"));
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Root({:016x})", self.connection_id)
    }
}

/// Extract and Expand, for a secret that comes from outside.
fn derive(secret: &Secret32, info: &Info) -> Secret32 {
    let prk = extract(secret.as_bytes());
    Secret32::filled(|out| expand(&prk, info.bytes(), out))
}

/// Whether a key is below 2^255 - 19, the only form in which X25519 gives one.
fn is_canonical(key: &PublicKey) -> bool {
    let [lowest, middle @ .., highest] = key;
    *highest < 0x7f || (*highest == 0x7f && (*lowest < 0xed || middle.iter().any(|byte| *byte != 0xff)))
}

/// HKDF info: length-prefixed fields, the label first. Public, and never on the heap.
struct Info {
    space: [u8; 192],
    len: usize,
}

impl Info {
    fn new(label: Label) -> Self {
        Info { space: [0; 192], len: 0 }.field(label.name().as_bytes()).field(&[VERSION])
    }

    fn field(mut self, bytes: &[u8]) -> Self {
        let len = u16::try_from(bytes.len()).expect("a field of key schedule info is short");
        self.append(&len.to_be_bytes());
        self.append(bytes);
        self
    }

    fn append(&mut self, bytes: &[u8]) {
        self.space[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.space[..self.len]
    }
}
