//! What launchers call in place of ssh: takes the credential to the host, by its daemon or over ssh, then does what ssh would.
//!
//! `gambeson keep` there gets the job's files first, and then runs the launcher's command. Streams, signals, status and the
//! channel between the command's processes and the launcher pass through here ([`crate::reach`]); the ranks' pages come at the
//! end. The secret is in no argument and no environment (rule 7 of the threat model).

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ExitCode};
use std::sync::Arc;
use std::thread;

use gambeson_interpose::connections::{Socket, sockets};
use gambeson_launch::wire::{Secret, Variable};
use gambeson_site::holder;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::job::bundle;
use crate::reach::carrier::{self, Carrier, There};
use crate::reach::control::Control;
use crate::reach::frame::{self, Frame, Frames};

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
    let mark = job.join(format!("{MARK}{}", safe(&host)));
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
        let command = self.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let control = Control::find(&command).ok_or_else(|| {
            Failure::refused(format!(
                "what the launcher would run on {host} does not say how it reaches the launcher, so its control channel cannot be protected; tell the authors of Gambeson which MPI this is"
            ))
        })?;
        let mut keeper = Keeper::start(self, job, host, &control)?;
        let run = Frame::Run {
            command: control.rewrite(&command, keeper.port, keeper.address).into(),
            environment: environment(job),
        };
        match keeper.frames.send(&run).and_then(|()| keeper.attend(job, control.port)) {
            Ok(status) => {
                keeper.collect(job, host);
                Ok(status.into())
            }
            Err(error) => {
                // What comes of a daemon's link is a sentence that begins with the host.
                let why = error.to_string();
                if why.starts_with(&format!("{host}: ")) {
                    eprintln!("gambeson: {why}");
                } else {
                    eprintln!(
                        "gambeson: the connection to {host} is lost ({why}), and what the launcher ran there with it"
                    );
                }
                // Not every launcher's status tells.
                let _ = fs::write(job.join(format!("{LOST_MARK}{}", safe(host))), b"");
                Ok(LOST.into())
            }
        }
    }

    /// `gambeson keep` on the host.
    fn keep(&self, host: &str) -> Result<Carrier, Failure> {
        let there = There { host, options: &self.options };
        let program = env::current_exe().map_err(|error| Failure::system(error.to_string()))?;
        if carrier::is_daemon() {
            return Carrier::daemon(&there, &[program.as_os_str(), OsStr::new("keep")]);
        }
        Carrier::ssh(&there, &format!("exec {} keep", quoted(program.as_os_str())))
    }
}

/// The process on the host that keeps the job's files and the launcher's processes there.
struct Keeper {
    frames: Arc<Frames<Box<dyn Write + Send>>>,
    answers: BufReader<Box<dyn Read>>,
    ssh: Option<Child>,
    /// Which port there stands in for the launcher's.
    port: u16,
    /// An address of the host.
    address: IpAddr,
}

impl Keeper {
    fn start(call: &Call, job: &Path, host: &str, control: &Control) -> Result<Self, Failure> {
        let refused = |why: &str| {
            let remedy = if carrier::is_daemon() {
                format!("see that `gambeson exec {host} -- true` works, or choose --launcher ssh")
            } else {
                format!("for the same user, and see that `ssh {host} true` works without a password")
            };
            Failure::refused(format!(
                "the job's secret cannot be carried to {host}: {why}. Install the same Gambeson there under the same path, {remedy}"
            ))
        };
        let Carrier { mut to, from, ssh } = call.keep(host).map_err(|failure| refused(&failure.to_string()))?;
        let mut files = bundle::to_travel(job).map_err(|why| refused(&why))?;
        if let Some(address) = control.address {
            files.push(("toward".to_owned(), Zeroizing::new(address.to_string().into_bytes())));
        }
        // Who is gone before it read everything shows below by its silence.
        let _ = bundle::send(&mut to, &files);
        let mut answers = BufReader::new(from);
        // Login scripts may talk first.
        for _ in 0..LINES_MAX {
            let mut line = String::new();
            match answers.read_line(&mut line) {
                Ok(0) => return Err(refused("Gambeson did not answer there")),
                Ok(_) => {}
                Err(error) => return Err(refused(&error.to_string())),
            }
            let said = line.strip_prefix(bundle::KEPT).and_then(|said| said.trim().split_once(' '));
            if let Some((port, address)) = said {
                let (Ok(port), Ok(address)) = (port.parse(), address.parse()) else { break };
                return Ok(Self { frames: Arc::new(Frames::new(to)), answers, ssh, port, address });
            }
        }
        Err(refused("something else answered there"))
    }

