//! The page of a reproduction: parameters, findings and the values behind them, in Markdown.

use std::fmt::Write;

use super::{Finding, Section, Table, Verdict, parameters, short};
use crate::model::tables::Paper;

/// A page on what was reproduced by `command`.
#[must_use]
pub fn page(sections: &[Section], command: &str) -> String {
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
        for section in mine().filter(|section| !section.tables.is_empty()) {
            let _ = writeln!(page, "\n### {}\n", section.title);
            for (number, table) in section.tables.iter().enumerate() {
                let _ = writeln!(page, "{}{}:\n", if number == 0 { "" } else { "\n" }, table.title);
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

fn write_table(page: &mut String, table: &Table) {
    let _ = writeln!(page, "| {} |", table.head.join(" | "));
    let _ = writeln!(page, "|{}", "---|".repeat(table.head.len()));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
}
