//! Sweeps: one experiment under every combination of other values.
//!
//! Runs do not know of each other, and results come in the order of the combinations, so that they are the same however
//! many threads or machines there are and however often a sweep was interrupted. Who carries the runs out is the caller's
//! choice: [`Sweep::run`] has threads; [`Sweep::open`], [`carry_out`] and [`Runs::keep_line`] are for everybody else.

mod page;
mod parquet;
mod picture;
mod store;
mod table;

use std::path::{Path, PathBuf};

use gambeson_sim::experiment::{Experiment, Outcome};
use gambeson_sim::fabric::Watch;

use crate::{Error, pool};
use serde::{Deserialize, Serialize};
use store::{Digests, Key, Store};
pub use table::{Column, Table, Values};

/// A key of the experiment and the values it takes, as the experiment's file would have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    key: String,
    values: Vec<String>,
}

impl Over {
    /// A key and its values.
    ///
    /// # Errors
    /// A sentence, when there is no key or no value, or a value is there twice.
    pub fn new(key: &str, values: Vec<String>) -> Result<Self, String> {
        if key.is_empty() || values.is_empty() || values.iter().any(String::is_empty) {
            return Err(format!("{key} names no values; give it some, as in security.cache.entries=4,8,16"));
        }
        if let Some(twice) =
            values.iter().enumerate().find_map(|(at, value)| values[..at].contains(value).then_some(value))
        {
            return Err(format!("{key} is {twice} twice; leave one out, or repeat the sweep for several seeds"));
        }
        Ok(Self { key: key.into(), values })
    }
}

impl std::str::FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} names no values; write KEY=V1,V2, as in security.cache.entries=4,8,16");
        let (key, values) = text.split_once('=').ok_or_else(wrong)?;
        let (key, values) = (key.trim(), split(values));
        if key.is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Self::new(key, values)
    }
}

/// Cuts a list at its commas, but not at those within brackets or quotes.
fn split(list: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quote) = (0_u32, None);
    for letter in list.chars() {
        match (letter, quote) {
            (',', None) if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            ('"' | '\'', None) => quote = Some(letter),
            (_, Some(open)) if open == letter => quote = None,
            _ => {}
        }
        parts.last_mut().expect("there is always a last part").push(letter);
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

/// One run of a sweep.
#[derive(Clone, Debug)]
struct Point {
    /// Its value of each swept key.
    values: Vec<String>,
    experiment: Experiment,
}

/// What the experiments of a sweep are made of.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Template {
    /// TOML.
    pub text: String,
    /// The file it came from: for messages, and files that it names are beside it.
    pub path: Option<PathBuf>,
    /// Other values for some of its keys, in every run: `KEY=VALUE`.
    pub set: Vec<String>,
}

impl Template {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(path: &Path, set: &[String]) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|cause| gambeson_sim::Error::File { file: path.into(), cause })?;
        Ok(Self { text, path: Some(path.into()), set: set.to_vec() })
    }

    /// The experiment.
    ///
    /// # Errors
    /// A sentence with the file.
    pub fn experiment(&self) -> Result<Experiment, gambeson_sim::Error> {
        Experiment::parse_with(&self.text, self.path.as_deref(), &self.set)
    }

    fn with(&self, changes: &[String]) -> Self {
        Self { set: [&self.set, changes].concat(), ..self.clone() }
    }
}

/// A run for [`carry_out`].
#[derive(Deserialize, Serialize)]
struct Task {
    template: Template,
    seed: u64,
}

/// Every combination, the last key changing fastest and seeds faster still.
#[derive(Clone, Debug)]
pub struct Sweep {
    template: Template,
    over: Vec<Over>,
    repeat: u32,
    points: Vec<Point>,
}

impl Sweep {
    /// Makes the experiment of every combination, so that what is wrong with one is said before any runs.
    ///
    /// # Errors
    /// A sentence with the combination.
    pub fn new(template: &Template, over: &[Over], repeat: u32) -> Result<Self, Error> {
        let wrong = |what: String| Err(gambeson_sim::Error::config(what).into());
        for (at, Over { key, .. }) in over.iter().enumerate() {
            if over[..at].iter().any(|other| other.key == *key) {
                return wrong(format!("{key} is swept twice; give all its values in one"));
            }
            if key == "seed" && repeat > 1 {
                return wrong("a swept seed and repeated runs both choose seeds; take one of them out".into());
            }
        }
        let counts = over.iter().map(|over| over.values.len() as u64).chain([repeat.into()]);
        let runs = counts.fold(1, u64::saturating_mul);
        if !(1..=RUNS_MAX).contains(&runs) {
            return wrong(format!("a sweep of {runs} runs; cut it into sweeps of 1 to {RUNS_MAX}"));
        }
        let mut combinations = vec![Vec::new()];
        for Over { values, .. } in over {
            let longer = |values_before: Vec<String>| {
                values.iter().map(move |value| [values_before.clone(), vec![value.clone()]].concat())
            };
            combinations = combinations.into_iter().flat_map(longer).collect();
        }
        let mut points = Vec::new();
        for values in combinations {
            let first = template.with(&changes(over, &values)).experiment()?;
            for number in 0..u64::from(repeat) {
                let mut experiment = first.clone();
                experiment.seed = experiment.seed.wrapping_add(number);
                points.push(Point { values: values.clone(), experiment });
            }
        }
        Ok(Self { template: template.clone(), over: over.to_vec(), repeat, points })
    }

