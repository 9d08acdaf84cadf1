//! Processes: they compute, call and wait, and their messages meet.

use super::{Cluster, Doing, Slot, State};
use crate::process::matching::{Flight, Kind, MATCH, Posted};
use crate::process::{Action, Message, Scheduler};
use crate::time::Time;
use crate::trace::{BLOCKING, Call, Context};

impl Cluster {
    pub(super) fn deliver(&mut self, id: u32, matches: &mut Vec<(u32, u32)>) {
        let to = self.flights.flight(id).to;
        let receiver = &mut self.procs[to as usize];
        receiver.unconsumed += 1;
        receiver.mailbox.arrive(&mut self.flights, id, matches);
    }

    pub(super) fn carry(&mut self, flight: Flight, now: Time, out: &mut Vec<Action>) {
        let (from, to) = (&self.procs[flight.from as usize], &self.procs[flight.to as usize]);
        let bytes = match flight.kind {
            Kind::Request | Kind::Clear => self.config.control_bytes,
            Kind::Eager | Kind::Payload => flight.bytes,
        };
        let id = self.flights.add(flight);
        self.stats.messages += 1;
        out.push(Action::Send {
            at: now,
            message: Message { id, job: from.job, from: from.place, to: to.place, bytes },
        });
    }

    /// A receive has got its message, or the request for it.
    pub(super) fn matched(&mut self, id: u32, slot: u32, now: Time, out: &mut Vec<Action>) {
        let flight = *self.flights.flight(id);
        self.flights.done(id, MATCH);
        match flight.kind {
            Kind::Request => {
                let answer = Flight {
                    send_slot: flight.send_slot,
                    receive_slot: slot,
                    ..Flight::new(Kind::Clear, flight.to, flight.from, flight.bytes)
                };
                self.carry(answer, now, out);
            }
            _ => self.complete(flight.to, slot, now, out),
        }
    }

    /// A request is complete; its process goes on if it waits for that.
    pub(super) fn complete(&mut self, process: u32, slot: u32, now: Time, out: &mut Vec<Action>) {
        let proc = &mut self.procs[process as usize];
        proc.slots[slot as usize].done = true;
        let waits = matches!(proc.doing, Doing::Wait { slot: waited, .. } if waited == slot);
        match proc.state {
            State::Running if waits && self.cpus[proc.cpu as usize].begun => {
                let cpu = proc.cpu;
                self.account(cpu, now);
                self.go_on(cpu, now, out);
            }
            State::Blocked if waits => self.unblock(process, now, out),
            _ => {}
        }
    }

    pub(super) fn begin(&mut self, job: u32, now: Time, out: &mut Vec<Action>) {
        let state = &mut self.jobs[job as usize];
        state.started = Some(now);
        let (first, ranks) = (state.first, state.job.ranks.len() as u32);
        for process in first..first + ranks {
            self.procs[process as usize].doing = self.operation(process);
            match self.procs[process as usize].doing {
                Doing::Ended => self.end(process, now, out),
                _ => self.procs[process as usize].state = State::Ready,
            }
        }
    }

    pub(super) fn advance(&mut self, process: u32) {
        self.procs[process as usize].at += 1;
        self.procs[process as usize].doing = self.operation(process);
    }

    /// What the operation that a process is at begins with.
    pub(super) fn operation(&self, process: u32) -> Doing {
        let proc = &self.procs[process as usize];
        match self.jobs[proc.job as usize].job.ranks[proc.rank as usize].get(proc.at) {
            None => Doing::Ended,
            Some(op) if self.config.gap_scale == 1.0 => Doing::Compute(op.gap),
            Some(op) => Doing::Compute((op.gap as f64 * self.config.gap_scale).round() as Time),
        }
    }

    /// The running process of a processor does what it can do without time passing.
    pub(super) fn go_on(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        let process = self.cpus[cpu as usize].current.expect("a process runs");
        loop {
            let proc = &mut self.procs[process as usize];
            match proc.doing {
                Doing::Compute(0) => self.call(process, now, out),
                Doing::Compute(left) => {
                    let at = now.saturating_add(left.min(proc.standing.slice));
                    return self.set_timer(cpu, at, out);
                }
                Doing::Wait { slot, .. } if proc.slots[slot as usize].done => {
                    proc.unconsumed -= u32::from(proc.slots[slot as usize].receives);
                    self.advance(process);
                }
                Doing::Wait { spin: 0, .. } => {
                    proc.state = State::Blocked;
                    proc.blocked_at = now;
                    proc.standing.boosted = false;
                    self.stats.blocks += 1;
                    return self.leave(cpu, now, out);
                }
                Doing::Wait { spin, .. } => {
                    let at = now.saturating_add(spin.min(proc.standing.slice));
                    return self.set_timer(cpu, at, out);
                }
                Doing::Ended => {
                    // The processor is free before the end of the job is known, which may start another there.
                    self.leave(cpu, now, out);
                    return self.end(process, now, out);
                }
            }
        }
    }

