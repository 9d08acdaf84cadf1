//! Whose program srun starts: it serves every MPI, and each wants an environment of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::recognise::{find, recognise};
use super::{Flavour, Launcher};

/// The launcher of the MPI that a program seems to be of: of the one it is linked with, else the one beside a program
/// that was named by its path (a virtual environment's Python), else the first in PATH.
pub(super) fn behind(program: &OsStr) -> Option<Launcher> {
    let path = find(program).ok();
    if let Some(library) = path.as_deref().and_then(linked) {
        return of_library(&library);
    }
    let by_path = Path::new(program).components().count() > 1;
    let beside = path.filter(|_| by_path).and_then(|path| launcher(&path.with_file_name("mpiexec"), |_| true));
    beside.or_else(|| launcher(Path::new("mpiexec"), |_| true))
}

/// The MPI library of a linked program, where the dynamic linker finds it.
fn linked(program: &Path) -> Option<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().ok()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = listed.lines().find(|line| line.trim_start().starts_with("libmpi.so."))?;
    line.split("=>").nth(1)?.split_whitespace().next().map(PathBuf::from)
}

fn of_library(library: &Path) -> Option<Launcher> {
    let openmpi = library.file_name()?.to_string_lossy().starts_with("libmpi.so.40");
    let same = |flavour| matches!(flavour, Flavour::OpenMpi { .. }) == openmpi;
    let prefixes = library.ancestors().skip(2).take(3);
    prefixes.flat_map(|prefix| NAMES.map(|name| prefix.join("bin").join(name))).find_map(|path| launcher(&path, same))
}

fn launcher(path: &Path, wanted: impl Fn(Flavour) -> bool) -> Option<Launcher> {
    let launcher = recognise(path.as_os_str()).ok()?;
    // An alternative of Debian's may be any MPI's, and a site's mpiexec may call srun.
    (launcher.flavour != Flavour::Slurm && wanted(launcher.flavour)).then_some(launcher)
}

/// The names that distributions keep apart come after the common one.
const NAMES: [&str; 4] = ["mpiexec", "mpiexec.openmpi", "mpiexec.mpich", "mpiexec.hydra"];
