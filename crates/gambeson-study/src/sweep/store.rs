//! What a sweep's directory holds: `results.jsonl`, a line for each run that came to its end.
//!
//! A run is found again by all it was made from: the complete experiment with its seed, the content of the files it names
//! (traces, a topology), and the version of the simulator with a digest of its sources.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use gambeson_sim::experiment::{Experiment, Outcome};
use gambeson_sim::topology::TopologyConfig;
use serde::{Deserialize, Serialize};

use crate::{Error, VERSION, lines};

/// All that a run is made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The experiment as JSON, whose fields always come in the same order.
    experiment: String,
    traces: Vec<String>,
}

/// The files that an experiment names.
pub(super) fn files(experiment: &mut Experiment) -> impl Iterator<Item = &mut String> {
    let topology = match &mut experiment.topology {
        TopologyConfig::File { path } => Some(path),
        _ => None,
    };
    experiment.replay.iter_mut().flat_map(|replay| &mut replay.traces).chain(topology)
}

/// SHA-256 of such files, each read once.
#[derive(Default)]
pub(super) struct Digests(BTreeMap<PathBuf, String>);

impl Digests {
    /// Those of an experiment; their paths begin in the folder `base`.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn of(&mut self, experiment: &Experiment, base: &Path) -> Result<Vec<String>, gambeson_sim::Error> {
        let mut digests = Vec::new();
        for path in files(&mut experiment.clone()) {
            let path = base.join(path);
            if !self.0.contains_key(&path) {
                let bytes =
                    std::fs::read(&path).map_err(|cause| gambeson_sim::Error::File { file: path.clone(), cause })?;
                let hex = digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
                self.0.insert(path.clone(), hex);
            }
            digests.push(self.0[&path].clone());
        }
        Ok(digests)
    }
}

impl Key {
    pub(super) fn new(experiment: &Experiment, traces: Vec<String>) -> Self {
        Self { experiment: json(experiment), traces }
    }
}

/// A line of the file.
#[derive(Deserialize, Serialize)]
struct Record {
    version: String,
    /// SHA-256 of each trace, and of a topology's file.
    traces: Vec<String>,
    outcome: Outcome,
}

#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    file: File,
    /// What was there, and the lines of it.
    held: BTreeMap<Key, (Outcome, String)>,
    /// Lines of other versions, which stay.
    others: Vec<String>,
}

impl Store {
    /// # Errors
    /// A sentence, when the file can be neither read nor made.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("results.jsonl");
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(&path)
            .map_err(|error| Error::unwritable(&path, &error))?;
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Error::Folder {
                kind: std::io::ErrorKind::WouldBlock,
                what: format!("another sweep is writing to {}; let it end, or give another folder", dir.display()),
            });
        }
        let before = lines::take_up(&mut file).map_err(|error| Error::Folder {
            kind: error.kind(),
            what: format!("{} cannot be read: {error}", path.display()),
        })?;
        let (mut held, mut others) = (BTreeMap::new(), Vec::new());
        for line in before.lines() {
            match serde_json::from_str::<Record>(line) {
                Ok(Record { version, traces, outcome }) if version == VERSION => {
                    let key = Key { experiment: json(&outcome.experiment), traces };
                    held.insert(key, (outcome, line.to_owned()));
                }
                // Another version's may look different; a line that is no JSON was torn when a sweep was killed.
                _ if serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok() => others.push(line.to_owned()),
                _ => {}
            }
        }
        Ok(Self { path, file, held, others })
    }

    pub(super) fn find(&self, key: &Key) -> Option<Outcome> {
        self.held.get(key).map(|(outcome, _)| outcome.clone())
    }

    /// Adds a run; a sweep that is killed later finds it again.
    ///
    /// # Errors
    /// A sentence, when the file cannot be written.
    pub(super) fn append(&mut self, key: &Key, outcome: &Outcome) -> Result<(), Error> {
        let line = line(key, outcome) + "\n";
        self.file.write_all(line.as_bytes()).map_err(|error| Error::unwritable(&self.path, &error))
    }

    /// Puts the runs of a sweep in its order in front, and behind them what the directory held beside.
    ///
    /// # Errors
    /// A sentence, when the file cannot be written.
    pub(super) fn arrange(&mut self, keys: &[Key], outcomes: &[Outcome]) -> Result<(), Error> {
        let mut rest = std::mem::take(&mut self.held);
        let mut text = String::new();
        for (key, outcome) in keys.iter().zip(outcomes) {
            rest.remove(key);
            text += &(line(key, outcome) + "\n");
        }
        for line in rest.into_values().map(|(_, line)| line).chain(std::mem::take(&mut self.others)) {
            text += &(line + "\n");
        }
        crate::replace(&self.path, text.as_bytes())
    }
}

/// The line of a run.
pub(super) fn line(key: &Key, outcome: &Outcome) -> String {
    json(&Record { version: VERSION.into(), traces: key.traces.clone(), outcome: outcome.clone() })
}

/// A run from a line that was written elsewhere.
///
/// # Errors
/// A sentence, when it is not the run with this key, or another version's.
pub(super) fn parse(key: &Key, line: &str) -> Result<Outcome, Error> {
    let record: Record = serde_json::from_str(line)
        .map_err(|error| Error::Foreign(format!("what came back is no result of gambeson {VERSION}: {error}")))?;
    let differs = match &record {
        Record { version, .. } if version != VERSION => {
            format!("gambeson is {version} there and {VERSION} here; install the same on both")
        }
        Record { traces, .. } if *traces != key.traces => {
            "a trace or a topology has other content there; give all of them the same files".into()
        }
        Record { outcome, .. } if json(&outcome.experiment) != key.experiment => "it is of another experiment".into(),
        Record { .. } => return Ok(record.outcome),
    };
    Err(Error::Foreign(format!("a result from elsewhere cannot be taken: {differs}")))
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("experiments and outcomes are plain data")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{room, sweep};
    use super::*;

    #[test]
    fn what_was_held_is_what_was_written_to_the_last_bit() {
        let dir = room("store");
        let point = &sweep(&dir, &["seed=1"], 1).expect("a sweep").points[0];
        let mut outcome = point.experiment.run().expect("it runs");
        let mut runs = Vec::new();
        for number in 1..500_u32 {
            // Numbers with as many digits as there can be, in the experiment and in what came out.
            outcome.experiment.measure.for_us = f64::from(number).sqrt() * 1e3;
            outcome.busiest_link = f64::from(number).sqrt() / 1e9;
            outcome.flows[0].latency.mean_ns = f64::from(number).cbrt() * 1e3;
            runs.push((Key::new(&outcome.experiment, Vec::new()), outcome.clone()));
        }
        let mut store = Store::open(&dir).expect("a store");
        runs.iter().for_each(|(key, outcome)| store.append(key, outcome).expect("it can be written"));
        drop(store);
        let store = Store::open(&dir).expect("a store");
        for (key, outcome) in &runs {
            assert_eq!(store.find(key).as_ref(), Some(outcome));
        }
        std::fs::remove_dir_all(dir).expect("it can be removed");
    }
}
