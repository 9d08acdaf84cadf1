//! What sealed files are meant to cost at most, and whether they do.

use serde::Serialize;

use crate::bench::statistics::{Ratios, geometric_mean};
use crate::probe::files::work::{Map, Quantity};

use super::patterns::Group;
use super::series::Series;
use super::{Report, Side};

/// An aim beside what was measured.
#[derive(Debug, Serialize)]
pub(super) struct Aim {
    pub(super) what: String,
    pub(super) bound: f64,
    /// Of the best rounds, by which an aim is met.
    pub(super) of_best: f64,
    /// The median of the rounds' own ratios.
    pub(super) median: f64,
    pub(super) met: bool,
}

/// The ranks with which the paper's patterns are judged.
const RANKS: usize = 4;

/// All that a report has the values for, of the first suite with the first block.
pub(super) fn of(report: &Report) -> Vec<Aim> {
    let Some(&side) = report.sides.iter().find(|side| matches!(side, Side::Sealed { .. })) else { return Vec::new() };
    let mut aims = Vec::new();
    for series in &report.series {
        let bound = match (series.group, series.quantity) {
            (Group::Ior, Quantity::Write) => 1.15,
            (Group::Ior, Quantity::ReadDisk) => 1.10,
            (Group::Ior, Quantity::Read) => 1.6,
            (Group::Hdf5, Quantity::Write) => 1.5,
            _ => continue,
        };
        if let Some(ratio) = series.ratio(side) {
            aims.push(aim(place(series, series.title_of_aim()), bound, ratio.of_best, ratio.median));
        }
    }
    for (group, maps, name) in [
        (Group::Kernels, &[Map::View][..], "the paper's kernels, map = view"),
        (Group::Kernels, &[Map::Other][..], "the paper's kernels, map != view"),
        (Group::Matrices, &[Map::View, Map::Other][..], "the paper's matrices, with maps"),
    ] {
        aims.extend(means(report, side, group, maps, name));
    }
    aims
}

/// The geometric mean over a group on each file system with a disk.
fn means(report: &Report, side: Side, group: Group, maps: &[Map], name: &str) -> Vec<Aim> {
    let of_group = |series: &&Series| {
        let counts = series.group == group && maps.contains(&series.map);
        counts && series.ranks == RANKS && !series.is_memory
    };
    let all: Vec<&Series> = report.series.iter().filter(of_group).collect();
    let mut kinds: Vec<&str> = all.iter().map(|series| &*series.file_system).collect();
    kinds.dedup();
    let mean = |kind: &str, value: fn(Ratios) -> f64| {
        let of_kind = all.iter().filter(|series| series.file_system == kind);
        geometric_mean(of_kind.filter_map(|series| series.ratio(side)).map(value))
    };
    let each = kinds.into_iter().filter_map(|kind| {
        let (best, median) = (mean(kind, |ratio| ratio.of_best)?, mean(kind, |ratio| ratio.median)?);
        Some(aim(format!("{name}, geometric mean, {kind}, {RANKS} ranks"), 1.08, best, median))
    });
    each.collect()
}

fn aim(what: String, bound: f64, of_best: f64, median: f64) -> Aim {
    Aim { what, bound, of_best, median, met: of_best <= bound }
}

fn place(series: &Series, what: String) -> String {
    format!("{what}, {}, {} ranks", series.file_system, series.ranks)
}

impl Series {
    fn title_of_aim(&self) -> String {
        let what = match self.quantity {
            Quantity::Write => "write",
            Quantity::ReadDisk => "read from disk",
            _ => "read from page cache",
        };
        format!("{}, {what}", self.pattern)
    }
}
