//! What a key service answers: keys given and changes made a second, to few clients and to many, and what it costs a job.

mod job;
mod service;

use std::fmt::Write;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use gambeson_keyd::client::Client;
use gambeson_keyd::wire::{Purpose, Want};
use gambeson_keys::KeyError;
use indicatif::ProgressBar;
use serde::Serialize;

use super::statistics::median;
use crate::failure::Failure;
use service::Service;

/// What to measure.
pub(crate) struct Wanted {
    /// How many clients at a time, each in turn.
    pub(crate) clients: Vec<usize>,
    /// How long each of them asks.
    pub(crate) time: Duration,
    /// Rounds of everything.
    pub(crate) rounds: usize,
    /// What starts the ranks of a job; empty: no job is measured.
    pub(crate) launcher: Vec<String>,
    /// How many ranks it has.
    pub(crate) ranks: usize,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    processors: usize,
    /// Load averages of one, five and fifteen minutes before the first round.
    load: [f64; 3],
    gets: Vec<Gets>,
    /// Labels made, and versions made, a second by 16 clients; one value of each round.
    creations: Vec<f64>,
    rotations: Vec<f64>,
    /// Seconds from nothing to the keys: a connection, both proofs, one request; the median of each round.
    first: Vec<f64>,
    job: Option<job::Jobs>,
}

/// Keys given to so many clients at a time.
#[derive(Debug, Serialize)]
struct Gets {
    clients: usize,
    /// Keys a second, of each round.
    rate: Vec<f64>,
    /// Median, and 99th percentile, of the seconds that one takes.
    latency: Vec<f64>,
    latency_99: Vec<f64>,
    /// Seconds until all were connected.
    connected: Vec<f64>,
    /// Clients that were refused or lost.
    refused: usize,
    /// Why the first of them was.
    why: Option<String>,
}

/// Measures all in turn.
///
/// # Errors
/// When the service does not come up, or nothing at all can be asked.
pub(crate) fn bench(wanted: &Wanted, load: [f64; 3], progress: &ProgressBar) -> Result<Report, Failure> {
    let service = Service::start()?;
    service.client()?.create(LABEL, None)?;
    let gets = |&clients| Gets {
        clients,
        rate: Vec::new(),
        latency: Vec::new(),
        latency_99: Vec::new(),
        connected: Vec::new(),
        refused: 0,
        why: None,
    };
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        processors: thread::available_parallelism().map_or(1, usize::from),
        load,
        gets: wanted.clients.iter().map(gets).collect(),
        creations: Vec::new(),
        rotations: Vec::new(),
        first: Vec::new(),
        job: None,
    };
    progress.set_length((wanted.rounds * (wanted.clients.len() + 3)) as u64);
    // Before there are the labels that are made here: a job is given all of its user's.
    if !wanted.launcher.is_empty() {
        report.job = Some(job::measure(&service, wanted, progress)?);
    }
    for round in 0..wanted.rounds {
        for gets in &mut report.gets {
            gets.measure(&service, wanted.time)?;
            progress.inc(1);
        }
        let create =
            move |client: &Client, who: usize, turn: usize| client.create(&format!("made-{round}-{who}-{turn}"), None);
        report.creations.push(changes(&service, wanted.time, create)?);
        let rotate = move |client: &Client, who: usize, turn: usize| {
            // A label has no more versions than that.
            let label = format!("rotated-{round}-{who}-{}", turn / VERSIONS);
            if turn.is_multiple_of(VERSIONS) {
                client.create(&label, None)
            } else {
                client.rotate(&label, None).map(drop)
            }
        };
        report.rotations.push(changes(&service, wanted.time, rotate)?);
        progress.inc(2);
        let mut first = Vec::new();
        for _ in 0..FIRST {
            let began = Instant::now();
            let client = service.client()?;
            client.ring(Some(vec![LABEL.to_owned()]), Want::Most, Purpose::Use)?;
            first.push(began.elapsed().as_secs_f64());
        }
        report.first.push(median(&first));
        progress.inc(1);
    }
    Ok(report)
}

