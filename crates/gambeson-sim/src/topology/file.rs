//! A topology from a file: a line for each link, with the names of its two ends and, where it is not that of the fabric, its
//! rate; `#` begins a comment.
//!
//! ```text
//! n0 leaf0      # a name that begins with n and a digit is a node's
//! leaf0 spine 12x-edr   # any other is a switch's
//! ```

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use super::{RADIX_MAX, Shape, Topology, UNPLUGGED};
use crate::error::Error;
use crate::fabric::Rate;

/// No way from here.
pub(crate) const NO_WAY: u16 = u16::MAX;
/// The tables of ways grow with the square of this.
const SWITCHES_MAX: usize = 4096;

/// Ways through a network without a regular shape: up*/down* (Autonet), which never turns up again after a way down and
/// therefore cannot deadlock.
#[derive(Clone, Debug)]
pub struct Listed {
    switches: u32,
    /// Per target switch, and there per switch and phase (0: may still go up, 1: came down): the port at the switch.
    next: Vec<u16>,
    /// Whether a packet that comes in by this port has come down; by port number.
    comes_down: Vec<bool>,
    /// Per target switch, and there per switch: links on the shortest way, be it up or down.
    distance: Vec<u16>,
}

impl Listed {
    /// The port, counted at its switch, to the switch `target`.
    #[must_use]
    #[inline]
    pub fn next(&self, switch: u32, in_port: u32, target: u32) -> u16 {
        let phase = u32::from(self.comes_down[in_port as usize]);
        self.next[((target * self.switches + switch) * 2 + phase) as usize]
    }

    /// Links on the shortest way between two switches.
    #[must_use]
    #[inline]
    pub fn distance(&self, switch: u32, target: u32) -> u16 {
        self.distance[(target * self.switches + switch) as usize]
    }
}

pub(super) fn read(path: &str) -> Result<Topology, Error> {
    let text = std::fs::read_to_string(path).map_err(|cause| Error::File { file: path.into(), cause })?;
    parse(&text, Path::new(path))
}

