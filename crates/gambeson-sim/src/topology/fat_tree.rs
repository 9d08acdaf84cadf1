//! The k-ary n-tree: n levels of k^(n-1) switches, each with k ports down and, below the top, k up.
//!
//! Switches are numbered level by level from the nodes upwards; within a level by n-1 digits of base k. Going up from
//! level l replaces digit l by the number of the port, going down from level l replaces digit l-1.

use super::{Shape, Topology, size};
use crate::error::Error;

/// A k-ary n-tree.
#[derive(Clone, Debug)]
pub struct FatTree {
    /// Ports down, k.
    pub arity: u32,
    /// Levels of switches, n.
    pub levels: u32,
    /// Switches in a level.
    pub width: u32,
    /// k^0, k^1, ... k^n.
    powers: Vec<u32>,
}

impl FatTree {
    pub(super) fn lay_out(arity: u32, levels: u32) -> Result<Topology, Error> {
        if arity < 2 || levels == 0 {
            return Err(Error::config("a fat tree needs an arity of at least 2 and at least one level"));
        }
        let nodes = u64::from(arity).checked_pow(levels);
        let ports = nodes.and_then(|nodes| nodes.checked_mul(2 * u64::from(levels) + 1));
        size("this fat tree", nodes, ports, 2 * u64::from(arity))?;
        let powers: Vec<u32> = (0..=levels).map(|power| arity.pow(power)).collect();
        let width = powers[levels as usize - 1];
        let tree = FatTree { arity, levels, width, powers };
        let radix = |switch: u32| if switch / width + 1 < levels { 2 * arity } else { arity };
        let ports = (0..levels * width).map(radix);
        let mut topology = Topology::unplugged(width * arity, ports, Shape::FatTree(tree.clone()));
        for node in 0..topology.nodes {
            topology.join(node, topology.first_port(node / arity) + node % arity);
        }
        for level in 0..levels - 1 {
            for index in 0..width {
                let switch = level * width + index;
                let digit = tree.digit(index, level);
                for up in 0..arity {
                    let above = index - digit * tree.powers[level as usize] + up * tree.powers[level as usize];
                    let there = topology.first_port((level + 1) * width + above) + digit;
                    topology.join(topology.first_port(switch) + arity + up, there);
                }
            }
        }
        Ok(topology)
    }

    /// Digit `at` of a number.
    #[must_use]
    pub fn digit(&self, number: u32, at: u32) -> u32 {
        number / self.powers[at as usize] % self.arity
    }

    /// The port down to `node` from this switch, if it stands above the node; counted at the switch.
    #[must_use]
    #[inline]
    pub fn down(&self, switch: u32, node: u32) -> Option<u32> {
        let (level, index) = (switch / self.width, switch % self.width);
        let leaf = node / self.arity;
        let power = self.powers[level as usize];
        (index / power == leaf / power).then(|| match level {
            0 => node % self.arity,
            _ => self.digit(leaf, level - 1),
        })
    }

    /// The port up that all packets to `node` take here when routing is deterministic (D-mod-k).
    #[must_use]
    #[inline]
    pub fn up(&self, switch: u32, node: u32) -> u32 {
        self.arity + self.digit(node, switch / self.width)
    }
}
