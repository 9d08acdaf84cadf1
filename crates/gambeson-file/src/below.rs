//! What is below a sealed file: one body, or of a detached file two: the sidecar, and the file with the data
//! (docs/file-format.md, "Detached").
//!
//! The offset of data in a file of its own carries a bit that no offset has otherwise. So what plans, reads and writes
//! has one list of pieces for either kind of file, and they go apart here.

use std::io;
use std::ops::Range;

use gambeson_proto::file::geometry::{Geometry, Half};

use crate::body::{Body, Piece};
use crate::error::{Cause, Error};
use crate::lock::{Held, Mode};

/// The one or two files below.
#[derive(Clone, Debug)]
pub struct Below<B> {
    sealed: B,
    data: Option<B>,
}

impl<B> Below<B> {
    /// A file with everything in it.
    pub fn attached(sealed: B) -> Self {
        Below { sealed, data: None }
    }

    /// A sidecar, and the file with the data.
    pub fn detached(sidecar: B, data: B) -> Self {
        Below { sealed: sidecar, data: Some(data) }
    }

    /// The sealed file; of a detached one the sidecar.
    pub fn sealed(&self) -> &B {
        &self.sealed
    }

    /// The file with the data, if it is one of its own.
    pub fn data(&self) -> Option<&B> {
        self.data.as_ref()
    }

    /// Whether a file of these measures is opened as it has to be.
    ///
    /// # Errors
    /// The data is elsewhere.
    pub fn check(&self, name: &str, geometry: &Geometry) -> Result<(), Error> {
        let what = match (geometry.detached, self.data.is_some()) {
            (true, false) => "it is the sidecar of a detached file; open the file beside it that it is named after",
            (false, true) => {
                "what lies beside it as its sidecar is a sealed file of its own; put the right one there, or remove it"
            }
            _ => return Ok(()),
        };
        Err(Error::new(Cause::Kind, name, what))
    }
}

impl<B: Body> Below<B> {
    /// As [`Body::read`].
    ///
    /// # Errors
    /// As the bodies have them.
    pub fn read(&self, pieces: &[Piece], into: &mut [u8]) -> io::Result<()> {
        let Some(data) = &self.data else { return self.sealed.read(pieces, into) };
        let mut rooms = Vec::new();
        let mut rest = into;
        for piece in pieces {
            let (room, later) = rest.split_at_mut(piece.length);
            rest = later;
            match place(piece) {
                (true, piece) => data.read(&[piece], room)?,
                (false, _) => rooms.push(room),
            }
        }
        let (pieces, length) = joined(pieces, false);
        let mut bytes = vec![0; length];
        self.sealed.read(&pieces, &mut bytes)?;
        let mut bytes = &bytes[..];
        for room in rooms {
            let (front, later) = bytes.split_at(room.len());
            room.copy_from_slice(front);
            bytes = later;
        }
        Ok(())
    }

    /// As [`Body::write`]. Data goes before the entries that speak of it: where it breaks off, the entries of what is there
    /// are written all the same, and no others.
    ///
    /// # Errors
    /// As the bodies have them.
    pub fn write(&self, pieces: &[Piece], from: &[u8]) -> io::Result<()> {
        let Some(data) = &self.data else { return self.sealed.write(pieces, from) };
        let (mut whole, mut at) = (pieces.len(), 0);
        let mut outcome = Ok(());
        let mut last = 0;
        for (number, piece) in pieces.iter().enumerate() {
            if let (true, piece) = place(piece) {
                outcome = data.write(&[piece], &from[at..at + piece.length]);
                if outcome.is_err() {
                    whole = last;
                    break;
                }
                last = number + 1;
            }
            at += piece.length;
        }
        let outcome = outcome.and(data.publish());
        let (pieces, bytes) = Self::part(&pieces[..whole], from, false);
        outcome.and(self.sealed.write(&pieces, &bytes))
    }

