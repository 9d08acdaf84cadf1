//! What a probe tells the command that started it: one line of JSON for each event, on standard
//! output, which every mpiexec forwards.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::mpi::Failure;

use super::files::work as files;

/// Before each event, so that it is found in whatever else the job prints.
const PREFIX: &str = "gambeson-probe: ";

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// MPI is up. From rank 0.
    Started { library: String, processes: usize },
    /// An operation begins, by its index in the plan. From rank 0.
    Begun { operation: usize },
    /// An operation failed on this rank.
    Failed { operation: usize, rank: i32, cause: Cause, text: String },
    /// All ranks are through with an operation. From rank 0.
    Ended { operation: usize },
    /// A measurement of the benchmark. From rank 0.
    Measured { quantity: String, size: usize, value: f64 },
    /// What a work of `bench files` took. From rank 0.
    Timed { quantity: files::Quantity, bytes: u64, seconds: f64 },
    /// What a file of it is on disk. From rank 0.
    File { name: String, seal: Option<files::Seal> },
    /// All ranks are through with a work. From rank 0.
    Done { serial: u64 },
    /// Everything was done. From rank 0.
    Finished,
}

/// Kinds of [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    Missing,
    Refused,
    WrongData,
}

impl Event {
    /// The event of a failure.
    pub(crate) fn failed(operation: usize, rank: i32, failure: &Failure) -> Self {
        let cause = match failure {
            Failure::Missing(_) => Cause::Missing,
            Failure::Refused { .. } => Cause::Refused,
            Failure::WrongData(_) => Cause::WrongData,
        };
        Self::Failed { operation, rank, cause, text: failure.to_string() }
    }

    /// Prints the event. A reader who has gone away ends the process: nobody wants the rest.
    pub(crate) fn print(&self) {
        let line = serde_json::to_string(self).expect("an event is plain data");
        let mut output = std::io::stdout().lock();
        if writeln!(output, "{PREFIX}{line}").and_then(|()| output.flush()).is_err() {
            std::process::exit(1);
        }
    }

    /// Finds an event in a line of a job's output, behind whatever mpiexec puts before it.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (_, event) = line.split_once(PREFIX)?;
        serde_json::from_str(event.trim_end()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_found_behind_a_rank_label() {
        let event = Event::Ended { operation: 3 };
        let line = format!("[1,0]<stdout>: {PREFIX}{}\n", serde_json::to_string(&event).expect("plain data"));
        assert_eq!(Event::parse(&line), Some(event));
        assert_eq!(Event::parse("Hello from rank 0"), None);
    }
}