fn parse(text: &str, path: &Path) -> Result<Topology, Error> {
    let wrong =
        |line: usize, what: String| Error::Config { file: Some(path.into()), line: Some(line), key: None, what };
    // Number, and the line that names it first.
    let mut switches: HashMap<&str, (u32, usize)> = HashMap::new();
    let mut nodes: HashMap<u32, (u32, usize, Option<Rate>)> = HashMap::new();
    let mut radix: Vec<u32> = Vec::new();
    let mut links: Vec<(u32, u32, Option<Rate>)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let mut names = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(a) = names.next() else { continue };
        let (Some(b), rate, None) = (names.next(), names.next(), names.next()) else {
            return Err(wrong(
                number,
                "a link has two ends, and may have a rate; write the names of two switches, or of a node and a switch"
                    .into(),
            ));
        };
        let rate = match rate.map(|text| (text, Rate::parse(text))) {
            None => None,
            Some((_, Some(rate))) if rate.validate().is_ok() => Some(rate),
            Some((text, _)) => {
                return Err(wrong(
                    number,
                    format!("{text} is no rate; write gigabits a second, or a name like 4x-ndr"),
                ));
            }
        };
        let mut switch = |name| {
            let next = radix.len() as u32;
            let index = switches.entry(name).or_insert((next, number)).0;
            if index == next {
                radix.push(0);
            }
            radix[index as usize] += 1;
            index
        };
        match (node(a), node(b)) {
            (Some(_), Some(_)) => {
                return Err(wrong(number, format!("{a} and {b} are both nodes; join each to a switch")));
            }
            (Some(node), None) | (None, Some(node)) => {
                let index = switch(if self::node(a).is_some() { b } else { a });
                if let Some((_, before, _)) = nodes.insert(node, (index, number, rate)) {
                    return Err(wrong(
                        number,
                        format!("n{node} has a link in line {before} already; a node has one adapter"),
                    ));
                }
            }
            (None, None) if a == b => return Err(wrong(number, format!("{a} is joined with itself; remove the line"))),
            (None, None) => {
                let link = (switch(a), switch(b), rate);
                links.push(link);
            }
        }
    }
    let whole = |what: String| Error::Config { file: Some(path.into()), line: None, key: None, what };
    let count = nodes.len() as u32;
    if count < 2 {
        return Err(whole("fewer than two nodes; a line for a node reads: n0 switch".into()));
    }
    if let Some(missing) = (0..count).find(|node| !nodes.contains_key(node)) {
        return Err(whole(format!("there are {count} nodes but no n{missing}; number them from n0 without gaps")));
    }
    if radix.len() > SWITCHES_MAX {
        return Err(whole(format!("{} switches; tables of ways are kept for {SWITCHES_MAX} at most", radix.len())));
    }
    if let Some(&most) = radix.iter().max().filter(|&&most| u64::from(most) > RADIX_MAX) {
        return Err(whole(format!("a switch has {most} ports; {RADIX_MAX} are the most, so use more switches")));
    }
    let empty = Listed { switches: 0, next: Vec::new(), comes_down: Vec::new(), distance: Vec::new() };
    let mut topology = Topology::unplugged(count, radix.iter().copied(), Shape::Listed(empty));
    let mut used = vec![0; radix.len()];
    let mut port = |topology: &Topology, switch: u32| {
        used[switch as usize] += 1;
        topology.first_port(switch) + used[switch as usize] - 1
    };
    for node in 0..count {
        let (switch, _, rate) = nodes[&node];
        let there = port(&topology, switch);
        topology.join(node, there);
        topology.rates.extend(rate.map(|rate| (node, rate)));
    }
    for (a, b, rate) in links {
        let (a, b) = (port(&topology, a), port(&topology, b));
        topology.join(a, b);
        topology.rates.extend(rate.map(|rate| (a, rate)));
    }
    let named = |index: u32| {
        let found = switches.iter().find(|(_, (known, _))| *known == index);
        found.map(|(&name, &(_, line))| (name, line)).expect("every switch has a name")
    };
    let level = levels(&topology, 0);
    if let Some(lost) = level.iter().position(|&level| level == u32::MAX) {
        let ((lost, line), (root, _)) = (named(lost as u32), named(0));
        return Err(wrong(
            line,
            format!("the network is not connected: no way leads from {root} to {lost}; add the missing link"),
        ));
    }
    let ways = ways(&topology, &level);
    topology.shape = Shape::Listed(ways);
    Ok(topology)
}

fn node(name: &str) -> Option<u32> {
    name.strip_prefix('n')?.parse().ok()
}

/// How far each switch is from one of them.
fn levels(topology: &Topology, from: u32) -> Vec<u32> {
    let mut level = vec![u32::MAX; topology.switches as usize];
    let mut queue = VecDeque::from([from]);
    level[from as usize] = 0;
    while let Some(switch) = queue.pop_front() {
        for (_, other) in neighbours(topology, switch) {
            if level[other as usize] == u32::MAX {
                level[other as usize] = level[switch as usize] + 1;
                queue.push_back(other);
            }
        }
    }
    level
}

/// The ports of a switch that lead to others, and to which.
fn neighbours(topology: &Topology, switch: u32) -> impl Iterator<Item = (u32, u32)> {
    let peers = topology.ports_of(switch).map(|port| (port, topology.peer[port as usize]));
    peers
        .filter(|&(_, peer)| peer != UNPLUGGED && peer >= topology.nodes)
        .map(|(port, peer)| (port, topology.switch[peer as usize]))
}

