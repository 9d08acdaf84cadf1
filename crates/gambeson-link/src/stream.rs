//! The two streams of bytes of a session: what was sealed and is not yet known to have arrived, and what has arrived
//! and was not yet looked at.
//!
//! A session outlives its carriers. What was written stays here until the peer says that it has it, and is sent again,
//! byte for byte, over the carrier that takes the lost one's place (threat-model rule 12). Both ends count the bytes of
//! the whole session, whatever carried them, and its records: each says its turn, so that none is taken out of turn,
//! whichever link it is of.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use crate::carrier::Carrier;

/// Bytes of a chunk; records of a chunk are freed together.
const CHUNK: usize = 256 << 10;
/// Chunks kept for the next use.
const SPARE: usize = 8;
/// Chunks that go into one write.
const GATHER: usize = 8;

/// Bytes that are kept for a peer that does not take them.
pub(crate) const RETAINED_MAX: usize = 8 << 20;

/// Length prefix of a record.
pub(crate) const PREFIX: usize = 4;

/// Sealed records, until they have arrived.
pub(crate) struct Outgoing {
    /// Oldest first; the last one is being filled.
    chunks: VecDeque<Chunk>,
    spare: Vec<Box<[u8]>>,
    /// The first byte that no carrier took yet: chunk and place.
    next: (usize, usize),
    /// Bytes of the session so far.
    end: u64,
    /// How many of them the peer is known to have.
    heard: u64,
    /// Records of the session so far; after 2^32 it begins anew.
    turn: u32,
    /// Bytes that carriers took before it was gone back: the peer may have them.
    sent: u64,
    /// Whether a message had to wait because there was too much here.
    crowded: bool,
}

struct Chunk {
    bytes: Box<[u8]>,
    len: usize,
    /// Bytes of the session before it.
    start: u64,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        Outgoing {
            chunks: VecDeque::new(),
            spare: Vec::new(),
            next: (0, 0),
            end: 0,
            turn: 0,
            heard: 0,
            sent: 0,
            crowded: false,
        }
    }

    /// The turn of the next record.
    pub(crate) fn turn(&self) -> u32 {
        self.turn
    }

    /// Room for a record of so many bytes, its length already before it. It is sent whatever it then holds.
    pub(crate) fn record(&mut self, len: usize) -> &mut [u8] {
        let whole = PREFIX + len;
        if self.chunks.back().is_none_or(|last| last.bytes.len() - last.len < whole) {
            let spare = self.spare.pop().filter(|spare| spare.len() >= whole);
            let bytes = spare.unwrap_or_else(|| vec![0; whole.max(CHUNK)].into());
            if !self.waits() {
                self.next = (self.chunks.len(), 0);
            }
            self.chunks.push_back(Chunk { bytes, len: 0, start: self.end });
        }
        let last = self.chunks.back_mut().expect("there is one now");
        let room = &mut last.bytes[last.len..][..whole];
        last.len += whole;
        self.end += whole as u64;
        self.turn = self.turn.wrapping_add(1);
        let (prefix, record) = room.split_at_mut(PREFIX);
        prefix.copy_from_slice(&u32::try_from(len).expect("a record is short").to_le_bytes());
        record
    }

    /// Bytes of the session so far.
    #[cfg(test)]
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that the peer is not known to have.
    pub(crate) fn retained(&self) -> usize {
        self.chunks.front().map_or(0, |first| (self.end - first.start) as usize)
    }

    /// Whether more messages may come. If not, [`Outgoing::eased`] says when.
    pub(crate) fn has_room(&mut self) -> bool {
        self.crowded |= self.retained() > RETAINED_MAX;
        !self.crowded
    }

    /// Whether messages that had to wait may come now.
    pub(crate) fn eased(&mut self) -> bool {
        let eased = self.crowded && self.retained() <= RETAINED_MAX / 2;
        self.crowded &= !eased;
        eased
    }

    /// Whether there is something that no carrier took yet.
    pub(crate) fn waits(&self) -> bool {
        self.chunks.get(self.next.0).is_some_and(|chunk| self.next.1 < chunk.len)
    }

    /// Gives a carrier as much as it takes.
    pub(crate) fn write(&mut self, carrier: &mut dyn Carrier) -> io::Result<()> {
        while self.waits() {
            let (chunk, at) = self.next;
            let mut gathered = [IoSlice::new(&[]); GATHER];
            let mut count = 0;
            for (slot, chunk) in gathered.iter_mut().zip(self.chunks.range(chunk..)) {
                let from = if count == 0 { at } else { 0 };
                *slot = IoSlice::new(&chunk.bytes[from..chunk.len]);
                count += 1;
            }
            let mut taken = carrier.write(&gathered[..count])?;
            if taken == 0 {
                break;
            }
            while taken > 0 {
                let (chunk, at) = self.next;
                let rest = self.chunks[chunk].len - at;
                let here = taken.min(rest);
                taken -= here;
                self.next =
                    if here == rest && chunk + 1 < self.chunks.len() { (chunk + 1, 0) } else { (chunk, at + here) };
            }
        }
        Ok(())
    }

    /// The peer has all before `offset`. False: it cannot have that. [`Outgoing::free`] lets go of it.
    pub(crate) fn arrived(&mut self, offset: u64) -> bool {
        if offset > self.written().max(self.sent) {
            return false;
        }
        self.heard = self.heard.max(offset);
        true
    }

    /// Lets go of what the peer has. What is sent again it waits for, whether it has it by now or not.
    pub(crate) fn free(&mut self) {
        let offset = self.heard.min(self.written());
        while self.next.0 > 0 && self.chunks[0].end() <= offset {
            let chunk = self.chunks.pop_front().expect("the next byte is in a later one");
            self.next.0 -= 1;
            if self.spare.len() < SPARE && chunk.bytes.len() == CHUNK {
                self.spare.push(chunk.bytes);
            }
        }
        // The last chunk is emptied where it is: a session that keeps up has one and no more.
        if self.chunks.len() == 1 && self.chunks[0].end() == offset {
            (self.chunks[0].len, self.chunks[0].start) = (0, offset);
            self.next = (0, 0);
        }
    }

    /// Bytes that no carrier took yet.
    pub(crate) fn unwritten(&self) -> u64 {
        self.end - self.written()
    }

    /// Bytes of the session that a carrier took.
    pub(crate) fn written(&self) -> u64 {
        self.chunks.get(self.next.0).map_or(self.end, |chunk| chunk.start + self.next.1 as u64)
    }

    /// Sends all from `offset` on again. False: that is not here any more, or not yet.
    pub(crate) fn rewind(&mut self, offset: u64) -> bool {
        // A chunk's end is the next one's beginning, and only the last has an end of its own.
        let last = self.chunks.len().wrapping_sub(1);
        self.sent = self.sent.max(self.written());
        let holds = |(at, chunk): (usize, &Chunk)| {
            let range = chunk.start..chunk.end() + u64::from(at == last);
            range.contains(&offset).then(|| (at, (offset - chunk.start) as usize))
        };
        match self.chunks.iter().enumerate().find_map(holds) {
            Some(next) => self.next = next,
            None if offset == self.end && self.chunks.is_empty() => {}
            None => return false,
        }
        true
    }
}

