//! The calls of one rank, as its binary file has them.

use std::collections::HashMap;

use super::communicators::Known;
use super::{Bytes, MAGIC};
use crate::Error;
use crate::error::Place;
use crate::time::{NS, S, Time};
use crate::trace::program::Rank;
use crate::trace::{ANY_SOURCE, ANY_TAG, Call, Collective, Context};

const END_OF_STREAM: u16 = 293;
/// The newest major version that this reader was checked against.
const VERSION_MAX: u8 = 13;
const STATUSES: u8 = 3;
const CPU_TIME: u8 = 1 << 2;
const WALL_TIME: u8 = 1 << 3;
const THREAD: u8 = 1 << 6;
const COUNTERS: u8 = 1 << 7;
/// The request that stands for the receiving half of a sendrecv.
const HALF: u64 = u64::MAX;

/// What a rank calls; its communicators and ranks are still its own.
pub(super) struct Calls {
    steps: Vec<Step>,
    pub(super) creations: Vec<Creation>,
}

/// A communicator that is made of another.
pub(super) struct Creation {
    pub(super) record: u32,
    pub(super) old: u16,
    pub(super) new: u16,
    /// Color and key of a split; a dup has none.
    pub(super) split: Option<(i32, i32)>,
}

struct Step {
    gap: Time,
    record: u32,
    what: What,
}

#[derive(Clone)]
enum What {
    Send { bytes: u32, to: i32, tag: i32, comm: u16, request: Option<u64> },
    Recv { from: i32, tag: i32, comm: u16, request: Option<u64> },
    Wait { request: u64 },
    Collective { kind: Collective, comm: u16, root: i32, bytes: u32, counts: Vec<u32> },
}

impl Calls {
    pub(super) fn decode(bytes: &[u8], rank: u32, file: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::trace(file, Some(rank), None, what);
        let index =
            bytes.len().checked_sub(64).ok_or_else(|| wrong("its file is too short for a DUMPI trace".to_owned()))?;
        let mut reader = Bytes { all: bytes, at: 0 };
        let begins = reader.u64().map_err(wrong)?;
        reader.at = index;
        let mut offsets = [0; 8];
        for offset in &mut offsets {
            *offset = reader.u64().map_err(wrong)?;
        }
        let [magic, sizes, _, _, header, body, ..] = offsets;
        if begins != MAGIC || magic != MAGIC {
            return Err(wrong("its file does not begin and end as those of DUMPI 0.6.7 and later do".to_owned()));
        }
        let at = |offset: u64| Bytes { all: bytes, at: usize::try_from(offset).unwrap_or(usize::MAX) };
        let mut header = at(header);
        let version: [u8; 3] = header.take().map_err(wrong)?;
        if version < [0, 6, 7] || version[0] > VERSION_MAX {
            let [major, minor, patch] = version;
            return Err(wrong(format!(
                "DUMPI {major}.{minor}.{patch} wrote it; this reader knows 0.6.7 to {VERSION_MAX}"
            )));
        }
        let sizes = at(sizes).array().map_err(wrong)?;
        let mut decoder = Decoder {
            bytes: at(body),
            sizes,
            record: 0,
            mask: 0,
            gap: 0,
            last: None,
            persistent: HashMap::new(),
            calls: Self { steps: Vec::new(), creations: Vec::new() },
        };
        decoder.bytes.skip(8);
        loop {
            match decoder.call() {
                Ok(true) => decoder.record += 1,
                Ok(false) => return Ok(decoder.calls),
                Err(what) => return Err(Error::trace(file, Some(rank), Some(Place::Record(decoder.record)), what)),
            }
        }
    }

    /// Whether a communicator is used.
    pub(super) fn uses(&self, number: u16) -> bool {
        let used = self.steps.iter().any(|step| match step.what {
            What::Send { comm, .. } | What::Recv { comm, .. } | What::Collective { comm, .. } => comm == number,
            What::Wait { .. } => false,
        });
        used || self.creations.iter().any(|creation| creation.old == number)
    }

