//! Collectives as messages: each is replaced by the sends and receives of a named algorithm.
//!
//! The messages travel in the communicator's collective context, where no receive of the program can take them, and
//! rely on MPI's order between two ranks alone, as every rank calls the collectives of a communicator in one order. A
//! step that sends and receives is an irecv, a send and a wait, as MPI_Sendrecv is. What a rank computes within a
//! collective (reductions, copies) is not modelled.

use serde::{Deserialize, Serialize};

use super::{Call, Collective, Context, Job, Op};
use crate::Error;

/// The algorithm of each collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Algorithms {
    /// `MPI_Barrier`
    pub barrier: Barrier,
    /// `MPI_Bcast`, `MPI_Reduce`, `MPI_Gather` and `MPI_Scatter`
    pub rooted: Rooted,
    /// `MPI_Allreduce`
    pub allreduce: Allreduce,
    /// `MPI_Allgather`
    pub allgather: Allgather,
    /// `MPI_Alltoall`, `MPI_Alltoallv` and `MPI_Reduce_scatter_block`
    pub alltoall: Alltoall,
    /// `MPI_Scan`
    pub scan: Scan,
}

/// How a barrier works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Barrier {
    /// In step k everybody tells the rank 2^k further on.
    #[default]
    Dissemination,
    /// Around the ring twice.
    Ring,
}

/// How a collective with a root works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rooted {
    /// Along a binomial tree.
    #[default]
    Binomial,
    /// Directly between the root and everybody.
    Linear,
}

/// How an allreduce works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allreduce {
    /// Whole buffers with the rank 2^k away; ranks beyond a power of two fold into others first.
    #[default]
    RecursiveDoubling,
    /// A reduce-scatter and an allgather around a ring, each in parts of 1/n.
    Ring,
    /// A reduce to rank 0 and a bcast, as [`Rooted`] says.
    ReduceBcast,
}

/// How an allgather works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allgather {
    /// Everybody passes on what came last, n - 1 times.
    #[default]
    Ring,
    /// What was gathered so far goes to the rank 2^k before.
    Bruck,
}

/// How an alltoall works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alltoall {
    /// In step k everybody sends to the rank k further on and receives from the rank k before.
    #[default]
    Pairwise,
    /// Everything at once: all receives, all sends, then all waits.
    Linear,
}

/// How a scan works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scan {
    /// In step k everybody sends to the rank 2^k further on, if there is one.
    #[default]
    RecursiveDoubling,
    /// From rank to rank.
    Linear,
}

/// The job with every collective replaced by its messages.
///
/// # Errors
/// A message that gets longer than 4 GiB - 1.
pub fn expand(job: &Job, algorithms: &Algorithms) -> Result<Job, Error> {
    let mut ranks = Vec::with_capacity(job.ranks.len());
    for (rank, ops) in job.ranks.iter().enumerate() {
        let mut steps = Steps::new(job, rank as u32, ops.len());
        for op in ops {
            match op.call {
                Call::Collective { kind, communicator, root, bytes, counts } => {
                    steps.begin(op, communicator);
                    steps.collective(kind, algorithms, steps.place(root), bytes.into(), counts);
                    steps.end();
                }
                _ => steps.ops.push(*op),
            }
        }
        if let Some(record) = steps.too_long {
            let what = "a message of this collective would be longer than 4 GiB; choose another algorithm for it";
            return Err(Error::trace(&job.file, Some(rank as u32), Some(job.place(record)), what));
        }
        ranks.push(steps.ops);
    }
    Ok(Job {
        name: job.name.clone(),
        file: job.file.clone(),
        ranks,
        communicators: job.communicators.clone(),
        counts: Vec::new(),
        text: job.text,
        recorded: job.recorded,
    })
}

/// The operations of one rank while its collectives are being expanded; places are positions in the communicator.
struct Steps<'j> {
    job: &'j Job,
    rank: u32,
    ops: Vec<Op>,
    /// The slots from here on are the collectives' own.
    slots: u32,
    too_long: Option<u32>,
    from: Op,
    begun: usize,
    context: Context,
    members: &'j [u32],
    me: usize,
}

