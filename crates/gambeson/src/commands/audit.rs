//! `gambeson audit`: shows of every MPI operation whether its data can be read on the network.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::audit::{self, Conclusion};
use crate::failure::{Failure, Status};
use crate::probe::job::Starter;

/// Shows of every MPI operation whether its data can be read on the network
#[derive(Args)]
#[command(after_long_help = WHAT_IS_DONE)]
pub(crate) struct Arguments {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// The libfabric provider that carries the bytes
    #[arg(long, default_value = "tcp", value_name = "NAME")]
    core: String,
    /// Seconds an operation may take
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(5..))]
    limit: u64,
    /// The policy of the sealed run
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    /// The launcher and its options, without a program: mpiexec -n 2
    #[arg(required = true, last = true, value_name = "MPIEXEC")]
    command: Vec<String>,
}

const WHAT_IS_DONE: &str = "\
The audit starts a program of its own under the given mpiexec, twice: plain, then through
`gambeson run --intra-host sealed`. Plain means the same MPI over the same libfabric provider, with
the MPI's shared memory turned off so that there is something to see. The program fills the
buffers of each kind of operation with that operation's own random marker, 16 bytes repeated all
through, and checks what arrives. Meanwhile all network interfaces of this host are listened to and
every frame is searched at every offset. Segments are not put together again: since a marker repeats
all through its buffer, a message cut into segments still shows it.

`plain hits` and `sealed hits` are how often the marker was seen. An operation that was not seen in
plain is marked `not observed`: the zero beside it proves nothing.

Exit status:
  0   nothing was readable under sealing, and everything arrived as it was sent
  1   something was readable, arrived changed, or works in plain and not under sealing
  69  a job did not come up
  70  Gambeson refused to run the sealed job
  75  nothing was found, but the listener could not keep up and lost frames of the sealed run
  77  this user may not listen on the network interfaces";

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let starter = Starter::new(&arguments.command, &arguments.core, arguments.policy.as_deref())?;
    let progress = if std::io::stderr().is_terminal() { ProgressBar::new(1) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{prefix:6} [{bar:30}] {pos}/{len} {elapsed} {msg}");
    progress.set_style(style.expect("the template is well formed"));
    progress.enable_steady_tick(Duration::from_millis(200));
    let report = audit::audit(&starter, arguments.limit, &progress);
    progress.finish_and_clear();
    let report = report?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report).expect("a report is plain data"));
    } else {
        print!("{}", report.text());
    }
    Ok(match report.result {
        Conclusion::Passed => ExitCode::SUCCESS,
        Conclusion::Failed => ExitCode::FAILURE,
        Conclusion::Incomplete => Status::Incomplete.into(),
    })
}
