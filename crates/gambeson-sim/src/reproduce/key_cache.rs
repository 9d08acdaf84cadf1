//! The preset of the SKC paper: what its runs of a fabric share, and which adapters they compare.

use super::{Parameter, infiniband, placement};
use crate::experiment::{Experiment, ReplayConfig};
use crate::security::{CacheConfig, PrefetchConfig, SecurityConfig};
use crate::trace::window::Window;
use crate::traffic::PacketConfig;

/// Iterations of every trace: as many as the shortest has.
const WINDOW: Window = Window { from: 0, iterations: 4 };

/// All that the paper's simulations share: the network of the IBA paper, whose authors used the same simulator.
pub(super) fn preset() -> Experiment {
    Experiment {
        name: "session-key-cache".into(),
        traffic: Vec::new(),
        partitions: 1,
        replay: Some(ReplayConfig {
            copies: 1,
            window: Some(WINDOW),
            packets: PacketConfig { one_a_message: true, packet_bytes: 256, ..PacketConfig::default() },
            ..ReplayConfig::default()
        }),
        ..infiniband::preset()
    }
}

pub(super) fn parameters() -> Vec<Parameter> {
    let preset = preset();
    let replay = preset.replay.clone().unwrap_or_default();
    let (fabric, processes, prefetch) = (&preset.fabric, &replay.processes, PrefetchConfig::default());
    let security = SecurityConfig::skc_paper();
    const ALONE: &str = "Fig. 5a and 5c with other values";
    const SHARED: &str = "Fig. 6a under DCS-SB with other values";
    vec![
        Parameter::stated("processes", "16, one a node in Fig. 5", "4.1"),
        Parameter::open("topology", "4 x 4 mesh", "that of the IBA paper", ALONE),
        Parameter::open("routing", "deterministic", "", ALONE),
        Parameter::open("link", format!("{} Gb/s", fabric.rate.gbps()), "that of the IBA paper", ALONE),
        Parameter::open("switches", "store and forward", "\"packet-level\"; as in the IBA paper", ALONE),
        Parameter::open("time in a switch, wire", format!("{} ns, {} ns", fabric.switch_ns, fabric.wire_ns), "", ALONE),
        Parameter::open(
            "input buffer of a lane",
            format!("{} B, a queue for each output", fabric.buffer_bytes),
            "",
            ALONE,
        ),
        Parameter::open("places of the processes", "rank n on node n", "", ALONE),
        Parameter::stated("packet", format!("{} B", replay.packets.packet_bytes), "4.1"),
        Parameter::open(
            "packets of a message",
            "1",
            "the paper's traces record packets' source, destination and time",
            ALONE,
        ),
        Parameter::stated("GCM", "12 + 15 + 2 cycles at 270 MHz at each end", "4.1"),
        Parameter::stated("access to cache", format!("{} ns", CacheConfig::default().access_ns), "4.1"),
        Parameter::stated("access to memory", format!("{} us", security.memory.access_ns / 1e3), "4.1"),
        Parameter::open("accesses at a time", "any number", "", ALONE),
        Parameter::open(
            "accesses of a packet",
            "one at each end",
            "\"before sending and after receiving\" (4.1)",
            ALONE,
        ),
        Parameter::open(
            "entry of the cache",
            "16 B, the key alone",
            "2 KB are 128 entries in 3.2",
            "Fig. 8 by the size of an entry",
        ),
        Parameter::stated("keys", "one for each pair of processes", "3.1"),
        Parameter::stated("buffer in Fig. 6", format!("{} keys beside 10 of cache", prefetch.entries), "4.3"),
        Parameter::open("list of frequent keys", "as long as the buffer, last evicted first", "", SHARED),
        Parameter::open("keys that an arrival fetches", "the whole list", "", SHARED),
        Parameter::open("keys of another process in the buffer", "stay until they are the oldest", "", SHARED),
        Parameter::open("fetch of a list", format!("{} ns a key after the first", prefetch.interval_ns), "", SHARED),
        Parameter::stated("spinning", format!("{} us", processes.spin_us), "4.1"),
        Parameter::stated("boost", format!("{} us", processes.boost_us), "4.1"),
        Parameter::stated("gang", format!("{} us", processes.gang_us), "4.1"),
        Parameter::open("seeds of Fig. 6 and 7", "five; one for whole traces", "", "the lines \"whole traces\""),
        Parameter::open("quantum", format!("{} us", processes.quantum_us), "Linux 2.6", SHARED),
        Parameter::open("context switch, interrupt", format!("{} us", processes.context_switch_us), "", SHARED),
        Parameter::open(
            "traces",
            "NPB 3.3 class A, 16 ranks, recorded on today's processors",
            "the paper's are lost",
            ALONE,
        ),
        Parameter::open(
            "window",
            format!("iterations 0 to {} of every trace", WINDOW.iterations - 1),
            "MG has no more",
            "the lines \"whole traces\"",
        ),
        Parameter::open(
            "ON and OFF",
            "from the traces, OFF above 20 us",
            "Waheed and Yan's are not to be had",
            "Fig. 3 and 8 by threshold",
        ),
        Parameter::open("packets of an ON, in a row", "100, 1", "", "Fig. 8 by packets of an ON"),
        Parameter::open(
            "a host's CPU",
            format!("{} ns a packet, {} ns a byte", security.host.packet_ns, security.host.byte_ns),
            "2.2 gives no numbers; AES-GCM on one of today's cores",
            placement::OTHERWISE,
        ),
        Parameter::open(
            "a coprocessor's bus",
            format!("{} Gb/s, {} ns a transaction", security.bus.rate_gbps, security.bus.transaction_ns),
            "PCI-X, 64 bit at 133 MHz; each packet crosses it twice",
            placement::OTHERWISE,
        ),
        Parameter::open(
            "a coprocessor's driver",
            format!("{} ns of the CPU a packet", security.bus.driver_ns),
            "",
            placement::OTHERWISE,
        ),
        Parameter::open(
            "traffic where host, coprocessor and adapter are compared",
            "packets to any node, as in Fig. 7 of the IBA paper",
            "the paper does not simulate them",
            placement::OTHERWISE,
        ),
    ]
}

/// No security, no cache, or a cache of so many keys and a buffer of so many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Keys {
    Plain,
    Uncached,
    Cached(u32, u32),
}

impl Keys {
    pub(super) fn config(self) -> SecurityConfig {
        let secured = SecurityConfig::skc_paper();
        match self {
            Self::Plain => SecurityConfig::default(),
            Self::Uncached => SecurityConfig { cache: None, ..secured },
            Self::Cached(entries, buffer) => SecurityConfig {
                cache: Some(CacheConfig::of_entries(entries)),
                prefetch: (buffer > 0).then(|| PrefetchConfig { entries: buffer, ..PrefetchConfig::default() }),
                ..secured
            },
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Plain => "NoSecurity".into(),
            Self::Uncached => "NoSKC".into(),
            Self::Cached(entries, 0) => format!("SKC-{entries}"),
            Self::Cached(entries, buffer) => format!("SKC-{entries}, PB-{buffer}"),
        }
    }
}

/// A share to be read, where there is one.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share))
}
