//! `gambeson run -- mpiexec ...`: the job as it is, with every message sealed.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use gambeson_keyd::wire::Purpose;
use gambeson_keys::relay::{self, ANCHOR, LABELS, Labels};
use gambeson_keys::{OF_JOB, rank};
use gambeson_proto::credential::{Credential, Tuning};
use gambeson_proto::ledger::State;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Protection;
use gambeson_site::directory::{self, DIRECTORY, FOLDER, SITE_KEY};
use rustix::time::ClockId;
use serde_json::json;
use zeroize::Zeroizing;

use crate::commands::agent;
use crate::failure::{Failure, STATUSES, Status};
use crate::job::reports::{self, Reports};
use crate::job::{self, Job, processes};
use crate::keys::{self, ForJob};
use crate::launcher::{Programs, Variable, all_agents, slurm};
use crate::machine;
use crate::plan::{Options, Plan};
use crate::policy_files;
use crate::reach::home::Home;
use crate::reach::{carrier, listeners};
use crate::report;
use crate::supervise::{self, Start};
use crate::trace::{self, About, Output, Summary};

/// Runs an MPI job so that every message between its processes is sealed
///
/// A program that is no launcher of an MPI is started as it is, with the job's credential for links between its
/// processes; MPI is refused in it.
///
/// The job's output, signals and exit status pass through. A rank whose messages would not be
/// protected as the policy says is stopped before its first message, and the job ends with
/// status 70 and a sentence that names the rank, the cause and the remedy.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Print per rank, at the end, what was sealed and what it cost
    #[arg(long)]
    stats: bool,
    /// Write the same as JSON, to stdout or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write down every message between ranks (sizes, peers and times, nothing of what they say) for `gambeson sim`;
    /// takes messages inside hosts through the provider too
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How many MiB each rank may write down, in its host's memory; 5.6 million records of messages by default
    #[arg(long, value_name = "MIB", default_value_t = 256, requires = "trace", value_parser = clap::value_parser!(u64).range(1..=1024))]
    trace_limit: u64,
    /// A knob of the provider, for tests: NAME=NUMBER
    #[arg(long, value_name = "KNOB", hide = true, value_parser = knob)]
    tuning: Vec<(Knob, u64)>,
    /// A file with the passphrase of your key store, mode 0600, instead of asking for it; the job's processes get the
    /// labels that are in it, for files
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Print no notes
    #[arg(long, short)]
    quiet: bool,
}

/// Sets one field of the provider's knobs.
type Knob = fn(&mut Tuning, u64);

fn knob(text: &str) -> Result<(Knob, u64), String> {
    let (name, value) = text.split_once('=').ok_or("a knob is NAME=NUMBER")?;
    let set: Knob = match name {
        "epoch-records" => |tuning, value| tuning.epoch_records = value,
        "epoch-blocks" => |tuning, value| tuning.epoch_blocks = value,
        "cached-sessions" => |tuning, value| tuning.cached_sessions = u32::try_from(value).unwrap_or(u32::MAX),
        "unexpected-bytes" => |tuning, value| tuning.unexpected_bytes = value,
        _ => return Err(format!("no knob is called {name}")),
    };
    Ok((set, value.parse().map_err(|_| format!("{value} is no number"))?))
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // The secret passes through this process: no other may look into it, and no core file hold it.
    machine::close_to_others()?;
    let options = match &arguments.trace {
        Some(_) => &arguments.options.traced()?,
        None => &arguments.options,
    };
    let identity = job::draw()?;
    // A key service answers while the plan is made, so that it costs the job's start nothing.
    let given = keys::ask_for_job(identity.0);
    let plan = Plan::make(options)?;
    if !arguments.quiet {
        notes(&plan);
        if arguments.trace.is_some() && !arguments.options.says_intra_host() {
            eprintln!("gambeson: note: {FORCED}");
        }
    }
    let trace = arguments.trace.as_deref().map(Output::create).transpose()?;
    let trace = trace.map(|output| Trace { output, limit: arguments.trace_limit << 20 });
    let mut tuning = Tuning::default();
    for (set, value) in &arguments.tuning {
        set(&mut tuning, *value);
    }
    let keys = keys::for_job(arguments.passphrase_file.as_deref(), given)?;
    if let ForJob::Without(why) = &keys
        && !arguments.quiet
    {
        eprintln!("gambeson: note: this job's processes get no keys for sealed files: {why}");
    }
    let mut outcome = run(&plan, identity, tuning, trace, keys)?;
    let traced = outcome.traced.take().transpose()?;
    arguments.report(&plan, &outcome, traced.as_ref())?;
    Ok(outcome.verdict())
}