    /// The call of an operation, whose gap is over.
    pub(super) fn call(&mut self, process: u32, now: Time, out: &mut Vec<Action>) {
        let proc = &self.procs[process as usize];
        let op = self.jobs[proc.job as usize].job.ranks[proc.rank as usize][proc.at];
        let waits = match op.call {
            Call::Send { to, bytes, tag, context } => {
                self.send(process, Outgoing { to, bytes, tag, context, slot: BLOCKING, record: op.record }, now, out);
                Some(BLOCKING)
            }
            Call::Isend { to, bytes, tag, context, slot } => {
                self.send(process, Outgoing { to, bytes, tag, context, slot, record: op.record }, now, out);
                None
            }
            Call::Recv { from, tag, context } => {
                self.receive(process, Posted { from, tag, context, slot: BLOCKING, record: op.record }, now, out);
                Some(BLOCKING)
            }
            Call::Irecv { from, tag, context, slot } => {
                self.receive(process, Posted { from, tag, context, slot, record: op.record }, now, out);
                None
            }
            Call::Wait { slot } => Some(slot),
            Call::Compute | Call::Collective { .. } => None,
        };
        match waits {
            Some(slot) => self.procs[process as usize].doing = Doing::Wait { slot, spin: self.times.spin },
            None => self.advance(process),
        }
    }

    fn send(&mut self, process: u32, message: Outgoing, now: Time, out: &mut Vec<Action>) {
        let proc = &mut self.procs[process as usize];
        proc.slots[message.slot as usize] = Slot { done: false, receives: false };
        let to = self.jobs[proc.job as usize].first + message.to;
        let itself = to == process;
        let kind = match self.config.eager_bytes {
            Some(eager) if message.bytes > eager && !itself => Kind::Request,
            _ => Kind::Eager,
        };
        let mut flight = Flight {
            source: proc.rank,
            tag: message.tag,
            context: message.context,
            record: message.record,
            send_slot: message.slot,
            ..Flight::new(kind, process, to, message.bytes)
        };
        proc.mailbox.number(&mut flight, message.to);
        if !itself {
            return self.carry(flight, now, out);
        }
        // No fabric carries what a process sends to itself.
        proc.slots[message.slot as usize].done = true;
        flight.waits = MATCH;
        let id = self.flights.add(flight);
        let mut matches = std::mem::take(&mut self.matches);
        self.deliver(id, &mut matches);
        for (id, slot) in matches.drain(..) {
            self.matched(id, slot, now, out);
        }
        self.matches = matches;
    }

    pub(super) fn receive(&mut self, process: u32, receive: Posted, now: Time, out: &mut Vec<Action>) {
        let proc = &mut self.procs[process as usize];
        proc.slots[receive.slot as usize] = Slot { done: false, receives: true };
        if let Some(id) = proc.mailbox.receive(&mut self.flights, receive) {
            self.matched(id, receive.slot, now, out);
        }
    }

    pub(super) fn end(&mut self, process: u32, now: Time, out: &mut Vec<Action>) {
        let proc = &mut self.procs[process as usize];
        proc.state = State::Idle;
        let number = proc.job;
        let job = &mut self.jobs[number as usize];
        job.unfinished -= 1;
        if job.unfinished > 0 {
            return;
        }
        job.finished = Some(now);
        self.unfinished -= 1;
        out.push(Action::Finished { at: now, job: number });
        match self.config.scheduler {
            Scheduler::Batch => {
                self.cpus.iter_mut().filter(|cpu| cpu.owner == Some(number)).for_each(|cpu| cpu.owner = None);
                self.start_batch(now, out);
            }
            Scheduler::Gang if self.row_has_ended() => self.gang(now, out),
            _ => {}
        }
    }
}

/// What a process sends.
struct Outgoing {
    to: u32,
    bytes: u32,
    tag: i32,
    context: Context,
    slot: u32,
    record: u32,
}
