//! Asks a libfabric, in a process of its own, which providers it offers.

use std::path::Path;
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

fn parse(text: &str) -> Option<FabricInfo> {
    let version = text.lines().find_map(|line| line.strip_prefix("version "))?;
    let (major, minor) = version.split_once('.')?;
    Some(FabricInfo {
        version: (major.parse().ok()?, minor.parse().ok()?),
        providers: text.lines().filter_map(|line| line.strip_prefix("provider ")).map(str::to_owned).collect(),
    })
}