    /// How many runs it has.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.points.len()
    }

    /// A run as JSON, for [`carry_out`].
    #[must_use]
    pub fn task(&self, at: usize) -> String {
        let Point { values, experiment } = &self.points[at];
        store::json(&Task { template: self.template.with(&changes(&self.over, values)), seed: experiment.seed })
    }

    /// What a run is told by: its values and its seed.
    #[must_use]
    pub fn told(&self, at: usize) -> String {
        let point = &self.points[at];
        let values = self.over.iter().zip(&point.values).map(|(over, value)| format!("{} = {value}", over.key));
        let values: Vec<String> = values.chain([format!("seed {}", point.experiment.seed)]).collect();
        values.join(", ")
    }

    /// Finds the runs that a folder holds already; without a folder, none is held and nothing will be written.
    ///
    /// # Errors
    /// A folder or a trace that cannot be read, and a folder at which another sweep is writing.
    pub fn open(&self, dir: Option<&Path>) -> Result<Runs, Error> {
        let mut digests = Digests::default();
        let key = |point: &Point| Ok(Key::new(&point.experiment, digests.of(&point.experiment, Path::new(""))?));
        let keys = self.points.iter().map(key).collect::<Result<Vec<_>, gambeson_sim::Error>>()?;
        let store = match dir {
            Some(dir) => {
                std::fs::create_dir_all(dir).map_err(|error| Error::unwritable(dir, &error))?;
                Some(Store::open(dir)?)
            }
            None => None,
        };
        let outcomes: Vec<Option<Outcome>> =
            keys.iter().map(|key| store.as_ref().and_then(|store| store.find(key))).collect();
        let held = outcomes.iter().flatten().count();
        Ok(Runs { keys, outcomes, held, store, dir: dir.map(Into::into) })
    }

    /// Runs what `dir` does not hold yet, several at a time, and writes tables, pictures and the page there. Says after
    /// each run how many there are; returns how many were held.
    ///
    /// # Errors
    /// The first run that failed, and what cannot be read or written.
    pub fn run(&self, dir: &Path, jobs: usize, mut progress: impl FnMut(usize)) -> Result<usize, Error> {
        let mut runs = self.open(Some(dir))?;
        let held = runs.held();
        progress(held);
        let run = |&at: &usize| {
            let outcome = self.points[at].experiment.run();
            outcome.map_err(|cause| Error::Run { point: self.told(at), cause })
        };
        let mut done = held;
        pool::each(runs.missing(), jobs, run, |at, outcome| {
            runs.keep(at, outcome)?;
            done += 1;
            progress(done);
            Ok(())
        })?;
        runs.finish(self)?;
        Ok(held)
    }

    /// Results as columns, a row for each run and flow.
    #[must_use]
    pub fn table(&self, outcomes: &[Outcome]) -> Table {
        let points: Vec<&[String]> = self.points.iter().map(|point| &point.values[..]).collect();
        Table::new(&self.over, &points, outcomes)
    }

    fn report(&self, dir: &Path, outcomes: &[Outcome]) -> Result<(), Error> {
        let table = self.table(outcomes);
        crate::replace(&dir.join("results.csv"), table.csv().as_bytes())?;
        crate::replace(&dir.join("results.parquet"), &parquet::encode(&table, self))?;
        let pictures = picture::pictures(self, outcomes);
        for picture in &pictures {
            picture.write(dir)?;
        }
        crate::replace(&dir.join("report.html"), page::page(self, &table, &pictures).as_bytes())
    }
}

/// The runs of a sweep that have come to their end, and the folder that keeps them.
#[derive(Debug)]
pub struct Runs {
    keys: Vec<Key>,
    outcomes: Vec<Option<Outcome>>,
    held: usize,
    store: Option<Store>,
    dir: Option<PathBuf>,
}

