//! Synthetic traffic: sources that send packets by a rule, and what became of those.
//!
//! Poisson or regular arrivals at every node, to destinations by a pattern; among them floods under partition keys that
//! nobody has, which bring filters, traps and the manager into play (IBA paper, sections 4.4 and 5.3).

mod attack;
mod config;
mod replay;

pub use attack::{AttackConfig, AttackKind, AttackOutcome};
pub use config::{Arrivals, Pattern, SourceConfig};
pub use replay::{PacketConfig, Replay, ReplayPlan};

use attack::Attacker;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::Error;
use crate::fabric::{Fabric, Headers, Packet, Refusal, Refusals, Send, Traffic};
use crate::filter::{FilterConfig, Manager, Reporter};
use crate::security::KeyLevel;
use crate::statistics::Distribution;
use crate::time::{self, Time, US};
use crate::transport::Service;

/// Partition keys from here on belong to nobody.
const FORGED: u16 = 0x8000;
/// The bit of a wake's token that means: the first enabled filter is due.
const ENABLE: u32 = 1 << 31;
/// The token of the attacker's wakes and packets.
const ATTACK: u32 = 1 << 30;

/// When packets count.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// They do not before.
    pub from: Time,
    /// Nor after.
    pub until: Time,
}

/// What one source's packets met.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// From the adapter of the sender to the security unit of the receiver and out of it.
    pub latency: Distribution,
    /// Bytes that arrived within the window.
    pub bytes: u64,
    /// Links crossed, in all.
    pub hops: u64,
    /// Mean latency and count in each interval of the series, from the beginning of the window.
    pub series: Vec<(f64, u64)>,
}

/// One source at one node.
struct Source {
    node: u32,
    flow: u16,
    random: Xoshiro256PlusPlus,
    /// The moment after which it sends no more.
    until: Time,
    /// Mean time between two packets.
    spacing: f64,
}

/// All sources of an experiment.
pub struct Synthetic {
    configs: Vec<SourceConfig>,
    sources: Vec<Source>,
    flows: Vec<Flow>,
    interval: Option<Time>,
    level: KeyLevel,
    window: Window,
    partitions: u32,
    nodes: u32,
    side: u32,
    manager: Manager,
    reporters: Vec<Reporter>,
    /// Filters that are to be enabled: when, port, key.
    due: Vec<(Time, u32, u16)>,
    /// Packets with forged keys that reached their victims.
    leaked: u64,
    /// Traps that named the true sender, and that did not.
    blamed: [u64; 2],
    attacker: Option<Attacker>,
    /// Honest packets that their receivers dropped.
    refused: Refusals,
}

/// What a [`Synthetic`] is made from.
pub struct Plan<'p> {
    /// Its sources.
    pub sources: &'p [SourceConfig],
    /// What keys belong to.
    pub level: KeyLevel,
    /// The filters' timing.
    pub filter: &'p FilterConfig,
    /// Groups of nodes that talk among themselves.
    pub partitions: u32,
    /// When packets count.
    pub window: Window,
    /// Intervals of the latency's course.
    pub interval: Option<Time>,
    /// Who attacks, beside the sources.
    pub attack: Option<&'p AttackConfig>,
    /// Where all random numbers come from.
    pub seed: u64,
}

