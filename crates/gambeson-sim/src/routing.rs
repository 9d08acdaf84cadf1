//! Which port a packet takes next, and which lane there.
//!
//! Deterministic routing is free of deadlock by construction: dimension order in a mesh or hypercube, the same with two
//! lanes and a dateline in a torus, up and down in a fat tree or a network from a file, a lane for each group in a
//! dragonfly. [`check`] proves it for a given network by looking for a cycle among its channels.
//!
//! Adaptive routing takes any port that leads closer, on lanes of its own, but only if what is buffered there has room for
//! the packet and all that waits for that port; so whatever waits on those lanes can go. Else it waits on the deterministic
//! way, the escape (Duato: A new theory of deadlock-free adaptive routing, 1993). In a network from a file that way may be
//! a longer one, so a packet stays on it, lest it goes to and fro for ever.
//!
//! In a dragonfly there is one shortest way. Adaptive routing goes that or by way of a third group, drawn by lot, whichever
//! the queues at the first switch make the shorter (UGAL), on lanes that rise from group to group in place of an escape.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::topology::{Dragonfly, Shape, Topology};

/// How packets find their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// One way for each pair of nodes.
    #[default]
    Deterministic,
    /// Any way that leads closer and has room; in a dragonfly the shortest, or one by way of a third group.
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

/// Lanes that a class of packets needs so that those which wait there never wait in a circle: all lanes but those of
/// adaptive routing with an escape.
#[must_use]
pub fn lanes(topology: &Topology, routing: Routing) -> u8 {
    match (&topology.shape, routing) {
        (Shape::Grid(grid), _) if grid.wraps && grid.dims.iter().any(|&dim| dim > 2) => 2,
        (Shape::Dragonfly(_), Routing::Deterministic) => 2,
        (Shape::Dragonfly(_), Routing::Adaptive) => 3,
        _ => 1,
    }
}

/// Whether adaptive routing has lanes of its own here, with the deterministic way as their escape.
#[must_use]
pub fn escapes(topology: &Topology) -> bool {
    !matches!(topology.shape, Shape::Dragonfly(_))
}

/// Whether a packet that has taken the escape may leave it again. It always comes closer where each step of either does.
#[must_use]
#[inline]
pub fn leaves_escape(topology: &Topology) -> bool {
    !matches!(topology.shape, Shape::Listed(_))
}

/// The deterministic step of a packet to `node` that came in by `in_port`; an adapter's port stands for a packet that has
/// not been on the deterministic way before.
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
            Hop { port: first + dragonfly.towards(group, router, target_group), lane: 0 }
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

/// The step in a dragonfly of a packet to `node` by way of the group `via`; `node`'s own for the shortest way. The lanes
/// rise: 0 in the first group and to the next, 1 in the one between and from it, 2 in the last.
#[must_use]
#[inline]
pub fn step_by_way(topology: &Topology, dragonfly: &Dragonfly, switch: u32, node: u32, via: u32) -> Hop {
    let first = topology.first_port(switch);
    let target = node / dragonfly.hosts;
    if target == switch {
        return Hop { port: first + node % dragonfly.hosts, lane: 0 };
    }
    let (group, router) = (switch / dragonfly.routers, switch % dragonfly.routers);
    let target_group = target / dragonfly.routers;
    let (port, lane) = if group == target_group {
        (dragonfly.local(router, target % dragonfly.routers), 2)
    } else if group == via {
        (dragonfly.towards(group, router, target_group), 1)
    } else {
        (dragonfly.towards(group, router, via), 0)
    };
    Hop { port: first + port, lane }
}

/// The ports that lead closer to `node`; adaptive routing with an escape chooses among them.
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
        Shape::Listed(listed) => {
            let target = topology.switch_of(node);
            let here = listed.distance(switch, target);
            for port in topology.ports_of(switch) {
                let peer = topology.peer[port as usize];
                if !topology.is_adapter(peer) && listed.distance(topology.switch[peer as usize], target) < here {
                    each(port);
                }
            }
        }
        Shape::Dragonfly(_) => {}
    }
}

