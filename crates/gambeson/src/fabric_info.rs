//! Finds the libfabric of an MPI and asks it, in a process of its own, which providers it offers.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::job::Job;
use crate::launcher::{Flavour, Launcher, Libfabric};
use crate::libraries::Libraries;

/// What a libfabric says of itself.
pub(crate) struct FabricInfo {
    pub(crate) version: (u32, u32),
    pub(crate) providers: Vec<String>,
}

/// Asks a libfabric under the job's environment, for one provider or for all; none if it does not answer.
pub(crate) fn ask(
    libraries: &Libraries,
    libfabric: &Path,
    job: &Job,
    core: &str,
    provider: Option<&str>,
) -> Option<FabricInfo> {
    let mut command = Command::new(&libraries.fabric_info);
    command.arg(libfabric).env("FI_PROVIDER_PATH", job.providers()).env_remove("FI_PROVIDER");
    command.env("GAMBESON_JOB", job.directory()).env("GAMBESON_CORE", core);
    if let Some(provider) = provider {
        command.env("FI_PROVIDER", provider);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// The libfabric that the ranks of a launcher will find, where that is known.
pub(crate) fn of_launcher(launcher: &Launcher, libraries: &Libraries) -> Option<Libfabric> {
    let launcher = launcher.mpi();
    let path = match launcher.flavour {
        // Of the MPI behind it nothing is known.
        Flavour::Slurm | Flavour::None => return None,
        Flavour::Intel => chosen_for_intel().or_else(|| of_mpi(&launcher.program).filter(|_| intel_takes_its_own()))?,
        Flavour::Mpich | Flavour::OpenMpi { .. } => of_mpi(&launcher.program)?,
    };
    Some(Libfabric { version: version(libraries, &path), path })
}

/// What Intel MPI loads by its bare name, or by the one that a variable gives, when it is run.
fn chosen_for_intel() -> Option<PathBuf> {
    let named = env::var_os("I_MPI_OFI_LIBRARY").filter(|name| !name.is_empty()).map(PathBuf::from);
    let name = named.unwrap_or_else(|| PathBuf::from("libfabric.so.1"));
    if name.components().count() > 1 {
        return Some(name);
    }
    let path = env::var_os("LD_LIBRARY_PATH")?;
    let directories = env::split_paths(&path).filter(|directory| !directory.as_os_str().is_empty());
    directories.map(|directory| directory.join(&name)).find(|library| library.is_file())
}

/// What users tell Intel's setup script, who want the distribution's libfabric.
fn intel_takes_its_own() -> bool {
    let internal = env::var("I_MPI_OFI_LIBRARY_INTERNAL").unwrap_or_default();
    !["0", "no", "off", "disable"].contains(&internal.as_str())
}

/// The libfabric that the MPI of this mpiexec is linked with, itself or by its component.
fn of_mpi(mpiexec: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(mpiexec).ok()?;
    let prefix = real.parent()?.parent()?;
    let mut libraries = Vec::new();
    for directory in ["lib", "lib64", "lib/release", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"] {
        let directory = prefix.join(directory);
        libraries
            .extend(["libmpi.so.12", "libmpich.so.12", "libmpi.so.40", "libmpi.so"].map(|name| directory.join(name)));
        libraries.extend(
            ["openmpi/mca_mtl_ofi.so", "openmpi/lib/openmpi3/mca_mtl_ofi.so", "openmpi/lib/openmpi/mca_mtl_ofi.so"]
                .map(|name| directory.join(name)),
        );
        libraries.push(directory.join("libfabric.so.1"));
        libraries.push(directory.join("libfabric/libfabric.so.1"));
    }
    libraries.extend(["opt/mpi/libfabric/lib", "libfabric/lib"].map(|place| prefix.join(place).join("libfabric.so.1")));
    libraries.iter().filter(|library| library.is_file()).find_map(|library| fabric_of(library))
}

/// The libfabric among what a library needs, or the library itself.
fn fabric_of(library: &Path) -> Option<PathBuf> {
    if library.file_name()?.to_string_lossy().starts_with("libfabric") {
        return Some(library.to_owned());
    }
    let listed = Command::new("ldd").arg(library).output().ok()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = listed.lines().find(|line| line.trim_start().starts_with("libfabric"))?;
    let path = line.split("=>").nth(1)?.split_whitespace().next()?;
    Some(PathBuf::from(path))
}

fn version(libraries: &Libraries, libfabric: &Path) -> Option<(u32, u32)> {
    let output =
        Command::new(&libraries.fabric_info).arg(libfabric).arg("version").stdin(Stdio::null()).output().ok()?;
    parse(&String::from_utf8_lossy(&output.stdout)).map(|info| info.version)
}

fn parse(text: &str) -> Option<FabricInfo> {
    let version = text.lines().find_map(|line| line.strip_prefix("version "))?;
    let (major, minor) = version.split_once('.')?;
    Some(FabricInfo {
        version: (major.parse().ok()?, minor.parse().ok()?),
        providers: text.lines().filter_map(|line| line.strip_prefix("provider ")).map(str::to_owned).collect(),
    })
}
