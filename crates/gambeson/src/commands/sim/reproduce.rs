//! `gambeson sim reproduce`: the figures and tables of the two papers.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gambeson_sim::reproduce::{Progress, Section, Setting, Verdict, page, reproduce};
use indicatif::{ProgressBar, ProgressStyle};

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
    /// Replay whole traces, not the window of iterations
    #[arg(long)]
    full: bool,
    /// How many runs at a time; the results do not depend on it [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Write all findings and their values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page in Markdown with presets, claims, verdicts and values to this file
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

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} runs {elapsed}");
    let bar = Bar(bar.with_style(style.expect("the template is well formed")));
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let setting = Setting {
        traces: arguments.traces.as_deref(),
        full: arguments.full,
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
    if let Some(path) = &arguments.page {
        let traces = if arguments.traces.is_some() { " --traces DIR" } else { "" };
        let full = if arguments.full { " --full" } else { "" };
        let command = format!("gambeson sim reproduce {}{traces}{full} --page FILE", arguments.name);
        write(path, page(&sections, &command))?;
    }
    print!("{}", text(&sections));
    Ok(ExitCode::SUCCESS)
}

fn text(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        text += &format!("{} ({}, {})\n", section.title, section.paper, section.name);
        for finding in &section.findings {
            let verdict = match finding.verdict {
                Verdict::Agrees => "agrees",
                Verdict::Differs => "differs",
                Verdict::NotReproducible => "not reproducible",
            };
            text += &format!("  {:12} {verdict:17} {}\n", finding.figure, finding.claim);
            if !finding.ours.is_empty() {
                text += &format!("{:33}here: {}\n", "", finding.ours);
            }
            if !finding.reason.is_empty() && finding.verdict != Verdict::Agrees {
                text += &format!("{:33}{}\n", "", finding.reason);
            }
        }
        text.push('\n');
    }
    text
}
