//! A packet comes in: at a switch, which decides where it goes, or at its receiver.

use rand::Rng;

use super::packet::{Header, NONE};
use super::port::{Input, lane};
use super::{Event, Fabric, Refusal, Traffic};
use crate::routing::{self, Hop, Routing};
use crate::security::Pass;
use crate::time::Time;
use crate::topology::Shape;

/// The most switches that a packet remembers its port for.
const LEG_MAX: u32 = u16::MAX as u32;

impl Fabric {
    pub(super) fn arrive(&mut self, now: Time, packet: u32, traffic: &mut impl Traffic) {
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

    #[inline]
    fn head_came(&mut self, now: Time, packet: u32) {
        let place = packet as usize;
        if self.heads.len() <= place {
            self.heads.resize(place + 1, 0);
        }
        self.heads[place] = now;
    }

    pub(super) fn deliver(&mut self, now: Time, packet: u32, traffic: &mut impl Traffic) {
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
    #[inline]
    pub(super) fn route(&mut self, now: Time, packet: u32) {
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
    #[inline]
    pub(super) fn direct(&mut self, now: Time, packet: u32) {
        let Header { port, switch, to, class, bytes, leg, leg_port, out_lane, .. } = self.packets[packet];
        let first = self.topology.first_port(switch);
        let (hop, left) = if self.routing == Routing::Adaptive {
            (self.adapt(now, packet), 0)
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
                // Whoever is decided upon before it joins leaves it its room.
                let entry = self.packets[packet];
                self.lane(entry.out as usize, entry.out_lane.into()).queued += u32::from(bytes);
                return self.events.push(ready, Event::Join(packet));
            }
        }
        self.join(now, packet);
    }

    /// The step that suits what is on the way at present.
    #[inline]
    fn adapt(&mut self, now: Time, packet: u32) -> Hop {
        if let Shape::Dragonfly(_) = self.topology.shape {
            return self.adapt_by_way(now, packet);
        }
        let Header { port, switch, sender, to, class, lane, bytes, .. } = self.packets[packet];
        let stays = !routing::leaves_escape(&self.topology)
            && !self.topology.is_adapter(sender)
            && lane - class * self.lanes_a_class < self.escape_lanes;
        let better = if stays { None } else { self.roomiest(now, switch, to, class, bytes) };
        better.unwrap_or_else(|| routing::step(&self.topology, switch, if stays { port } else { to }, to))
    }

    /// The same in a dragonfly, where the first switch decides; apart, lest the other networks pay for it.
    #[inline(never)]
    fn adapt_by_way(&mut self, now: Time, packet: u32) -> Hop {
        let Header { switch, to, class, bytes, via, .. } = self.packets[packet];
        let via = if via == NONE { self.way(now, switch, to, class, bytes) } else { via };
        self.packets[packet].via = via;
        let Shape::Dragonfly(dragonfly) = &self.topology.shape else { unreachable!("only a dragonfly has groups") };
        routing::step_by_way(&self.topology, dragonfly, switch, to, via)
    }

    /// The adaptive lane with the most room among those that lead closer, if one has room for this packet and all that
    /// waits for it already.
    #[inline]
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

    /// By way of which group of a dragonfly a packet goes from its first switch: that of its receiver, or another if what is
    /// before it there, times the links of that way, is less.
    fn way(&mut self, now: Time, switch: u32, to: u32, class: u8, bytes: u16) -> u32 {
        let Shape::Dragonfly(dragonfly) = &self.topology.shape else { unreachable!("only a dragonfly has groups") };
        let target = self.topology.switch_of(to);
        let [group, last] = [switch, target].map(|switch| switch / dragonfly.routers);
        let others = dragonfly.groups() - 2;
        if group == last || others == 0 {
            return last;
        }
        // Any but these two.
        let mut via = self.random.random_range(0..others);
        for known in [group.min(last), group.max(last)] {
            via += u32::from(via >= known);
        }
        let entrance = dragonfly.entrance(group, via);
        let links = [
            dragonfly.distance(switch, target),
            dragonfly.distance(switch, entrance) + dragonfly.distance(entrance, target),
        ];
        let first = self.topology.first_port(switch);
        let ports = [last, via].map(|other| first + dragonfly.towards(group, switch % dragonfly.routers, other));
        let [shortest, detour] = ports.map(|port| u64::from(bytes) + self.before(now, port, class));
        if shortest * u64::from(links[0]) <= detour * u64::from(links[1]) { last } else { via }
    }

    /// Bytes of a class that wait for a port or are in the buffer at its other end, as far as it knows.
    fn before(&mut self, now: Time, port: u32, class: u8) -> u64 {
        self.collect(now, port as usize);
        let lanes = usize::from(class * self.lanes_a_class)..usize::from((class + 1) * self.lanes_a_class);
        let buffer = self.config.buffer_bytes;
        lanes
            .map(|number| {
                let lane = self.lane(port as usize, number);
                u64::from(buffer - lane.credit) + u64::from(lane.queued)
            })
            .sum()
    }
}
