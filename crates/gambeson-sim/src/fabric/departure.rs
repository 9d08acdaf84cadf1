//! A packet leaves: it waits at its output until that is free and the next buffer has room; and credit comes back.

use super::packet::{Header, NONE};
use super::port::{Lane, lane};
use super::{Event, Fabric};
use crate::time::Time;

/// What a class of weight one sends before it is the next one's turn.
const TURN_BYTES: u32 = 1024;

impl Fabric {
    /// A packet joins the queue of its adapter.
    #[inline]
    pub(super) fn enter(&mut self, now: Time, packet: u32) {
        let class = self.packets[packet].class;
        let entry = &mut self.packets[packet];
        entry.out_lane = class * self.lanes_a_class;
        self.join(now, packet);
    }

    /// A packet that was decided upon joins the queue of its output, where it counted until now.
    pub(super) fn join_late(&mut self, now: Time, packet: u32) {
        let Header { out, out_lane, bytes, .. } = self.packets[packet];
        self.lane(out as usize, out_lane.into()).queued -= u32::from(bytes);
        self.join(now, packet);
    }

    /// Queues a packet at its output.
    #[inline]
    pub(super) fn join(&mut self, now: Time, packet: u32) {
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
    #[inline]
    pub(super) fn serve(&mut self, now: Time, out: u32) {
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
            debug_assert!(
                chosen % usize::from(self.lanes_a_class) < usize::from(self.escape_lanes),
                "nobody waits for room on an adaptive lane"
            );
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

    #[inline]
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

    #[inline]
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
        if self.marker.is_some() && entry.port != NONE {
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
        if entry.port == NONE {
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
    #[inline]
    fn next_of_input(&mut self, now: Time, gone: &Header) {
        let input = &mut self.inputs[gone.port as usize * self.lanes_a_port + usize::from(gone.lane)];
        input.first = gone.next_in;
        match gone.next_in {
            NONE => input.last = NONE,
            next => self.direct(now, next),
        }
    }

    #[inline]
    pub(super) fn lane(&mut self, index: usize, number: usize) -> &mut Lane {
        lane(&mut self.ports[index], &mut self.lanes, index, self.lanes_a_port, number)
    }

    /// Counts the credit that has come back to a port.
    #[inline]
    pub(super) fn collect(&mut self, now: Time, index: usize) {
        let Self { returning, ports, lanes, lanes_a_port, .. } = self;
        returning[index].collect(now, |number, bytes| {
            lane(&mut ports[index], lanes, index, *lanes_a_port, number.into()).credit += u32::from(bytes);
        });
    }

    /// The buffer at the other end of `sender` is free from `at` on, as that sees it.
    #[inline]
    pub(super) fn give_back(&mut self, now: Time, sender: u32, lane: u8, bytes: u16, at: Time) {
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
