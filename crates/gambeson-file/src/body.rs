//! The file below a sealed file: bytes at offsets, which nobody trusts.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::lock::{Held, Locks, Mode};

/// Consecutive bytes of the file below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub length: usize,
}

/// What a sealed file asks of the file below. Pieces are sorted and apart; a buffer holds their bytes one after the other.
pub trait Body {
    /// Reads the pieces. What lies behind the file's end reads as zeros.
    ///
    /// # Errors
    /// As the file below has them.
    fn read(&self, pieces: &[Piece], into: &mut [u8]) -> io::Result<()>;

    /// Writes the pieces.
    ///
    /// # Errors
    /// As the file below has them.
    fn write(&self, pieces: &[Piece], from: &[u8]) -> io::Result<()>;

    /// Bytes of the file below.
    ///
    /// # Errors
    /// As the file below has them.
    fn length(&self) -> io::Result<u64>;

    /// Cuts or extends the file below.
    ///
    /// # Errors
    /// As the file below has them.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes what was written last.
    ///
    /// # Errors
    /// As the file below has them.
    fn sync(&self) -> io::Result<()>;

    /// What is read from now on is what other hosts have written and synchronised.
    ///
    /// # Errors
    /// As the file below has them.
    fn refresh(&self) -> io::Result<()> {
        Ok(())
    }

    /// What was written is what other hosts read once they have refreshed, where that takes more than a lock that is given up.
    ///
    /// # Errors
    /// As the file below has them.
    fn publish(&self) -> io::Result<()> {
        Ok(())
    }

    /// Marks the file below as a sealed one, where it takes extended attributes. Nobody believes the mark or misses it.
    fn mark(&self) {}

    /// Waits for a lock on a range.
    ///
    /// # Errors
    /// The file system has no locks.
    fn lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Held>;

    /// Takes a lock on a range if nobody has it.
    ///
    /// # Errors
    /// The file system has no locks.
    fn try_lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Option<Held>>;

    /// Whether somebody else has a lock in a range.
    ///
    /// # Errors
    /// The file system has no locks.
    fn locked(&self, range: Range<u64>) -> io::Result<bool>;
}

/// A file of this host's, or of a file system that is mounted here.
#[derive(Clone, Debug)]
pub struct LocalBody {
    file: Arc<File>,
    locks: Locks,
}

impl LocalBody {
    /// Takes an open file over.
    pub fn new(file: File) -> Self {
        let file = Arc::new(file);
        LocalBody { locks: Locks::new(file.clone()), file }
    }
}

impl Body for LocalBody {
    fn read(&self, pieces: &[Piece], into: &mut [u8]) -> io::Result<()> {
        each(pieces, |piece, range| read_to_end(&self.file, &mut into[range], piece.offset))
    }

    fn write(&self, pieces: &[Piece], from: &[u8]) -> io::Result<()> {
        each(pieces, |piece, range| self.file.write_all_at(&from[range], piece.offset))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn refresh(&self) -> io::Result<()> {
        self.locks.refresh()
    }

    fn publish(&self) -> io::Result<()> {
        self.locks.publish()
    }

    fn mark(&self) {
        self.locks.mark();
    }

    fn lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Held> {
        self.locks.lock(range, mode)
    }

    fn try_lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Option<Held>> {
        self.locks.try_lock(range, mode)
    }

    fn locked(&self, range: Range<u64>) -> io::Result<bool> {
        self.locks.locked(range)
    }
}

/// Calls for each piece, with its place in the buffer.
fn each(pieces: &[Piece], mut with: impl FnMut(&Piece, Range<usize>) -> io::Result<()>) -> io::Result<()> {
    let mut at = 0;
    for piece in pieces {
        with(piece, at..at + piece.length)?;
        at += piece.length;
    }
    Ok(())
}

fn read_to_end(file: &File, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !into.is_empty() {
        match file.read_at(into, offset) {
            Ok(0) => {
                into.fill(0);
                break;
            }
            Ok(count) => {
                into = &mut into[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
