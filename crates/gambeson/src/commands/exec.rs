//! `gambeson exec HOST -- COMMAND`: runs a command on other hosts, by their daemons.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use gambeson_launch::authority::user_folder;
use gambeson_launch::requester::{Controls, Heard, Ordered, Requester};
use gambeson_launch::wire::{Event, Host, Order, Process, Program, Secret, Status as Ended, Streams, Text, Variable};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, STATUSES, Status};
use crate::hosts;

/// Runs a command on other hosts, by their daemons
///
/// As ssh does, with the site's certificates in place of keys and passwords: streams, signals and
/// the exit status are the command's, and nothing of it is left when this command ends, however it ends.
/// Of the environment LANG, LC_*, TERM and TZ go along, and what --env names.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct Arguments {
    /// The hosts, with commas between them: NAME, or NAME=ADDRESS:PORT where its daemon listens elsewhere
    #[arg(value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    /// How many times on each host
    #[arg(long, short = 'n', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    copies: u32,
    /// The account to use there; by default the one called as you are known to the site
    #[arg(long, value_name = "NAME", default_value = "")]
    account: String,
    /// Where it starts; by default in the account's home
    #[arg(long, value_name = "FOLDER", default_value = "")]
    directory: OsString,
    /// A variable that goes along: NAME, with the value it has here, or NAME=VALUE
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Give it a terminal
    #[arg(long, short, conflicts_with = "copies")]
    terminal: bool,
    /// Put the host's name in front of every line
    #[arg(long, short)]
    label: bool,
    /// Where authority.pem and identity.pem are; ~/.config/gambeson
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let requester = Requester::new(&arguments.folder.clone().unwrap_or_else(user_folder))?;
    let order = arguments.order()?;
    // Before anything is started that they are for.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH]);
    let signals = signals.map_err(|cause| Failure::system(format!("signals cannot be passed on ({cause})")))?;
    let ordered = requester.begin(order.clone())?;
    pass_on(signals, ordered.controls());
    let _raw = arguments.terminal.then(Raw::begin).flatten();
    let status = attend(&order, ordered, arguments.label);
    Ok(status.into())
}

/// Passes on what the processes say until all have ended; the status of the whole.
fn attend(order: &Order, mut ordered: Ordered, label: bool) -> u8 {
    let takes_input = order.programs[0].streams != Streams::Output;
    let (mut output, mut errors) = (Lines::new(io::stdout(), label), Lines::new(io::stderr(), label));
    let mut worst = 0;
    loop {
        let (number, event) = match ordered.next(Duration::from_secs(3600)) {
            Heard::Event(number, event) => (number, event),
            Heard::Nothing => continue,
            Heard::End => return worst,
        };
        let host = &order.hosts[order.processes[number as usize].host as usize].name;
        match event {
            Event::Started(_) if takes_input => feed(ordered.controls(), number),
            Event::Started(_) => {}
            Event::Output(bytes) => output.write(host, number, &bytes),
            Event::Errors(bytes) => errors.write(host, number, &bytes),
            Event::Ended(status) => {
                if let (true, Ended::Killed(signal)) = (order.processes.len() > 1, status) {
                    eprintln!("gambeson: process {number} on {host} was ended by signal {signal}");
                }
                worst = worst.max(status.code());
            }
            Event::Failed(why) => {
                eprintln!(
                    "gambeson: process {number} on {host} has failed: {}",
                    why.trim_start_matches(&format!("{host}: "))
                );
                worst = worst.max(Status::Unavailable as u8);
            }
        }
    }
}

/// Carries this command's input to a process.
fn feed(controls: Controls, process: u32) {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = io::stdin().read(&mut buffer).unwrap_or(0);
            if controls.input(process, &buffer[..count]).is_err() || count == 0 {
                return;
            }
        }
    });
}

