//! What the links, switches and lanes are like.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::time::{self, Time};

/// A link's data rate.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "a rate is gigabits a second, or one of 1x-sdr, 4x-sdr, 12x-sdr, 4x-ddr, 12x-ddr, 4x-qdr, 4x-fdr, \
                 4x-edr, 4x-hdr, 4x-ndr, 400g, 800g"
)]
pub enum Rate {
    /// Gigabits of data a second.
    Gbps(f64),
    /// By name; see [`Named`].
    Named(Named),
}

/// Names of rates: InfiniBand's width and generation, or Ethernet's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Named {
    /// 1X SDR: 2.5 Gb/s signalled, 2 of data.
    #[serde(rename = "1x-sdr")]
    Sdr1,
    /// 4X SDR.
    #[serde(rename = "4x-sdr")]
    Sdr4,
    /// 12X SDR.
    #[serde(rename = "12x-sdr")]
    Sdr12,
    /// 4X DDR.
    #[serde(rename = "4x-ddr")]
    Ddr4,
    /// 12X DDR.
    #[serde(rename = "12x-ddr")]
    Ddr12,
    /// 4X QDR.
    #[serde(rename = "4x-qdr")]
    Qdr4,
    /// 4X FDR.
    #[serde(rename = "4x-fdr")]
    Fdr4,
    /// 4X EDR.
    #[serde(rename = "4x-edr")]
    Edr4,
    /// 4X HDR.
    #[serde(rename = "4x-hdr")]
    Hdr4,
    /// 4X NDR.
    #[serde(rename = "4x-ndr")]
    Ndr4,
    /// 400 Gb/s Ethernet.
    #[serde(rename = "400g")]
    Ethernet400,
    /// 800 Gb/s Ethernet.
    #[serde(rename = "800g")]
    Ethernet800,
}

impl Rate {
    /// Gigabits of data a second: after line coding (8b/10b up to QDR, 64b/66b from FDR on).
    #[must_use]
    pub fn gbps(self) -> f64 {
        match self {
            Self::Gbps(gbps) => gbps,
            Self::Named(named) => match named {
                Named::Sdr1 => 2.0,
                Named::Sdr4 => 8.0,
                Named::Sdr12 => 24.0,
                Named::Ddr4 => 16.0,
                Named::Ddr12 => 48.0,
                Named::Qdr4 => 32.0,
                Named::Fdr4 => 54.54,
                Named::Edr4 => 100.0,
                Named::Hdr4 => 200.0,
                Named::Ndr4 | Named::Ethernet400 => 400.0,
                Named::Ethernet800 => 800.0,
            },
        }
    }
}

/// Links, switches and lanes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FabricConfig {
    /// Of every link.
    pub rate: Rate,
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
    /// Lanes that adaptive routing may use beside those of the deterministic way.
    pub adaptive_lanes: u8,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self {
            rate: Rate::Named(Named::Edr4),
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

/// The most lanes InfiniBand has for data.
pub(crate) const LANES_MAX: u8 = 15;

impl FabricConfig {
    /// Femtoseconds of a byte on a link.
    #[must_use]
    pub fn byte_fs(&self) -> u64 {
        (8e6 / self.rate.gbps()).round() as u64
    }

    /// Time that so many bytes take on a link.
    #[must_use]
    pub fn serialisation(&self, bytes: u32) -> Time {
        (self.byte_fs() * u64::from(bytes)).div_ceil(1000)
    }

    /// Latency of a packet through an empty network, over `switches` switches: the closed form.
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
        let gbps = self.rate.gbps();
        if !(0.001..=100_000.0).contains(&gbps) {
            return Err(Error::config(format!(
                "a link rate of {gbps} Gb/s; give 0.001 to 100000, or a name like \"4x-ndr\""
            )));
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
        if !self.weights.is_empty() && (self.weights.len() != usize::from(self.classes) || self.weights.contains(&0)) {
            let classes = self.classes;
            return Err(Error::config(format!(
                "fabric.weights needs a weight above 0 for each of the {classes} classes"
            )));
        }
        Ok(())
    }
}
