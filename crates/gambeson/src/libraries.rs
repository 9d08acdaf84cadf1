//! Finds what a job loads: the provider, the guard and the library for files, beside the program or installed, and the
//! vendor's providers.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::launcher::{Flavour, Launcher};

/// The files a job needs.
#[derive(Clone, Debug)]
pub(crate) struct Libraries {
    pub(crate) provider: PathBuf,
    pub(crate) guard: PathBuf,
    /// What stands in front of MPI's file routines.
    pub(crate) files: PathBuf,
    /// The program that asks a libfabric for its providers.
    pub(crate) fabric_info: PathBuf,
    /// This program, which also is the launcher's agent.
    pub(crate) program: PathBuf,
    /// Providers that came with the MPI as files of their own: FI_PROVIDER_PATH hides their directory.
    pub(crate) vendor: Vec<PathBuf>,
}

impl Libraries {
    /// Finds them all, for the MPI of a launcher.
    pub(crate) fn find(launcher: Option<&Launcher>) -> Result<Self, Failure> {
        let program = env::current_exe().map_err(|error| {
            Failure::system(format!("the path of this program is not known ({error}); is /proc mounted?"))
        })?;
        let directories = directories(&program);
        Ok(Self {
            provider: library(&directories, "provider", &["libgambeson-fi.so", "libgambeson_fi.so"])?,
            guard: library(&directories, "guard", &["libgambeson-guard.so", "libgambeson_guard.so"])?,
            files: library(&directories, "library for files", &["libgambeson-mpi.so", "libgambeson_mpi.so"])?,
            fabric_info: library(&directories, "helper", &["gambeson-fabric-info"])?,
            vendor: launcher.map(vendor).unwrap_or_default(),
            program,
        })
    }
}

/// Beside the program as cargo leaves it, or where `make install` puts them.
fn directories(program: &Path) -> Vec<PathBuf> {
    let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
    let prefix = beside.parent().unwrap_or(Path::new("/")).to_owned();
    vec![beside, prefix.join("lib/gambeson"), prefix.join("lib64/gambeson")]
}

fn library(directories: &[PathBuf], what: &str, names: &[&str]) -> Result<PathBuf, Failure> {
    let candidates = directories.iter().flat_map(|directory| names.iter().map(|name| directory.join(name)));
    for candidate in candidates {
        if let Ok(path) = fs::canonicalize(candidate) {
            return Ok(path);
        }
    }
    let places: Vec<_> = directories.iter().map(|directory| directory.display().to_string()).collect();
    Err(Failure::refused(format!(
        "Gambeson's {what} {} is in none of {}, and without it nothing is sealed; run `make build`, or install Gambeson again",
        names[0],
        places.join(", ")
    )))
}

/// The providers in the directories that libfabric would have searched.
fn vendor(launcher: &Launcher) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> =
        env::var_os("FI_PROVIDER_PATH").iter().flat_map(|path| env::split_paths(path).collect::<Vec<_>>()).collect();
    if matches!(launcher.mpi().flavour, Flavour::Intel | Flavour::Slurm) {
        let roots = [prefix(&launcher.mpi().program), env::var_os("I_MPI_ROOT").map(PathBuf::from)];
        for root in roots.into_iter().flatten() {
            for below in ["opt/mpi/libfabric/lib/prov", "libfabric/lib/prov", "lib/prov", "lib"] {
                directories.push(root.join(below));
            }
        }
    }
    directories.iter().flat_map(|directory| providers_in(directory)).collect()
}

fn prefix(program: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(program).ok()?;
    Some(real.parent()?.parent()?.to_owned())
}

fn providers_in(directory: &Path) -> Vec<PathBuf> {
    // Links into it must not depend on where the job started.
    let entries = fs::canonicalize(directory).and_then(fs::read_dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("lib") && name.ends_with("-fi.so") && !name.contains("gambeson")
        })
        .map(|entry| entry.path())
        .collect()
}
