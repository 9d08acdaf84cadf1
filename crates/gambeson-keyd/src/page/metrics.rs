//! Metrics in Prometheus' text form. They name no label and nobody, since who fetches them is no officer.
//!
//! What is counted is counted from the log, since this service was started: what others wrote into it is not lost, and
//! what is not in it did not happen. But for commits that failed, which cannot be there.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gambeson_site::directory::now;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::certificate::Shown;
use super::inventory::{self, DAY, PARTITION};
use super::live::Live;
use crate::database::{BOUNDS, Role};
use crate::{Database, Error, Row, Snapshot, audit};

type Labels = Vec<(&'static str, String)>;
type Number = Gauge<f64, AtomicU64>;

/// What is told, and up to which row it was counted.
pub(super) struct Metrics {
    registry: Registry,
    /// One fetch at a time counts on.
    counted: Mutex<u64>,
    wanted_words: AtomicUsize,
    path: PathBuf,
    shown: Arc<Shown>,
    gets: Counter,
    failed: Counter,
    refusals: Family<Labels, Counter>,
    changes: Family<Labels, Counter>,
    rows: Gauge,
    bytes: Gauge,
    labels: Gauge,
    partitions: Gauge,
    ending: Family<Labels, Gauge>,
    backup: Number,
    primary: Gauge,
    term: Gauge,
    clients: Gauge,
    behind: Family<Labels, Gauge>,
    silent: Family<Labels, Number>,
    certificate: Number,
}

/// How long the database's commits took, as a histogram.
#[derive(Clone, Debug)]
struct Commits(Database);

impl EncodeMetric for Commits {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let commits = self.0.commits();
        let classes = commits.classes();
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(classes).collect();
        encoder.encode_histogram::<NoLabelSet>(commits.seconds(), classes.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Rows that are counted at once.
const AT_ONCE: usize = 5_000;
/// Words for what was refused that are told apart; the rest is one.
const WANTED_MAX: usize = 30;

impl Metrics {
    pub(super) fn new(database: &Database, path: PathBuf, shown: Arc<Shown>) -> Self {
        let mut registry = Registry::with_prefix("gambeson_keyd");
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, Clone::clone(&metric));
                metric
            }};
        }
        registry.register("commit_seconds", "How long commits took", Commits(database.clone()));
        Metrics {
            gets: register!("gets", "Labels whose keys were given, since the service was started", Counter::default()),
            failed: register!(
                "failed_commits",
                "Commits that the disk or the system did not let be",
                Counter::default()
            ),
            refusals: register!("refusals", "Requests that were refused, by what was wanted", Family::default()),
            changes: register!("changes", "Changes, by what was changed", Family::default()),
            rows: register!("log_rows", "Rows of the log", Gauge::default()),
            bytes: register!("database_bytes", "The size of the database's files", Gauge::default()),
            labels: register!("labels", "Labels", Gauge::default()),
            partitions: register!("partitions", "Partitions", Gauge::default()),
            ending: register!(
                "labels_expiring",
                "Labels whose newest version expires within some days; 0 days: has expired",
                Family::default()
            ),
            backup: register!(
                "backup_age_seconds",
                "Time since the last backup, or since the log began if there is none",
                Number::default()
            ),
            primary: register!("primary", "1 if this is the primary, 0 if it is a standby", Gauge::default()),
            term: register!("term", "How often a standby was promoted", Gauge::default()),
            clients: register!("clients", "Clients that are connected", Gauge::default()),
            behind: register!("behind_rows", "Rows that a standby has not got yet", Family::default()),
            silent: register!(
                "silent_seconds",
                "Time since a standby, or the primary, was heard of; -1 if it never was",
                Family::default()
            ),
            certificate: register!(
                "page_certificate_seconds",
                "For how long the certificate of this page is good",
                Number::default()
            ),
            counted: Mutex::new(database.tail().number),
            wanted_words: AtomicUsize::new(0),
            path,
            shown,
            registry,
        }
    }

    /// All of them, as they are now.
    pub(super) fn text(&self, database: &Database, live: &dyn Live) -> Result<String, Error> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let end = database.read(|snapshot| {
            self.count(snapshot, &mut counted)?;
            self.measure(snapshot, database)
        })?;
        self.measure_others(live, end);
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("memory takes all");
        Ok(text)
    }

    /// Counts the rows that are new.
    fn count(&self, snapshot: &Snapshot<'_>, counted: &mut u64) -> Result<(), Error> {
        loop {
            let rows = snapshot.log(*counted + 1, AT_ONCE)?;
            for row in &rows {
                self.count_row(row);
                *counted = row.number;
            }
            if rows.len() < AT_ONCE {
                return Ok(());
            }
        }
    }

    fn count_row(&self, row: &Row) {
        match &*row.event {
            audit::events::GET => self.gets.inc(),
            audit::events::REFUSAL => {
                let about = row.about();
                let wanted = about.get("wanted").and_then(|wanted| wanted.as_str()).unwrap_or("unknown");
                self.refusals.get_or_create(&self.wanted(wanted)).inc()
            }
            event => self.changes.get_or_create(&vec![("event", event.to_owned())]).inc(),
        };
    }

    /// What was wanted, as long as it is one of few words.
    fn wanted(&self, wanted: &str) -> Labels {
        let is_word = wanted.len() <= 30 && wanted.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let labels = vec![("wanted", wanted.to_owned())];
        let known = self.refusals.get(&labels).is_some();
        match is_word && (known || self.wanted_words.fetch_add(1, Ordering::Relaxed) < WANTED_MAX) {
            true => labels,
            false => vec![("wanted", "other".to_owned())],
        }
    }

    fn measure(&self, snapshot: &Snapshot<'_>, database: &Database) -> Result<u64, Error> {
        let now = now();
        let tail = snapshot.tail()?;
        let labels = snapshot.labels()?;
        let ends: Vec<_> = labels.iter().filter_map(|label| label.entry.newest().expires).collect();
        for days in [0, 7, 30] {
            let count = ends.iter().filter(|&&end| end <= now + days * DAY).count();
            self.ending.get_or_create(&vec![("days", days.to_string())]).set(count as i64);
        }
        self.labels.set(labels.len() as i64);
        self.partitions.set(snapshot.names(PARTITION)?.len() as i64);
        self.rows.set(tail.number as i64);
        self.failed.inc_by(database.health().failures().saturating_sub(self.failed.get()));
        self.bytes.set(self.size() as i64);
        let last = match inventory::last_backup(snapshot)? {
            Some(last) => last,
            None => snapshot.log(1, 1)?.first().map_or(now, |row| row.time),
        };
        self.backup.set(now.saturating_sub(last) as f64);
        let (role, term) = database.role();
        self.primary.set(i64::from(role == Role::Primary));
        self.term.set(term as i64);
        let until = self.shown.until().unwrap_or(0);
        self.certificate.set(until as f64 - now as f64);
        Ok(tail.number)
    }

    /// The database's file, and what SQLite has beside it.
    fn size(&self) -> u64 {
        let beside = ["", "-wal", "-shm"].map(|end| {
            let mut path = self.path.clone().into_os_string();
            path.push(end);
            fs::metadata(path).map_or(0, |metadata| metadata.len())
        });
        beside.iter().sum()
    }

    fn measure_others(&self, live: &dyn Live, end: u64) {
        let now = now();
        if let Some(clients) = live.clients() {
            self.clients.set(clients as i64);
        }
        self.behind.clear();
        self.silent.clear();
        let silence = |heard: Option<u64>| heard.map_or(-1.0, |heard| now.saturating_sub(heard) as f64);
        for standby in live.standbys() {
            let named = vec![("host", standby.name)];
            self.behind.get_or_create(&named).set(end.saturating_sub(standby.has.unwrap_or(0)) as i64);
            self.silent.get_or_create(&named).set(silence(standby.heard));
        }
        if let Some(following) = live.following() {
            let named = vec![("host", following.primary)];
            self.silent.get_or_create(&named).set(silence(following.heard));
            if let Some(has) = following.has {
                self.behind.get_or_create(&vec![("host", "this".to_owned())]).set(has.saturating_sub(end) as i64);
            }
        }
    }
}
