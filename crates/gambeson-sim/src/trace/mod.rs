//! Traces: what every rank of a job calls of MPI, and how long it computes in between (session-key-cache, section 4.1).
//!
//! A [`Job`] is a decoded trace: requests are small slots, communicators have one number for the whole job, and what
//! breaks the rules of MPI was refused. Collectives keep their names until [`collective::expand`] turns them into the
//! messages of a named algorithm; only then can a job be replayed ([`crate::process`]).

pub mod collective;
pub mod dumpi;
pub mod gbt;
pub mod goal;
pub mod npbt;
mod program;
pub mod window;

use std::path::Path;
use std::sync::Arc;

use crate::Error;
use crate::error::Place;
use crate::time::Time;

/// The source of a receive that takes any (`MPI_ANY_SOURCE`).
pub const ANY_SOURCE: u32 = u32::MAX;
/// The tag of a receive that takes any (`MPI_ANY_TAG`).
pub const ANY_TAG: i32 = i32::MIN;
/// The slot of a blocking call, which no request has.
pub const BLOCKING: u32 = 0;

/// What the ranks of a job do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Its name, as the trace has it.
    pub name: String,
    /// The file it was read from, for messages; the name where there is none.
    pub file: String,
    /// The operations of each rank, in order.
    pub ranks: Vec<Vec<Op>>,
    /// The ranks of the job that make up each communicator; number 0 is the world.
    pub communicators: Vec<Arc<[u32]>>,
    /// The counts of vector collectives, which name their first entry.
    pub counts: Vec<u32>,
    /// Whether it came from a text, so that the records of its operations are lines of that.
    pub text: bool,
    /// How long the job took from its first message to its last, if the trace tells and is whole.
    pub recorded: Option<Time>,
}

/// A stretch of computation and the call that ends it: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Processor time between the completion of the previous call and the beginning of this one.
    pub gap: Time,
    /// The call.
    pub call: Call,
    /// The record of the trace it comes from, from 0 within its rank; the line of a text, from 1.
    pub record: u32,
}

/// A call of MPI. Ranks are those of the job whatever the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Nothing: computation alone.
    Compute,
    /// Sends; complete when the message has left.
    Send {
        /// The receiving rank.
        to: u32,
        /// The length of the message.
        bytes: u32,
        /// Its tag.
        tag: i32,
        /// Where it can match.
        context: Context,
    },
    /// Begins to send.
    Isend {
        /// The receiving rank.
        to: u32,
        /// The length of the message.
        bytes: u32,
        /// Its tag.
        tag: i32,
        /// Where it can match.
        context: Context,
        /// The request, from 1.
        slot: u32,
    },
    /// Receives.
    Recv {
        /// The sending rank, or [`ANY_SOURCE`].
        from: u32,
        /// Its tag, or [`ANY_TAG`].
        tag: i32,
        /// Where it can match.
        context: Context,
    },
    /// Begins to receive.
    Irecv {
        /// The sending rank, or [`ANY_SOURCE`].
        from: u32,
        /// Its tag, or [`ANY_TAG`].
        tag: i32,
        /// Where it can match.
        context: Context,
        /// The request, from 1.
        slot: u32,
    },
    /// Waits for a request, which is free again then.
    Wait {
        /// The request.
        slot: u32,
    },
    /// A collective that has not been expanded.
    Collective {
        /// Which.
        kind: Collective,
        /// The communicator.
        communicator: u16,
        /// The rank of the root, where it has one.
        root: u32,
        /// Bytes per message: for the whole buffer, or for each peer where every peer gets its own part.
        bytes: u32,
        /// The first of its counts in [`Job::counts`], one a member, for the vector forms.
        counts: u32,
    },
}