    /// Adds the calls to the job, with its communicators and ranks.
    pub(super) fn translate(&self, rank: &mut Rank<'_>, known: &Known) -> Result<(), Error> {
        for step in &self.steps {
            let record = step.record;
            if let What::Wait { request } = step.what {
                // Waits for the null request, and a second one for the same, return at once.
                let call = rank.close(request).map_or(Call::Compute, |slot| Call::Wait { slot });
                rank.push(step.gap, call, record);
                continue;
            }
            let (What::Send { comm, .. } | What::Recv { comm, .. } | What::Collective { comm, .. }) = step.what else {
                continue;
            };
            let Some((number, members)) = known.get(&comm) else {
                return Err(
                    rank.wrong(record, format!("communicator {comm} comes from a call that this reader does not know"))
                );
            };
            let context = Context::program(*number);
            let peer = |peer: i32, rank: &Rank<'_>| {
                let member = usize::try_from(peer).ok().and_then(|peer| members.get(peer)).copied();
                member.ok_or_else(|| {
                    rank.wrong(record, format!("rank {peer} is not in communicator {comm} of {}", members.len()))
                })
            };
            let call = match step.what {
                What::Send { bytes, to, tag, request, .. } => {
                    let to = peer(to, rank)?;
                    match request {
                        Some(request) => Call::Isend { to, bytes, tag, context, slot: rank.open(request, record)? },
                        None => Call::Send { to, bytes, tag, context },
                    }
                }
                What::Recv { from, tag, request, .. } => {
                    let from = if from == -1 { ANY_SOURCE } else { peer(from, rank)? };
                    let tag = if tag == -1 { ANY_TAG } else { tag };
                    match request {
                        Some(request) => Call::Irecv { from, tag, context, slot: rank.open(request, record)? },
                        None => Call::Recv { from, tag, context },
                    }
                }
                What::Collective { kind, root, bytes, ref counts, .. } => {
                    let root = peer(root, rank)?;
                    if !counts.is_empty() && counts.len() != members.len() {
                        return Err(rank.wrong(record, "it has not a count for each rank; record it again"));
                    }
                    let counts = if counts.is_empty() { 0 } else { rank.counts(counts.iter().copied()) };
                    Call::Collective { kind, communicator: *number, root, bytes, counts }
                }
                What::Wait { .. } => continue,
            };
            rank.push(step.gap, call, record);
        }
        Ok(())
    }
}

struct Decoder<'t> {
    bytes: Bytes<'t>,
    /// Of each datatype.
    sizes: Vec<i32>,
    record: u32,
    mask: u8,
    /// Time since the last call that was kept.
    gap: Time,
    /// When the previous call ended, by both clocks.
    last: Option<[Option<Time>; 2]>,
    persistent: HashMap<u64, What>,
    calls: Calls,
}