impl<'j> Steps<'j> {
    fn new(job: &'j Job, rank: u32, ops: usize) -> Self {
        Self {
            job,
            rank,
            ops: Vec::with_capacity(ops),
            slots: job.slots(rank as usize) + 1,
            too_long: None,
            from: Op { gap: 0, call: Call::Compute, record: 0 },
            begun: 0,
            context: Context::collective(0),
            members: &[],
            me: 0,
        }
    }

    fn begin(&mut self, op: &Op, communicator: u16) {
        self.from = *op;
        self.begun = self.ops.len();
        self.context = Context::collective(communicator);
        self.members = &self.job.communicators[usize::from(communicator)];
        self.me = self.place(self.rank);
    }

    /// The first step carries the time before the collective.
    fn end(&mut self) {
        if self.begun == self.ops.len() && self.from.gap > 0 {
            self.push(Call::Compute);
        }
        if let Some(first) = self.ops.get_mut(self.begun) {
            first.gap = self.from.gap;
        }
    }

    fn place(&self, rank: u32) -> usize {
        if self.members.get(rank as usize) == Some(&rank) {
            return rank as usize;
        }
        self.members.iter().position(|&member| member == rank).unwrap_or(0)
    }

    fn push(&mut self, call: Call) {
        self.ops.push(Op { gap: 0, call, record: self.from.record });
    }

    fn bytes(&mut self, bytes: u64) -> u32 {
        u32::try_from(bytes).unwrap_or_else(|_| {
            self.too_long.get_or_insert(self.from.record);
            0
        })
    }

    fn send(&mut self, to: usize, bytes: u64) {
        let bytes = self.bytes(bytes);
        self.push(Call::Send { to: self.members[to], bytes, tag: 0, context: self.context });
    }

    fn recv(&mut self, from: usize) {
        self.push(Call::Recv { from: self.members[from], tag: 0, context: self.context });
    }

    fn exchange(&mut self, to: usize, bytes: u64, from: usize) {
        let slot = self.slots;
        self.push(Call::Irecv { from: self.members[from], tag: 0, context: self.context, slot });
        self.send(to, bytes);
        self.push(Call::Wait { slot });
    }

    /// The place `by` further on.
    fn on(&self, by: usize) -> usize {
        (self.me + by) % self.members.len()
    }

    /// The place `by` before.
    fn before(&self, by: usize) -> usize {
        (self.me + self.members.len() - by % self.members.len()) % self.members.len()
    }

    fn collective(&mut self, kind: Collective, algorithms: &Algorithms, root: usize, bytes: u64, counts: u32) {
        let n = self.members.len();
        if n == 1 {
            return;
        }
        match kind {
            Collective::Barrier => match algorithms.barrier {
                Barrier::Dissemination => {
                    self.powers().for_each(|step| self.exchange(self.on(step), 0, self.before(step)));
                }
                Barrier::Ring => (0..2).for_each(|_| self.chain(0, true)),
            },
            Collective::Bcast => self.down(algorithms.rooted, root, |_| bytes),
            Collective::Reduce => self.up(algorithms.rooted, root, |_| bytes),
            Collective::Scatter => self.down(algorithms.rooted, root, |below| below as u64 * bytes),
            Collective::Gather => self.up(algorithms.rooted, root, |below| below as u64 * bytes),
            Collective::Allreduce => match algorithms.allreduce {
                Allreduce::RecursiveDoubling => self.recursive_doubling(bytes),
                Allreduce::Ring => {
                    // Both halves pass on n - 1 parts, the first of them shorter where n does not divide the buffer.
                    for step in (0..n - 1).chain(0..n - 1) {
                        let part = self.before(step) as u64;
                        let (n, next) = (n as u64, part + 1);
                        self.exchange(self.on(1), bytes * next / n - bytes * part / n, self.before(1));
                    }
                }
                Allreduce::ReduceBcast => {
                    self.up(algorithms.rooted, 0, |_| bytes);
                    self.down(algorithms.rooted, 0, |_| bytes);
                }
            },
            Collective::Allgather => match algorithms.allgather {
                Allgather::Ring => (1..n).for_each(|_| self.exchange(self.on(1), bytes, self.before(1))),
                Allgather::Bruck => self.powers().for_each(|step| {
                    self.exchange(self.before(step), bytes * step.min(n - step) as u64, self.on(step));
                }),
            },
            Collective::Alltoall | Collective::ReduceScatter => self.alltoall(algorithms.alltoall, |_| bytes),
            Collective::Alltoallv => {
                let counts = &self.job.counts[counts as usize..][..n];
                self.alltoall(algorithms.alltoall, |to| counts[to].into());
            }
            Collective::Scan => match algorithms.scan {
                Scan::RecursiveDoubling => self.powers().for_each(|step| {
                    let (to, from) = (self.me + step, self.me.checked_sub(step));
                    match (to < n, from) {
                        (true, Some(from)) => self.exchange(to, bytes, from),
                        (true, None) => self.send(to, bytes),
                        (false, Some(from)) => self.recv(from),
                        (false, None) => {}
                    }
                }),
                Scan::Linear => self.chain(bytes, false),
            },
        }
    }