    /// Passes on streams, signals and the control channel until the command has ended; its status.
    fn attend(&mut self, job: &Path, port: u16) -> io::Result<u8> {
        let frames = self.frames.clone();
        thread::spawn(move || frames.pump(io::stdin(), Frame::Input));
        let frames = self.frames.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2])?;
        thread::spawn(move || {
            for signal in signals.forever() {
                if frames.send(&Frame::Signal(u8::try_from(signal).unwrap_or_default())).is_err() {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        });
        let mut launcher: Option<TcpStream> = None;
        let mut output = io::stdout();
        loop {
            match frame::read(&mut self.answers)? {
                Some(Frame::Output(bytes)) => drop(output.write_all(&bytes).and_then(|()| output.flush())),
                Some(Frame::Connected) => match connect(port) {
                    Ok(stream) => {
                        let (frames, from) = (self.frames.clone(), stream.try_clone()?);
                        thread::spawn(move || frames.pump(from, Frame::Control));
                        launcher = Some(stream);
                    }
                    Err(error) => {
                        eprintln!("gambeson: the launcher cannot be reached at its port {port} ({error})");
                        self.frames.send(&Frame::Control(Vec::new()))?;
                    }
                },
                Some(Frame::Control(bytes)) => {
                    if let Some(stream) = &mut launcher {
                        // A launcher that takes no more has closed, which the thread that reads passes on.
                        let _ =
                            if bytes.is_empty() { stream.shutdown(Shutdown::Write) } else { stream.write_all(&bytes) };
                    }
                }
                Some(Frame::Ended(status)) => return Ok(status),
                Some(Frame::Question(number, name, question)) => {
                    let (frames, job) = (self.frames.clone(), job.to_owned());
                    // Whatever a key service takes to answer, nothing else waits for it.
                    thread::spawn(move || {
                        let answer = holder::call(&job, &name, &question).ok().flatten();
                        let answer = answer.map_or_else(Secret::default, |answer| answer.as_slice().into());
                        frames.send(&Frame::Answer(number, answer))
                    });
                }
                Some(Frame::Run { .. } | Frame::Input(_) | Frame::Signal(_) | Frame::Answer(..)) => {}
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Files the pages that follow the end.
    fn collect(&mut self, job: &Path, host: &str) {
        if let Ok(files) = bundle::receive(&mut self.answers) {
            for (name, bytes) in files {
                if let Some((kind, process)) = name.split_once('-')
                    && bundle::is_report(&name)
                {
                    let _ = fs::write(job.join(format!("{kind}-{}-{process}", safe(host))), &*bytes);
                }
            }
        }
        if let Some(ssh) = &mut self.ssh {
            let _ = ssh.wait();
        }
    }
}

/// To the launcher, which listens on this host: nobody else who took its port is told anything.
fn connect(port: u16) -> io::Result<TcpStream> {
    let is_own = |socket: &Socket| {
        socket.listens && socket.local.port() == port && socket.uid == rustix::process::geteuid().as_raw()
    };
    if !sockets().iter().any(is_own) {
        return Err(io::Error::other("it does not listen there any more"));
    }
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
}

/// What the ranks there must find; some launchers carry no environment of their own.
fn environment(job: &Path) -> Vec<Variable> {
    let expected = fs::read_to_string(job.join("environment")).unwrap_or_default();
    let expected = expected.lines().filter_map(|line| line.split_once('='));
    let own = ["GAMBESON_JOB", "GAMBESON_CORE", "LD_PRELOAD"];
    let own = own.iter().filter_map(|name| Some(((*name).into(), env::var_os(name)?.into())));
    expected.map(|(name, value)| (name.into(), value.into())).chain(own).collect()
}

/// A word for the shell of the other host.
pub(crate) fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', "'\\''"))
}

/// A host as part of a file's name.
pub(crate) fn safe(host: &str) -> String {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    host.chars()
        .map(|character| if character.is_ascii_alphanumeric() || character == '.' { character } else { '_' })
        .collect()
}

/// The options of ssh(1) that take a value.
const SSH_OPTIONS_WITH_VALUES: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";
const LINES_MAX: usize = 1000;
/// How the name of a file begins that is there while an agent reaches a host; what follows is the host.
pub(crate) const MARK: &str = "agent-";
/// The same when the connection to the host was lost.
pub(crate) const LOST_MARK: &str = "lost-";
/// What ssh ends with when its connection does.
const LOST: u8 = 255;

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
