//! An experiment: a file that says all of it, and what came out.

mod file;
mod outcome;

pub use outcome::{FlowOutcome, JobOutcome, Outcome};

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fabric::{Fabric, FabricConfig, Refusals, Watch};
use crate::filter::FilterConfig;
use crate::process::{Config as ProcessConfig, Placement};
use crate::routing::Routing;
use crate::security::{ReplayDefence, SecurityConfig, UnitStats};
use crate::source::Source;
use crate::time::{self, MS, Time, US};
use crate::topology::{Topology, TopologyConfig};
use crate::trace::collective::{Algorithms, expand};
use crate::trace::window::{self, Window as Iterations};
use crate::trace::{self, Job};
use crate::traffic::{AttackConfig, PacketConfig, Plan, Replay, ReplayPlan, SourceConfig, Synthetic, Window};

/// What is simulated. Everything but the topology and the traffic has a default.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What reports call it.
    #[serde(default = "unnamed")]
    pub name: String,
    /// Where all random numbers come from.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// The network.
    pub topology: TopologyConfig,
    /// How packets find their way.
    #[serde(default)]
    pub routing: Routing,
    /// Links, switches and lanes.
    #[serde(default)]
    pub fabric: FabricConfig,
    /// Cryptography and keys in the adapters.
    #[serde(default)]
    pub security: SecurityConfig,
    /// What switches do against forged partition keys.
    #[serde(default)]
    pub filter: FilterConfig,
    /// Bits of the field that switches mark packets in, so that their sender is known whatever address they claim; the
    /// papers' field has 38. Not marked, when it is not said.
    #[serde(default)]
    pub marking_bits: Option<u32>,
    /// Groups of nodes that talk among themselves.
    #[serde(default = "one")]
    pub partitions: u32,
    /// When packets count.
    #[serde(default)]
    pub measure: Measure,
    /// Synthetic sources.
    #[serde(default)]
    pub traffic: Vec<SourceConfig>,
    /// One node that attacks beside the sources.
    #[serde(default)]
    pub attack: Option<AttackConfig>,
    /// Traces to replay, in place of synthetic sources.
    #[serde(default)]
    pub replay: Option<ReplayConfig>,
    /// The file it was read from.
    #[serde(skip)]
    pub source: Source,
}

fn unnamed() -> String {
    "experiment".into()
}

fn first_seed() -> u64 {
    1
}

fn one() -> u32 {
    1
}

/// When packets of synthetic sources count; a replay runs to its end, and all of its packets do.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// The fabric fills until then.
    pub warmup_us: f64,
    /// And is measured for so long.
    pub for_us: f64,
    /// Intervals of the latency's course over time; none, when it is not said.
    pub interval_us: Option<f64>,
}

impl Default for Measure {
    fn default() -> Self {
        Self { warmup_us: 500.0, for_us: 5_000.0, interval_us: None }
    }
}

/// Which traces are replayed and how.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayConfig {
    /// Their files.
    pub traces: Vec<String>,
    /// How many copies of each run at the same time.
    pub copies: u32,
    /// Only some iterations of each.
    pub window: Option<Iterations>,
    /// How processors are shared.
    pub processes: ProcessConfig,
    /// How messages become packets.
    pub packets: PacketConfig,
    /// Names of the algorithms that collectives are made of.
    pub collectives: Algorithms,
    /// Each copy over the nodes in an order of its own.
    pub shuffled: bool,
}

impl Experiment {
    /// Carries it out.
    ///
    /// # Errors
    /// A sentence, when its parts do not fit together or its network comes to a standstill.
    pub fn run(&self) -> Result<Outcome, Error> {
        self.run_watched(&|_| true)
    }

    /// Carries it out, asking from time to time whether to go on. The outcome does not depend on that.
    ///
    /// # Errors
    /// As [`Experiment::run`]; [`Error::Stopped`], when it was not to go on.
    pub fn run_watched(&self, watch: Watch<'_>) -> Result<Outcome, Error> {
        self.carry_out(watch).map_err(|error| self.source.locate(error))
    }

    fn carry_out(&self, watch: Watch<'_>) -> Result<Outcome, Error> {
        self.measure.validate().map_err(Error::about("measure"))?;
        let mut fabric = self.fabric()?;
        match (&self.replay, self.traffic.is_empty()) {
            (Some(_), false) => {
                Err(Error::about("replay")(Error::config("both traffic and a replay; take one of them out")))
            }
            (Some(replay), true) if replay.traces.is_empty() => {
                Err(Error::about("replay")(Error::config("replay.traces names no trace; name at least one")))
            }
            (None, true) => Err(Error::config("no traffic; add a [[traffic]] or a [replay] with traces")),
            (Some(_), true) if self.attack.is_some() => Err(Error::about("attack")(Error::config(
                "an attack on a replay; give it synthetic [[traffic]] to attack",
            ))),
            (Some(replay), true) => self.replay(replay, &mut fabric, watch).map_err(Error::about("replay")),
            (None, false) => self.synthetic(&mut fabric, watch),
        }
    }

