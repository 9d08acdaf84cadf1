//! Packets through links, switches and adapters: virtual cut-through with credits, lanes and arbitration.
//!
//! A packet's head crosses a link and a switch in `wire_ns + switch_ns` when nothing is in its way; its body follows at
//! the rate of the link; a faster link takes it so late that the slower one before it is not outrun. It leaves for the
//! next buffer only when that has room for all of it, which the credit of the lane tells. Which of the waiting packets
//! goes first: class 0 if it has priority, else the classes by their weights, and within a lane the one that came first.
//!
//! Two things are not events of their own, which halves the number of events: an output that nobody waits for becomes
//! free unobserved, and credit is counted when somebody needs it.

mod adapter;
mod arrival;
mod config;
mod departure;
mod packet;
mod port;
mod rate;

pub use adapter::{Headers, Refusal, Refusals};
pub use config::{FabricConfig, Queueing};
pub use packet::{Packet, Send};
pub use rate::{GENERATIONS, Named, Rate};

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use adapter::Adapters;
use packet::{Header, NONE, Packets};
use port::{Input, Lane, NEVER, Port, Returning};

use crate::engine::Wheel;
use crate::error::Error;
use crate::filter::{FilterConfig, FilterStats, PortFilter};
use crate::marking::Marker;
use crate::memory;
use crate::routing::{self, Routing};
use crate::security::{KeyLevel, Pass, SecurityConfig, StackDistances, Unit, UnitStats};
use crate::time::{self, Time};
use crate::topology::{Topology, UNPLUGGED};
use crate::transport::ICRC;

/// Asked, with the time simulated so far, whether a run is to go on.
pub type Watch<'w> = &'w (dyn Fn(Time) -> bool + Sync);

/// Who sends and receives. Called back in the order of simulated time.
pub trait Traffic {
    /// A time that [`Fabric::wake`] was asked for has come.
    fn wake(&mut self, now: Time, token: u32, fabric: &mut Fabric);

    /// A packet is there, opened, complete.
    fn arrived(&mut self, now: Time, packet: &Packet, fabric: &mut Fabric);

    /// The last byte of a packet that was sent with `last` has left its adapter, or the acknowledgement of one that
    /// gets one is there.
    fn left(&mut self, now: Time, token: u32, fabric: &mut Fabric);

    /// Whether the process that gets this packet is on its processor.
    fn is_running(&self, packet: &Packet) -> bool;

    /// Whether a switch on the way would find the packet's partition key among those of its port.
    fn is_valid(&self, packet: &Packet) -> bool;

    /// An adapter did not take a packet, of a fabric that [checks](Fabric::check_packets).
    fn refused(&mut self, _: Time, _: &Packet, _: Refusal, _: &mut Fabric) {}

    /// A packet comes through a switch that somebody [listens at](Fabric::listen_at).
    fn overheard(&mut self, _: Time, _: &Packet, _: &Headers) {}
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet's head (or tail, if switches store it) is through the switch's input stage, or its tail is in the adapter.
    Arrive(u32),
    /// A packet that a filter held up goes on.
    Route(u32),
    /// A packet from a slower link has come in so far that a faster one can take it without a gap.
    Join(u32),
    /// Somebody looks after an output.
    Free(u32),
    /// A packet leaves the security unit of its sender.
    Enter(u32),
    /// A packet leaves that of its receiver.
    Deliver(u32),
    /// A packet with this token has left its adapter.
    Left(u32),
    /// The traffic wanted to be woken.
    Wake(u32),
}

/// What went through a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were handed to adapters.
    pub sent: u64,
    /// Packets that their receivers got.
    pub arrived: u64,
    /// Packets that filters dropped.
    pub dropped: u64,
    /// Packets that the adapters they came to did not take.
    pub refused: u64,
    /// Acknowledgements that arrived.
    pub acknowledged: u64,
}

