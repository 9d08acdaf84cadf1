//! What the adapter's security unit is made of; `preset` has the two papers' own.

use serde::{Deserialize, Serialize};

use super::forging::AlertConfig;
use super::gcm::Gcm;
use super::replay::ReplayConfig;
use crate::transport::ICRC;

/// A security unit. The default is none; the parts that a configuration file leaves out are those of the SKC paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecurityConfig {
    /// Who shares a key; `none` turns the unit off.
    pub level: KeyLevel,
    /// Where the cryptography sits.
    pub placement: Placement,
    /// The pipeline in the adapter or the coprocessor.
    pub gcm: Gcm,
    /// The session-key cache; without one each packet fetches its key from the memory.
    pub cache: Option<CacheConfig>,
    /// The prefetch buffer beside the cache.
    pub prefetch: Option<PrefetchConfig>,
    /// Where all keys are.
    pub memory: MemoryConfig,
    /// What cryptography costs on the host's CPU, when it sits there.
    pub host: HostConfig,
    /// The bus before a coprocessor.
    pub bus: BusConfig,
    /// Bytes of a tag. The paper's 4 stand in the place of the ICRC; more make the packet longer.
    pub tag_bytes: u32,
    /// Whether an adapter takes a packet under a plain ICRC although it has a key for it, as the field for the
    /// authentication algorithm in the BTH would have it.
    pub accept_plain: bool,
    /// When wrong tags raise an alert.
    pub alert: AlertConfig,
    /// What it does against packets that were sent before.
    pub replay: ReplayConfig,
}

impl Default for SecurityConfig {
    fn default() -> Self {
        SecurityConfig {
            level: KeyLevel::default(),
            placement: Placement::default(),
            gcm: Gcm::default(),
            cache: None,
            prefetch: None,
            memory: MemoryConfig::default(),
            host: HostConfig::default(),
            bus: BusConfig::default(),
            tag_bytes: ICRC,
            accept_plain: false,
            alert: AlertConfig::default(),
            replay: ReplayConfig::default(),
        }
    }
}

/// Who shares a key (IBA paper, sections 5.1.1 and 5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyLevel {
    /// Nobody: plain packets with a CRC.
    #[default]
    None,
    /// All members of a partition share one.
    Partition,
    /// Each pair of communicating processes (queue pairs) has its own.
    QueuePair,
}

/// Where the cryptography sits (SKC paper, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In software on the host's CPU: no look-up in hardware, the CPU is busy for each byte.
    Host,
    /// On a card of its own: each packet crosses the bus there and back, beside what the adapter in place would do.
    Coprocessor,
    /// In the adapter's controller.
    #[default]
    Adapter,
}

/// The session-key cache (SKC paper, section 3.1). Exact LRU in each set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// How many keys it holds; or give `bytes`.
    pub entries: Option<u32>,
    /// Its size, of which each key takes `entry_bytes`.
    pub bytes: Option<u32>,
    /// Bytes of an entry. The paper counts 128 keys in 2 KB, [`CacheConfig::KEY_ONLY`], where "key and its
    /// identifier" does not fit; its 16 KB of 32 B blocks are [`CacheConfig::KEY_BLOCK`].
    pub entry_bytes: u32,
    /// Entries of a set; 0 is fully associative.
    pub ways: u32,
    /// From the identifier in to the key out.
    pub access_ns: f64,
}

impl CacheConfig {
    /// An entry of nothing but a 128-bit key.
    pub const KEY_ONLY: u32 = 16;
    /// An entry of a 32-byte block: key, identifier and state.
    pub const KEY_BLOCK: u32 = 32;

    /// A fully associative cache of so many keys, 3 ns.
    #[must_use]
    pub fn of_entries(entries: u32) -> Self {
        CacheConfig { entries: Some(entries), ..CacheConfig::default() }
    }

