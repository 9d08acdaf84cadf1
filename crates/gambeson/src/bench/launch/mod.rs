//! What it costs to start a process by a daemon: beside ssh, and beside a process of one's own.

mod sides;

use std::fmt::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gambeson_launch::requester::{Heard, Requester};
use gambeson_launch::wire::{Event, Order, Process, Program, Secret, Status, Streams};
use indicatif::ProgressBar;
use serde::Serialize;

use super::statistics::median;
use crate::failure::Failure;
use crate::hosts;
use sides::{Daemons, Folder, Ssh};

/// What to measure.
pub(crate) struct Wanted {
    pub(crate) rounds: usize,
    /// Whether sshd is measured, too, where there is one.
    pub(crate) ssh: bool,
}

/// Commands one after the other, and processes over an open connection, of a round.
const COMMANDS: usize = 8;
const SPAWNS: usize = 50;
/// Commands at once.
const AT_ONCE: usize = 64;
/// Processes of one order, and the daemons that start them.
const TREE: u32 = 1000;
const HOSTS: usize = 4;
/// A nursery waits for keepers that have ended so often, and only then is their time its own.
const SETTLE: Duration = Duration::from_millis(1200);

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    rounds: usize,
    processors: usize,
    /// Load averages of one, five and fifteen minutes before the first round.
    load: [f64; 3],
    gambeson: Values,
    /// None where there is no sshd.
    ssh: Option<Values>,
    /// Seconds of a process on a connection that is open, of one of this program's own, and their ratio.
    open: Vec<f64>,
    own: Vec<f64>,
    /// Seconds of an order of 1000 processes at four daemons.
    tree: Vec<f64>,
}

/// Values of commands that each connect by themselves, one of each round.
#[derive(Debug, Default, Serialize)]
struct Values {
    /// Seconds of a command, and of processor time of both ends of it.
    command: Vec<f64>,
    processor: Vec<f64>,
    /// Seconds for 64 at once, and how many of them failed.
    at_once: Vec<f64>,
    failed: Vec<usize>,
}

/// Measures all in turn.
///
/// # Errors
/// When a daemon or sshd does not come up, or a process fails.
pub(crate) fn bench(wanted: &Wanted, load: [f64; 3], progress: &ProgressBar) -> Result<Report, Failure> {
    let folder = Folder::new()?;
    let daemons = Daemons::start(&folder, HOSTS)?;
    let ssh = if wanted.ssh { Ssh::start(&folder)? } else { None };
    let requester = Requester::new(&daemons.user)?;
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        rounds: wanted.rounds,
        processors: thread::available_parallelism().map_or(1, usize::from),
        load,
        gambeson: Values::default(),
        ssh: ssh.as_ref().map(|_| Values::default()),
        open: Vec::new(),
        own: Vec::new(),
        tree: Vec::new(),
    };
    // The first order opens the connection that the others have.
    start(&requester, &daemons, 1, 1)?;
    progress.set_length(wanted.rounds as u64);
    for round in 0..wanted.rounds {
        let mut ours = || commands(|| daemons.exec(&["true"]), || daemons.processor_time(), &mut report.gambeson);
        let mut theirs = || match (&ssh, &mut report.ssh) {
            (Some(ssh), Some(values)) => commands(|| ssh.exec(&["true"]), || ssh.processor_time(), values),
            _ => Ok(()),
        };
        // Who is first changes every round.
        if round % 2 == 0 {
            ours()?;
            theirs()?;
        } else {
            theirs()?;
            ours()?;
        }
        let (mut open, mut own) = (Vec::new(), Vec::new());
        for _ in 0..SPAWNS {
            open.push(start(&requester, &daemons, 1, 1)?);
            own.push(spawn()?);
        }
        report.open.push(median(&open));
        report.own.push(median(&own));
        report.tree.push(start(&requester, &daemons, HOSTS, TREE)?);
        progress.inc(1);
    }
    Ok(report)
}

