//! What the links, switches and lanes are like.

use serde::{Deserialize, Serialize};

use super::rate::{Named, Rate};
use crate::error::Error;
use crate::time::{self, Time};
use crate::topology::{Shape, Topology, UNPLUGGED};

/// Links, switches and lanes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FabricConfig {
    /// Of every link that nothing else says the rate of.
    pub rate: Rate,
    /// Of the links that nodes are plugged in with.
    pub host_rate: Option<Rate>,
    /// Of a fat tree's links between switches, level by level from the nodes upwards.
    pub level_rates: Vec<Rate>,
    /// From one end of a cable to the other.
    pub wire_ns: f64,
    /// From a packet's head at a switch's input to its head at the free output: header, look-up, arbitration, crossbar.
    pub switch_ns: f64,
    /// Whether a switch takes a packet in completely before it sends it on, in place of cutting through.
    pub store_and_forward: bool,
    /// What an input buffers for each lane.
    pub buffer_bytes: u32,
    /// Which packets of an input's lane can go: the first of each output, or the very first alone.
    pub queueing: Queueing,
    /// Classes of traffic, each with lanes of its own. 0 goes before all others when `priority` is set.
    pub classes: u8,
    /// Weights of the classes; of those that have no priority. Empty: equal.
    pub weights: Vec<u32>,
    /// Whether class 0 goes before all others.
    pub priority: bool,
    /// Lanes that adaptive routing may use beside those of the deterministic way, its escape. A dragonfly's has none, but
    /// three lanes that rise along the way.
    pub adaptive_lanes: u8,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self {
            rate: Rate::Named(Named::EDR_4X),
            host_rate: None,
            level_rates: Vec::new(),
            wire_ns: 10.0,
            switch_ns: 100.0,
            store_and_forward: false,
            buffer_bytes: 16 << 10,
            queueing: Queueing::Voq,
            classes: 1,
            weights: Vec::new(),
            priority: false,
            adaptive_lanes: 1,
        }
    }
}

/// How an input's buffer is organised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queueing {
    /// A queue for each output: nobody waits behind a packet that goes elsewhere.
    Voq,
    /// One queue: the first holds up those behind it.
    Fifo,
}

/// More is more than one class sends before it is the next one's turn in any run.
const WEIGHT_MAX: u32 = 1_000_000;
/// The most lanes InfiniBand has for data.
pub(crate) const LANES_MAX: u8 = 15;

impl FabricConfig {
    /// Time that so many bytes take on a link of `rate`.
    #[must_use]
    pub fn serialisation(&self, bytes: u32) -> Time {
        self.rate.serialisation(bytes)
    }

    /// The rate of each port's link, by the port's number.
    pub(super) fn rates(&self, topology: &Topology) -> Result<Vec<Rate>, Error> {
        let levels = match &topology.shape {
            Shape::FatTree(tree) => Some(tree),
            _ => None,
        };
        let wanted = levels.map_or(0, |tree| tree.levels as usize - 1);
        if !self.level_rates.is_empty() && self.level_rates.len() != wanted {
            let given = self.level_rates.len();
            return Err(Error::config(format!(
                "fabric.level_rates has {given} rates; this network has {wanted} levels of links between switches (those of \
                 a fat tree)"
            )));
        }
        let of_link = |port: u32, peer: u32| {
            if topology.is_adapter(port) || topology.is_adapter(peer) {
                return self.host_rate.unwrap_or(self.rate);
            }
            let Some(tree) = levels.filter(|_| !self.level_rates.is_empty()) else { return self.rate };
            let lower = topology.switch[port as usize].min(topology.switch[peer as usize]);
            self.level_rates[(lower / tree.width) as usize]
        };
        let link =
            |(port, &peer): (usize, &u32)| if peer == UNPLUGGED { self.rate } else { of_link(port as u32, peer) };
        let mut rates: Vec<Rate> = topology.peer.iter().enumerate().map(link).collect();
        for &(port, rate) in &topology.rates {
            rates[port as usize] = rate;
            rates[topology.peer[port as usize] as usize] = rate;
        }
        Ok(rates)
    }

    /// Latency of a packet through an empty network of one rate, over `switches` switches: the closed form.
    #[must_use]
    pub fn zero_load(&self, bytes: u32, switches: u32) -> Time {
        let stored = if self.store_and_forward { self.serialisation(bytes) } else { 0 };
        u64::from(switches) * (time::from_ns(self.switch_ns) + time::from_ns(self.wire_ns) + stored)
            + time::from_ns(self.wire_ns)
            + self.serialisation(bytes)
    }

    /// Checks that a fabric can be made of it for packets of at most `longest` bytes.
    ///
    /// # Errors
    /// A sentence with the remedy.
    pub fn validate(&self, longest: u32) -> Result<(), Error> {
        for rate in [self.rate].into_iter().chain(self.host_rate).chain(self.level_rates.iter().copied()) {
            rate.validate()?;
        }
        for (name, ns) in [("wire_ns", self.wire_ns), ("switch_ns", self.switch_ns)] {
            if !(0.0..=1e6).contains(&ns) {
                return Err(Error::config(format!("{name} is {ns}; give nanoseconds from 0 to 1e6")));
            }
        }
        if self.buffer_bytes < longest {
            let buffer = self.buffer_bytes;
            return Err(Error::config(format!(
                "a buffer of {buffer} bytes never has room for a packet of {longest}; set fabric.buffer_bytes to {longest} or more"
            )));
        }
        if self.classes == 0 {
            return Err(Error::config("fabric.classes is 0; traffic needs at least one class"));
        }
        let legal = self.weights.iter().all(|weight| (1..=WEIGHT_MAX).contains(weight));
        if !self.weights.is_empty() && (self.weights.len() != usize::from(self.classes) || !legal) {
            let classes = self.classes;
            return Err(Error::config(format!(
                "fabric.weights needs a weight from 1 to {WEIGHT_MAX} for each of the {classes} classes"
            )));
        }
        Ok(())
    }
}
