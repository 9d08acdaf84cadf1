//! What comes out of an experiment.

use serde::{Deserialize, Serialize};

use super::Experiment;
use crate::fabric::Refusals;
use crate::statistics::Summary;
use crate::traffic::AttackOutcome;

/// What came out, with all that it came from.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Outcome {
    /// The experiment, complete with defaults and seed.
    pub experiment: Experiment,
    /// End nodes.
    pub nodes: u32,
    /// Simulated time.
    pub simulated_us: f64,
    /// Synthetic sources, or the replay as one.
    pub flows: Vec<FlowOutcome>,
    /// Jobs and when they ended.
    pub jobs: Vec<JobOutcome>,
    /// Packets handed to adapters, arrived, dropped by filters.
    pub sent: u64,
    /// Packets that their receivers got.
    pub arrived: u64,
    /// Packets that filters dropped.
    pub dropped: u64,
    /// Packets that the adapters they came to did not take, of the honest, where adapters check packets.
    #[serde(default)]
    pub refused: Refusals,
    /// Acknowledgements.
    #[serde(default)]
    pub acknowledged: u64,
    /// What an attack came to.
    #[serde(default)]
    pub attack: Option<AttackOutcome>,
    /// Packets under forged keys that came through.
    pub leaked: u64,
    /// Traps that the manager got.
    pub traps: u64,
    /// Reports of receivers that named the true sender of such a packet, and that did not.
    pub blamed: [u64; 2],
    /// Share of key look-ups that hit.
    pub hit_rate: f64,
    /// Key look-ups.
    pub lookups: u64,
    /// Share of time that the busiest link was sending.
    pub busiest_link: f64,
    /// Events of the simulation.
    pub events: u64,
    /// Seconds of the real world.
    pub seconds: f64,
}

/// What one flow met.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// Packets' latencies, from adapter to opened.
    pub latency: Summary,
    /// Share of a link's rate that arrived at each node, on average.
    pub accepted: f64,
    /// Links that a packet crossed, on average.
    pub hops: f64,
    /// Mean latency in each interval, in ns, where something arrived.
    pub series: Vec<(f64, f64)>,
}

/// How a job went.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct JobOutcome {
    /// Its name.
    pub name: String,
    /// When its last process ended; none, when time was up before.
    pub ended_us: Option<f64>,
    /// How long it took when it was recorded; none, when the trace does not tell.
    #[serde(default)]
    pub recorded_us: Option<f64>,
}
