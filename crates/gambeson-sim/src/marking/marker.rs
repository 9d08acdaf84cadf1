//! Marks on a topology as the simulator has it: which switch writes what, and which node a mark tells.

use super::ddpm::{Ddpm, Shape};
use super::dpm::Dpm;
use super::field::index_bits;
use crate::error::Error;
use crate::topology::{self, Topology};

/// What the switches of one network write.
#[derive(Clone, Debug)]
pub struct Marker {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The distance, above the number of the adapter on its switch.
    Grid { distance: Ddpm, hosts: u32, host_bits: u32 },
    /// The ports on the way up.
    FatTree { ports: Dpm, arity: u32, width: u32 },
}

impl Marker {
    /// Marks for a network, in a field of so many bits.
    ///
    /// # Errors
    /// A sentence when the field is too small for the network, or nobody knows marks for it.
    pub fn new(topology: &Topology, field_bits: u32) -> Result<Self, Error> {
        if field_bits > u64::BITS {
            return Err(Error::config(format!("a field of {field_bits} bits; give 1 to 64, the papers' has 38")));
        }
        let kind = match &topology.shape {
            topology::Shape::Grid(grid) => {
                let host_bits = index_bits(grid.hosts);
                // A side of two without a way round is a bit, which needs no sign.
                let shape = match (grid.wraps, grid.dims.iter().all(|&side| side == 2)) {
                    (true, _) => Shape::Torus(grid.dims.clone()),
                    (false, true) => Shape::Hypercube(grid.dims.len() as u32),
                    (false, false) => Shape::Mesh(grid.dims.clone()),
                };
                let distance = Ddpm::new(&shape, field_bits.saturating_sub(host_bits)).map_err(Error::config)?;
                Kind::Grid { distance, hosts: grid.hosts, host_bits }
            }
            topology::Shape::FatTree(tree) => {
                let ports = Dpm::new(&vec![tree.arity; tree.levels as usize], field_bits).map_err(Error::config)?;
                Kind::FatTree { ports, arity: tree.arity, width: tree.width }
            }
            topology::Shape::Dragonfly(_) | topology::Shape::Listed(_) => {
                return Err(Error::config(
                    "packet marking needs a mesh, torus, hypercube or fat tree; choose one of them or turn marking off",
                ));
            }
        };
        Ok(Marker { kind })
    }

    /// Bits that the marks take.
    #[must_use]
    pub fn bits(&self) -> u32 {
        match &self.kind {
            Kind::Grid { distance, host_bits, .. } => distance.bits() + host_bits,
            Kind::FatTree { ports, .. } => ports.bits(),
        }
    }

    /// What the first switch makes of the mark, whatever the node had written there: it got the packet for node
    /// `destination` through `port`, counted at the switch.
    #[must_use]
    pub fn injected(&self, port: u32, destination: u32) -> u64 {
        match &self.kind {
            Kind::Grid { host_bits, .. } => (Ddpm::INJECTED << host_bits) | u64::from(port),
            Kind::FatTree { ports, .. } => ports.injected(destination.into()),
        }
    }

    /// The mark behind a switch, the first one included, that got the packet through `port`, counted at the switch,
    /// and sends it on to the switch `next`, or to a node.
    #[must_use]
    pub fn hop(&self, mark: u64, switch: u32, port: u32, next: Option<u32>) -> u64 {
        match &self.kind {
            Kind::Grid { distance, host_bits, .. } => match next {
                Some(next) => {
                    let host = mark & ((1 << host_bits) - 1);
                    (distance.hop(mark >> host_bits, switch.into(), next.into()) << host_bits) | host
                }
                None => mark,
            },
            Kind::FatTree { ports, arity, width } => {
                // From above come packets on their way down.
                if port < *arity { ports.up(mark, (switch / width) as usize, port) } else { mark }
            }
        }
    }

