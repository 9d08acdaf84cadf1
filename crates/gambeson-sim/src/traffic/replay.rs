//! The messages of replayed jobs as packets (session-key-cache, section 4.1).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Window;
use super::config::LONGEST;
use crate::error::Error;
use crate::fabric::{Fabric, Packet, Send, Traffic};
use crate::process::{Action, Cluster, Config, Message, Placement, Process};
use crate::security::KeyLevel;
use crate::statistics::Distribution;
use crate::time::{self, Time};
use crate::trace::Job;
use crate::transport::Transport;

/// How messages become packets.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PacketConfig {
    /// Length of a full packet on the link, headers included; or give `data`.
    pub packet_bytes: u16,
    /// Bytes of data in a full packet: the path's MTU. Packets are longer by what their transport adds.
    pub data: Option<u16>,
    /// One packet a message, of the full length whatever the message's: what the session-key-cache paper's simulator
    /// injects for each record of its traces.
    pub one_a_message: bool,
    /// How packets travel. The default has no acknowledgements: with them a send is over when the last is there.
    pub transport: Transport,
    /// What a message within a node takes.
    pub local_ns: f64,
    /// And each of its bytes beside.
    pub local_byte_ns: f64,
}

impl Default for PacketConfig {
    fn default() -> Self {
        Self {
            packet_bytes: 2048,
            data: None,
            one_a_message: false,
            transport: Transport::default(),
            local_ns: 500.0,
            local_byte_ns: 0.1,
        }
    }
}

impl PacketConfig {
    /// Length of the longest packet on the link.
    #[must_use]
    pub fn longest(&self) -> u32 {
        self.data.map_or(self.packet_bytes.into(), |data| self.transport.wire(data.into(), true))
    }

    /// Checks it.
    ///
    /// # Errors
    /// A sentence with the remedy.
    pub fn validate(&self) -> Result<(), Error> {
        self.transport.validate().map_err(Error::config)?;
        if self.data == Some(0) {
            return Err(Error::config("packets without data carry no message; set packets.data to 1 or more"));
        }
        let least = if self.one_a_message { 1 } else { self.transport.headers(true) + 1 };
        if self.data.is_none() && u32::from(self.packet_bytes) < least {
            let bytes = self.packet_bytes;
            return Err(Error::config(format!(
                "packets of {bytes} bytes have no room beside their headers; set packets.packet_bytes to {least} or more"
            )));
        }
        if self.longest() > LONGEST {
            let bytes = self.longest();
            return Err(Error::config(format!(
                "packets of {bytes} bytes with their headers; the most is {LONGEST}, so lower packets.data or packet_bytes"
            )));
        }
        if !(0.0..=1e9).contains(&self.local_ns) || !(0.0..=1e3).contains(&self.local_byte_ns) {
            return Err(Error::config("packets.local_ns is from 0 to 1e9, local_byte_ns from 0 to 1000"));
        }
        Ok(())
    }
}

/// Bit of a wake's token: a message within a node has arrived.
const LOCAL: u32 = 1 << 31;

/// Jobs under replay.
pub struct Replay {
    cluster: Cluster,
    packets: PacketConfig,
    level: KeyLevel,
    window: Window,
    actions: Vec<Action>,
    /// The cluster's tokens behind the fabric's shorter ones.
    tokens: Vec<u64>,
    free_tokens: Vec<u32>,
    /// Packets of each message that are under way.
    missing: Vec<u32>,
    latency: Distribution,
    jobs: Vec<String>,
    ended: Vec<Option<Time>>,
}

/// What a [`Replay`] is made from.
pub struct ReplayPlan<'p> {
    /// How processors are shared.
    pub processes: &'p Config,
    /// How messages become packets.
    pub packets: &'p PacketConfig,
    /// What is replayed.
    pub jobs: &'p [Arc<Job>],
    /// Where.
    pub placement: &'p Placement,
    /// What keys belong to.
    pub level: KeyLevel,
    /// When packets count.
    pub window: Window,
    /// Where all random numbers come from.
    pub seed: u64,
}

impl Replay {
    /// Puts the jobs on the fabric's nodes and has them begin.
    ///
    /// # Errors
    /// A sentence, when they do not fit.
    pub fn new(plan: &ReplayPlan<'_>, fabric: &mut Fabric) -> Result<Self, Error> {
        plan.packets.validate()?;
        let mut replay = Self {
            cluster: Cluster::new(plan.processes, plan.jobs, plan.placement, plan.seed)?,
            packets: plan.packets.clone(),
            level: plan.level,
            window: plan.window,
            actions: Vec::new(),
            tokens: Vec::new(),
            free_tokens: Vec::new(),
            missing: Vec::new(),
            latency: Distribution::default(),
            jobs: plan.jobs.iter().map(|job| job.name.clone()).collect(),
            ended: vec![None; plan.jobs.len()],
        };
        replay.cluster.start(&mut replay.actions);
        replay.act(0, fabric);
        Ok(replay)
    }