fn pass_on(mut signals: Signals, controls: Controls) {
    thread::spawn(move || {
        for signal in signals.forever() {
            let passed = match (signal, tcgetwinsize(io::stdin())) {
                (SIGWINCH, Ok(size)) => controls.window(0, size.ws_row, size.ws_col),
                (SIGWINCH, Err(_)) => Ok(()),
                (signal, _) => controls.signal(None, u8::try_from(signal).unwrap_or(15)),
            };
            if passed.is_err() && signal != SIGWINCH {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    });
}

impl Arguments {
    fn order(&self) -> Result<Order, Failure> {
        let id = hosts::random()?;
        let hosts: Vec<_> = self.hosts.iter().map(|text| Host::parse(text)).collect();
        let streams = match (self.terminal, hosts.len() as u32 * self.copies) {
            (true, 1) => tcgetwinsize(io::stdin())
                .map_or(Streams::Terminal(24, 80), |size| Streams::Terminal(size.ws_row, size.ws_col)),
            (true, _) => return Err(Failure::usage("a terminal is for one process on one host")),
            (false, 1) => Streams::All,
            (false, _) => Streams::Output,
        };
        let program = Program {
            directory: self.directory.clone().into(),
            executable: self.command[0].clone().into(),
            arguments: self.command.iter().cloned().map(Text::from).collect(),
            environment: self.variables()?,
            streams,
        };
        let numbered = 0..hosts.len() as u32;
        let processes = numbered.flat_map(|host| (0..self.copies).map(move |_| host));
        let processes = processes.map(|host| Process { host, program: 0, environment: Vec::new() }).collect();
        Ok(Order {
            id,
            until: 0,
            account: self.account.clone(),
            hosts,
            programs: vec![program],
            processes,
            context: Secret::default(),
        })
    }

    fn variables(&self) -> Result<Vec<Variable>, Failure> {
        let travels = |name: &OsString| {
            matches!(name.as_bytes(), b"LANG" | b"TERM" | b"TZ") || name.as_bytes().starts_with(b"LC_")
        };
        let mut variables: Vec<Variable> =
            env::vars_os().filter(|(name, _)| travels(name)).map(|(name, value)| (name.into(), value.into())).collect();
        for given in &self.env {
            let text = given.to_string_lossy();
            variables.push(match text.split_once('=') {
                Some((name, value)) => (name.into(), value.into()),
                None => {
                    let value = env::var_os(given);
                    let value =
                        value.ok_or_else(|| Failure::usage(format!("--env {text}: there is no such variable here")))?;
                    (given.clone().into(), value.into())
                }
            });
        }
        Ok(variables)
    }
}

/// Output of several processes, whole lines at a time where they are labelled.
struct Lines<W: Write> {
    to: W,
    label: bool,
    begun: std::collections::BTreeMap<u32, (String, Vec<u8>)>,
}

impl<W: Write> Lines<W> {
    fn new(to: W, label: bool) -> Self {
        Lines { to, label, begun: std::collections::BTreeMap::new() }
    }

    fn write(&mut self, host: &str, number: u32, bytes: &[u8]) {
        if !self.label {
            let _ = self.to.write_all(bytes).and_then(|()| self.to.flush());
            return;
        }
        let (_, begun) = self.begun.entry(number).or_insert_with(|| (host.to_owned(), Vec::new()));
        begun.extend_from_slice(bytes);
        while let Some(end) = begun.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = begun.drain(..=end).collect();
            let _ = write!(self.to, "{host}: ").and_then(|()| self.to.write_all(&line));
        }
    }
}

impl<W: Write> Drop for Lines<W> {
    /// What had no end of a line.
    fn drop(&mut self) {
        for (host, rest) in self.begun.values().filter(|(_, rest)| !rest.is_empty()) {
            let _ = write!(self.to, "{host}: ").and_then(|()| self.to.write_all(rest)).and_then(|()| writeln!(self.to));
        }
    }
}

/// The terminal here, while one elsewhere does what a terminal does.
struct Raw(Termios);

impl Raw {
    fn begin() -> Option<Self> {
        let stdin = io::stdin();
        let before = stdin.is_terminal().then(|| tcgetattr(&stdin).ok()).flatten()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
        Some(Raw(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
