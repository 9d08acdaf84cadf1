//! `gambeson enter`: becomes a rank that a launcher's daemon starts. Not for people.
//!
//! What lies between the launcher and its ranks (a site's prolog of tasks, an option, a container) may take variables
//! away, and a rank without them would not know that it must not speak in clear. On the command line they arrive.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::failure::Failure;
use crate::job;
use crate::launcher::slurm::REFUSED;
use crate::machine;

/// Starts a rank
#[derive(Args)]
pub(crate) struct Arguments {
    /// The job's directory
    job: PathBuf,
    /// The libfabric provider that carries the sealed records
    core: String,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The words that are put in front of a rank's program.
pub(crate) fn words(own: &Path, job: &Path, core: &str) -> [OsString; 5] {
    [own.into(), "enter".into(), job.into(), core.into(), "--".into()]
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let failure = enter(arguments);
    eprintln!("gambeson: {failure}");
    // srun ends the step as soon as it hears of that, and loses what its daemons had still to pass on.
    thread::sleep(TO_BE_HEARD);
    Ok(failure.status.into())
}

/// Becomes the rank, or says why not.
fn enter(arguments: &Arguments) -> Failure {
    match program(arguments) {
        Ok(mut command) => {
            let error = command.exec();
            Failure::unavailable(format!("{} cannot be started ({error})", arguments.command[0].display()))
        }
        Err(failure) => failure,
    }
}

/// The rank's program, with what it has to find.
fn program(arguments: &Arguments) -> Result<Command, Failure> {
    let variables = fs::read_to_string(arguments.job.join("environment")).map_err(|error| {
        if let Ok(why) = env::var(REFUSED) {
            return Failure::refused(format!(
                "the job's secret is not on {}, so this rank could not seal its messages: {why}",
                machine::host_name()
            ));
        }
        Failure::refused(format!(
            "the job's directory {} cannot be read on {} ({error}), so this rank could not seal its messages; see that slurmd there has Gambeson's plug-in for Slurm, or, where Slurm gives each job a /dev/shm of its own, call `gambeson run` inside the job (sbatch)",
            arguments.job.display(),
            machine::host_name()
        ))
    })?;
    let (program, rest) = arguments.command.split_first().expect("clap requires a program");
    let mut command = Command::new(in_this_directory(program).as_ref().unwrap_or(program));
    command.args(rest);
    command.envs(variables.lines().filter_map(|line| line.split_once('=')));
    command.envs(job::variables(&arguments.job, &arguments.core, env::var_os("LD_PRELOAD")));
    command.env_remove(REFUSED);
    Ok(command)
}

/// srun looks for a program in the working directory before it looks in PATH.
fn in_this_directory(program: &OsString) -> Option<OsString> {
    let by_name = Path::new(program).components().count() == 1;
    let here = Path::new(".").join(program);
    (by_name && rustix::fs::access(&here, rustix::fs::Access::EXEC_OK).is_ok() && here.is_file()).then(|| here.into())
}

/// So long a sentence may be on its way to srun.
const TO_BE_HEARD: Duration = Duration::from_millis(500);
