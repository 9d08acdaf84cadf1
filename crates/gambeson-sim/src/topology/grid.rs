//! Mesh, torus and hypercube: switches at the points of a grid.
//!
//! A switch has the ports of its adapters first, then two for each dimension, up and down. At the end of a mesh they stay
//! unplugged. A hypercube is a mesh with two switches along each dimension.

use super::{Shape, Topology, UNPLUGGED, size};
use crate::error::Error;

/// The grid of a mesh, torus or hypercube.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Switches along each dimension.
    pub dims: Vec<u32>,
    /// Whether the ends of each dimension are joined.
    pub wraps: bool,
    /// Adapters on each switch.
    pub hosts: u32,
    /// Coordinates of every switch, one after the other.
    coordinates: Vec<u32>,
}

impl Grid {
    pub(super) fn mesh(dims: &[u32], hosts: u32) -> Result<Topology, Error> {
        lay_out("this mesh", dims, hosts, false)
    }

    pub(super) fn torus(dims: &[u32], hosts: u32) -> Result<Topology, Error> {
        lay_out("this torus", dims, hosts, true)
    }

    pub(super) fn hypercube(dimension: u32, hosts: u32) -> Result<Topology, Error> {
        // More than 64 are too many switches to count, whatever they are.
        lay_out("this hypercube", &vec![2; dimension.min(u64::BITS) as usize], hosts, false)
    }

    /// The coordinates of a switch.
    #[must_use]
    #[inline]
    pub fn coordinates(&self, switch: u32) -> &[u32] {
        let at = switch as usize * self.dims.len();
        &self.coordinates[at..at + self.dims.len()]
    }

    /// The port, counted at its switch, that leads up or down a dimension.
    #[must_use]
    #[inline]
    pub fn port(&self, dimension: usize, up: bool) -> u32 {
        self.hosts + 2 * dimension as u32 + u32::from(!up)
    }

    /// The dimension that a port, counted at its switch, leads along, and whether up; `None` for an adapter's.
    #[must_use]
    pub fn direction(&self, port: u32) -> Option<(usize, bool)> {
        let beyond = port.checked_sub(self.hosts)?;
        Some((beyond as usize / 2, beyond.is_multiple_of(2)))
    }
}

fn lay_out(what: &str, dims: &[u32], hosts: u32, wraps: bool) -> Result<Topology, Error> {
    if dims.is_empty() {
        return Err(Error::config(format!("{what} has no dimension; give dims, for instance [4, 4]")));
    }
    if dims.contains(&0) || hosts == 0 {
        return Err(Error::config(format!("{what} has a dimension of zero switches or zero hosts; use at least 1")));
    }
    let switches = dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim.into()));
    let nodes = switches.and_then(|switches| switches.checked_mul(hosts.into()));
    let radix = u64::from(hosts) + 2 * dims.len() as u64;
    size(what, nodes, switches.and_then(|switches| switches.checked_mul(radix + u64::from(hosts))), radix)?;
    let switches = switches.expect("its size was checked") as u32;

    let mut coordinates = Vec::with_capacity(switches as usize * dims.len());
    for switch in 0..switches {
        let mut rest = switch;
        for &dim in dims {
            coordinates.push(rest % dim);
            rest /= dim;
        }
    }
    let grid = Grid { dims: dims.to_vec(), wraps, hosts, coordinates };
    let shape = Shape::Grid(grid.clone());
    let mut topology =
        Topology::unplugged(switches * hosts, std::iter::repeat_n(radix as u32, switches as usize), shape);
    for switch in 0..switches {
        let first = topology.first_port(switch);
        for host in 0..hosts {
            topology.join(switch * hosts + host, first + host);
        }
        let mut stride = 1;
        for (dimension, &dim) in dims.iter().enumerate() {
            let at = grid.coordinates(switch)[dimension];
            // Of a ring of two the second link would join the same switches again.
            let neighbour = match at + 1 {
                next if next < dim => Some(switch + stride),
                _ if wraps && dim > 2 => Some(switch - stride * (dim - 1)),
                _ => None,
            };
            if let Some(neighbour) = neighbour {
                let there = topology.first_port(neighbour) + grid.port(dimension, false);
                debug_assert_eq!(topology.peer[there as usize], UNPLUGGED);
                topology.join(first + grid.port(dimension, true), there);
            }
            stride *= dim;
        }
    }
    Ok(topology)
}
