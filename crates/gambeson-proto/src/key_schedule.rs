//! Every key of a job, from its secret (threat-model rule 1; HKDF is RFC 5869 with SHA-256).
//!
//! ```text
//!  job secret ──> admission key ──> MAC of the cards
//!            └──> registration key ──> proof in the ledger
//!            └─┐
//!  X25519 ─────┼──> pair secret ──> root per direction ──> epoch key and IV (AEAD)
//!  partition ──┤            │                         └──> epoch key and IV (GMAC)
//!              │            └──> connection id per direction
//!  session ────┼──> link secret ──> the same, and the proofs of both ends
//!  startpoint ─┘
//! ```
//!
//! Secrets that come from outside go through Extract and Expand, what comes from those through
//! Expand alone. `info` names the purpose and all that the key shall depend on, every field behind
//! its length, so that no two derivations have the same input. All epochs' keys follow from the
//! root, which stays: epochs serve limits and changes of policy, not forward secrecy.

mod link;

use std::fmt;

pub use link::{End, KeyHash, LinkKeys, LinkTerms, SessionKeys, link_roots};
pub(crate) use link::{caveat_name, caveat_secret, root_name, root_secret};

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
    Session,
    SessionProof,
    SessionName,
    SessionResumption,
    StartpointName,
    StartpointRoot,
    StartpointCaveat,
    StartpointLink,
    LinkDirection,
    LinkConnection,
    LinkProof,
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
            Label::Session => "gambeson session",
            Label::SessionProof => "gambeson session proof",
            Label::SessionName => "gambeson session name",
            Label::SessionResumption => "gambeson session resumption",
            Label::StartpointName => "gambeson startpoint name",
            Label::StartpointRoot => "gambeson startpoint root",
            Label::StartpointCaveat => "gambeson startpoint caveat",
            Label::StartpointLink => "gambeson startpoint link",
            Label::LinkDirection => "gambeson link direction",
            Label::LinkConnection => "gambeson link connection",
            Label::LinkProof => "gambeson link proof",
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

    /// The proof, in a session of links, that an end has this job's secret: bound to the handshake by what TLS exports
    /// (RFC 8446 section 7.5), and to the side, so that neither can hand back the other's.
    pub fn session_proof(&self, exported: &Secret32, side: Side) -> [u8; 32] {
        let mut claim = Zeroizing::new([0; 33]);
        claim[..32].copy_from_slice(exported.as_bytes());
        claim[32] = side as u8;
        hmac(&self.mac_key(Label::SessionProof), &*claim)
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

/// Which side of a session of links: who connected, or who listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Side {
    /// Connected.
    Client = 1,
    /// Listened.
    Server = 2,
}

/// The secret of a session of links: what TLS exported (RFC 8446 section 7.5) and, inside a job, the job's secret, so
/// that neither alone opens anything.
pub fn session_secret(exported: &Secret32, job: Option<&JobKeys>) -> Secret32 {
    let mut material = Zeroizing::new([0; 96]);
    material[..32].copy_from_slice(exported.as_bytes());
    if let Some(job) = job {
        material[32..64].copy_from_slice(job.job_secret.as_bytes());
    }
    let info = Info::new(Label::Session).field(&[u8::from(job.is_some())]);
    let prk = extract(&*material);
    Secret32::filled(|secret| expand(&prk, info.bytes(), secret))
}

/// What a session goes on with over another carrier.
#[derive(Clone, Debug)]
pub struct Resumption {
    /// Names the session on the wire; says nothing to who is not in it.
    pub name: [u8; 16],
    key: Secret32,
}

impl Resumption {
    /// That of the session of this secret.
    pub fn new(session: &Secret32) -> Self {
        let mut name = [0; 16];
        expand(session, Info::new(Label::SessionName).bytes(), &mut name);
        let info = Info::new(Label::SessionResumption);
        Resumption { name, key: Secret32::filled(|key| expand(session, info.bytes(), key)) }
    }

