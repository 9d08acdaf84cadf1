//! `gambeson daemon`, which is also called gambesond: serves this host to those whom the site knows.

use std::env;
use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use gambeson_launch::authority::host_folder;
use gambeson_launch::daemon::{Daemon, Setup};
use gambeson_launch::nursery::Nursery;
use gambeson_launch::rules::Rules;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, STATUSES};
use crate::machine;

/// Starts processes on this host for those whom the site knows
///
/// One runs on each host, as root for all of the site's users, or as one user for that user
/// alone. Who connects proves who he is (TLS 1.3, by a certificate of the site's authority),
/// and so does this host; daemon.toml in the folder says who may start what, and as whom.
/// Everything it starts ends when it ends, or when the requester goes away. A line for each
/// order goes into the audit log before anything is started.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(crate) struct Arguments {
    /// Where authority.pem, host.pem and daemon.toml are; /etc/gambeson for root, else ~/.config/gambeson
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Where to listen, instead of where daemon.toml says (port 7200)
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// The name of this host, if its certificate is for another than it calls itself
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The audit log; /var/log/gambeson/audit.log for root, else ~/.local/state/gambeson/audit.log
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Before there are threads and keys.
    let nursery = Nursery::fork().map_err(|cause| Failure::system(format!("no process can be made here ({cause})")))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Failure::system(format!("this process cannot be closed to others ({error})")))?;
    let folder = arguments.folder.clone().unwrap_or_else(host_folder);
    let mut rules = Rules::read(&folder.join("daemon.toml"))?;
    if !arguments.listen.is_empty() {
        rules.listen.clone_from(&arguments.listen);
    }
    let log = arguments.log.clone().map_or_else(audit_log, Ok)?;
    if let Some(beside) = log.parent() {
        make_folder(beside)?;
    }
    let setup = Setup { nursery, folder, host: arguments.host.clone().unwrap_or_else(machine::host_name), rules, log };
    let daemon = Daemon::open(setup)?;
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|cause| Failure::system(format!("signals cannot be waited for ({cause})")))?;
    let listening: Vec<_> = daemon.listening().iter().map(ToString::to_string).collect();
    println!("gambesond: listening on {}", listening.join(", "));
    signals.forever().next();
    drop(daemon);
    Ok(ExitCode::SUCCESS)
}

/// Where the daemon writes down what it does, unless it is told.
fn audit_log() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok("/var/log/gambeson/audit.log".into());
    }
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let state = state.ok_or_else(|| Failure::usage("HOME is not set; say with --log where the audit log goes"))?;
    Ok(state.join("gambeson/audit.log"))
}

/// Makes a folder that nobody else may enter, if it is not there.
fn make_folder(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|cause| Failure::system(format!("the folder {} cannot be made ({cause})", folder.display())))
}

/// Reads a log and says whether it is as it was written
///
/// Every line of it holds a hash of the one in front of it. Lines that were taken off its end show
/// to who knows what it ended with: the daemon says that when it starts, and so does this command.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct AuditLog {
    #[command(subcommand)]
    action: AuditLogAction,
}

#[derive(clap::Subcommand)]
enum AuditLogAction {
    /// Says whether a log is as it was written, and what it ends with
    Verify {
        /// The log
        file: Option<PathBuf>,
        /// What it must go through: LINES:HASH, as an earlier call printed it
        #[arg(long, value_name = "LINES:HASH")]
        since: Option<String>,
    },
}

impl AuditLog {
    pub(crate) fn execute(&self) -> Result<ExitCode, Failure> {
        let AuditLogAction::Verify { file, since } = &self.action;
        let file = file.clone().map_or_else(audit_log, Ok)?;
        let tail = gambeson_launch::audit_log::verify(&file, since.as_deref()).map_err(Failure::refused)?;
        println!("{}: {} lines, as they were written; it ends with {tail}", Path::display(&file), tail.lines);
        Ok(ExitCode::SUCCESS)
    }
}
