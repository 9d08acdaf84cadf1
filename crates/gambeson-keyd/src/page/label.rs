//! One label: its versions, who may what with it, and what was done with it lately.

use maud::{Markup, html};

use super::frame::{address, moment};
use super::inventory::{Label, SOON};
use super::log::table;
use super::overview::rights;
use crate::Row;

/// So many of its latest rows are shown.
pub(super) const ROWS: usize = 50;

pub(super) fn page(label: &Label, rows: &[Row], now: u64) -> Markup {
    html! {
        h2 { "Versions" }
        table {
            thead { tr { th { "Version" } th { "Made" } th { "Good until" } th { "For" } } }
            tbody {
                @for version in label.versions.iter().rev() {
                    @let state = match version.expires {
                        Some(end) if end <= now => Some("bad"),
                        Some(end) if end < now + SOON => Some("warn"),
                        _ => None,
                    };
                    tr class=[state] {
                        td data-th="Version" { (version.number) @if version.number == label.newest().number { " " span.aside { "(newest)" } } }
                        td data-th="Made" { span { (moment(version.created, now)) } }
                        td data-th="Good until" {
                            @match version.expires { Some(end) => span { (moment(end, now)) }, None => span.aside { "no end" } }
                        }
                        td data-th="For" { (if version.signs { "reading and writing" } else { "reading" }) }
                    }
                }
            }
        }
        h2 { "Who may what" }
        @if label.grants.is_empty() {
            p.warn { "Nobody has a grant, so nobody is given its keys." }
        } @else {
            table {
                thead { tr { th { "Who" } th { "May" } th { "Until" } } }
                tbody {
                    @for grant in &label.grants {
                        tr class=[grant.until.is_some_and(|end| end > now && end < now + SOON).then_some("warn")] {
                            td data-th="Who" { (grant.who) }
                            td data-th="May" { (rights(grant.rights)) }
                            td data-th="Until" {
                                @match grant.until {
                                    Some(end) if end <= now => span.aside { "over since " (moment(end, now)) },
                                    Some(end) => span { (moment(end, now)) },
                                    None => span.aside { "no end" },
                                }
                            }
                        }
                    }
                }
            }
        }
        h2 { "What was done with it" }
        (table(rows, now, false))
        @if rows.len() == ROWS { p { a href=(address("/log", &[("label", &label.name)])) { "All of it" } } }
    }
}
