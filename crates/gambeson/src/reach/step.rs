//! `gambeson keep --step`: holds the job's files on a host of a step of Slurm's srun, while the step runs there.
//!
//! Gambeson's plug-in in slurmstepd starts it as the user (packaging/slurm), hands it the files by the stream that is its input
//! and output, and reads one line: [`PLUGIN`], or why the step cannot run. The end of the stream is that of the step, however
//! it came. What is started here is no process of the job's.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use gambeson_proto::credential::Credential;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;

use super::home::{HOME, Way};
use crate::commands::keep;
use crate::failure::Failure;
use crate::job::{Job, bundle, processes, reports};
use crate::machine;

pub(crate) fn execute(hosts: u32) -> Result<ExitCode, Failure> {
    let said = arrive(hosts);
    let line = said.as_ref().map_or_else(ToString::to_string, |_| PLUGIN.to_owned());
    let mut stdout = io::stdout();
    let heard = writeln!(stdout, "{}", line.replace('\n', " ")).and_then(|()| stdout.flush());
    let Step { job, way } = said?;
    if heard.is_ok() {
        attend(job.as_ref(), &way);
    }
    if let Some(job) = &job {
        processes::end_here(job.directory());
        report(job, &way);
    }
    // Who does not hear it takes this host for lost.
    let _ = way.done();
    Ok(ExitCode::SUCCESS)
}

/// What of the job is here.
struct Step {
    /// None where `gambeson run` itself is.
    job: Option<Job>,
    way: Way,
}

fn arrive(hosts: u32) -> Result<Step, Failure> {
    machine::close_to_others()?;
    let files = bundle::receive(&mut io::stdin())
        .map_err(|error| Failure::refused(format!("the job's files did not arrive ({error}); start the job again")))?;
    let (credential, job): (Credential, _) = keep::install(&files)?;
    if let Some(job) = &job {
        // Who made the stream is the slurmstepd of this step: its tasks get the job's secrets, and no other processes.
        let slurmstepd = socket_peercred(io::stdin())
            .map_err(|error| Failure::refused(format!("this is not the stream of a step of Slurm's ({error})")))?;
        job.counts(slurmstepd.pid.as_raw_pid().unsigned_abs());
    }
    let home = keep::file(&files, HOME).ok_or_else(keep::lacking)?;
    Ok(Step { job, way: Way::open(credential, home, hosts)? })
}

/// Until the stream ends. That a rank must not run `gambeson run` hears at once.
fn attend(job: Option<&Job>, way: &Way) {
    let stdin = io::stdin();
    let mut alarmed = false;
    loop {
        let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
        let ready = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: GLANCE_NS }));
        if ready.is_ok_and(|count| count > 0) && !matches!(io::stdin().read(&mut [0]), Ok(1..)) {
            return;
        }
        if let Some(job) = job.filter(|job| !alarmed && reports::alarming(job.directory())) {
            alarmed = true;
            report(job, way);
        }
    }
}

fn report(job: &Job, way: &Way) {
    let files = bundle::pack(job.directory(), bundle::is_report).unwrap_or_default();
    // `gambeson run` takes a host for lost that does not say in the end that it is done.
    let _ = way.report(&files);
}

/// What the plug-in says to `gambeson run`, and this to the plug-in. The last letter counts changes of what they say.
pub(crate) const PLUGIN: &str = "GBSNSLM1";
const GLANCE_NS: i64 = 250_000_000;
