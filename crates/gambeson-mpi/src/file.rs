//! A sealed file at one rank: the semantics of its handle over the engine below.

use std::ffi::c_int;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::datatype::Layout;
use crate::engine::{Engine, Extent, Who};
use crate::error::Failure;
use crate::memory::{Buffer, Memory};
use crate::mpi::Mpi;
use crate::shared_pointer::SharedPointer;
use crate::view::View;

/// An open handle.
pub(crate) struct Sealed {
    pub(crate) mpi: &'static Mpi,
    /// The library's handle: groups, hints and error handlers are its own.
    pub(crate) file: usize,
    /// Handles of our own on what is below: on a sidecar, and on the file where the program's handle would not do.
    pub(crate) below: Vec<usize>,
    /// The file's name as the program gave it.
    pub(crate) name: String,
    /// The mode that the program opened it with.
    pub(crate) mode: c_int,
    /// The handle's ranks, in a context of our own.
    pub(crate) communicator: usize,
    pub(crate) rank: c_int,
    pub(crate) size: c_int,
    state: Mutex<State>,
}

/// What calls on the handle change.
pub(crate) struct State {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) view: View,
    /// The individual pointer, in bytes of the view's data.
    pub(crate) position: i64,
    pub(crate) shared: SharedPointer,
    pub(crate) atomic: bool,
    /// The split collective that has begun, with what its end will say.
    split: Option<(Direction, usize)>,
    // Kept, so that an access allocates nothing.
    extents: Vec<Extent>,
    packed: Vec<u8>,
    irregular: Vec<u8>,
}

/// Every data-access routine is one of these.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) direction: Direction,
    pub(crate) place: Place,
    pub(crate) who: Who,
    pub(crate) memory: Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Where in the file, in etypes of the view.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Explicit(i64),
    Individual,
    Shared,
    /// At the shared pointer, one rank after the other.
    Ordered,
}

impl Sealed {
    /// A handle that was just opened, over its engine.
    ///
    /// # Errors
    /// Those of the communicator and of the engine.
    pub(crate) fn new(
        mpi: &'static Mpi,
        (file, communicator): (usize, usize),
        (name, path): (String, &Path),
        (mode, token): (c_int, u64),
        mut engine: Box<dyn Engine>,
    ) -> Result<Self, Failure> {
        let (rank, size) = mpi.rank_and_size(communicator)?;
        let view = View::bytes(mpi)?;
        let mut shared = SharedPointer::new(path, token);
        let mut position = 0;
        if mode & mpi.abi.mode.append != 0 {
            position = engine.size()?.cast_signed();
            shared.set(position);
        }
        let state = State {
            engine,
            view,
            position,
            shared,
            atomic: false,
            split: None,
            extents: Vec::new(),
            packed: Vec::new(),
            irregular: Vec::new(),
        };
        Ok(Sealed { mpi, file, below: Vec::new(), name, mode, communicator, rank, size, state: Mutex::new(state) })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.mode & self.mpi.abi.mode.read_only == 0
    }

    /// A failure at this file.
    pub(crate) fn failure(&self, class: c_int, what: &str) -> Failure {
        Failure::new(class, format!("{}, rank {}: {what}", self.name, self.rank))
    }

    /// Carries out a request; the bytes of data, as a status counts them.
    ///
    /// # Safety
    /// The program's buffer is as the request says.
    pub(crate) unsafe fn access(&self, request: Request) -> Result<usize, Failure> {
        let mut state = self.state();
        let state = &mut *state;
        let (direction, who) = (request.direction, request.who);
        match self.plan(state, request) {
            // SAFETY: the caller's promise.
            Ok((buffer, start, individual)) => unsafe {
                self.carry_out(state, &buffer, start, individual, direction, who)
            },
            Err(failure) => {
                // The others would wait for this rank for ever.
                if who == Who::All {
                    let _ = match direction {
                        Direction::Read => state.engine.read(&[], &mut [], who).map(|_| ()),
                        Direction::Write => state.engine.write(&[], &[], who),
                    };
                }
                Err(failure)
            }
        }
    }