    /// A fully associative cache of so many bytes, 3 ns.
    #[must_use]
    pub fn of_bytes(bytes: u32, entry_bytes: u32) -> Self {
        CacheConfig { bytes: Some(bytes), entry_bytes, ..CacheConfig::default() }
    }

    /// How many keys it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.entries.unwrap_or_else(|| self.bytes.unwrap_or(0) / self.entry_bytes.max(1))
    }

    fn validate(&self) -> Result<(), String> {
        match (self.entries, self.bytes) {
            (Some(_), Some(_)) => return Err("cache: give entries or bytes, not both".into()),
            (None, None) => return Err("cache: its size is missing; give entries or bytes".into()),
            (None, Some(_)) if self.entry_bytes == 0 => {
                return Err("cache.entry_bytes is 0; a 128-bit key alone takes 16".into());
            }
            _ => {}
        }
        let capacity = self.capacity();
        if capacity == 0 {
            return Err(
                "the session-key cache has no entry; give it at least one, or leave out [cache] for an adapter \
                        that fetches every key"
                    .into(),
            );
        }
        if capacity > ENTRIES_MAX {
            return Err(format!("cache: {capacity} entries; give at most {ENTRIES_MAX}, which no job has keys for"));
        }
        if self.ways > 0 && !capacity.is_multiple_of(self.ways) {
            return Err(format!(
                "cache: {capacity} entries do not divide into sets of {}; choose ways that divide them, or 0 for fully \
                 associative",
                self.ways
            ));
        }
        duration("cache.access_ns", self.access_ns)
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig { entries: None, bytes: None, entry_bytes: CacheConfig::KEY_ONLY, ways: 0, access_ns: 3.0 }
    }
}

/// The prefetch buffer (SKC paper, section 3.3), and what the paper leaves open about it. A burst takes one of the
/// memory's outstanding accesses, behind the fetch of the packet that caused it; keys in the cache are not loaded again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrefetchConfig {
    /// Keys that the buffer holds.
    pub entries: u32,
    /// Keys that a process's list of frequent keys holds; 0 is as many as the buffer. Unstated in the paper.
    pub list_len: u32,
    /// Which keys come first in that list, and so which the buffer gets. Unstated in the paper.
    pub order: ListOrder,
    /// What makes room in a full buffer. Unstated in the paper.
    pub replacement: BufferReplacement,
    /// Keys that one arrival loads at the most; 0 is as many as the buffer holds. Unstated in the paper.
    pub keys: u32,
    /// Time between two keys of one burst from the memory, the first of which costs a full access. Unstated in the
    /// paper; 0 is a memory that reads a whole list at once.
    pub interval_ns: f64,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        PrefetchConfig {
            entries: 8,
            list_len: 0,
            order: ListOrder::default(),
            replacement: BufferReplacement::default(),
            keys: 0,
            interval_ns: 20.0,
        }
    }
}

/// The order of a process's frequent keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListOrder {
    /// Last evicted first.
    #[default]
    Recent,
    /// Most used while in the cache first.
    Frequent,
}

/// What makes room in a full prefetch buffer. As a hit takes its key out, the oldest is also the least recently used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BufferReplacement {
    /// The oldest key.
    #[default]
    Oldest,
    /// All that another process left.
    Flush,
}

/// The memory behind the cache, outside of the tamper-resistant chip: keys lie in it encrypted and authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// An access. The SKC paper's 2.5 us is one or two orders above DRAM, and all of its NoSKC result hangs on it.
    pub access_ns: f64,
    /// Opening the key that was read. 15 cycles at 270 MHz unless told; the papers count none.
    pub unwrap_ns: f64,
    /// Accesses under way at a time; 1 is a serial memory, where a second miss waits for the first, 0 any number.
    pub outstanding: u32,
    /// Whether the fetch of a key overlaps with the first AES block. Unstated in the paper.
    pub overlap_first_block: bool,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        MemoryConfig { access_ns: 2500.0, unwrap_ns: 15.0 / 0.27, outstanding: 1, overlap_first_block: false }
    }
}

