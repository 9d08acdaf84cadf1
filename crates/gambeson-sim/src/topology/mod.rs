//! What is connected with what: adapters and switches, their ports and the links between them.
//!
//! Ports are numbered through: port `n` below the number of nodes is the adapter of node `n`; those of switch `s` follow
//! from [`Topology::first_port`] on. A link joins two ports, and each carries one of its directions.

mod dragonfly;
mod fat_tree;
mod file;
mod grid;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use dragonfly::Dragonfly;
pub use fat_tree::FatTree;
pub use file::Listed;
pub use grid::Grid;

use crate::error::Error;
use crate::fabric::Rate;

/// A port that nothing is plugged into.
pub const UNPLUGGED: u32 = u32::MAX;

/// Which topology, as an experiment names it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TopologyConfig {
    /// Switches in a grid of `dims`, `hosts` adapters on each.
    Mesh {
        /// Switches along each dimension.
        dims: Vec<u32>,
        /// Adapters on each switch.
        #[serde(default = "one")]
        hosts: u32,
    },
    /// The same with the ends of each dimension joined.
    Torus {
        /// Switches along each dimension.
        dims: Vec<u32>,
        /// Adapters on each switch.
        #[serde(default = "one")]
        hosts: u32,
    },
    /// 2^dimension switches, joined where one bit of their numbers differs.
    Hypercube {
        /// Bits of a switch's number.
        dimension: u32,
        /// Adapters on each switch.
        #[serde(default = "one")]
        hosts: u32,
    },
    /// A k-ary n-tree: `levels` of switches with `arity` ports down and as many up.
    FatTree {
        /// Ports down, k.
        arity: u32,
        /// Levels of switches, n; k^n adapters.
        levels: u32,
    },
    /// Groups of `routers`, each with `hosts` adapters and `globals` links to other groups; one link between any two groups.
    Dragonfly {
        /// Switches in a group, a.
        routers: u32,
        /// Adapters on each switch, p.
        hosts: u32,
        /// Links of each switch to other groups, h.
        globals: u32,
    },
    /// From a file that lists links, one a line: two names, and a rate where it has its own. A name
    /// that begins with `n` is a node's, any other a switch's.
    File {
        /// Where it is.
        path: String,
    },
}

fn one() -> u32 {
    1
}

/// A network, laid out.
#[derive(Clone, Debug)]
pub struct Topology {
    /// End nodes, one adapter each.
    pub nodes: u32,
    /// Switches.
    pub switches: u32,
    /// The port at the other end of each port's link.
    pub peer: Vec<u32>,
    /// The switch that each port belongs to; of an adapter's port, [`UNPLUGGED`].
    pub switch: Vec<u32>,
    /// The first port of each switch, and one more for the end.
    first_port: Vec<u32>,
    /// Ports of a switch, where all have as many; else 0.
    radix: u32,
    /// Links with a rate of their own, by one of their ports.
    pub rates: Vec<(u32, Rate)>,
    /// What the network is, for its routing.
    pub shape: Shape,
}

/// The families of networks, with what their routing needs to know.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Mesh, torus or hypercube.
    Grid(Grid),
    /// k-ary n-tree.
    FatTree(FatTree),
    /// Dragonfly.
    Dragonfly(Dragonfly),
    /// Read from a file.
    Listed(Listed),
}

impl Topology {
    /// Lays a network out.
    ///
    /// # Errors
    /// A sentence when the sizes make no network, or the file can't be read or is not connected.
    pub fn new(config: &TopologyConfig) -> Result<Self, Error> {
        match config {
            TopologyConfig::Mesh { dims, hosts } => Grid::mesh(dims, *hosts),
            TopologyConfig::Torus { dims, hosts } => Grid::torus(dims, *hosts),
            TopologyConfig::Hypercube { dimension, hosts } => Grid::hypercube(*dimension, *hosts),
            TopologyConfig::FatTree { arity, levels } => FatTree::lay_out(*arity, *levels),
            TopologyConfig::Dragonfly { routers, hosts, globals } => Dragonfly::lay_out(*routers, *hosts, *globals),
            TopologyConfig::File { path } => file::read(path),
        }
    }

    /// A network without links: `ports[s]` ports at switch `s`.
    fn unplugged(nodes: u32, ports: impl Iterator<Item = u32>, shape: Shape) -> Self {
        let mut first_port = vec![nodes];
        let mut switch = vec![UNPLUGGED; nodes as usize];
        for (index, count) in ports.enumerate() {
            switch.resize(switch.len() + count as usize, index as u32);
            first_port.push(switch.len() as u32);
        }
        let switches = first_port.len() as u32 - 1;
        let radix = first_port[1] - first_port[0];
        let uniform = first_port.windows(2).all(|two| two[1] - two[0] == radix);
        let radix = if uniform { radix } else { 0 };
        Self {
            nodes,
            switches,
            peer: vec![UNPLUGGED; switch.len()],
            switch,
            first_port,
            radix,
            rates: Vec::new(),
            shape,
        }
    }

    /// Joins two ports.
    fn join(&mut self, a: u32, b: u32) {
        debug_assert!(self.peer[a as usize] == UNPLUGGED && self.peer[b as usize] == UNPLUGGED);
        self.peer[a as usize] = b;
        self.peer[b as usize] = a;
    }

