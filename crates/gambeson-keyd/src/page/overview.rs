//! The first page: what needs somebody, all labels, and the end of the log.

use maud::{Markup, html};

use super::frame::{address, moment, span};
use super::inventory::{DAY, Inventory, Label, REFUSALS_MAX, SOON};
use super::live::Live;
use crate::database::Role;
use crate::{Grant, Rights};

/// Backups that are older are something to see to.
const BACKUP_DAYS: u64 = 7;
/// A standby that has said nothing for so long is something to see to.
const SILENCE: u64 = 60;

pub(super) fn page(inventory: &Inventory, live: &dyn Live) -> Markup {
    let now = inventory.now;
    let ending = inventory.labels.iter().filter(|label| label.ends_within(now, SOON)).count();
    let (role, term) = inventory.role;
    html! {
        dl.tiles {
            (tile("Labels", &inventory.labels.len().to_string(), "", None))
            (tile("Expired, or within 30 days", &ending.to_string(), if ending > 0 { "warn" } else { "good" }, None))
            (tile("Refused in 24 hours", &refused(inventory.refusals), if inventory.refusals > 0 { "warn" } else { "good" },
                  None))
            (tile("This service is", if role == Role::Primary { "primary" } else { "standby" }, "",
                  Some(&format!("term {term}"))))
            @match inventory.backup {
                Some(when) => (tile("Last backup", &format!("{} ago", span(now.saturating_sub(when))),
                                    if backup_is_late(inventory) { "warn" } else { "good" }, None)),
                None => (tile("Last backup", "none yet", if backup_is_late(inventory) { "warn" } else { "" }, None)),
            }
            @if let Some(clients) = live.clients() { (tile("Clients connected", &clients.to_string(), "", None)) }
        }
        (todo(inventory, live))
        h2 { "Labels" }
        @if inventory.labels.is_empty() {
            p { "There are none yet: " code { "gambeson key create LABEL" } " makes one." }
        } @else {
            table {
                thead { tr { th { "Label" } th { "Newest" } th { "Good until" } th { "Who may what" } th { "Last used" } } }
                tbody { @for label in &inventory.labels { (row(label, now)) } }
            }
        }
        (following(inventory, live))
        h2 { "The end of the log" }
        p { "Keep this where nobody who can write the database can: whoever puts an older database in its place is found by it, "
            "with " code { "gambeson key audit --verify --since" } "." }
        code.tail { (inventory.tail) }
    }
}

fn refused(refusals: usize) -> String {
    if refusals >= REFUSALS_MAX { format!("{REFUSALS_MAX} or more") } else { refusals.to_string() }
}

fn tile(name: &str, value: &str, state: &str, more: Option<&str>) -> Markup {
    html! { div { dt { (name) } dd class=[(!state.is_empty()).then_some(state)] { (value) @if let Some(more) = more { small { (more) } } } } }
}

fn row(label: &Label, now: u64) -> Markup {
    let newest = label.newest();
    let state = match newest.expires {
        Some(end) if end <= now => Some("bad"),
        Some(end) if end < now + SOON => Some("warn"),
        _ => None,
    };
    html! {
        tr class=[state] {
            td data-th="Label" { a href=(address("/label", &[("name", &label.name)])) { (label.name) } }
            td data-th="Newest" { span.number { (newest.number) } }
            td data-th="Good until" {
                @match newest.expires { Some(end) => span { (moment(end, now)) }, None => span.aside { "no end" } }
            }
            td data-th="Who may what" { (grants(&label.grants, now)) }
            td data-th="Last used" {
                @match &label.used {
                    Some(row) => span { (moment(row.time, now)) " " (row.who().map_or_else(String::new, |who| who.name)) },
                    None => span.aside { "not lately" },
                }
            }
        }
    }
}

/// Who may what, in one list.
pub(super) fn grants(grants: &[Grant], now: u64) -> Markup {
    html! {
        @if grants.is_empty() { span.warn { "nobody" } }
        ul {
            @for grant in grants {
                li {
                    (grant.who) ": " (rights(grant.rights))
                    @if let Some(end) = grant.until {
                        @if end <= now { " " span.aside { "until " (moment(end, now)) } }
                        @else { " " span class=[(end < now + SOON).then_some("warn")] { "until " (moment(end, now)) } }
                    }
                }
            }
        }
    }
}

