//! Which port a packet takes next, and which lane there.
//!
//! Deterministic routing is free of deadlock by construction: dimension order in a mesh or hypercube, the same with two
//! lanes and a dateline in a torus, up and down in a fat tree or a network from a file, a lane for each group in a
//! dragonfly. [`check`] proves it for a given network by looking for a cycle among its channels.
//!
//! Adaptive routing (grids and fat trees) takes any port that leads closer, on lanes of its own, but only if what is
//! buffered there has room for the packet and all that waits for that port; so whatever waits on those lanes can go. Else
//! it waits on the deterministic way, the escape (Duato: A new theory of deadlock-free adaptive routing, 1993).

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::topology::{Shape, Topology};

/// How packets find their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// One way for each pair of nodes.
    #[default]
    Deterministic,
    /// Any shortest way with room.
    Adaptive,
}

/// The next step of a packet: a port, and a lane there among those of the packet's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Number of the port that it leaves by.
    pub port: u32,
    /// Lane within its class.
    pub lane: u8,
}

/// Lanes that a class of packets needs so that deterministic routing has no deadlock.
#[must_use]
pub fn lanes(topology: &Topology) -> u8 {
    match &topology.shape {
        Shape::Grid(grid) if grid.wraps && grid.dims.iter().any(|&dim| dim > 2) => 2,
        Shape::Dragonfly(_) => 2,
        _ => 1,
    }
}

/// The deterministic step of a packet to `node` that came in by `in_port`.
#[must_use]
#[inline]
pub fn step(topology: &Topology, switch: u32, in_port: u32, node: u32) -> Hop {
    leg(topology, switch, in_port, node).0
}

/// The deterministic step, and how many of the switches behind it do the same: they have it leave by the port with the
/// same number, counted at the switch, on the same lane. So nothing is looked up there.
#[must_use]
#[inline]
pub fn leg(topology: &Topology, switch: u32, in_port: u32, node: u32) -> (Hop, u32) {
    let first = topology.first_port(switch);
    let hop = match &topology.shape {
        Shape::Grid(grid) => {
            let target = node / grid.hosts;
            if target == switch {
                return (Hop { port: first + node % grid.hosts, lane: 0 }, 0);
            }
            let (here, there) = (grid.coordinates(switch), grid.coordinates(target));
            let dimension = here.iter().zip(there).position(|(a, b)| a != b).expect("another switch is elsewhere");
            let (a, b, dim) = (here[dimension], there[dimension], grid.dims[dimension]);
            if !grid.wraps || dim == 2 {
                return (Hop { port: first + grid.port(dimension, b > a), lane: 0 }, a.abs_diff(b) - 1);
            }
            let up = (b + dim - a) % dim <= dim / 2;
            // Lane 0 up to the link that joins the ends, lane 1 for what need not cross it any more.
            let crosses = if up { b < a } else { b > a };
            let more = match (crosses, up) {
                (true, true) => dim - a - 1,
                (true, false) => a,
                (false, _) => a.abs_diff(b) - 1,
            };
            return (Hop { port: first + grid.port(dimension, up), lane: u8::from(!crosses) }, more);
        }
        Shape::FatTree(tree) => {
            Hop { port: first + tree.down(switch, node).unwrap_or_else(|| tree.up(switch, node)), lane: 0 }
        }
        Shape::Dragonfly(dragonfly) => {
            let target = node / dragonfly.hosts;
            if target == switch {
                return (Hop { port: first + node % dragonfly.hosts, lane: 0 }, 0);
            }
            let (group, router) = (switch / dragonfly.routers, switch % dragonfly.routers);
            let (target_group, target_router) = (target / dragonfly.routers, target % dragonfly.routers);
            if group == target_group {
                return (Hop { port: first + dragonfly.local(router, target_router), lane: 1 }, 0);
            }
            let channel = dragonfly.channel(group, target_group);
            let gateway = channel / dragonfly.globals;
            let port = if gateway == router { dragonfly.global(channel) } else { dragonfly.local(router, gateway) };
            Hop { port: first + port, lane: 0 }
        }
        Shape::Listed(listed) => {
            let out = topology.peer[node as usize];
            let target = topology.switch[out as usize];
            let port = if target == switch { out } else { first + u32::from(listed.next(switch, in_port, target)) };
            Hop { port, lane: 0 }
        }
    };
    (hop, 0)
}