    /// All ports, adapters' and switches'.
    #[must_use]
    pub fn ports(&self) -> u32 {
        self.peer.len() as u32
    }

    /// The ports of a switch.
    #[must_use]
    pub fn ports_of(&self, switch: u32) -> Range<u32> {
        self.first_port[switch as usize]..self.first_port[switch as usize + 1]
    }

    /// The first port of a switch.
    #[must_use]
    #[inline]
    pub fn first_port(&self, switch: u32) -> u32 {
        // Computed where it can be, as a table of a large network is not in the processor's cache.
        if self.radix > 0 { self.nodes + switch * self.radix } else { self.first_port[switch as usize] }
    }

    /// The switch that a node is plugged into.
    #[must_use]
    pub fn switch_of(&self, node: u32) -> u32 {
        self.switch[self.peer[node as usize] as usize]
    }

    /// Whether a port is a node's adapter.
    #[must_use]
    pub fn is_adapter(&self, port: u32) -> bool {
        port < self.nodes
    }
}

/// The most ports a network may have: their numbers must leave room for flags.
const PORTS_MAX: u64 = 1 << 28;

/// The most ports of a switch: packets note in 16 bits which they leave by.
const RADIX_MAX: u64 = u16::MAX as u64 - 1;

/// Refuses a network that is empty or too large; `radix` is the ports of its largest switch.
fn size(what: &str, nodes: Option<u64>, ports: Option<u64>, radix: u64) -> Result<(), Error> {
    match (nodes, ports) {
        (Some(0 | 1), _) => Err(Error::config(format!("{what} has fewer than two end nodes; enlarge it"))),
        _ if radix > RADIX_MAX => Err(Error::config(format!(
            "{what} has a switch of {radix} ports; {RADIX_MAX} are the most, so use more and smaller switches"
        ))),
        (Some(_), Some(ports)) if ports <= PORTS_MAX => Ok(()),
        _ => Err(Error::config(format!("{what} has more than {PORTS_MAX} ports; make it smaller"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every link has two ends, every node a switch, and all are connected.
    pub(crate) fn check(topology: &Topology) {
        for (port, &peer) in topology.peer.iter().enumerate() {
            if peer != UNPLUGGED {
                assert_eq!(topology.peer[peer as usize], port as u32);
            }
        }
        let mut seen = vec![false; topology.switches as usize];
        let mut todo = vec![topology.switch_of(0)];
        while let Some(switch) = todo.pop() {
            if !std::mem::replace(&mut seen[switch as usize], true) {
                let peers = topology.ports_of(switch).map(|port| topology.peer[port as usize]);
                todo.extend(
                    peers
                        .filter(|&peer| peer != UNPLUGGED && peer >= topology.nodes)
                        .map(|peer| topology.switch[peer as usize]),
                );
            }
        }
        assert!(seen.iter().all(|&seen| seen));
        assert!((0..topology.nodes).all(|node| topology.peer[node as usize] != UNPLUGGED));
    }

    fn config(text: &str) -> TopologyConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn networks_are_whole() {
        for (text, nodes, switches) in [
            ("kind = 'mesh'\ndims = [4, 4]", 16, 16),
            ("kind = 'mesh'\ndims = [3, 5, 2]\nhosts = 2", 60, 30),
            ("kind = 'torus'\ndims = [4, 2]", 8, 8),
            ("kind = 'torus'\ndims = [5]", 5, 5),
            ("kind = 'hypercube'\ndimension = 4", 16, 16),
            ("kind = 'fat-tree'\narity = 4\nlevels = 3", 64, 48),
            ("kind = 'fat-tree'\narity = 2\nlevels = 1", 2, 1),
            ("kind = 'dragonfly'\nrouters = 4\nhosts = 2\nglobals = 2", 72, 36),
        ] {
            let topology = Topology::new(&config(text)).unwrap();
            assert_eq!((topology.nodes, topology.switches), (nodes, switches), "{text}");
            check(&topology);
        }
    }

    #[test]
    fn impossible_sizes_are_refused_with_a_sentence() {
        for (text, word) in [
            ("kind = 'mesh'\ndims = []", "dimension"),
            ("kind = 'mesh'\ndims = [0, 4]", "zero"),
            ("kind = 'torus'\ndims = [1]", "end nodes"),
            ("kind = 'hypercube'\ndimension = 40", "more than"),
            ("kind = 'hypercube'\ndimension = 4_000_000_000", "more than"),
            ("kind = 'mesh'\ndims = [4, 4]\nhosts = 4_294_967_295", "a switch of 4294967299 ports"),
            ("kind = 'mesh'\ndims = [1, 2]\nhosts = 70_000", "a switch of 70004 ports"),
            ("kind = 'fat-tree'\narity = 0\nlevels = 3", "arity"),
            ("kind = 'dragonfly'\nrouters = 0\nhosts = 2\nglobals = 2", "zero"),
            ("kind = 'file'\npath = '/nowhere'", "/nowhere"),
        ] {
            let error = Topology::new(&config(text)).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
