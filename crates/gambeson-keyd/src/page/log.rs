//! The log, from the latest row on.

use maud::{Markup, html};
use serde_json::Value;

use super::frame::{address, moment};
use super::inventory::{Found, LOOKED_THROUGH_MAX, Search};
use crate::{Row, audit};

/// So many rows are on a page.
pub(super) const ROWS: usize = 100;

pub(super) fn page(search: &Search<'_>, found: &Found, from: Option<u64>, now: u64) -> Markup {
    let Search { label, who, event } = *search;
    let query = [("label", label), ("who", who), ("event", event)];
    let older = found.before.map(|before| before.to_string());
    html! {
        form method="get" action="/log" {
            label { "Label" input name="label" value=(label) size="18"; }
            label { "Who" input name="who" value=(who) size="18" placeholder="ann"; }
            label { "Event" input name="event" value=(event) size="12" placeholder="refusal"; }
            button type="submit" { "Show" }
            @if !(label.is_empty() && who.is_empty() && event.is_empty()) { a href="/log" { "all" } }
            @if event != audit::events::REFUSAL {
                a href=(address("/log", &[("label", label), ("who", who), ("event", audit::events::REFUSAL)])) { "refusals" }
            }
        }
        (table(&found.rows, now, true))
        p {
            @if from.is_some() { a href=(address("/log", &query)) { "Latest" } " " }
            @if let Some(before) = &older {
                @let [label, who, event] = query;
                a rel="next" href=(address("/log", &[label, who, event, ("before", before)])) { "Older" }
                @if found.rows.len() < ROWS {
                    " " span.aside { "(" (LOOKED_THROUGH_MAX) " rows were looked through, down to row " (before) ")" }
                }
            }
        }
    }
}

/// Rows as a table; of one label's it is not said which label.
pub(super) fn table(rows: &[Row], now: u64, with_label: bool) -> Markup {
    html! {
        @if rows.is_empty() { p { "There are no such rows." } } @else {
            table {
                thead { tr { th { "Row" } th { "When" } th { "What" } @if with_label { th { "Label" } } th { "Who" } th { "More" } } }
                tbody { @for one in rows { (row(one, now, with_label)) } }
            }
        }
    }
}

fn row(row: &Row, now: u64, with_label: bool) -> Markup {
    let refused = row.event == audit::events::REFUSAL;
    let who = row.who();
    html! {
        tr class=[refused.then_some("bad")] {
            td data-th="Row" { span.number { (row.number) } }
            td.when data-th="When" { span { (moment(row.time, now)) } }
            td data-th="What" { span class=[refused.then_some("bad")] { (row.event) } }
            @if with_label {
                td data-th="Label" {
                    @if let Some(label) = &row.label { a href=(address("/label", &[("name", label)])) { (label) } }
                }
            }
            td data-th="Who" {
                @match &who {
                    Some(who) => span { a href=(address("/log", &[("who", &who.name)])) { (who.name) } " "
                                        span.aside { @if !who.from.is_empty() { "from " (who.from) } } },
                    None => span.bad { "not to be read" },
                }
            }
            td.more data-th="More" { (more(row, now)) }
        }
    }
}

/// What else a row says.
fn more(row: &Row, now: u64) -> Markup {
    let about = row.about();
    html! {
        ul {
            @if let Some(file) = &row.file { li { span.aside { "file " } code { (data_encoding::HEXLOWER.encode(file)) } } }
            @if let (Some(record), None) = (&row.record, &row.label) { li { (record) } }
            @for (name, value) in &about {
                @if let Some(text) = audit::readable(name, value) {
                    li {
                        span.aside { (name) ": " }
                        @match value {
                            Value::Number(when) if audit::MOMENTS.contains(&&**name) => (moment(when.as_u64().unwrap_or(0), now)),
                            _ => (text),
                        }
                    }
                }
            }
        }
    }
}
