//! Starts the probe under somebody's mpiexec, plain or sealed, and follows what it reports.

use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gambeson_proto::policy::IntraHost;
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;
use crate::launcher::{Launcher, Request, recognise};
use crate::mpi::locate;

use super::report::Event;

/// With Gambeson or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Plain,
    Sealed,
}

impl Side {
    /// For tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sealed => "sealed",
        }
    }
}

/// How the probe is started: the user's `mpiexec -n 2 ...` and what goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    launcher: Launcher,
    /// What follows the launcher's name.
    arguments: Vec<String>,
    library: PathBuf,
    program: PathBuf,
    core: String,
    /// What carries messages inside a host, on both sides.
    intra_host: IntraHost,
    /// Options handed to `gambeson run` on the sealed side.
    sealing: Vec<String>,
    /// The key store of the sealed side, where it is not the user's.
    keys: Option<PathBuf>,
}

/// What lets an eavesdropper see a plain job whose processes are on one host, besides what sealing
/// needs anyway: operations that would otherwise stay in the MPI's own shared memory.
const SHOWN: [(&str, &str); 4] = [
    ("I_MPI_COLL_INTRANODE", "pt2pt"),
    ("OMPI_MCA_btl", "self,tcp"),
    ("OMPI_MCA_coll", "^sm,smcuda,xhc,acoll"),
    ("OMPI_MCA_osc", "^sm,ucx"),
];

impl Starter {
    /// Prepares jobs of this mpiexec command.
    ///
    /// # Errors
    /// When the launcher is not one that is known, or its MPI library is not found.
    pub(crate) fn new(command: &[String], core: &str, policy: Option<&str>) -> Result<Self, Failure> {
        let (name, arguments) =
            command.split_first().ok_or_else(|| Failure::usage("give the mpiexec to use behind --"))?;
        let launcher = recognise(OsStr::new(name))?;
        let program = std::env::current_exe()
            .map_err(|error| Failure::system(format!("this program's own file is not known: {error}")))?;
        Ok(Self {
            library: locate::libmpi(&launcher.program).map_err(Failure::unavailable)?,
            launcher,
            arguments: arguments.to_vec(),
            program,
            core: core.into(),
            intra_host: IntraHost::Sealed,
            sealing: policy.map_or(Vec::new(), |file| vec!["--policy".into(), file.into()]),
            keys: None,
        })
    }

    /// The same with messages inside a host as the MPI has them, and with a key store of the sealed side's own.
    #[must_use]
    pub(crate) fn for_files(self, keys: &Path) -> Self {
        Self { intra_host: IntraHost::Mpi, keys: Some(keys.to_owned()), ..self }
    }

    /// The same with a number of processes where the command says [`RANKS`].
    #[must_use]
    pub(crate) fn with_ranks(&self, ranks: u32) -> Self {
        let named = |word: &String| word.replace(RANKS, &ranks.to_string());
        Self { arguments: self.arguments.iter().map(named).collect(), ..self.clone() }
    }

    /// Starts the probe with these arguments behind `probe`.
    ///
    /// # Errors
    /// A sentence, when the launcher cannot be started.
    pub(crate) fn start(&self, side: Side, task: &str, arguments: &[String]) -> Result<Job, String> {
        let own = self.program.to_string_lossy().into_owned();
        let mut line: Vec<String> = Vec::new();
        if self.keys.is_some() {
            // Ranks that wait for work would outlive a bench that is killed.
            line.extend([&own, "start", "--own-group", "--"].map(String::from));
        }
        if side == Side::Sealed {
            let intra_host = if self.intra_host == IntraHost::Mpi { "mpi" } else { "sealed" };
            line.extend([&own, "run", "--intra-host", intra_host, "--core", &self.core].map(String::from));
            line.extend(self.sealing.iter().cloned());
            line.push("--".into());
        }
        line.push(self.launcher.program.to_string_lossy().into_owned());
        line.extend(self.arguments.iter().cloned());
        line.extend([&own, "probe", task, "--library", &self.library.to_string_lossy()].map(String::from));
        line.extend(arguments.iter().cloned());

        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if side == Side::Plain {
            command.envs(self.plain_environment());
        }
        if let Some(keys) = self.keys.as_ref().filter(|_| side == Side::Sealed) {
            command.env("GAMBESON_KEYS", keys);
        }
        command.env("LD_LIBRARY_PATH", self.library_path());
        let child = command.spawn().map_err(|error| format!("{} cannot be started: {error}", line[0]))?;
        Ok(Job::follow(child))
    }

