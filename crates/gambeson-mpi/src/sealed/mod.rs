//! The engine of sealed files at one rank of a communicator.
//!
//! Each rank holds the file open under its own identity: labels that it knows, and no others. What only one rank can do,
//! because it takes a signature or happens once, the *leader* does: the first rank that may sign for the file.
//!
//! ```text
//!  open: one reads the head ── each checks it ── the leader begins a session
//!  collective access: hulls told ── apart: each for itself ── interleaved: exchange
//!  sync, close: what was written goes to owners of groups ── digests to the leader ── its head to all
//! ```

mod anchor;
mod body;
mod exchange;
mod map;
mod open;
mod parcel;
mod tell;

use std::path::PathBuf;
use std::sync::Arc;

use gambeson_file::{Cause, Mode, SealedFile};
use gambeson_keys::Keys;

use crate::engine::{Engine, Extent, Who};
use crate::error::Failure;
use crate::mpi::Mpi;

pub(crate) use body::MpiBody;
pub(crate) use map::{MapPart, map_plain, shape as map_shape};
pub(crate) use open::{New, Place, open};
pub(crate) use tell::Ranks;

/// A sealed file that a communicator has open.
pub(crate) struct SealedEngine {
    mpi: &'static Mpi,
    ranks: Ranks,
    file: SealedFile<MpiBody>,
    /// The library's handles, on the file and on its sidecar if it has one; and where the file is.
    below: (usize, Option<usize>),
    path: PathBuf,
    keys: Arc<dyn Keys>,
    /// Who signs; nobody for a file that is open for reading.
    leader: Option<i32>,
    /// For each region, the ranks that may read it, and those that may write it.
    readers: Vec<Vec<i32>>,
    writers: Vec<Vec<i32>>,
    is_atomic: bool,
}

impl SealedEngine {
    fn failure(&self, error: &gambeson_file::Error) -> Failure {
        failure(self.mpi, error)
    }

    /// Reads for this rank alone.
    fn read_alone(&mut self, extents: &[gambeson_file::Extent], into: &mut [u8]) -> Result<usize, Failure> {
        let read = if self.is_atomic {
            self.file.with_locks(extents, Mode::Shared, |file| file.read(extents, into))
        } else {
            self.file.read(extents, into)
        };
        read.map_err(|error| self.failure(&error))
    }

    /// Writes for this rank alone, with the blocks locked.
    fn write_alone(&mut self, extents: &[gambeson_file::Extent], from: &[u8]) -> Result<(), Failure> {
        let written = if self.is_atomic {
            self.file.with_locks(extents, Mode::Exclusive, |file| file.write(extents, from))
        } else {
            self.file.write(extents, from)
        };
        written.map_err(|error| self.failure(&error))
    }
}

/// What MPI calls such a failure.
pub(crate) fn failure(mpi: &Mpi, error: &gambeson_file::Error) -> Failure {
    let class = &mpi.abi.class;
    let class = match error.cause {
        Cause::Key => class.access,
        Cause::Access => class.read_only,
        Cause::Map | Cause::Kind => class.argument,
        Cause::NoLocks => class.unsupported_operation,
        Cause::Storage => error.storage().map_or(class.io, |source| body::class(mpi, source)),
        _ => class.io,
    };
    Failure::new(class, error.to_string())
}

impl Engine for SealedEngine {
    fn read(&mut self, extents: &[Extent], into: &mut [u8], who: Who) -> Result<usize, Failure> {
        match who {
            Who::All if !self.is_atomic && self.ranks.size > 1 => self.read_all(extents, into),
            _ => self.read_alone(extents, into),
        }
    }

    fn write(&mut self, extents: &[Extent], from: &[u8], who: Who) -> Result<(), Failure> {
        match who {
            Who::All if !self.is_atomic && self.ranks.size > 1 => self.write_all(extents, from),
            _ => self.write_alone(extents, from),
        }
    }

    fn size(&mut self) -> Result<u64, Failure> {
        self.file.size().map_err(|error| self.failure(&error))
    }

    fn set_size(&mut self, size: u64) -> Result<(), Failure> {
        self.file.check_may_write().map_err(|error| self.failure(&error))?;
        let leader = self.leader.expect("a file that is open for writing has a leader");
        // A cut looks for the end that all of them have written to.
        let known = self.greatest_size()?;
        let cut = (self.ranks.rank == leader).then(|| {
            self.file.extend_known(known);
            self.file.resize_below(size).map_err(|error| self.failure(&error))
        });
        self.ranks.told(self.mpi, leader, cut)?;
        self.file.note_size(size);
        Ok(())
    }

    fn preallocate(&mut self, size: u64) -> Result<(), Failure> {
        self.file.check_may_write().map_err(|error| self.failure(&error))?;
        let known = self.greatest_size()?;
        if size <= known {
            return Ok(());
        }
        let leader = self.leader.expect("a file that is open for writing has a leader");
        let made = (self.ranks.rank == leader).then(|| {
            self.file.extend_known(known);
            self.file.preallocate(size).map_err(|error| self.failure(&error))
        });
        self.ranks.told(self.mpi, leader, made)?;
        self.file.extend_known(size);
        Ok(())
    }

    fn set_atomic(&mut self, atomic: bool) -> Result<(), Failure> {
        self.is_atomic = atomic;
        Ok(())
    }

    fn set_map(&mut self, own: Result<MapPart, Failure>) -> Result<(), Failure> {
        // One rank's mistake is told to all before they begin.
        let fails = self.ranks.any(self.mpi, own.is_err())?;
        let own = own?;
        if fails {
            let what = format!("{}: another rank's part of the map is wrong, and says why", self.path.display());
            return Err(Failure::new(self.mpi.abi.class.argument, what));
        }
        self.lay(&own)
    }

    /// What vouches for the data is on the disk with it: without, a host that loses its power would leave blocks that
    /// nobody believes.
    fn sync(&mut self) -> Result<(), Failure> {
        let anchored = self.anchor(gambeson_file::Then::GoOn);
        let below = self.file.body();
        let data = below.data().map_or(Ok(()), MpiBody::sync_all);
        data.and(below.sealed().sync_all())?;
        anchored
    }

    fn close(&mut self) -> Result<(), Failure> {
        match self.leader {
            Some(_) => self.anchor(gambeson_file::Then::Close),
            None => self.ranks.wait(self.mpi),
        }
    }
}
