//! An experiment: a file that says all of it, and what came out.

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
use crate::statistics::Summary;
use crate::time::{self, MS, Time, US};
use crate::topology::{Topology, TopologyConfig};
use crate::trace::collective::{Algorithms, expand};
use crate::trace::window::{self, Window as Iterations};
use crate::trace::{self, Job};
use crate::traffic::{
    AttackConfig, AttackOutcome, PacketConfig, Plan, Replay, ReplayPlan, SourceConfig, Synthetic, Window,
};

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

/// When packets count.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// The fabric fills until then.
    pub warmup_us: f64,
    /// And is measured for so long. A replay without a limit runs to its end.
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

impl Experiment {
    /// Reads an experiment. Files that it names are looked for beside it.
    ///
    /// # Errors
    /// A sentence with the file and the line.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_with(path, &[])
    }

    /// Reads an experiment and gives some of its keys other values: `traffic.0.load=0.5`. A value is TOML, or else a
    /// string. Files that the changes name are looked for in the current directory.
    ///
    /// # Errors
    /// A sentence with the file, and the line where nothing was changed.
    pub fn read_with(path: &Path, changes: &[String]) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|cause| Error::File { file: path.into(), cause })?;
        Self::parse_with(&text, Some(path), changes)
    }

    /// As [`Experiment::read_with`], of a text that was read before from the path, if it came from one.
    ///
    /// # Errors
    /// As [`Experiment::read_with`].
    pub fn parse_with(text: &str, path: Option<&Path>, changes: &[String]) -> Result<Self, Error> {
        let whole = Self::parse(text, path);
        if changes.is_empty() && whole.is_err() {
            return whole;
        }
        // What the file says must make a table, complete or not.
        let mut table: toml::Value = toml::from_str(text).or_else(|_| whole.map(|_| toml::Value::Boolean(false)))?;
        if let Some(path) = path {
            beside(&mut table, path);
        }
        for change in changes {
            let Some((key, value)) = change.split_once('=') else {
                return Err(Error::config(format!("{change} is no change; write KEY=VALUE, as in fabric.rate=4x-ndr")));
            };
            let value = value.trim();
            let parsed = toml::from_str::<toml::Table>(&format!("v = {value}")).ok();
            let value = parsed.and_then(|mut table| table.remove("v")).unwrap_or_else(|| value.into());
            set(&mut table, key.trim(), value)?;
        }
        let changed = toml::to_string(&table).map_err(|error| Error::config(error.to_string()))?;
        let experiment = Self::parse(&changed, None).map_err(|error| {
            let what = format!("with {}: {error}", changes.join(", "));
            Error::Config { file: path.map(Into::into), line: None, key: None, what }
        })?;
        let Some(path) = path else { return Ok(experiment) };
        let keys = changes.iter().filter_map(|change| Some(change.split_once('=')?.0.trim().to_owned()));
        Ok(Self { source: Source::new(path, text.to_owned(), keys.collect()), ..experiment })
    }

    /// Reads an experiment's text; the path is for messages.
    ///
    /// # Errors
    /// A sentence with the file and the line.
    pub fn parse(text: &str, path: Option<&Path>) -> Result<Self, Error> {
        let parsed: Self = toml::from_str(text).map_err(|error| Error::Config {
            file: path.map(Into::into),
            line: error.span().map(|span| text[..span.start].matches('\n').count() + 1),
            key: None,
            what: in_words(error.message()),
        })?;
        let source = path.map(|path| Source::new(path, text.to_owned(), Vec::new())).unwrap_or_default();
        Ok(Self { source, ..parsed })
    }

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

/// What the reader of TOML says, with what the names of types mean.
fn in_words(message: &str) -> String {
    let message = message.trim_end().replace('\n', "; ");
    let most =
        [("u8", u64::from(u8::MAX)), ("u16", u16::MAX.into()), ("u32", u32::MAX.into()), ("u64", i64::MAX as u64)];
    most.iter().fold(message, |message, (name, most)| {
        message.replace(&format!("expected {name}"), &format!("expected a whole number from 0 to {most}"))
    })
}

/// The files that an experiment names are beside its own.
fn beside(table: &mut toml::Value, path: &Path) {
    let Some(folder) = path.parent() else { return };
    let resolve = |file: &mut toml::Value| {
        if let toml::Value::String(file) = file {
            *file = folder.join(&*file).display().to_string();
        }
    };
    if let Some(toml::Value::Array(traces)) = table.get_mut("replay").and_then(|replay| replay.get_mut("traces")) {
        traces.iter_mut().for_each(resolve);
    }
    table.get_mut("topology").and_then(|topology| topology.get_mut("path")).map(resolve);
}

