//! One rank's part of each algorithm: what it sends to whom, and what it receives.

use super::{Algorithms, Allgather, Allreduce, Alltoall, Barrier, Rooted, Scan};
use crate::trace::{Call, Collective, Context, Job, Op};

/// The operations of one rank while its collectives are being expanded; places are positions in the communicator.
pub(super) struct Steps<'j> {
    job: &'j Job,
    rank: u32,
    pub(super) ops: Vec<Op>,
    /// The slots from here on are the collectives' own.
    slots: u32,
    pub(super) too_long: Option<u32>,
    from: Op,
    begun: usize,
    context: Context,
    members: &'j [u32],
    me: usize,
}

impl<'j> Steps<'j> {
    pub(super) fn new(job: &'j Job, rank: u32, ops: usize) -> Self {
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

    pub(super) fn begin(&mut self, op: &Op, communicator: u16) {
        self.from = *op;
        self.begun = self.ops.len();
        self.context = Context::collective(communicator);
        self.members = &self.job.communicators[usize::from(communicator)];
        self.me = self.place(self.rank);
    }

    /// The first step carries the time before the collective.
    pub(super) fn end(&mut self) {
        if self.begun == self.ops.len() && self.from.gap > 0 {
            self.push(Call::Compute);
        }
        if let Some(first) = self.ops.get_mut(self.begun) {
            first.gap = self.from.gap;
        }
    }

    pub(super) fn place(&self, rank: u32) -> usize {
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

    pub(super) fn collective(
        &mut self,
        kind: Collective,
        algorithms: &Algorithms,
        root: usize,
        bytes: u64,
        counts: u32,
    ) {
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