/// The ports that lead closer to `node`; adaptive routing chooses among them.
#[inline]
pub fn closer(topology: &Topology, switch: u32, node: u32, mut each: impl FnMut(u32)) {
    let first = topology.first_port(switch);
    match &topology.shape {
        Shape::Grid(grid) => {
            let (here, there) = (grid.coordinates(switch), grid.coordinates(node / grid.hosts));
            for (dimension, (&a, &b)) in here.iter().zip(there).enumerate() {
                if a == b {
                    continue;
                }
                let dim = grid.dims[dimension];
                let distance = (b + dim - a) % dim;
                let wraps = grid.wraps && dim > 2;
                if if wraps { 2 * distance <= dim } else { b > a } {
                    each(first + grid.port(dimension, true));
                }
                if if wraps { 2 * distance >= dim } else { b < a } {
                    each(first + grid.port(dimension, false));
                }
            }
        }
        Shape::FatTree(tree) => {
            if tree.down(switch, node).is_none() {
                (tree.arity..2 * tree.arity).for_each(|port| each(first + port));
            }
        }
        Shape::Dragonfly(_) | Shape::Listed(_) => {}
    }
}

/// Refuses what this network has no adaptive routing for.
///
/// # Errors
/// A sentence with the remedy.
pub fn suits(topology: &Topology, routing: Routing) -> Result<(), Error> {
    match (&topology.shape, routing) {
        (Shape::Dragonfly(_) | Shape::Listed(_), Routing::Adaptive) => Err(Error::config(
            "adaptive routing is there for meshes, tori, hypercubes and fat trees; use routing = \"deterministic\" here",
        )),
        _ => Ok(()),
    }
}

/// Looks for a cycle among the channels that deterministic routing uses, between all pairs of nodes of different switches.
///
/// # Errors
/// The ports and lanes of a cycle, since then packets can wait for each other for ever.
pub fn check(topology: &Topology) -> Result<(), Error> {
    let lanes = usize::from(lanes(topology));
    let mut follows: Vec<Vec<u32>> = vec![Vec::new(); topology.ports() as usize * lanes];
    let mut entries: Vec<u32> = (0..topology.nodes).collect();
    entries.dedup_by_key(|node| topology.switch_of(*node));
    for &from in &entries {
        for to in 0..topology.nodes {
            let (mut in_port, mut before) = (topology.peer[from as usize], None);
            let mut left = topology.switches + 1;
            while !topology.is_adapter(in_port) {
                let hop = step(topology, topology.switch[in_port as usize], in_port, to);
                let channel = hop.port * lanes as u32 + u32::from(hop.lane);
                if let Some(before) = before.replace(channel) {
                    let known: &mut Vec<u32> = &mut follows[before as usize];
                    if !known.contains(&channel) {
                        known.push(channel);
                    }
                }
                in_port = topology.peer[hop.port as usize];
                left = left.checked_sub(1).ok_or_else(|| {
                    Error::config(format!("routing from node {from} to node {to} runs in circles in this network"))
                })?;
            }
            debug_assert_eq!(in_port, to);
        }
    }
    match cycle(&follows) {
        None => Ok(()),
        Some(channels) => {
            let named = channels.iter().map(|channel| {
                let port = channel / lanes as u32;
                format!("switch {} lane {}", topology.switch[port as usize], channel % lanes as u32)
            });
            let named: Vec<_> = named.collect();
            Err(Error::config(format!("routing can deadlock: packets wait in a circle at {}", named.join(" -> "))))
        }
    }
}

