//! The preset of the IBA paper: what its runs of a fabric share.

use super::{Parameter, Setting};
use crate::error::Error;
use crate::experiment::{self, Experiment, Measure};
use crate::fabric::{FabricConfig, Rate};
use crate::filter::FilterConfig;
use crate::routing::Routing;
use crate::security::SecurityConfig;
use crate::topology::TopologyConfig;
use crate::traffic::SourceConfig;

/// Runs of each point, with seeds from 1.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;
/// Load at every node in Fig. 7, and in Fig. 1, which the paper does not state.
pub(super) const LOAD: f64 = 0.85;
pub(super) const LOAD_FLOODED: f64 = 0.6;

/// All that the paper's simulations share.
pub(super) fn preset() -> Experiment {
    Experiment {
        name: "infiniband-security-framework".into(),
        seed: 1,
        topology: TopologyConfig::Mesh { dims: vec![4, 4], hosts: 1 },
        routing: Routing::Deterministic,
        fabric: FabricConfig { rate: Rate::Gbps(2.5), store_and_forward: true, ..FabricConfig::default() },
        security: SecurityConfig::default(),
        filter: FilterConfig::default(),
        partitions: 4,
        marking_bits: None,
        measure: Measure { warmup_us: 2_000.0, for_us: 10_000.0, interval_us: None },
        traffic: vec![SourceConfig { load: LOAD, ..SourceConfig::default() }],
        attack: None,
        replay: None,
        source: Default::default(),
    }
}

pub(super) fn parameters() -> Vec<Parameter> {
    let preset = preset();
    let (fabric, source, filter) = (&preset.fabric, &preset.traffic[0], &preset.filter);
    const SEALING: &str = "Fig. 7a with other values";
    const FLOODS: &str = "Fig. 1a and 1b with other values";
    const FILTERS: &str = "Fig. 8 with other values";
    vec![
        Parameter::stated("nodes", "16", "4.4"),
        Parameter::open("topology", "4 x 4 mesh", "\"five-port switches\": four neighbours and a node", SEALING),
        Parameter::open("routing", "deterministic, dimension by dimension", "", SEALING),
        Parameter::stated(
            "link",
            format!("{} Gb/s", fabric.rate.gbps()),
            "4.4; 1X, whose data rate is 2.0: the paper counts 2.5",
        ),
        Parameter::stated("packet", format!("{} B", source.bytes), "7.2"),
        Parameter::open(
            "switches",
            "store and forward",
            "\"packet-level\"; latencies in proportion to length (Fig. 7a)",
            SEALING,
        ),
        Parameter::open("time in a switch", format!("{} ns", fabric.switch_ns), "", SEALING),
        Parameter::open("wire", format!("{} ns", fabric.wire_ns), "", SEALING),
        Parameter::open("input buffer of a lane", format!("{} B", fabric.buffer_bytes), "", SEALING),
        Parameter::open("queueing", "a queue for each output", "the paper runs loads of 70 %", SEALING),
        Parameter::open(
            "arrivals, destinations",
            "Poisson, uniform",
            "Fig. 1 and 8: within four partitions (stated)",
            SEALING,
        ),
        Parameter::open(
            "load in Fig. 7",
            format!("{LOAD}"),
            "gives the latency that Fig. 7a implies at 256 B, 12.3 us",
            SEALING,
        ),
        Parameter::open(
            "load in Fig. 1",
            format!("{LOAD_FLOODED}"),
            "of those in Fig. 8; half of it real time, half best effort",
            FLOODS,
        ),
        Parameter::open("lanes of real time", "its own, before all others", "", FLOODS),
        Parameter::open(
            "partitions",
            "every fourth node: the columns of the mesh",
            "four of four nodes are stated",
            FILTERS,
        ),
        Parameter::stated("sealing and opening", "160 ns each", "7.2, AES and GHASH 80 ns each"),
        Parameter::stated("keys at hand", "at once", "7.2"),
        Parameter::stated("look-up of a filter", format!("{} ns", filter.lookup_ns), "7.3"),
        Parameter::open(
            "trap to filter",
            format!("{} us at the manager, {} us to the port", filter.processing_us, filter.update_us),
            "",
            "SIF by the manager's time",
        ),
        Parameter::open("traps", format!("one in {} us from an adapter", filter.trap_interval_us), "", FILTERS),
        Parameter::open("time-out of a stateful filter", format!("{} us", filter.timeout_us), "\"some time\"", FILTERS),
        Parameter::open("length of the flood", "2 of 10 ms", "", FILTERS),
        Parameter::open("failures before an alert", "16", "", "Forging by the failures before an alert"),
        Parameter::open(
            "latency",
            "from the adapter's queue to the packet opened",
            "\"end-to-end\"",
            "none: a definition",
        ),
        Parameter::open(
            "attacks",
            "one node that listens at a switch of partition 0 and sends 0.1 of its link, the others 0.3; floods 1.0 and 0.7",
            "who hears what is left open; switches can be compromised (4.2)",
            "none: what is taken does not hang on it",
        ),
        Parameter::open(
            "a receiver's checks",
            "P_Key, queue pair, Q_Key, tag wherever there is a key, replay, R_Key",
            "its keys as in 3 and 5.1; whether the sender's address is the connection's is not checked",
            "replays by the defence; a receiver that takes a plain ICRC",
        ),
        Parameter::open("measured", "10 ms after 2 ms, five seeds", "", SEALING),
    ]
}

/// Mean latency in ns of the flow of that name, over the seeds.
pub(super) fn latency(setting: &Setting<'_>, experiments: &[Experiment], flow: &str) -> Result<Vec<Vec<f64>>, Error> {
    let outcomes = seeded(setting, experiments)?;
    let of = |outcome: &experiment::Outcome| {
        outcome.flows.iter().find(|other| other.name == flow).map_or(f64::NAN, |flow| flow.latency.mean_ns)
    };
    Ok(outcomes.iter().map(|seeds| seeds.iter().map(of).collect()).collect())
}

/// Each experiment with each seed.
pub(super) fn seeded(
    setting: &Setting<'_>,
    experiments: &[Experiment],
) -> Result<Vec<Vec<experiment::Outcome>>, Error> {
    let with = |experiment: &Experiment, seed| Experiment { seed, ..experiment.clone() };
    let runs: Vec<Experiment> = experiments.iter().flat_map(|one| SEEDS.map(|seed| with(one, seed))).collect();
    let mut outcomes = setting.each(&runs, Experiment::run)?;
    let mut grouped = Vec::with_capacity(experiments.len());
    while !outcomes.is_empty() {
        let rest = outcomes.split_off(SEEDS.count());
        grouped.push(std::mem::replace(&mut outcomes, rest));
    }
    Ok(grouped)
}