/// Commands that each connect by themselves: one after the other, and many at once.
fn commands(
    command: impl Fn() -> Command,
    processor_time: impl Fn() -> f64,
    values: &mut Values,
) -> Result<(), Failure> {
    let silent = || {
        let mut command = command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let (before, began) = (processor_time() + children(), Instant::now());
    for _ in 0..COMMANDS {
        let ended = silent().status();
        if !ended.is_ok_and(|status| status.success()) {
            return Err(Failure::unavailable("a command that is measured has failed; try it by itself"));
        }
    }
    values.command.push(began.elapsed().as_secs_f64() / COMMANDS as f64);
    thread::sleep(SETTLE);
    values.processor.push((processor_time() + children() - before) / COMMANDS as f64);
    let began = Instant::now();
    let running: Vec<_> = (0..AT_ONCE).map(|_| silent().spawn()).collect();
    let succeeded = |running: std::io::Result<std::process::Child>| {
        running.and_then(|mut one| one.wait()).is_ok_and(|status| status.success())
    };
    values.failed.push(running.into_iter().map(succeeded).filter(|&succeeded| !succeeded).count());
    values.at_once.push(began.elapsed().as_secs_f64());
    thread::sleep(SETTLE);
    Ok(())
}

/// Seconds of processor time of this process's children that have ended.
fn children() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().skip(13);
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    fields.take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / ticks
}

/// An order of `true` at so many daemons; the seconds until all has ended.
fn start(requester: &Requester, daemons: &Daemons, hosts: usize, processes: u32) -> Result<f64, Failure> {
    let program = Program {
        executable: "true".into(),
        arguments: vec!["true".into()],
        streams: Streams::Output,
        ..Program::default()
    };
    let process = |number| Process { host: number % hosts as u32, program: 0, environment: Vec::new() };
    let order = Order {
        id: hosts::random()?,
        until: 0,
        account: String::new(),
        hosts: daemons.hosts[..hosts].to_vec(),
        programs: vec![program],
        processes: (0..processes).map(process).collect(),
        context: Secret::default(),
    };
    let began = Instant::now();
    let mut ordered = requester.begin(order)?;
    loop {
        match ordered.next(PATIENCE) {
            Heard::Event(_, Event::Failed(why)) => return Err(Failure::unavailable(why)),
            Heard::Event(_, Event::Ended(status)) if status != Status::Exited(0) => {
                return Err(Failure::unavailable("true has failed"));
            }
            Heard::Event(..) => {}
            Heard::Nothing => return Err(Failure::unavailable("a daemon says nothing more")),
            Heard::End => return Ok(began.elapsed().as_secs_f64()),
        }
    }
}

/// A process of this program's own, with the streams that a daemon gives one.
fn spawn() -> Result<f64, Failure> {
    let began = Instant::now();
    let ended = Command::new("true").stdin(Stdio::null()).output();
    match ended.is_ok_and(|output| output.status.success()) {
        true => Ok(began.elapsed().as_secs_f64()),
        false => Err(Failure::unavailable("true cannot be started")),
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Report {
    /// The tables, for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{} rounds, load average before: {:.2} on {} processors\n\n",
            self.rounds, self.load[0], self.processors
        );
        let heads = ["medians", "connect+exec, ms", "CPU, ms", "64 at once, s", "failed of 64"];
        let _ = writeln!(text, "{:10}{:>18}{:>10}{:>16}{:>14}", heads[0], heads[1], heads[2], heads[3], heads[4]);
        let sides = [("gambeson", Some(&self.gambeson)), ("ssh", self.ssh.as_ref())];
        for (name, values) in sides {
            let Some(Values { command, processor, at_once, failed }) = values else {
                let _ = writeln!(text, "{name:10}not measured: there is no sshd (Debian's package is openssh-server)");
                continue;
            };
            let most = failed.iter().max().copied().unwrap_or(0);
            let _ = writeln!(
                text,
                "{name:10}{:>18.1}{:>10.1}{:>16.2}{most:>14}",
                median(command) * 1e3,
                median(processor) * 1e3,
                median(at_once)
            );
        }
        if let Some(ssh) = &self.ssh {
            let [command, processor, at_once] = [
                ratios(&self.gambeson.command, &ssh.command),
                ratios(&self.gambeson.processor, &ssh.processor),
                ratios(&self.gambeson.at_once, &ssh.at_once),
            ];
            let _ = writeln!(
                text,
                "{:10}{:>18.2}{:>10.2}{:>16.2}      medians of the rounds' own ratios",
                "/ ssh",
                median(&command),
                median(&processor),
                median(&at_once)
            );
        }
        let open = ratios(&self.open, &self.own);
        let least = open.iter().copied().fold(f64::INFINITY, f64::min);
        let _ = writeln!(
            text,
            "\na process on an open connection: {:.2} ms, one of one's own {:.2} ms: {:.2} times that, {least:.2} at the least",
            median(&self.open) * 1e3,
            median(&self.own) * 1e3,
            median(&open)
        );
        let _ = writeln!(text, "{TREE} processes at {HOSTS} daemons of this host: {:.2} s", median(&self.tree));
        text
    }
}

fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}