/// A cycle of a directed graph, if it has one: depth first, without recursion.
fn cycle(follows: &[Vec<u32>]) -> Option<Vec<u32>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; follows.len()];
    for start in 0..follows.len() as u32 {
        if marks[start as usize] != Mark::New {
            continue;
        }
        let mut path = vec![(start, 0)];
        marks[start as usize] = Mark::Open;
        while let Some(&mut (channel, ref mut at)) = path.last_mut() {
            match follows[channel as usize].get(*at) {
                None => {
                    marks[channel as usize] = Mark::Done;
                    path.pop();
                }
                Some(&next) => {
                    *at += 1;
                    match marks[next as usize] {
                        Mark::New => {
                            marks[next as usize] = Mark::Open;
                            path.push((next, 0));
                        }
                        Mark::Open => {
                            let from = path.iter().position(|&(known, _)| known == next)?;
                            return Some(path[from..].iter().map(|&(channel, _)| channel).collect());
                        }
                        Mark::Done => {}
                    }
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::TopologyConfig;

    fn network(text: &str) -> Topology {
        let config: TopologyConfig = toml::from_str(text).unwrap();
        Topology::new(&config).unwrap()
    }

    #[test]
    fn no_network_can_deadlock() {
        for text in [
            "kind = 'mesh'\ndims = [4, 4]",
            "kind = 'mesh'\ndims = [3, 2, 4]\nhosts = 2",
            "kind = 'torus'\ndims = [5, 4]",
            "kind = 'torus'\ndims = [3, 2, 3]",
            "kind = 'hypercube'\ndimension = 5",
            "kind = 'fat-tree'\narity = 3\nlevels = 3",
            "kind = 'dragonfly'\nrouters = 4\nhosts = 2\nglobals = 2",
        ] {
            check(&network(text)).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    #[test]
    fn a_cycle_is_found() {
        assert_eq!(cycle(&[vec![1], vec![2], vec![3, 1], vec![]]), Some(vec![1, 2]));
        assert_eq!(cycle(&[vec![1, 2], vec![2], vec![]]), None);
    }

    /// What a leg says of the switches behind is what each of them would say.
    #[test]
    fn legs_are_steps() {
        for text in [
            "kind = 'mesh'\ndims = [5, 3, 2]\nhosts = 2",
            "kind = 'torus'\ndims = [6, 5]",
            "kind = 'torus'\ndims = [2, 7]",
        ] {
            let topology = network(text);
            let mut longest = 0;
            for from in 0..topology.nodes {
                for to in (0..topology.nodes).filter(|&to| topology.switch_of(to) != topology.switch_of(from)) {
                    let mut in_port = topology.peer[from as usize];
                    let mut switch = topology.switch[in_port as usize];
                    let (hop, more) = leg(&topology, switch, in_port, to);
                    let local = hop.port - topology.first_port(switch);
                    for _ in 0..more {
                        in_port = topology.peer[(topology.first_port(switch) + local) as usize];
                        switch = topology.switch[in_port as usize];
                        let next = step(&topology, switch, in_port, to);
                        assert_eq!((next.port - topology.first_port(switch), next.lane), (local, hop.lane), "{text}");
                    }
                    longest = longest.max(more);
                }
            }
            assert!(longest > 1, "{text}");
        }
    }

    #[test]
    fn ways_are_shortest_in_grids() {
        let torus = network("kind = 'torus'\ndims = [5, 4]");
        let distance = |a: u32, b: u32, dim: u32| ((b + dim - a) % dim).min((a + dim - b) % dim);
        for from in 0..20 {
            for to in 0..20 {
                let (mut in_port, mut hops) = (torus.peer[from as usize], 0);
                while !torus.is_adapter(in_port) {
                    let switch = torus.switch[in_port as usize];
                    let hop = step(&torus, switch, in_port, to);
                    let mut found = switch == to;
                    closer(&torus, switch, to, |port| found |= port == hop.port);
                    assert!(found, "the deterministic step is one of those that lead closer");
                    in_port = torus.peer[hop.port as usize];
                    hops += 1;
                }
                assert_eq!(in_port, to);
                assert_eq!(hops - 1, distance(from % 5, to % 5, 5) + distance(from / 5, to / 5, 4));
            }
        }
    }
}
