//! The page in which a rank's provider tells the launcher that it is there, and what it did.
//!
//! The launcher counts a rank as protected only when its page carries a proof made with the job
//! secret. The page is shared memory: the provider stores its counters with its own atomics at
//! the offsets here, the launcher reads a copy.
//!
//! ```text
//! magic u64 | version u64 | state u64 | pid u64 | rank u64 | host 64 bytes | message 512 bytes
//! counters u64 each, in the order of Counter | proof 32 bytes | zeros
//! ```
//! Little endian.

use subtle::ConstantTimeEq;

use crate::key_schedule::JobKeys;

/// The size of a page, and of the file that holds it.
pub const PAGE_LEN: usize = 4096;
/// Where the state is, for the provider's atomics.
pub const STATE_OFFSET: usize = 16;
/// Where the rank is.
pub const RANK_OFFSET: usize = 32;
/// Where the host name is.
pub const HOST_OFFSET: usize = 40;
/// Where the message is.
pub const MESSAGE_OFFSET: usize = HOST_OFFSET + HOST_LEN;
/// Where the first counter is.
pub const COUNTERS_OFFSET: usize = MESSAGE_OFFSET + MESSAGE_LEN;
/// Where the proof is.
pub const PROOF_OFFSET: usize = COUNTERS_OFFSET + 8 * Counter::ALL.len();
/// The rank of a process that does not know its rank.
pub const RANK_UNKNOWN: u64 = u64::MAX;

/// What became of a rank's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// An endpoint is open, or the process ended without closing it.
    Opened = 1,
    /// All endpoints were closed in order.
    Closed = 2,
    /// The provider ended the process; the message says why.
    Failed = 3,
}

/// What a rank counts; the discriminant is the counter's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Counter {
    MessagesSent,
    MessagesReceived,
    BytesSent,
    BytesReceived,
    RecordsSealed,
    RecordsIntegrity,
    RecordsPlain,
    RefusedUnknownPeer,
    RefusedBadTag,
    RefusedReplay,
    RefusedMalformed,
    CacheHits,
    CacheMisses,
    CacheEvictions,
    CryptoNs,
    Rekeys,
    Peers,
    UnexpectedMax,
    CreditsStalled,
    CarrierBusy,
    Allocations,
}

impl Counter {
    /// Every counter, in the page's order.
    pub const ALL: [Self; 21] = [
        Self::MessagesSent,
        Self::MessagesReceived,
        Self::BytesSent,
        Self::BytesReceived,
        Self::RecordsSealed,
        Self::RecordsIntegrity,
        Self::RecordsPlain,
        Self::RefusedUnknownPeer,
        Self::RefusedBadTag,
        Self::RefusedReplay,
        Self::RefusedMalformed,
        Self::CacheHits,
        Self::CacheMisses,
        Self::CacheEvictions,
        Self::CryptoNs,
        Self::Rekeys,
        Self::Peers,
        Self::UnexpectedMax,
        Self::CreditsStalled,
        Self::CarrierBusy,
        Self::Allocations,
    ];

    /// Where the counter is in the page.
    pub const fn offset(self) -> usize {
        COUNTERS_OFFSET + 8 * self as usize
    }

    /// The word reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::MessagesSent => "messages_sent",
            Self::MessagesReceived => "messages_received",
            Self::BytesSent => "bytes_sent",
            Self::BytesReceived => "bytes_received",
            Self::RecordsSealed => "records_sealed",
            Self::RecordsIntegrity => "records_integrity",
            Self::RecordsPlain => "records_plain",
            Self::RefusedUnknownPeer => "refused_unknown_peer",
            Self::RefusedBadTag => "refused_bad_tag",
            Self::RefusedReplay => "refused_replay",
            Self::RefusedMalformed => "refused_malformed",
            Self::CacheHits => "cache_hits",
            Self::CacheMisses => "cache_misses",
            Self::CacheEvictions => "cache_evictions",
            Self::CryptoNs => "crypto_ns",
            Self::Rekeys => "rekeys",
            Self::Peers => "peers",
            Self::UnexpectedMax => "unexpected_max",
            Self::CreditsStalled => "credits_stalled",
            Self::CarrierBusy => "carrier_busy",
            Self::Allocations => "allocations",
        }
    }
}

