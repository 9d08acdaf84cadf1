//! `gambeson key audit`: what was done with a key service's labels, and what was refused.

use clap::Args;
use gambeson_keyd::client::Client;
use gambeson_keyd::wire::ROWS_MAX;
use gambeson_keyd::{Row, audit};
use gambeson_proto::directory::date;
use serde_json::{Value, json};

use super::hexadecimal;
use crate::failure::{Failure, STATUSES};
use crate::keys::Access;

/// Shows what was done with labels of a key service, and what was refused
///
/// Who administers a label sees its part; officers, whom the service's keyd.toml names, see all of it. Every row has a hash
/// over it and the row before, and the service keeps the last one under its key: --verify has it look whether the log and all
/// records are as they were written. That somebody has put the whole database of some earlier day back shows only to who has
/// kept what the log ended with, and gives that with --since.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Audit {
    /// Of which label; without one, of all
    label: Option<String>,
    /// Verify the whole log instead, and say what it ends with
    #[arg(long, conflicts_with = "label")]
    verify: bool,
    /// What the log must go through: NUMBER:HASH, as an earlier --verify printed it
    #[arg(long, value_name = "NUMBER:HASH", requires = "verify")]
    since: Option<String>,
    /// How many of the latest rows; 0 is all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    last: u64,
    /// Print JSON, a line for each row
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

impl Audit {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let service = self.access.service("`gambeson key audit`")?;
        if self.verify {
            return self.verified(&service);
        }
        let rows = self.rows(&service)?;
        // Of a standby: what it gave while its primary was away.
        let aside = service.aside(self.label.as_deref())?;
        if let (Some(label), true, true) = (&self.label, rows.is_empty(), aside.is_empty()) {
            let place = service.place();
            return Err(Failure::unavailable(format!("the log of {place} has no row of a label \"{label}\"")));
        }
        for row in rows {
            if self.json { println!("{}", as_json(&row)) } else { println!("{}", as_text(&row)) }
        }
        for row in aside {
            if self.json {
                let mut row = as_json(&row);
                row["aside"] = true.into();
                println!("{row}");
            } else {
                println!("{}  (not in the primary's log yet)", as_text(&row));
            }
        }
        Ok(())
    }

    fn verified(&self, service: &Client) -> Result<(), Failure> {
        let found = service.verify(self.since.clone())?;
        if self.json {
            let about = json!({ "tail": found.tail, "labels": found.labels, "files": found.files,
                                "last": found.last.map(date) });
            println!("{about}");
            return Ok(());
        }
        println!(
            "the log of {} and its {} labels are as they were written; it ends with {}",
            service.place(),
            found.labels,
            found.tail
        );
        println!("keep that elsewhere, and give it with --since the next time");
        Ok(())
    }

    /// In the order in which they were written.
    fn rows(&self, service: &Client) -> Result<Vec<Row>, Failure> {
        let wanted = if self.last == 0 { u64::MAX } else { self.last };
        let mut rows: Vec<Row> = Vec::new();
        match &self.label {
            Some(label) => {
                let mut before = u64::MAX >> 1;
                while (rows.len() as u64) < wanted {
                    let limit = (wanted - rows.len() as u64).min(ROWS_MAX.into()) as u32;
                    let (more, _) = service.log(Some(label), before, limit)?;
                    let Some(first) = more.iter().map(|row| row.number).min() else { break };
                    before = first;
                    rows.extend(more);
                }
                rows.sort_by_key(|row| row.number);
            }
            None => {
                let (_, tail) = service.log(None, 1, 0)?;
                let end = tail.split(':').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
                let mut next = end.saturating_sub(wanted - 1).max(1);
                while next <= end {
                    let (more, _) = service.log(None, next, ROWS_MAX)?;
                    let Some(last) = more.iter().map(|row| row.number).max() else { break };
                    next = last + 1;
                    rows.extend(more);
                }
            }
        }
        Ok(rows)
    }
}

fn who(row: &Row) -> (String, String) {
    row.who().map_or_else(Default::default, |who| (who.roles.last().unwrap_or(&who.name).clone(), who.from))
}

fn as_text(row: &Row) -> String {
    let (who, from) = who(row);
    let mut text = format!("{:6}  {}  {:11}  {who}", row.number, date(row.time), row.event);
    if !from.is_empty() {
        text.push_str(&format!(" from {from}"));
    }
    if let Some(label) = &row.label {
        text.push_str(&format!("  \"{label}\""));
    }
    if let Some(file) = &row.file {
        text.push_str(&format!("  file {}", hexadecimal(file)));
    }
    if let (Some(record), None) = (&row.record, &row.label) {
        text.push_str(&format!("  {record}"));
    }
    for (name, value) in row.about() {
        match audit::readable(&name, &value) {
            None => {}
            Some(value) if name == "until" => text.push_str(&format!("  until {value}")),
            Some(value) => text.push_str(&format!("  {name}: {value}")),
        }
    }
    // What a refusal says may hold anything that was asked for.
    text.chars().map(|one| if one.is_control() { '?' } else { one }).collect()
}

/// For programs.
pub(crate) fn as_json(row: &Row) -> Value {
    json!({
        "number": row.number,
        "time": date(row.time),
        "event": row.event,
        "label": row.label,
        "file": row.file.as_ref().map(|file| hexadecimal(file)),
        "who": serde_json::from_str::<Value>(&row.who).unwrap_or_default(),
        "record": row.record,
        "about": audit::dated(row.about()),
        "hash": hexadecimal(&row.hash),
    })
}
