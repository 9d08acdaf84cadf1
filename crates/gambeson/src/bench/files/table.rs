//! The tables of `gambeson bench files`.

use std::fmt::Write;

use crate::probe::files::work::Quantity;

use super::patterns::told;
use super::series::{Series, Times};
use super::{Report, Side};

/// All of them: for each file system and number of ranks, each side beside plain.
pub(super) fn text(report: &Report) -> String {
    let mut text = format!(
        "{}, {} rounds in alternation, load average before: {:.2} on {} processors\n",
        report.mpi, report.rounds, report.load[0], report.processors
    );
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for series in &report.series {
        let group = (&*series.file_system, series.ranks);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for (file_system, ranks) in groups {
        for side in report.sides.iter().filter(|side| **side != Side::Plain) {
            let rows: Vec<&Series> = report
                .series
                .iter()
                .filter(|series| (&*series.file_system, series.ranks) == (file_system, ranks))
                .filter(|series| series.ratio(*side).is_some())
                .collect();
            if !rows.is_empty() {
                let ranks = if ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") };
                table(&mut text, &format!("{file_system}, {ranks}: {}", side.name()), *side, &rows);
            }
        }
    }
    aims(&mut text, report);
    text
}

fn table(text: &mut String, title: &str, side: Side, rows: &[&Series]) {
    let name = if side == Side::Gocryptfs { "gocryptfs" } else { "sealed" };
    let _ = writeln!(text, "\n{title}");
    let _ = writeln!(text, "{:48}{:^19}  {name:^19}  {:^26}", "", "plain", format!("time, {name} / plain"));
    let heads = ["best", "median", "best", "median", "of best", "median", "least"];
    let _ = writeln!(
        text,
        "{:48}{:>9} {:>9}  {:>9} {:>9}  {:>8} {:>8} {:>8}",
        "", heads[0], heads[1], heads[2], heads[3], heads[4], heads[5], heads[6]
    );
    for series in rows {
        let find = |side: Side| series.sides.iter().find(|times| times.side == side);
        let (Some(plain), Some(own)) = (find(Side::Plain), find(side)) else { continue };
        let Some(ratio) = own.ratio else { continue };
        let cell = |seconds: f64| digits(series.value(seconds));
        let [plain, own] = [plain, own].map(|times: &Times| (cell(times.least()), cell(times.median())));
        let _ = writeln!(
            text,
            "{:48}{:>9} {:>9}  {:>9} {:>9}  {:>8.3} {:>8.3} {:>8.3}",
            series.title(),
            plain.0,
            plain.1,
            own.0,
            own.1,
            ratio.of_best,
            ratio.median,
            ratio.best
        );
    }
}

impl Series {
    /// Pattern, map, quantity and unit.
    fn title(&self) -> String {
        let map = told(self.map);
        let (what, unit) = match self.quantity {
            Quantity::Write => (", write", "MiB/s"),
            Quantity::WriteSynced => (", write and sync", "MiB/s"),
            Quantity::Read => (", read", "MiB/s"),
            Quantity::ReadDisk => (", read from disk", "MiB/s"),
            Quantity::Run => ("", "s"),
            Quantity::SetView => ("", "ns"),
        };
        format!("{}{map}{what}, {unit}", self.pattern)
    }

    /// In that unit.
    pub(super) fn value(&self, seconds: f64) -> f64 {
        match self.quantity {
            Quantity::Run => seconds,
            Quantity::SetView => seconds * 1e9,
            _ => self.bytes as f64 / seconds / f64::from(1 << 20),
        }
    }
}

fn aims(text: &mut String, report: &Report) {
    if report.aims.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{:66}{:>14}{:>10}{:>10}", "Aims (sealed / plain)", "", "of best", "median");
    for aim in &report.aims {
        let word = if aim.met { "met" } else { "missed" };
        let bound = format!("at most {}", aim.bound);
        let _ = writeln!(text, "{:66}{bound:>14}{:>10.3}{:>10.3}  {word}", aim.what, aim.of_best, aim.median);
    }
}

/// With three or four significant digits.
fn digits(value: f64) -> String {
    match value {
        0.0..10.0 => format!("{value:.3}"),
        10.0..100.0 => format!("{value:.2}"),
        100.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