    /// What is accessed: the buffer, the first byte of the view's data, and whether the individual pointer moves.
    fn plan(&self, state: &mut State, request: Request) -> Result<(Buffer, i64, bool), Failure> {
        let (class, mode) = (&self.mpi.abi.class, &self.mpi.abi.mode);
        let checked = self.check(&request, state).and_then(|()| {
            let buffer = Buffer::new(self.mpi, request.memory, state.view.external)?;
            // Data representations change the size of some elements, so only whole etypes keep the pointers right.
            let layout = buffer.length as i64 % state.view.etype_size;
            if layout != 0 {
                let etype = state.view.etype_size;
                let what = format!("{} bytes are not a multiple of the view's etype of {etype}", buffer.length);
                return Err(self.failure(class.io, &what));
            }
            Ok(buffer)
        });
        let etypes = checked.as_ref().map_or(0, |buffer| buffer.length as i64 / state.view.etype_size);
        let start = match request.place {
            Place::Ordered => {
                // All ranks take part whatever one of them has found.
                let start = self.in_order(state, etypes);
                checked.as_ref().map_err(|_| ()).map_or(Ok(0), |_| start)?
            }
            Place::Shared => {
                if checked.is_ok() {
                    self.shared(state, etypes)?
                } else {
                    0
                }
            }
            Place::Explicit(offset) => offset,
            Place::Individual => 0,
        };
        let buffer = checked?;
        let sequential = self.mode & mode.sequential != 0;
        if sequential && !matches!(request.place, Place::Shared | Place::Ordered) {
            let what = "a file of MPI_MODE_SEQUENTIAL has a shared pointer only";
            return Err(self.failure(class.unsupported_operation, what));
        }
        if matches!(request.place, Place::Individual) {
            return Ok((buffer, state.position, true));
        }
        if start < 0 {
            return Err(self.failure(class.argument, &format!("the offset {start} is negative")));
        }
        let start = start
            .checked_mul(state.view.etype_size)
            .ok_or_else(|| self.failure(class.argument, &format!("the offset {start} is beyond every file")))?;
        Ok((buffer, start, false))
    }

    /// Whether the handle allows it.
    fn check(&self, request: &Request, state: &State) -> Result<(), Failure> {
        let (class, mode) = (&self.mpi.abi.class, &self.mpi.abi.mode);
        if request.direction == Direction::Read && self.mode & mode.write_only != 0 {
            return Err(self.failure(class.access, "the file was opened for writing only"));
        }
        if request.direction == Direction::Write && !self.is_writable() {
            return Err(self.failure(class.read_only, "the file was opened for reading only"));
        }
        if request.who == Who::All && state.split.is_some() {
            return Err(self.failure(class.io, "a split collective access has begun and not ended on this handle"));
        }
        Ok(())
    }

    /// # Safety
    /// As for `access`.
    unsafe fn carry_out(
        &self,
        state: &mut State,
        buffer: &Buffer,
        start: i64,
        individual: bool,
        direction: Direction,
        who: Who,
    ) -> Result<usize, Failure> {
        let State { engine, view, extents, packed, irregular, position, .. } = state;
        let planned = view.extents(self.mpi, start, buffer.length as i64, extents);
        if planned.is_err() {
            extents.clear();
        }
        let union = if view.regular { None } else { Some(union(extents)) };
        let mut moved = buffer.length;
        let done = match direction {
            Direction::Write => {
                // SAFETY: the caller's promise.
                let packed = if planned.is_ok() { unsafe { buffer.packed(self.mpi, packed) } } else { Ok(&[][..]) };
                let bytes = packed.as_ref().map_or(&[][..], |bytes| bytes);
                let written = match &union {
                    _ if packed.is_err() => engine.write(&[], &[], who),
                    None => engine.write(extents, bytes, who),
                    Some(union) => {
                        gather(union, extents, bytes, irregular);
                        engine.write(union, irregular, who)
                    }
                };
                packed.map(|_| ()).and(written).map(|()| buffer.native(buffer.length))
            }
            // SAFETY: the caller's promise.
            Direction::Read if planned.is_ok() => unsafe {
                buffer.fill(self.mpi, packed, |into| {
                    moved = match &union {
                        None => engine.read(extents, into, who)?,
                        Some(union) => {
                            irregular.resize(union.iter().map(|extent| extent.length as usize).sum(), 0);
                            let got = engine.read(union, irregular, who)?;
                            scatter(union, extents, &irregular[..got], into)
                        }
                    };
                    Ok(moved)
                })
            },
            Direction::Read => engine.read(&[], &mut [], who),
        };
        planned?;
        if individual {
            // Where less was there, the pointer is behind what was read.
            *position = start + if done.is_ok() { moved as i64 } else { 0 };
        }
        done
    }

    /// Takes the shared pointer's place, and moves it behind the access.
    fn shared(&self, state: &mut State, etypes: i64) -> Result<i64, Failure> {
        state.shared.advance(etypes).map_err(|error| self.no_pointer(&error))
    }

    pub(crate) fn no_pointer(&self, error: &std::io::Error) -> Failure {
        self.failure(
            self.mpi.abi.class.io,
            &format!(
                "the shared file pointer could not be moved ({error}): it is a small file beside the sealed one; \
                 make the folder writable, on a file system with locks"
            ),
        )
    }

