//! The cluster: processes that compute, call and wait, the processors they share, and what the schedulers decide.

use std::sync::Arc;

use rand::Rng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::matching::{ARRIVE, Flight, Flights, INJECT, Kind, MATCH, Mailbox, Posted};
use super::run_queue::{RunQueue, Standing};
use super::{Action, Config, Message, Placement, Process, Scheduler, Stats, from_us};
use crate::Error;
use crate::time::Time;
use crate::trace::{BLOCKING, Call, Context, Job};

const FOREVER: Time = Time::MAX;
/// Tokens: what ran out, its number, and how often it was set.
const CPU: u64 = 0;
const GANG: u64 = 1 << 62;
const BOOST: u64 = 2 << 62;

/// The jobs, the processors, and the messages between them.
#[derive(Debug)]
pub struct Cluster {
    pub(super) config: Config,
    times: Times,
    pub(super) jobs: Vec<JobState>,
    pub(super) procs: Vec<Proc>,
    /// The processes of each node, by their local number.
    nodes: Vec<Vec<u32>>,
    cpus: Vec<Cpu>,
    pub(super) flights: Flights,
    /// The jobs that the gang scheduler runs together, and whose turn it is.
    rows: Vec<Vec<u32>>,
    row: usize,
    gang_timer: u32,
    unfinished: usize,
    stats: Stats,
    matches: Vec<(u32, u32)>,
    seed: u64,
}

#[derive(Debug)]
struct Times {
    spin: Time,
    boost: Time,
    gang: Time,
    quantum: Time,
    switch: Time,
    interrupt: Time,
}

#[derive(Debug)]
pub(super) struct JobState {
    pub(super) job: Arc<Job>,
    /// The index of its first process.
    pub(super) first: u32,
    unfinished: usize,
    pub(super) started: Option<Time>,
    pub(super) finished: Option<Time>,
}

#[derive(Debug)]
pub(super) struct Proc {
    pub(super) job: u32,
    pub(super) rank: u32,
    place: Process,
    cpu: u32,
    /// The operation it is at.
    pub(super) at: usize,
    pub(super) doing: Doing,
    state: State,
    /// What each request has come to; the first is the blocking call's.
    slots: Vec<Slot>,
    pub(super) mailbox: Mailbox,
    standing: Standing,
    blocked_at: Time,
    /// Messages that have arrived and that no call has returned.
    unconsumed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Computes this much longer before its call.
    Compute(Time),
    /// Waits for a slot, and spins this much longer.
    Wait { slot: u32, spin: Time },
    /// Has reached its end.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its job has not started, or it has ended.
    Idle,
    /// Could run.
    Ready,
    /// Has its processor.
    Running,
    /// Sleeps until what it waits for has happened.
    Blocked,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    done: bool,
    receives: bool,
}

#[derive(Debug, Default)]
struct Cpu {
    current: Option<u32>,
    /// Whether the current process has begun, or the processor is still changing over to it.
    begun: bool,
    /// Until when what it does is accounted for.
    since: Time,
    last: Option<u32>,
    timer: u32,
    queue: RunQueue,
    procs: Vec<u32>,
    /// The batch job it belongs to.
    owner: Option<u32>,
    boost_next: usize,
}

