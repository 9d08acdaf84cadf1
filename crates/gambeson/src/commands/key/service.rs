//! Labels of a key service, as `gambeson key list` and `show` print them.

use gambeson_keyd::Rights;
use gambeson_keyd::client::Client;
use gambeson_keyd::wire::{LabelState, VersionState};
use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use serde_json::{Value, json};

use super::{hexadecimal, lifetime};
use crate::failure::Failure;

pub(super) fn list(service: &Client, json: bool) -> Result<(), Failure> {
    let labels = service.labels(None)?;
    if json {
        let labels: Vec<_> = labels.iter().map(|label| about(label, newest(label))).collect();
        println!("{:#}", json!({ "store": service.place().to_string(), "labels": labels }));
        return Ok(());
    }
    if labels.is_empty() {
        println!(
            "the key service {} has no labels that you may use; `gambeson key create LABEL` makes one",
            service.place()
        );
        return Ok(());
    }
    let width = labels.iter().map(|label| label.name.len()).max().unwrap_or(0).max("LABEL".len());
    let may = |label: &LabelState| if has_any(label) { rights(label.rights) } else { "-".to_owned() };
    let rights = labels.iter().map(|label| may(label).len()).max().unwrap_or(0).max("MAY".len());
    println!("{:width$}  VERSION  {:rights$}  LIFETIME", "LABEL", "MAY");
    for label in &labels {
        let newest = newest(label);
        // What ends first.
        let end = [newest.expires, label.until].into_iter().flatten().min();
        println!("{:width$}  {:7}  {:rights$}  {}", label.name, newest.number, may(label), lifetime(end));
    }
    Ok(())
}

pub(super) fn show(service: &Client, name: &str, json: bool) -> Result<(), Failure> {
    let labels = service.labels(Some(vec![name.to_owned()]))?;
    let label =
        labels.first().ok_or_else(|| Failure::unavailable(format!("{} says nothing of it", service.place())))?;
    if json {
        let versions: Vec<_> = label.versions.iter().map(|version| about(label, version)).collect();
        let grants = label.grants.as_ref().map(|grants| {
            let grant = |grant: &gambeson_keyd::Grant| {
                json!({ "who": grant.who, "rights": grant.rights, "until": grant.until.map(date),
                        "over": grant.until.is_some_and(|end| end <= now()) })
            };
            grants.iter().map(grant).collect::<Vec<_>>()
        });
        let store = service.place().to_string();
        println!("{:#}", json!({ "store": store, "label": label.name, "versions": versions, "grants": grants }));
        return Ok(());
    }
    println!("label          {}", label.name);
    println!("store          {}", service.place());
    if has_any(label) {
        println!("you may        {}, {}", rights(label.rights), lifetime(label.until));
    } else {
        println!("you may        see it, as an officer");
    }
    for version in label.versions.iter().rev() {
        println!();
        println!("version        {}, made on {}", version.number, date(version.created));
        println!("lifetime       {}", lifetime(version.expires));
        println!("verifying key  {}", hexadecimal(&version.verifying_key));
    }
    if let Some(grants) = &label.grants {
        println!();
        let width = grants.iter().map(|grant| grant.who.len()).max().unwrap_or(0).max("GRANTED TO".len());
        println!("{:width$}  {:21}  LIFETIME", "GRANTED TO", "MAY");
        for grant in grants {
            println!("{:width$}  {:21}  {}", grant.who, rights(grant.rights), lifetime(grant.until));
        }
    }
    Ok(())
}

/// As `read+write`.
pub(crate) fn rights(rights: Rights) -> String {
    let named = [(rights.read || rights.write, "read"), (rights.write, "write"), (rights.administer, "administer")];
    named.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect::<Vec<_>>().join("+")
}

fn has_any(label: &LabelState) -> bool {
    label.rights != Rights::default()
}

fn newest(label: &LabelState) -> &VersionState {
    label.versions.last().expect("a label has a version")
}

fn about(label: &LabelState, version: &VersionState) -> Value {
    json!({
        "label": label.name,
        "version": version.number,
        "created": date(version.created),
        "expires": version.expires.map(date),
        "expired": version.expires.is_some_and(|end| end <= now()),
        "may_write": label.rights.write && version.may_write,
        "rights": label.rights,
        "until": label.until.map(date),
        "verifying_key": hexadecimal(&version.verifying_key),
    })
}