/// What is left when the job is over and its directory gone.
struct Outcome {
    status: ExitStatus,
    reports: Reports,
    /// Hosts to which the connection was lost, or whose agent was killed.
    lost: Vec<String>,
    /// Processes of the job that outlived its launcher and were ended.
    ended: usize,
    /// What came of the trace, if one was asked for.
    traced: Option<Result<Summary, Failure>>,
}

/// Where the trace goes, and how many bytes each rank may write down.
struct Trace {
    output: Output,
    limit: u64,
}

fn notes(plan: &Plan) {
    let note = |text: &str| eprintln!("gambeson: note: {text}");
    for text in &plan.loaded.resolution.notes {
        note(text);
    }
    if !plan.has_mpi() {
        note(&format!(
            "{} is no launcher of an MPI: it runs as it is, its processes have this job's credential for links, and MPI is refused in them",
            plan.launcher.program.display()
        ));
    }
    if plan.by_plugin() {
        note(
            "other hosts get the job's secret by Gambeson's plug-in for Slurm; what else srun sends there (environment, arguments, standard streams) goes in clear",
        );
    } else if plan.hosts.several() && plan.has_mpi() {
        let carrier = if plan.daemons { "their daemons (gambesond)".to_owned() } else { plan.ssh.join(" ") };
        note(&format!("other hosts are reached by {carrier}, and the launcher's control channel goes the same way"));
    }
    if !plan.seals_hosts() {
        note(
            "processes of one host talk through the MPI's own shared memory, in clear inside the host; --intra-host sealed takes that through the provider too",
        );
    }
    if plan.policy().weakens() {
        note(
            "the policy lets some pairs of processes exchange messages that others can read; `gambeson policy check HOST HOST` says which",
        );
    }
    let open: Vec<_> = plan.policy().classes().into_iter().filter(|class| plan.policy().weakens_links(class)).collect();
    if !open.is_empty() && !plan.policy().weakens() {
        note(&format!(
            "the policy lets others read links of class {}; `gambeson policy check --class CLASS HOST HOST` says between whom",
            open.join(", ")
        ));
    }
    let may_be_weak = |name: &&str| {
        let name = Some(*name).filter(|name| *name != "*");
        plan.policy().allows_communicator(Protection::Integrity, name)
    };
    let open: Vec<_> = plan.policy().communicators().into_iter().filter(may_be_weak).collect();
    if !open.is_empty() && !plan.policy().weakens() {
        note(&format!(
            "the policy lets others read messages on communicators that ask for it (gambeson_protection) and are called {}; `gambeson policy check --communicator NAME HOST HOST` says between whom",
            open.join(", ")
        ));
    }
    if let Some(text) = machine::swap_warning() {
        note(&text);
    }
}

