//! Which protection holds between two places: the strongest answer of all layers, the first matching rule of each.
//!
//! A process may not say its address. Then a rule about a subnet may or may not be meant, and the stronger answer holds:
//! of that rule, and of what would hold without it.

use std::net::IpAddr;

use super::{Asked, CONTROL, Layer, Policy, Rule, Selector, Subject};
use crate::identity::HostIndex;
use crate::suite::Protection;

/// Where a process is, as its authenticated card or greeting states it; never a socket's address or a name looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host, if the policy lists it.
    pub host: HostIndex,
    /// The address that it states, if it does.
    pub address: Option<IpAddr>,
}

/// What holds between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How their messages, or their links, are protected.
    pub protection: Protection,
    /// The partition whose key goes into theirs: the one that the job runs in, or the first that both hosts belong to.
    pub partition: Option<usize>,
    /// The rule that decided, counted over all layers; none when a default did.
    pub rule: Option<usize>,
    /// Whether rules would have it weaker than links of class [`CONTROL`] ever are.
    pub is_control: bool,
}

impl Policy {
    /// What holds for messages between two places, in either order.
    pub fn decide(&self, a: Place, b: Place) -> Decision {
        self.judge(Asked::Messages, a, b)
    }

    /// The weakest that holds for messages on a communicator of this class, in either order. A communicator that asks
    /// for more has that.
    pub fn decide_communicator(&self, class: Option<&str>, a: Place, b: Place) -> Decision {
        self.judge(Asked::Communicators(class), a, b)
    }

    /// What holds for a link of this class between two places, in either order.
    pub fn decide_link(&self, class: &str, a: Place, b: Place) -> Decision {
        let decision = self.judge(Asked::Links(class), a, b);
        if class == CONTROL && decision.protection > Protection::Integrity {
            return Decision { protection: Protection::Integrity, is_control: true, ..decision };
        }
        decision
    }

    fn judge(&self, asked: Asked<'_>, a: Place, b: Place) -> Decision {
        let mut first_rule = 0;
        let mut decided: Option<Answer> = None;
        for layer in &self.layers {
            let (protection, rule) = self.ask(layer, asked, a, b);
            let answer = (protection, rule.map(|rule| first_rule + rule));
            decided = Some(stronger(decided, answer));
            first_rule += layer.rules.len();
        }
        let (protection, rule) = decided.expect("a policy has at least one layer");
        Decision { protection, partition: self.shared_partition(a.host, b.host), rule, is_control: false }
    }

    fn ask(&self, layer: &Layer, asked: Asked<'_>, a: Place, b: Place) -> Answer {
        let mut decided = None;
        for (number, rule) in layer.rules.iter().enumerate().filter(|(_, rule)| rule.speaks_of(asked)) {
            let answer = (rule.protection, Some(number));
            match self.applies(rule, a, b) {
                Some(false) => {}
                Some(true) => return stronger(decided, answer),
                None => decided = Some(stronger(decided, answer)),
            }
        }
        stronger(decided, (layer.protection, None))
    }

    /// Whether a rule is meant; `None`: nobody knows.
    fn applies(&self, rule: &Rule, a: Place, b: Place) -> Option<bool> {
        let [one, other] = rule.between;
        let this_way = both(self.selects(one, a), self.selects(other, b));
        let that_way = both(self.selects(one, b), self.selects(other, a));
        match (this_way, that_way) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        }
    }

    fn selects(&self, selector: Selector, place: Place) -> Option<bool> {
        match selector {
            Selector::Anywhere => Some(true),
            Selector::Host(host) => Some(host == place.host),
            Selector::Subnet(subnet) => place.address.map(|address| subnet.contains(address)),
            Selector::Partition(partition) => Some(self.partitions[usize::from(partition)].contains(place.host)),
        }
    }

    fn shared_partition(&self, a: HostIndex, b: HostIndex) -> Option<usize> {
        let of_job = self.partitions.iter().position(super::Partition::is_of_job);
        of_job.or_else(|| self.partitions.iter().position(|partition| partition.contains(a) && partition.contains(b)))
    }
}

impl Rule {
    /// Whether it speaks of what is asked about.
    pub(super) fn speaks_of(&self, asked: Asked<'_>) -> bool {
        match (&self.subject, asked) {
            (Subject::All, _) | (Subject::Communicators(None), Asked::Communicators(_)) => true,
            (Subject::Links(class), Asked::Links(asked)) => **class == *asked,
            (Subject::Communicators(Some(class)), Asked::Communicators(asked)) => Some(&**class) == asked,
            _ => false,
        }
    }
}

/// A protection, and the rule that says so.
type Answer = (Protection, Option<usize>);

/// The stronger of two answers; of equal ones the earlier.
fn stronger(held: Option<Answer>, answer: Answer) -> Answer {
    // The strongest protection is the least.
    held.filter(|(held, _)| *held <= answer.0).unwrap_or(answer)
}

fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// A network of addresses: its own address, with no bits beyond the prefix, and the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
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
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.split_once('/') {
            Some((address, prefix)) => Self::new(address.parse().ok()?, prefix.parse().ok()?),
            None => {
                let address = text.parse().ok()?;
                Self::new(address, width(address))
            }
        }
    }

    pub(crate) fn address(self) -> IpAddr {
        self.address
    }

    pub(crate) fn prefix(self) -> u8 {
        self.prefix
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
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