impl Runs {
    /// How many the folder held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Those that are still to be carried out.
    #[must_use]
    pub fn missing(&self) -> Vec<usize> {
        (0..self.outcomes.len()).filter(|&at| self.outcomes[at].is_none()).collect()
    }

    /// Takes a run; a sweep that is killed later finds it in the folder.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn keep(&mut self, at: usize, outcome: Outcome) -> Result<(), Error> {
        if let Some(store) = &mut self.store {
            store.append(&self.keys[at], &outcome)?;
        }
        self.outcomes[at] = Some(outcome);
        Ok(())
    }

    /// Takes a run that [`carry_out`] made, perhaps on another machine.
    ///
    /// # Errors
    /// A line that is not of this run, and a folder that cannot be written.
    pub fn keep_line(&mut self, at: usize, line: &str) -> Result<(), Error> {
        let outcome = store::parse(&self.keys[at], line)?;
        self.keep(at, outcome)
    }

    /// Puts the folder in the sweep's order, with tables, pictures and the page, and returns the outcomes in that order.
    ///
    /// # Errors
    /// A folder that cannot be written.
    ///
    /// # Panics
    /// When a run is missing.
    pub fn finish(self, sweep: &Sweep) -> Result<Vec<Outcome>, Error> {
        let Self { keys, outcomes, store, dir, .. } = self;
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        assert_eq!(outcomes.len(), sweep.points.len(), "every run has come to its end");
        if let (Some(mut store), Some(dir)) = (store, dir) {
            store.arrange(&keys, &outcomes)?;
            sweep.report(&dir, &outcomes)?;
        }
        Ok(outcomes)
    }
}

/// Carries a run out wherever this is called, and returns the line that a sweep's folder keeps of it. `base` is the folder
/// that paths begin in: the one the sweep was called in.
///
/// # Errors
/// What is wrong with the experiment or its traces.
pub fn carry_out(task: &str, base: &Path, watch: Watch<'_>) -> Result<String, gambeson_sim::Error> {
    let Task { template, seed } = serde_json::from_str(task)
        .map_err(|error| gambeson_sim::Error::config(format!("no run of a sweep: {error}")))?;
    let experiment = Experiment { seed, ..template.experiment()? };
    let key = Key::new(&experiment, Digests::default().of(&experiment, base)?);
    let mut here = experiment.clone();
    store::files(&mut here).for_each(|file| *file = base.join(&*file).display().to_string());
    let outcome = Outcome { experiment, ..here.run_watched(watch)? };
    Ok(store::line(&key, &outcome))
}

fn changes(over: &[Over], values: &[String]) -> Vec<String> {
    over.iter().zip(values).map(|(over, value)| format!("{}={value}", over.key)).collect()
}

