//! How a source sends.

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::transport::Transport;

/// A source at each of some nodes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// What reports call it.
    pub name: String,
    /// Share of a link's rate that each node sends.
    pub load: f64,
    /// Length of a packet on the link, headers included; or give `data`.
    pub bytes: u16,
    /// Bytes of data in a packet, which is longer by what its transport adds.
    pub data: Option<u16>,
    /// How packets travel. The default has no acknowledgements.
    pub transport: Transport,
    /// When packets come.
    pub arrivals: Arrivals,
    /// Whom they go to.
    pub pattern: Pattern,
    /// Class of traffic.
    pub class: u8,
    /// How many nodes it is at, chosen at random; all, when it is not said.
    pub nodes: Option<u32>,
    /// Whether it keeps away from nodes that a flood before it in the list is at, as who attacks is not honest.
    pub apart: bool,
    /// When it begins.
    pub from_us: f64,
    /// When it ends; never, when it is not said.
    pub until_us: Option<f64>,
    /// Above 0: a flood under so many partition keys that nobody has.
    pub forged_keys: u16,
    /// Its packets name any other node as their sender.
    pub spoofed: bool,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            name: "traffic".into(),
            load: 0.4,
            bytes: 256,
            data: None,
            transport: Transport::default(),
            arrivals: Arrivals::Poisson,
            pattern: Pattern::Uniform,
            class: 0,
            nodes: None,
            apart: false,
            from_us: 0.0,
            until_us: None,
            forged_keys: 0,
            spoofed: false,
        }
    }
}

/// The longest packet on a link, with room for the longest tag.
pub(super) const LONGEST: u32 = 65_519;

/// When packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Independent of each other.
    Poisson,
    /// At equal distances.
    Regular,
}

/// Whom packets go to.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Any other node.
    Uniform,
    /// Any other node of the sender's partition.
    Partition,
    /// The node whose number is the sender's with all bits turned round.
    Complement,
    /// Row and column changed, nodes taken as a square.
    Transpose,
    /// The next node.
    Neighbour,
    /// One node with probability `share`, any other else.
    Hotspot {
        /// Which.
        node: u32,
        /// From 0 to 1.
        share: f64,
    },
}

impl SourceConfig {
    /// Length of a packet on the link.
    #[must_use]
    pub fn wire(&self) -> u32 {
        self.data.map_or(self.bytes.into(), |data| self.transport.wire(data.into(), true))
    }

    pub(super) fn validate(&self, nodes: u32, classes: u8) -> Result<(), Error> {
        let name = &self.name;
        if !(1e-6..=1.0).contains(&self.load) {
            let load = self.load;
            return Err(Error::config(format!("traffic {name}: a load of {load:?}; give a share from 1e-6 to 1")));
        }
        self.transport.validate().map_err(|what| Error::config(format!("traffic {name}: {what}")))?;
        let (bytes, headers) = (self.wire(), self.transport.headers(true));
        if bytes < headers || bytes > LONGEST {
            return Err(Error::config(format!(
                "traffic {name}: packets of {bytes} bytes; the headers alone take {headers}, and a packet has {LONGEST} \
                 at the most"
            )));
        }
        if self.class >= classes {
            let class = self.class;
            return Err(Error::config(format!(
                "traffic {name}: class {class} of {classes} classes, which count from 0; raise fabric.classes"
            )));
        }
        if !((0.0..1e9).contains(&self.from_us) && self.until_us.is_none_or(|us| us >= self.from_us)) {
            return Err(Error::config(format!("traffic {name}: from_us is from 0 to 1e9, and until_us not before it")));
        }
        if self.forged_keys > 0x7fff {
            return Err(Error::config(format!("traffic {name}: {} forged keys; there are 32767", self.forged_keys)));
        }
        if self.nodes.is_some_and(|count| count > nodes) {
            let count = self.nodes.unwrap_or_default();
            return Err(Error::config(format!(
                "traffic {name}: {count} sources in a network of {nodes} nodes; use fewer"
            )));
        }
        match self.pattern {
            Pattern::Hotspot { node, share } if node >= nodes || !(0.0..=1.0).contains(&share) => Err(Error::config(
                format!("traffic {name}: the hot spot's node is below {nodes} and its share from 0 to 1"),
            )),
            _ => Ok(()),
        }
    }

    /// The nodes it is at, in ascending order.
    pub(super) fn at(&self, nodes: u32, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
        let Some(count) = self.nodes else { return (0..nodes).collect() };
        let mut all: Vec<u32> = (0..nodes).collect();
        for place in 0..count {
            let other = random.random_range(place..nodes);
            all.swap(place as usize, other as usize);
        }
        all.truncate(count as usize);
        all.sort_unstable();
        all
    }
}
