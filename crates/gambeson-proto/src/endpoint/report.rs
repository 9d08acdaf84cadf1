//! What an endpoint says of attacks: alerts (dropped and counted) and violations (the job ends).

use std::fmt;

use crate::suite::Protection;

/// Why a record was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The bytes are no record.
    Malformed,
    /// The core provider reported a message that does not fit a record buffer.
    Oversized,
    /// No peer has this connection id.
    UnknownConnection,
    /// The introduction's card does not carry this job's MAC.
    ForeignCard,
    /// The introduction names another policy.
    OtherPolicy,
    /// The epoch is neither the current nor the next.
    Epoch,
    /// The tag is wrong: altered, or not from the holder of the key.
    BadTag,
    /// The record is authentic and was taken in before.
    Replay,
    /// The record claims less protection than the two ends agreed on for a communicator.
    Unprotected,
}

impl Cause {
    fn sentence(self) -> &'static str {
        match self {
            Cause::Malformed => "bytes that are no Gambeson record",
            Cause::Oversized => "a message larger than any record",
            Cause::UnknownConnection => "a record of a connection that no peer of this job has",
            Cause::ForeignCard => "an introduction that does not carry this job's proof",
            Cause::OtherPolicy => "an introduction made under another policy (start all ranks from one `gambeson run`)",
            Cause::Epoch => "a record of an epoch that is not due",
            Cause::BadTag => "a record whose authentication tag is wrong",
            Cause::Replay => "a record that was already received",
            Cause::Unprotected => "a record that is less protected than a communicator asks for",
        }
    }
}

/// A peer as sentences name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName {
    /// Rank in its MPI_COMM_WORLD, when known.
    pub rank: Option<u32>,
    /// Host name of its card, or its address.
    pub host: String,
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "rank {rank} on host {}", self.host),
            None => write!(f, "a process of unknown rank on host {}", self.host),
        }
    }
}

/// Something refused; the job goes on. One is raised at the 1st, 10th, 100th ... time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Why.
    pub cause: Cause,
    /// The peer that the record claims to come from.
    pub claimed: Option<PeerName>,
    /// How many there were for this cause and claim.
    pub count: u64,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dropped {}", self.cause.sentence())?;
        if let Some(peer) = &self.claimed {
            write!(f, ", said to be from {peer}")?;
        }
        if self.count > 1 {
            write!(f, " (seen {} times so far)", self.count)?;
        }
        f.write_str("; nothing of it reached the program")
    }
}

/// The job must end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Authentic records arrived out of sequence: some were deleted or reordered.
    Gap {
        /// Sender.
        peer: PeerName,
        /// Sequence that was due.
        expected: u64,
        /// Sequence that came.
        came: u64,
    },
    /// An authentic peer broke the protocol: another version, or memory was damaged.
    Misbehaved {
        /// Sender.
        peer: PeerName,
        /// What it did.
        what: &'static str,
    },
    /// No authentic word came from a peer that was asked for its position.
    Silent {
        /// The peer.
        peer: PeerName,
        /// Seconds since it was asked.
        seconds: u64,
    },
    /// The carrier lost a record on its way to a peer.
    Unreachable {
        /// The peer.
        peer: PeerName,
        /// What the carrier says.
        why: String,
    },
    /// A message has less protection than this end demands for its communicator.
    Unprotected {
        /// Sender.
        peer: PeerName,
        /// What the message has.
        came: Protection,
        /// What is demanded.
        demanded: Protection,
    },
    /// The peer's key can't be used.
    WeakKey {
        /// The peer.
        peer: PeerName,
    },
    /// All sequence numbers or epochs of a pair are used up.
    Exhausted {
        /// The peer.
        peer: PeerName,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Gap { peer, expected, came } => write!(
                f,
                "records from {peer} were deleted or reordered on the way (record {came} came when {expected} was \
                 due): somebody alters this job's traffic, or the network lost data; the job ends here"
            ),
            Violation::Misbehaved { peer, what } => write!(
                f,
                "{peer} {what}: it may run another version of Gambeson; install one version on every host. The job \
                 ends here"
            ),
            Violation::Silent { peer, seconds } => write!(
                f,
                "no authentic word from {peer} for {seconds} s though it was asked: what it sends is withheld or \
                 altered, or the process hangs; the job ends here (gap_timeout in the policy sets the limit)"
            ),
            Violation::Unreachable { peer, why } => write!(
                f,
                "the connection to {peer} broke ({why}): the process ended, or somebody cuts this job's connections; \
                 what was on its way is lost, so the job ends here"
            ),
            Violation::Unprotected { peer, came, demanded } => write!(
                f,
                "{peer} sent a message under \"{came}\" on a communicator for which this process demands \"{demanded}\": the \
                 two ends gave it different protections (gambeson_protection), or changed it while the message was being \
                 sent; nothing of it reached the program, and the job ends here"
            ),
            Violation::WeakKey { peer } => {
                write!(f, "the public key of {peer} is not usable (low order, or our own reflected); the job ends here")
            }
            Violation::Exhausted { peer } => {
                write!(f, "all record numbers towards {peer} are used up; the job ends here")
            }
        }
    }
}
