//! Files that are there whole or not at all: written under another name in the same folder, and renamed at the end.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::opening::cannot;
use super::ranks::Ranks;
use crate::failure::Failure;

/// A file that is being written. Dropped before it is kept, it goes.
pub(super) struct Replacement {
    beside: PathBuf,
    target: PathBuf,
    force: bool,
    kept: bool,
}

impl Replacement {
    /// Makes an empty file beside `target`, which nobody else may read yet; a target that is there is refused unless
    /// `force`.
    pub(super) fn new(target: &Path, force: bool) -> Result<(Self, File), Failure> {
        if !force && target.symlink_metadata().is_ok() {
            return Err(there(target));
        }
        let name = target.file_name().ok_or_else(|| Failure::usage(format!("{} names no file", target.display())))?;
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}", std::process::id()));
        let beside = target.with_file_name(beside);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&beside);
        let file = file.map_err(|error| cannot("made", &beside, &error))?;
        Ok((Replacement { beside, target: target.to_owned(), force, kept: false }, file))
    }

    /// Where it is until then.
    pub(super) fn beside(&self) -> &Path {
        &self.beside
    }

    /// Puts it in its place, for good.
    pub(super) fn keep(mut self, file: &File, mode: u32) -> Result<(), Failure> {
        let target = &self.target;
        let failed = |error| cannot("written", target, &error);
        file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        if self.force {
            fs::rename(&self.beside, target).map_err(failed)?;
        } else {
            // A link refuses what has come there meanwhile, as a rename would not.
            match fs::hard_link(&self.beside, target) {
                Ok(()) => fs::remove_file(&self.beside).map_err(failed)?,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(there(target)),
                Err(_) => fs::rename(&self.beside, target).map_err(failed)?,
            }
        }
        self.kept = true;
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| cannot("written", folder, &error))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// A file that the first process makes for all, each with a handle of its own. At the others there is no replacement.
pub(super) fn made(target: &Path, force: bool, ranks: &Ranks) -> Result<(Option<Replacement>, File), Failure> {
    let made = if ranks.is_first() { Replacement::new(target, force).map(Some) } else { Ok(None) };
    let made = ranks.agreed(made)?;
    let beside = ranks.told(made.as_ref().map(|(replacement, _)| replacement.beside().to_owned()))?;
    let beside = beside.expect("the first process has made it");
    match made {
        Some((replacement, file)) => ranks.agreed(Ok((Some(replacement), file))),
        None => {
            let opened = OpenOptions::new().read(true).write(true).open(&beside);
            ranks.agreed(opened.map(|file| (None, file)).map_err(|error| cannot("opened", &beside, &error)))
        }
    }
}

/// Who may do what with a file, for the one that takes its place.
pub(super) fn mode_of(file: &File, path: &Path) -> Result<u32, Failure> {
    Ok(file.metadata().map_err(|error| cannot("read", path, &error))?.permissions().mode() & 0o777)
}

fn there(target: &Path) -> Failure {
    Failure::usage(format!("{} is there already; choose another name, or replace it with --force", target.display()))
}