/// What one endpoint counted, before it is added to the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Counters {
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub records_sealed: u64,
    pub records_integrity: u64,
    pub records_plain: u64,
    pub refused_unknown_peer: u64,
    pub refused_bad_tag: u64,
    pub refused_replay: u64,
    pub refused_malformed: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub cache_evictions: u64,
    pub crypto_ns: u64,
    pub rekeys: u64,
    pub peers: u64,
    pub unexpected_max: u64,
    pub credits_stalled: u64,
    /// How often the carrier could not take a sealed record at once.
    pub carrier_busy: u64,
    /// Blocks of memory that the process asked for; whoever publishes the counters fills it in.
    pub allocations: u64,
}

impl Counters {
    /// A counter's value.
    pub fn value(&self, counter: Counter) -> u64 {
        match counter {
            Counter::MessagesSent => self.messages_sent,
            Counter::MessagesReceived => self.messages_received,
            Counter::BytesSent => self.bytes_sent,
            Counter::BytesReceived => self.bytes_received,
            Counter::RecordsSealed => self.records_sealed,
            Counter::RecordsIntegrity => self.records_integrity,
            Counter::RecordsPlain => self.records_plain,
            Counter::RefusedUnknownPeer => self.refused_unknown_peer,
            Counter::RefusedBadTag => self.refused_bad_tag,
            Counter::RefusedReplay => self.refused_replay,
            Counter::RefusedMalformed => self.refused_malformed,
            Counter::CacheHits => self.cache_hits,
            Counter::CacheMisses => self.cache_misses,
            Counter::CacheEvictions => self.cache_evictions,
            Counter::CryptoNs => self.crypto_ns,
            Counter::Rekeys => self.rekeys,
            Counter::Peers => self.peers,
            Counter::UnexpectedMax => self.unexpected_max,
            Counter::CreditsStalled => self.credits_stalled,
            Counter::CarrierBusy => self.carrier_busy,
            Counter::Allocations => self.allocations,
        }
    }
}

/// What a provider writes when its first endpoint opens.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'r> {
    /// The process.
    pub pid: u64,
    /// Its rank, or [`RANK_UNKNOWN`].
    pub rank: u64,
    /// The name of its host.
    pub host: &'r str,
}

impl Registration<'_> {
    /// Fills a page of zeros: state [`State::Opened`], no message, all counters zero.
    pub fn write(&self, keys: &JobKeys, page: &mut [u8; PAGE_LEN]) {
        page.fill(0);
        put(page, MAGIC_OFFSET, MAGIC);
        put(page, VERSION_OFFSET, VERSION);
        put(page, STATE_OFFSET, State::Opened as u64);
        put(page, PID_OFFSET, self.pid);
        put(page, RANK_OFFSET, self.rank);
        page[HOST_OFFSET..][..HOST_LEN].copy_from_slice(&text::<HOST_LEN>(self.host));
        page[PROOF_OFFSET..][..PROOF_LEN].copy_from_slice(&keys.registration_proof(self.pid, self.rank));
    }
}

/// A message in the form the page holds it: cut at a character, padded with zeros.
pub fn message(sentence: &str) -> [u8; MESSAGE_LEN] {
    text(sentence)
}

/// What the launcher reads from a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What became of the rank.
    pub state: State,
    /// The process.
    pub pid: u64,
    /// Its rank, if it knew.
    pub rank: Option<u64>,
    /// The name of its host.
    pub host: String,
    /// Why it failed.
    pub message: String,
    counters: [u64; Counter::ALL.len()],
}

/// A page that registers nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageError {
    /// Not a page of this version, or never filled.
    Malformed,
    /// The writer did not hold this job's secret.
    Unproven,
}

