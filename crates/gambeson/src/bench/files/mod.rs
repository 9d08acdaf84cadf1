//! Files of MPI-IO programs, plain and sealed in alternation.
//!
//! Both jobs are there at a time, and one works while the other sleeps: so what is compared is seconds apart at most.

mod aims;
mod gocryptfs;
mod hand;
mod patterns;
mod pictures;
mod place;
mod secrets;
mod series;
mod sides;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gambeson_proto::file::FileSuite;
use indicatif::ProgressBar;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::probe::files::work::{Map, Quantity, Work};
use crate::probe::job::{Side as Job, Starter};

pub(crate) use patterns::Group;

use aims::Aim;
use gocryptfs::Mount;
use hand::Hand;
use patterns::Pattern;
use place::Place;
use secrets::Secrets;
use series::Series;
use sides::Side;

/// What to measure.
pub(crate) struct Wanted {
    pub(crate) dirs: Vec<PathBuf>,
    pub(crate) patterns: Vec<Group>,
    /// As IOR's -b, -s and -t.
    pub(crate) block: usize,
    pub(crate) segments: usize,
    pub(crate) transfer: usize,
    /// Bytes of matrices, kernels and small pieces, of all ranks together.
    pub(crate) size: usize,
    /// Numbers of processes; empty: as the command says.
    pub(crate) ranks: Vec<u32>,
    pub(crate) suites: Vec<FileSuite>,
    pub(crate) blocks: Vec<u32>,
    pub(crate) rounds: usize,
    pub(crate) gocryptfs: bool,
    /// The first suite and block once more, as detached files.
    pub(crate) detached: bool,
    /// The libfabric provider on both sides.
    pub(crate) core: String,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    mpi: String,
    rounds: usize,
    /// Load averages of one, five and fifteen minutes before the first round.
    load: [f64; 3],
    processors: usize,
    sides: Vec<Side>,
    series: Vec<Series>,
    aims: Vec<Aim>,
}

impl Report {
    /// The tables, for people.
    pub(crate) fn text(&self) -> String {
        table::text(self)
    }

    /// Draws it into a folder.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(crate) fn draw(&self, dir: &Path) -> Result<(), Failure> {
        let drawn = gambeson_study::figures::draw(&pictures::figures(self), dir);
        drawn.map_err(|error| Failure::system(error.to_string()))
    }
}

/// Measures all that is wanted.
///
/// # Errors
/// When a job does not come up or breaks down, when there is no room, or when a side is not what it should be.
pub(crate) fn bench(
    command: &[String],
    wanted: &Wanted,
    load: [f64; 3],
    progress: &ProgressBar,
) -> Result<Report, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::system(format!("signals cannot be caught ({error})")))?;
    }
    let mut sides = wanted.sides();
    let mut places = Place::all(&wanted.dirs)?;
    if wanted.gocryptfs {
        mount(&mut places, &mut sides);
    }
    let secrets = Secrets::new(&sides)?;
    let starter = Starter::new(command, &wanted.core, Some(&secrets.policy().to_string_lossy()))?;
    let starter = starter.for_files(&secrets.store());
    let mut bench = Bench { wanted, sides, stop: &stop, progress, mpi: String::new(), series: Vec::new() };
    for place in &places {
        let jobs = match wanted.ranks.is_empty() {
            true => vec![starter.clone()],
            false => wanted.ranks.iter().map(|&ranks| starter.with_ranks(ranks)).collect(),
        };
        for starter in &jobs {
            bench.job(starter, place)?;
        }
    }
    let Bench { sides, mpi, mut series, .. } = bench;
    series::compare(&mut series);
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        mpi,
        rounds: wanted.rounds,
        load,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        sides,
        series,
        aims: Vec::new(),
    };
    report.aims = aims::of(&report);
    Ok(report)
}

/// Mounts gocryptfs in every place; where that can't be, says why and leaves it out.
fn mount(places: &mut [Place], sides: &mut Vec<Side>) {
    for place in places {
        match Mount::new(place.own()) {
            Ok(mount) => place.mount = Some(mount),
            Err(why) => eprintln!("gambeson: {} is measured without gocryptfs: {why}", place.own().display()),
        }
        if place.mount.is_some() && !sides.contains(&Side::Gocryptfs) {
            sides.push(Side::Gocryptfs);
        }
    }
}