/// A network with what is in it.
pub struct Fabric {
    topology: Topology,
    config: FabricConfig,
    routing: Routing,
    events: Wheel<Event>,
    packets: Packets,
    ports: Vec<Port>,
    returning: Vec<Returning>,
    /// By port and lane, those behind the first; see [`port::lane`].
    lanes: Vec<Lane>,
    /// Inputs by port and lane; empty with a queue for each output.
    inputs: Vec<Input>,
    filters: Vec<Option<PortFilter>>,
    units: Vec<Unit>,
    marker: Option<Marker>,
    adapters: Option<Box<Adapters>>,
    counts: Counts,
    lanes_a_port: usize,
    lanes_a_class: u8,
    /// Lanes of a class that packets may wait for; the rest is for adaptive routing that has these as its escape.
    escape_lanes: u8,
    first_class: u16,
    /// By how much a tag is longer than the ICRC in whose place it stands.
    tag_more: u16,
    /// Femtoseconds of a byte, of each rate that there is.
    byte_fs: Vec<u64>,
    /// Gb/s of each node's link.
    host_rates: Vec<f64>,
    /// When the head of each packet came to the switch it is in, by the packet's place; where links have several rates.
    heads: Vec<Time>,
    /// Draws the groups of a dragonfly by way of which packets may go.
    random: Xoshiro256PlusPlus,
    wire: Time,
    hop: Time,
}

impl Fabric {
    /// An empty network.
    ///
    /// # Errors
    /// A sentence, when the parts do not fit together.
    pub fn new(
        topology: Topology,
        config: &FabricConfig,
        routing: Routing,
        security: &SecurityConfig,
        filter: &FilterConfig,
        longest: u32,
    ) -> Result<Self, Error> {
        security.validate().map_err(Error::config).map_err(Error::about("security"))?;
        let longest = longest + security.tag_bytes - ICRC;
        config.validate(longest).map_err(Error::about("fabric"))?;
        filter.validate().map_err(Error::config).map_err(Error::about("filter"))?;
        let escape_lanes = routing::lanes(&topology, routing);
        let escapes = routing == Routing::Adaptive && routing::escapes(&topology);
        let adaptive = if escapes { config.adaptive_lanes } else { 0 };
        if escapes && adaptive == 0 {
            let what = "adaptive routing without lanes of its own can deadlock; set fabric.adaptive_lanes to 1 or more";
            return Err(Error::about("fabric")(Error::config(what)));
        }
        let lanes_a_class = escape_lanes.saturating_add(adaptive);
        let lanes = lanes_a_class.checked_mul(config.classes).filter(|&lanes| lanes <= config::LANES_MAX);
        let Some(lanes) = lanes else {
            let (classes, most) = (config.classes, config::LANES_MAX);
            let what = format!(
                "{classes} classes with {lanes_a_class} lanes each are more than the {most} data lanes of InfiniBand; use fewer"
            );
            return Err(Error::about("fabric")(Error::config(what)));
        };
        let mut byte_fs: Vec<u64> = Vec::new();
        let mut index = |rate: &Rate| {
            let fs = rate.byte_fs();
            let known = byte_fs.iter().position(|&known| known == fs);
            let index = known.unwrap_or_else(|| {
                byte_fs.push(fs);
                byte_fs.len() - 1
            });
            u8::try_from(index).map_err(|_| Error::config("links have more than 256 different rates; use fewer"))
        };
        let rates = config.rates(&topology).map_err(Error::about("fabric"))?;
        let host_rates = rates[..topology.nodes as usize].iter().map(|rate| rate.gbps()).collect();
        let indices = rates.iter().map(&mut index).collect::<Result<Vec<u8>, Error>>()?;
        let count = topology.ports() as usize;
        let lanes_a_port = usize::from(lanes);
        let sealed = security.level != KeyLevel::None;
        let filters = (0..topology.ports()).map(|port| {
            if topology.is_adapter(port) {
                return None;
            }
            let peer = topology.peer[port as usize];
            PortFilter::new(filter, peer != UNPLUGGED && topology.is_adapter(peer))
        });
        let filters: Vec<_> = filters.collect();
        let fifo = config.queueing == Queueing::Fifo;
        let hop = time::from_ns(config.wire_ns) + time::from_ns(config.switch_ns);
        // Some events a packet and hop, for all nodes at once; most are a hop and a packet's length ahead.
        let packet = config.serialisation(longest);
        let spacing = packet / u64::from(topology.nodes).max(1);
        let mut ports = memory::scattered(count);
        ports.extend(topology.peer.iter().zip(indices).map(|(&peer, rate)| {
            let next = if peer == UNPLUGGED { NONE } else { topology.switch[peer as usize] };
            Port::new(peer, next, Lane::new(config.buffer_bytes), rate)
        }));
        let mut returning = memory::scattered(count);
        returning.resize_with(count, Returning::default);
        Ok(Self {
            events: Wheel::new(spacing, 2 * (packet + hop)),
            packets: Packets::default(),
            ports,
            returning,
            lanes: vec![Lane::new(config.buffer_bytes); count * (lanes_a_port - 1)],
            inputs: vec![Input { first: NONE, last: NONE }; if fifo { count * lanes_a_port } else { 0 }],
            filters: if filters.iter().any(Option::is_some) { filters } else { Vec::new() },
            units: if sealed { vec![Unit::new(security); topology.nodes as usize] } else { Vec::new() },
            marker: None,
            adapters: None,
            tag_more: if sealed { security.tag_bytes as u16 - ICRC as u16 } else { 0 },
            counts: Counts::default(),
            lanes_a_port,
            lanes_a_class,
            escape_lanes,
            first_class: if config.priority { (1 << lanes_a_class) - 1 } else { 0 },
            byte_fs,
            host_rates,
            heads: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(1),
            wire: time::from_ns(config.wire_ns),
            hop,
            config: config.clone(),
            routing,
            topology,
        })
    }

