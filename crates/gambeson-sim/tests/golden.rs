//! Golden runs: experiments of the papers' figures and of every kind of network, whose outcomes are checked in and must
//! come out to the last bit. What changes them on purpose says so, and writes them anew:
//! `GAMBESON_GOLDEN=write cargo test -p gambeson-sim --test golden`.

use std::path::{Path, PathBuf};

use gambeson_sim::experiment::Experiment;
use serde_json::Value;

/// An outcome without what it was made from and without the real world's time.
fn outcome(experiment: &Path) -> Value {
    let outcome = Experiment::read(experiment).and_then(|experiment| experiment.run());
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    let mut value = serde_json::to_value(outcome).expect("an outcome is plain data");
    let fields = value.as_object_mut().expect("an outcome has fields");
    fields.remove("experiment");
    fields.remove("seconds");
    value
}

#[test]
fn outcomes_are_those_that_are_checked_in() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/golden");
    let files = std::fs::read_dir(folder).expect("there are golden runs").map(|entry| entry.expect("a name").path());
    let experiments: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    assert!(experiments.len() >= 7, "{experiments:?}");
    for experiment in experiments {
        let expected = experiment.with_extension("json");
        let found = outcome(&experiment);
        if std::env::var_os("GAMBESON_GOLDEN").is_some_and(|value| value == "write") {
            let text = serde_json::to_string_pretty(&found).expect("a value is plain data") + "\n";
            std::fs::write(&expected, text).expect("the outcome can be written");
        }
        let text = std::fs::read_to_string(&expected).unwrap_or_else(|error| panic!("{}: {error}", expected.display()));
        let expected: Value = serde_json::from_str(&text).expect("the outcome was written by this test");
        assert!(found == expected, "{}: {found:#}\nin place of {expected:#}", experiment.display());
    }
}
