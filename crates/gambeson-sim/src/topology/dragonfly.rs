//! The dragonfly: groups whose switches are all joined, and one link between any two groups (Kim, Dally, Scott, Abts:
//! Technology-driven, highly-scalable dragonfly topology, ISCA 2008).
//!
//! A switch has the ports of its adapters first, then those to the others of its group in their order, then its links to
//! other groups.

use super::{Shape, Topology, size};
use crate::error::Error;

/// A dragonfly of a*h+1 groups.
#[derive(Clone, Debug)]
pub struct Dragonfly {
    /// Switches in a group, a.
    pub routers: u32,
    /// Adapters on each switch, p.
    pub hosts: u32,
    /// Links of each switch to other groups, h.
    pub globals: u32,
}

impl Dragonfly {
    pub(super) fn lay_out(routers: u32, hosts: u32, globals: u32) -> Result<Topology, Error> {
        if routers == 0 || hosts == 0 || globals == 0 {
            return Err(Error::config("a dragonfly with zero routers, hosts or globals has no links; use at least 1"));
        }
        let shape = Dragonfly { routers, hosts, globals };
        let groups = u64::from(routers) * u64::from(globals) + 1;
        let switches = groups.checked_mul(routers.into());
        let radix = u64::from(hosts) + u64::from(routers) - 1 + u64::from(globals);
        let nodes = switches.and_then(|switches| switches.checked_mul(hosts.into()));
        let ports = switches.and_then(|switches| switches.checked_mul(radix + u64::from(hosts)));
        size("this dragonfly", nodes, ports, radix)?;
        let switches = switches.expect("its size was checked") as u32;
        let ports = std::iter::repeat_n(radix as u32, switches as usize);
        let mut topology = Topology::unplugged(switches * hosts, ports, Shape::Dragonfly(shape.clone()));
        for switch in 0..switches {
            let (group, router) = (switch / routers, switch % routers);
            let first = topology.first_port(switch);
            for host in 0..hosts {
                topology.join(switch * hosts + host, first + host);
            }
            for other in router + 1..routers {
                let there = topology.first_port(group * routers + other) + shape.local(other, router);
                topology.join(first + shape.local(router, other), there);
            }
            for global in 0..globals {
                let channel = router * globals + global;
                let (there, back) = shape.across(group, channel);
                if group < there {
                    let peer = there * routers + back / globals;
                    let port = topology.first_port(peer) + shape.global(back);
                    topology.join(first + shape.global(channel), port);
                }
            }
        }
        Ok(topology)
    }

    /// Groups.
    #[must_use]
    pub fn groups(&self) -> u32 {
        self.routers * self.globals + 1
    }

    /// The port of a switch to another of its group.
    #[must_use]
    #[inline]
    pub fn local(&self, router: u32, other: u32) -> u32 {
        self.hosts + if other < router { other } else { other - 1 }
    }

    /// The port of a group's link `channel`, at the switch that has it.
    #[must_use]
    #[inline]
    pub fn global(&self, channel: u32) -> u32 {
        self.hosts + self.routers - 1 + channel % self.globals
    }

    /// The group that link `channel` leads to, and what the link is called there.
    #[must_use]
    pub fn across(&self, group: u32, channel: u32) -> (u32, u32) {
        ((group + channel + 1) % self.groups(), self.routers * self.globals - 1 - channel)
    }

    /// The port of a switch towards another group: the group's link to that, or the port to the switch that has it.
    #[must_use]
    #[inline]
    pub fn towards(&self, group: u32, router: u32, other: u32) -> u32 {
        let channel = self.channel(group, other);
        let gateway = channel / self.globals;
        if gateway == router { self.global(channel) } else { self.local(router, gateway) }
    }

    /// Links between the switches `from` and `to` of two groups, the shortest way.
    #[must_use]
    #[inline]
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let channel = self.channel(from / self.routers, to / self.routers);
        let (_, back) = self.across(from / self.routers, channel);
        let ends = [(from, channel), (to, back)];
        1 + ends.map(|(switch, channel)| u32::from(switch % self.routers != channel / self.globals)).iter().sum::<u32>()
    }

    /// The switch by which the link from `from` leads into `group`.
    #[must_use]
    #[inline]
    pub fn entrance(&self, from: u32, group: u32) -> u32 {
        group * self.routers + self.channel(group, from) / self.globals
    }

    /// The link that leads from one group to another.
    #[must_use]
    #[inline]
    pub fn channel(&self, from: u32, to: u32) -> u32 {
        (to + self.groups() - from - 1) % self.groups()
    }
}
