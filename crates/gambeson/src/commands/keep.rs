//! `gambeson keep`: holds the job's files on another host, and runs the launcher's command there. Not for people.
//!
//! The agent sends the files on stdin, and frames after them ([`crate::reach::frame`]); the end of stdin means the end of the
//! job, however it came. What the command's processes take for the launcher's port is one of this process, on the loopback
//! address: a single connection of one of its own descendants is carried on to the launcher.

use std::env;
use std::ffi::OsString;
use std::io::{self, Stdout, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Args;
use gambeson_interpose::connections::{inodes, other_end};
use gambeson_keys::OF_JOB;
use gambeson_keys::rank::RING;
use gambeson_keys::relay::{ANCHOR, LABELS};
use gambeson_launch::descendants;
use gambeson_launch::wire::{Text, Variable};
use gambeson_proto::credential::Credential;
use gambeson_site::holder::{self, CREDENTIAL};
use rustix::process::{Pid, Signal, getpid, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::job::{self, Job, bundle, processes};
use crate::libraries::Libraries;
use crate::machine;
use crate::policy_files;
use crate::reach::frame::{self, Frame, Frames};
use crate::reach::questions::Questions;
use crate::reach::step;

/// Holds a job's files on another host
#[derive(Args)]
pub(crate) struct Arguments {
    /// For a step of Slurm's srun on so many hosts, which starts the ranks itself
    #[arg(long, value_name = "HOSTS")]
    step: Option<u32>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if let Some(hosts) = arguments.step {
        return step::execute(hosts);
    }
    machine::close_to_others()?;
    let mut stdin = io::stdin();
    let files = bundle::receive(&mut stdin)
        .map_err(|error| Failure::refused(format!("the job's files did not arrive ({error}); start the job again")))?;
    let (_, job) = install(&files)?;
    if let Some(job) = &job {
        leave_nothing(job.directory().to_owned())?;
    }
    let own = own_address(file(&files, "toward").map(text).as_deref());
    drop(files);
    let cannot = |what: &str, error: &io::Error| Failure::system(format!("{what} ({error})"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.map_err(|error| cannot("no port can be had for the launcher's", &error))?;
    let port = listener.local_addr().map_err(|error| cannot("no port can be had for the launcher's", &error))?.port();
    let mut stdout = io::stdout();
    let said = writeln!(stdout, "{}{port} {own}", bundle::KEPT).and_then(|()| stdout.flush());
    let frames = Arc::new(Frames::new(stdout));
    let questions = Arc::new(Questions::default());
    if let Some(job) = &job {
        for name in [ANCHOR, RING, LABELS] {
            let (questions, frames) = (questions.clone(), frames.clone());
            job.answer_by(name, move |question| questions.ask(&frames, name, question));
        }
    }
    let run = said.and_then(|()| frame::read(&mut stdin));
    if let Ok(Some(Frame::Run { command, environment })) = run {
        let code = Kept::start(&command, environment, frames.clone(), (listener, questions))?.wait();
        let _ = frames.send(&Frame::Ended(code));
    }
    let mut reports = bundle::Files::new();
    if let Some(job) = &job {
        processes::end_here(job.directory());
        reports = bundle::pack(job.directory(), bundle::is_report).unwrap_or_default();
    }
    let _ = frames.with(|stdout| bundle::send(stdout, &reports));
    Ok(ExitCode::SUCCESS)
}

/// Who is told to end may be killed soon: the directory goes first. What is left of the job ends with this process.
fn leave_nothing(directory: PathBuf) -> Result<(), Failure> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
    let mut signals = signals.map_err(|cause| Failure::system(format!("signals cannot be waited for ({cause})")))?;
    thread::spawn(move || {
        for signal in signals.forever() {
            job::remove(&directory);
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// The launcher's command, which runs.
struct Kept {
    child: Child,
    /// Passes on what it writes.
    output: JoinHandle<()>,
    channel: Arc<Channel>,
}

impl Kept {
    /// To be called by the thread that lives longest: the command is bound to its life.
    fn start(
        command: &Text,
        environment: Vec<Variable>,
        frames: Arc<Frames<Stdout>>,
        (listener, questions): (TcpListener, Arc<Questions>),
    ) -> Result<Self, Failure> {
        let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
        let environment = environment.iter().map(|(name, value)| (name.as_os(), value.as_os()));
        let mut child = Command::new("/proc/self/exe")
            .args(["start", "--own-group", "--"])
            .args([shell, "-c".into(), OsString::from(command.as_os())])
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::system(format!("the launcher's command cannot be started ({error})")))?;
        let input = feed(child.stdin.take().expect("stdin is piped"));
        let output = child.stdout.take().expect("stdout is piped");
        let group = Pid::from_child(&child);
        let channel = Arc::new(Channel::default());
        let (ours, pumped) = (channel.clone(), frames.clone());
        thread::spawn(move || obey(&input, group, &ours, &questions));
        let ours = channel.clone();
        thread::spawn(move || ours.admit(&listener, &frames));
        let output = thread::spawn(move || pumped.pump(output, Frame::Output));
        Ok(Self { child, output, channel })
    }

    /// Until it has ended, and all is said; its status as a shell has it.
    fn wait(mut self) -> u8 {
        let status = self.child.wait();
        let deadline = Instant::now() + LAST_WORDS;
        while Instant::now() < deadline && !(self.output.is_finished() && self.channel.is_quiet()) {
            thread::sleep(Duration::from_millis(5));
        }
        let code = status.map_or(1, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// Writes to the command's input what comes for it, in a thread of its own: a command that reads nothing keeps nothing else
/// waiting.
fn feed(mut input: impl Write + Send + 'static) -> Sender<Vec<u8>> {
    let (feed, parts) = channel::<Vec<u8>>();
    thread::spawn(move || parts.iter().take_while(|part| !part.is_empty()).all(|part| input.write_all(&part).is_ok()));
    feed
}

/// Does what the agent says, until it is gone: then the command ends, politely or not.
fn obey(input: &Sender<Vec<u8>>, group: Pid, channel: &Channel, questions: &Questions) {
    let mut stdin = io::stdin();
    while let Ok(Some(frame)) = frame::read(&mut stdin) {
        match frame {
            // Who has closed its input wants no more.
            Frame::Input(bytes) => drop(input.send(bytes)),
            Frame::Answer(number, answer) => questions.answered(number, answer),
            Frame::Signal(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal.into()) {
                    let _ = kill_process_group(group, signal);
                }
            }
            Frame::Control(bytes) => {
                if let Some(mut stream) = channel.stream.get() {
                    // Who has closed is noticed by the thread that reads.
                    let _ = if bytes.is_empty() { stream.shutdown(Shutdown::Write) } else { stream.write_all(&bytes) };
                }
            }
            _ => break,
        }
    }
    let _ = kill_process_group(group, Signal::TERM);
    thread::sleep(GRACE);
    let _ = kill_process_group(group, Signal::KILL);
}

/// The connection of the command's processes to what they take for the launcher.
#[derive(Default)]
struct Channel {
    stream: OnceLock<TcpStream>,
    /// That all has been passed on which came by it.
    ended: OnceLock<()>,
}

impl Channel {
    /// Takes one connection of a descendant's, and drops all others.
    fn admit(self: Arc<Self>, listener: &TcpListener, frames: &Arc<Frames<Stdout>>) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            if self.stream.get().is_some() || !is_of_descendant(&stream) {
                continue;
            }
            let Ok(from) = stream.try_clone() else { continue };
            let _ = self.stream.set(stream);
            if frames.send(&Frame::Connected).is_err() {
                return;
            }
            let (channel, frames) = (self.clone(), frames.clone());
            thread::spawn(move || {
                frames.pump(from, Frame::Control);
                let _ = channel.ended.set(());
            });
        }
    }

    /// Whether nothing of it is still to be passed on.
    fn is_quiet(&self) -> bool {
        self.stream.get().is_none() || self.ended.get().is_some()
    }
}

/// Whether the other end of a connection is a socket that a process below this one has open now.
fn is_of_descendant(stream: &TcpStream) -> bool {
    let ends = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
    let Ok((local, remote)) = ends else { return false };
    let Some(peer) = other_end(local, remote) else { return false };
    descendants(getpid()).iter().any(|pid| inodes(pid.as_raw_pid().unsigned_abs()).contains(&peer.inode))
}

/// The address that this host has on the way to the launcher, for Open MPI, which believes in no loopback address. The
/// guard leads to that whoever connects to it.
fn own_address(toward: Option<&str>) -> IpAddr {
    let toward = toward.and_then(|toward| toward.parse::<IpAddr>().ok());
    let found = toward.and_then(|toward| {
        let unspecified = if toward.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        // Nothing is sent.
        let socket = UdpSocket::bind(unspecified).ok()?;
        socket.connect((toward, 9)).ok()?;
        socket.local_addr().ok()
    });
    found.map_or(IpAddr::from(Ipv4Addr::LOCALHOST), |found| found.ip())
}

/// Puts the files into the job's directory here; none where that is the very directory they came from.
pub(crate) fn install(files: &bundle::Files) -> Result<(Credential, Option<Job>), Failure> {
    let version = text(file(files, "version").ok_or_else(lacking)?);
    if version != job::VERSION {
        return Err(Failure::refused(format!(
            "the Gambeson on {} is {}, and the job was started by Gambeson {version}; use the same Gambeson on all hosts",
            machine::host_name(),
            job::VERSION
        )));
    }
    let encoded = file(files, CREDENTIAL).ok_or_else(lacking)?;
    let mut credential = Credential::decode_travelling(encoded)
        .map_err(|error| Failure::refused(format!("the credential that arrived cannot be used: {error}")))?;
    let there = text(file(files, "directory").ok_or_else(lacking)?);
    let here = job::directory_of(&credential.job_id);
    if here != Path::new(&there) {
        return Err(Failure::refused(format!(
            "the job's directory would be {} here and is {there} where the job was started; use the same user id on all hosts",
            here.display()
        )));
    }
    policy_files::complete(&mut credential)?;
    // Two names of one host share its memory.
    if holder::adopt(&here, encoded) {
        return Ok((credential, None));
    }
    let mut libraries = Libraries::find(None)?;
    let vendor = file(files, "vendor").map(text).unwrap_or_default();
    libraries.vendor = vendor.lines().map(PathBuf::from).filter(|library| library.exists()).collect();
    let job = Job::create(&credential, &libraries, false)?;
    if let Some(keys) = file(files, OF_JOB) {
        job.hold(OF_JOB, keys);
    }
    for name in bundle::CARRIED {
        if let Some(bytes) = file(files, name).filter(|_| !job::MADE.contains(&name)) {
            job.write(name, bytes)?;
        }
    }
    Ok((credential, Some(job)))
}

pub(crate) fn lacking() -> Failure {
    Failure::refused("the job's files arrived incomplete; use the same Gambeson on all hosts")
}

pub(crate) fn file<'f>(files: &'f bundle::Files, wanted: &str) -> Option<&'f Zeroizing<Vec<u8>>> {
    files.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| bytes)
}

fn text(bytes: &Zeroizing<Vec<u8>>) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How long what the command's processes said last may take.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the command may take to end when the job has.
const GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_a_descendants_or_a_strangers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let here = listener.local_addr().unwrap();
        let own = TcpStream::connect(here).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(!is_of_descendant(&accepted), "of this process itself");
        drop(own);
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; read -r", here.port());
        let mut child = Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(is_of_descendant(&accepted));
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(!is_of_descendant(&accepted), "of a process that has ended");
    }
}