    /// The proof of one side that it is in the session and has all of the other's bytes before `received`. Both sides'
    /// nonces are fresh, so that no proof is good for a second time.
    pub fn proof(&self, side: Side, client: &[u8; 16], server: &[u8; 16], received: u64) -> [u8; 32] {
        let mut claim = [0; 41];
        claim[0] = side as u8;
        claim[1..17].copy_from_slice(client);
        claim[17..33].copy_from_slice(server);
        claim[33..].copy_from_slice(&received.to_be_bytes());
        hmac(&self.key, &claim)
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
    let prk = combine(&shared, &keys.job_secret, partition);
    let agreed = Agreed { suite: keys.suite, job_id: &keys.job_id, policy_hash: &keys.policy_hash, partition };
    let root = |sender, receiver| {
        let info = |label| agreed.info(label, sender, receiver);
        Root::derive(&prk, &info(Label::Direction), &info(Label::Connection))
    };
    Ok(PairRoots { send: root(&own.public, peer), receive: root(peer, &own.public) })
}

/// Extract over three secrets of fixed length (threat-model rule 1); a partition that is not there is zeros, and
/// [`Agreed::info`] says so.
fn combine(first: &Secret32, second: &Secret32, partition: Option<&PartitionKey>) -> Secret32 {
    let mut material = Zeroizing::new([0; 96]);
    material[..32].copy_from_slice(first.as_bytes());
    material[32..64].copy_from_slice(second.as_bytes());
    if let Some(partition) = partition {
        material[64..].copy_from_slice(partition.key.as_bytes());
    }
    extract(&*material)
}

/// What two ends agree on besides their secrets: in every key that they share.
struct Agreed<'k> {
    suite: Suite,
    job_id: &'k [u8; 16],
    policy_hash: &'k [u8; 32],
    partition: Option<&'k PartitionKey>,
}

impl Agreed<'_> {
    fn info(&self, label: Label, sender: &[u8; 32], receiver: &[u8; 32]) -> Info {
        Info::new(label)
            .field(&[self.suite as u8])
            .field(self.job_id)
            .field(sender)
            .field(receiver)
            .field(&self.partition.map_or(0, |partition| partition.epoch).to_be_bytes())
            .field(self.policy_hash)
            .field(&[u8::from(self.partition.is_some())])
    }
}

/// The secret of one direction of a pair or link, from which its epochs' keys come.
pub struct Root {
    secret: Secret32,
    connection_id: u64,
}

impl Root {
    fn derive(prk: &Secret32, direction: &Info, connection: &Info) -> Self {
        let mut id = [0; 8];
        expand(prk, connection.bytes(), &mut id);
        let secret = Secret32::filled(|secret| expand(prk, direction.bytes(), secret));
        Root { secret, connection_id: u64::from_le_bytes(id) }
    }

    /// Names the direction on the wire; says nothing to who lacks the root.
    pub fn connection_id(&self) -> u64 {
        self.connection_id
    }

    /// Key and IV of an epoch. Integrity has a key of its own (threat-model rule 9), no protection
    /// has none.
    pub fn epoch(&self, epoch: u32, suite: Suite, protection: Protection) -> Context {
        let mut context = Context::NONE;
        self.install(epoch, suite, protection, &mut context);
        context
    }