    /// The powers of two below the number of members.
    fn powers(&self) -> impl Iterator<Item = usize> + use<> {
        let n = self.members.len();
        std::iter::successors(Some(1), |step| Some(step * 2)).take_while(move |&step| step < n)
    }

    /// From place 0 to the last, and back to 0 where the chain is a ring.
    fn chain(&mut self, bytes: u64, closed: bool) {
        let last = self.me + 1 == self.members.len();
        if self.me > 0 {
            self.recv(self.me - 1);
        }
        if closed || !last {
            self.send(self.on(1), bytes);
        }
        if closed && self.me == 0 {
            self.recv(self.before(1));
        }
    }

    /// From the root to everybody; `bytes` of a message depends on how many ranks it serves.
    fn down(&mut self, rooted: Rooted, root: usize, bytes: impl Fn(usize) -> u64) {
        match rooted {
            Rooted::Linear if self.me == root => {
                (1..self.members.len()).for_each(|by| self.send(self.on(by), bytes(1)));
            }
            Rooted::Linear => self.recv(root),
            Rooted::Binomial => {
                let (parent, children) = self.binomial(root);
                if let Some(parent) = parent {
                    self.recv(parent);
                }
                children.iter().rev().for_each(|&(child, below)| self.send(child, bytes(below)));
            }
        }
    }

    /// From everybody to the root.
    fn up(&mut self, rooted: Rooted, root: usize, bytes: impl Fn(usize) -> u64) {
        match rooted {
            Rooted::Linear if self.me == root => (1..self.members.len()).for_each(|by| self.recv(self.on(by))),
            Rooted::Linear => self.send(root, bytes(1)),
            Rooted::Binomial => {
                let (parent, children) = self.binomial(root);
                children.iter().for_each(|&(child, _)| self.recv(child));
                if let Some(parent) = parent {
                    self.send(parent, bytes(1 + children.iter().map(|child| child.1).sum::<usize>()));
                }
            }
        }
    }

    /// My parent in the binomial tree of a root, and my children with the sizes of their trees, smallest first.
    fn binomial(&self, root: usize) -> (Option<usize>, Vec<(usize, usize)>) {
        let n = self.members.len();
        let relative = (self.me + n - root) % n;
        let lowest = if relative == 0 { n.next_power_of_two() } else { relative & relative.wrapping_neg() };
        let parent = (relative != 0).then(|| (relative - lowest + root) % n);
        let children = self
            .powers()
            .take_while(|&step| step < lowest)
            .filter(|step| relative + step < n)
            .map(|step| ((relative + step + root) % n, step.min(n - relative - step)));
        (parent, children.collect())
    }

