//! `gambeson run --trace`: what the ranks wrote down of their messages becomes one file.

mod merge;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gambeson_proto::trace::{self, EndpointFile};
use rustix::time::{ClockId, clock_gettime};

pub(crate) use merge::About;

use crate::failure::Failure;

/// The file that a trace goes to, made before the job starts; gone again if nothing was written to it.
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    is_made: bool,
}

/// What came of a traced job.
pub(crate) struct Summary {
    pub(crate) ranks: usize,
    pub(crate) matched: u64,
    /// What is missing, in sentences.
    pub(crate) missing: Vec<String>,
}

impl Output {
    /// Makes the file, for the user alone.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let is_made = fs::symlink_metadata(path).is_err();
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|error| cannot(path, &error))?;
        let output = Self { path: path.to_owned(), file, is_made };
        let is_file = output.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let private = if is_file {
            output.file.set_permissions(Permissions::from_mode(0o600))
        } else {
            Err(io::Error::other("it is no regular file"))
        };
        private.map(|()| output).map_err(|error| cannot(path, &error))
    }

    /// Writes what the ranks left in the job's directory.
    pub(crate) fn write(mut self, directory: &Path, about: About) -> Result<Summary, Failure> {
        let name = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (header, ranks) = merge::merge(name, collect(directory), about);
        let recorded = header.ranks.iter().filter(|rank| rank.records > 0).count();
        if recorded > 0 {
            let packed = zstd::bulk::compress(&trace::encode(&header, &ranks), LEVEL);
            // What stood there is overwritten now and not before; half a trace is none.
            let written = packed.and_then(|packed| {
                self.is_made = true;
                self.file.set_len(0)?;
                self.file.write_all(&packed)
            });
            written.map_err(|error| cannot(&self.path, &error))?;
            self.is_made = false;
        }
        Ok(Summary { ranks: recorded, matched: header.matched, missing: header.missing })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_made {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What a clock shows.
pub(crate) fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The kernel's name for this boot, as the provider writes it.
pub(crate) fn boot() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    trace::boot_of(&text)
}

/// The endpoints' files, and the names of those that are none.
fn collect(directory: &Path) -> (Vec<EndpointFile>, Vec<String>) {
    let mut found = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(of) = name.strip_prefix("trace-") {
            match read(&entry.path()).as_deref().ok().and_then(EndpointFile::decode) {
                Some(file) => found.0.push(file),
                None => found.1.push(of.to_owned()),
            }
        }
    }
    found
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("no file of this user's"));
    }
    fs::read(path)
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::system(format!(
        "the trace cannot be written to {} ({error}); name a file that you may write, on a disk with room",
        path.display()
    ))
}

/// How hard zstd tries.
const LEVEL: i32 = 9;