    /// This rank's place behind those of lower rank, from the shared pointer on.
    fn in_order(&self, state: &mut State, etypes: i64) -> Result<i64, Failure> {
        let (mpi, mut until) = (self.mpi, 0_i64);
        let (from, to) = ((&raw const etypes).cast(), (&raw mut until).cast());
        // SAFETY: one MPI_INT64_T goes in and one comes out.
        let begin =
            |request| unsafe { (mpi.call.iscan)(from, to, 1, mpi.abi.int64, mpi.abi.sum, self.communicator, request) };
        mpi.complete(begin, "MPI_Iscan")?;
        // The last rank knows how much all of them take.
        let last = self.size - 1;
        let taken = if self.rank == last { Some(self.shared(state, until)) } else { None };
        let mut told = match &taken {
            Some(Ok(start)) => *start,
            _ => FAILED,
        }
        .to_le_bytes();
        mpi.broadcast(&mut told, last, self.communicator)?;
        if let Some(Err(failure)) = taken {
            return Err(failure);
        }
        match i64::from_le_bytes(told) {
            FAILED => Err(self.failure(
                mpi.abi.class.io,
                &format!("rank {last} could not move the shared file pointer, and says why"),
            )),
            start => Ok(start + until - etypes),
        }
    }

    /// Does what a split collective does, and remembers what its end says.
    ///
    /// # Safety
    /// As for `access`.
    pub(crate) unsafe fn begin(&self, request: Request) -> Result<(), Failure> {
        let direction = request.direction;
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.access(request) }?;
        self.state().split = Some((direction, bytes));
        Ok(())
    }

    /// Ends a split collective; its bytes.
    pub(crate) fn end(&self, direction: Direction) -> Result<usize, Failure> {
        match self.state().split.take_if(|(begun, _)| *begun == direction) {
            Some((_, bytes)) => Ok(bytes),
            None => {
                let what = "no split collective access of this kind has begun on this handle";
                Err(self.failure(self.mpi.abi.class.io, what))
            }
        }
    }

    /// Fails on all ranks alike if they gave different numbers.
    pub(crate) fn same(&self, number: i64, what: &str) -> Result<(), Failure> {
        let [greatest, least] = self.mpi.max([number, number.wrapping_neg()], self.communicator)?;
        if greatest != least.wrapping_neg() {
            return Err(
                self.failure(self.mpi.abi.class.not_same, &format!("the ranks gave different values of {what}"))
            );
        }
        Ok(())
    }
}

/// An access through a view whose filetype overlaps itself or its next copy: what it covers, sorted.
fn union(extents: &[Extent]) -> Vec<Extent> {
    let mut sorted = extents.to_vec();
    sorted.sort_by_key(|extent| extent.offset);
    let mut union: Vec<Extent> = Vec::new();
    for extent in sorted {
        match union.last_mut() {
            Some(last) if last.offset + last.length >= extent.offset => {
                last.length = last.length.max(extent.offset + extent.length - last.offset);
            }
            _ => union.push(extent),
        }
    }
    union
}

/// Each extent with its place among the bytes of the union.
fn places<'a>(union: &'a [Extent], extents: &'a [Extent]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let before: Vec<u64> =
        union.iter().scan(0, |sum, extent| Some(std::mem::replace(sum, *sum + extent.length))).collect();
    extents.iter().map(move |extent| {
        let index = union.partition_point(|whole| whole.offset <= extent.offset) - 1;
        ((before[index] + extent.offset - union[index].offset) as usize, extent.length as usize)
    })
}

fn gather(union: &[Extent], extents: &[Extent], from: &[u8], into: &mut Vec<u8>) {
    into.resize(union.iter().map(|extent| extent.length as usize).sum(), 0);
    let mut at = 0;
    for (place, length) in places(union, extents) {
        into[place..place + length].copy_from_slice(&from[at..at + length]);
        at += length;
    }
}

/// Copies what was read; how many bytes of the buffer come before the first that was not.
fn scatter(union: &[Extent], extents: &[Extent], from: &[u8], into: &mut [u8]) -> usize {
    let mut at = 0;
    for (place, length) in places(union, extents) {
        let there = from.len().saturating_sub(place).min(length);
        into[at..at + there].copy_from_slice(&from[place..place + there]);
        at += there;
        if there < length {
            break;
        }
    }
    at
}

/// What the ranks are told when the pointer could not be moved: no position.
const FAILED: i64 = i64::MIN;

impl Sealed {
    /// A handle on types that a view keeps: what has no constructor is kept as it is.
    pub(crate) fn keep(&self, datatype: usize) -> Result<usize, Failure> {
        if Layout::is_named(self.mpi, datatype)? {
            return Ok(datatype);
        }
        let mut copy = 0_usize;
        // SAFETY: the type is one, as its layout was found.
        self.mpi.check(unsafe { (self.mpi.call.type_dup)(datatype, &raw mut copy) }, "MPI_Type_dup")?;
        Ok(self.mpi.abi.handle(copy))
    }
}

/// Gives back a type that a view has kept.
pub(crate) fn drop_type(mpi: &Mpi, datatype: usize) {
    if Layout::is_named(mpi, datatype).is_ok_and(|named| !named) {
        let mut datatype = datatype;
        // SAFETY: the view has this reference, and nobody else.
        unsafe { (mpi.call.type_free)(&raw mut datatype) };
    }
}