    /// The network that it runs on, empty.
    ///
    /// # Errors
    /// A sentence, when its parts do not fit together.
    pub(crate) fn fabric(&self) -> Result<Fabric, Error> {
        let longest = match &self.replay {
            Some(replay) => replay.packets.longest(),
            None => {
                let lengths = self.traffic.iter().map(|source| source.wire().max(source.transport.acknowledgement()));
                lengths.max().unwrap_or(0)
            }
        };
        let topology = Topology::new(&self.topology).map_err(Error::about("topology"))?;
        let mut fabric = Fabric::new(topology, &self.fabric, self.routing, &self.security, &self.filter, longest)?;
        fabric.draw_ways(self.seed);
        if self.attack.is_some() || self.security.replay.defence != ReplayDefence::None {
            let partitions = if self.replay.is_some() { 1 } else { self.partitions.max(1) };
            fabric.check_packets(&self.security, partitions, self.seed);
        }
        if let Some(bits) = self.marking_bits {
            fabric.mark_packets(bits).map_err(Error::about("marking_bits"))?;
        }
        Ok(fabric)
    }

    fn synthetic(&self, fabric: &mut Fabric, watch: Watch<'_>) -> Result<Outcome, Error> {
        let began = Instant::now();
        let window = self.measure.window();
        let interval = self.measure.interval_us.map(|us| (us * US as f64) as Time);
        let plan = Plan {
            sources: &self.traffic,
            level: self.security.level,
            filter: &self.filter,
            partitions: self.partitions,
            window,
            interval,
            attack: self.attack.as_ref(),
            seed: self.seed,
        };
        let mut traffic = Synthetic::new(&plan, fabric)?;
        fabric.run_watched(&mut traffic, window.until, watch)?;
        let capacity = fabric.host_gbps() / 8.0 * time::to_ns(window.until - window.from);
        let nodes = f64::from(fabric.topology().nodes);
        let flows = traffic.flows().iter().zip(&self.traffic).map(|(flow, config)| FlowOutcome {
            name: config.name.clone(),
            latency: flow.latency.summary(),
            accepted: flow.bytes as f64 / capacity / nodes,
            hops: flow.hops as f64 / flow.latency.count().max(1) as f64,
            series: flow
                .series
                .iter()
                .enumerate()
                .filter(|(_, (_, count))| *count > 0)
                .map(|(index, (sum, count))| {
                    let at = time::to_ns(window.from + index as Time * interval.unwrap_or(0));
                    (at, sum / *count as f64)
                })
                .collect(),
        });
        let flows = flows.collect();
        let mut outcome = self.outcome(fabric, began, flows);
        (outcome.leaked, outcome.traps) = (traffic.leaked(), traffic.manager().stats().traps);
        outcome.blamed = traffic.blamed();
        outcome.refused = traffic.refused();
        outcome.attack = traffic.attack(fabric);
        Ok(outcome)
    }

    fn replay(&self, config: &ReplayConfig, fabric: &mut Fabric, watch: Watch<'_>) -> Result<Outcome, Error> {
        if config.copies > COPIES_MAX {
            let what = format!("replay.copies is {}; give at most {COPIES_MAX}", config.copies);
            return Err(Error::config(what));
        }
        let mut jobs = Vec::new();
        for path in &config.traces {
            let job = load(Path::new(path), config)?;
            jobs.extend(std::iter::repeat_n(job, config.copies.max(1) as usize));
        }
        self.replay_jobs(config, &jobs, fabric, watch)
    }

    /// Replays jobs that were read before, on a fabric of this experiment.
    ///
    /// # Errors
    /// As [`Experiment::run`].
    pub fn run_jobs(&self, jobs: &[Arc<Job>]) -> Result<Outcome, Error> {
        self.run_jobs_watched(jobs, &|_| true)
    }

    /// As [`Experiment::run_jobs`], asking from time to time whether to go on.
    ///
    /// # Errors
    /// As [`Experiment::run_watched`].
    pub fn run_jobs_watched(&self, jobs: &[Arc<Job>], watch: Watch<'_>) -> Result<Outcome, Error> {
        let Some(config) = &self.replay else { return Err(Error::config("jobs without a [replay] to say how")) };
        let run = || {
            let mut fabric = self.fabric()?;
            self.replay_jobs(config, jobs, &mut fabric, watch).map_err(Error::about("replay"))
        };
        run().map_err(|error| self.source.locate(error))
    }