    fn recursive_doubling(&mut self, bytes: u64) {
        let n = self.members.len();
        let power = 1 << n.ilog2();
        let folded = n - power;
        if self.me < 2 * folded && self.me.is_multiple_of(2) {
            self.send(self.me + 1, bytes);
            return self.recv(self.me + 1);
        }
        if self.me < 2 * folded {
            self.recv(self.me - 1);
        }
        let mine = if self.me < 2 * folded { self.me / 2 } else { self.me - folded };
        let place = |kept: usize| if kept < folded { 2 * kept + 1 } else { kept + folded };
        for step in self.powers().filter(|&step| step < power) {
            self.exchange(place(mine ^ step), bytes, place(mine ^ step));
        }
        if self.me < 2 * folded {
            self.send(self.me - 1, bytes);
        }
    }

    fn alltoall(&mut self, alltoall: Alltoall, bytes: impl Fn(usize) -> u64) {
        let n = self.members.len();
        match alltoall {
            Alltoall::Pairwise => {
                (1..n).for_each(|step| self.exchange(self.on(step), bytes(self.on(step)), self.before(step)));
            }
            Alltoall::Linear => {
                let (first, context) = (self.slots, self.context);
                for step in 1..n {
                    let (from, slot) = (self.members[self.before(step)], first + step as u32 - 1);
                    self.push(Call::Irecv { from, tag: 0, context, slot });
                }
                for step in 1..n {
                    let (to, slot) = (self.on(step), first + (n + step) as u32 - 2);
                    let bytes = self.bytes(bytes(to));
                    self.push(Call::Isend { to: self.members[to], bytes, tag: 0, context, slot });
                }
                (0..2 * (n as u32 - 1)).for_each(|slot| self.push(Call::Wait { slot: first + slot }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;

    const KINDS: [Collective; 11] = [
        Collective::Barrier,
        Collective::Bcast,
        Collective::Reduce,
        Collective::Allreduce,
        Collective::Gather,
        Collective::Scatter,
        Collective::Allgather,
        Collective::Alltoall,
        Collective::Alltoallv,
        Collective::ReduceScatter,
        Collective::Scan,
    ];

    fn others() -> Algorithms {
        Algorithms {
            barrier: Barrier::Ring,
            rooted: Rooted::Linear,
            allreduce: Allreduce::Ring,
            allgather: Allgather::Bruck,
            alltoall: Alltoall::Linear,
            scan: Scan::Linear,
        }
    }

    /// One collective among the odd ranks of a job of `2 n` ranks.
    fn job(kind: Collective, n: u32, root: u32, bytes: u32) -> Job {
        let members: Arc<[u32]> = (0..n).map(|place| 2 * place + 1).collect();
        let call = |rank: u32| Call::Collective {
            kind,
            communicator: 1,
            root: members[root as usize],
            bytes,
            counts: if kind == Collective::Alltoallv { rank / 2 * n } else { 0 },
        };
        let ops = |rank: u32| vec![Op { gap: 3, call: call(rank), record: 4 }];
        Job {
            ranks: (0..2 * n).map(|rank| if rank % 2 == 1 { ops(rank) } else { Vec::new() }).collect(),
            communicators: vec![(0..2 * n).collect(), members.clone()],
            counts: (0..n * n).collect(),
            ..Job::default()
        }
    }

    /// Runs the ranks with messages that take no time, and gives the messages and what each rank may know at the end
    /// of each other one's input.
    fn run(job: &Job) -> (Vec<(u32, u32, u32)>, Vec<u64>) {
        let n = job.ranks.len();
        let mut known: Vec<u64> = (0..n).map(|rank| 1 << rank).collect();
        let mut at = vec![0; n];
        let mut slots: Vec<BTreeMap<u32, Option<u32>>> = vec![BTreeMap::new(); n];
        let mut messages = Vec::new();
        let mut under_way: BTreeMap<(u32, u32), std::collections::VecDeque<u64>> = BTreeMap::new();
        loop {
            let mut moved = false;
            for rank in 0..n {
                while let Some(op) = job.ranks[rank].get(at[rank]) {
                    let source = match op.call {
                        Call::Send { to, bytes, .. } | Call::Isend { to, bytes, .. } => {
                            messages.push((rank as u32, to, bytes));
                            under_way.entry((rank as u32, to)).or_default().push_back(known[rank]);
                            if let Call::Isend { slot, .. } = op.call {
                                assert!(slots[rank].insert(slot, None).is_none());
                            }
                            None
                        }
                        Call::Irecv { from, slot, .. } => {
                            assert!(slots[rank].insert(slot, Some(from)).is_none());
                            None
                        }
                        Call::Recv { from, .. } => Some(from),
                        Call::Wait { slot } => slots[rank][&slot],
                        Call::Compute => None,
                        Call::Collective { .. } => panic!("it was expanded"),
                    };
                    if let Some(from) = source {
                        let Some(news) = under_way.get_mut(&(from, rank as u32)).and_then(|queue| queue.pop_front())
                        else {
                            break;
                        };
                        known[rank] |= news;
                    }
                    if let Call::Wait { slot } = op.call {
                        slots[rank].remove(&slot);
                    }
                    at[rank] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        for rank in 0..n {
            assert_eq!(at[rank], job.ranks[rank].len(), "rank {rank} waits for ever");
            assert!(slots[rank].is_empty());
        }
        assert!(under_way.values().all(|queue| queue.is_empty()), "a message that nobody receives");
        (messages, known)
    }

    #[test]
    fn everybody_learns_what_the_collective_says() {
        for algorithms in [Algorithms::default(), others()] {
            for n in 1..=13 {
                let all = (0..n).fold(0_u64, |all, place| all | 1 << (2 * place + 1));
                for kind in KINDS {
                    for root in [0, n / 2, n - 1] {
                        let (_, known) = run(&expand(&job(kind, n, root, 100), &algorithms).unwrap());
                        for place in 0..n {
                            let mine = known[2 * place as usize + 1];
                            let least = match kind {
                                Collective::Bcast | Collective::Scatter => 1 << (2 * root + 1),
                                Collective::Reduce | Collective::Gather if place != root => 0,
                                Collective::Scan => all & ((1 << (2 * place + 2)) - 1),
                                _ => all,
                            };
                            assert_eq!(mine & least, least, "{kind:?} of {n} ranks from {root}, place {place}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn sends_the_bytes_the_algorithms_are_known_for() {
        // Messages and bytes of the textbook forms for 8 ranks and 100 bytes.
        let cases = [
            (Collective::Barrier, Algorithms::default(), 24, 0),
            (Collective::Bcast, Algorithms::default(), 7, 700),
            (Collective::Allreduce, Algorithms::default(), 24, 2400),
            (Collective::Allreduce, others(), 112, 14 * 100),
            (Collective::Gather, Algorithms::default(), 7, 12 * 100),
            (Collective::Gather, others(), 7, 700),
            (Collective::Allgather, Algorithms::default(), 56, 5600),
            (Collective::Allgather, others(), 24, 5600),
            (Collective::Alltoall, Algorithms::default(), 56, 5600),
            (
                Collective::Alltoallv,
                Algorithms::default(),
                56,
                (0..64).sum::<u32>() - (0..8).map(|i| 9 * i).sum::<u32>(),
            ),
            (Collective::Scan, Algorithms::default(), 17, 1700),
        ];
        for (kind, algorithms, messages, bytes) in cases {
            let (sent, _) = run(&expand(&job(kind, 8, 0, 100), &algorithms).unwrap());
            assert_eq!((sent.len(), sent.iter().map(|sent| sent.2).sum()), (messages, bytes), "{kind:?}");
        }
    }

    #[test]
    fn keeps_the_time_before_and_refuses_messages_too_long() {
        let expanded = expand(&job(Collective::Barrier, 3, 0, 0), &Algorithms::default()).unwrap();
        for rank in [1, 3, 5] {
            assert_eq!(expanded.ranks[rank].iter().map(|op| op.gap).sum::<u64>(), 3);
            assert_eq!((expanded.ranks[rank][0].gap, expanded.ranks[rank][0].record), (3, 4));
        }
        assert_eq!(expand(&job(Collective::Barrier, 1, 0, 0), &Algorithms::default()).unwrap().ranks[1].len(), 1);
        let error = expand(&job(Collective::Gather, 8, 0, 1 << 31), &Algorithms::default()).unwrap_err();
        assert!(error.to_string().contains("rank 5, record 4: a message of this collective"), "{error}");
    }
}
