//! Every key of a job, from its secret (threat-model rule 1; HKDF is RFC 5869 with SHA-256).
//!
//! ```text
//!  job secret ──> admission key ──> MAC of the cards
//!            └──> registration key ──> proof in the ledger
//!            └─┐
//!  X25519 ─────┼──> pair secret ──> root per direction ──> epoch key and IV (AEAD)
//!  partition ──┘                                      ├──> epoch key and IV (GMAC)
//!                                                     └──> connection id
//! ```

use aws_lc_rs::{hkdf, hmac};
use zeroize::{Zeroize, Zeroizing};

use crate::aead::{Context, IV_LEN};
use crate::identity::{Identity, PublicKey};
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

/// HKDF info: length-prefixed fields, the label first.
struct Info(Vec<u8>);

impl Info {
    fn new(label: Label) -> Self {
        Info(Vec::with_capacity(256)).field(label.name().as_bytes()).field(&[VERSION])
    }

    fn field(mut self, bytes: &[u8]) -> Self {
        let len = u16::try_from(bytes.len()).expect("a field of key schedule info is short");
        self.0.extend_from_slice(&len.to_be_bytes());
        self.0.extend_from_slice(bytes);
        self
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(secret: &[u8], info: &Info, out: &mut [u8]) {
    expand(&hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(secret), info, out);
}

fn expand(prk: &hkdf::Prk, info: &Info, out: &mut [u8]) {
    let info = [info.0.as_slice()];
    let okm = prk.expand(&info, Length(out.len())).expect("HKDF gives this many bytes");
    okm.fill(out).expect("the length is the one asked for");
}

/// What the keys of a job are made of.
#[derive(Clone)]
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
        let key = self.mac_key(Label::Registration);
        let mut context = hmac::Context::with_key(&key);
        context.update(&self.job_id);
        context.update(&pid.to_le_bytes());
        context.update(&rank.to_le_bytes());
        context.sign().as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
    }

    fn mac_key(&self, label: Label) -> hmac::Key {
        let mut key = Zeroizing::new([0; 32]);
        derive(self.job_secret.as_bytes(), &Info::new(label).field(&self.job_id), &mut *key);
        hmac::Key::new(hmac::HMAC_SHA256, &*key)
    }
}

/// The key of the cards' MAC.
pub struct AdmissionKey(hmac::Key);

impl AdmissionKey {
    pub(crate) fn mac(&self, bytes: &[u8]) -> [u8; 8] {
        let tag = hmac::sign(&self.0, bytes);
        tag.as_ref()[..8].try_into().expect("HMAC-SHA256 has 32 bytes")
    }
}

/// A partition's key for one job: what a rank gets in place of the partition's secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKey {
    /// Epoch of the partition's secret.
    pub epoch: u32,
    /// HKDF(partition secret, name, epoch, job id).
    pub key: Secret32,
}

impl PartitionKey {
    /// Derives the key of job `job_id` from the partition's secret of an epoch.
    pub fn derive(secret: &Secret32, epoch: u32, name: &str, job_id: &[u8; 16]) -> Self {
        let info = Info::new(Label::Partition).field(name.as_bytes()).field(&epoch.to_be_bytes()).field(job_id);
        let mut key = [0; 32];
        derive(secret.as_bytes(), &info, &mut key);
        let secret = Secret32::from_bytes(key);
        key.zeroize();
        PartitionKey { epoch, key: secret }
    }
}

/// The peer's key is of low order, or our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakKey;

/// The roots of a pair's two directions.
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
    if *peer == own.public {
        return Err(WeakKey);
    }
    let shared = Zeroizing::new(own.agree(peer).ok_or(WeakKey)?);
    let mut material = Zeroizing::new([0; 96]);
    material[..32].copy_from_slice(&*shared);
    material[32..64].copy_from_slice(keys.job_secret.as_bytes());
    if let Some(partition) = partition {
        material[64..].copy_from_slice(partition.key.as_bytes());
    }
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&*material);
    let root = |sender: &PublicKey, receiver: &PublicKey| {
        let info = Info::new(Label::Direction)
            .field(&[keys.suite as u8])
            .field(&keys.job_id)
            .field(sender)
            .field(receiver)
            .field(&partition.map_or(0, |partition| partition.epoch).to_be_bytes())
            .field(&keys.policy_hash)
            .field(&[u8::from(partition.is_some())]);
        let mut secret = Zeroizing::new([0; 32]);
        expand(&prk, &info, &mut *secret);
        Root::from_secret(Secret32::from_bytes(*secret))
    };
    Ok(PairRoots { send: root(&own.public, peer), receive: root(peer, &own.public) })
}

/// The secret of one direction of a pair, from which its epochs' keys come.
pub struct Root {
    secret: Secret32,
    connection_id: u64,
}

impl Root {
    fn from_secret(secret: Secret32) -> Self {
        let mut id = [0; 8];
        derive(secret.as_bytes(), &Info::new(Label::Connection), &mut id);
        Root { secret, connection_id: u64::from_le_bytes(id) }
    }

    /// Names the direction on the wire; says nothing to who lacks the root.
    pub fn connection_id(&self) -> u64 {
        self.connection_id
    }

    /// Key and IV of an epoch. Integrity has a key of its own (threat-model rule 9).
    pub fn epoch(&self, epoch: u32, suite: Suite, protection: Protection) -> Context {
        let label = match protection {
            Protection::Privacy | Protection::None => Label::Epoch,
            Protection::Integrity => Label::EpochIntegrity,
        };
        let info = Info::new(label).field(&[suite as u8]).field(&epoch.to_be_bytes());
        let mut out = Zeroizing::new([0; 32 + IV_LEN]);
        derive(self.secret.as_bytes(), &info, &mut *out);
        let (key, iv) = out.split_at(32);
        Context::new(suite, &key[..suite.key_len()], iv.try_into().expect("12 bytes"))
    }
}
