//! What it costs the start of a job that its keys come from a service: beside a job whose keys are in a folder.

use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use gambeson_keys::{Protection, Store};
use indicatif::ProgressBar;
use serde::Serialize;

use super::service::Service;
use super::{LABEL, Wanted};
use crate::bench::statistics::median;
use crate::failure::Failure;

/// Seconds of a job, of each round and side. Its ranks get the keys, and end.
#[derive(Debug, Serialize)]
pub(super) struct Jobs {
    ranks: usize,
    service: Vec<f64>,
    folder: Vec<f64>,
}

pub(super) fn measure(service: &Service, wanted: &Wanted, progress: &ProgressBar) -> Result<Jobs, Failure> {
    let store = service.folder().join("store");
    let mut opened = Store::create(&store, Protection::KeyFile("master-key".into()))?;
    opened.change(|ring| ring.create(LABEL, None))?;
    let (store, place) = (store.display().to_string(), service.place().to_string());
    let own = std::env::current_exe().map_err(|cause| Failure::system(cause.to_string()))?;
    let run = |keys: &str| {
        let mut command = Command::new(&own);
        command.args(["run", "-q", "--"]).args(&wanted.launcher).args(["-n", &wanted.ranks.to_string()]);
        command.arg(&own).args(["key", "list", "--json"]);
        // As people have it, whose identity no variable names: ranks would ask whether that is their job's, too.
        command.env("GAMBESON_KEYS", keys).env("XDG_CONFIG_HOME", service.folder().join("config"));
        command.env_remove("GAMBESON_IDENTITY");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let began = Instant::now();
        match command.status() {
            Ok(status) if status.success() => Ok(began.elapsed().as_secs_f64()),
            _ => Err(Failure::unavailable("a job that is measured has failed; above it says why")),
        }
    };
    let mut jobs = Jobs { ranks: wanted.ranks, service: Vec::new(), folder: Vec::new() };
    // The first job of either has the disk's share.
    run(&place)?;
    run(&store)?;
    progress.inc_length((JOBS * wanted.rounds) as u64);
    for round in 0..JOBS * wanted.rounds {
        // Who is first changes every round.
        if round % 2 == 0 {
            jobs.service.push(run(&place)?);
            jobs.folder.push(run(&store)?);
        } else {
            jobs.folder.push(run(&store)?);
            jobs.service.push(run(&place)?);
        }
        progress.inc(1);
    }
    Ok(jobs)
}

impl Jobs {
    pub(super) fn text(&self) -> String {
        let differences: Vec<f64> = self.service.iter().zip(&self.folder).map(|(one, other)| one - other).collect();
        let mut text = String::new();
        let _ = writeln!(
            text,
            "a job of {} ranks               {:>8.1} ms with keys of the service, {:.1} ms of a folder; the median of \
             the rounds' differences is {:+.1} ms",
            self.ranks,
            median(&self.service) * 1e3,
            median(&self.folder) * 1e3,
            median(&differences) * 1e3
        );
        text
    }
}

/// Jobs of each side in a round.
const JOBS: usize = 5;
