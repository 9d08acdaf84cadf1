//! A folder whose file system is measured: what it is, whether there is room, and what is made in it and removed again.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{statvfs, syncfs};

use crate::failure::Failure;

use super::gocryptfs::Mount;
use super::sides::Side;

/// A folder of our own in it.
pub(super) struct Place {
    /// What it is called: its file system, and where several have the same, which of them.
    pub(super) name: String,
    file_system: String,
    own: PathBuf,
    pub(super) mount: Option<Mount>,
}

impl Place {
    /// Makes it.
    ///
    /// # Errors
    /// When nothing can be made there.
    pub(super) fn new(dir: &Path) -> Result<Self, Failure> {
        let dir = dir
            .canonicalize()
            .map_err(|error| Failure::usage(format!("{} is no folder to measure in ({error})", dir.display())))?;
        let (own, file_system) = (make(&dir)?, file_system(&dir));
        Ok(Self { name: file_system.clone(), file_system, own, mount: None })
    }

    /// All of them, each with a name of its own.
    ///
    /// # Errors
    /// As of one.
    pub(super) fn all(dirs: &[PathBuf]) -> Result<Vec<Self>, Failure> {
        let mut places = dirs.iter().map(|dir| Self::new(dir)).collect::<Result<Vec<_>, _>>()?;
        let kinds: Vec<String> = places.iter().map(|place| place.file_system.clone()).collect();
        for (place, dir) in places.iter_mut().zip(dirs) {
            if kinds.iter().filter(|kind| **kind == place.file_system).count() > 1 {
                place.name = format!("{} ({})", place.file_system, dir.display());
            }
        }
        Ok(places)
    }

    /// Where our folder is.
    pub(super) fn own(&self) -> &Path {
        &self.own
    }

    /// Whether its files are in memory alone, so that nothing can be read from a disk.
    pub(super) fn is_memory(&self) -> bool {
        ["tmpfs", "ramfs"].contains(&&*self.file_system)
    }

    /// Where a side's files go.
    pub(super) fn folder(&self, side: Side) -> PathBuf {
        match &self.mount {
            Some(mount) if side == Side::Gocryptfs => mount.at().to_owned(),
            _ => self.own.clone(),
        }
    }

    /// The folders in which a side's files are cached, if there is a disk below.
    pub(super) fn disk(&self, side: Side) -> Vec<PathBuf> {
        let below = self.mount.as_ref().filter(|_| side == Side::Gocryptfs).map(|mount| mount.below().to_owned());
        if self.is_memory() { Vec::new() } else { [self.folder(side)].into_iter().chain(below).collect() }
    }

    /// Refuses what would not fit.
    pub(super) fn check_room(&self, bytes: u64) -> Result<(), Failure> {
        let free = statvfs(&self.own).map(|of| of.f_bavail * of.f_frsize).unwrap_or(u64::MAX);
        // Sealed files are a little longer, and a file system that is full to the brim is measured as such.
        let needed = bytes + bytes / 8 + (16 << 20);
        if free >= needed {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{} has {} MiB free, and the measurement needs {}; name another --dir, or give less with --size, -b and -s",
            self.own.parent().unwrap_or(&self.own).display(),
            free >> 20,
            needed >> 20
        )))
    }

    /// Has what is under way to the disk arrive there, so that nobody pays for who was before.
    pub(super) fn settle(&self) {
        if let Ok(folder) = File::open(&self.own) {
            let _ = syncfs(folder);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.mount = None;
        let _ = fs::remove_dir_all(&self.own);
    }
}

/// A folder with a name of its own, for this user alone.
pub(super) fn make(dir: &Path) -> Result<PathBuf, Failure> {
    let mut number = [0; 6];
    getrandom::fill(&mut number)
        .map_err(|error| Failure::system(format!("the kernel gives no random numbers: {error}")))?;
    let own = dir.join(format!("gambeson-bench-{}", data_encoding::HEXLOWER.encode(&number)));
    let made = DirBuilder::new().mode(0o700).create(&own);
    made.map_err(|error| Failure::system(format!("no folder can be made in {} ({error})", dir.display())))?;
    Ok(own)
}

/// The type of the file system that a folder is on, as the kernel names it.
fn file_system(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = |line: &str| -> Option<(usize, String)> {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?.replace("\\040", " "), words.next()?);
        dir.starts_with(&at).then(|| (at.len(), kind.to_owned()))
    };
    // Of mounts at one place the last counts.
    let found = mounts.lines().filter_map(mount).max_by_key(|(length, _)| *length);
    found.map_or_else(|| "an unknown file system".into(), |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_and_removed_and_its_room_is_known() {
        let place = Place::new(&std::env::temp_dir()).expect("there is room for a folder");
        let own = place.own().to_owned();
        assert!(own.is_dir() && !place.name.contains("unknown"));
        assert!(place.check_room(1 << 60).is_err_and(|failure| failure.to_string().contains("MiB free")));
        drop(place);
        assert!(!own.exists());
    }
}
