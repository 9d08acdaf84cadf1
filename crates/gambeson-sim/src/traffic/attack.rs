//! One node that attacks: it listens at a switch, learns from what it hears, and makes use of that (IBA paper, sections
//! 4.2, 4.3 and 6).

use std::collections::VecDeque;

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::FORGED;
use crate::error::Error;
use crate::fabric::{Fabric, Headers, Packet, Refusal, Refusals, Send};
use crate::security::KeyLevel;
use crate::time::{Time, US};
use crate::transport::Transport;

/// Who attacks, and how. The node sends nothing else.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AttackConfig {
    /// What it does.
    pub kind: AttackKind,
    /// Which node it is.
    pub node: u32,
    /// The switch that it listens at, its own unless told.
    #[serde(default)]
    pub tap: Option<u32>,
    /// Share of its link's rate that it sends.
    #[serde(default = "half")]
    pub load: f64,
    /// When it begins to send; it listens from the beginning.
    #[serde(default)]
    pub from_us: f64,
    /// Whether its packets name the sender of the packet that they are made from, or any other node (type III).
    #[serde(default)]
    pub spoofed: bool,
    /// Whether they have a plain ICRC, under the algorithm 0, where there should be a tag.
    #[serde(default)]
    pub plain: bool,
    /// How long a packet that is sent again was kept: the last one that is as old.
    #[serde(default)]
    pub age_us: f64,
}

fn half() -> f64 {
    0.5
}

/// The paper's types of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttackKind {
    /// Type I: it reads what it hears.
    Eavesdrop,
    /// Types II and III: it makes packets of its own with the P_Key, Q_Key or R_Key of those that it hears.
    Forge,
    /// It sends again what it has heard.
    Replay,
    /// Type IV: it floods all nodes under a P_Key that nobody has.
    Flood,
}

impl AttackConfig {
    pub(super) fn validate(&self, fabric: &Fabric) -> Result<(), Error> {
        let (nodes, switches) = (fabric.topology().nodes, fabric.topology().switches);
        let what = if self.node >= nodes {
            format!("attack.node is {}; the last node is {}", self.node, nodes - 1)
        } else if self.tap.is_some_and(|tap| tap >= switches) {
            format!("attack.tap is {}; the last switch is {}", self.tap.unwrap_or_default(), switches - 1)
        } else if !(1e-6..=1.0).contains(&self.load) {
            format!("attack.load is {:?}; give a share of the link from 1e-6 to 1", self.load)
        } else if !(0.0..1e9).contains(&self.from_us) || !(0.0..1e9).contains(&self.age_us) {
            "attack.from_us and attack.age_us are from 0 to 1e9".into()
        } else {
            return Ok(());
        };
        Err(Error::about("attack")(Error::config(what)))
    }
}

/// What an attack came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct AttackOutcome {
    /// Others' packets that the attacker heard.
    pub overheard: u64,
    /// Those that it could read.
    pub readable: u64,
    /// Packets that it sent.
    pub sent: u64,
    /// Those that their receivers handed to a process.
    pub taken: u64,
    /// Those that their receivers dropped.
    pub refused: Refusals,
    /// Those that got to a receiver, whose claimed sender is the true one, or another.
    pub sender_claimed: [u64; 2],
    /// The same for the sender whom the receiver finds by the switches' marks, where they mark.
    pub sender_traced: [u64; 2],
    /// Honest packets that their receivers dropped.
    pub honest_refused: Refusals,
    /// Alerts of receivers.
    pub alerts: u64,
}

/// A packet that the attacker heard.
#[derive(Clone, Copy)]
struct Captured {
    at: Time,
    packet: Packet,
    headers: Headers,
}

/// The node that attacks.
pub(super) struct Attacker {
    pub(super) config: AttackConfig,
    level: KeyLevel,
    partitions: u32,
    nodes: u32,
    /// Length and headers of its packets, which are those of the honest.
    bytes: u16,
    transport: Transport,
    random: Xoshiro256PlusPlus,
    /// What it may send again, in the order of time, or the packet that it forges after.
    captured: VecDeque<Captured>,
    /// The highest sequence that it has heard or sent.
    sequence: u64,
    pub(super) outcome: AttackOutcome,
}

/// Packets that are kept to be sent again.
const KEPT: usize = 1 << 16;

impl Attacker {
    pub(super) fn new(
        config: &AttackConfig,
        level: KeyLevel,
        partitions: u32,
        (bytes, transport): (u16, Transport),
        random: Xoshiro256PlusPlus,
        fabric: &mut Fabric,
    ) -> Result<Self, Error> {
        config.validate(fabric)?;
        let own = fabric.topology().switch_of(config.node);
        fabric.listen_at(config.tap.unwrap_or(own));
        Ok(Self {
            config: config.clone(),
            level,
            partitions,
            nodes: fabric.topology().nodes,
            bytes,
            transport,
            random,
            captured: VecDeque::new(),
            sequence: 0,
            outcome: AttackOutcome::default(),
        })
    }