    /// [`Root::epoch`], expanded in the place where it is used.
    pub(crate) fn install(&self, epoch: u32, suite: Suite, protection: Protection, context: &mut Context) {
        assert!(!self.secret.is_wiped(), "a forked process has no sessions");
        let label = match protection {
            Protection::Privacy => Label::Epoch,
            Protection::Integrity => Label::EpochIntegrity,
            Protection::None => return context.wipe(),
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
    space: [u8; 256],
    len: usize,
}

impl Info {
    fn new(label: Label) -> Self {
        Info { space: [0; 256], len: 0 }.field(label.name().as_bytes()).field(&[VERSION])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aead::Tag;

    fn keys() -> JobKeys {
        JobKeys {
            job_id: [1; 16],
            job_secret: Secret32::from_bytes([2; 32]),
            policy_hash: [3; 32],
            suite: Suite::Aes256Gcm,
        }
    }

    fn alice() -> Identity {
        Identity::from_seed([4; 32])
    }

    fn bob() -> Identity {
        Identity::from_seed([5; 32])
    }

    fn partition(key: u8, epoch: u32) -> PartitionKey {
        PartitionKey { epoch, key: Secret32::from_bytes([key; 32]) }
    }

    /// Tells keys apart without showing them.
    fn print(context: &Context) -> Tag {
        context.mac(0, b"fingerprint")
    }

    fn print_root(root: &Root) -> (u64, Tag) {
        (root.connection_id(), print(&root.epoch(0, Suite::Aes256Gcm, Protection::Privacy)))
    }

    fn roots(keys: &JobKeys, own: &Identity, peer: &Identity, partition: Option<&PartitionKey>) -> PairRoots {
        pair_roots(keys, own, &peer.public, partition).expect("an honest peer")
    }

    #[test]
    fn both_ends_derive_the_same_two_directions() {
        for partition in [None, Some(&partition(6, 7))] {
            let (here, there) =
                (roots(&keys(), &alice(), &bob(), partition), roots(&keys(), &bob(), &alice(), partition));
            assert_eq!(print_root(&here.send), print_root(&there.receive));
            assert_eq!(print_root(&here.receive), print_root(&there.send));
            assert_ne!(print_root(&here.send), print_root(&here.receive));
        }
    }

    #[test]
    fn everything_that_two_ends_must_agree_on_changes_the_keys() {
        let others = [
            roots(&keys(), &alice(), &bob(), None),
            roots(&keys(), &alice(), &Identity::from_seed([6; 32]), None),
            roots(&keys(), &Identity::from_seed([6; 32]), &bob(), None),
            roots(&JobKeys { job_id: [9; 16], ..keys() }, &alice(), &bob(), None),
            roots(&JobKeys { job_secret: Secret32::from_bytes([9; 32]), ..keys() }, &alice(), &bob(), None),
            roots(&JobKeys { policy_hash: [9; 32], ..keys() }, &alice(), &bob(), None),
            roots(&JobKeys { suite: Suite::Aes128Gcm, ..keys() }, &alice(), &bob(), None),
            // A partition key of zeros is not the same as none.
            roots(&keys(), &alice(), &bob(), Some(&partition(0, 0))),
            roots(&keys(), &alice(), &bob(), Some(&partition(6, 0))),
            roots(&keys(), &alice(), &bob(), Some(&partition(6, 1))),
        ];
        let prints = others.iter().flat_map(|pair| [print_root(&pair.send), print_root(&pair.receive)]);
        let (ids, keys): (std::collections::HashSet<u64>, std::collections::HashSet<Tag>) = prints.unzip();
        assert_eq!((ids.len(), keys.len()), (2 * others.len(), 2 * others.len()));
    }

    #[test]
    fn every_epoch_suite_and_protection_has_its_own_key() {
        let root = roots(&keys(), &alice(), &bob(), None).send;
        let mut prints = std::collections::HashSet::new();
        for epoch in [0, 1, 2, 255, 256, u32::MAX] {
            for suite in Suite::ALL {
                for protection in [Protection::Privacy, Protection::Integrity] {
                    prints.insert(print(&root.epoch(epoch, suite, protection)));
                }
            }
        }
        assert_eq!(prints.len(), 6 * 2 * 2);
    }

    #[test]
    fn keys_that_no_honest_endpoint_has_are_refused() {
        // The points of order 1, 2, 4 and 8 on curve and twist, in every spelling below 2^256.
        let low = [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ];
        for digits in low {
            let mut key: PublicKey =
                std::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..][..2], 16).expect("digits"));
            // Low order is found by the result alone, whatever the form.
            assert!(alice().agree(&key).is_none(), "{digits}");
            assert_eq!(pair_roots(&keys(), &alice(), &key, None).err(), Some(WeakKey), "{digits}");
            key[31] |= 0x80;
            assert!(alice().agree(&key).is_none(), "{digits} with its top bit set");
            assert_eq!(pair_roots(&keys(), &alice(), &key, None).err(), Some(WeakKey));
        }
    }

