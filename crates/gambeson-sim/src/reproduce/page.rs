//! The page of a reproduction: parameters, findings and the values behind them, in Markdown.

use std::fmt::Write;

use super::{Figure, Finding, Section, Table, Verdict, parameters, short};
use crate::model::tables::Paper;

/// A page on what was reproduced by `command`. `pictures` is the folder that the figures' pictures are in, as the page
/// sees it; without one, the page has their values alone.
#[must_use]
pub fn page(sections: &[Section], command: &str, pictures: Option<&str>) -> String {
    let mut page = format!(
        "# The simulator against the papers\n\nWritten by `{command}`; not to be edited. One preset for each paper; \
         where a default was chosen by a value of the paper, the preset says which.\nA claim *agrees* by shape and ratio, *differs*, or is *not reproducible* \
         as something it needs is not to be had.\n\n"
    );
    let count =
        |verdict| sections.iter().flat_map(|section| &section.findings).filter(|f| f.verdict == verdict).count();
    let counts = [Verdict::Agrees, Verdict::Differs, Verdict::NotReproducible].map(count);
    let _ = writeln!(page, "{} claims agree, {} differ, {} are not reproducible.", counts[0], counts[1], counts[2]);
    let whole = || sections.iter().flat_map(|section| &section.findings).filter_map(|f| Some((f, f.whole.as_ref()?)));
    if whole().next().is_some() {
        let other = whole().filter(|(finding, (_, verdict))| finding.verdict != *verdict).count();
        let _ = writeln!(
            page,
            "These are for a window of iterations, the same for every trace; of the {} claims that rest on traces, whole \
             traces give {other} another verdict.",
            whole().count()
        );
    }
    if pictures.is_some() {
        page.push_str(
            "\nThe pictures have what came out here, whole traces to the right; a hollow diamond is what the paper's text \
             says of the same point. Their values are folded away below them.\n",
        );
    }
    for (paper, title) in [
        (Paper::InfiniBandSecurity, "A comprehensive framework for enhancing security in InfiniBand architecture"),
        (
            Paper::SessionKeyCache,
            "A session key caching and prefetching scheme for secure communication in cluster systems",
        ),
    ] {
        let mine = || sections.iter().filter(|section| section.paper == short(paper));
        if mine().next().is_none() {
            continue;
        }
        let _ = writeln!(page, "\n## {title}\n\n### The preset\n");
        let mut table = Table::new("", &["parameter", "value", "stated", "where, or why", "other values in"]);
        for parameter in parameters(paper) {
            let stated = if parameter.stated { "stated" } else { "unstated: default" };
            table.row([parameter.name, &parameter.value, stated, parameter.why, parameter.swept]);
        }
        write_table(&mut page, &table);
        let _ = writeln!(page, "\n### Claims\n");
        let mut table = Table::new("", &["where", "claim", "here", "verdict", "reason"]);
        for finding in mine().flat_map(|section| &section.findings) {
            let Finding { figure, claim, ours, reason, .. } = finding;
            table.row([figure.as_str(), claim, ours, word(finding.verdict), reason]);
            if let Some((ours, verdict)) = &finding.whole {
                table.row(["", "whole traces", ours, word(*verdict), ""]);
            }
        }
        write_table(&mut page, &table);
        for section in mine().filter(|section| !section.tables.is_empty() || !section.figures.is_empty()) {
            let _ = writeln!(page, "\n### {}", section.title);
            for figure in &section.figures {
                write_figure(&mut page, figure, pictures);
            }
            for table in &section.tables {
                let _ = writeln!(page, "\n{}:\n", table.title);
                write_table(&mut page, table);
            }
        }
    }
    page
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::Differs => "**differs**",
        Verdict::NotReproducible => "*not reproducible*",
    }
}

/// The picture, and its values folded away below it.
fn write_figure(page: &mut String, figure: &Figure, pictures: Option<&str>) {
    let Figure { name, title, .. } = figure;
    let _ = match pictures {
        Some(folder) => writeln!(page, "\n![{title}]({folder}/{name}.svg)"),
        None => writeln!(page, "\n**{title}**"),
    };
    let tables = figure.tables();
    if tables.is_empty() {
        return;
    }
    if pictures.is_some() {
        let _ = writeln!(page, "\n<details><summary>{title}: values</summary>");
    }
    for table in &tables {
        let _ = writeln!(page, "\n{}:\n", table.title);
        write_table(page, table);
    }
    if pictures.is_some() {
        let _ = writeln!(page, "\n</details>");
    }
}

fn write_table(page: &mut String, table: &Table) {
    let _ = writeln!(page, "| {} |", table.head.join(" | "));
    let _ = writeln!(page, "|{}", "---|".repeat(table.head.len()));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
}