impl Synthetic {
    /// Makes the sources and has them begin.
    ///
    /// # Errors
    /// A sentence, when a source makes no sense on this fabric.
    pub fn new(plan: &Plan<'_>, fabric: &mut Fabric) -> Result<Self, Error> {
        let nodes = fabric.topology().nodes;
        let most = (nodes / 2).min(FORGED.into());
        if plan.partitions == 0 || plan.partitions > most {
            let what = format!(
                "{} partitions of {nodes} nodes; with 1 to {most} everybody has somebody to talk to",
                plan.partitions
            );
            return Err(Error::about("partitions")(Error::config(what)));
        }
        let mut this = Self {
            configs: plan.sources.to_vec(),
            sources: Vec::new(),
            flows: Vec::new(),
            interval: plan.interval,
            level: plan.level,
            window: plan.window,
            partitions: plan.partitions,
            nodes,
            side: nodes.isqrt(),
            manager: Manager::new(plan.filter),
            reporters: std::iter::repeat_with(|| Reporter::new(plan.filter)).take(nodes as usize).collect(),
            due: Vec::new(),
            leaked: 0,
            blamed: [0; 2],
            attacker: None,
            refused: Refusals::default(),
        };
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
        let mut hostile = vec![false; nodes as usize];
        for (flow, config) in plan.sources.iter().enumerate() {
            config.validate(nodes, fabric.classes()).map_err(Error::about(&format!("traffic.{flow}")))?;
            let bins = plan.interval.map_or(0, |interval| (plan.window.until - plan.window.from).div_ceil(interval));
            this.flows.push(Flow { series: vec![(0.0, 0); bins as usize], ..Flow::default() });
            let until = config.until_us.map_or(Time::MAX, |us| (us * US as f64) as Time);
            for node in config.at(nodes, &mut seeds) {
                let random = Xoshiro256PlusPlus::from_rng(&mut seeds);
                let attacks = plan.attack.is_some_and(|attack| attack.node == node);
                if attacks || config.apart && hostile[node as usize] {
                    continue;
                }
                hostile[node as usize] |= config.forged_keys > 0;
                let token = this.sources.len() as u32;
                let spacing = fabric.serialisation(node, config.wire()) as f64 / config.load;
                this.sources.push(Source { node, flow: flow as u16, random, until, spacing });
                let begin = (config.from_us * US as f64) as Time;
                // Regular sources do not all begin at once.
                let first = (this.sources[token as usize].random.random::<f64>() * spacing) as Time;
                fabric.wake(begin + first, token);
            }
        }
        if this.sources.is_empty() {
            return Err(Error::about("traffic")(Error::config(
                "no node sends anything; raise traffic.nodes, or choose another attack.node, if the attacker has the only one",
            )));
        }
        if let Some(attack) = plan.attack {
            let random = Xoshiro256PlusPlus::from_rng(&mut seeds);
            let honest = &plan.sources[0];
            let wire = (honest.wire() as u16, honest.transport);
            this.attacker = Some(Attacker::new(attack, plan.level, plan.partitions, wire, random, fabric)?);
            fabric.wake((attack.from_us * US as f64) as Time, ATTACK);
        }
        Ok(this)
    }

    /// Honest packets that their receivers dropped, of a fabric that checks packets.
    #[must_use]
    pub fn refused(&self) -> Refusals {
        self.refused
    }

    /// What the attack came to, if there is one.
    #[must_use]
    pub fn attack(&self, fabric: &Fabric) -> Option<AttackOutcome> {
        let attacker = self.attacker.as_ref()?;
        Some(AttackOutcome { honest_refused: self.refused, alerts: fabric.alerts(), ..attacker.outcome })
    }

    /// What became of each source's packets, in the order of the plan.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Packets under forged partition keys that reached their victims.
    #[must_use]
    pub fn leaked(&self) -> u64 {
        self.leaked
    }

    /// Traps that named the true sender, and that did not.
    #[must_use]
    pub fn blamed(&self) -> [u64; 2] {
        self.blamed
    }

    /// The traps' receiver.
    #[must_use]
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// A destination for a packet of this source.
    fn destination(&mut self, token: u32) -> u32 {
        let Self { configs, sources, nodes, partitions, side, .. } = self;
        let Source { node, flow, random, .. } = &mut sources[token as usize];
        let (node, nodes, side) = (*node, *nodes, *side);
        // The next one over where the rule leads back to the sender.
        let other = |to: u32| if to == node { (to + 1) % nodes } else { to };
        match configs[usize::from(*flow)].pattern {
            Pattern::Uniform => {
                let to = random.random_range(0..nodes - 1);
                to + u32::from(to >= node)
            }
            Pattern::Partition => {
                // Node n is in partition n modulo their number.
                let members = (nodes - node % *partitions).div_ceil(*partitions);
                let to = random.random_range(0..members - 1);
                (to + u32::from(to >= node / *partitions)) * *partitions + node % *partitions
            }
            Pattern::Complement => other(nodes - 1 - node),
            Pattern::Transpose => other(if node < side * side { node % side * side + node / side } else { node }),
            Pattern::Neighbour => (node + 1) % nodes,
            Pattern::Hotspot { node: spot, share } => {
                if spot != node && random.random::<f64>() < share {
                    return spot;
                }
                let to = random.random_range(0..nodes - 1);
                to + u32::from(to >= node)
            }
        }
    }

    fn key(&self, from: u32, to: u32, service: Service) -> u64 {
        match self.level {
            KeyLevel::None => 0,
            KeyLevel::Partition => u64::from(from % self.partitions),
            // A datagram's queue pair has one key for all who speak to it (IBA paper, section 5.1.5).
            KeyLevel::QueuePair if service.is_datagram() => 1 << 63 | u64::from(to),
            KeyLevel::QueuePair => u64::from(from.min(to)) << 32 | u64::from(from.max(to)),
        }
    }
}