    /// The node that a packet with this mark comes from, as switch `here` delivers it; `None` for a mark that no way
    /// leads to.
    #[must_use]
    pub fn source(&self, mark: u64, here: u32) -> Option<u32> {
        let node = match &self.kind {
            Kind::Grid { distance, hosts, host_bits } => {
                let host = mark & ((1 << host_bits) - 1);
                let switch = distance.source(mark >> host_bits, here.into())?;
                (host < u64::from(*hosts)).then(|| switch * u64::from(*hosts) + host)?
            }
            Kind::FatTree { ports, .. } => ports.source(mark)?,
        };
        u32::try_from(node).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::FIELD_BITS;
    use super::*;
    use crate::topology::UNPLUGGED;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn topology(text: &str) -> Topology {
        Topology::new(&toml::from_str(text).expect("a topology")).expect("a network")
    }

    /// Where a switch sends a packet next: any way on a grid; up or down a fat tree, down once it began.
    fn next_port(topology: &Topology, switch: u32, came: u32, to: Option<u32>, random: &mut Xoshiro256PlusPlus) -> u32 {
        let ports = topology.ports_of(switch);
        if let (topology::Shape::FatTree(tree), Some(to)) = (&topology.shape, to) {
            let from_above = came - ports.start >= tree.arity;
            let top = switch / tree.width + 1 == tree.levels;
            match tree.down(switch, to) {
                Some(down) if from_above || top || random.random() => return ports.start + down,
                _ => return ports.start + tree.arity + random.random_range(0..tree.arity),
            }
        }
        loop {
            let port = random.random_range(ports.clone());
            let peer = topology.peer[port as usize];
            if peer != UNPLUGGED && !topology.is_adapter(peer) {
                return port;
            }
        }
    }

    fn check_walks(text: &str, bits: u32, walks: u32) {
        let topology = topology(text);
        let marker = Marker::new(&topology, FIELD_BITS).expect("the field is large enough");
        assert_eq!(marker.bits(), bits, "{text}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(walks.into());
        for walk in 0..walks {
            let source = random.random_range(0..topology.nodes);
            let destination = random.random_range(0..topology.nodes);
            let tree = matches!(topology.shape, topology::Shape::FatTree(_));
            let steps = if tree { u32::MAX } else { random.random_range(0..20) };
            let mut came = topology.peer[source as usize];
            let mut switch = topology.switch_of(source);
            let mut mark = marker.injected(came - topology.first_port(switch), destination);
            for _ in 0..steps {
                let out = next_port(&topology, switch, came, tree.then_some(destination), &mut random);
                let peer = topology.peer[out as usize];
                let next = (!topology.is_adapter(peer)).then(|| topology.switch[peer as usize]);
                mark = marker.hop(mark, switch, came - topology.first_port(switch), next);
                let Some(next) = next else { break };
                (switch, came) = (next, peer);
            }
            assert_eq!(marker.source(mark, switch), Some(source), "{text}: walk {walk} from {source} to {destination}");
        }
    }

    #[test]
    fn marks_tell_the_node_over_the_simulators_own_links() {
        check_walks("kind = 'mesh'\ndims = [4, 4]", 6, 50_000);
        check_walks("kind = 'mesh'\ndims = [3, 5, 2]\nhosts = 3", 3 + 4 + 2 + 2, 50_000);
        check_walks("kind = 'torus'\ndims = [5, 3]\nhosts = 2", 3 + 2 + 1, 50_000);
        check_walks("kind = 'torus'\ndims = [4, 2]", 3, 50_000);
        check_walks("kind = 'hypercube'\ndimension = 6\nhosts = 4", 8, 50_000);
        check_walks("kind = 'fat-tree'\narity = 4\nlevels = 3", 6, 50_000);
        check_walks("kind = 'fat-tree'\narity = 3\nlevels = 4", 8, 50_000);
    }

    #[test]
    fn networks_without_marks_are_refused_with_a_sentence() {
        let check = |text, field_bits, complaint: &str| {
            let sentence = Marker::new(&topology(text), field_bits).expect_err("no marks").to_string();
            assert!(sentence.contains(complaint), "{sentence}");
        };
        check("kind = 'dragonfly'\nrouters = 4\nhosts = 2\nglobals = 2", FIELD_BITS, "needs a mesh");
        check("kind = 'mesh'\ndims = [64, 64]\nhosts = 2", 14, "take 14 bits and the field has 13");
        check("kind = 'fat-tree'\narity = 4\nlevels = 3", 5, "take 6 bits and the field has 5");
    }

    #[test]
    fn a_host_that_is_not_there_is_no_source() {
        let marker = Marker::new(&topology("kind = 'mesh'\ndims = [4, 4]\nhosts = 3"), FIELD_BITS).expect("eight bits");
        assert_eq!(marker.source(2, 5), Some(17));
        assert_eq!(marker.source(3, 5), None);
    }
}