impl Wanted {
    /// Plain first. Each suite with the first block, and each block with the first suite.
    fn sides(&self) -> Vec<Side> {
        let sealed = |suite, block| Side::Sealed { suite, block, detached: false };
        let (first_suite, first_block) = (self.suites[0], self.blocks[0]);
        let suites = self.suites.iter().map(|&suite| sealed(suite, first_block));
        let blocks = self.blocks.iter().skip(1).map(|&block| sealed(first_suite, block));
        let detached = Side::Sealed { suite: first_suite, block: first_block, detached: true };
        let detached = self.detached.then_some(detached);
        [Side::Plain].into_iter().chain(suites).chain(blocks).chain(detached).collect()
    }
}

struct Bench<'w> {
    wanted: &'w Wanted,
    sides: Vec<Side>,
    stop: &'w AtomicBool,
    progress: &'w ProgressBar,
    mpi: String,
    series: Vec<Series>,
}

/// The jobs of a number of ranks, and where they work.
struct Pair<'w> {
    plain: Hand<'w>,
    sealed: Hand<'w>,
    place: &'w Place,
    seed: u64,
}

impl<'w> Bench<'w> {
    /// All rounds of one number of ranks in one place.
    fn job(&mut self, starter: &Starter, place: &'w Place) -> Result<(), Failure> {
        let start = |side| Hand::start(starter, side, place.own(), self.stop);
        let mut pair = Pair { plain: start(Job::Plain)?, sealed: start(Job::Sealed)?, place, seed: 0 };
        self.mpi.clone_from(&pair.plain.library);
        let ranks = pair.plain.ranks;
        if self.wanted.size < patterns::size_least(ranks) {
            let least = patterns::size_least(ranks);
            return Err(Failure::usage(format!("{ranks} ranks need a --size of {least} bytes or more")));
        }
        let patterns = patterns::of(self.wanted, ranks);
        place.check_room(patterns.iter().map(|pattern| pattern.bytes).max().unwrap_or(0))?;
        let here = |side: &Side| *side != Side::Gocryptfs || place.mount.is_some();
        let sides: Vec<Side> = self.sides.iter().copied().filter(here).collect();
        self.progress.inc_length((patterns.len() * self.wanted.rounds * sides.len()) as u64);
        for &side in &sides {
            let map = Map::Rule;
            pair.perform(
                side,
                &Pattern { group: Group::Ior, name: "warm-up".into(), map, task: patterns::warm_up(), bytes: 0 },
            )?;
        }
        for round in 0..self.wanted.rounds {
            for pattern in &patterns {
                for turn in 0..sides.len() {
                    // Whoever is first finds another machine than the next.
                    let side = sides[(turn + round) % sides.len()];
                    self.progress.set_prefix(format!("{} {ranks} ranks {}", round + 1, pattern.name));
                    let times = pair.perform(side, pattern)?;
                    self.progress.inc(1);
                    for (quantity, bytes, seconds) in times {
                        series::add(&mut self.series, pattern, (quantity, bytes), place, ranks, (side, seconds));
                    }
                }
            }
        }
        pair.plain.end()?;
        pair.sealed.end()
    }
}

impl Pair<'_> {
    /// Has a side do a pattern: what was timed. What its files were on disk is looked at.
    fn perform(&mut self, side: Side, pattern: &Pattern) -> Result<Vec<(Quantity, u64, f64)>, Failure> {
        self.seed += 1;
        self.place.settle();
        let work = Work {
            folder: self.place.folder(side),
            ending: side.ending(),
            disk: self.place.disk(side),
            task: pattern.task.clone(),
            map: pattern.map,
            suite: side.suite().name().to_owned(),
            seed: self.seed,
        };
        let hand = if side.job() == Job::Sealed { &mut self.sealed } else { &mut self.plain };
        let ranks = hand.ranks;
        let done = hand.perform(work).map_err(|failure| failure.at(&pattern.title()))?;
        if done.seals.is_empty() {
            return Err(Failure::system("the probe did not say what its file was on disk"));
        }
        for (name, seal) in &done.seals {
            side.check(name, seal.as_ref(), pattern.map, ranks)?;
        }
        Ok(done.times)
    }
}