/// AES-256-GCM on one core. The defaults are what aws-lc takes on one core of a 3.65 GHz Zen 4, out of place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// For each packet.
    pub packet_ns: f64,
    /// For each byte of it.
    pub byte_ns: f64,
}

impl Default for HostConfig {
    fn default() -> Self {
        HostConfig { packet_ns: 87.0, byte_ns: 0.095 }
    }
}

/// The bus before a coprocessor. The defaults are PCI-X 64 bit, 133 MHz.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BusConfig {
    /// Rate in Gb/s, one packet at a time in either direction.
    pub rate_gbps: f64,
    /// A transaction's arbitration, set-up and latency.
    pub transaction_ns: f64,
    /// What the host's driver does for each packet.
    pub driver_ns: f64,
}

impl Default for BusConfig {
    fn default() -> Self {
        BusConfig { rate_gbps: 8.5, transaction_ns: 200.0, driver_ns: 500.0 }
    }
}

impl SecurityConfig {
    /// The SKC paper: a key for each pair, 16 KB of cache with 16 B entries at 3 ns, 2.5 us to the memory, no buffer.
    ///
    /// The paper adds one access to each packet, so the memory of the preset takes any number at a time.
    #[must_use]
    pub fn skc_paper() -> Self {
        SecurityConfig {
            level: KeyLevel::QueuePair,
            gcm: Gcm::SKC_PAPER,
            cache: Some(CacheConfig::of_bytes(16 * 1024, CacheConfig::KEY_ONLY)),
            memory: MemoryConfig { unwrap_ns: 0.0, outstanding: 0, ..MemoryConfig::default() },
            ..SecurityConfig::default()
        }
    }

    /// The IBA paper: a key for each queue pair, 160 ns at each end, keys at no cost.
    #[must_use]
    pub fn iba_paper() -> Self {
        SecurityConfig {
            level: KeyLevel::QueuePair,
            gcm: Gcm::IBA_PAPER,
            memory: MemoryConfig { access_ns: 0.0, unwrap_ns: 0.0, outstanding: 0, overlap_first_block: false },
            ..SecurityConfig::default()
        }
    }

    /// A preset by name: `off`, `skc_paper`, `iba_paper`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "off" => Some(SecurityConfig::default()),
            "skc-paper" => Some(SecurityConfig::skc_paper()),
            "iba-paper" => Some(SecurityConfig::iba_paper()),
            _ => None,
        }
    }

    /// What is wrong with it, as a sentence with the remedy.
    pub fn validate(&self) -> Result<(), String> {
        self.gcm.validate()?;
        self.replay.validate()?;
        self.alert.validate()?;
        if !(ICRC..=16).contains(&self.tag_bytes) || !self.tag_bytes.is_multiple_of(4) {
            return Err(format!("tag_bytes is {}; give 4, 8, 12 or 16", self.tag_bytes));
        }
        if let Some(cache) = &self.cache {
            cache.validate()?;
        }
        if let Some(prefetch) = &self.prefetch {
            if self.cache.is_none() {
                return Err("[prefetch] needs [cache]: what hits in the buffer moves to the cache".into());
            }
            if !(1..=4096).contains(&prefetch.entries) {
                return Err(format!(
                    "prefetch.entries is {}; give 1 to 4096, or leave out [prefetch]",
                    prefetch.entries
                ));
            }
            if prefetch.list_len > 4096 {
                return Err(format!("prefetch.list_len is {}; give at most 4096", prefetch.list_len));
            }
            duration("prefetch.interval_ns", prefetch.interval_ns)?;
        }
        if self.memory.outstanding > 64 {
            return Err(format!(
                "memory.outstanding is {}; give 1 to 64, or 0 for any number",
                self.memory.outstanding
            ));
        }
        duration("memory.access_ns", self.memory.access_ns)?;
        duration("memory.unwrap_ns", self.memory.unwrap_ns)?;
        duration("host.packet_ns", self.host.packet_ns)?;
        if !(0.0..=1e6).contains(&self.host.byte_ns) {
            return Err(format!("host.byte_ns is {}; give 0 to 1e6 nanoseconds", self.host.byte_ns));
        }
        duration("bus.transaction_ns", self.bus.transaction_ns)?;
        duration("bus.driver_ns", self.bus.driver_ns)?;
        if !(1e-3..=1e6).contains(&self.bus.rate_gbps) {
            return Err(format!("bus.rate_gbps is {}; give a rate between 0.001 and 1e6", self.bus.rate_gbps));
        }
        Ok(())
    }
}