impl Synthetic {
    /// A receiver tells the subnet manager of a P_Key that is not its own, if it has not done so just now.
    fn report(&mut self, now: Time, packet: &Packet, fabric: &mut Fabric) {
        self.leaked += 1;
        if self.reporters[packet.to as usize].reports(now) {
            let suspect = fabric.traced(packet);
            let right = suspect == Some(packet.from);
            self.blamed[usize::from(!right)] += 1;
            let port = suspect.map(|node| fabric.topology().peer[node as usize]);
            if let Some(enable) = port.and_then(|port| self.manager.trap(now, packet.p_key, port)) {
                self.due.push((enable.at, enable.port, enable.key));
                fabric.wake(enable.at, ENABLE);
            }
        }
    }
}

impl Traffic for Synthetic {
    fn wake(&mut self, now: Time, token: u32, fabric: &mut Fabric) {
        if token & ENABLE != 0 {
            let place = self.due.iter().position(|&(at, ..)| at <= now).expect("a filter is due");
            let (_, port, key) = self.due.remove(place);
            return fabric.enable_filter(now, port, key);
        }
        if token == ATTACK {
            let Some(attacker) = &mut self.attacker else { return };
            attacker.act(now, ATTACK, self.configs[0].class, fabric);
            let wire = self.configs[0].wire();
            let spacing = fabric.serialisation(attacker.config.node, wire) as f64 / attacker.config.load;
            return fabric.wake(now.saturating_add((spacing as Time).max(1)), ATTACK);
        }
        let Source { node, flow, until, .. } = self.sources[token as usize];
        if now >= until {
            return;
        }
        let to = self.destination(token);
        let config = &self.configs[usize::from(flow)];
        let p_key = match config.forged_keys {
            0 => (node % self.partitions) as u16,
            keys => FORGED + self.sources[token as usize].random.random_range(0..keys),
        };
        let claimed = config.spoofed.then(|| {
            let other = self.sources[token as usize].random.random_range(0..self.nodes - 1);
            other + u32::from(other >= node)
        });
        let send = Send {
            from: node,
            to,
            claimed,
            bytes: config.wire() as u16,
            token: flow.into(),
            key: self.key(node, to, config.transport.service),
            p_key,
            class: config.class,
            owners: [0; 2],
            transport: config.transport,
            acknowledge: true,
            last: false,
        };
        let spacing = self.sources[token as usize].spacing;
        let next = match config.arrivals {
            Arrivals::Regular => spacing,
            // libm's logarithm, which is the same everywhere.
            Arrivals::Poisson => -libm::log(1.0 - self.sources[token as usize].random.random::<f64>()) * spacing,
        };
        fabric.send(now, &send);
        fabric.wake(now.saturating_add((next as Time).max(1)), token);
    }

    fn arrived(&mut self, now: Time, packet: &Packet, fabric: &mut Fabric) {
        if packet.token == ATTACK {
            let Some(attacker) = &mut self.attacker else { return };
            return attacker.came_to(packet, None, fabric);
        }
        if packet.p_key >= FORGED {
            self.report(now, packet, fabric);
        }
        if now < self.window.from || now >= self.window.until {
            return;
        }
        let flow = &mut self.flows[packet.token as usize];
        flow.bytes += u64::from(packet.bytes);
        flow.hops += u64::from(packet.hops);
        let latency = now - packet.created;
        flow.latency.add(latency);
        if let Some(interval) = self.interval {
            let (sum, count) = &mut flow.series[((now - self.window.from) / interval) as usize];
            *sum += time::to_ns(latency);
            *count += 1;
        }
    }

    fn refused(&mut self, now: Time, packet: &Packet, refusal: Refusal, fabric: &mut Fabric) {
        if refusal == Refusal::PKey {
            self.report(now, packet, fabric);
        }
        match &mut self.attacker {
            Some(attacker) if packet.token == ATTACK => attacker.came_to(packet, Some(refusal), fabric),
            _ => self.refused.add(refusal),
        }
    }

    fn overheard(&mut self, now: Time, packet: &Packet, headers: &Headers) {
        if let Some(attacker) = &mut self.attacker {
            attacker.overheard(now, packet, headers);
        }
    }

    fn left(&mut self, _: Time, _: u32, _: &mut Fabric) {}

    fn is_running(&self, _: &Packet) -> bool {
        true
    }

