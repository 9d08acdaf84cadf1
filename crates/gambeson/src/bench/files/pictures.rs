//! The pictures of `gambeson bench files`.

use gambeson_sim::reproduce::{Figure, Panel, Scale, Series as Bars, Shape};

use crate::probe::files::work::{Kernel, Map, Quantity};
use crate::probe::plan::bytes;

use super::patterns::Group;
use super::series::Series;
use super::{Report, Side};

/// All that a report has the values for.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let mut figures = Vec::new();
    figures.extend(throughput(report));
    for (is_memory, name, title) in [
        (false, "files-figure-10", "Execution time of the kernels, sealed / plain, by ranks (disk)"),
        (true, "files-figure-10-memory", "Execution time of the kernels, sealed / plain, by ranks (memory)"),
    ] {
        figures.extend(figure_10(report, is_memory, name, title));
    }
    figures.extend(figure_11a(report));
    figures.extend(figure_11b(report));
    figures
}

/// What sealing costs accesses of each kind, on each file system.
fn throughput(report: &Report) -> Option<Figure> {
    let quantities = [
        (Quantity::Write, "write"),
        (Quantity::WriteSynced, "write and sync"),
        (Quantity::Read, "read, page cache"),
        (Quantity::ReadDisk, "read, disk"),
    ];
    let base = base(report)?;
    let sides = report.sides.iter().filter(|side| **side == base || **side == Side::Gocryptfs);
    let mut lines: Vec<(String, Side, &str)> = Vec::new();
    for side in sides {
        for series in report.series.iter().filter(|series| series.ranks == report.series[0].ranks) {
            let name = if *side == base { "sealed" } else { "gocryptfs" };
            let line = (format!("{name}, {}", series.file_system), *side, &*series.file_system);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let panel = |y_title, pattern: &str| {
        let bars = lines.iter().map(|(name, side, file_system)| {
            let at = |(quantity, _): &(Quantity, &str)| {
                let own = |one: &&Series| one.pattern == pattern && one.quantity == *quantity;
                let mut found = report.series.iter().filter(own).filter(|one| one.file_system == *file_system);
                found.next()?.ratio(*side).map(|ratio| ratio.of_best)
            };
            Bars { name: name.clone(), values: quantities.iter().map(at).collect(), paper: Vec::new() }
        });
        Panel { y_title, scale: Scale::Linear, series: bars.collect(), whole: Vec::new() }
    };
    let named = [
        ("independent, time / plain", "independent"),
        ("collective, time / plain", "collective"),
        ("16 KiB pieces, time / plain", "16 KiB pieces"),
    ];
    let there = named.into_iter().filter(|(_, pattern)| report.series.iter().any(|one| one.pattern == *pattern));
    let panels: Vec<Panel> = there.map(|(y_title, pattern)| panel(y_title, pattern)).collect();
    (!panels.is_empty()).then(|| Figure {
        name: "files",
        title: "What sealing costs reading and writing: time by that of plain files, best rounds",
        shape: Shape::Bars,
        x_title: "",
        x: quantities.iter().map(|(_, name)| (*name).to_owned()).collect(),
        paper: "",
        panels,
    })
}

/// The paper's Fig. 10: bars of ranks for each kernel, above with map = view, below with map != view.
fn figure_10(report: &Report, is_memory: bool, name: &'static str, title: &'static str) -> Option<Figure> {
    let base = base(report)?;
    let of: Vec<&Series> =
        report.series.iter().filter(|one| one.group == Group::Kernels && one.is_memory == is_memory).collect();
    let mut ranks: Vec<usize> = of.iter().map(|one| one.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let panel = |y_title, map| {
        let bars = ranks.iter().map(|&ranks| {
            let at = |kernel: Kernel| {
                let own = |one: &&&Series| one.ranks == ranks && one.map == map && one.pattern == kernel.name();
                of.iter().find(own)?.ratio(base).map(|ratio| ratio.median)
            };
            let name = if ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") };
            Bars { name, values: Kernel::ALL.map(at).to_vec(), paper: Vec::new() }
        });
        Panel { y_title, scale: Scale::Linear, series: bars.collect(), whole: Vec::new() }
    };
    (!ranks.is_empty()).then(|| Figure {
        name,
        title,
        shape: Shape::Bars,
        x_title: "",
        x: Kernel::ALL.map(|kernel| kernel.name().to_owned()).to_vec(),
        paper: "",
        panels: vec![panel("(a) map = view", Map::View), panel("(b) map != view", Map::Other)],
    })
}

/// The paper's Fig. 11 a: suites, with the first block.
fn figure_11a(report: &Report) -> Option<Figure> {
    let Side::Sealed { block: first, .. } = base(report)? else { return None };
    let sides: Vec<Side> = report
        .sides
        .iter()
        .copied()
        .filter(|side| matches!(side, Side::Sealed { block, detached: false, .. } if *block == first))
        .collect();
    let rows = rows(report);
    let bars = sides.iter().map(|&side| Bars {
        name: side.suite().name().to_owned(),
        values: rows.iter().map(|(_, series)| series.ratio(side).map(|ratio| ratio.of_best)).collect(),
        paper: Vec::new(),
    });
    let panels = vec![Panel {
        y_title: "time by that of plain files, best rounds",
        scale: Scale::Linear,
        series: bars.collect(),
        whole: Vec::new(),
    }];
    (sides.len() > 1 && !rows.is_empty()).then(|| Figure {
        name: "files-figure-11a",
        title: "Sensitivity to the suite",
        shape: Shape::Bars,
        x_title: "",
        x: rows.iter().map(|(name, _)| name.clone()).collect(),
        paper: "",
        panels,
    })
}

/// The paper's Fig. 11 b: lengths of blocks, with the first suite.
fn figure_11b(report: &Report) -> Option<Figure> {
    let base = base(report)?;
    let mut sides: Vec<(u32, Side)> = Vec::new();
    for &side in &report.sides {
        if let Side::Sealed { suite, block, detached: false } = side
            && suite == base.suite()
        {
            sides.push((block, side));
        }
    }
    sides.sort_by_key(|(block, _)| *block);
    let rows = rows(report);
    let lines = rows.iter().map(|(name, series)| Bars {
        name: name.clone(),
        values: sides.iter().map(|&(_, side)| series.ratio(side).map(|ratio| ratio.of_best)).collect(),
        paper: Vec::new(),
    });
    let panels = vec![Panel {
        y_title: "time by that of plain files, best rounds",
        scale: Scale::Linear,
        series: lines.collect(),
        whole: Vec::new(),
    }];
    (sides.len() > 1 && !rows.is_empty()).then(|| Figure {
        name: "files-figure-11b",
        title: "Sensitivity to the length of blocks",
        shape: Shape::Bars,
        x_title: "length of a block",
        x: sides.iter().map(|&(block, _)| bytes(block as usize)).collect(),
        paper: "",
        panels,
    })
}

/// What sensitivity is shown of: on the first file system and number of ranks, collective accesses and kernels.
fn rows(report: &Report) -> Vec<(String, &Series)> {
    let Some(first) = report.series.first() else { return Vec::new() };
    let here = report.series.iter().filter(|one| (&one.file_system, one.ranks) == (&first.file_system, first.ranks));
    let named = here.filter_map(|one| match (one.group, one.quantity, one.map) {
        (Group::Ior, Quantity::Write, _) if one.pattern == "collective" => Some(("write".to_owned(), one)),
        (Group::Ior, Quantity::Read, _) if one.pattern == "collective" => Some(("read".to_owned(), one)),
        (Group::Kernels, _, Map::View) => Some((one.pattern.clone(), one)),
        _ => None,
    });
    named.collect()
}

/// The sealed side that others are varied from.
fn base(report: &Report) -> Option<Side> {
    report.sides.iter().copied().find(|side| matches!(side, Side::Sealed { .. }))
}