impl Report {
    /// Reads a copy of a page whose writer proves that it held the job's secret.
    pub fn read(page: &[u8; PAGE_LEN], keys: &JobKeys) -> Result<Self, PageError> {
        if take(page, MAGIC_OFFSET) != MAGIC || take(page, VERSION_OFFSET) != VERSION {
            return Err(PageError::Malformed);
        }
        let (pid, rank) = (take(page, PID_OFFSET), take(page, RANK_OFFSET));
        let expected = keys.registration_proof(pid, rank);
        if !bool::from(page[PROOF_OFFSET..][..PROOF_LEN].ct_eq(&expected)) {
            return Err(PageError::Unproven);
        }
        let state = match take(page, STATE_OFFSET) {
            1 => State::Opened,
            2 => State::Closed,
            3 => State::Failed,
            _ => return Err(PageError::Malformed),
        };
        Ok(Self {
            state,
            pid,
            rank: (rank != RANK_UNKNOWN).then_some(rank),
            host: untext(&page[HOST_OFFSET..][..HOST_LEN]),
            message: untext(&page[MESSAGE_OFFSET..][..MESSAGE_LEN]),
            counters: Counter::ALL.map(|counter| take(page, counter.offset())),
        })
    }

    /// A counter's value.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }
}

fn put(page: &mut [u8; PAGE_LEN], offset: usize, value: u64) {
    page[offset..][..8].copy_from_slice(&value.to_le_bytes());
}

fn take(page: &[u8; PAGE_LEN], offset: usize) -> u64 {
    u64::from_le_bytes(page[offset..][..8].try_into().expect("eight bytes"))
}

fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    let end = text.floor_char_boundary(N);
    out[..end].copy_from_slice(&text.as_bytes()[..end]);
    out
}

fn untext(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

const MAGIC: u64 = u64::from_le_bytes(*b"GBSNRANK");
const VERSION: u64 = 1;
const MAGIC_OFFSET: usize = 0;
const VERSION_OFFSET: usize = 8;
const PID_OFFSET: usize = 24;
/// The room for the host name.
pub const HOST_LEN: usize = 64;
/// The room for the message.
pub const MESSAGE_LEN: usize = 512;
/// The length of the proof.
pub const PROOF_LEN: usize = 32;
const _: () = assert!(PROOF_OFFSET + PROOF_LEN <= PAGE_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret32;
    use crate::suite::Suite;

    fn keys(secret: u8) -> JobKeys {
        JobKeys {
            job_id: [1; 16],
            job_secret: Secret32::from_bytes([secret; 32]),
            policy_hash: [3; 32],
            suite: Suite::Aes256Gcm,
        }
    }

    fn page(rank: u64, host: &str) -> [u8; PAGE_LEN] {
        let mut page = [0xFF; PAGE_LEN];
        Registration { pid: 42, rank, host }.write(&keys(2), &mut page);
        page
    }

    #[test]
    fn a_registration_is_read_back() {
        let mut page = page(7, "node-7");
        page[STATE_OFFSET] = State::Failed as u8;
        page[MESSAGE_OFFSET..][..MESSAGE_LEN].copy_from_slice(&message("no memory"));
        for (value, counter) in (1..).zip(Counter::ALL) {
            put(&mut page, counter.offset(), value);
        }
        let report = Report::read(&page, &keys(2)).unwrap();
        assert_eq!((report.state, report.pid, report.rank), (State::Failed, 42, Some(7)));
        assert_eq!((report.host.as_str(), report.message.as_str()), ("node-7", "no memory"));
        for (value, counter) in (1..).zip(Counter::ALL) {
            assert_eq!(report.counter(counter), value, "{}", counter.name());
        }
    }

    #[test]
    fn nobody_registers_without_the_secret() {
        assert_eq!(Report::read(&page(7, "n"), &keys(9)), Err(PageError::Unproven));
        let mut other_rank = page(7, "n");
        other_rank[RANK_OFFSET] = 8;
        assert_eq!(Report::read(&other_rank, &keys(2)), Err(PageError::Unproven));
        assert_eq!(Report::read(&[0; PAGE_LEN], &keys(2)), Err(PageError::Malformed));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let host = "é".repeat(40);
        let report = Report::read(&page(RANK_UNKNOWN, &host), &keys(2)).unwrap();
        assert_eq!(report.host, "é".repeat(32));
        assert_eq!(report.rank, None);
        let sentence = format!("x{}", "é".repeat(400));
        assert_eq!(untext(&message(&sentence)).len(), 511);
    }
}
