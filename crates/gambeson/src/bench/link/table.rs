//! The tables of `gambeson bench link`.

use std::fmt::Write;

use super::side::Kind;
use super::{Report, Series};
use crate::probe::plan::bytes;

/// All of them.
pub(super) fn text(report: &Report) -> String {
    let mut text = format!(
        "Links between two processes of one host, {} runs in alternation, load average before: {:.2} on {} processors\n",
        report.runs, report.load[0], report.processors
    );
    let mut carriers: Vec<&str> = Vec::new();
    for series in &report.series {
        if !carriers.contains(&&*series.carrier) {
            carriers.push(&series.carrier);
        }
    }
    for carrier in carriers {
        carried(&mut text, report, carrier);
    }
    peers(&mut text, report);
    aims(&mut text, report);
    text
}

/// Others' libraries beside sealed links.
fn peers(text: &mut String, report: &Report) {
    if report.peers.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nSealed, beside others' libraries: medians, and what is best");
    let heads = ["8 B there and back, µs", "64 outstanding, 1000/s", "1 MiB one way, MB/s", "CPU ns/B"];
    let _ = writeln!(text, "{:38}{:>24}{:>24}{:>24}{:>10}", "", heads[0], heads[1], heads[2], heads[3]);
    for first in report.peers.iter().filter(|series| series.kind == Kind::Trips) {
        let _ = write!(text, "{:38}", format!("{}, {}", first.side, first.carrier));
        let own = |one: &&Series| (&one.side, &one.carrier) == (&first.side, &first.carrier);
        for series in report.peers.iter().filter(own) {
            let value = |seconds: f64| match series.kind {
                Kind::Trips => seconds * 1e6,
                Kind::Outstanding => 1e-3 / seconds,
                Kind::Stream => series.length as f64 / seconds / 1e6,
            };
            let cell = format!("{} ({})", told(value(series.median())), told(value(series.least())));
            let _ = write!(text, "{cell:>24}");
            if series.kind == Kind::Stream {
                let _ = write!(text, "{:>10.3}", series.cpu_ns_per_byte());
            }
        }
        text.push('\n');
    }
}

/// What was measured over one carrier.
fn carried(text: &mut String, report: &Report, carrier: &str) {
    let of = |kind: Kind| report.series.iter().filter(move |series| series.carrier == carrier && series.kind == kind);
    let mut sides: Vec<&str> = Vec::new();
    for series in of(Kind::Trips) {
        if !sides.contains(&&*series.side) {
            sides.push(&series.side);
        }
    }
    let head = |text: &mut String, title: &str, columns: &str| {
        let _ = writeln!(text, "\n{title}");
        let names = sides.iter().map(|side| format!("{side:^24}")).collect::<String>();
        let _ = writeln!(text, "{:>9} {}", "", names.trim_end());
        let _ = writeln!(text, "{:>9}{}", "", columns.repeat(sides.len()));
    };
    let title = format!("Request and answer over {carrier}, µs: least time, by bare, median of the runs' own ratios");
    head(text, &title, "    least  by b.   (med)");
    let lengths: Vec<usize> = of(Kind::Trips).filter(|series| series.side == sides[0]).map(|one| one.length).collect();
    let row = |text: &mut String, name: &str, kind: Kind, length: usize, value: &dyn Fn(&Series) -> f64| {
        let _ = write!(text, "{name:>9}");
        let base = report.find(carrier, sides[0], kind, length);
        for side in &sides {
            let (Some(base), Some(series)) = (base, report.find(carrier, side, kind, length)) else { continue };
            let ratio = series.by(base);
            let _ = write!(text, " {:>8}{:>7.2} ({:5.2})", told(value(series)), ratio.of_least, ratio.median);
        }
        text.push('\n');
    };
    for length in lengths {
        row(text, &bytes(length), Kind::Trips, length, &|series| series.least() * 1e6);
    }
    let title = format!("More under way over {carrier}: most, time by bare, median of the runs' own ratios");
    head(text, &title, "     most  by b.   (med)");
    for series in of(Kind::Outstanding).filter(|series| series.side == sides[0]) {
        row(text, "1000/s", series.kind, series.length, &|series| 1e-3 / series.least());
    }
    for series in of(Kind::Stream).filter(|series| series.side == sides[0]) {
        row(text, "MB/s", series.kind, series.length, &|series| series.length as f64 / series.least() / 1e6);
        let _ = write!(text, "{:>9}", "CPU ns/B");
        for side in &sides {
            let found = report.find(carrier, side, series.kind, series.length);
            let cpu = found.map_or(f64::NAN, |series| series.cpu_ns_per_byte());
            let _ = write!(text, " {cpu:>8.3}{:15}", "");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "(1000/s: 8 B, 64 requests outstanding; MB/s: messages of 1 MiB one way; CPU of both processes, median, asking \
         without sleep)"
    );
}

fn aims(text: &mut String, report: &Report) {
    if report.aims.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{:71}{:>14}{:>10}{:>10}", "Aims", "", "median", "best");
    for aim in &report.aims {
        let word = if aim.met { "met" } else { "missed" };
        let (median, best) = (told(aim.median), told(aim.best));
        let _ = writeln!(text, "{:71}{:>14}{median:>10}{best:>10}  {word}", aim.what, aim.aim);
    }
}

/// With three significant digits or so.
pub(super) fn told(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