fn run(
    plan: &Plan,
    (job_id, job_secret): ([u8; 16], Secret32),
    tuning: Tuning,
    trace: Option<Trace>,
    keys: ForJob,
) -> Result<Outcome, Failure> {
    let (policy, partitions) = policy_files::partition_keys(&plan.loaded.resolution, &job_id)?;
    let credential = Credential { partitions, job_id, job_secret, policy, tuning };
    let job = Job::create(&credential, &plan.libraries, plan.may_use_slurm())?;
    let home = plan.by_plugin().then(|| Home::open(credential, job.directory())).transpose()?;
    match keys {
        ForJob::Opened(keys) => job.hold(OF_JOB, &keys),
        ForJob::Given(keys, client) => {
            job.hold(OF_JOB, &keys);
            job.hold(rank::IDENTITY, keys::identity().as_os_str().as_encoded_bytes());
            let relaying = client.clone();
            job.answer_by(rank::RING, move |request| {
                rank::answer(relaying.ring_of(request).map_err(|error| error.to_string()))
            });
            let labels = Labels::new(Box::new(client.by_name(Purpose::Job(job_id))));
            job.answer_by(LABELS, move |request| labels.answer(request));
            job.answer_by(ANCHOR, move |question| Zeroizing::new(relay::answer(&client, question)));
        }
        ForJob::NoStore | ForJob::Without(_) => {}
    }
    let variables = plan.variables(&job.providers())?;
    prepare(plan, &job, &variables)?;
    if let Some(trace) = &trace {
        job.write("trace", trace.limit.to_string().as_bytes())?;
    }
    let about = about(plan);
    let mut environment = environment(plan, &job, &variables)?;
    let files = home.as_ref().map(|home| home.files(&job)).transpose()?;
    if let Some(files) = &files {
        environment.push((slurm::VARIABLE.to_owned(), files.as_raw_fd().to_string().into()));
        if env::var_os(ENDS_TOGETHER).is_none() {
            environment.push((ENDS_TOGETHER.to_owned(), "1".into()));
        }
    }
    let arguments = plan.arguments(job.directory());
    let start = Start { program: &plan.launcher.program, arguments: &arguments, environment: &environment };
    let mut glances = 0;
    let status = supervise::run(&start, || {
        glances += 1;
        // Launchers begin with their listeners, and seldom add one later.
        if glances < OFTEN || glances % OFTEN == 0 {
            refuse_exposed(plan, &job);
        }
        reports::alarming(job.directory())
    })?;
    let lost = wait_for_agents(&job, if trace.is_some() { TRACES_GRACE } else { AGENTS_GRACE });
    let mut reports = Reports::read(job.directory(), job.keys());
    if !status.success() && reports.refusals.is_empty() {
        reports.refusals.extend(home.as_ref().and_then(|home| home.missing(status)));
    }
    // A job that ended well may have left servers running on purpose.
    let failed = !status.success() || !reports.refusals.is_empty() || !lost.is_empty();
    let ended = if failed { processes::end(job.directory()) } else { 0 };
    // Now that nobody writes any more.
    let traced = trace.map(|trace| trace.output.write(job.directory(), about));
    Ok(Outcome { status, reports, lost, ended, traced })
}

/// What a trace says of the job beside its messages.
fn about(plan: &Plan) -> About {
    let words = |word: &OsString| word.to_string_lossy().into_owned();
    let started_ns = trace::now_ns(ClockId::Monotonic);
    About {
        command: std::iter::once(plan.launcher.program.as_os_str().to_owned())
            .chain(plan.given().iter().cloned())
            .map(|word| words(&word))
            .collect(),
        mpi: plan.launcher.version.clone(),
        started_ns,
        clock_ns: trace::now_ns(ClockId::Realtime).saturating_sub(started_ns),
        boot: trace::boot(),
    }
}

/// Leaves in the job's directory what this host's site has signed, as it is: who opens links looks whether it holds.
fn site(job: &Job) -> Result<(), Failure> {
    let folder = Path::new(FOLDER);
    let refused = |error: directory::Error| Failure::refused(error.to_string());
    let Some(key) = directory::key_in(folder).map_err(refused)? else { return Ok(()) };
    directory::read_key(&key).map_err(refused)?;
    let unreadable = |error| Failure::refused(format!("the site's key {} cannot be read ({error})", key.display()));
    job.write(SITE_KEY, &fs::read(&key).map_err(unreadable)?)?;
    match fs::read(folder.join(DIRECTORY)) {
        Ok(bytes) => job.write(DIRECTORY, &bytes),
        // Who opens links says what is missing.
        Err(_) => Ok(()),
    }
}

