//! Sweeps: one experiment under every combination of other values, on all cores.
//!
//! Runs do not know of each other, and results come in the order of the combinations, so that they are the same however
//! many threads there are and however often a sweep was interrupted.

mod axis;
mod page;
mod parquet;
mod picture;
mod store;
mod table;

use std::path::Path;

use gambeson_sim::Error;
use gambeson_sim::experiment::{Experiment, Outcome};
use indicatif::ProgressBar;

use crate::failure::{Failure, Status};
use crate::pool;
use store::Store;
use table::Table;

/// A key of the experiment and the values it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) key: String,
    pub(crate) values: Vec<String>,
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
        if let Some(twice) =
            values.iter().enumerate().find_map(|(at, value)| values[..at].contains(value).then_some(value))
        {
            return Err(format!("{key} is {twice} twice; leave one out, or take --repeat for several seeds"));
        }
        Ok(Self { key: key.into(), values })
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

/// Every combination, the last key changing fastest and seeds faster still.
#[derive(Debug)]
pub(crate) struct Sweep {
    over: Vec<Over>,
    repeat: u32,
    points: Vec<Point>,
}

impl Sweep {
    /// Makes the experiment of every combination, so that what is wrong with one is said before any runs.
    pub(crate) fn new(file: &Path, set: &[String], over: &[Over], repeat: u32) -> Result<Self, Error> {
        for (at, Over { key, .. }) in over.iter().enumerate() {
            if over[..at].iter().any(|other| other.key == *key) {
                return Err(Error::config(format!("--over {key} stands there twice; give all its values in one")));
            }
            if key == "seed" && repeat > 1 {
                return Err(Error::config("--over seed and --repeat both choose seeds; take one of them out"));
            }
        }
        let runs = over.iter().map(|over| over.values.len() as u64).product::<u64>() * u64::from(repeat);
        if runs > RUNS_MAX {
            return Err(Error::config(format!("a sweep of {runs} runs; cut it into sweeps of {RUNS_MAX} at most")));
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
            let mut changes = set.to_vec();
            changes.extend(over.iter().zip(&values).map(|(over, value)| format!("{}={value}", over.key)));
            let first = Experiment::read_with(file, &changes)?;
            for number in 0..u64::from(repeat) {
                let mut experiment = first.clone();
                experiment.seed = experiment.seed.wrapping_add(number);
                points.push(Point { values: values.clone(), experiment });
            }
        }
        Ok(Self { over: over.to_vec(), repeat, points })
    }

    pub(crate) fn runs(&self) -> usize {
        self.points.len()
    }

    /// Runs what `dir` does not hold yet and writes tables, pictures and the page there. Returns how many runs it held.
    pub(crate) fn run(&self, dir: &Path, jobs: usize, progress: &ProgressBar) -> Result<usize, Failure> {
        std::fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
        let mut store = Store::open(dir)?;
        let keys: Vec<store::Key> =
            self.points.iter().map(|point| store::Key::new(&point.experiment)).collect::<Result<_, _>>()?;
        let mut outcomes: Vec<Option<Outcome>> = keys.iter().map(|key| store.find(key)).collect();
        let held = outcomes.iter().flatten().count();
        progress.set_length(self.points.len() as u64);
        progress.set_position(held as u64);
        let missing: Vec<usize> = (0..outcomes.len()).filter(|&at| outcomes[at].is_none()).collect();
        let run = |&at: &usize| self.points[at].experiment.run().map_err(|error| self.failure(at, &error));
        pool::each(missing, jobs, run, |at, outcome| {
            store.append(&keys[at], &outcome)?;
            outcomes[at] = Some(outcome);
            progress.inc(1);
            Ok(())
        })?;
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        assert_eq!(outcomes.len(), self.points.len(), "every run has come to its end");
        store.arrange(&keys, &outcomes)?;
        self.report(dir, &outcomes)?;
        Ok(held)
    }

    fn failure(&self, at: usize, error: &Error) -> Failure {
        let status = match error {
            Error::File { .. } => Status::Unavailable,
            _ => Status::Data,
        };
        let point = &self.points[at];
        let values = self.over.iter().zip(&point.values).map(|(over, value)| format!("{} = {value}", over.key));
        let values: Vec<String> = values.chain([format!("seed {}", point.experiment.seed)]).collect();
        Failure::new(status, format!("with {}: {error}", values.join(", ")))
    }

    fn report(&self, dir: &Path, outcomes: &[Outcome]) -> Result<(), Failure> {
        let table = Table::new(self, outcomes);
        store::replace(&dir.join("results.csv"), table.csv().as_bytes())?;
        store::replace(&dir.join("results.parquet"), &parquet::encode(&table, self))?;
        let charts = picture::charts(self, outcomes);
        for chart in &charts {
            store::replace(&dir.join(format!("{}.svg", chart.name)), picture::svg(chart).as_bytes())?;
            picture::png(chart, &dir.join(format!("{}.png", chart.name))).map_err(Failure::system)?;
        }
        store::replace(&dir.join("report.html"), page::page(self, &table, &charts).as_bytes())
    }
}

/// More runs than this are a slip of the pen.
const RUNS_MAX: u64 = 1_000_000;
/// Results of another version are not taken for this one's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::system(format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
        Sweep::new(&dir.join("x.toml"), &[], &over, repeat)
    }

    fn run(dir: &Path, sweep: &Sweep, jobs: usize) -> usize {
        sweep.run(dir, jobs, &ProgressBar::hidden()).expect("the sweep runs")
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
    fn what_is_wrong_names_its_combination() {
        let dir = room("wrong");
        let error = |over: &[&str]| sweep(&dir, over, 1).expect_err("it is wrong").to_string();
        assert!(error(&["traffic.0.lod=1,2"]).contains("traffic.0.lod=1"));
        assert!(error(&["seed=1,2", "seed=3"]).contains("twice"));
        let broken = sweep(&dir, &["traffic.0.load=0.1,1.5"], 1).expect("it can be read");
        let failure = broken.run(&dir, 1, &ProgressBar::hidden()).expect_err("a load of 1.5");
        assert!(failure.to_string().starts_with("with traffic.0.load = 1.5, seed 1: "), "{failure}");
        assert_eq!(failure.status, Status::Data);
        std::fs::remove_dir_all(dir).expect("it can be removed");
    }
}
