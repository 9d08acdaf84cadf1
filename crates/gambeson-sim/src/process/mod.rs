//! Processes: jobs replayed on the processors of a cluster under a scheduler (session-key-cache, section 4.1).
//!
//! A [`Cluster`] is sans-IO: it is told the time, what timers ran out and what became of messages, and answers with
//! messages to carry and timers to set. Every operation of a rank begins its gap after the one before completed in the
//! simulation, which the paper calls relative-timed injection; a gap is processor time, so that it stretches while the
//! process is not on its processor.

mod cluster;
mod matching;
mod placement;
mod run_queue;
mod verify;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::time::{Time, US};

pub use cluster::Cluster;
pub use placement::Placement;

/// How the processors of the nodes are shared. Times are in microseconds.
///
/// The paper states the spinning time, the boost's and the gang's period; quantum, context switch and interrupt are
/// unstated there, so that their defaults are ours: Linux 2.6's quantum, and costs usual for it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Who runs when.
    pub scheduler: Scheduler,
    /// Processors of a node; a process keeps to one.
    pub cpus: u32,
    /// How long spin-block and DCS spin before they block: 750 (stated).
    pub spin_us: f64,
    /// How often periodic boost looks for unconsumed messages: 2,000 (stated).
    pub boost_us: f64,
    /// How long the gang scheduler runs a job: 20,000 (stated).
    pub gang_us: f64,
    /// The time slice of the local scheduler below the others: 100,000.
    pub quantum_us: f64,
    /// What it costs to change from one process to another: 5.
    pub context_switch_us: f64,
    /// What it costs when an arriving message wakes a process, or a boost takes the processor: 5.
    pub interrupt_us: f64,
    /// Factor on the computation between the calls.
    pub gap_scale: f64,
    /// The longest message that is sent without asking; without it all are.
    pub eager_bytes: Option<u32>,
    /// The length of the messages that ask and answer before a longer one is sent.
    pub control_bytes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::Batch,
            cpus: 1,
            spin_us: 750.0,
            boost_us: 2_000.0,
            gang_us: 20_000.0,
            quantum_us: 100_000.0,
            context_switch_us: 5.0,
            interrupt_us: 5.0,
            gap_scale: 1.0,
            eager_bytes: None,
            control_bytes: 64,
        }
    }
}

impl Config {
    /// Checks that the cluster can run with it.
    ///
    /// # Errors
    /// A number out of its range, with the range.
    pub fn validate(&self) -> Result<(), Error> {
        let times = [
            ("spin_us", self.spin_us, 0.0),
            ("boost_us", self.boost_us, 1.0),
            ("gang_us", self.gang_us, 1.0),
            ("quantum_us", self.quantum_us, 1.0),
            ("context_switch_us", self.context_switch_us, 0.0),
            ("interrupt_us", self.interrupt_us, 0.0),
        ];
        for (name, us, least) in times {
            if !(least..=1e9).contains(&us) {
                return Err(Error::config(format!("{name} is {us}; give microseconds from {least} to 1e9")));
            }
        }
        if !(0.0..=1e6).contains(&self.gap_scale) {
            return Err(Error::config(format!("gap_scale is {}; give a factor from 0 to 1e6", self.gap_scale)));
        }
        if !(1..=1024).contains(&self.cpus) {
            return Err(Error::config(format!("cpus is {}; give a node 1 to 1024 processors", self.cpus)));
        }
        Ok(())
    }
}

pub(crate) fn from_us(us: f64) -> Time {
    (us * US as f64).round() as Time
}

/// Who runs when (session-key-cache, section 3.3 and 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// A processor belongs to one process until its job ends; jobs that find none free wait their turn.
    #[default]
    Batch,
    /// Each node for itself, as Linux 2.6 (O(1)) does; who waits for a message spins through its time slice.
    Local,
    /// Local, but who waits longer than the spinning time blocks until the message arrives.
    SpinBlock,
    /// Spin-block, and a message for a blocked process gives it the processor at once (dynamic coscheduling).
    DcsSpinBlock,
    /// Local, but every so often a process with unconsumed messages gets the processor.
    PeriodicBoost,
    /// All processes of a job at the same time on all nodes, one job after the other.
    Gang,
}

/// A process: the node it runs on, and which of the node's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The node.
    pub node: u32,
    /// Its number within the node, in the order of the jobs and their ranks.
    pub local: u32,
}

/// A message for the fabric to carry, complete with its answers to rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What [`Cluster::injected`] and [`Cluster::arrived`] call it; used anew once both were called.
    pub id: u32,
    /// The job.
    pub job: u32,
    /// Who sends it.
    pub from: Process,
    /// Who gets it; perhaps on the same node, never the sender itself.
    pub to: Process,
    /// Its length, which may be 0.
    pub bytes: u32,
}

/// What the cluster asks of the simulation around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Carry a message; `at` is the present.
    Send {
        /// When.
        at: Time,
        /// What.
        message: Message,
    },
    /// Call [`Cluster::wake`] at that time. Timers are not taken back: what has become void is passed over.
    Wake {
        /// When.
        at: Time,
        /// What to hand back.
        token: u64,
    },
    /// The last process of a job has ended.
    Finished {
        /// When.
        at: Time,
        /// Which.
        job: u32,
    },
}

/// What the processors did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Messages handed to the fabric.
    pub messages: u64,
    /// Changes from one process to another.
    pub context_switches: u64,
    /// Blocked processes that a message woke.
    pub interrupts: u64,
    /// Processes that a message or the boost moved before the others.
    pub boosts: u64,
    /// Processes that blocked.
    pub blocks: u64,
    /// Time in which processes computed, over all processors, in picoseconds.
    pub computing: Time,
    /// Time in which processes spun, over all processors, in picoseconds.
    pub spinning: Time,
}

#[cfg(test)]
mod tests;