/// Leaves in the job's directory what the guard looks at.
fn prepare(plan: &Plan, job: &Job, variables: &[Variable]) -> Result<(), Failure> {
    let lines: String = variables.iter().map(|variable| format!("{}={}\n", variable.name, variable.value)).collect();
    job.write("environment", lines.as_bytes())?;
    job.write("rules", plan.policy().origins().join("\n").as_bytes())?;
    site(job)?;
    job.write("launchers", plan.launcher.dialect().programs.join("\n").as_bytes())?;
    if !plan.has_mpi() {
        job.write("no-mpi", b"")?;
    }
    if let Err(refused) = plan.one_sided() {
        let name = match refused.to {
            Programs::All => "one-sided",
            Programs::WithThreads => "one-sided-threads",
            Programs::OfOpenMpi => "one-sided-openmpi",
        };
        job.write(name, format!("{}\n{}\n", refused.cause, refused.remedy).as_bytes())?;
    }
    Ok(())
}

fn environment(plan: &Plan, job: &Job, variables: &[Variable]) -> Result<Vec<(String, OsString)>, Failure> {
    let mut environment: Vec<(String, OsString)> =
        variables.iter().map(|variable| (variable.name.to_owned(), variable.value.clone().into())).collect();
    let own = job::variables(job.directory(), &plan.core, env::var_os("LD_PRELOAD"));
    environment.extend(own.map(|(name, value)| (name.to_owned(), value)));
    if !plan.has_mpi() {
        environment.extend(all_agents(&job.agent()).into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    }
    if plan.hosts.several() && !plan.by_plugin() {
        let hooks = (plan.launcher.dialect().agent)(&job.agent()).map_err(Failure::refused)?;
        if plan.daemons {
            environment.push((carrier::VARIABLE.to_owned(), "daemon".into()));
        } else {
            environment.push(("GAMBESON_SSH".to_owned(), plan.ssh.join(" ").into()));
            environment.push((carrier::VARIABLE.to_owned(), "ssh".into()));
        }
        environment.extend(hooks.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    }
    Ok(environment)
}

/// Leaves word in the job's directory when the launcher listens where others can reach it.
fn refuse_exposed(plan: &Plan, job: &Job) {
    let programs = plan.launcher.dialect().programs;
    if programs.is_empty() {
        return;
    }
    if let Some((program, address)) = listeners::exposed(&plan.launcher.program, programs) {
        let said = format!(
            "{program} listens at {address}, where others could connect and be given the job's environment. Gambeson's guard keeps a launcher's sockets inside its host, and is not loaded into this one: use a launcher that is linked dynamically, and leave LD_PRELOAD as it is"
        );
        // The first word is enough.
        let _ = job
            .write(&format!("refused-{}", std::process::id()), format!("the launcher\ngambeson: {said}\n").as_bytes());
    }
}

/// Agents bring the pages of other hosts when those hosts are done. The hosts that were lost.
fn wait_for_agents(job: &Job, grace: Duration) -> Vec<String> {
    let marked = |mark: &str| {
        let entries = fs::read_dir(job.directory()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| Some(name.strip_prefix(mark)?.to_owned())).collect::<Vec<_>>()
    };
    let deadline = Instant::now() + grace;
    while Instant::now() < deadline && !marked(agent::MARK).is_empty() {
        thread::sleep(Duration::from_millis(20));
    }
    let mut lost = [marked(agent::MARK), marked(agent::LOST_MARK)].concat();
    lost.sort();
    lost.dedup();
    lost
}

impl Arguments {
    fn report(&self, plan: &Plan, outcome: &Outcome, traced: Option<&Summary>) -> Result<(), Failure> {
        let Reports { ranks, refusals, .. } = &outcome.reports;
        if self.stats && !ranks.is_empty() {
            eprint!("{}", report::table(ranks));
        }
        if let Some(file) = &self.json {
            let value = json!({
                "mpi": plan.launcher.version,
                "intra_host": if plan.seals_hosts() { "sealed" } else { "mpi" },
                "status": outcome.status.code(),
                "refused": refusals,
                "unprotected": outcome.reports.unprotected(),
                "ended": outcome.ended,
                "links": outcome.reports.linked,
                "ranks": ranks.iter().map(report::rank).collect::<Vec<_>>(),
            });
            if file.as_os_str() == "-" {
                println!("{value:#}");
            } else {
                fs::write(file, format!("{value:#}\n")).map_err(|error| {
                    Failure::system(format!("the report cannot be written to {} ({error})", file.display()))
                })?;
            }
        }
        if let (Some(Summary { ranks, matched, missing }), Some(file)) = (traced, &self.trace) {
            if *ranks == 0 {
                eprintln!("gambeson: no process wrote anything down, so there is no trace in {}", file.display());
            } else if !self.quiet {
                eprintln!("gambeson: note: {} holds {matched} messages of {ranks} ranks", file.display());
            }
            // What is missing nobody shall take for complete.
            for sentence in missing {
                eprintln!("gambeson: the trace is not complete: {sentence}");
            }
        }
        let linked = &outcome.reports.linked;
        if !self.quiet && outcome.status.success() {
            match (outcome.reports.started(), linked.is_empty()) {
                (false, true) => {
                    eprintln!("gambeson: note: no process of this job started MPI or had links, so nothing was sealed");
                }
                (_, false) => eprintln!("gambeson: note: {} had links, as the policy has them", list(linked)),
                (true, true) => {}
            }
        }
        Ok(())
    }
}

impl Outcome {
    /// A refusal of any rank is the refusal of the job; else the job's own status counts.
    fn verdict(&self) -> ExitCode {
        let Reports { refusals, ranks, .. } = &self.reports;
        if let Some(first) = refusals.first() {
            let who: Vec<_> = refusals.iter().map(|refusal| refusal.who.as_str()).collect();
            eprintln!("gambeson: the job is refused and was ended, because of {}:", list(&who));
            eprintln!("{}", first.sentence);
            return Status::Refused.into();
        }
        let unprotected = self.reports.unprotected();
        // In a job that failed by itself, ranks may have ended on their way into MPI.
        if !unprotected.is_empty() && (self.status.success() || ranks.is_empty()) {
            eprintln!(
                "gambeson: the job is refused: {} started MPI, whose libfabric never opened Gambeson's provider. Start the program with the mpiexec of its own MPI; `gambeson doctor -- mpiexec ...` looks for other causes, and FI_LOG_LEVEL=info lets libfabric say why.",
                list(&unprotected)
            );
            return Status::Refused.into();
        }
        let open: Vec<_> = ranks.iter().filter(|rank| rank.state == State::Opened).map(reports::name).collect();
        if !self.status.success() && !open.is_empty() {
            eprintln!(
                "gambeson: note: the job failed while {} had endpoints open: one was killed, crashed or gave up, and the launcher ended the others; what it said above names it",
                list(&open)
            );
        }
        if self.status.success() && !self.lost.is_empty() {
            // Open MPI 5 says so itself, and ends with 0.
            eprintln!(
                "gambeson: the job has failed, though its launcher ended well: the connection to {} was lost, and what ran there with it",
                list(&self.lost)
            );
            return Status::System.into();
        }
        supervise::end_as(self.status).into()
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    let first: Vec<_> = items.iter().take(10).map(T::to_string).collect();
    match items.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Has srun end a step one of whose ranks has failed, as every mpiexec does: the others would wait for a rank that was
/// refused.
const ENDS_TOGETHER: &str = "SLURM_KILL_BAD_EXIT";
/// What is said when a trace is asked for and nothing of messages inside hosts.
const FORCED: &str =
    "--trace takes messages between processes of one host through the provider too, as --intra-host sealed does";

/// So many looks at the launcher come at every turn of waiting for it, and later one in so many turns.
const OFTEN: u32 = 40;
/// How long agents may take to bring their pages.
const AGENTS_GRACE: Duration = Duration::from_secs(10);
/// And what their ranks wrote down.
const TRACES_GRACE: Duration = Duration::from_secs(120);
