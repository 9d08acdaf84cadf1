//! Processes of this program that take part in a measurement: they are told what to do in lines of JSON on their standard
//! input and answer on their standard output. So secrets and startpoints are in no argument and no environment.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use clap::{Args, Subcommand};
use gambeson_link::{Config, Identity, Policy, Progress, Trust};
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_proto::suite::Suite;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{coupled, link};
use crate::failure::Failure;

/// `gambeson part`: not for people.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Copy, Subcommand)]
pub(crate) enum Task {
    /// The other end of the links that `bench link` measures
    Link,
    /// A process of the coupled model
    Coupled,
}

impl Task {
    fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Coupled => "coupled",
        }
    }
}

/// Is such a process.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    match arguments.task {
        Task::Link => link::other::run()?,
        Task::Coupled => coupled::partition::run()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// One of them, from where it was started; it ends with this.
pub(crate) struct Part {
    task: Task,
    process: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Part {
    /// Starts one.
    ///
    /// # Errors
    /// When the system starts no process.
    pub(crate) fn start(task: Task) -> Result<Self, Failure> {
        let started = std::env::current_exe().and_then(|program| {
            let mut command = Command::new(program);
            command.args(["part", task.name()]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        });
        let mut process =
            started.map_err(|error| Failure::system(format!("another process cannot be started: {error}")))?;
        let to = process.stdin.take().expect("it is a pipe");
        let from = BufReader::new(process.stdout.take().expect("it is a pipe")).lines();
        Ok(Part { task, process, to, from })
    }

    /// Tells it something.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn tell(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        write_line(&mut self.to, what).map_err(|_| self.ended())
    }

    /// What it says next.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let line = self.from.next().and_then(Result::ok).ok_or_else(|| self.ended())?;
        serde_json::from_str(&line).map_err(|_| self.ended())
    }

    fn ended(&self) -> Failure {
        let (task, process) = (self.task.name(), self.process.id());
        Failure::system(format!(
            "process {process} of the measurement (gambeson part {task}) ended early; what it said of it is above"
        ))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What this process is told next.
pub(crate) fn hear<T: DeserializeOwned>() -> Result<T, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::system(format!("nothing comes from who started this process: {error}")))?;
    serde_json::from_str(&line).map_err(|_| Failure::usage("`gambeson part` is for `gambeson bench` to start"))
}

/// Tells who started this process.
pub(crate) fn tell(what: &impl Serialize) -> Result<(), Failure> {
    write_line(&mut std::io::stdout().lock(), what)
        .map_err(|error| Failure::system(format!("who started this process does not listen: {error}")))
}

fn write_line(to: &mut impl Write, what: &impl Serialize) -> std::io::Result<()> {
    let line = serde_json::to_string(what).expect("plain data") + "\n";
    to.write_all(line.as_bytes())?;
    to.flush()
}

/// What the processes of one measurement know each other by.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Job {
    id: [u8; 16],
    secret: [u8; 32],
}

impl Job {
    /// A job of its own.
    pub(crate) fn new() -> Result<Self, Failure> {
        let (mut id, mut secret) = ([0; 16], [0; 32]);
        let filled = getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut secret));
        filled.map_err(|error| Failure::system(format!("the kernel gives no random numbers: {error}")))?;
        Ok(Job { id, secret })
    }

    /// For a domain of it.
    pub(crate) fn config(&self, progress: Progress, policy: Policy) -> Result<Config, Failure> {
        let job_secret = Secret32::from_bytes(self.secret);
        let keys = JobKeys { job_id: self.id, job_secret, policy_hash: [0; 32], suite: Suite::Aes256Gcm };
        let mut config = Config::new(Identity::generate().map_err(no_link)?, Trust::default().job(keys));
        (config.progress, config.policy) = (progress, policy);
        Ok(config)
    }
}

/// What a link says went wrong.
pub(crate) fn no_link(error: gambeson_link::Error) -> Failure {
    Failure::system(error.to_string())
}
