//! What a replay that stopped, or that left messages over, says about the trace.

use super::cluster::{Cluster, Doing, Proc};
use crate::Error;
use crate::trace::{ANY_SOURCE, ANY_TAG, Call, Context, Op};

impl Cluster {
    /// Checks a replay to which nothing more can happen: every process has ended, every message was received.
    ///
    /// # Errors
    /// The first process that waits for ever, with its call and its partner; else the first message or receive that
    /// nothing matched.
    pub fn verify(&self) -> Result<(), Error> {
        for proc in &self.procs {
            if self.jobs[proc.job as usize].started.is_some() && proc.doing != Doing::Ended {
                return Err(self.stuck(proc));
            }
        }
        for proc in &self.procs {
            if let Some(flight) = proc.mailbox.unexpected(&self.flights) {
                let what = format!(
                    "rank {} never receives this send of {} bytes ({}); record the trace to its end, or cut it with a \
                     window",
                    proc.rank,
                    flight.bytes,
                    envelope(flight.tag, flight.context)
                );
                return Err(self.wrong(proc, flight.source, flight.record, what));
            }
            if let Some(posted) = proc.mailbox.posted().first() {
                let what = format!(
                    "nothing matches this receive from {} ({}); record the trace to its end, or cut it with a window",
                    source(posted.from),
                    envelope(posted.tag, posted.context)
                );
                return Err(self.wrong(proc, proc.rank, posted.record, what));
            }
        }
        Ok(())
    }

    fn ops(&self, proc: &Proc) -> &[Op] {
        &self.jobs[proc.job as usize].job.ranks[proc.rank as usize]
    }

    /// The operation whose completion a process waits for.
    fn waits_for(&self, proc: &Proc) -> Op {
        let ops = self.ops(proc);
        let op = ops[proc.at];
        let Call::Wait { slot } = op.call else { return op };
        let begins = |op: &&Op| match op.call {
            Call::Isend { slot: begun, .. } | Call::Irecv { slot: begun, .. } => begun == slot,
            _ => false,
        };
        ops[..proc.at].iter().rev().find(begins).copied().unwrap_or(op)
    }

    fn stuck(&self, proc: &Proc) -> Error {
        let op = self.waits_for(proc);
        let (what, partner) = match op.call {
            Call::Recv { from, tag, context } | Call::Irecv { from, tag, context, .. } => {
                (format!("this receive from {} ({}) never gets a message", source(from), envelope(tag, context)), from)
            }
            Call::Send { to, tag, context, .. } | Call::Isend { to, tag, context, .. } => {
                (format!("this send to rank {to} ({}) never completes", envelope(tag, context)), to)
            }
            Call::Compute | Call::Wait { .. } | Call::Collective { .. } => {
                ("its process never gets its processor".to_owned(), ANY_SOURCE)
            }
        };
        let job = &self.jobs[proc.job as usize];
        let partner = match self.procs[job.first as usize..][..job.job.ranks.len()].get(partner as usize) {
            None => String::new(),
            Some(other) if other.doing == Doing::Ended => format!(", and rank {partner} has ended"),
            Some(other) => format!(", and rank {partner} waits in {}", job.job.place(self.waits_for(other).record)),
        };
        let what = format!("{what}{partner}; record the trace to its end, or cut it with a window");
        self.wrong(proc, proc.rank, op.record, what)
    }

    fn wrong(&self, proc: &Proc, rank: u32, record: u32, what: String) -> Error {
        let job = &self.jobs[proc.job as usize].job;
        Error::trace(&job.file, Some(rank), Some(job.place(record)), what)
    }
}

fn source(from: u32) -> String {
    if from == ANY_SOURCE { "any rank".to_owned() } else { format!("rank {from}") }
}

fn envelope(tag: i32, context: Context) -> String {
    let tag = if tag == ANY_TAG { "any tag".to_owned() } else { format!("tag {tag}") };
    let within = if context.is_collective() { ", within a collective" } else { "" };
    format!("{tag}, communicator {}{within}", context.communicator())
}
