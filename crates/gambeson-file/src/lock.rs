//! Locks on ranges of a file's bytes that hold between processes and, where the file system has them, between hosts.
//!
//! Open-file-description locks: they belong to the descriptor, so that a library's locks neither collide with those that
//! the MPI library takes in the same process, nor vanish when it closes its own descriptor.
//!
//! Ranges are of numbers that no byte of a file has: a library may lock the bytes that it is told to write while the
//! block that they are of is locked here.
//!
//! Who has a range locked sees what others wrote under their locks. File systems that are shared between hosts take care of
//! that when they lock and unlock, but for those of FUSE, where the kernel keeps pages that another host has written since.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, StatxFlags, XattrFlags, fadvise, fsetxattr, fstatfs, statx};

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With others who read.
    Shared,
    /// Alone.
    Exclusive,
}

/// A descriptor that ranges are locked on.
#[derive(Clone, Debug)]
pub struct Locks {
    file: Arc<File>,
    /// Whether the kernel may keep what it has read, and what was written, from one lock to the next.
    is_coherent: bool,
}

/// A locked range; dropping it unlocks.
#[derive(Debug)]
#[must_use]
pub struct Held {
    locks: Locks,
    range: Range<u64>,
    mode: Mode,
}

impl Locks {
    /// Locks on this file. An exclusive lock wants it open for writing.
    pub fn new(file: Arc<File>) -> Self {
        let is_coherent = fstatfs(&file).map_or(true, |of| of.f_type as u64 != FUSE);
        let locks = Locks { file, is_coherent };
        // Who has opened a file sees what was closed before. If that fails, so does what is read.
        let _ = locks.refresh();
        locks
    }

    /// Waits for the range.
    ///
    /// # Errors
    /// What the file system says that has no such locks.
    pub fn lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Held> {
        self.set(&range, kind(mode), libc::F_OFD_SETLKW)?;
        self.held(range, mode)
    }

    /// Takes the range if nobody has it.
    ///
    /// # Errors
    /// What the file system says that has no such locks.
    pub fn try_lock(&self, range: Range<u64>, mode: Mode) -> io::Result<Option<Held>> {
        match self.set(&range, kind(mode), libc::F_OFD_SETLK) {
            Ok(()) => self.held(range, mode).map(Some),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn held(&self, range: Range<u64>, mode: Mode) -> io::Result<Held> {
        let held = Held { locks: self.clone(), range, mode };
        self.refresh()?;
        Ok(held)
    }

    /// Has the kernel forget what another host may have written since.
    ///
    /// # Errors
    /// The file system's.
    pub fn refresh(&self) -> io::Result<()> {
        if !self.is_coherent {
            // The pages, and the length: behind the one that the kernel remembers nothing is read.
            fadvise(&self.file, 0, None, Advice::DontNeed)?;
            statx(&self.file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE)?;
        }
        Ok(())
    }

    /// Whether somebody else has a lock in a range.
    ///
    /// # Errors
    /// What the file system says that has no such locks.
    pub fn locked(&self, range: Range<u64>) -> io::Result<bool> {
        let found = self.call(&range, libc::F_WRLCK, libc::F_OFD_GETLK)?;
        Ok(found.l_type != libc::F_UNLCK as libc::c_short)
    }

    /// Has the kernel hand on what was written, where another host would not see it else.
    ///
    /// # Errors
    /// The file system's.
    pub fn publish(&self) -> io::Result<()> {
        if self.is_coherent { Ok(()) } else { self.file.sync_data() }
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// The file system's.
    pub fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    /// Makes what was written last.
    ///
    /// # Errors
    /// The file system's.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Marks the file as a sealed one, if it takes the mark.
    pub fn mark(&self) {
        let _ = fsetxattr(&self.file, MARK, b"1", XattrFlags::empty());
    }

    fn set(&self, range: &Range<u64>, kind: libc::c_int, command: libc::c_int) -> io::Result<()> {
        self.call(range, kind, command).map(|_| ())
    }

    fn call(&self, range: &Range<u64>, kind: libc::c_int, command: libc::c_int) -> io::Result<libc::flock> {
        // SAFETY: a flock is plain integers, for which zero is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        let offset = |at: u64| libc::off_t::try_from(at).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        lock.l_start = offset(range.start)?;
        lock.l_len = offset(range.end - range.start)?;
        loop {
            // SAFETY: the descriptor is open as long as the file is borrowed, and `lock` outlives the call.
            if unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) } == 0 {
                return Ok(lock);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.mode == Mode::Exclusive {
            // What can't be written now fails when the file is synchronised or closed, too.
            let _ = self.locks.publish();
        }
        // Unlocking fails only where locking has failed.
        let _ = self.locks.set(&self.range, libc::F_UNLCK, libc::F_OFD_SETLK);
    }
}

/// What blocks are locked by.
pub(crate) fn blocks(blocks: Range<u64>) -> Range<u64> {
    BLOCKS + blocks.start..BLOCKS + blocks.end
}

/// Locked by who writes the header.
pub(crate) const HEADER: Range<u64> = BLOCKS - 2..BLOCKS - 1;
/// Locked, shared, by who has a session.
pub(crate) const SESSION: Range<u64> = BLOCKS - 1..BLOCKS;
/// No file has a byte of this number.
const BLOCKS: u64 = 1 << 62;

/// The file systems of FUSE (statfs(2)).
const FUSE: u64 = 0x6573_5546;

/// The extended attribute of a sealed file: its value is the version of the format.
const MARK: &str = "user.gambeson";

fn kind(mode: Mode) -> libc::c_int {
    match mode {
        Mode::Shared => libc::F_RDLCK,
        Mode::Exclusive => libc::F_WRLCK,
    }
}