    fn is_valid(&self, packet: &Packet) -> bool {
        // Which is what the port of its sender knows.
        u32::from(packet.p_key) == packet.from % self.partitions
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    #[test]
    fn who_floods_sends_nothing_else_where_the_honest_keep_apart() {
        let sent = |apart: &str| {
            let text = format!(
                "topology = {{ kind = 'mesh', dims = [4, 4] }}\nmeasure = {{ warmup_us = 20, for_us = 200 }}\n\
                 [filter]\nscheme = 'ingress'\n\
                 [[traffic]]\nnodes = 4\nload = 0.9\nforged_keys = 1\n[[traffic]]\nload = 0.2\n{apart}\n"
            );
            Experiment::parse(&text, None).unwrap().run().unwrap().flows[1].accepted
        };
        let (everywhere, apart) = (sent(""), sent("apart = true"));
        assert!((apart / everywhere / 0.75 - 1.0).abs() < 0.05, "{apart} of {everywhere}");
    }

    const QUIET: &str = "topology = { kind = 'mesh', dims = [4, 4] }\nmeasure = { warmup_us = 20, for_us = 200 }\n";

    fn run(text: &str) -> crate::experiment::Outcome {
        Experiment::parse(&format!("{QUIET}{text}"), None)
            .unwrap()
            .run()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn reliable_services_acknowledge_each_packet_and_others_none() {
        let of = |service: &str, data: &str| {
            let source = format!("[[traffic]]\nload = 0.2\n{data}\ntransport = {{ service = '{service}' }}\n");
            run(&format!("[fabric]\nrate = '4x-sdr'\n{source}"))
        };
        for (service, acknowledged) in [("rc", true), ("uc", false), ("rd", true), ("ud", false)] {
            let outcome = of(service, "data = 256");
            // But for those under way at the end.
            let missing = outcome.arrived - if acknowledged { outcome.acknowledged } else { outcome.arrived };
            assert!(missing < 20 && (outcome.acknowledged > 1000) == acknowledged, "{service}: {outcome:?}");
        }
        // A length on the link is what it is whatever the service; the default is unreliable connections.
        let latency = |outcome: crate::experiment::Outcome| outcome.flows[0].latency;
        assert_eq!(
            latency(of("ud", "bytes = 256")),
            latency(run("fabric = { rate = '4x-sdr' }\n[[traffic]]\nload = 0.2\n"))
        );
        assert_eq!(latency(of("ud", "data = 222")), latency(of("ud", "bytes = 258")));
    }

    #[test]
    fn a_longer_tag_makes_longer_packets() {
        let of = |tag: u32, bytes: u32| {
            run(&format!(
                "[fabric]\nrate = '4x-sdr'\n[[traffic]]\nload = 0.0001\nbytes = {bytes}\n\
                 [security]\nlevel = 'partition'\ntag_bytes = {tag}\ncache = {{ entries = 4 }}\n"
            ))
            .flows[0]
                .latency
                .min_ns
        };
        assert_eq!(of(16, 257) - of(4, 257), 12.0, "twelve bytes at 8 Gb/s");
    }

    #[test]
    fn defences_against_replays_let_honest_packets_by_as_far_as_they_say() {
        let refused = |routing: &str, replay: &str| {
            let outcome = run(&format!(
                "routing = '{routing}'\nfabric = {{ rate = '4x-sdr' }}\n[[traffic]]\nload = 0.6\n[security]\nlevel = 'queue-pair'\n\
                 replay = {{ {replay} }}\n[security.memory]\naccess_ns = 10\noutstanding = 0\n"
            ));
            assert!(outcome.arrived > 5_000);
            outcome.refused.sum()
        };
        assert_eq!(refused("deterministic", "defence = 'sequence-window'"), 0);
        assert_eq!(refused("adaptive", "defence = 'sequence-window'"), 0);
        assert_eq!(refused("deterministic", "defence = 'timestamps', tick_ms = 0.05"), 0);
        assert!(refused("deterministic", "defence = 'timestamps', tick_ms = 0.05, tolerance = 0") > 0);
    }

    #[test]
    fn what_an_attack_cannot_be_is_said() {
        let error = |attack: &str| {
            let text = format!("{QUIET}[[traffic]]\nload = 0.2\n[attack]\n{attack}\n");
            Experiment::parse(&text, None).and_then(|it| it.run().map(drop)).unwrap_err().to_string()
        };
        assert!(error("kind = 'forge'\nnode = 16").contains("last node is 15"));
        assert!(error("kind = 'forge'\nnode = 1\ntap = 99").contains("last switch is 15"));
        assert!(error("kind = 'replay'\nnode = 1\nload = 0").contains("attack.load"));
        assert!(error("kind = 'steal'\nnode = 1").contains("eavesdrop"));
        let alone = format!("{QUIET}[[traffic]]\nload = 0.2\nnodes = 0\n[attack]\nkind = 'forge'\nnode = 1\n");
        assert!(Experiment::parse(&alone, None).unwrap().run().unwrap_err().to_string().contains("no node sends"));
        let writes = format!("{QUIET}[[traffic]]\nload = 0.2\ntransport = {{ service = 'ud', operation = 'write' }}\n");
        assert!(Experiment::parse(&writes, None).unwrap().run().unwrap_err().to_string().contains("cannot write"));
    }
}