    /// Where an MPI library finds what it loads itself: Intel MPI would take the distribution's
    /// libfabric in place of the one that it came with, which a program of its own is told to use.
    fn library_path(&self) -> OsString {
        let mut path = self.library.parent().map_or_else(OsString::new, |folder| folder.as_os_str().to_owned());
        if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
            path.push(":");
            path.push(before);
        }
        path
    }

    /// Whether a job said that Gambeson refuses this MPI's windows.
    pub(crate) fn refuses_windows(&self, said: &str) -> bool {
        let refusals =
            [false, true].map(|several_hosts| (self.launcher.dialect().one_sided)(&self.sealed(several_hosts)).err());
        refusals.iter().flatten().any(|refused| said.contains(refused.cause))
    }

    /// The variables of a sealed job with the core provider in Gambeson's place.
    fn plain_environment(&self) -> Vec<(&'static str, String)> {
        let sealed = (self.launcher.dialect().variables)(&self.sealed(false)).into_iter();
        let mut variables: Vec<_> = sealed
            .filter(|variable| variable.name != "FI_PROVIDER_PATH")
            .map(|variable| (variable.name, without_gambeson(&variable.value, &self.core)))
            .collect();
        if self.intra_host == IntraHost::Sealed {
            variables.extend(SHOWN.map(|(name, value)| (name, value.to_string())));
        }
        variables
    }

    fn sealed(&self, several_hosts: bool) -> Request<'_> {
        Request {
            intra_host: self.intra_host,
            several_hosts,
            core: &self.core,
            libfabric: None,
            providers: Path::new(""),
        }
    }
}

/// A list of providers as it is without Gambeson; the core provider where nothing is left.
fn without_gambeson(value: &str, core: &str) -> String {
    let others: Vec<&str> = value.split(',').filter(|&provider| provider != PROVIDER).collect();
    if others.is_empty() { core.to_string() } else { others.join(",") }
}

/// What stands for a number of processes in a command.
pub(crate) const RANKS: &str = "{ranks}";

/// The name under which libfabric knows Gambeson.
const PROVIDER: &str = "gambeson";

/// A job under way.
pub(crate) struct Job {
    child: Child,
    lines: Receiver<Line>,
    readers: Vec<JoinHandle<()>>,
    /// The last lines it printed that are no events.
    said: VecDeque<String>,
}

enum Line {
    Event(Event),
    Other(String),
}

/// How following a job ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Nothing was reported for too long; the job has been ended.
    Silence,
    /// The job is over.
    Exit(ExitStatus),
}

/// Time that a job has for coming down.
const FAREWELL: Duration = Duration::from_secs(20);
/// Lines of output kept to explain a failure.
const SAID: usize = 12;

impl Job {
    fn follow(mut child: Child) -> Self {
        let (sender, lines) = channel();
        let output = child.stdout.take().expect("standard output was asked for");
        let errors = child.stderr.take().expect("standard error was asked for");
        let readers = vec![read_lines(output, sender.clone()), read_lines(errors, sender)];
        Self { child, lines, readers, said: VecDeque::new() }
    }

    /// The next event.
    ///
    /// # Errors
    /// The way the job ended, when there is no further event or none for `patience`.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Event, End> {
        self.listen(patience).unwrap_or_else(|| {
            self.end();
            Err(End::Silence)
        })
    }

    /// The same, for who does more than wait; `None`: there was none so far.
    pub(crate) fn listen(&mut self, patience: Duration) -> Option<Result<Event, End>> {
        let deadline = Instant::now() + patience;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Line::Event(event)) => return Some(Ok(event)),
                Ok(Line::Other(text)) => self.remember(text),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return Some(Err(End::Exit(self.wait()))),
            }
        }
    }

    /// Lets a job that has reported all it had to end by itself.
    pub(crate) fn finish(&mut self) {
        while self.next(FAREWELL).is_ok() {}
    }

    /// What the job last said, for an error message.
    pub(crate) fn said(&self) -> String {
        Vec::from_iter(self.said.iter().map(String::as_str)).join("\n")
    }

    fn remember(&mut self, text: String) {
        if self.said.len() == SAID {
            self.said.pop_front();
        }
        self.said.push_back(text);
    }

    /// Waits for a job whose output has ended.
    fn wait(&mut self) -> ExitStatus {
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        self.child.wait().expect("a child that was started can be waited for")
    }

    /// Asks the launcher to end the job, and ends the launcher when it does not.
    fn end(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            // A child that has not been waited for keeps its id.
            let _ = kill_process(Pid::from_child(&self.child), signal);
            let deadline = Instant::now() + Duration::from_secs(5);
            while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_lines(stream: impl Read + Send + 'static, lines: Sender<Line>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).into_owned();
            let line = Event::parse(&text).map_or(Line::Other(text), Line::Event);
            if lines.send(line).is_err() {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::without_gambeson;

    #[test]
    fn the_core_provider_takes_the_place() {
        assert_eq!(without_gambeson("gambeson", "verbs"), "verbs");
        assert_eq!(without_gambeson("gambeson,tcp,ofi_rxm", "tcp"), "tcp,ofi_rxm");
        assert_eq!(without_gambeson("self,vader", "tcp"), "self,vader");
    }
}