    /// Whether it has the key that a packet between two others is under: its partition's, which its own adapter seals
    /// with; or a datagram queue pair's, which whoever may speak to that queue pair is given (section 5.1.5).
    fn holds(&self, packet: &Packet, headers: &Headers) -> bool {
        let same_partition = packet.to % self.partitions == self.config.node % self.partitions;
        match self.level {
            KeyLevel::None => false,
            KeyLevel::Partition => same_partition,
            KeyLevel::QueuePair => headers.service.is_datagram() && same_partition,
        }
    }

    /// Whether it can make packets that say what it likes.
    fn can_make(&self, packet: &Packet, headers: &Headers) -> bool {
        self.level == KeyLevel::None || self.holds(packet, headers)
    }

    pub(super) fn overheard(&mut self, now: Time, packet: &Packet, headers: &Headers) {
        let mine = self.config.node;
        if packet.from == mine || packet.to == mine {
            return;
        }
        self.outcome.overheard += 1;
        self.outcome.readable += u64::from(!headers.tagged || self.holds(packet, headers));
        self.sequence = self.sequence.max(headers.sequence);
        let captured = Captured { at: now, packet: *packet, headers: *headers };
        match self.config.kind {
            AttackKind::Forge => {
                self.captured.clear();
                self.captured.push_back(captured);
            }
            AttackKind::Replay if self.captured.len() < KEPT => self.captured.push_back(captured),
            _ => {}
        }
    }

    /// Sends the next packet, if there is one to be sent.
    pub(super) fn act(&mut self, now: Time, token: u32, class: u8, fabric: &mut Fabric) {
        let made = match self.config.kind {
            AttackKind::Eavesdrop => None,
            AttackKind::Flood => Some(self.flood(now, fabric)),
            AttackKind::Forge => self.captured.front().copied().map(|captured| self.forge(now, &captured, fabric)),
            AttackKind::Replay => self.again(now, fabric),
        };
        let Some((to, key, headers)) = made else { return };
        self.outcome.sent += 1;
        let send = Send {
            from: self.config.node,
            to,
            claimed: Some(headers.sender),
            bytes: self.bytes,
            token,
            key,
            p_key: headers.p_key,
            class,
            transport: self.transport,
            acknowledge: true,
            ..Send::default()
        };
        fabric.send_crafted(now, &send, headers);
    }

    fn other_node(&mut self) -> u32 {
        let other = self.random.random_range(0..self.nodes - 1);
        other + u32::from(other >= self.config.node)
    }

    fn flood(&mut self, now: Time, fabric: &Fabric) -> (u32, u64, Headers) {
        let to = self.other_node();
        let sender = if self.config.spoofed { self.other_node() } else { self.config.node };
        let service = self.transport.service;
        let headers = Headers { service, p_key: FORGED, sender, stamp: fabric.stamp(now), ..Headers::default() };
        (to, 0, headers)
    }

    /// A packet to whom the captured one was for, under its keys.
    fn forge(&mut self, now: Time, captured: &Captured, fabric: &Fabric) -> (u32, u64, Headers) {
        let Captured { packet, headers, .. } = captured;
        self.sequence += 1;
        let headers = Headers {
            sender: if self.config.spoofed { headers.sender } else { self.config.node },
            sequence: self.sequence,
            stamp: fabric.stamp(now),
            tagged: self.level != KeyLevel::None && !self.config.plain,
            tagged_under: self.holds(packet, headers).then_some(packet.key),
            ..*headers
        };
        (packet.to, packet.key, headers)
    }

    /// The last captured packet that is old enough once more: as it was, or with another number and time where that can
    /// be done.
    fn again(&mut self, now: Time, fabric: &Fabric) -> Option<(u32, u64, Headers)> {
        let age = (self.config.age_us * US as f64) as Time;
        while self.captured.get(1).is_some_and(|next| next.at + age <= now) {
            self.captured.pop_front();
        }
        let Captured { packet, headers, .. } = *self.captured.front().filter(|first| first.at + age <= now)?;
        if !self.can_make(&packet, &headers) {
            return Some((packet.to, packet.key, headers));
        }
        self.sequence += 1;
        let headers = Headers { sequence: self.sequence, stamp: fabric.stamp(now), ..headers };
        Some((packet.to, packet.key, headers))
    }

    /// One of its packets got to its receiver, who took it or not.
    pub(super) fn came_to(&mut self, packet: &Packet, refusal: Option<Refusal>, fabric: &Fabric) {
        match refusal {
            None => self.outcome.taken += 1,
            Some(refusal) => self.outcome.refused.add(refusal),
        }
        self.outcome.sender_claimed[usize::from(packet.claimed != packet.from)] += 1;
        self.outcome.sender_traced[usize::from(fabric.traced(packet) != Some(packet.from))] += 1;
    }
}