    /// Has adaptive routing draw lots from a seed, another series than the traffic draws from it.
    pub fn draw_ways(&mut self, seed: u64) {
        self.random = Xoshiro256PlusPlus::seed_from_u64(!seed);
    }

    /// Has the switches mark packets, in a field of so many bits, so that receivers know where they come from.
    ///
    /// # Errors
    /// A sentence, when the field is too small or this network has no marks.
    pub fn mark_packets(&mut self, field_bits: u32) -> Result<(), Error> {
        self.marker = Some(Marker::new(&self.topology, field_bits)?);
        Ok(())
    }

    /// Has the receiving adapters check what packets say: the P_Key of `partitions` over which the nodes are dealt out
    /// in turn, queue pairs and their Q_Keys, tags, replays, R_Keys.
    pub fn check_packets(&mut self, security: &SecurityConfig, partitions: u32, seed: u64) {
        self.adapters = Some(Box::new(Adapters::new(security, self.topology.nodes, partitions, seed)));
    }

    /// Asks for [`Traffic::overheard`] of all that comes through a switch of a fabric that checks packets.
    pub fn listen_at(&mut self, switch: u32) {
        if let Some(adapters) = &mut self.adapters {
            adapters.tap = Some(switch);
        }
    }

    /// The node that sent a packet, as far as its receiver can tell: by its marks, or else by the address it claims.
    /// `None` for marks that no way leads to.
    #[must_use]
    pub fn traced(&self, packet: &Packet) -> Option<u32> {
        match &self.marker {
            None => Some(packet.claimed),
            Some(marker) => marker.source(packet.mark, self.topology.switch_of(packet.to)),
        }
    }

    /// Classes of traffic that have lanes.
    #[must_use]
    pub fn classes(&self) -> u8 {
        self.config.classes
    }

