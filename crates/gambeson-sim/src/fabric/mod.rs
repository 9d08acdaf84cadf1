//! Packets through links, switches and adapters: virtual cut-through with credits, lanes and arbitration.
//!
//! A packet's head crosses a link and a switch in `wire_ns + switch_ns` when nothing is in its way; its body follows at
//! the rate of the link; a faster link takes it so late that the slower one before it is not outrun. It leaves for the next
//! buffer only when that has room for all of it, which the credit of the lane tells. Which of the waiting packets goes first: class 0 if it has priority, else the classes by their weights,
//! and within a lane the one that came first.
//!
//! Two things are not events of their own, which halves the number of events: an output that nobody waits for becomes
//! free unobserved, and credit is counted when somebody needs it.

mod adapter;
mod config;
mod packet;
mod port;
mod rate;

pub use adapter::{Headers, Refusal, Refusals};
pub use config::{FabricConfig, Queueing};
pub use packet::{Packet, Send};
pub use rate::{GENERATIONS, Named, Rate};

use adapter::Adapters;
use packet::{Header, NONE, Packets};
use port::{Input, Lane, NEVER, Port, Returning, lane};

use crate::engine::Wheel;
use crate::error::Error;
use crate::filter::{FilterConfig, FilterStats, PortFilter};
use crate::marking::Marker;
use crate::memory;
use crate::routing::{self, Hop, Routing};
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
    /// By port and lane, those behind the first; see [`lane`].
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
    /// Lanes of a class that the deterministic way uses; the rest is for adaptive routing.
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
        routing::suits(&topology, routing).map_err(Error::about("routing"))?;
        let escape_lanes = routing::lanes(&topology);
        let adaptive = if routing == Routing::Adaptive { config.adaptive_lanes } else { 0 };
        if routing == Routing::Adaptive && adaptive == 0 {
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
            wire: time::from_ns(config.wire_ns),
            hop,
            config: config.clone(),
            routing,
            topology,
        })
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

    /// Alerts of adapters that got wrong tags in a row.
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
                Event::Join(packet) => self.join(now, packet),
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

    /// A packet joins the queue of its adapter.
    fn enter(&mut self, now: Time, packet: u32) {
        let class = self.packets[packet].class;
        let entry = &mut self.packets[packet];
        entry.out_lane = class * self.lanes_a_class;
        self.join(now, packet);
    }

    fn arrive(&mut self, now: Time, packet: u32, traffic: &mut impl Traffic) {
        let Header { port, to, sender, lane, bytes, p_key, acknowledges, .. } = self.packets[packet];
        if self.topology.is_adapter(port) {
            self.give_back(now, sender, lane, bytes, now + self.wire);
            if let Some(adapters) = &self.adapters
                && !acknowledges
                && let Err(refusal) = adapters.identify(to, packet)
            {
                return self.refuse(now, packet, refusal, traffic);
            }
            match self.units.get_mut(to as usize) {
                None => self.deliver(now, packet, traffic),
                Some(unit) => {
                    let entry = self.packets.whole(packet);
                    let running = traffic.is_running(&entry);
                    let pass =
                        Pass { key: entry.key, bytes: entry.bytes.into(), owner: entry.owners[1].into(), running };
                    let at = unit.pass(now, pass);
                    self.events.push(at, Event::Deliver(packet));
                }
            }
            return;
        }
        if self.byte_fs.len() > 1 {
            self.head_came(now, packet);
        }
        if let Some(adapters) = &self.adapters
            && adapters.tap == Some(self.topology.switch[port as usize])
            && !acknowledges
        {
            traffic.overheard(now, &self.packets.whole(packet), adapters.headers(packet));
        }
        if let Some(Some(filter)) = self.filters.get_mut(port as usize) {
            let verdict = filter.check(now, p_key, traffic.is_valid(&self.packets.whole(packet)));
            if !verdict.passes {
                self.counts.dropped += 1;
                self.packets.take(packet);
                // The buffer is free when the tail has come in.
                let rest = if self.config.store_and_forward { 0 } else { self.serialisation(port, bytes.into()) };
                let gone = now + rest;
                self.give_back(now, sender, lane, bytes, gone + self.wire);
                return;
            }
            if verdict.delay > 0 {
                self.events.push(now + verdict.delay, Event::Route(packet));
                return;
            }
        }
        self.route(now, packet);
    }

    fn head_came(&mut self, now: Time, packet: u32) {
        let place = packet as usize;
        if self.heads.len() <= place {
            self.heads.resize(place + 1, 0);
        }
        self.heads[place] = now;
    }

    fn deliver(&mut self, now: Time, packet: u32, traffic: &mut impl Traffic) {
        let Header { to, token, last, acknowledges, acknowledgement, .. } = self.packets[packet];
        if acknowledges {
            self.counts.acknowledged += 1;
            self.packets.take(packet);
            if last {
                traffic.left(now, token, self);
            }
            return;
        }
        if let Some(adapters) = &mut self.adapters
            && let Err(refusal) = adapters.open(now, to, packet)
        {
            return self.refuse(now, packet, refusal, traffic);
        }
        self.counts.arrived += 1;
        let packet = self.packets.take(packet);
        // Who claims to be the receiver gets no answer.
        if acknowledgement > 0 && packet.claimed != to {
            let answer = self.packets.acknowledge(now, &packet, acknowledgement, last);
            self.seal(now, answer, to, packet.key, packet.owners[1]);
        }
        traffic.arrived(now, &packet, self);
    }

    /// The receiving adapter drops a packet.
    fn refuse(&mut self, now: Time, packet: u32, refusal: Refusal, traffic: &mut impl Traffic) {
        self.counts.refused += 1;
        let packet = self.packets.take(packet);
        traffic.refused(now, &packet, refusal, self);
    }

    /// A packet in a switch goes on, unless others are before it in its input's queue.
    fn route(&mut self, now: Time, packet: u32) {
        if self.inputs.is_empty() {
            return self.direct(now, packet);
        }
        let Header { port, lane, .. } = self.packets[packet];
        let input = &mut self.inputs[port as usize * self.lanes_a_port + usize::from(lane)];
        match input.last {
            NONE => {
                *input = Input { first: packet, last: packet };
                self.direct(now, packet);
            }
            last => {
                input.last = packet;
                self.packets[last].next_in = packet;
            }
        }
    }

    /// Decides where a packet goes, and queues it there.
    fn direct(&mut self, now: Time, packet: u32) {
        let Header { port, switch, to, class, bytes, leg, leg_port, out_lane, .. } = self.packets[packet];
        let first = self.topology.first_port(switch);
        let (hop, left) = if self.routing == Routing::Adaptive {
            let better = self.roomiest(now, switch, to, class, bytes);
            (better.unwrap_or_else(|| routing::step(&self.topology, switch, port, to)), 0)
        } else if leg > 0 {
            (Hop { port: first + u32::from(leg_port), lane: out_lane - class * self.lanes_a_class }, u32::from(leg) - 1)
        } else {
            routing::leg(&self.topology, switch, port, to)
        };
        let entry = &mut self.packets[packet];
        entry.leg_port = (hop.port - first) as u16;
        entry.leg = left.min(LEG_MAX) as u16;
        entry.out = hop.port;
        entry.out_lane = class * self.lanes_a_class + hop.lane;
        if self.byte_fs.len() > 1 && !self.config.store_and_forward {
            let [in_link, out_link] = [port, hop.port].map(|port| self.serialisation(port, bytes.into()));
            let ready = self.heads[packet as usize] + in_link.saturating_sub(out_link);
            if ready > now {
                return self.events.push(ready, Event::Join(packet));
            }
        }
        self.join(now, packet);
    }

    /// The adaptive lane with the most room among those that lead closer, if one has room for this packet and all that
    /// waits for it already.
    fn roomiest(&mut self, now: Time, switch: u32, to: u32, class: u8, bytes: u16) -> Option<Hop> {
        let Self { topology, ports, returning, lanes, lanes_a_port, .. } = self;
        let (mut best, mut room) = (None, i64::from(bytes) - 1);
        let adaptive = self.escape_lanes..self.lanes_a_class;
        let offset = usize::from(class * self.lanes_a_class);
        routing::closer(topology, switch, to, |port| {
            let index = port as usize;
            returning[index].collect(now, |number, bytes| {
                lane(&mut ports[index], lanes, index, *lanes_a_port, number.into()).credit += u32::from(bytes);
            });
            for number in adaptive.clone() {
                let there = lane(&mut ports[index], lanes, index, *lanes_a_port, offset + usize::from(number));
                let left = i64::from(there.credit) - i64::from(there.queued);
                if left > room {
                    (best, room) = (Some(Hop { port, lane: number }), left);
                }
            }
        });
        best
    }

    /// Queues a packet at its output.
    #[inline]
    fn join(&mut self, now: Time, packet: u32) {
        let Header { out, out_lane, bytes, .. } = self.packets[packet];
        let lane = self.lane(out as usize, out_lane.into());
        lane.queued += u32::from(bytes);
        let last = std::mem::replace(&mut lane.last, packet);
        match last {
            NONE => lane.first = packet,
            last => self.packets[last].next = packet,
        }
        let port = &mut self.ports[out as usize];
        port.filled |= 1 << out_lane;
        if port.free_at <= now {
            if port.blocked & 1 << out_lane == 0 {
                self.serve(now, out);
            }
        } else if port.wake_at > port.free_at {
            port.wake_at = port.free_at;
            self.events.push(port.free_at, Event::Free(out));
        }
    }

    /// Sends the next packet of an output that is free, if one can go, and sees to it that somebody looks again.
    fn serve(&mut self, now: Time, out: u32) {
        let index = out as usize;
        let port = &mut self.ports[index];
        if port.free_at > now {
            if port.filled != 0 {
                self.look_again(out, self.ports[index].free_at);
            }
            return;
        }
        if port.blocked != 0 {
            port.blocked = 0;
            self.returning[index].waited_for = 0;
        }
        loop {
            let port = &mut self.ports[index];
            let candidates = port.filled & !port.blocked;
            if candidates == 0 {
                break;
            }
            let chosen = self.choose(index, candidates);
            let packet = self.lane(index, chosen).first;
            let bytes = u32::from(self.packets[packet].bytes);
            if self.lane(index, chosen).credit < bytes {
                self.collect(now, index);
            }
            if self.lane(index, chosen).credit >= bytes {
                return self.transmit(now, out, chosen, packet);
            }
            self.ports[index].blocked |= 1 << chosen;
            self.returning[index].waited_for |= 1 << chosen;
        }
        // What waits, waits for credit. Where none is on its way, its arrival will be noticed.
        let port = &self.ports[index];
        if port.blocked != 0
            && let Some(soonest) = self.returning[index].soonest()
        {
            self.look_again(out, soonest);
        }
    }

    fn look_again(&mut self, out: u32, at: Time) {
        let port = &mut self.ports[out as usize];
        if at < port.wake_at {
            port.wake_at = at;
            self.events.push(at, Event::Free(out));
        }
    }

    /// Which of the lanes sends next.
    #[inline]
    fn choose(&mut self, index: usize, candidates: u16) -> usize {
        let mut among = candidates;
        if candidates & self.first_class != 0 {
            among &= self.first_class;
        }
        if among.is_power_of_two() {
            return among.trailing_zeros() as usize;
        }
        let port = &mut self.ports[index];
        if among & 1 << port.turn == 0 || port.budget <= 0 {
            let after = among & (u16::MAX << 1 << port.turn);
            port.turn = if after != 0 { after } else { among }.trailing_zeros() as u8;
            let class = port.turn / self.lanes_a_class;
            let weight = self.config.weights.get(usize::from(class)).copied().unwrap_or(1);
            // A weight of one sends a packet of the longest, however long they are.
            port.budget = (weight * TURN_BYTES) as i32;
        }
        usize::from(port.turn)
    }

    fn transmit(&mut self, now: Time, out: u32, chosen: usize, packet: u32) {
        let index = out as usize;
        let entry = self.packets[packet];
        let bytes = u32::from(entry.bytes);
        let duration = self.serialisation(out, bytes);
        let lane = self.lane(index, chosen);
        lane.credit -= bytes;
        lane.queued -= bytes;
        lane.first = entry.next;
        if entry.next == NONE {
            lane.last = NONE;
        }
        let port = &mut self.ports[index];
        if entry.next == NONE {
            port.filled &= !(1 << chosen);
        }
        let (peer, next_switch) = (port.peer, port.next_switch);
        if self.marker.is_some() && entry.port != out {
            self.mark(packet, entry.port, peer);
        }
        let port = &mut self.ports[index];
        port.budget -= bytes as i32;
        port.free_at = now + duration;
        port.busy += duration;
        if port.filled != 0 && port.wake_at > port.free_at {
            port.wake_at = port.free_at;
            self.events.push(port.free_at, Event::Free(out));
        }
        if entry.port == out {
            // From the adapter's own queue.
            if entry.last && entry.acknowledgement == 0 && !entry.acknowledges {
                self.events.push(now + duration, Event::Left(entry.token));
            }
        } else {
            self.give_back(now, entry.sender, entry.lane, entry.bytes, now + duration + self.wire);
            if !self.inputs.is_empty() {
                self.next_of_input(now, &entry);
            }
        }
        let moved = &mut self.packets[packet];
        moved.sender = out;
        moved.port = peer;
        moved.switch = next_switch;
        moved.lane = entry.out_lane;
        moved.next = NONE;
        moved.next_in = NONE;
        moved.hops += 1;
        let at = match self.topology.is_adapter(peer) {
            true => now + self.wire + duration,
            false if self.config.store_and_forward => now + self.hop + duration,
            false => now + self.hop,
        };
        self.events.push(at, Event::Arrive(packet));
    }

    /// A switch writes into a packet that came by `in_port` and goes on to the port `next`.
    fn mark(&mut self, packet: u32, in_port: u32, next: u32) {
        let Some(marker) = &self.marker else { return };
        let switch = self.topology.switch[in_port as usize];
        let port = in_port - self.topology.first_port(switch);
        let entry = &mut self.packets[packet];
        if self.topology.is_adapter(self.ports[in_port as usize].peer) {
            entry.mark = marker.injected(port, entry.to);
        }
        let next = (!self.topology.is_adapter(next)).then(|| self.topology.switch[next as usize]);
        entry.mark = marker.hop(entry.mark, switch, port, next);
    }

    /// The packet behind the one that leaves becomes the first of its input.
    fn next_of_input(&mut self, now: Time, gone: &Header) {
        let input = &mut self.inputs[gone.port as usize * self.lanes_a_port + usize::from(gone.lane)];
        input.first = gone.next_in;
        match gone.next_in {
            NONE => input.last = NONE,
            next => self.direct(now, next),
        }
    }

    #[inline]
    fn lane(&mut self, index: usize, number: usize) -> &mut Lane {
        lane(&mut self.ports[index], &mut self.lanes, index, self.lanes_a_port, number)
    }

    /// Counts the credit that has come back to a port.
    fn collect(&mut self, now: Time, index: usize) {
        let Self { returning, ports, lanes, lanes_a_port, .. } = self;
        returning[index].collect(now, |number, bytes| {
            lane(&mut ports[index], lanes, index, *lanes_a_port, number.into()).credit += u32::from(bytes);
        });
    }

    /// The buffer at the other end of `sender` is free from `at` on, as that sees it.
    #[inline]
    fn give_back(&mut self, now: Time, sender: u32, lane: u8, bytes: u16, at: Time) {
        let index = sender as usize;
        let Self { returning, ports, lanes, lanes_a_port, .. } = self;
        let returning = &mut returning[index];
        returning.push(now, at, lane, bytes, |lane, bytes| {
            self::lane(&mut ports[index], lanes, index, *lanes_a_port, lane.into()).credit += u32::from(bytes);
        });
        if returning.waited_for & 1 << lane != 0 && at < self.ports[index].wake_at {
            self.ports[index].wake_at = at;
            self.events.push(at, Event::Free(sender));
        }
    }
}

/// Events of a bucket that are worth a look ahead.
const LARGE: usize = 16;
/// Events between two questions whether to go on, about: some ten milliseconds.
const PIECE: u64 = 100_000;
/// The most switches that a packet remembers its port for.
const LEG_MAX: u32 = u16::MAX as u32;
/// What a class of weight one sends before it is the next one's turn.
const TURN_BYTES: u32 = 1024;

#[cfg(test)]
mod tests;