impl Decoder<'_> {
    /// Decodes a call; false at the end of the stream.
    fn call(&mut self) -> Result<bool, String> {
        let function = self.bytes.u16()?;
        if function == END_OF_STREAM {
            return Ok(false);
        }
        self.mask = self.bytes.u8()?;
        if self.mask & THREAD != 0 {
            self.bytes.skip(2);
        }
        let cpu = self.times(CPU_TIME)?;
        let wall = self.times(WALL_TIME)?;
        if self.mask & COUNTERS != 0 {
            return Err("it has performance counters, which this reader does not know; record it without".to_owned());
        }
        if let Some([last_cpu, last_wall]) = self.last {
            let since = |times: Option<[Time; 2]>, last: Option<Time>| Some(times?[0].saturating_sub(last?));
            let gap = since(cpu, last_cpu).or(since(wall, last_wall)).unwrap_or(0);
            self.gap = self.gap.saturating_add(gap);
        }
        self.last = Some([cpu.map(|times| times[1]), wall.map(|times| times[1])]);
        self.arguments(function)?;
        Ok(true)
    }

    /// When the call began and ended.
    fn times(&mut self, clock: u8) -> Result<Option<[Time; 2]>, String> {
        if self.mask & clock == 0 {
            return Ok(None);
        }
        let mut time = || Ok::<_, String>(Time::from(self.bytes.u16()?) * S + Time::from(self.bytes.u32()?) * NS);
        Ok(Some([time()?, time()?]))
    }

    fn step(&mut self, what: What) {
        self.calls.steps.push(Step { gap: std::mem::take(&mut self.gap), record: self.record, what });
    }

    fn datatype(&mut self) -> Result<u64, String> {
        let datatype = self.bytes.u16()?;
        let size = self.sizes.get(usize::from(datatype)).and_then(|&size| u64::try_from(size).ok());
        size.ok_or_else(|| format!("the trace does not say how long datatype {datatype} is; record it again"))
    }

    /// The length of so many of a datatype.
    fn length(count: i32, size: u64) -> Result<u32, String> {
        let bytes = u64::try_from(count).ok().and_then(|count| count.checked_mul(size));
        let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
        bytes.ok_or_else(|| format!("{count} times {size} bytes is no length of a message; the most is 4 GiB"))
    }

    fn buffer(&mut self) -> Result<u32, String> {
        let count = self.bytes.i32()?;
        Self::length(count, self.datatype()?)
    }

    fn request(&mut self) -> Result<u64, String> {
        self.bytes.u32().map(u64::from)
    }

    fn statuses(&mut self) -> Result<(), String> {
        if self.mask & STATUSES != 0 {
            let count = self.bytes.u32()? as usize;
            self.bytes.skip(count.saturating_mul(14));
        }
        Ok(())
    }

    fn send(&mut self, with_request: bool) -> Result<What, String> {
        let (bytes, to, tag, comm) = (self.buffer()?, self.bytes.i32()?, self.bytes.i32()?, self.bytes.u16()?);
        let request = if with_request { Some(self.request()?) } else { None };
        Ok(What::Send { bytes, to, tag, comm, request })
    }

    fn recv(&mut self, with_request: bool) -> Result<What, String> {
        self.bytes.skip(6);
        let (from, tag, comm) = (self.bytes.i32()?, self.bytes.i32()?, self.bytes.u16()?);
        let request = if with_request { Some(self.request()?) } else { None };
        Ok(What::Recv { from, tag, comm, request })
    }

    fn wait(&mut self, request: i32) {
        self.step(What::Wait { request: u64::from(request as u32) });
    }

    fn start(&mut self, request: i32) -> Result<(), String> {
        let what = self.persistent.get(&u64::from(request as u32)).cloned();
        self.step(what.ok_or_else(|| format!("it starts request {request}, which nothing made; record it again"))?);
        Ok(())
    }

    fn collective(&mut self, kind: Collective, comm: u16, root: i32, bytes: u32) {
        self.step(What::Collective { kind, comm, root, bytes, counts: Vec::new() });
    }

    fn arguments(&mut self, function: u16) -> Result<(), String> {
        match function {
            // Send, Bsend, Ssend, Rsend; Isend, Ibsend, Issend, Irsend
            0 | 3..=5 => self.send(false).map(|what| self.step(what))?,
            8..=11 => self.send(true).map(|what| self.step(what))?,
            // Recv, Irecv
            1 => {
                let what = self.recv(false)?;
                self.statuses()?;
                self.step(what);
            }
            12 => self.recv(true).map(|what| self.step(what))?,
            13..=21 => self.completion(function)?,
            // Iprobe, Probe
            22 => {
                self.bytes.skip(14);
                self.statuses()?;
            }
            23 => {
                self.bytes.skip(10);
                self.statuses()?;
            }
            // Send_init, Bsend_init, Ssend_init, Rsend_init, Recv_init, Start, Startall
            26..=30 => {
                let what = if function == 30 { self.recv(true)? } else { self.send(true)? };
                if let What::Send { request: Some(request), .. } | What::Recv { request: Some(request), .. } = what {
                    self.persistent.insert(request, what);
                }
            }
            31 => {
                let request = self.bytes.i32()?;
                self.start(request)?;
            }
            32 => {
                self.bytes.skip(4);
                for request in self.bytes.array()? {
                    self.start(request)?;
                }
            }
            // Sendrecv, Sendrecv_replace
            33 | 34 => {
                let (bytes, to, sent) = (self.buffer()?, self.bytes.i32()?, self.bytes.i32()?);
                self.bytes.skip(if function == 33 { 6 } else { 0 });
                let (from, tag, comm) = (self.bytes.i32()?, self.bytes.i32()?, self.bytes.u16()?);
                self.statuses()?;
                self.step(What::Recv { from, tag, comm, request: Some(HALF) });
                self.step(What::Send { bytes, to, tag: sent, comm, request: None });
                self.step(What::Wait { request: HALF });
            }
            52..=62 | 65..=67 | 156 => self.collectives(function)?,
            84 | 86 => {
                let old = self.bytes.u16()?;
                let split = if function == 86 { Some((self.bytes.i32()?, self.bytes.i32()?)) } else { None };
                let new = self.bytes.u16()?;
                self.calls.creations.push(Creation { record: self.record, old, new, split });
            }
            _ => self.without_messages(function)?,
        }
        Ok(())
    }

    /// Waits and tests; who tests in vain has waited for nothing.
    fn completion(&mut self, function: u16) -> Result<(), String> {
        let mut done = Vec::new();
        match function {
            // Wait, Test, Request_free
            13 | 15 => done.push(self.bytes.i32()?),
            14 => {
                let request = self.bytes.i32()?;
                if self.bytes.i32()? != 0 {
                    done.push(request);
                }
            }
            // Waitany, Testany, Waitall, Testall, Waitsome, Testsome
            _ => {
                self.bytes.skip(4);
                let requests = self.bytes.array()?;
                let named = |index: i32| usize::try_from(index).ok().and_then(|index| requests.get(index)).copied();
                match function {
                    16 => done.extend(named(self.bytes.i32()?)),
                    17 => {
                        let index = self.bytes.i32()?;
                        done.extend(named(index));
                        if self.bytes.i32()? == 0 {
                            done.clear();
                        }
                    }
                    18 => done = requests,
                    19 => {
                        if self.bytes.i32()? != 0 {
                            done = requests;
                        }
                    }
                    _ => {
                        self.bytes.skip(4);
                        done.extend(self.bytes.array()?.into_iter().filter_map(named));
                    }
                }
            }
        }
        if function != 15 {
            self.statuses()?;
            done.into_iter().for_each(|request| self.wait(request));
        }
        Ok(())
    }

    fn collectives(&mut self, function: u16) -> Result<(), String> {
        match function {
            // Barrier, Bcast, Reduce, Allreduce, Scan, Exscan
            52 => {
                let comm = self.bytes.u16()?;
                self.collective(Collective::Barrier, comm, 0, 0);
            }
            53 => {
                let (bytes, root, comm) = (self.buffer()?, self.bytes.i32()?, self.bytes.u16()?);
                self.collective(Collective::Bcast, comm, root, bytes);
            }
            62 => {
                let bytes = self.buffer()?;
                self.bytes.skip(1);
                let (root, comm) = (self.bytes.i32()?, self.bytes.u16()?);
                self.collective(Collective::Reduce, comm, root, bytes);
            }
            65 | 67 | 156 => {
                let bytes = self.buffer()?;
                self.bytes.skip(1);
                let comm = self.bytes.u16()?;
                let kind = if function == 65 { Collective::Allreduce } else { Collective::Scan };
                self.collective(kind, comm, 0, bytes);
            }
            // Gather, Scatter: the root has the other buffer, too
            54 | 56 => {
                let me = self.bytes.i32()?;
                let (bytes, root, comm) = (self.buffer()?, self.bytes.i32()?, self.bytes.u16()?);
                self.bytes.skip(if me == root { 6 } else { 0 });
                let kind = if function == 54 { Collective::Gather } else { Collective::Scatter };
                self.collective(kind, comm, root, bytes);
            }
            // Allgather, Alltoall
            58 | 60 => {
                let bytes = self.buffer()?;
                self.bytes.skip(6);
                let comm = self.bytes.u16()?;
                let kind = if function == 58 { Collective::Allgather } else { Collective::Alltoall };
                self.collective(kind, comm, 0, bytes);
            }
            61 => {
                self.bytes.skip(4);
                let counts = self.bytes.array()?;
                self.bytes.array()?;
                let size = self.datatype()?;
                self.bytes.array()?;
                self.bytes.array()?;
                self.bytes.skip(2);
                let comm = self.bytes.u16()?;
                let counts = counts.into_iter().map(|count| Self::length(count, size)).collect::<Result<_, _>>()?;
                self.step(What::Collective { kind: Collective::Alltoallv, comm, root: 0, bytes: 0, counts });
            }
            _ => {
                return Err(format!(
                    "call {function} (a vector collective of another kind than alltoallv) is beyond this reader; replace it \
                     in the program or leave the trace out"
                ));
            }
        }
        Ok(())
    }

    /// Calls that send nothing and whose arguments have a known length.
    fn without_messages(&mut self, function: u16) -> Result<(), String> {
        match function {
            // Get_count
            2 => {
                self.statuses()?;
                self.bytes.skip(6);
            }
            // Type_contiguous, Type_commit, Type_free
            35 => self.bytes.skip(8),
            46 | 47 => self.bytes.skip(2),
            // Comm_group, Comm_size, Comm_rank, Comm_free
            72 => self.bytes.skip(4),
            81 | 82 => self.bytes.skip(6),
            87 => self.bytes.skip(2),
            // Wtime, Wtick, Finalize, Initialized
            122 | 123 | 125 => {}
            126 => self.bytes.skip(4),
            // Init, Init_thread
            124 | 171 => {
                for _ in 0..self.bytes.u32()? {
                    let length = self.bytes.u32()? as usize;
                    self.bytes.skip(length);
                }
                self.bytes.skip(if function == 171 { 2 } else { 0 });
            }
            _ => {
                return Err(format!(
                    "call {function} is beyond this reader; record without it (libdumpi's dumpi.conf turns calls off)"
                ));
            }
        }
        Ok(())
    }
}