    /// The network.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Time {
        self.events.now()
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.passed()
    }

    /// What went through so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What the security units did, summed up.
    #[must_use]
    pub fn unit_stats(&self) -> UnitStats {
        let mut sum = UnitStats::default();
        self.units.iter().for_each(|unit| sum += *unit.stats());
        sum
    }

    /// Alerts of adapters that got wrong tags.
    #[must_use]
    pub fn alerts(&self) -> u64 {
        self.adapters.as_ref().map_or(0, |adapters| adapters.alerts())
    }

    /// What an adapter that checks packets would stamp one with that it sends now.
    #[must_use]
    pub fn stamp(&self, now: Time) -> u64 {
        self.adapters.as_ref().map_or(0, |adapters| adapters.stamp(now))
    }

    /// From now on the security units note which keys they look up.
    pub fn observe_keys(&mut self) {
        self.units.iter_mut().for_each(Unit::observe);
    }

    /// What they noted, each having a cache of its own.
    #[must_use]
    pub fn stack_distances(&self) -> StackDistances {
        let mut sum = StackDistances::default();
        self.units.iter().filter_map(Unit::stack_distances).for_each(|distances| sum.merge(distances));
        sum
    }

    /// What the filters did, port by port.
    pub fn filter_stats(&self) -> impl Iterator<Item = (u32, &FilterStats)> {
        let filters = self.filters.iter().enumerate();
        filters.filter_map(|(port, filter)| Some((port as u32, filter.as_ref()?.stats())))
    }

    /// For how long a port has been sending, in all.
    #[must_use]
    pub fn busy(&self, port: u32) -> Time {
        self.ports[port as usize].busy
    }

    /// The rate of the nodes' own links in Gb/s, on average where they differ.
    #[must_use]
    pub fn host_gbps(&self) -> f64 {
        let rates = &self.host_rates;
        if rates.windows(2).all(|pair| pair[0] == pair[1]) {
            rates[0]
        } else {
            rates.iter().sum::<f64>() / rates.len() as f64
        }
    }

    /// Time that so many bytes take on a port's link; an adapter's port is its node.
    #[must_use]
    #[inline]
    pub fn serialisation(&self, port: u32, bytes: u32) -> Time {
        let rate = self.ports[port as usize].rate;
        (self.byte_fs[usize::from(rate)] * u64::from(bytes)).div_ceil(1000)
    }

    /// Asks for [`Traffic::wake`].
    pub fn wake(&mut self, at: Time, token: u32) {
        self.events.push(at, Event::Wake(token));
    }

    /// Hands a packet to its adapter.
    pub fn send(&mut self, now: Time, send: &Send) {
        debug_assert!(send.from != send.to && send.class < self.config.classes);
        self.counts.sent += 1;
        let packet = self.packets.put(now, send);
        if let Some(adapters) = &mut self.adapters {
            let headers = adapters.fill_in(now, send);
            adapters.put(packet, headers);
        }
        self.seal(now, packet, send.from, send.key, send.owners[0]);
    }

    /// Puts a packet with headers of somebody's own making on the wire, past the sender's security unit.
    pub fn send_crafted(&mut self, now: Time, send: &Send, headers: Headers) {
        self.counts.sent += 1;
        let packet = self.packets.put(now, send);
        if let Some(adapters) = &mut self.adapters {
            adapters.put(packet, headers);
        }
        self.packets[packet].bytes += self.tag_more;
        self.enter(now, packet);
    }

    /// A packet goes through the security unit of its sender, if there is one.
    #[inline]
    fn seal(&mut self, now: Time, packet: u32, from: u32, key: u64, owner: u16) {
        match self.units.get_mut(from as usize) {
            None => self.enter(now, packet),
            Some(unit) => {
                let entry = &mut self.packets[packet];
                entry.bytes += self.tag_more;
                let pass = Pass { key, bytes: entry.bytes.into(), owner: owner.into(), running: true };
                let at = unit.pass(now, pass);
                self.events.push(at, Event::Enter(packet));
            }
        }
    }

    /// Turns the filter of a port on, against a key.
    pub fn enable_filter(&mut self, now: Time, port: u32, p_key: u16) {
        if let Some(Some(filter)) = self.filters.get_mut(port as usize) {
            filter.enable(now, p_key);
        }
    }

    /// Lets events happen up to a time.
    ///
    /// # Errors
    /// When packets are under way and nothing will ever happen again.
    pub fn run(&mut self, traffic: &mut impl Traffic, until: Time) -> Result<(), Error> {
        self.advance(traffic, until).map(drop)
    }

    /// As [`Fabric::run`], and asks every some hundred thousand events whether to go on. Pieces end where an event would
    /// have ended anyway, so that what happens is the same.
    ///
    /// # Errors
    /// As [`Fabric::run`]; [`Error::Stopped`], when it was not to go on.
    pub fn run_watched(&mut self, traffic: &mut impl Traffic, until: Time, watch: Watch<'_>) -> Result<(), Error> {
        let mut piece = time::US;
        loop {
            let before = self.events();
            let end = until.min(self.now().saturating_add(piece));
            if !self.advance(traffic, end)? || self.now() > until {
                return Ok(());
            }
            if !watch(self.now()) {
                return Err(Error::Stopped);
            }
            piece = match self.events() - before {
                few if few < PIECE / 2 => piece.saturating_mul(2),
                many if many > PIECE * 2 => (piece / 2).max(1),
                _ => piece,
            };
        }
    }

    /// Lets events happen up to a time and the first one after it; whether there may be more.
    fn advance(&mut self, traffic: &mut impl Traffic, until: Time) -> Result<bool, Error> {
        while self.now() <= until {
            let Some((now, event)) = self.events.pop() else {
                return match self.packets.len() {
                    0 => Ok(false),
                    stuck => Err(Error::Stuck(format!(
                        "{stuck} packets wait for each other for ever: the routing of this network deadlocks"
                    ))),
                };
            };
            self.look_ahead();
            match event {
                Event::Arrive(packet) => self.arrive(now, packet, traffic),
                Event::Route(packet) => self.route(now, packet),
                Event::Join(packet) => self.join_late(now, packet),
                Event::Free(port) => {
                    if self.ports[port as usize].wake_at == now {
                        self.ports[port as usize].wake_at = NEVER;
                        self.serve(now, port);
                    }
                }
                Event::Enter(packet) => self.enter(now, packet),
                Event::Deliver(packet) => self.deliver(now, packet, traffic),
                Event::Left(token) => traffic.left(now, token, self),
                Event::Wake(token) => traffic.wake(now, token, self),
            }
        }
        Ok(true)
    }

    /// Reads what the events of a large bucket will need. These reads do not depend on each other, so the processor
    /// waits for memory once and not for each event: in a network larger than its caches that is most of the time.
    #[inline]
    fn look_ahead(&mut self) {
        let Some(bucket) = self.events.new_bucket().filter(|bucket| bucket.len() >= LARGE) else { return };
        let mut seen = 0;
        for &(_, event) in bucket {
            match event {
                Event::Arrive(packet) => {
                    let Header { sender, switch, leg, leg_port, .. } = self.packets[packet];
                    seen ^= self.returning[sender as usize].touch();
                    if leg > 0 {
                        let out = (self.topology.first_port(switch) + u32::from(leg_port)) as usize;
                        seen ^= self.ports[out].free_at;
                    }
                }
                Event::Free(port) => {
                    seen ^= self.ports[port as usize].free_at;
                }
                _ => {}
            }
        }
        std::hint::black_box(seen);
    }
}

/// Events of a bucket that are worth a look ahead.
const LARGE: usize = 16;
/// Events between two questions whether to go on, about: some ten milliseconds.
const PIECE: u64 = 100_000;

#[cfg(test)]
mod tests;
