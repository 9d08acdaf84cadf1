//! Which protection holds between two places: the strongest answer of all layers, the first matching rule of each.

use std::net::IpAddr;

use super::{Layer, Policy, Rule, Selector};
use crate::identity::HostIndex;
use crate::suite::Protection;

/// Where a process is, as its authenticated card states it; never a socket's address or a name looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host, if the policy lists it.
    pub host: HostIndex,
    /// The address in the card.
    pub address: IpAddr,
}

/// What holds between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How their messages are protected.
    pub protection: Protection,
    /// The partition whose key goes into theirs: the first that both hosts belong to.
    pub partition: Option<usize>,
    /// The rule that decided, counted over all layers; none when a default did.
    pub rule: Option<usize>,
}

impl Policy {
    /// What holds between two places, in either order.
    pub fn decide(&self, a: Place, b: Place) -> Decision {
        let mut first_rule = 0;
        let mut decided: Option<(Protection, Option<usize>)> = None;
        for layer in &self.layers {
            let (protection, rule) = self.ask(layer, a, b);
            let rule = rule.map(|rule| first_rule + rule);
            decided = match decided {
                // The strongest protection is the least.
                Some((held, _)) if held <= protection => decided,
                _ => Some((protection, rule)),
            };
            first_rule += layer.rules.len();
        }
        let (protection, rule) = decided.expect("a policy has at least one layer");
        Decision { protection, partition: self.shared_partition(a.host, b.host), rule }
    }

    fn ask(&self, layer: &Layer, a: Place, b: Place) -> (Protection, Option<usize>) {
        let matching = layer.rules.iter().enumerate().find(|(_, rule)| self.applies(rule, a, b));
        match matching {
            Some((number, rule)) => (rule.protection, Some(number)),
            None => (layer.protection, None),
        }
    }

    fn applies(&self, rule: &Rule, a: Place, b: Place) -> bool {
        let [one, other] = rule.between;
        (self.selects(one, a) && self.selects(other, b)) || (self.selects(one, b) && self.selects(other, a))
    }

    fn selects(&self, selector: Selector, place: Place) -> bool {
        match selector {
            Selector::Anywhere => true,
            Selector::Host(host) => host == place.host,
            Selector::Subnet(subnet) => subnet.contains(place.address),
            Selector::Partition(partition) => self.partitions[usize::from(partition)].contains(place.host),
        }
    }

    fn shared_partition(&self, a: HostIndex, b: HostIndex) -> Option<usize> {
        self.partitions.iter().position(|partition| partition.contains(a) && partition.contains(b))
    }
}

/// A network of addresses: its own address, with no bits beyond the prefix, and the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subnet {
    address: IpAddr,
    prefix: u8,
}

impl Subnet {
    /// A subnet, unless the prefix is too long or the address has bits beyond it.
    pub(super) fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        if prefix > width(address) || bits(address) & !mask(prefix, width(address)) != 0 {
            return None;
        }
        Some(Self { address, prefix })
    }

    /// `10.77.0.0/24`, or one address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.split_once('/') {
            Some((address, prefix)) => Self::new(address.parse().ok()?, prefix.parse().ok()?),
            None => {
                let address = text.parse().ok()?;
                Self::new(address, width(address))
            }
        }
    }

    pub(super) fn address(self) -> IpAddr {
        self.address
    }

    pub(super) fn prefix(self) -> u8 {
        self.prefix
    }

    fn contains(self, address: IpAddr) -> bool {
        // A dual-stack socket reports IPv4 peers as ::ffff:a.b.c.d.
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && bits(address) & mask(self.prefix, width(address)) == bits(self.address)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(prefix: u8, width: u8) -> u128 {
    let all = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    let beyond = width - prefix;
    if beyond == 128 { 0 } else { all & (u128::MAX << beyond) }
}
