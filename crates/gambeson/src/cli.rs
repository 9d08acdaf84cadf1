//! The subcommands and what they have in common.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::bench::part;
use crate::commands::{
    audit, bench, completion, daemon, directory, doctor, enroll, enter, exec, file, init, keep, key, keyd, manual,
    orders, partition, policy, proxy, relay, run, sim, site, start, worker,
};
use crate::failure::{Failure, STATUSES};
use crate::probe;

/// Runs parallel programs so that every message between their processes is sealed.
#[derive(Parser)]
#[command(name = "gambeson", version, after_long_help = STATUSES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(run::Arguments),
    Doctor(doctor::Arguments),
    Policy(policy::Arguments),
    Directory(directory::Arguments),
    Init(init::Arguments),
    Enroll(enroll::Arguments),
    Site(site::Arguments),
    Partition(partition::Arguments),
    Key(key::Arguments),
    Keyd(keyd::Arguments),
    File(file::Arguments),
    Proxy(proxy::Arguments),
    Relay(relay::Arguments),
    Daemon(daemon::Arguments),
    Exec(exec::Arguments),
    Hosts(orders::Hosts),
    Ps(orders::List),
    Kill(orders::Kill),
    AuditLog(daemon::AuditLog),
    Worker(worker::Worker),
    Station(worker::Station),
    Audit(audit::Arguments),
    Bench(bench::Arguments),
    Sim(sim::Arguments),
    Completion(completion::Arguments),
    #[command(hide = true)]
    Probe(probe::Arguments),
    #[command(hide = true)]
    Part(part::Arguments),
    #[command(hide = true)]
    Manual(manual::Arguments),
    #[command(hide = true)]
    Keep(keep::Arguments),
    #[command(hide = true)]
    Start(start::Arguments),
    #[command(hide = true)]
    Enter(enter::Arguments),
}

impl Command {
    pub(crate) fn execute(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Run(arguments) => run::execute(&arguments),
            Self::Doctor(arguments) => doctor::execute(&arguments),
            Self::Policy(arguments) => policy::execute(&arguments),
            Self::Directory(arguments) => directory::execute(&arguments),
            Self::Init(arguments) => init::execute(&arguments),
            Self::Enroll(arguments) => enroll::execute(&arguments),
            Self::Site(arguments) => site::execute(&arguments),
            Self::Partition(arguments) => partition::execute(&arguments),
            Self::Key(arguments) => key::execute(&arguments),
            Self::Keyd(arguments) => keyd::execute(&arguments),
            Self::File(arguments) => file::execute(&arguments),
            Self::Proxy(arguments) => proxy::execute(&arguments),
            Self::Relay(arguments) => relay::execute(&arguments),
            Self::Daemon(arguments) => daemon::execute(&arguments),
            Self::Exec(arguments) => exec::execute(&arguments),
            Self::Hosts(arguments) => arguments.execute(),
            Self::Ps(arguments) => arguments.execute(),
            Self::Kill(arguments) => arguments.execute(),
            Self::AuditLog(arguments) => arguments.execute(),
            Self::Worker(arguments) => arguments.execute(),
            Self::Station(arguments) => arguments.execute(),
            Self::Audit(arguments) => audit::execute(&arguments),
            Self::Bench(arguments) => bench::execute(&arguments),
            Self::Sim(arguments) => sim::execute(&arguments),
            Self::Completion(arguments) => completion::execute(&arguments),
            Self::Probe(arguments) => probe::execute(&arguments),
            Self::Part(arguments) => part::execute(&arguments),
            Self::Manual(arguments) => manual::execute(&arguments),
            Self::Keep(arguments) => keep::execute(&arguments),
            Self::Start(arguments) => start::execute(&arguments),
            Self::Enter(arguments) => enter::execute(&arguments),
        }
    }
}