impl Cluster {
    /// Puts the ranks of expanded jobs on nodes. The seed decides in which order the processes of a processor get
    /// their first turn, so that nodes do not run in step by chance, and when each node's boosts are.
    ///
    /// # Errors
    /// A configuration that cannot be, a placement that does not fit the jobs, a job whose collectives were not
    /// expanded, more processes of a batch or gang job on a node than processors.
    pub fn new(config: &Config, jobs: &[Arc<Job>], placement: &Placement, seed: u64) -> Result<Self, Error> {
        config.validate()?;
        let mut cluster = Self {
            times: Times {
                spin: match config.scheduler {
                    Scheduler::SpinBlock | Scheduler::DcsSpinBlock => from_us(config.spin_us),
                    _ => FOREVER,
                },
                boost: from_us(config.boost_us),
                gang: from_us(config.gang_us),
                quantum: match config.scheduler {
                    Scheduler::Batch | Scheduler::Gang => FOREVER,
                    _ => from_us(config.quantum_us),
                },
                switch: from_us(config.context_switch_us),
                interrupt: from_us(config.interrupt_us),
            },
            config: config.clone(),
            jobs: Vec::with_capacity(jobs.len()),
            procs: Vec::new(),
            nodes: vec![Vec::new(); placement.nodes as usize],
            cpus: Vec::new(),
            flights: Flights::default(),
            rows: Vec::new(),
            row: 0,
            gang_timer: 0,
            unfinished: jobs.len(),
            stats: Stats::default(),
            matches: Vec::new(),
            seed,
        };
        cluster.cpus.resize_with((placement.nodes * config.cpus) as usize, Cpu::default);
        if placement.jobs.len() != jobs.len() {
            let (placed, jobs) = (placement.jobs.len(), jobs.len());
            return Err(Error::config(format!("the placement is for {placed} jobs, but there are {jobs}")));
        }
        for (job, nodes) in jobs.iter().zip(&placement.jobs) {
            cluster.place(job, nodes)?;
        }
        Ok(cluster)
    }

    fn place(&mut self, job: &Arc<Job>, nodes: &[u32]) -> Result<(), Error> {
        let number = self.jobs.len() as u32;
        let name = &job.name;
        if nodes.len() != job.ranks.len() {
            let (placed, ranks) = (nodes.len(), job.ranks.len());
            return Err(Error::config(format!("{name} has {ranks} ranks, but its placement has {placed}")));
        }
        if job.ranks.iter().all(Vec::is_empty) {
            return Err(Error::config(format!("{name} has no operations; give a trace that holds some")));
        }
        let first = self.procs.len() as u32;
        for (rank, &node) in nodes.iter().enumerate() {
            let Some(procs) = self.nodes.get_mut(node as usize) else {
                let nodes = self.nodes.len();
                return Err(Error::config(format!(
                    "{name} has rank {rank} on node {node}, but there are {nodes} nodes"
                )));
            };
            if job.ranks[rank].iter().any(|op| matches!(op.call, Call::Collective { .. })) {
                return Err(Error::config(format!("{name} still has collectives; expand them before its replay")));
            }
            let place = Process { node, local: procs.len() as u32 };
            let process = self.procs.len() as u32;
            procs.push(process);
            let cpu = self.processor(node, first);
            let alone = matches!(self.config.scheduler, Scheduler::Batch | Scheduler::Gang);
            if alone && self.cpus[cpu as usize].procs.last().is_some_and(|&other| other >= first) {
                return Err(Error::config(format!(
                    "{name} has more processes on node {node} than its {} processors, which {:?} cannot run; give it \
                     more nodes or more cpus",
                    self.config.cpus, self.config.scheduler
                )));
            }
            self.cpus[cpu as usize].procs.push(process);
            self.procs.push(Proc {
                job: number,
                rank: rank as u32,
                place,
                cpu,
                at: 0,
                doing: Doing::Ended,
                state: State::Idle,
                slots: vec![Slot::default(); job.slots(rank) as usize + 1],
                mailbox: Mailbox::default(),
                standing: Standing { slice: self.times.quantum, ..Standing::default() },
                blocked_at: 0,
                unconsumed: 0,
            });
        }
        let unfinished = job.ranks.len();
        self.jobs.push(JobState { job: job.clone(), first, unfinished, started: None, finished: None });
        Ok(())
    }

    /// The processor of a node with the fewest processes of the job that begins at `first`, and then of all.
    fn processor(&self, node: u32, first: u32) -> u32 {
        let cpus = node * self.config.cpus..(node + 1) * self.config.cpus;
        let load = |&cpu: &u32| {
            let procs = &self.cpus[cpu as usize].procs;
            (procs.iter().filter(|&&process| process >= first).count(), procs.len(), cpu)
        };
        cpus.min_by_key(load).expect("a node has a processor")
    }

