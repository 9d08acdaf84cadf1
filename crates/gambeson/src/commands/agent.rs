//! What launchers call in place of ssh: takes the credential to the host over the user's ssh, then does what ssh would.
//!
//! ```text
//! mpiexec ── gambeson-agent [options] HOST COMMAND...
//!              ├── ssh [options] HOST gambeson keep     job's files go in by stdin, ranks' pages come out at the end
//!              └── ssh [options] HOST COMMAND...        streams and status are the launcher's
//! ```
//! The secret is in no argument and no environment (rule 7 of the threat model).

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command, ExitCode, Stdio};

use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::job::bundle;
use crate::plan::ssh_program;
use crate::supervise;

/// Reaches a host for a launcher.
pub(crate) fn execute(arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let call = Call::parse(arguments)?;
    let job = env::var_os("GAMBESON_JOB").map(PathBuf::from).ok_or_else(|| {
        Failure::usage("gambeson-agent is for the launchers that `gambeson run` starts; start the job with that")
    })?;
    let host = call.host.to_string_lossy().into_owned();
    if job.join("no-mpi").exists() {
        let said = "gambeson: a program of links started a launcher, whose processes on other hosts would not be sealed. \
                    Put `gambeson run --` directly in front of the launcher";
        let _ = fs::write(job.join(format!("refused-{}", process::id())), format!("host {host}\n{said}\n"));
        return Err(Failure::refused(said.trim_start_matches("gambeson: ")));
    }
    // The launcher of the job waits for this file to go.
    let mark = job.join(format!("agent-{}", safe(&host)));
    let _ = fs::write(&mark, b"");
    let outcome = call.reach(&job, &host).or_else(|failure| {
        // A launcher that ends over this may not pass on what is said here, so `gambeson run` says it.
        let said = format!("host {host}\ngambeson: {failure}\n");
        match fs::write(job.join(format!("refused-{}", process::id())), said) {
            Ok(()) => Ok(failure.status.into()),
            Err(_) => Err(failure),
        }
    });
    let _ = fs::remove_file(&mark);
    outcome
}

/// How a launcher called.
struct Call {
    options: Vec<OsString>,
    host: OsString,
    command: Vec<OsString>,
}

impl Call {
    fn parse(arguments: &[OsString]) -> Result<Self, Failure> {
        let mut options = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let bytes = argument.as_bytes();
            if bytes.first() != Some(&b'-') {
                return Ok(Self { options, host: argument.clone(), command: rest.cloned().collect() });
            }
            options.push(argument.clone());
            if bytes.len() == 2 && SSH_OPTIONS_WITH_VALUES.contains(&bytes[1]) {
                options.extend(rest.next().cloned());
            }
        }
        Err(Failure::usage("gambeson-agent was given no host; the launcher calls it as ssh: [options] host command"))
    }

    fn reach(&self, job: &Path, host: &str) -> Result<ExitCode, Failure> {
        let mut keeper = Keeper::start(self, job, host)?;
        let child = self.ssh().arg(exports(job)).args(&self.command).spawn();
        let mut child = child.map_err(|error| no_ssh(&error))?;
        let status =
            child.wait().map_err(|error| Failure::system(format!("ssh to {host} cannot be waited for ({error})")))?;
        keeper.collect(job, host);
        Ok(supervise::end_as(status).into())
    }

    /// ssh to the host, bound to the life of this process.
    fn ssh(&self) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg("start").arg("--").args(ssh_program()).args(&self.options).arg(&self.host);
        // The guard has its own place there; ssh needs none.
        command.env_remove("LD_PRELOAD");
        command
    }
}