    #[test]
    fn our_own_key_is_no_peer_in_any_spelling() {
        let mut key = alice().public;
        assert_eq!(pair_roots(&keys(), &alice(), &key, None).err(), Some(WeakKey));
        key[31] |= 0x80;
        assert!(alice().agree(&key).is_some(), "X25519 itself does not mind");
        assert_eq!(pair_roots(&keys(), &alice(), &key, None).err(), Some(WeakKey));
    }

    #[test]
    fn the_canonical_form_ends_at_the_prime() {
        let mut key = [0xff; 32];
        (key[0], key[31]) = (0xec, 0x7f);
        assert!(is_canonical(&key));
        key[0] = 0xed;
        assert!(!is_canonical(&key));
        key[15] = 0xfe;
        assert!(is_canonical(&key));
        key[31] = 0x80;
        assert!(!is_canonical(&key));
        assert!((0..64).all(|seed| is_canonical(&Identity::from_seed([seed; 32]).public)));
    }

    #[test]
    fn a_partition_key_is_of_one_job_name_and_epoch() {
        let secret = Secret32::from_bytes([7; 32]);
        let one = PartitionKey::derive(&secret, 1, "clinic", &[1; 16]);
        assert_eq!(PartitionKey::derive(&secret, 1, "clinic", &[1; 16]), one);
        for other in [
            PartitionKey::derive(&secret, 2, "clinic", &[1; 16]),
            PartitionKey::derive(&secret, 1, "clinics", &[1; 16]),
            PartitionKey::derive(&secret, 1, "clinic", &[2; 16]),
            PartitionKey::derive(&Secret32::from_bytes([8; 32]), 1, "clinic", &[1; 16]),
        ] {
            assert_ne!(other.key, one.key);
        }
        assert_ne!(one.key, secret);
        PartitionKey::derive(&secret, 1, &"long".repeat(1000), &[1; 16]);
    }

    #[test]
    fn admission_does_not_depend_on_the_policy_and_registration_on_all_it_states() {
        let other_policy = JobKeys { policy_hash: [9; 32], suite: Suite::Aes128Gcm, ..keys() };
        assert_eq!(keys().admission_key().mac(b"card"), other_policy.admission_key().mac(b"card"));
        let proof = keys().registration_proof(10, 11);
        assert_ne!(proof, keys().registration_proof(11, 10));
        assert_ne!(proof, JobKeys { job_id: [9; 16], ..keys() }.registration_proof(10, 11));
        assert_ne!(proof[..8], keys().admission_key().mac(&[0; 32]));
    }

    #[test]
    fn fields_cannot_be_shifted_into_one_another() {
        let info = |one: &[u8], two: &[u8]| Info::new(Label::Epoch).field(one).field(two).bytes().to_vec();
        assert_ne!(info(b"ab", b"c"), info(b"a", b"bc"));
        assert_ne!(info(b"", b"abc"), info(b"abc", b""));
    }

    #[test]
    #[should_panic(expected = "forked process")]
    fn a_wiped_root_gives_no_key() {
        let root = Root { secret: Secret32::from_bytes([0; 32]), connection_id: 0 };
        root.epoch(0, Suite::Aes256Gcm, Protection::Privacy);
    }

    #[test]
    fn nothing_printed_shows_a_secret() {
        let pair = roots(&keys(), &alice(), &bob(), Some(&partition(6, 7)));
        let text = format!("{:?} {:?} {:?} {:?}", keys(), keys().admission_key(), partition(6, 7), pair);
        assert_eq!(text.matches("Secret32(..)").count(), 3, "{text}");
        assert!(!text.contains("2, 2") && !text.contains("6, 6"), "{text}");
    }
}
