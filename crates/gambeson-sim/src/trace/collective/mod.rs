//! Collectives as messages: each is replaced by the sends and receives of a named algorithm.
//!
//! The messages travel in the communicator's collective context, where no receive of the program can take them, and
//! rely on MPI's order between two ranks alone, as every rank calls the collectives of a communicator in one order. A
//! step that sends and receives is an irecv, a send and a wait, as MPI_Sendrecv is. What a rank computes within a
//! collective (reductions, copies) is not modelled.

mod steps;

use serde::{Deserialize, Serialize};

use steps::Steps;

use super::{Call, Job};
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

#[cfg(test)]
mod tests;
