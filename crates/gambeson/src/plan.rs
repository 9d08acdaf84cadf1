//! What a job will run with, decided before anything is started; `run` carries it out and `doctor` describes it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gambeson_proto::policy::{IntraHost, Policy};

use crate::commands::enter;
use crate::fabric_info;
use crate::failure::Failure;
use crate::hosts::Hosts;
use crate::launcher::command_line::{Carrier, Meaning, Said, programs, read};
use crate::launcher::{
    AGENT_VARIABLES, Flavour, Launcher, Libfabric, OneSided, Request, Variable, recognise_any, slurm,
};
use crate::libraries::Libraries;
use crate::policy_files::{self, Loaded};
use crate::reach::carrier;

/// What `run` and `doctor` are told alike.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The policy; without it ./gambeson.toml may strengthen the default
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The partition of the site that the job runs in: all its hosts have to be members
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// What carries messages between processes of one host: the MPI's own shared memory, in clear, or the provider;
    /// without it the policy says, whose default is mpi
    #[arg(long, value_name = "HOW")]
    intra_host: Option<IntraHostArgument>,
    /// The libfabric provider that carries the sealed records: tcp, 'verbs;ofi_rxm', efa; fi_info -l lists them
    #[arg(long, value_name = "PROVIDER", default_value = "tcp")]
    core: String,
    /// What takes the job to other hosts: their daemons (gambesond), or your ssh; without it daemons, if you have an
    /// identity of a site and choose no ssh by GAMBESON_SSH or the launcher's own options
    #[arg(long, value_name = "HOW")]
    launcher: Option<LauncherArgument>,
    /// mpiexec and all its arguments, or a program of links and its own
    #[arg(last = true, required = true, value_name = "MPIEXEC ...")]
    pub(crate) command: Vec<OsString>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum LauncherArgument {
    Daemon,
    Ssh,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum IntraHostArgument {
    Mpi,
    Sealed,
}

impl Options {
    /// The same for a job that is traced: only what passes the provider can be written down.
    pub(crate) fn traced(&self) -> Result<Self, Failure> {
        match self.intra_host {
            Some(IntraHostArgument::Mpi) => Err(Failure::usage(
                "--trace writes down what passes the provider, and --intra-host mpi takes messages inside a host past it; leave one of them out",
            )),
            _ => Ok(Self { intra_host: Some(IntraHostArgument::Sealed), ..self.clone() }),
        }
    }

    pub(crate) fn says_intra_host(&self) -> bool {
        self.intra_host.is_some()
    }
}

/// Everything decided.
pub(crate) struct Plan {
    pub(crate) launcher: Launcher,
    pub(crate) loaded: Loaded,
    pub(crate) core: String,
    pub(crate) hosts: Hosts,
    pub(crate) libraries: Libraries,
    /// What the ranks will find, where it is known.
    pub(crate) libfabric: Option<Libfabric>,
    /// What the launcher was to be started with.
    arguments: Vec<OsString>,
    /// The program that carries the secret to other hosts, and its own arguments.
    pub(crate) ssh: Vec<String>,
    /// Whether the hosts' daemons take the job there, in place of that.
    pub(crate) daemons: bool,
    said: Vec<Said>,
}

impl Plan {
    /// Decides, or refuses with the reason.
    pub(crate) fn make(options: &Options) -> Result<Self, Failure> {
        let (name, arguments) = options.command.split_first().expect("clap requires a command");
        let mut loaded = policy_files::load(options.policy.as_deref())?;
        if let Some(partition) = &options.partition {
            loaded.resolution.run_in(partition).map_err(Failure::usage)?;
        }
        loaded.resolution.policy = inside_hosts(loaded.resolution.policy, options.intra_host)?;
        let mut launcher = recognise_any(name)?;
        let said = read(launcher.dialect(), arguments);
        let hosts = match launcher.flavour {
            Flavour::Slurm => slurm::hosts(&said, arguments, launcher.plugin)?,
            Flavour::None => Hosts::default(),
            _ => Hosts::find(&said),
        };
        let program = programs(launcher.dialect(), arguments).first().map(|&place| arguments[place].as_os_str());
        launcher.look_behind(program);
        let libraries = Libraries::find(Some(&launcher))?;
        let mut plan = Self {
            libfabric: fabric_info::of_launcher(&launcher, &libraries),
            launcher,
            loaded,
            core: core(&options.core)?,
            hosts,
            libraries,
            arguments: arguments.to_vec(),
            ssh: Vec::new(),
            daemons: false,
            said,
        };
        plan.reach_hosts(options.launcher)?;
        // The real directory does not exist yet, and no value of a variable is judged by it.
        plan.variables(Path::new(""))?;
        Ok(plan)
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.loaded.resolution.policy
    }

    /// What every rank must find in its environment; refuses where somebody chose otherwise.
    pub(crate) fn variables(&self, providers: &Path) -> Result<Vec<Variable>, Failure> {
        let mut variables = self.launcher.variables(&self.request(providers));
        if let Flavour::OpenMpi { .. } = self.launcher.mpi().flavour {
            self.nothing_overrides(&variables)?;
        }
        for variable in &mut variables {
            self.agree_with_environment(variable)?;
        }
        self.agree_with_command_line(&mut variables)?;
        Ok(variables)
    }

    /// What the user gave the launcher.
    pub(crate) fn given(&self) -> &[OsString] {
        &self.arguments
    }

    /// What the launcher is started with, for a job that has its directory.
    pub(crate) fn arguments(&self, job: &Path) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        let entered = self.launcher.flavour == Flavour::Slurm;
        let programs = programs(self.launcher.dialect(), &arguments);
        if let Some(&place) = programs.first().filter(|_| entered) {
            arguments.splice(place..place, enter::words(&self.libraries.program, job, &self.core));
        }
        arguments
    }

    /// Why windows are refused, if they are.
    pub(crate) fn one_sided(&self) -> Result<(), OneSided> {
        self.launcher.one_sided(&self.request(Path::new("")))
    }

    /// Whether Slurm's daemon may be the parent of processes of the job: srun's, and those that MPICH has srun start inside an
    /// allocation.
    pub(crate) fn may_use_slurm(&self) -> bool {
        self.launcher.flavour == Flavour::Slurm || env::var_os("SLURM_JOB_ID").is_some()
    }

    /// Whether there is a launcher of an MPI.
    pub(crate) fn has_mpi(&self) -> bool {
        self.launcher.flavour != Flavour::None
    }

    /// Whether the plug-in in srun takes the job to other hosts.
    pub(crate) fn by_plugin(&self) -> bool {
        self.hosts.several() && self.launcher.plugin
    }

    /// Whether messages inside a host pass the provider.
    pub(crate) fn seals_hosts(&self) -> bool {
        self.launcher.dialect().seals_hosts || self.policy().intra_host() == IntraHost::Sealed
    }

    fn request<'r>(&'r self, providers: &'r Path) -> Request<'r> {
        Request {
            intra_host: self.policy().intra_host(),
            several_hosts: self.hosts.several(),
            core: &self.core,
            libfabric: self.libfabric.as_ref(),
            providers,
        }
    }

    fn agree_with_environment(&self, variable: &mut Variable) -> Result<(), Failure> {
        let Ok(found) = env::var(variable.name) else {
            return Ok(());
        };
        // The path is taken over, the providers it led to with it; naming the core provider says nothing new.
        let harmless = variable.name == "FI_PROVIDER_PATH" || (variable.name == "FI_PROVIDER" && found == self.core);
        if harmless || found == variable.value {
            return Ok(());
        }
        if (variable.permits)(&found) {
            variable.value = found;
            return Ok(());
        }
        let remedy = if variable.name == "FI_PROVIDER" {
            format!("unset it, or name it as the provider that carries the sealed records: --core {found}")
        } else {
            format!("unset {}", variable.name)
        };
        Err(Failure::refused(format!(
            "the environment says {}={found}, which would lead messages past the provider (sealing needs \"{}\"); {remedy}",
            variable.name, variable.value
        )))
    }

    fn agree_with_command_line(&self, variables: &mut [Variable]) -> Result<(), Failure> {
        for said in &self.said {
            match &said.meaning {
                Meaning::Strips => {
                    return Err(Failure::refused(format!(
                        "\"{}\" keeps from the ranks what they need to seal their messages; remove it",
                        said.written
                    )));
                }
                Meaning::ProgramsByFile => {
                    return Err(Failure::refused(format!(
                        "\"{}\" lets a file say what the ranks run, so what they need to seal their messages cannot be put before it; start a script that chooses by SLURM_PROCID",
                        said.written
                    )));
                }
                Meaning::Sets { variable, value } => self.agree_with_setting(variables, variable, value, said)?,
                Meaning::Hosts(_)
                | Meaning::HostFile(_)
                | Meaning::HostCount(_)
                | Meaning::Elsewhere
                | Meaning::Carrier(_) => {}
            }
        }
        Ok(())
    }

    fn agree_with_setting(
        &self,
        variables: &mut [Variable],
        name: &str,
        value: &str,
        said: &Said,
    ) -> Result<(), Failure> {
        if OWN_VARIABLES.contains(&name) {
            return Err(Failure::refused(format!(
                "\"{}\" replaces a variable that `gambeson run` sets for the ranks; remove it{}",
                said.written,
                if name == "LD_PRELOAD" {
                    ", and set LD_PRELOAD in the environment of `gambeson run` instead, which keeps it"
                } else {
                    ""
                }
            )));
        }
        let Some(variable) = variables.iter_mut().find(|variable| variable.name == name) else {
            return Ok(());
        };
        if (variable.permits)(value) {
            value.clone_into(&mut variable.value);
        }
        if variable.value == value {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "\"{}\" would lead messages past the provider (sealing needs {} {}); remove it",
            said.written,
            (self.launcher.dialect().spelling)(name),
            variable.value
        )))
    }

    /// Open MPI has a file that even the environment does not override.
    fn nothing_overrides(&self, variables: &[Variable]) -> Result<(), Failure> {
        for path in override_files(&self.launcher.mpi().program) {
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            for line in text.lines() {
                let Some((name, value)) = line.split('#').next().unwrap_or_default().split_once('=') else {
                    continue;
                };
                let (name, value) = (format!("OMPI_MCA_{}", name.trim()), value.trim());
                let against = variables.iter().find(|variable| variable.name == name && variable.value != value);
                if let Some(variable) = against {
                    return Err(Failure::refused(format!(
                        "{} says \"{}\", which nothing can override and which would lead messages past the provider (sealing needs \"{}\"); ask for its removal, or use another MPI",
                        path.display(),
                        line.trim(),
                        variable.value
                    )));
                }
            }
        }
        Ok(())
    }

    /// The secret travels to other hosts by their daemons, over the user's ssh or not at all (rule 7 of the threat
    /// model). What the user chose in place of ssh goes to the agent, which takes its place.
    fn reach_hosts(&mut self, argument: Option<LauncherArgument>) -> Result<(), Failure> {
        if !self.hosts.several() || self.launcher.plugin {
            return Ok(());
        }
        let hosts = self.hosts.remote.join(", ");
        let cannot = |why: &str| {
            Failure::refused(format!(
                "the job uses other hosts ({hosts}), and the job's secret cannot be carried there: {why}"
            ))
        };
        (self.launcher.dialect().agent)(Path::new("")).map_err(&cannot)?;
        self.ssh = ssh_program();
        let mut taken = Vec::new();
        for said in &self.said {
            match &said.meaning {
                Meaning::Carrier(Carrier::Foreign) => {
                    return Err(cannot(&format!(
                        "\"{}\" chooses another way than ssh; remove it, and name your ssh in GAMBESON_SSH if it is a special one",
                        said.written
                    )));
                }
                Meaning::Carrier(Carrier::Program(program)) => {
                    self.ssh = words(program);
                    taken.push(said.place.clone());
                }
                Meaning::Carrier(Carrier::Ssh) => taken.push(said.place.clone()),
                _ => {}
            }
        }
        let names_ssh = !taken.is_empty() || env::var_os("GAMBESON_SSH").is_some();
        for place in taken.into_iter().rev() {
            self.arguments.drain(place);
        }
        let is_known = carrier::has_identity();
        self.daemons = argument.map_or(is_known && !names_ssh, |argument| argument == LauncherArgument::Daemon);
        if self.daemons && !is_known {
            return Err(cannot(
                "--launcher daemon needs an identity of your site, and you have none; ask its administrator for `gambeson enroll --user`, or choose --launcher ssh",
            ));
        }
        if self.daemons {
            return Ok(());
        }
        if self.ssh.first().and_then(|program| which(program)).is_none() {
            return Err(cannot(&format!(
                "{} was not found; install ssh, or name yours in GAMBESON_SSH",
                self.ssh.join(" ")
            )));
        }
        Ok(())
    }
}

