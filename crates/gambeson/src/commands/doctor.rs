//! `gambeson doctor -- mpiexec ...`: what was found and what would be secured, without running the job.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use gambeson_proto::credential::{Credential, Tuning};
use gambeson_proto::directory::date;
use gambeson_site::directory::{self, DIRECTORY, FOLDER, SITE_KEY};
use serde_json::json;

use crate::commands::directory::{counts, left};
use crate::fabric_info::{self, FabricInfo};
use crate::failure::{Failure, STATUSES, Status};
use crate::job::{self, Job};
use crate::launcher::{Flavour, Libfabric, Programs, command_line};
use crate::machine;
use crate::plan::{Options, Plan};
use crate::policy_files;

/// Says what `gambeson run` would find and secure, without running the job
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One thing looked at.
struct Finding {
    what: &'static str,
    weight: Weight,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// As it should be.
    Fine,
    /// The job runs; something should be known.
    Note,
    /// The job would be refused.
    Refused,
}

impl Weight {
    fn word(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Refused => "refused",
        }
    }
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let plan = Plan::make(&arguments.options)?;
    let mut findings = Findings::default();
    findings.launcher(&plan, arguments);
    findings.libfabric(&plan)?;
    findings.policy(&plan);
    findings.site();
    findings.reach(&plan);
    findings.machine();
    if arguments.json {
        findings.print_json();
    } else {
        findings.print();
    }
    let refused = findings.0.iter().any(|finding| finding.weight == Weight::Refused);
    Ok(if refused { Status::Refused.into() } else { ExitCode::SUCCESS })
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn fine(&mut self, what: &'static str, text: impl Into<String>) {
        self.0.push(Finding { what, weight: Weight::Fine, text: text.into() });
    }

    fn note(&mut self, what: &'static str, text: impl Into<String>) {
        self.0.push(Finding { what, weight: Weight::Note, text: text.into() });
    }

    fn refused(&mut self, what: &'static str, text: impl Into<String>) {
        self.0.push(Finding { what, weight: Weight::Refused, text: text.into() });
    }

    fn launcher(&mut self, plan: &Plan, arguments: &Arguments) {
        let launcher = &plan.launcher;
        if !plan.has_mpi() {
            self.note("mpi", "none: the program is no launcher of an MPI");
            return self.fine("program", launcher.program.display().to_string());
        }
        self.fine("mpi", format!("{} ({})", launcher.version, launcher.program.display()));
        if launcher.flavour == Flavour::Slurm {
            let mpi = launcher.mpi();
            match mpi.flavour {
                Flavour::Slurm => self.note(
                    "program's mpi",
                    "not known; put its mpiexec first in PATH, so that srun's ranks get what it needs",
                ),
                _ => self.fine("program's mpi", format!("{}, to judge by {}", mpi.version, mpi.program.display())),
            }
            if launcher.plugin {
                self.fine("srun", "has Gambeson's plug-in, which takes the job's secret to other hosts");
            } else {
                self.note("srun", "has no plug-in of Gambeson's, of this version: it serves jobs of this host alone");
            }
        }
        let words = &arguments.options.command[1..];
        let programs = command_line::programs(launcher.dialect(), words);
        let programs: Vec<_> = programs.iter().map(|&place| words[place].to_string_lossy().into_owned()).collect();
        match programs.as_slice() {
            [] => self.note("program", "the command line names no program"),
            programs => self.fine("program", programs.join(", ")),
        }
    }

    fn libfabric(&mut self, plan: &Plan) -> Result<(), Failure> {
        self.fine("provider", plan.libraries.provider.display().to_string());
        if !plan.has_mpi() {
            self.note("libfabric", "none is needed: the program may have links, and MPI is refused in it");
            return Ok(());
        }
        let Some(Libfabric { path, .. }) = &plan.libfabric else {
            self.note(
                "libfabric",
                "none was found near this mpiexec; the guard will tell whether the program's MPI has one",
            );
            return Ok(());
        };
        let job = throw_away_job(plan)?;
        let ask = |provider: Option<&str>| fabric_info::ask(&plan.libraries, path, &job, &plan.core, provider);
        let Some(FabricInfo { version, providers }) = ask(None) else {
            self.note("libfabric", format!("{} does not answer", path.display()));
            return Ok(());
        };
        if version < LIBFABRIC_MIN {
            let (major, minor) = version;
            self.refused(
                "libfabric",
                format!("{} is {major}.{minor}, older than 1.17; use an MPI with a newer one", path.display()),
            );
        } else {
            self.fine("libfabric", format!("{}.{} ({})", version.0, version.1, path.display()));
        }
        if providers.iter().any(|name| name.split(';').next() == plan.core.split(';').next()) {
            self.fine("core", format!("{} carries the sealed records", plan.core));
        } else {
            self.refused(
                "core",
                format!(
                    "this libfabric has no provider {}; name one of {} with --core",
                    plan.core,
                    if providers.is_empty() { "none".to_owned() } else { providers.join(", ") }
                ),
            );
        }
        let loads = ask(Some("gambeson")).is_some_and(|info| info.providers.iter().any(|name| name == "gambeson"));
        if loads {
            self.fine("loading", "this libfabric loads the provider");
        } else {
            self.refused(
                "loading",
                "this libfabric does not load the provider; FI_LOG_LEVEL=info with `gambeson run` lets it say why",
            );
        }
        Ok(())
    }

    fn policy(&mut self, plan: &Plan) {
        let files: Vec<_> = plan.loaded.files.iter().map(|file| file.display().to_string()).collect();
        let origin = if files.is_empty() { "the defaults".to_owned() } else { files.join(", then ") };
        self.fine("policy", format!("{origin}; {}", plan.policy().suite()));
        for text in &plan.loaded.resolution.notes {
            self.note("policy", text.clone());
        }
        if plan.policy().weakens() {
            self.note("policy", "some pairs of processes may exchange messages that others can read; `gambeson policy check HOST HOST` says which");
        } else {
            self.fine("between hosts", "every message is sealed");
        }
    }

    /// A job runs without a good directory; its links do not.
    fn site(&mut self) {
        let file = Path::new(FOLDER).join(DIRECTORY);
        match directory::look(Path::new(FOLDER)) {
            Err(why) => self.note("site", format!("links that this job's programs open are refused: {why}")),
            Ok(None) => {
                let what =
                    format!("no directory (there is no {FOLDER}/{SITE_KEY}): the policy alone decides about links");
                self.fine("site", what);
            }
            Ok(Some(found)) if found.expires < directory::now() + SOON => {
                let (file, left) = (file.display(), left(&found));
                self.note("site", format!("{file} expires {left}; links are refused then, so let it be signed again"));
            }
            Ok(Some(found)) => {
                self.fine("site", format!("{}: {}, until {}", file.display(), counts(&found), date(found.expires)));
            }
        }
    }

    fn reach(&mut self, plan: &Plan) {
        if plan.seals_hosts() {
            self.fine("inside hosts", "every message passes the provider");
        } else {
            self.note("inside hosts", "the MPI's own shared memory, in clear inside the host; --intra-host sealed takes it through the provider");
        }
        match plan.one_sided() {
            Ok(()) => self.fine("one-sided", "allowed"),
            Err(refused) if refused.to != Programs::All => {
                self.note("one-sided", format!("{}. {}", refused.cause, refused.remedy));
            }
            Err(refused) => self.note("one-sided", format!("refused: {}. {}", refused.cause, refused.remedy)),
        }
        if plan.hosts.several() {
            let carrier = match (plan.by_plugin(), plan.daemons) {
                (true, _) => "by Gambeson's plug-in for Slurm",
                (false, true) => "by their daemons",
                (false, false) => "over ssh",
            };
            let hosts = plan.hosts.remote.join(", ");
            self.fine("hosts", format!("this one and {hosts}; the secret goes there {carrier}"));
        } else {
            self.fine("hosts", "this one");
        }
    }

    fn machine(&mut self) {
        match machine::locked_memory_max() {
            Some(limit) if limit < MEMLOCK_MIN => self.note(
                "locked memory",
                format!(
                    "{} KiB a process (ulimit -l); secrets need few, other core providers than tcp may need more",
                    limit / 1024
                ),
            ),
            Some(limit) => self.fine("locked memory", format!("{} KiB a process", limit / 1024)),
            None => self.fine("locked memory", "no limit"),
        }
        match machine::swap_warning() {
            Some(text) => self.note("swap", text),
            None => self.fine("swap", "none in clear"),
        }
    }

    fn print(&self) {
        let width = self.0.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
        for Finding { what, weight, text } in &self.0 {
            println!("{:7}  {what:width$}  {text}", weight.word());
        }
    }

    fn print_json(&self) {
        let findings: Vec<_> = self
            .0
            .iter()
            .map(|finding| json!({"what": finding.what, "state": finding.weight.word(), "text": finding.text}))
            .collect();
        println!("{:#}", json!({ "findings": findings }));
    }
}

/// The provider offers itself only to processes of a job.
fn throw_away_job(plan: &Plan) -> Result<Job, Failure> {
    let (job_id, job_secret) = job::draw()?;
    let (policy, partitions) = policy_files::partition_keys(&plan.loaded.resolution, &job_id)?;
    let credential = Credential { partitions, job_id, job_secret, policy, tuning: Tuning::default() };
    Job::create(&credential, &plan.libraries, plan.may_use_slurm())
}

const LIBFABRIC_MIN: (u32, u32) = (1, 17);
/// A directory that expires within so many seconds should be signed again.
const SOON: u64 = 3 * 86_400;
const MEMLOCK_MIN: u64 = 64 << 10;