/// Shortest ways that go up, then down. Up is towards the first switch, and between equals towards the lower number.
fn ways(topology: &Topology, level: &[u32]) -> Listed {
    let count = topology.switches;
    let goes_up = |from: u32, to: u32| (level[to as usize], to) < (level[from as usize], from);
    let mut next = vec![NO_WAY; (count * count * 2) as usize];
    let mut queue = VecDeque::new();
    for target in 0..count {
        let table = &mut next[(target * count * 2) as usize..((target + 1) * count * 2) as usize];
        // Backwards from the target; a state is a switch and whether the packet came down to it.
        let mut seen = vec![false; count as usize * 2];
        for phase in 0..2 {
            seen[(target * 2 + phase) as usize] = true;
            queue.push_back((target, phase));
        }
        while let Some((switch, phase)) = queue.pop_front() {
            for (port, before) in neighbours(topology, switch) {
                let up = goes_up(before, switch);
                // Arriving by a way up is possible only for who may still go up.
                if up == (phase == 1) {
                    continue;
                }
                let back = topology.peer[port as usize] - topology.first_port(before);
                for phase_before in if up { 0..1 } else { 0..2 } {
                    let state = (before * 2 + phase_before) as usize;
                    if !std::mem::replace(&mut seen[state], true) {
                        table[state] = back as u16;
                        queue.push_back((before, phase_before));
                    }
                }
            }
        }
    }
    let comes_down = (0..topology.ports()).map(|port| {
        let peer = topology.peer[port as usize];
        peer != UNPLUGGED
            && !topology.is_adapter(peer)
            && !topology.is_adapter(port)
            && !goes_up(topology.switch[peer as usize], topology.switch[port as usize])
    });
    let distance = (0..count).flat_map(|target| levels(topology, target)).map(|links| links as u16).collect();
    Listed { switches: count, next, comes_down: comes_down.collect(), distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text, Path::new("net.txt")).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        assert!(error("n0 a\nn1 b\n").starts_with("net.txt:2: the network is not connected: no way leads from a to b"));
        assert!(error("n0 a\n\nn1\n").starts_with("net.txt:3: a link has two ends"));
        assert!(error("n0 a\nn1 a quick\n").starts_with("net.txt:2: quick is no rate"));
        assert!(error("n0 a 4x-edr n1\n").contains("two ends"));
        assert!(error("n0 a\nn0 a\n").contains("line 1 already"));
        assert!(error("n0 n1\n").contains("both nodes"));
        assert!(error("n0 a\nn2 a\n").contains("no n1"));
        assert!(error("a a\n").contains("itself"));
        assert!(error("a b # nothing else\n").contains("fewer than two nodes"));
    }

    #[test]
    fn a_link_may_have_a_rate_of_its_own() {
        let text = "n0 a 4x-sdr\nn1 b\na b 12x-sdr # a trunk\n";
        let topology = parse(text, Path::new("net.txt")).unwrap();
        let rates: Vec<f64> = topology.rates.iter().map(|(_, rate)| rate.gbps()).collect();
        assert_eq!(rates, [8.0, 24.0]);
        assert_eq!(topology.rates[0].0, 0);
        assert_eq!(
            [topology.rates[1].0, topology.peer[topology.rates[1].0 as usize]]
                .map(|port| topology.switch[port as usize]),
            [0, 1]
        );
    }

    #[test]
    fn ways_lead_to_every_switch() {
        // A ring of five with a chord, two nodes on each switch.
        let mut text = String::from("s0 s1\ns1 s2\ns2 s3\ns3 s4\ns4 s0\ns1 s4\n");
        for node in 0..10 {
            text += &format!("n{node} s{}\n", node / 2);
        }
        let topology = parse(&text, Path::new("net.txt")).unwrap();
        let Shape::Listed(listed) = &topology.shape else { panic!("a listed shape") };
        for from in 0..topology.nodes {
            for to in 0..topology.nodes {
                let target = topology.switch_of(to);
                let (mut switch, mut in_port) = (topology.switch_of(from), topology.peer[from as usize]);
                let mut hops = 0;
                while switch != target {
                    let port = topology.first_port(switch) + u32::from(listed.next(switch, in_port, target));
                    in_port = topology.peer[port as usize];
                    switch = topology.switch[in_port as usize];
                    hops += 1;
                    assert!(hops < 5, "from {from} to {to}");
                }
            }
        }
    }
}