/// Bytes that have arrived.
pub(crate) struct Incoming {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes of the session whose records were taken in.
    taken: u64,
    /// How many those are; after 2^32 it begins anew.
    turn: u32,
    /// Bytes of the record that is being looked at.
    current: usize,
    /// Bytes that are here already and come once more.
    again: u64,
}

/// A record's length is none that a domain sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Oversized;

impl Incoming {
    /// Room for some records of `longest` bytes.
    pub(crate) fn new(longest: usize) -> Self {
        Incoming {
            buffer: vec![0; 4 * (longest + PREFIX)].into(),
            start: 0,
            end: 0,
            taken: 0,
            turn: 0,
            current: 0,
            again: 0,
        }
    }

    /// Reads once, as much as there is room for; how much that was.
    pub(crate) fn read(&mut self, carrier: &mut dyn Carrier) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let count = carrier.read(&mut self.buffer[self.end..])?;
        self.end += count;
        if self.again > 0 {
            self.pass_over();
        }
        Ok(count)
    }

    /// Begins a carrier with what came behind a handshake. What is left of the one before is forgotten, and the record
    /// that was being looked at: their sender sends them again. So it does with the last `again` bytes that were taken in
    /// since it was told how far we are.
    pub(crate) fn begin_with(&mut self, bytes: &[u8], again: u64) {
        (self.current, self.again) = (0, again);
        self.buffer[..bytes.len()].copy_from_slice(bytes);
        (self.start, self.end) = (0, bytes.len());
        self.pass_over();
    }

    /// Nothing but bytes that come once more is here as long as there are any.
    fn pass_over(&mut self) {
        let here = self.again.min((self.end - self.start) as u64);
        self.start += here as usize;
        self.again -= here;
    }

    /// The next record, if it is here whole, and its turn. The one before is taken in with that.
    pub(crate) fn record(&mut self, longest: usize) -> Result<Option<(u32, &mut [u8])>, Oversized> {
        if self.current > 0 {
            self.taken += std::mem::take(&mut self.current) as u64;
            self.turn = self.turn.wrapping_add(1);
        }
        let Some(prefix) = self.buffer[self.start..self.end].first_chunk::<PREFIX>() else { return Ok(None) };
        let len = u32::from_le_bytes(*prefix) as usize;
        if len > longest {
            return Err(Oversized);
        }
        let from = self.start + PREFIX;
        if self.end - from < len {
            return Ok(None);
        }
        self.start = from + len;
        self.current = PREFIX + len;
        Ok(Some((self.turn, &mut self.buffer[from..from + len])))
    }

    /// Bytes of the session whose records were taken in.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}
