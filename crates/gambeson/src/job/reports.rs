//! What the ranks left in the job's directory: their pages, and the guard's refusals.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::ledger::{PAGE_LEN, PageError, Report, STATE_OFFSET, State};

/// Everything the ranks said.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// Of the ranks that proved they hold the job's secret, by rank.
    pub(crate) ranks: Vec<Report>,
    /// Of ranks that must not run, by whoever noticed.
    pub(crate) refusals: Vec<Refusal>,
    /// Who started MPI, by the file names' end: the process, on another host with the host before it.
    started: Vec<(String, String)>,
    /// Who opened a domain of links.
    pub(crate) linked: Vec<String>,
    /// The same ends of those whose provider opened a page.
    registered: Vec<String>,
}

/// One rank that must not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct Refusal {
    /// The rank and its host.
    pub(crate) who: String,
    /// Cause and remedy.
    pub(crate) sentence: String,
}

/// Whether a rank says that it must not run. A glance, taken often: nothing is verified.
pub(crate) fn alarming(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| {
        let name = name.to_string_lossy();
        name.starts_with("refused-") || (name.starts_with("rank-") && says_failed(&directory.join(&*name)))
    })
}

fn says_failed(path: &Path) -> bool {
    let mut head = [0; STATE_OFFSET + 8];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head[STATE_OFFSET..] == (State::Failed as u64).to_le_bytes()
}

impl Reports {
    /// Reads a job's directory.
    pub(crate) fn read(directory: &Path, keys: &JobKeys) -> Self {
        let mut reports = Self::default();
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("rank-") {
                reports.take_page(&entry.path(), &name, keys);
            } else if name.starts_with("refused-") {
                reports.refusals.extend(refusal(&entry.path()));
            } else if let Some(process) = name.strip_prefix("started-")
                && let Some(Refusal { who, .. }) = refusal(&entry.path())
            {
                reports.started.push((process.to_owned(), who));
            } else if name.starts_with("linked-")
                && let Some(Refusal { who, .. }) = refusal(&entry.path())
            {
                reports.linked.push(who);
            }
        }
        reports.ranks.sort_by_key(|report| (report.rank.unwrap_or(u64::MAX), report.pid));
        reports.refusals.sort();
        reports.started.sort();
        reports.linked.sort();
        reports
    }

    fn take_page(&mut self, path: &Path, name: &str, keys: &JobKeys) {
        match page(path).map(|page| Report::read(&page, keys)) {
            Some(Ok(report)) => {
                if report.state == State::Failed {
                    self.refusals.push(failed(&report));
                }
                self.registered.push(name.trim_start_matches("rank-").to_owned());
                self.ranks.push(report);
            }
            Some(Err(PageError::Unproven)) => {
                let who = format!("process {}", name.trim_start_matches("rank-"));
                let sentence = format!(
                    "gambeson: {who} did not prove that it holds the job's secret. Something in the job replaced the provider; look for LD_PRELOAD and FI_PROVIDER_PATH in its start-up files."
                );
                self.refusals.push(Refusal { who, sentence });
            }
            // A page that a process was killed over before it was filled registers nobody.
            Some(Err(_)) | None => {}
        }
    }

    /// Who started MPI, and whose provider never registered.
    pub(crate) fn unprotected(&self) -> Vec<&str> {
        let lacking = self.started.iter().filter(|(process, _)| !self.registered.contains(process));
        lacking.map(|(_, who)| who.as_str()).collect()
    }

    /// Whether any process started MPI.
    pub(crate) fn started(&self) -> bool {
        !self.started.is_empty() || !self.ranks.is_empty()
    }
}

/// A failed rank's own sentence, or one for it.
fn failed(report: &Report) -> Refusal {
    let who = name(report);
    let sentence = if report.message.is_empty() {
        format!("gambeson: {who} was stopped by its provider.")
    } else {
        format!("gambeson: {}", report.message.trim_start_matches("gambeson: "))
    };
    Refusal { who, sentence }
}

/// A rank as sentences name it.
pub(crate) fn name(report: &Report) -> String {
    match report.rank {
        Some(rank) => format!("rank {rank} on {}", report.host),
        None => format!("process {} on {}", report.pid, report.host),
    }
}

fn page(path: &Path) -> Option<Box<[u8; PAGE_LEN]>> {
    let mut page = Box::new([0; PAGE_LEN]);
    let metadata = fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    fs::File::open(path).ok()?.read_exact(&mut *page).ok()?;
    Some(page)
}

/// The guard leaves who it stopped on the first line and why on the second.
fn refusal(path: &Path) -> Option<Refusal> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    let (who, sentence) = text.split_once('\n')?;
    Some(Refusal { who: who.to_owned(), sentence: sentence.trim().to_owned() })
}