    pub(crate) fn replay_jobs(
        &self,
        config: &ReplayConfig,
        jobs: &[Arc<Job>],
        fabric: &mut Fabric,
        watch: Watch<'_>,
    ) -> Result<Outcome, Error> {
        let began = Instant::now();
        let sizes: Vec<usize> = jobs.iter().map(|job| job.ranks.len()).collect();
        let nodes = fabric.topology().nodes;
        let placement = if config.shuffled {
            Placement::random(&sizes, nodes, self.seed)
        } else {
            Placement::cyclic(&sizes, nodes)
        };
        let always = Window { from: 0, until: Time::MAX - 1 };
        let plan = ReplayPlan {
            processes: &config.processes,
            packets: &config.packets,
            jobs,
            placement: &placement,
            level: self.security.level,
            window: always,
            seed: self.seed,
        };
        let mut replay = Replay::new(&plan, fabric)?;
        fabric.run_watched(&mut replay, always.until, watch)?;
        if fabric.counts().refused > 0 {
            return Err(Error::Stuck(format!(
                "{} packets of the replay were taken for packets sent before or too late, and nobody sends them again; \
                 widen security.replay.window, or raise its tick_ms or tolerance",
                fabric.counts().refused
            )));
        }
        replay.cluster().verify()?;
        let latency = replay.latency().summary();
        let flow = FlowOutcome { name: "replay".into(), latency, accepted: 0.0, hops: 0.0, series: Vec::new() };
        let mut outcome = self.outcome(fabric, began, vec![flow]);
        let us = |at: Time| at as f64 / US as f64;
        let job = |((name, ended), job): ((&str, Option<Time>), &Arc<Job>)| JobOutcome {
            name: name.into(),
            ended_us: ended.map(us),
            recorded_us: job.recorded.map(us),
        };
        outcome.jobs = replay.jobs().zip(jobs).map(job).collect();
        Ok(outcome)
    }

    fn outcome(&self, fabric: &Fabric, began: Instant, flows: Vec<FlowOutcome>) -> Outcome {
        let counts = fabric.counts();
        let units: UnitStats = fabric.unit_stats();
        let busiest = (0..fabric.topology().ports()).map(|port| fabric.busy(port)).max().unwrap_or(0);
        Outcome {
            experiment: self.clone(),
            nodes: fabric.topology().nodes,
            simulated_us: fabric.now() as f64 / US as f64,
            flows,
            jobs: Vec::new(),
            sent: counts.sent,
            arrived: counts.arrived,
            dropped: counts.dropped,
            refused: Refusals::default(),
            acknowledged: counts.acknowledged,
            attack: None,
            leaked: 0,
            traps: 0,
            blamed: [0; 2],
            hit_rate: units.hit_rate(),
            lookups: units.lookups,
            busiest_link: busiest as f64 / fabric.now().max(1) as f64,
            events: fabric.events(),
            seconds: began.elapsed().as_secs_f64(),
        }
    }
}

/// Reads a trace, expands its collectives and cuts the window out of it that the replay wants.
///
/// # Errors
/// A sentence with file, rank and record.
pub fn load(path: &Path, config: &ReplayConfig) -> Result<Arc<Job>, Error> {
    let job = expand(&trace::read(path)?, &config.collectives)?;
    Ok(Arc::new(match config.window {
        Some(window) => window::cut(&job, window)?.job,
        None => job,
    }))
}

/// The most copies of a trace, and the most intervals of the measured time: more are a slip of the pen.
const COPIES_MAX: u32 = 4096;
const INTERVALS_MAX: f64 = 1e6;

impl Measure {
    fn validate(&self) -> Result<(), Error> {
        let longest = (Time::MAX / MS / 2) as f64;
        let positive = |us: f64| us > 0.0 && us < longest;
        let cuts = |us: f64| positive(us) && self.for_us / us < INTERVALS_MAX && us * US as f64 >= 1.0;
        if (0.0..longest).contains(&self.warmup_us) && positive(self.for_us) && self.interval_us.is_none_or(cuts) {
            return Ok(());
        }
        Err(Error::config(
            "measure.warmup_us is 0 or more, for_us more than 0, and interval_us more than its millionth",
        ))
    }

    fn window(&self) -> Window {
        let from = (self.warmup_us * US as f64) as Time;
        Window { from, until: from + (self.for_us * US as f64) as Time }
    }
}

#[cfg(test)]
mod tests;