/// The collectives that traces name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collective {
    /// `MPI_Barrier`
    Barrier,
    /// `MPI_Bcast`
    Bcast,
    /// `MPI_Reduce`
    Reduce,
    /// `MPI_Allreduce`
    Allreduce,
    /// `MPI_Gather`: `bytes` is what each sends.
    Gather,
    /// `MPI_Scatter`: `bytes` is what each gets.
    Scatter,
    /// `MPI_Allgather`: `bytes` is what each gives.
    Allgather,
    /// `MPI_Alltoall`: `bytes` is what each gives to each.
    Alltoall,
    /// `MPI_Alltoallv`: the counts are what this rank gives to each.
    Alltoallv,
    /// `MPI_Reduce_scatter_block`: `bytes` is what each gets.
    ReduceScatter,
    /// `MPI_Scan` and `MPI_Exscan`
    Scan,
}

/// A communicator, and whether a collective's own messages are meant, which no receive of the program can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Context(u16);

impl Context {
    /// What the program itself sends on a communicator.
    #[must_use]
    pub const fn program(communicator: u16) -> Self {
        Self(communicator << 1)
    }

    /// What a collective on a communicator sends.
    #[must_use]
    pub const fn collective(communicator: u16) -> Self {
        Self(communicator << 1 | 1)
    }

    /// The communicator.
    #[must_use]
    pub fn communicator(self) -> u16 {
        self.0 >> 1
    }

    /// Whether a collective's messages are meant.
    #[must_use]
    pub fn is_collective(self) -> bool {
        self.0 & 1 == 1
    }
}

/// What a job holds, message by message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sends of the program.
    pub sends: u64,
    /// Receives of the program with a named source.
    pub receives: u64,
    /// Receives of the program from any source.
    pub any_source: u64,
    /// Calls of collectives.
    pub collectives: u64,
    /// Bytes in those sends.
    pub bytes: u64,
}

impl Job {
    /// Where an operation with this record stands, for messages.
    #[must_use]
    pub fn place(&self, record: u32) -> Place {
        if self.text { Place::Line(record) } else { Place::Record(record) }
    }

    /// Counts what the ranks call.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for op in self.ranks.iter().flatten() {
            match op.call {
                Call::Send { bytes, .. } | Call::Isend { bytes, .. } => {
                    totals.sends += 1;
                    totals.bytes += u64::from(bytes);
                }
                Call::Recv { from, .. } | Call::Irecv { from, .. } if from == ANY_SOURCE => totals.any_source += 1,
                Call::Recv { .. } | Call::Irecv { .. } => totals.receives += 1,
                Call::Collective { .. } => totals.collectives += 1,
                Call::Wait { .. } | Call::Compute => {}
            }
        }
        totals
    }

    /// Messages cut into packets of `payload` bytes, an empty message being one packet.
    #[must_use]
    pub fn packets(&self, payload: u32) -> u64 {
        let sends = self.ranks.iter().flatten().filter_map(|op| match op.call {
            Call::Send { bytes, .. } | Call::Isend { bytes, .. } => Some(bytes),
            _ => None,
        });
        sends.map(|bytes| u64::from(bytes.div_ceil(payload).max(1))).sum()
    }

    /// The highest slot of a rank, for tables of them.
    #[must_use]
    pub fn slots(&self, rank: usize) -> u32 {
        let slot = |op: &Op| match op.call {
            Call::Isend { slot, .. } | Call::Irecv { slot, .. } | Call::Wait { slot } => slot,
            _ => BLOCKING,
        };
        self.ranks[rank].iter().map(slot).max().unwrap_or(BLOCKING)
    }
}

/// Reads a trace: what `gambeson run --trace` wrote where the name ends in `.gbt`, GOAL where it ends in `.goal`, DUMPI
/// where it ends in `.meta`, else NPBT1.
///
/// # Errors
/// What cannot be read or breaks its format: the file, the rank and the record.
pub fn read(path: &Path) -> Result<Job, Error> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("goal") => goal::read(path),
        Some("gbt") => gbt::read(path),
        Some("meta") => dumpi::read(path),
        _ => npbt::read(path),
    }
}