/// Gives a key another value; numbers in it count the entries of a list.
fn set(table: &mut toml::Value, key: &str, value: toml::Value) -> Result<(), Error> {
    let mut place = table;
    for part in key.split('.') {
        let next = match place {
            toml::Value::Array(list) => part.parse::<usize>().ok().and_then(|index| list.get_mut(index)),
            toml::Value::Table(table) => Some(table.entry(part).or_insert(toml::Value::Table(toml::Table::new()))),
            _ => None,
        };
        place = next.ok_or_else(|| Error::config(format!("{key}: there is no {part} in the experiment to change")))?;
    }
    *place = value;
    Ok(())
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
mod tests {
    use super::*;

    const SMALL: &str = "topology = { kind = 'mesh', dims = [4, 4] }\n\
                         measure = { warmup_us = 20, for_us = 200 }\n";

    #[test]
    fn an_experiment_runs_from_its_file_and_says_what_it_was() {
        let text = format!(
            "{SMALL}fabric = {{ rate = '4x-sdr' }}\n[[traffic]]\nload = 0.3\n\
             [security]\nlevel = 'queue-pair'\ncache = {{ entries = 32 }}\n"
        );
        let experiment = Experiment::parse(&text, None).unwrap();
        let outcome = experiment.run().unwrap();
        let flow = &outcome.flows[0];
        assert!(flow.latency.count > 3_000 && (flow.accepted / 0.3 - 1.0).abs() < 0.1, "{flow:?}");
        assert!(outcome.lookups > 2 * flow.latency.count && (3.0..5.0).contains(&flow.hops));
        // What is written down can be run again.
        let again: Experiment = toml::from_str(&toml::to_string(&outcome.experiment).unwrap()).unwrap();
        assert_eq!(again, experiment);
        assert_eq!(again.run().unwrap().flows[0].latency, flow.latency);
    }

    #[test]
    fn whoever_watches_can_stop_a_run_and_changes_nothing_else() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let text = format!("{SMALL}[[traffic]]\nload = 0.6\n");
        let experiment = Experiment::parse(&text, None).unwrap();
        let asked = AtomicU32::new(0);
        let watched = |most| {
            asked.store(0, Ordering::Relaxed);
            experiment.run_watched(&|_| asked.fetch_add(1, Ordering::Relaxed) < most)
        };
        let whole = watched(u32::MAX).unwrap();
        assert!(asked.load(Ordering::Relaxed) > 5);
        assert!(matches!(watched(3), Err(Error::Stopped)));
        // The fabric by itself, without anybody who asks.
        let topology = Topology::new(&experiment.topology).unwrap();
        let Experiment { fabric, routing, security, filter, .. } = &experiment;
        let mut fabric = Fabric::new(topology, fabric, *routing, security, filter, 256).unwrap();
        let window = experiment.measure.window();
        let (sources, level) = (&experiment.traffic[..], security.level);
        let plan =
            Plan { sources, level, filter, partitions: 1, window, interval: None, attack: None, seed: experiment.seed };
        let mut traffic = Synthetic::new(&plan, &mut fabric).unwrap();
        fabric.run(&mut traffic, window.until).unwrap();
        assert_eq!((fabric.events(), fabric.counts().arrived), (whole.events, whole.arrived));
        assert_eq!(traffic.flows()[0].latency.summary(), whole.flows[0].latency);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| {
            let parsed = Experiment::parse(text, Some(Path::new("x.toml")));
            parsed.and_then(|experiment| experiment.run().map(drop)).unwrap_err().to_string()
        };
        assert!(error("seed = 1\ntopology = 3\n").starts_with("x.toml:2: "));
        assert!(error(&format!("{SMALL}[[traffic]]\nlod = 1\n")).starts_with("x.toml:4: unknown field `lod`"));
        assert!(error(SMALL).starts_with("x.toml: no traffic"));
        assert!(error(&format!("{SMALL}[[traffic]]\nbytes = 70000\n")).contains("a whole number from 0 to 65535"));
        // What only shows when it is carried out.
        for (text, said) in [
            ("[[traffic]]\nload = 0.2\n[[traffic]]\nload = 1.5\n", "x.toml:6: traffic traffic: a load of 1.5"),
            ("[[traffic]]\nclass = 1\n", "x.toml:4: traffic traffic: class 1 of 1 classes"),
            ("security = { cache = { entries = 0 } }\n[[traffic]]\n", "x.toml:3: the session-key cache has no entry"),
            ("marking_bits = 4\n[[traffic]]\n", "x.toml:3: marks of this topology take 6 bits and the field has 4"),
            ("routing = 'adaptive'\n[fabric]\nrate = 1\nadaptive_lanes = 0\n[[traffic]]\n", "x.toml:6: adaptive"),
            ("partitions = 9\n[[traffic]]\n", "x.toml:3: 9 partitions of 16 nodes"),
            ("[replay]\ncopies = 2\ntraces = []\n", "x.toml:5: replay.traces names no trace"),
            ("[replay]\ncopies = 5000\ntraces = ['x']\n", "x.toml:4: replay.copies is 5000"),
            ("[[traffic]]\nfrom_us = 1e30\n", "x.toml:4: traffic traffic: from_us"),
            ("[[traffic]]\nload = 1e-300\n", "x.toml:4: traffic traffic: a load of"),
            ("[fabric]\nweights = [4_194_305]\n[[traffic]]\n", "x.toml:4: fabric.weights needs a weight from 1 to"),
        ] {
            let sentence = error(&format!("{SMALL}{text}"));
            assert!(sentence.starts_with(said), "{said}: {sentence}");
        }
        assert!(error(&format!("{SMALL}[replay]\ntraces = ['/nowhere']\n")).contains("/nowhere cannot be read"));
    }

    /// A filter at the port that a spoofed address names blocks the wrong node; marks name the right one.
    #[test]
    fn marks_find_who_spoofs() {
        for topology in [
            "mesh', dims = [4, 4]",
            "torus', dims = [4, 4]",
            "hypercube', dimension = 4",
            "fat-tree', arity = 4, levels = 2",
        ] {
            let text = |marks: &str| {
                format!(
                    "topology = {{ kind = '{topology} }}\nrouting = 'adaptive'\n{marks}\n\
                     measure = {{ warmup_us = 0, for_us = 500 }}\n[filter]\nscheme = 'stateful-ingress'\n\
                     [[traffic]]\nload = 0.2\n\
                     [[traffic]]\nname = 'flood'\nnodes = 2\nload = 1.0\nforged_keys = 2\nspoofed = true\n"
                )
            };
            let run = |marks| Experiment::parse(&text(marks), None).unwrap().run().unwrap();
            let (blind, marked) = (run(""), run("marking_bits = 38"));
            assert!(blind.blamed[0] == 0 && blind.blamed[1] > 2, "{topology}: {:?}", blind.blamed);
            assert!(marked.blamed[0] > 0 && marked.blamed[1] == 0, "{topology}: {:?}", marked.blamed);
            assert!(marked.leaked * 2 < blind.leaked, "{topology}: {} of {}", marked.leaked, blind.leaked);
        }
    }

    #[test]
    fn keys_are_given_other_values() {
        let path = std::env::temp_dir().join(format!("gambeson-sim-{}.toml", std::process::id()));
        std::fs::write(&path, format!("{SMALL}[[traffic]]\nload = 0.3\n")).unwrap();
        let read = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            Experiment::read_with(&path, &changes)
        };
        let changed =
            read(&["traffic.0.load=0.5", "fabric.rate=4x-ndr", "seed = 9", "security.cache.entries=7"]).unwrap();
        assert_eq!((changed.traffic[0].load, changed.seed), (0.5, 9));
        assert!((changed.fabric.rate.gbps() - 400.0).abs() < 1e-9);
        assert_eq!(changed.security.cache.unwrap().entries, Some(7));
        let error = |changes: &[&str]| read(changes).unwrap_err().to_string();
        assert!(error(&["load"]).contains("KEY=VALUE"));
        assert!(error(&["traffic.3.load=1"]).contains("no 3"));
        assert!(error(&["fabric.rte=1"]).contains("unknown field `rte`"));
        assert!(error(&["fabric.rate=5x-sdr"]).contains("as in 1x-sdr, 4x-ndr"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn floods_under_forged_keys_meet_the_filter() {
        let text = |scheme: &str| {
            format!(
                "{SMALL}partitions = 4\n[filter]\nscheme = '{scheme}'\n\
                 [[traffic]]\npattern = 'partition'\nload = 0.2\n\
                 [[traffic]]\nname = 'flood'\nnodes = 1\nload = 1.0\nforged_keys = 3\n"
            )
        };
        let run = |scheme| Experiment::parse(&text(scheme), None).unwrap().run().unwrap();
        let open = run("none");
        assert!(open.leaked > 1000 && open.dropped == 0);
        for scheme in ["duplicate-table", "ingress"] {
            let shut = run(scheme);
            assert!(shut.leaked == 0 && shut.dropped > 1000, "{scheme}: {} leaked", shut.leaked);
        }
        let stateful = run("stateful-ingress");
        assert!(stateful.traps > 0 && stateful.dropped > 1000);
        assert!(stateful.leaked > 0 && stateful.leaked < open.leaked / 2, "{} of {}", stateful.leaked, open.leaked);
    }
}