/// The policy's word is a floor for the command line's.
fn inside_hosts(policy: Policy, argument: Option<IntraHostArgument>) -> Result<Policy, Failure> {
    match argument {
        Some(IntraHostArgument::Sealed) => Ok(policy.with_sealed_hosts()),
        Some(IntraHostArgument::Mpi) if policy.intra_host() == IntraHost::Sealed => Err(Failure::refused(
            "--intra-host mpi asks for less than the policy, which says intra_host = \"sealed\"; leave the option out",
        )),
        Some(IntraHostArgument::Mpi) | None => Ok(policy),
    }
}

fn core(name: &str) -> Result<String, Failure> {
    let legal = |character: char| character.is_ascii_alphanumeric() || "_-;.".contains(character);
    if name.is_empty() || !name.chars().all(legal) || name.contains("gambeson") {
        return Err(Failure::usage(format!(
            "--core {name} names no provider of libfabric; write for example --core tcp, and see fi_info -l"
        )));
    }
    Ok(name.to_owned())
}

/// The user's ssh, where Gambeson, or else the MPI, is told of a special one.
pub(crate) fn ssh_program() -> Vec<String> {
    let named = ["GAMBESON_SSH"].iter().chain(&AGENT_VARIABLES).find_map(|name| env::var(name).ok());
    let program = named.map(|named| words(&named)).unwrap_or_default();
    if program.is_empty() { vec!["ssh".to_owned()] } else { program }
}

/// Open MPI offers alternatives after a colon; the first counts.
pub(crate) fn words(program: &str) -> Vec<String> {
    program.split_whitespace().take_while(|word| *word != ":").map(str::to_owned).collect()
}

fn which(name: &str) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return fs::canonicalize(name).ok();
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

fn override_files(program: &Path) -> Vec<PathBuf> {
    let real = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    let prefix = real.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    ["etc/openmpi-mca-params-override.conf", "etc/openmpi/openmpi-mca-params-override.conf"]
        .iter()
        .map(|name| prefix.join(name))
        .chain([PathBuf::from("/etc/openmpi/openmpi-mca-params-override.conf")])
        .collect()
}

/// Set for the ranks besides what the MPI needs.
const OWN_VARIABLES: [&str; 3] = ["GAMBESON_JOB", "GAMBESON_CORE", "LD_PRELOAD"];
