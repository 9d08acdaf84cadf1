//! The cluster: what it consists of, how jobs are placed on it, and what the simulation around it calls.

mod replay;
mod schedule;

use std::sync::Arc;

use rand::Rng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::matching::{ARRIVE, Flight, Flights, INJECT, Kind, Mailbox};
use super::run_queue::{RunQueue, Standing};
use super::{Action, Config, Placement, Process, Scheduler, Stats, from_us};
use crate::Error;
use crate::time::Time;
use crate::trace::{Call, Job};

/// The most processors of a cluster.
const CPUS_MAX: u32 = 1 << 24;
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
        let (nodes, each) = (placement.nodes, config.cpus);
        let cpus = nodes.checked_mul(each).filter(|&cpus| cpus <= CPUS_MAX).ok_or_else(|| {
            Error::config(format!(
                "{nodes} nodes with {each} cpus each; lower cpus, so that there are {CPUS_MAX} at most"
            ))
        })?;
        cluster.cpus.resize_with(cpus as usize, Cpu::default);
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
}