/// Looks for a cycle among the lanes that packets wait for, wherever routing may have brought them: between all nodes, over
/// all ports and by way of all groups that it may choose.
///
/// Lanes of adaptive routing with an escape are held but never waited for, so no cycle leads through them.
///
/// # Errors
/// The ports and lanes of a cycle, since then packets can wait for each other for ever.
pub fn check(topology: &Topology, routing: Routing) -> Result<(), Error> {
    let lanes = u32::from(lanes(topology, routing));
    let mut follows: Vec<Vec<u32>> = vec![Vec::new(); (topology.ports() * lanes) as usize];
    let mut entries: Vec<u32> = (0..topology.nodes).collect();
    entries.dedup_by_key(|node| topology.switch_of(*node));
    let adaptive = routing == Routing::Adaptive;
    let by_way = match &topology.shape {
        Shape::Dragonfly(dragonfly) if adaptive => Some(dragonfly),
        _ => None,
    };
    let ways = by_way.map_or(1, Dragonfly::groups);
    for (to, via) in (0..topology.nodes).flat_map(|to| (0..ways).map(move |via| (to, via))) {
        // The port that a packet came in by, and the lane that it holds there, if it is one that others may wait for.
        let mut todo: Vec<(u32, Option<u32>)> =
            entries.iter().map(|&from| (topology.peer[from as usize], None)).collect();
        if let Some(dragonfly) = by_way {
            let group = |node| topology.switch_of(node) / dragonfly.routers;
            todo.retain(|&(port, _)| group(topology.peer[port as usize]) != via || group(to) == via);
        }
        let mut seen = HashSet::new();
        while let Some((in_port, held)) = todo.pop() {
            if topology.is_adapter(in_port) {
                debug_assert_eq!(in_port, to);
                continue;
            }
            if !seen.insert((in_port, held)) {
                continue;
            }
            let switch = topology.switch[in_port as usize];
            let hop = match by_way {
                Some(dragonfly) => step_by_way(topology, dragonfly, switch, to, via),
                None => step(topology, switch, if held.is_some() { in_port } else { to }, to),
            };
            let channel = hop.port * lanes + u32::from(hop.lane);
            if let Some(held) = held {
                let known: &mut Vec<u32> = &mut follows[held as usize];
                if !known.contains(&channel) {
                    known.push(channel);
                }
            }
            todo.push((topology.peer[hop.port as usize], Some(channel)));
            if adaptive && (held.is_none() || leaves_escape(topology)) {
                closer(topology, switch, to, |port| todo.push((topology.peer[port as usize], None)));
            }
        }
    }
    match cycle(&follows) {
        None => Ok(()),
        Some(channels) => {
            let named = channels.iter().map(|channel| {
                let port = channel / lanes;
                format!("switch {} lane {}", topology.switch[port as usize], channel % lanes)
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
            "kind = 'dragonfly'\nrouters = 1\nhosts = 2\nglobals = 1",
            "kind = 'dragonfly'\nrouters = 2\nhosts = 1\nglobals = 1",
            concat!("kind = 'file'\npath = '", env!("CARGO_MANIFEST_DIR"), "/tests/data/golden/ring.txt'"),
            concat!("kind = 'file'\npath = '", env!("CARGO_MANIFEST_DIR"), "/tests/data/irregular.txt'"),
        ] {
            for routing in [Routing::Deterministic, Routing::Adaptive] {
                check(&network(text), routing).unwrap_or_else(|error| panic!("{text}, {routing:?}: {error}"));
            }
        }
    }

    #[test]
    fn a_cycle_is_found() {
        assert_eq!(cycle(&[vec![1], vec![2], vec![3, 1], vec![]]), Some(vec![1, 2]));
        assert_eq!(cycle(&[vec![1, 2], vec![2], vec![]]), None);
    }

    /// A way by another group of a dragonfly has as many links as it is weighed by; the shortest is deterministic routing's.
    #[test]
    fn ways_by_other_groups_have_the_links_they_are_weighed_by() {
        let topology = network("kind = 'dragonfly'\nrouters = 4\nhosts = 2\nglobals = 2");
        let Shape::Dragonfly(dragonfly) = &topology.shape else { panic!("a dragonfly") };
        let group = |switch| switch / dragonfly.routers;
        let links = |from: u32, to: u32, hop: &dyn Fn(u32, u32) -> Hop| {
            let (mut switch, mut in_port, mut links) = (from, topology.peer[(from * dragonfly.hosts) as usize], 0);
            while switch != topology.switch_of(to) {
                in_port = topology.peer[hop(switch, in_port).port as usize];
                switch = topology.switch[in_port as usize];
                links += 1;
                assert!(links < 6, "from {from} to {to}");
            }
            links
        };
        for from in 0..topology.switches {
            for to in 0..topology.nodes {
                let last = topology.switch_of(to);
                for via in (0..dragonfly.groups()).filter(|&via| via != group(from) && group(from) != group(last)) {
                    let found = links(from, to, &|switch, _| step_by_way(&topology, dragonfly, switch, to, via));
                    let shortest = links(from, to, &|switch, in_port| step(&topology, switch, in_port, to));
                    assert_eq!(dragonfly.distance(from, last), shortest);
                    let entrance = dragonfly.entrance(group(from), via);
                    assert_eq!(
                        found,
                        match via == group(last) {
                            true => shortest,
                            false => dragonfly.distance(from, entrance) + dragonfly.distance(entrance, last),
                        }
                    );
                }
            }
        }
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
