//! Files that are there whole or not at all: written under another name in the same folder, and renamed at the end.
//!
//! Of a detached file two are renamed, the sidecar first: what is found between the two is refused, and never taken for a
//! file in clear.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gambeson_file::{Below, LocalBody, remove_sidecar, sidecar_of};

use super::opening::cannot;
use super::ranks::Ranks;
use crate::failure::Failure;

/// A file that is being written. Dropped before it is kept, it goes.
pub(super) struct Replacement {
    /// Where each part of it is until then, and where it will be: the sidecar, if there is one, and the file.
    parts: Vec<(PathBuf, PathBuf)>,
    force: bool,
    kept: bool,
}

/// What is being written, as one process has it open.
pub(super) struct Files {
    pub(super) file: File,
    sidecar: Option<File>,
}

impl Files {
    fn open(parts: &[PathBuf], options: &OpenOptions) -> Result<Self, Failure> {
        let open = |path: &PathBuf| options.open(path).map_err(|error| cannot("made", path, &error));
        let (file, sidecar) = parts.split_last().expect("there is a file");
        let sidecar = sidecar.first().map(open).transpose()?;
        Ok(Files { file: open(file)?, sidecar })
    }

    /// To be written as a sealed file.
    pub(super) fn below(&self) -> Result<Below<LocalBody>, Failure> {
        let body = |file: &File| {
            let again = file.try_clone();
            again
                .map(LocalBody::new)
                .map_err(|error| Failure::system(format!("a file cannot be opened again ({error})")))
        };
        Ok(match &self.sidecar {
            Some(sidecar) => Below::detached(body(sidecar)?, body(&self.file)?),
            None => Below::attached(body(&self.file)?),
        })
    }

    fn parts(&self) -> impl Iterator<Item = &File> {
        self.sidecar.iter().chain([&self.file])
    }
}

impl Replacement {
    /// Makes an empty file beside `target`, and one for its sidecar if it is to have one, which nobody else may read yet;
    /// a target that is there is refused unless `force`.
    fn new(target: &Path, force: bool, detached: bool) -> Result<(Self, Files), Failure> {
        let sidecar = sidecar_of(target);
        for path in [target, &sidecar] {
            if !force && path.symlink_metadata().is_ok() {
                return Err(there(path));
            }
        }
        let sidecar = detached.then_some(sidecar);
        let parts = sidecar.into_iter().chain([target.to_owned()]);
        let parts = parts.map(|path| Ok((beside(&path)?, path))).collect::<Result<Vec<_>, Failure>>()?;
        let replacement = Replacement { parts, force, kept: false };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let files = Files::open(&replacement.beside(), &options)?;
        Ok((replacement, files))
    }

    /// Where it is until then.
    fn beside(&self) -> Vec<PathBuf> {
        self.parts.iter().map(|(beside, _)| beside.clone()).collect()
    }

    /// Puts it in its place, for good.
    pub(super) fn keep(mut self, files: &Files, mode: u32) -> Result<(), Failure> {
        for (file, (_, target)) in files.parts().zip(&self.parts) {
            let failed = |error| cannot("written", target, &error);
            file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        for (beside, target) in &self.parts {
            self.rename(beside, target)?;
        }
        self.kept = true;
        let (_, target) = self.parts.last().expect("there is a file");
        if files.sidecar.is_none() {
            // Of the file that was there before.
            remove_sidecar(target).map_err(|error| cannot("removed", &sidecar_of(target), &error))?;
        }
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| cannot("written", folder, &error))
    }

    fn rename(&self, beside: &Path, target: &Path) -> Result<(), Failure> {
        let failed = |error| cannot("written", target, &error);
        if self.force {
            return fs::rename(beside, target).map_err(failed);
        }
        // A link refuses what has come there meanwhile, as a rename would not.
        match fs::hard_link(beside, target) {
            Ok(()) => fs::remove_file(beside).map_err(failed),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(there(target)),
            Err(_) => fs::rename(beside, target).map_err(failed),
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.kept {
            for (beside, _) in &self.parts {
                let _ = fs::remove_file(beside);
            }
        }
    }
}

/// A file that the first process makes for all, each with handles of its own. At the others there is no replacement.
pub(super) fn made(
    target: &Path,
    force: bool,
    detached: bool,
    ranks: &Ranks,
) -> Result<(Option<Replacement>, Files), Failure> {
    let made = if ranks.is_first() { Replacement::new(target, force, detached).map(Some) } else { Ok(None) };
    let made = ranks.agreed(made)?;
    let beside = ranks.told(made.as_ref().map(|(replacement, _)| replacement.beside()))?;
    let beside = beside.expect("the first process has made it");
    match made {
        Some((replacement, files)) => ranks.agreed(Ok((Some(replacement), files))),
        None => {
            let files = Files::open(&beside, OpenOptions::new().read(true).write(true));
            ranks.agreed(files.map(|files| (None, files)))
        }
    }
}

/// Who may do what with a file, for the one that takes its place.
pub(super) fn mode_of(file: &File, path: &Path) -> Result<u32, Failure> {
    Ok(file.metadata().map_err(|error| cannot("read", path, &error))?.permissions().mode() & 0o777)
}

/// The name that a file has until it is whole.
fn beside(target: &Path) -> Result<PathBuf, Failure> {
    let name = target.file_name().ok_or_else(|| Failure::usage(format!("{} names no file", target.display())))?;
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    Ok(target.with_file_name(beside))
}

fn there(target: &Path) -> Failure {
    Failure::usage(format!("{} is there already; choose another name, or replace it with --force", target.display()))
}