    /// Begins at time 0.
    pub fn start(&mut self, out: &mut Vec<Action>) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        match self.config.scheduler {
            Scheduler::Batch => self.start_batch(0, out),
            Scheduler::Gang => self.start_gang(out),
            _ => {
                for job in 0..self.jobs.len() as u32 {
                    self.begin(job, 0, out);
                }
                for cpu in 0..self.cpus.len() as u32 {
                    let mut order = self.cpus[cpu as usize].procs.clone();
                    order.shuffle(&mut random);
                    for process in order {
                        if self.procs[process as usize].state == State::Ready {
                            let level = self.procs[process as usize].standing.level();
                            self.cpus[cpu as usize].queue.push(process, level);
                        }
                    }
                    self.next(cpu, 0, out);
                    if self.config.scheduler == Scheduler::PeriodicBoost {
                        let at = random.random_range(0..self.times.boost);
                        out.push(Action::Wake { at, token: BOOST | u64::from(cpu) << 32 });
                    }
                }
            }
        }
    }

    /// A timer that was asked for has run out.
    pub fn wake(&mut self, now: Time, token: u64, out: &mut Vec<Action>) {
        let (index, timer) = ((token << 2 >> 34) as u32, token as u32);
        match token & 3 << 62 {
            CPU if self.cpus[index as usize].timer == timer => self.expired(index, now, out),
            GANG if self.gang_timer == timer => self.gang(now, out),
            BOOST => self.boost(index, now, out),
            _ => {}
        }
    }

    /// A message has left its node.
    pub fn injected(&mut self, now: Time, id: u32, out: &mut Vec<Action>) {
        let Flight { kind, from, send_slot, .. } = *self.flights.flight(id);
        self.flights.done(id, INJECT);
        if matches!(kind, Kind::Eager | Kind::Payload) {
            self.complete(from, send_slot, now, out);
        }
    }

    /// A message has arrived at its node.
    pub fn arrived(&mut self, now: Time, id: u32, out: &mut Vec<Action>) {
        let flight = *self.flights.flight(id);
        match flight.kind {
            Kind::Eager | Kind::Request => {
                let mut matches = std::mem::take(&mut self.matches);
                self.deliver(id, &mut matches);
                self.flights.done(id, ARRIVE);
                for (id, slot) in matches.drain(..) {
                    self.matched(id, slot, now, out);
                }
                self.matches = matches;
            }
            Kind::Clear => {
                self.flights.done(id, ARRIVE);
                let payload = Flight {
                    send_slot: flight.send_slot,
                    receive_slot: flight.receive_slot,
                    ..Flight::new(Kind::Payload, flight.to, flight.from, flight.bytes)
                };
                self.carry(payload, now, out);
            }
            Kind::Payload => {
                self.flights.done(id, ARRIVE);
                self.complete(flight.to, flight.receive_slot, now, out);
            }
        }
    }

    /// Whether a process has its processor now.
    #[must_use]
    pub fn running(&self, process: Process) -> bool {
        self.procs[self.nodes[process.node as usize][process.local as usize] as usize].state == State::Running
    }

    /// How many processes a node has.
    #[must_use]
    pub fn processes(&self, node: u32) -> usize {
        self.nodes[node as usize].len()
    }

    /// Whether all jobs have ended.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.unfinished == 0
    }

    /// When a job began and when its last process ended.
    #[must_use]
    pub fn times(&self, job: u32) -> (Option<Time>, Option<Time>) {
        let job = &self.jobs[job as usize];
        (job.started, job.finished)
    }

    /// What the processors did so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    // Messages

    fn deliver(&mut self, id: u32, matches: &mut Vec<(u32, u32)>) {
        let to = self.flights.flight(id).to;
        let receiver = &mut self.procs[to as usize];
        receiver.unconsumed += 1;
        receiver.mailbox.arrive(&mut self.flights, id, matches);
    }

    fn carry(&mut self, flight: Flight, now: Time, out: &mut Vec<Action>) {
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
    fn matched(&mut self, id: u32, slot: u32, now: Time, out: &mut Vec<Action>) {
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
    fn complete(&mut self, process: u32, slot: u32, now: Time, out: &mut Vec<Action>) {
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

    // Processes

    fn begin(&mut self, job: u32, now: Time, out: &mut Vec<Action>) {
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

    fn advance(&mut self, process: u32) {
        self.procs[process as usize].at += 1;
        self.procs[process as usize].doing = self.operation(process);
    }

    /// What the operation that a process is at begins with.
    fn operation(&self, process: u32) -> Doing {
        let proc = &self.procs[process as usize];
        match self.jobs[proc.job as usize].job.ranks[proc.rank as usize].get(proc.at) {
            None => Doing::Ended,
            Some(op) if self.config.gap_scale == 1.0 => Doing::Compute(op.gap),
            Some(op) => Doing::Compute((op.gap as f64 * self.config.gap_scale).round() as Time),
        }
    }

    /// The running process of a processor does what it can do without time passing.
    fn go_on(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
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
    fn call(&mut self, process: u32, now: Time, out: &mut Vec<Action>) {
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

    fn receive(&mut self, process: u32, receive: Posted, now: Time, out: &mut Vec<Action>) {
        let proc = &mut self.procs[process as usize];
        proc.slots[receive.slot as usize] = Slot { done: false, receives: true };
        if let Some(id) = proc.mailbox.receive(&mut self.flights, receive) {
            self.matched(id, receive.slot, now, out);
        }
    }

    fn end(&mut self, process: u32, now: Time, out: &mut Vec<Action>) {
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

    // Processors

    fn set_timer(&mut self, cpu: u32, at: Time, out: &mut Vec<Action>) {
        let timer = &mut self.cpus[cpu as usize].timer;
        *timer = timer.wrapping_add(1);
        if at < FOREVER {
            out.push(Action::Wake { at, token: CPU | u64::from(cpu) << 32 | u64::from(*timer) });
        }
    }

    /// Books the time since the last booking on the running process.
    fn account(&mut self, cpu: u32, now: Time) {
        let cpu = &mut self.cpus[cpu as usize];
        let Some(process) = cpu.current.filter(|_| cpu.begun) else { return };
        let time = now - cpu.since;
        cpu.since = now;
        let proc = &mut self.procs[process as usize];
        match &mut proc.doing {
            Doing::Compute(left) => {
                *left -= time;
                self.stats.computing += time;
            }
            Doing::Wait { spin, .. } => {
                if *spin < FOREVER {
                    *spin -= time;
                }
                self.stats.spinning += time;
            }
            Doing::Ended => {}
        }
        if proc.standing.slice < FOREVER {
            proc.standing.run(time);
        }
    }

    /// The timer of a processor has run out: the change-over, the computation, the spinning or the time slice is over.
    fn expired(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        if !self.cpus[cpu as usize].begun {
            self.cpus[cpu as usize].begun = true;
            self.cpus[cpu as usize].since = now;
            return self.go_on(cpu, now, out);
        }
        self.account(cpu, now);
        let process = self.cpus[cpu as usize].current.expect("only a process sets the timer");
        let standing = &mut self.procs[process as usize].standing;
        if standing.slice > 0 {
            return self.go_on(cpu, now, out);
        }
        standing.slice = self.times.quantum;
        standing.boosted = false;
        let level = standing.level();
        if self.cpus[cpu as usize].queue.is_empty() {
            return self.go_on(cpu, now, out);
        }
        self.procs[process as usize].state = State::Ready;
        self.cpus[cpu as usize].queue.expire(process, level, now);
        self.leave(cpu, now, out);
    }

    /// The running process gives up its processor to the next.
    fn leave(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        let state = &mut self.cpus[cpu as usize];
        state.current = None;
        state.timer = state.timer.wrapping_add(1);
        self.next(cpu, now, out);
    }

    fn next(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        if let Some(process) = self.cpus[cpu as usize].queue.pop() {
            self.dispatch(cpu, process, now, 0, out);
        }
    }

    /// Gives an idle processor to a process, `delay` after the present and what the change costs.
    fn dispatch(&mut self, cpu: u32, process: u32, now: Time, delay: Time, out: &mut Vec<Action>) {
        self.procs[process as usize].state = State::Running;
        let state = &mut self.cpus[cpu as usize];
        let mut begins = now + delay;
        if state.last.is_some_and(|last| last != process) {
            begins += self.times.switch;
            self.stats.context_switches += 1;
        }
        state.last = Some(process);
        state.current = Some(process);
        state.begun = begins == now;
        state.since = begins;
        if state.begun {
            self.go_on(cpu, now, out);
        } else {
            self.set_timer(cpu, begins, out);
        }
    }

    /// What a blocked process waits for has happened.
    fn unblock(&mut self, process: u32, now: Time, out: &mut Vec<Action>) {
        self.stats.interrupts += 1;
        let proc = &mut self.procs[process as usize];
        proc.state = State::Ready;
        proc.standing.sleep(now - proc.blocked_at);
        if self.config.scheduler == Scheduler::DcsSpinBlock {
            proc.standing.boosted = true;
            self.stats.boosts += 1;
        }
        let (cpu, level) = (proc.cpu, proc.standing.level());
        let interrupt = self.times.interrupt;
        let Some(current) = self.cpus[cpu as usize].current else {
            return self.dispatch(cpu, process, now, interrupt, out);
        };
        if level < self.procs[current as usize].standing.level() {
            return self.preempt(cpu, process, now, out);
        }
        self.cpus[cpu as usize].queue.push(process, level);
        // The interrupt takes its time from who runs.
        self.account(cpu, now);
        if !self.cpus[cpu as usize].begun {
            let begins = self.cpus[cpu as usize].since + interrupt;
            self.cpus[cpu as usize].since = begins;
            self.set_timer(cpu, begins, out);
        } else if let Doing::Compute(left) = &mut self.procs[current as usize].doing {
            *left += interrupt;
            self.go_on(cpu, now, out);
        }
    }

    /// Takes the processor from its process and gives it to another.
    fn preempt(&mut self, cpu: u32, process: u32, now: Time, out: &mut Vec<Action>) {
        self.account(cpu, now);
        if let Some(current) = self.cpus[cpu as usize].current.take() {
            let proc = &mut self.procs[current as usize];
            proc.state = State::Ready;
            self.cpus[cpu as usize].queue.push(current, proc.standing.level());
        }
        self.dispatch(cpu, process, now, self.times.interrupt, out);
    }

    // Schedulers

    /// Starts the jobs whose turn it is, in order, as long as each finds its processors free.
    fn start_batch(&mut self, now: Time, out: &mut Vec<Action>) {
        while let Some(job) = self.jobs.iter().position(|job| job.started.is_none()) {
            let procs = self.jobs[job].first..self.jobs[job].first + self.jobs[job].job.ranks.len() as u32;
            let cpu = |process: u32| self.procs[process as usize].cpu;
            if procs.clone().any(|process| self.cpus[cpu(process) as usize].owner.is_some()) {
                return;
            }
            for process in procs.clone() {
                let cpu = self.procs[process as usize].cpu;
                self.cpus[cpu as usize].owner = Some(job as u32);
            }
            self.begin(job as u32, now, out);
            for process in procs {
                if self.procs[process as usize].state == State::Ready {
                    self.dispatch(self.procs[process as usize].cpu, process, now, 0, out);
                }
            }
        }
    }

    /// Jobs that need no processor in common share a row, and rows take turns.
    fn start_gang(&mut self, out: &mut Vec<Action>) {
        let mut taken: Vec<Vec<bool>> = Vec::new();
        for job in 0..self.jobs.len() as u32 {
            let cpus: Vec<usize> =
                self.procs.iter().filter(|proc| proc.job == job).map(|proc| proc.cpu as usize).collect();
            let row = taken.iter().position(|taken| cpus.iter().all(|&cpu| !taken[cpu])).unwrap_or_else(|| {
                taken.push(vec![false; self.cpus.len()]);
                self.rows.push(Vec::new());
                taken.len() - 1
            });
            cpus.iter().for_each(|&cpu| taken[row][cpu] = true);
            self.rows[row].push(job);
        }
        for job in 0..self.jobs.len() as u32 {
            self.begin(job, 0, out);
        }
        self.row = self.rows.len().saturating_sub(1);
        self.gang(0, out);
    }

    fn row_has_ended(&self) -> bool {
        let ended = |&job: &u32| self.jobs[job as usize].finished.is_some();
        self.rows.get(self.row).is_none_or(|row| row.iter().all(ended))
    }

    /// The next row of jobs gets the processors.
    fn gang(&mut self, now: Time, out: &mut Vec<Action>) {
        self.gang_timer = self.gang_timer.wrapping_add(1);
        let before = self.row;
        if self.unfinished == 0 {
            return;
        }
        loop {
            self.row = (self.row + 1) % self.rows.len();
            if !self.row_has_ended() {
                break;
            }
        }
        let at = now + self.times.gang;
        out.push(Action::Wake { at, token: GANG | u64::from(self.gang_timer) });
        if before == self.row && now > 0 {
            return;
        }
        for cpu in 0..self.cpus.len() as u32 {
            self.account(cpu, now);
            let state = &mut self.cpus[cpu as usize];
            state.timer = state.timer.wrapping_add(1);
            if let Some(current) = state.current.take() {
                self.procs[current as usize].state = State::Ready;
            }
        }
        let turn = self.gang_timer;
        for place in 0..self.rows[self.row].len() {
            let job = &self.jobs[self.rows[self.row][place] as usize];
            for process in job.first..job.first + job.job.ranks.len() as u32 {
                if self.procs[process as usize].state == State::Ready {
                    self.dispatch(self.procs[process as usize].cpu, process, now, 0, out);
                }
                // The last to end at once has called the next row already.
                if self.gang_timer != turn {
                    return;
                }
            }
        }
    }

    /// The next process of a processor that has unconsumed messages gets it.
    fn boost(&mut self, cpu: u32, now: Time, out: &mut Vec<Action>) {
        let state = &self.cpus[cpu as usize];
        let count = state.procs.len();
        if state.procs.iter().all(|&process| self.procs[process as usize].doing == Doing::Ended) {
            return;
        }
        out.push(Action::Wake { at: now + self.times.boost, token: BOOST | u64::from(cpu) << 32 });
        let waiting = |&place: &usize| {
            let proc = &self.procs[self.cpus[cpu as usize].procs[place] as usize];
            proc.unconsumed > 0 && matches!(proc.state, State::Ready | State::Running)
        };
        let next = self.cpus[cpu as usize].boost_next;
        let Some(place) = (next..next + count).map(|place| place % count).find(waiting) else { return };
        self.cpus[cpu as usize].boost_next = place + 1;
        self.stats.boosts += 1;
        for other in 0..count {
            let process = self.cpus[cpu as usize].procs[other];
            let proc = &mut self.procs[process as usize];
            if std::mem::take(&mut proc.standing.boosted) && proc.state == State::Ready {
                let level = proc.standing.level();
                self.cpus[cpu as usize].queue.remove(process);
                self.cpus[cpu as usize].queue.push(process, level);
            }
        }
        let process = self.cpus[cpu as usize].procs[place];
        self.procs[process as usize].standing.boosted = true;
        if self.procs[process as usize].state == State::Ready {
            self.cpus[cpu as usize].queue.remove(process);
            self.preempt(cpu, process, now, out);
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
