//! Recognises the MPI behind the mpiexec it is given, and knows what each needs.
//!
//! An MPI is a [`Dialect`]: data and small functions, one file per MPI. What is common to all,
//! recognising, reading a command line and judging it, is here and in [`command_line`].

mod behind;
pub(crate) mod command_line;
mod intel;
mod mpich;
mod none;
mod openmpi;
mod recognise;
pub(crate) mod slurm;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use gambeson_proto::policy::IntraHost;

use command_line::Meaning;
pub(crate) use recognise::{recognise, recognise_any};

/// Which MPI the launcher belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Mpich,
    Intel,
    OpenMpi {
        major: u32,
    },
    Slurm,
    /// None: a program of links.
    None,
}

/// The launcher found.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) flavour: Flavour,
    /// As it names itself.
    pub(crate) version: String,
    /// What will be executed.
    pub(crate) program: PathBuf,
    /// Of srun: whether Gambeson's plug-in is in it, which takes the job's secret to other hosts.
    pub(crate) plugin: bool,
    /// Under srun: that of the MPI which the program seems to be of.
    behind: Option<Box<Launcher>>,
}

/// What the environment has to be made for.
#[derive(Clone, Debug)]
pub(crate) struct Request<'r> {
    pub(crate) intra_host: IntraHost,
    /// Whether processes on other hosts take part.
    pub(crate) several_hosts: bool,
    /// The provider that carries the sealed records.
    pub(crate) core: &'r str,
    /// The libfabric that the ranks will find, where it is known.
    pub(crate) libfabric: Option<&'r Libfabric>,
    /// The directory with the provider, which FI_PROVIDER_PATH will name.
    pub(crate) providers: &'r Path,
}

/// A libfabric and its version, if it tells.
#[derive(Clone, Debug)]
pub(crate) struct Libfabric {
    pub(crate) path: PathBuf,
    pub(crate) version: Option<(u32, u32)>,
}

/// A variable that a rank must find as it is here.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    /// Whether a value somebody else chose is as good.
    pub(crate) permits: fn(&str) -> bool,
}

/// How one MPI speaks.
pub(crate) struct Dialect {
    /// The options that take values, without dashes, and how many; all others take none.
    pub(crate) options: &'static [(&'static str, usize)],
    /// What an option says about the environment or the hosts.
    pub(crate) meaning: fn(option: &str, values: &[String]) -> Vec<Meaning>,
    /// The option that sets a variable, for sentences.
    pub(crate) spelling: fn(variable: &str) -> String,
    /// What its ranks must find in their environment.
    pub(crate) variables: fn(&Request<'_>) -> Vec<Variable>,
    /// What makes it start its own processes on other hosts through `agent`.
    pub(crate) agent: fn(agent: &Path) -> Result<Hooks, &'static str>,
    /// Why one-sided communication has no sealed way, if so.
    pub(crate) one_sided: fn(&Request<'_>) -> Result<(), OneSided>,
    /// Its own programs, whose sockets stay inside their host.
    pub(crate) programs: &'static [&'static str],
    /// Whether processes of one host talk through the provider whatever `intra_host` says.
    pub(crate) seals_hosts: bool,
}

/// What leads every known launcher's own processes on other hosts to the agent: in a job without MPI it refuses them.
pub(crate) fn all_agents(agent: &Path) -> Hooks {
    let mut hooks: Hooks = AGENT_VARIABLES.map(|name| (name, agent.display().to_string())).to_vec();
    hooks.extend([("HYDRA_LAUNCHER", "rsh".to_owned()), ("I_MPI_HYDRA_BOOTSTRAP", "rsh".to_owned())]);
    hooks
}

/// Variables that only the launcher reads.
pub(crate) type Hooks = Vec<(&'static str, String)>;

/// The variables in which users name the program that launchers call in place of ssh.
pub(crate) const AGENT_VARIABLES: [&str; 5] = [
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "PRTE_MCA_plm_rsh_agent",
];

/// Whose windows are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    All,
    /// Those that start MPI with MPI_THREAD_MULTIPLE.
    WithThreads,
    /// Those of Open MPI, where the launcher starts any MPI's.
    OfOpenMpi,
}

/// Why windows are refused.
pub(crate) struct OneSided {
    pub(crate) to: Programs,
    pub(crate) cause: &'static str,
    pub(crate) remedy: &'static str,
}

impl Launcher {
    /// Looks whose program srun will start.
    pub(crate) fn look_behind(&mut self, program: Option<&OsStr>) {
        if self.flavour == Flavour::Slurm {
            self.behind = program.and_then(behind::behind).map(Box::new);
        }
    }

    /// The launcher of the program's MPI, as far as it is known.
    pub(crate) fn mpi(&self) -> &Self {
        self.behind.as_deref().unwrap_or(self)
    }

    /// What its ranks must find; under srun whatever MPI they turn out to be of.
    pub(crate) fn variables(&self, request: &Request<'_>) -> Vec<Variable> {
        let mut variables = (self.mpi().dialect().variables)(request);
        if self.behind.is_some() {
            let others = (self.dialect().variables)(request);
            let named: Vec<_> = variables.iter().map(|variable| variable.name).collect();
            variables.extend(others.into_iter().filter(|other| !named.contains(&other.name)));
        }
        variables
    }

    /// Why windows are refused, if they are; srun may start Open MPI's programs where another's were expected.
    pub(crate) fn one_sided(&self, request: &Request<'_>) -> Result<(), OneSided> {
        let openmpi = matches!(self.mpi().flavour, Flavour::OpenMpi { .. });
        let dialect = if openmpi { self.mpi().dialect() } else { self.dialect() };
        (dialect.one_sided)(request)
    }

    pub(crate) fn dialect(&self) -> &'static Dialect {
        match self.flavour {
            Flavour::Mpich => &mpich::DIALECT,
            Flavour::Intel => &intel::DIALECT,
            Flavour::OpenMpi { major: 5.. } => &openmpi::DIALECT_5,
            Flavour::OpenMpi { .. } => &openmpi::DIALECT_4,
            Flavour::Slurm => &slurm::DIALECT,
            Flavour::None => &none::DIALECT,
        }
    }
}

impl Variable {
    fn new(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), permits: |_| false }
    }

    fn or(mut self, permits: fn(&str) -> bool) -> Self {
        self.permits = permits;
        self
    }
}

/// What libfabric needs under every MPI.
fn libfabric_variables(request: &Request<'_>) -> Vec<Variable> {
    // A provider on top of another finds that one only when FI_PROVIDER shows both.
    let version = request.libfabric.and_then(|libfabric| libfabric.version);
    let providers = match version {
        _ if request.core.contains(';') => format!("gambeson,{}", request.core.replace(';', ",")),
        // Before libfabric 1.18 tcp needs one.
        Some(version) if version < (1, 18) => format!("gambeson,{},ofi_rxm", request.core),
        _ => "gambeson".to_owned(),
    };
    vec![
        Variable::new("FI_PROVIDER", providers),
        Variable::new("FI_PROVIDER_PATH", request.providers.display().to_string()),
    ]
}

#[cfg(test)]
mod tests;