    /// What of some pieces is data in a file of its own, or else what is not, as that file has them.
    pub fn part(pieces: &[Piece], from: &[u8], of_data: bool) -> (Vec<Piece>, Vec<u8>) {
        let (joined, length) = joined(pieces, of_data);
        let mut bytes = Vec::with_capacity(length);
        let mut at = 0;
        for piece in pieces {
            if place(piece).0 == of_data {
                bytes.extend_from_slice(&from[at..at + piece.length]);
            }
            at += piece.length;
        }
        (joined, bytes)
    }

    /// Bytes of the sealed file, or of the sidecar.
    ///
    /// # Errors
    /// As the body has them.
    pub fn length(&self) -> io::Result<u64> {
        self.sealed.length()
    }

    /// Bytes of the file that the data is in.
    ///
    /// # Errors
    /// As the body has them.
    pub fn data_length(&self) -> io::Result<u64> {
        self.data.as_ref().unwrap_or(&self.sealed).length()
    }

    /// Cuts or extends the sealed file, and a file with the data. None: that is left as it is.
    ///
    /// # Errors
    /// As the bodies have them.
    pub fn set_lengths(&self, sealed: Option<u64>, data: Option<u64>) -> io::Result<()> {
        if let Some(length) = sealed {
            self.sealed.set_length(length)?;
        }
        match (&self.data, data) {
            (Some(body), Some(length)) => body.set_length(length),
            _ => Ok(()),
        }
    }

    /// Makes what was written last.
    ///
    /// # Errors
    /// As the bodies have them.
    pub fn sync(&self) -> io::Result<()> {
        self.data.as_ref().map_or(Ok(()), B::sync)?;
        self.sealed.sync()
    }

    /// As [`Body::refresh`].
    ///
    /// # Errors
    /// As the bodies have them.
    pub fn refresh(&self) -> io::Result<()> {
        self.data.as_ref().map_or(Ok(()), B::refresh)?;
        self.sealed.refresh()
    }

    /// As [`Body::mark`].
    pub fn mark(&self) {
        self.sealed.mark();
        if let Some(data) = &self.data {
            data.mark();
        }
    }

    /// As [`Body::lock`]: all locks are on the sealed file.
    ///
    /// # Errors
    /// As the body has them.
    pub fn lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Held> {
        let held = self.sealed.lock(range, mode)?;
        // The lock sees to the sidecar alone.
        self.data.as_ref().map_or(Ok(()), B::refresh)?;
        Ok(held)
    }

    /// As [`Body::try_lock`].
    ///
    /// # Errors
    /// As the body has them.
    pub fn try_lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Option<Held>> {
        self.sealed.try_lock(range, mode)
    }

    /// As [`Body::locked`].
    ///
    /// # Errors
    /// As the body has them.
    pub fn locked(&self, range: Range<u64>) -> io::Result<bool> {
        self.sealed.locked(range)
    }
}

/// Where a block's data stands, for pieces.
pub(crate) fn data(geometry: &Geometry, block: u64, half: Half) -> u64 {
    geometry.data(block, half) | if geometry.detached { DATA } else { 0 }
}

/// Whether a piece is of the file with the data, and where it is there.
fn place(piece: &Piece) -> (bool, Piece) {
    (piece.offset & DATA != 0, Piece { offset: piece.offset & !DATA, ..*piece })
}

/// The pieces of one file, as few as they can be, and their bytes: entries of neighbouring blocks stand side by side.
fn joined(pieces: &[Piece], of_data: bool) -> (Vec<Piece>, usize) {
    let mut joined: Vec<Piece> = Vec::new();
    let mut length = 0;
    for (_, piece) in pieces.iter().map(place).filter(|(is_data, _)| *is_data == of_data) {
        length += piece.length;
        match joined.last_mut() {
            Some(last) if last.offset + last.length as u64 == piece.offset => last.length += piece.length,
            _ => joined.push(piece),
        }
    }
    (joined, length)
}

/// No offset in a file has this bit.
const DATA: u64 = 1 << 63;
