//! `gambeson sim reproduce`: the figures and tables of the two papers.

use std::collections::HashMap;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use gambeson_sim::reproduce::{Held, Progress, Section, Setting, Verdict, page, reproduce};
use gambeson_study::{VERSION, figures, lines};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::{failure, write};
use crate::failure::Failure;

/// Reproduces the figures and tables of the two papers: claim, own value, verdict and reason
#[derive(Args)]
pub(crate) struct Arguments {
    /// Which: all, or one like iba-tables, iba-fig-7, skc-fig-5
    #[arg(value_name = "NAME", default_value = "all")]
    name: String,
    /// The folder with the recorded traces (cg.A.16.npbt.zst and so on) that the SKC paper's figures need
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Replay whole traces beside the window of iterations
    #[arg(long)]
    full: bool,
    /// Keep what each run of traces gives in this file, and do not repeat what is there: a reproduction that was
    /// interrupted goes on
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// How many runs at a time; the results do not depend on it [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Write all findings and their values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the papers' figures into this folder, each as SVG and PNG: the values here, and the paper's beside them where
    /// its text gives some
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Write a page in Markdown with presets, claims, verdicts, values and the pictures, if they are drawn, to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

struct Bar(ProgressBar);

impl Progress for Bar {
    fn planned(&self, runs: usize) {
        self.0.inc_length(runs as u64);
    }

    fn done(&self) {
        self.0.inc(1);
    }
}

/// Results of runs: a line for each, of this version.
struct Results {
    path: PathBuf,
    file: Mutex<File>,
    held: HashMap<String, String>,
}

#[derive(Deserialize, Serialize)]
struct Line {
    version: String,
    key: String,
    value: String,
}

impl Results {
    fn open(path: &Path) -> Result<Self, Failure> {
        let failure = |error| Failure::system(format!("{} cannot be opened: {error}", path.display()));
        let mut file = File::options().create(true).append(true).read(true).open(path).map_err(failure)?;
        let text = lines::take_up(&mut file).map_err(failure)?;
        // A line that is none was torn when a reproduction was killed; its run is carried out again.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let held = lines.filter(|line| line.version == VERSION).map(|line| (line.key, line.value)).collect();
        Ok(Self { path: path.into(), file: Mutex::new(file), held })
    }
}

impl Held for Results {
    fn find(&self, key: &str) -> Option<String> {
        self.held.get(key).cloned()
    }

    fn keep(&self, key: &str, value: &str) -> Result<(), gambeson_sim::Error> {
        let line = Line { version: VERSION.into(), key: key.into(), value: value.into() };
        let line = serde_json::to_string(&line).expect("text is plain data") + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(|cause| gambeson_sim::Error::File { file: self.path.clone(), cause })
    }
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} runs {elapsed}");
    let bar = Bar(bar.with_style(style.expect("the template is well formed")));
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let results = arguments.results.as_deref().map(Results::open).transpose()?;
    let setting = Setting {
        traces: arguments.traces.as_deref(),
        full: arguments.full,
        held: results.as_ref().map(|results| results as &dyn Held),
        threads: arguments.threads.unwrap_or_else(processors),
        progress: &bar,
    };
    let sections = reproduce(&arguments.name, &setting);
    bar.0.finish_and_clear();
    let sections = sections.map_err(failure)?;
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&sections).expect("findings are plain data");
        write(path, json + "\n")?;
    }
    if let Some(dir) = &arguments.pictures {
        figures::draw(sections.iter().flat_map(|section| &section.figures), dir).map_err(failure)?;
    }
    if let Some(path) = &arguments.page {
        let traces = if arguments.traces.is_some() { " --traces DIR" } else { "" };
        let full = if arguments.full { " --full" } else { "" };
        let results = if arguments.results.is_some() { " --results FILE" } else { "" };
        let pictures = if arguments.pictures.is_some() { " --pictures DIR" } else { "" };
        let command = format!("gambeson sim reproduce {}{traces}{full}{results}{pictures} --page FILE", arguments.name);
        let folder = arguments.pictures.as_deref().map(|dir| from_page(path, dir)).transpose()?;
        write(path, page(&sections, &command, folder.as_deref()))?;
    }
    print!("{}", text(&sections));
    Ok(ExitCode::SUCCESS)
}

/// A folder as a page's links call it.
fn from_page(page: &Path, dir: &Path) -> Result<String, Failure> {
    let absolute = |path: &Path| {
        path.canonicalize().map_err(|error| Failure::system(format!("{} cannot be found: {error}", path.display())))
    };
    let parent = page.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (from, to) = (absolute(parent)?, absolute(dir)?);
    let common = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(common).map(|_| "..".into());
    let down = to.components().skip(common).map(|part| part.as_os_str().to_string_lossy().into_owned());
    let parts: Vec<String> = up.chain(down).collect();
    // Brackets end a link, and so do blanks.
    let link = parts.join("/").replace(' ', "%20").replace('(', "%28").replace(')', "%29");
    Ok(if link.is_empty() { ".".into() } else { link })
}

fn text(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        text += &format!("{} ({}, {})\n", section.title, section.paper, section.name);
        for finding in &section.findings {
            text += &format!("  {:12} {:17} {}\n", finding.figure, word(finding.verdict), finding.claim);
            if !finding.ours.is_empty() {
                text += &format!("{:33}here: {}\n", "", finding.ours);
            }
            if let Some((ours, verdict)) = &finding.whole {
                text += &format!("{:33}whole traces: {} ({ours})\n", "", word(*verdict));
            }
            if !finding.reason.is_empty() && finding.verdict != Verdict::Agrees {
                text += &format!("{:33}{}\n", "", finding.reason);
            }
        }
        text.push('\n');
    }
    text
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::Differs => "differs",
        Verdict::NotReproducible => "not reproducible",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_the_end_of_the_program_in_the_middle_of_a_line() {
        let path = std::env::temp_dir().join(format!("gambeson-results-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let open = || Results::open(&path).expect("the folder can be written");
        open().keep("a run", "1").expect("the file can be written");
        let torn = std::fs::read_to_string(&path).expect("it is there")
            + "{\"version\":\"0.0.0\",\"key\":\"o\",\"value\":\"7\"}\n{\"vers";
        std::fs::write(&path, torn).expect("the file can be written");
        let results = open();
        assert_eq!(
            (results.find("a run"), results.find("o")),
            (Some("1".into()), None),
            "another version's is not ours"
        );
        results.keep("another", "2").expect("the file can be written");
        let results = open();
        assert_eq!((results.find("a run"), results.find("another")), (Some("1".into()), Some("2".into())));
        std::fs::remove_file(&path).expect("it is there");
    }
}
