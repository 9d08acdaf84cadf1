//! What carries the agent's words to another host: the host's daemon, or the user's ssh.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gambeson_launch::authority::user_folder;
use gambeson_launch::requester::{Controls, Heard, Ordered, Requester};
use gambeson_launch::wire::{Event, Host, Order, Process, Program, Secret, Streams, Text};

use crate::failure::Failure;
use crate::hosts;
use crate::plan::ssh_program;

/// The streams of a process on another host. It ends when this process does.
pub(crate) struct Carrier {
    pub(crate) to: Box<dyn Write + Send>,
    pub(crate) from: Box<dyn Read>,
    pub(crate) ssh: Option<Child>,
}

/// Whom to reach, and as whom.
pub(crate) struct There<'t> {
    pub(crate) host: &'t str,
    /// What the launcher told its ssh.
    pub(crate) options: &'t [OsString],
}

impl Carrier {
    /// Over ssh: `command` is for a shell there.
    pub(crate) fn ssh(there: &There<'_>, command: &str) -> Result<Self, Failure> {
        let mut ssh = Command::new("/proc/self/exe");
        ssh.arg("start").arg("--").args(ssh_program()).args(there.options).arg(there.host).arg(command);
        // The guard has its own place there; ssh needs none.
        ssh.env_remove("LD_PRELOAD");
        let mut ssh = ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| {
            Failure::refused(format!(
                "{} cannot be started ({error}), so the job's secret has no way to other hosts; install ssh, or name yours in GAMBESON_SSH",
                ssh_program().join(" ")
            ))
        })?;
        Ok(Self {
            to: Box::new(ssh.stdin.take().expect("stdin is piped")),
            from: Box::new(ssh.stdout.take().expect("stdout is piped")),
            ssh: Some(ssh),
        })
    }

    /// By the host's daemon.
    pub(crate) fn daemon(there: &There<'_>, words: &[&OsStr]) -> Result<Self, Failure> {
        let (account, host) = there.host.rsplit_once('@').unwrap_or(("", there.host));
        let order = Order {
            id: hosts::random()?,
            until: 0,
            account: login_name(there.options).unwrap_or(account).to_owned(),
            hosts: vec![Host::parse(host)],
            context: Secret::default(),
            programs: vec![Program {
                executable: words[0].to_owned().into(),
                arguments: words.iter().map(|&word| Text::from(word)).collect(),
                streams: Streams::All,
                ..Program::default()
            }],
            processes: vec![Process { host: 0, program: 0, environment: Vec::new() }],
        };
        let requester = Requester::new(&user_folder())?;
        let mut ordered = requester.begin(order)?;
        let deadline = Instant::now() + START;
        loop {
            match ordered.next(Duration::from_millis(250)) {
                Heard::Event(_, Event::Started(_)) => break,
                Heard::Event(_, Event::Failed(why)) => return Err(Failure::unavailable(why)),
                Heard::End => return Err(Failure::unavailable("its daemon said nothing")),
                _ if Instant::now() > deadline => return Err(Failure::unavailable("its daemon does not answer")),
                _ => {}
            }
        }
        let to = Box::new(Input(ordered.controls()));
        Ok(Self {
            to,
            from: Box::new(Output { ordered, _requester: requester, bytes: Vec::new(), taken: 0 }),
            ssh: None,
        })
    }
}

/// The name behind ssh's `-l`.
fn login_name(options: &[OsString]) -> Option<&str> {
    let place = options.iter().position(|option| option == "-l")?;
    options.get(place + 1)?.to_str()
}

/// The input of a process that a daemon has started.
struct Input(Controls);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nothing to write would end the input.
        if !bytes.is_empty() {
            self.0.input(0, bytes).map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        let _ = self.0.input(0, &[]);
    }
}

/// Its output. What it says on its standard error is passed on while that is read.
struct Output {
    ordered: Ordered,
    _requester: Requester,
    bytes: Vec<u8>,
    taken: usize,
}

impl Read for Output {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.bytes.len() {
            match self.ordered.next(Duration::from_secs(3600)) {
                Heard::Event(_, Event::Output(bytes)) => (self.bytes, self.taken) = (bytes, 0),
                Heard::Event(_, Event::Errors(bytes)) => drop(io::stderr().write_all(&bytes)),
                Heard::Event(_, Event::Failed(why)) => return Err(io::Error::other(why)),
                Heard::Event(..) | Heard::Nothing => {}
                Heard::End => return Ok(0),
            }
        }
        let count = into.len().min(self.bytes.len() - self.taken);
        into[..count].copy_from_slice(&self.bytes[self.taken..][..count]);
        self.taken += count;
        Ok(count)
    }
}

/// Whether the user has an identity of a site, by which daemons know him.
pub(crate) fn has_identity() -> bool {
    user_folder().join("identity.pem").exists()
}

/// Whether `gambeson run` has decided for daemons.
pub(crate) fn is_daemon() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == "daemon")
}

/// How `gambeson run` tells the agent.
pub(crate) const VARIABLE: &str = "GAMBESON_LAUNCHER";
/// So long a host may take to start a process.
const START: Duration = Duration::from_secs(30);