/// The most keys of a cache.
const ENTRIES_MAX: u32 = 1 << 24;

/// A second is longer than any part of an adapter takes.
fn duration(name: &str, ns: f64) -> Result<(), String> {
    if (0.0..=1e9).contains(&ns) { Ok(()) } else { Err(format!("{name} is {ns}; give 0 to 1e9 nanoseconds")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, complaint: &str) {
        let config: SecurityConfig = toml::from_str(text).expect("the text is well-formed");
        match config.validate() {
            Ok(()) => assert_eq!(complaint, "", "{text}"),
            Err(sentence) => assert!(!complaint.is_empty() && sentence.contains(complaint), "{text}: {sentence}"),
        }
    }

    #[test]
    fn configuration_errors_are_sentences() {
        check("", "");
        check("placement = 'coprocessor'\ncache.bytes = 16384\ncache.ways = 16\nprefetch.entries = 8", "");
        check("cache.entries = 0", "has no entry");
        check("cache.bytes = 8", "has no entry");
        check("cache.entries = 4_294_967_295", "at most 16777216");
        check("host.byte_ns = 1e9", "host.byte_ns is");
        check("gcm.units = 4_294_967_295", "gcm.units is 4294967295");
        check("cache.ways = 2", "its size is missing");
        check("cache.entries = 4\ncache.bytes = 64", "not both");
        check("cache.bytes = 4\ncache.entry_bytes = 0", "entry_bytes is 0");
        check("cache.entries = 10\ncache.ways = 4", "10 entries do not divide into sets of 4");
        check("prefetch.entries = 4", "needs [cache]");
        check("cache.entries = 10\nprefetch.entries = 0", "prefetch.entries is 0");
        check("gcm.units = 0", "gcm.units is 0");
        check("gcm.next_block = 3", "longer than gcm.interval");
        check("gcm.clock_mhz = nan", "gcm.clock_mhz");
        check("memory.access_ns = -1", "memory.access_ns is -1");
        check("memory.outstanding = 65", "memory.outstanding");
        check("bus.rate_gbps = 0", "bus.rate_gbps");
        check("tag_bytes = 16\nreplay.defence = 'sequence-window'", "");
        check("tag_bytes = 6", "tag_bytes is 6");
        check("replay.window = 0", "replay.window is 0");
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(toml::from_str::<SecurityConfig>("cash.entries = 4").is_err());
        assert!(toml::from_str::<SecurityConfig>("cache.sets = 4").is_err());
    }

    #[test]
    fn presets_are_legal_and_survive_a_file() {
        for name in ["off", "skc-paper", "iba-paper"] {
            let config = SecurityConfig::preset(name).expect("the name is a preset's");
            config.validate().expect("presets are legal");
            let text = toml::to_string(&config).expect("plain data");
            assert_eq!(toml::from_str::<SecurityConfig>(&text).expect("what was written"), config);
        }
        assert_eq!(SecurityConfig::preset("none"), None);
        assert_eq!(CacheConfig::of_bytes(2048, CacheConfig::KEY_ONLY).capacity(), 128);
        assert_eq!(CacheConfig::of_bytes(16 * 1024, CacheConfig::KEY_BLOCK).capacity(), 512);
    }
}