/// More runs than this are a slip of the pen.
const RUNS_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VERSION;

    pub(super) const SMALL: &str = "topology = { kind = 'mesh', dims = [2, 2] }\n\
                                    measure = { warmup_us = 5, for_us = 50 }\n[[traffic]]\nload = 0.2\n";

    /// A directory of the test's own, with an experiment in it.
    pub(super) fn room(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("gambeson-sweep-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory can be made");
        std::fs::write(dir.join("x.toml"), SMALL).expect("an experiment can be written");
        dir
    }

    pub(super) fn sweep(dir: &Path, over: &[&str], repeat: u32) -> Result<Sweep, Error> {
        let over: Vec<Over> = over.iter().map(|text| text.parse().expect("a key and its values")).collect();
        Sweep::new(&Template::read(&dir.join("x.toml"), &[])?, &over, repeat)
    }

    fn run(dir: &Path, sweep: &Sweep, jobs: usize) -> usize {
        sweep.run(dir, jobs, |_| ()).expect("the sweep runs")
    }

    #[test]
    fn values_are_cut_at_their_commas() {
        let check = |text: &str, values: &[&str]| {
            assert_eq!(text.parse::<Over>().expect("a key and its values").values, values, "{text}");
        };
        check("a.b=1,2, 3", &["1", "2", "3"]);
        check("a={x=[1,2],y='p,q'},[3,4]", &["{x=[1,2],y='p,q'}", "[3,4]"]);
        for wrong in ["a", "=1", "a=", "a=1,,2", "a=1,1"] {
            assert!(wrong.parse::<Over>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_combination_is_there_once_and_in_order() {
        let dir = room("grid");
        let sweep = sweep(&dir, &["traffic.0.load=0.1,0.3", "routing=deterministic,adaptive"], 2).expect("a sweep");
        let told: Vec<String> =
            sweep.points.iter().map(|point| format!("{} {}", point.values.join(" "), point.experiment.seed)).collect();
        assert_eq!(
            told[..5],
            ["0.1 deterministic 1", "0.1 deterministic 2", "0.1 adaptive 1", "0.1 adaptive 2", "0.3 deterministic 1"]
        );
        assert_eq!((told.len(), sweep.points[7].experiment.traffic[0].load), (8, 0.3));
        std::fs::remove_dir_all(dir).expect("it can be removed");
    }

    #[test]
    fn results_are_the_same_on_any_number_of_threads_and_after_any_interruption() {
        let read = |dir: &Path, name: &str| std::fs::read(dir.join(name)).expect("it was written");
        let [one, four] = ["one", "four"].map(room);
        let over = ["traffic.0.load=0.1,0.2,0.3", "traffic.0.bytes=128,256"];
        let whole = sweep(&one, &over, 2).expect("a sweep");
        assert_eq!(run(&one, &whole, 1), 0);
        // A part, its last line torn, and then all of it.
        assert_eq!(run(&four, &sweep(&four, &["traffic.0.load=0.2"], 2).expect("a sweep"), 4), 0);
        let part = read(&four, "results.jsonl");
        std::fs::write(four.join("results.jsonl"), &part[..part.len() - 9]).expect("it can be cut");
        assert_eq!(run(&four, &sweep(&four, &over, 2).expect("a sweep"), 4), 1);
        for name in ["results.csv", "results.parquet", "mean-latency.svg", "report.html"] {
            assert!(read(&one, name) == read(&four, name), "{name} differs");
        }
        assert_eq!(run(&one, &whole, 2), 12);
        // The same file with something else in it is another experiment.
        std::fs::write(one.join("x.toml"), SMALL.replace("[2, 2]", "[2, 3]")).expect("it can be written");
        assert_eq!(run(&one, &sweep(&one, &over, 1).expect("a sweep"), 2), 0);
        for dir in [one, four] {
            std::fs::remove_dir_all(dir).expect("it can be removed");
        }
    }

    #[test]
    fn runs_from_elsewhere_are_taken_when_they_are_the_right_ones() {
        let [here, threads] = ["elsewhere", "threads"].map(room);
        let over = ["traffic.0.load=0.1,0.2"];
        let sweep = sweep(&here, &over, 1).expect("a sweep");
        let mut runs = sweep.open(Some(&here)).expect("a folder");
        let busy = sweep.open(Some(&here)).expect_err("another sweep is at it").to_string();
        assert!(busy.contains("another sweep"), "{busy}");
        let line = |at| carry_out(&sweep.task(at), Path::new("/"), &|_| true).expect("it runs");
        let told = |line: &str, runs: &mut Runs| runs.keep_line(0, line).expect_err("it is wrong").to_string();
        assert!(told(&line(1), &mut runs).contains("another experiment"));
        assert!(told(&line(0).replace(VERSION, "0.0.1"), &mut runs).contains("install the same"));
        assert!(told(&line(0).replace("\"traces\":[]", "\"traces\":[\"a\"]"), &mut runs).contains("other content"));
        for at in runs.missing() {
            runs.keep_line(at, &line(at)).expect("the right one");
        }
        assert_eq!(runs.finish(&sweep).expect("it can be written").len(), 2);
        run(&threads, &sweep, 2);
        for name in ["results.csv", "results.parquet", "mean-latency.svg", "report.html"] {
            let read = |dir: &Path| std::fs::read(dir.join(name)).expect("it was written");
            assert!(read(&here) == read(&threads), "{name} differs");
        }
        for dir in [here, threads] {
            std::fs::remove_dir_all(dir).expect("it can be removed");
        }
    }

    #[test]
    fn what_is_wrong_names_its_combination() {
        let dir = room("wrong");
        let error = |over: &[&str]| sweep(&dir, over, 1).expect_err("it is wrong").to_string();
        assert!(error(&["traffic.0.lod=1,2"]).contains("traffic.0.lod=1"));
        assert!(error(&["seed=1,2", "seed=3"]).contains("twice"));
        let broken = sweep(&dir, &["traffic.0.load=0.1,1.5"], 1).expect("it can be read");
        let failure = broken.run(&dir, 1, |_| ()).expect_err("a load of 1.5");
        assert!(failure.to_string().starts_with("with traffic.0.load = 1.5, seed 1: "), "{failure}");
        assert!(matches!(failure, Error::Run { cause: gambeson_sim::Error::Config { .. }, .. }));
        std::fs::remove_dir_all(dir).expect("it can be removed");
    }
}
