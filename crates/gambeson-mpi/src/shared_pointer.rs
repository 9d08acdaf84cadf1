//! The file pointer that the ranks of a handle share (MPI-4.1 section 14.4.4): a small file beside the sealed one.
//!
//! Any rank may move it alone, while no other is in the MPI library; a window would need that, and not every MPI has
//! windows that its messages are sealed in. The file is made at the first use and deleted when the handle is closed.
//!
//! MPI_File_set_view and MPI_File_seek_shared set the pointer, and all ranks call them, so each counts them: a position
//! that was stored before the last of them is not looked at. That way set_view needs no communication.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The pointer, in etypes of the current view.
#[derive(Debug)]
pub(crate) struct SharedPointer {
    path: PathBuf,
    file: Option<File>,
    /// How often it was set, and to what the last time.
    settings: u64,
    start: i64,
}

impl SharedPointer {
    /// The pointer of a handle on `path`, whose ranks agreed on a token.
    pub(crate) fn new(path: &Path, token: u64) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let path = path.with_file_name(format!(".{name}.pointer-{token:016x}"));
        SharedPointer { path, file: None, settings: 1, start: 0 }
    }

    /// Sets it; all ranks do so alike.
    pub(crate) fn set(&mut self, position: i64) {
        self.settings += 1;
        self.start = position;
    }

    /// Where it is.
    ///
    /// # Errors
    /// As the file system has them.
    pub(crate) fn position(&mut self) -> io::Result<i64> {
        self.advance(0)
    }

    /// Moves it; where it was.
    ///
    /// # Errors
    /// As the file system has them.
    pub(crate) fn advance(&mut self, by: i64) -> io::Result<i64> {
        if self.file.is_none() {
            let open =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path);
            self.file = Some(open?);
        }
        let file = self.file.as_ref().expect("it was just opened");
        lock(file, libc::F_WRLCK)?;
        let moved = self.move_locked(file, by);
        let unlocked = lock(file, libc::F_UNLCK);
        unlocked.and(moved)
    }

    fn move_locked(&self, file: &File, by: i64) -> io::Result<i64> {
        let place = (self.settings % 2) * RECORD;
        let mut record = [0_u8; RECORD as usize];
        let position = match file.read_exact_at(&mut record, place) {
            Ok(()) if record[..8] == self.settings.to_le_bytes() => {
                i64::from_le_bytes(record[8..].try_into().expect("eight bytes"))
            }
            // Another setting's, or nobody's yet.
            Ok(()) => self.start,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.start,
            Err(error) => return Err(error),
        };
        if by != 0 {
            record[..8].copy_from_slice(&self.settings.to_le_bytes());
            record[8..].copy_from_slice(&(position + by).to_le_bytes());
            file.write_all_at(&record, place)?;
        }
        Ok(position)
    }

    /// Deletes the file, when no rank uses it any more.
    pub(crate) fn remove(&self) {
        // It is there only if a rank has used the pointer.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits for the file's lock, or gives it back. Its bytes are the descriptor's, not the process's: no other library's
/// descriptor takes it away.
fn lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: a flock is plain integers, for which zero is a value: the whole file from its start.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    loop {
        // SAFETY: the descriptor is open, and `lock` outlives the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A setting's number and the position since then; two lie in the file, as a rank may be one setting ahead of another.
const RECORD: u64 = 16;