/// The process on the host that keeps the job's files there while the job runs.
struct Keeper {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    fn start(call: &Call, job: &Path, host: &str) -> Result<Self, Failure> {
        let refused = |why: &str| {
            Failure::refused(format!(
                "the job's secret cannot be carried to {host}: {why}. Install the same Gambeson there under the same path, for the same user, and see that `ssh {host} true` works without a password"
            ))
        };
        let program = env::current_exe().map_err(|error| refused(&error.to_string()))?;
        let mut process = call
            .ssh()
            .arg(format!("exec {} keep", quoted(program.as_os_str())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| no_ssh(&error))?;
        let mut files =
            bundle::pack(job, |name| bundle::CARRIED.contains(&name)).map_err(|error| refused(&error.to_string()))?;
        files.push(("directory".to_owned(), Zeroizing::new(job.as_os_str().as_bytes().to_vec())));
        let stdin = process.stdin.as_mut().expect("stdin is piped");
        // Who is gone before it read everything shows below by its silence.
        let _ = bundle::send(stdin, &files);
        let mut answers = BufReader::new(process.stdout.take().expect("stdout is piped"));
        // Login scripts may talk first.
        for _ in 0..LINES_MAX {
            let mut line = String::new();
            match answers.read_line(&mut line) {
                Ok(0) => return Err(refused("Gambeson did not answer there")),
                Ok(_) if line == bundle::KEPT => return Ok(Self { process, answers }),
                Ok(_) => {}
                Err(error) => return Err(refused(&error.to_string())),
            }
        }
        Err(refused("something else answered there"))
    }

    /// Lets the keeper go and files the pages it sends.
    fn collect(&mut self, job: &Path, host: &str) {
        drop(self.process.stdin.take());
        if let Ok(files) = bundle::receive(&mut self.answers) {
            for (name, bytes) in files {
                if let Some((kind, process)) = name.split_once('-')
                    && bundle::is_report(&name)
                {
                    let _ = fs::write(job.join(format!("{kind}-{}-{process}", safe(host))), &*bytes);
                }
            }
        }
        let _ = self.process.wait();
    }
}

fn no_ssh(error: &std::io::Error) -> Failure {
    Failure::refused(format!(
        "{} cannot be started ({error}), so the job's secret has no way to other hosts; install ssh, or name yours in GAMBESON_SSH",
        ssh_program().join(" ")
    ))
}

/// What the ranks there must find; some launchers carry no environment of their own.
fn exports(job: &Path) -> String {
    let expected = fs::read_to_string(job.join("environment")).unwrap_or_default();
    let mut exports = String::new();
    let own = ["GAMBESON_JOB", "GAMBESON_CORE", "LD_PRELOAD"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), env::var_os(name)?)));
    let expected = expected.lines().filter_map(|line| line.split_once('='));
    for (name, value) in expected.map(|(name, value)| (name.to_owned(), OsString::from(value))).chain(own) {
        exports += &format!("export {name}={}; ", quoted(&value));
    }
    exports
}

/// A word for the shell of the other host.
pub(crate) fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', "'\\''"))
}

/// A host as part of a file's name.
fn safe(host: &str) -> String {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    host.chars()
        .map(|character| if character.is_ascii_alphanumeric() || character == '.' { character } else { '_' })
        .collect()
}

/// The options of ssh(1) that take a value.
const SSH_OPTIONS_WITH_VALUES: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";
const LINES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> (Vec<OsString>, OsString, Vec<OsString>) {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        let Call { options, host, command } = Call::parse(&words).unwrap();
        (options, host, command)
    }

    #[test]
    fn launchers_call_as_they_call_ssh() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(parse("-q -x h2 proxy --port 3"), (words("-q -x"), "h2".into(), words("proxy --port 3")));
        assert_eq!(parse("-l me -p 2222 h2 true"), (words("-l me -p 2222"), "h2".into(), words("true")));
        assert!(Call::parse(&words("-x -q")).is_err());
    }

    #[test]
    fn words_reach_the_other_shell_whole() {
        assert_eq!(quoted(OsStr::new("a b'c")), r"'a b'\''c'");
        assert_eq!(safe("me@h-1.cluster:22"), "h_1.cluster_22");
    }
}