pub(super) fn rights(rights: Rights) -> String {
    let words = [(rights.read, "read"), (rights.write, "write"), (rights.administer, "administer")];
    let words: Vec<_> = words.into_iter().filter_map(|(has, word)| has.then_some(word)).collect();
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

/// Rights, as `gambeson key grant` is told of them.
fn options(rights: Rights) -> String {
    let named =
        [(rights.read && !rights.write, " --read"), (rights.write, " --write"), (rights.administer, " --administer")];
    named.into_iter().filter_map(|(has, option)| has.then_some(option)).collect()
}

fn backup_is_late(inventory: &Inventory) -> bool {
    let last = inventory.backup.or(inventory.began);
    last.is_some_and(|last| last + BACKUP_DAYS * DAY < inventory.now)
}

/// What somebody should do, the worst first.
fn todo(inventory: &Inventory, live: &dyn Live) -> Markup {
    let now = inventory.now;
    let mut bad: Vec<Markup> = Vec::new();
    let mut warn: Vec<Markup> = Vec::new();
    for label in inventory.labels.iter().filter(|label| label.ends_within(now, SOON)) {
        let end = label.newest().expires.expect("it ends");
        let (link, rotate) =
            (address("/label", &[("name", &label.name)]), html! { code { "gambeson key rotate " (label.name) } });
        if end <= now {
            bad.push(
                html! { a href=(link) { (label.name) } " expired " (moment(end, now)) ": nobody is given its keys. "
                (rotate) " makes a new version." },
            );
        } else {
            warn.push(
                html! { a href=(link) { (label.name) } " expires " (moment(end, now)) ": " (rotate) " in time." },
            );
        }
    }
    for label in &inventory.labels {
        for grant in &label.grants {
            if let Some(end) = grant.until.filter(|&end| end > now && end < now + 7 * DAY) {
                warn.push(
                    html! { "The grant of " a href=(address("/label", &[("name", &label.name)])) { (label.name) } " to "
                    (grant.who) " ends " (moment(end, now)) ": "
                    code { "gambeson key grant " (label.name) " " (grant.who) (options(grant.rights)) " --until DATE" }
                    " extends it." },
                );
            }
        }
    }
    if backup_is_late(inventory) {
        warn.push(
            html! { @if inventory.backup.is_some() { "The last backup is old: " } @else { "There is no backup: " }
            code { "gambeson keyd backup FILE" } " makes one." },
        );
    }
    for standby in live.standbys() {
        let silent = standby.heard.is_none_or(|heard| heard + SILENCE < now);
        if silent {
            bad.push(html! { "The standby " (standby.name) " has not been heard of "
            @if let Some(heard) = standby.heard { "since " (moment(heard, now)) } @else { "yet" }
            ": nobody takes over if this host is gone. " code { "gambeson keyd status" } " there says why." });
        }
    }
    if let Some(following) =
        live.following().filter(|following| following.heard.is_none_or(|heard| heard + SILENCE < now))
    {
        bad.push(html! { "The primary, " (following.primary) ", has not been heard of "
        @if let Some(heard) = following.heard { "since " (moment(heard, now)) } @else { "yet" }
        ": if it is gone for good, " code { "gambeson keyd promote" } " here makes this one the primary." });
    }
    if inventory.refusals > 0 {
        let number = refused(inventory.refusals);
        warn.push(html! { a href=(address("/log", &[("event", "refusal")])) { (number) @if inventory.refusals == 1 { " request was" } @else { " requests were" }
                          " refused" } " in the last 24 hours: the log says whose, and why." });
    }
    html! {
        ul.todo {
            @for item in &bad { li.bad { (item) } }
            @for item in &warn { li.warn { (item) } }
            @if bad.is_empty() && warn.is_empty() { li.good { "Nothing needs you." } }
        }
    }
}

fn following(inventory: &Inventory, live: &dyn Live) -> Markup {
    let (now, end) = (inventory.now, inventory.tail.number);
    let standbys = live.standbys();
    html! {
        @if !standbys.is_empty() {
            h2 { "Standbys" }
            table {
                thead { tr { th { "Host" } th { "Behind" } th { "Heard of" } } }
                tbody {
                    @for standby in &standbys {
                        tr {
                            td data-th="Host" { (standby.name) }
                            td data-th="Behind" { (behind(end, standby.has)) }
                            td data-th="Heard of" {
                                @match standby.heard { Some(heard) => span { (moment(heard, now)) }, None => span.bad { "not yet" } }
                            }
                        }
                    }
                }
            }
        }
        @if let Some(following) = live.following() {
            h2 { "This is a standby" }
            p { "It follows " strong { (following.primary) } ": " (behind(following.has.unwrap_or(end), Some(end)))
                @if let Some(heard) = following.heard { ", heard of " (moment(heard, now)) } "." }
        }
    }
}

fn behind(end: u64, has: Option<u64>) -> String {
    match has.map(|has| end.saturating_sub(has)) {
        None => "it has nothing yet".into(),
        Some(0) => "nothing behind".into(),
        Some(1) => "1 row behind".into(),
        Some(rows) => format!("{rows} rows behind"),
    }
}