impl Gets {
    fn measure(&mut self, service: &Service, time: Duration) -> Result<(), Failure> {
        let began = Instant::now();
        let ready = Arc::new(Barrier::new(self.clients + 1));
        let mut running = Vec::new();
        for _ in 0..self.clients {
            let (ready, client) = (ready.clone(), service.client()?);
            let ask = move || -> Result<Vec<f64>, KeyError> {
                let get = || client.ring(Some(vec![LABEL.to_owned()]), Want::Most, Purpose::Use).map(drop);
                let connected = get();
                ready.wait();
                connected?;
                let (began, mut took) = (Instant::now(), Vec::new());
                while began.elapsed() < time {
                    let begun = Instant::now();
                    get()?;
                    took.push(begun.elapsed().as_secs_f64());
                }
                Ok(took)
            };
            let thread = thread::Builder::new().stack_size(STACK).spawn(ask);
            running.push(thread.map_err(|cause| Failure::system(format!("no thread can be started ({cause})")))?);
        }
        ready.wait();
        self.connected.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        let mut all = Vec::new();
        for one in running {
            match one.join().expect("a client does not panic") {
                Ok(took) => all.extend(took),
                Err(why) => {
                    self.refused += 1;
                    self.why.get_or_insert(why.to_string());
                }
            }
        }
        let elapsed = began.elapsed().as_secs_f64();
        self.rate.push(all.len() as f64 / elapsed);
        all.sort_by(f64::total_cmp);
        self.latency.push(all.get(all.len() / 2).copied().unwrap_or(f64::NAN));
        self.latency_99.push(all.get(all.len() * 99 / 100).copied().unwrap_or(f64::NAN));
        Ok(())
    }
}

/// How many changes a second some clients make together.
fn changes(
    service: &Service,
    time: Duration,
    change: impl Fn(&Client, usize, usize) -> Result<(), KeyError> + Copy + Send + 'static,
) -> Result<f64, Failure> {
    let mut running = Vec::new();
    let began = Instant::now();
    for who in 0..CHANGERS {
        let client = service.client()?;
        running.push(thread::spawn(move || -> Result<usize, KeyError> {
            let mut made = 0;
            while began.elapsed() < time {
                change(&client, who, made)?;
                made += 1;
            }
            Ok(made)
        }));
    }
    let mut made = 0;
    for one in running {
        made += one.join().expect("a client does not panic")?;
    }
    Ok(made as f64 / began.elapsed().as_secs_f64())
}

impl Report {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let milliseconds = |seconds: &[f64]| median(seconds) * 1e3;
        let _ = writeln!(
            text,
            "{:>8}  {:>10}  {:>11}  {:>11}  {:>13}  {:>7}",
            "clients", "gets/s", "median (ms)", "99 % (ms)", "connected (s)", "refused"
        );
        for gets in &self.gets {
            let _ = writeln!(
                text,
                "{:>8}  {:>10.0}  {:>11.2}  {:>11.2}  {:>13.2}  {:>7}",
                gets.clients,
                median(&gets.rate),
                milliseconds(&gets.latency),
                milliseconds(&gets.latency_99),
                median(&gets.connected),
                gets.refused
            );
            if let Some(why) = &gets.why {
                let _ = writeln!(text, "          {why}");
            }
        }
        let _ = writeln!(text, "labels made by {CHANGERS} clients      {:>8.0}/s", median(&self.creations));
        let _ = writeln!(text, "labels rotated by {CHANGERS} clients   {:>8.0}/s", median(&self.rotations));
        let _ = writeln!(text, "from nothing to the keys       {:>8.2} ms", milliseconds(&self.first));
        if let Some(job) = &self.job {
            text.push_str(&job.text());
        }
        text
    }
}

const LABEL: &str = "clinical";
/// Clients that make changes.
const CHANGERS: usize = 16;
const VERSIONS: usize = 1000;
/// Connections of a round.
const FIRST: usize = 50;
const STACK: usize = 256 << 10;