    /// Latency of packets that arrived within the window.
    #[must_use]
    pub fn latency(&self) -> &Distribution {
        &self.latency
    }

    /// The processors.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The jobs' names and when each ended, if it did.
    pub fn jobs(&self) -> impl Iterator<Item = (&str, Option<Time>)> {
        self.jobs.iter().map(String::as_str).zip(self.ended.iter().copied())
    }

    /// Does what the cluster asks for.
    fn act(&mut self, now: Time, fabric: &mut Fabric) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Send { message, .. } => self.carry(now, &message, fabric),
                Action::Wake { at, token } => {
                    let short = match self.free_tokens.pop() {
                        Some(short) => {
                            self.tokens[short as usize] = token;
                            short
                        }
                        None => {
                            self.tokens.push(token);
                            self.tokens.len() as u32 - 1
                        }
                    };
                    fabric.wake(at, short);
                }
                Action::Finished { at, job } => self.ended[job as usize] = Some(at),
            }
        }
        self.actions = actions;
    }

    fn carry(&mut self, now: Time, message: &Message, fabric: &mut Fabric) {
        let &Message { id, from, to, bytes, .. } = message;
        if self.missing.len() <= id as usize {
            self.missing.resize(id as usize + 1, 0);
        }
        if from.node == to.node {
            let takes = time::from_ns(self.packets.local_ns + self.packets.local_byte_ns * f64::from(bytes));
            fabric.wake(now + takes, LOCAL | id);
            return;
        }
        let PacketConfig { transport, data, one_a_message, .. } = self.packets;
        let full = self.packets.longest();
        // The first packet has the longest headers, and all have as much data as it.
        let payload = data.map_or(full - transport.headers(true).min(full - 1), u32::from);
        let count = if one_a_message { 1 } else { bytes.div_ceil(payload).max(1) };
        self.missing[id as usize] = count;
        let mut send = Send {
            from: from.node,
            to: to.node,
            claimed: None,
            bytes: full as u16,
            token: id,
            key: self.key(from, to),
            p_key: 0,
            class: 0,
            owners: [from.local as u16, to.local as u16],
            transport,
            acknowledge: false,
            last: false,
        };
        for number in 0..count {
            send.last = number + 1 == count;
            if !one_a_message && (send.last || number == 1) {
                let rest = (bytes - payload * number).min(payload);
                // A length on the link that was given has no padding.
                let padded = if data.is_some() { rest.next_multiple_of(4) } else { rest };
                send.bytes = (transport.headers(number == 0) + padded) as u16;
            }
            send.acknowledge = send.last;
            fabric.send(now, &send);
        }
    }

    fn key(&self, from: Process, to: Process) -> u64 {
        let number = |process: Process| u64::from(process.node) << 12 | u64::from(process.local);
        match self.level {
            KeyLevel::None | KeyLevel::Partition => 0,
            KeyLevel::QueuePair => number(from.min(to)) << 32 | number(from.max(to)),
        }
    }
}

impl Traffic for Replay {
    fn wake(&mut self, now: Time, token: u32, fabric: &mut Fabric) {
        if token & LOCAL != 0 {
            self.cluster.injected(now, token & !LOCAL, &mut self.actions);
            self.cluster.arrived(now, token & !LOCAL, &mut self.actions);
        } else {
            self.free_tokens.push(token);
            self.cluster.wake(now, self.tokens[token as usize], &mut self.actions);
        }
        self.act(now, fabric);
    }

    fn arrived(&mut self, now: Time, packet: &Packet, fabric: &mut Fabric) {
        if now >= self.window.from && now < self.window.until {
            self.latency.add(now - packet.created);
        }
        let missing = &mut self.missing[packet.token as usize];
        *missing -= 1;
        if *missing == 0 {
            self.cluster.arrived(now, packet.token, &mut self.actions);
            self.act(now, fabric);
        }
    }

    fn left(&mut self, now: Time, token: u32, fabric: &mut Fabric) {
        self.cluster.injected(now, token, &mut self.actions);
        self.act(now, fabric);
    }

    fn is_running(&self, packet: &Packet) -> bool {
        self.cluster.running(Process { node: packet.to, local: packet.owners[1].into() })
    }

    fn is_valid(&self, _: &Packet) -> bool {
        true
    }
}
