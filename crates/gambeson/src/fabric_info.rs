//! Asks a libfabric, in a process of its own, which providers it offers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::job::Job;
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

/// The libfabric that the MPI of this mpiexec is linked with, itself or by its component.
pub(crate) fn of_mpi(mpiexec: &Path) -> Option<PathBuf> {
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
    libraries.push(prefix.join("opt/mpi/libfabric/lib/libfabric.so.1"));
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

/// The version of a libfabric.
pub(crate) fn version(libraries: &Libraries, libfabric: &Path) -> Option<(u32, u32)> {
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
