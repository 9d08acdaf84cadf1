//! `gambeson key create|list|show|rotate|expire|delete`: labels.

use clap::Args;
use gambeson_keys::{Entry, Version};
use gambeson_proto::directory::date;
use gambeson_site::directory::now;
use serde_json::{Value, json};

use super::{future, hexadecimal, lifetime, moment, service};
use crate::failure::{Failure, STATUSES};
use crate::keys::{Access, Looked, confirm};

/// Makes a label
///
/// A name has up to 64 letters, digits, '-', '_' or '.'. What is sealed under the label can be read by whoever has it:
/// you, and those to whom you export it.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Create {
    /// Its name
    label: String,
    /// Until when it is used: 2027-06-30 is until the end of that day (UTC)
    #[arg(long, value_name = "DATE", value_parser = future)]
    expires: Option<u64>,
    #[command(flatten)]
    access: Access,
}

/// Lists the labels that you may use
///
/// In a job of `gambeson run` these are the labels that its processes may use.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

/// Shows the versions of a label
///
/// Two people have the same version of a label if its verifying key is the same.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Show {
    /// Its name
    label: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

/// Makes a new version of a label
///
/// New files are sealed under the newest version, and the old ones stay for reading what was sealed before. Those who have
/// an export need a new one to read new files.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Rotate {
    /// Its name
    label: String,
    /// Until when the new version is used: 2027-06-30 is until the end of that day (UTC)
    #[arg(long, value_name = "DATE", value_parser = future)]
    expires: Option<u64>,
    #[command(flatten)]
    access: Access,
}

/// Sets until when a label is used
///
/// After that Gambeson neither opens nor seals anything with it, until its lifetime is extended. What was unwrapped before
/// is not taken back, and who has a copy of the keys can put the clock back: a lifetime is an arrangement with those who
/// keep to it. Only who may write sets it.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Expire {
    /// Its name
    label: String,
    /// The day until whose end (UTC) it is used, 2027-06-30; or a moment, 2027-06-30T12:00:00Z; or now; or never
    #[arg(long, value_name = "DATE", value_parser = end)]
    on: End,
    /// Which version; without it all of them
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    #[command(flatten)]
    access: Access,
}

/// Removes a label and all its keys from the store
///
/// Nothing that was sealed under it can be read any more, unless somebody else has the label.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Delete {
    /// Its name
    label: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    access: Access,
}

/// When a lifetime ends, if it does.
#[derive(Clone, Copy)]
struct End(Option<u64>);

fn end(text: &str) -> Result<End, String> {
    match text {
        "never" => Ok(End(None)),
        "now" => Ok(End(Some(now()))),
        date => moment(date).map(|moment| End(Some(moment))),
    }
}

impl Create {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        match self.access.client()? {
            Some(service) => service.create(&self.label, self.expires)?,
            None => self.access.open()?.change(|ring| ring.create(&self.label, self.expires))?,
        }
        println!("made label \"{}\", {}", self.label, lifetime(self.expires));
        Ok(())
    }
}

impl List {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let keys = match self.access.looked()? {
            Looked::Service(service) => return service::list(&service, self.json),
            Looked::Keys(keys) => keys,
        };
        let labels = keys.ring().labels();
        if self.json {
            let labels: Vec<_> = labels.iter().map(|entry| about(&entry.name, entry.newest())).collect();
            println!("{:#}", json!({ "store": keys.store(), "labels": labels }));
            return Ok(());
        }
        if labels.is_empty() {
            println!("the key store {} has no labels; `gambeson key create LABEL` makes one", keys.store());
            return Ok(());
        }
        let width = labels.iter().map(|entry| entry.name.len()).max().unwrap_or(0).max("LABEL".len());
        println!("{:width$}  VERSION  MAY         LIFETIME", "LABEL");
        for entry in labels {
            let newest = entry.newest();
            println!("{:width$}  {:7}  {:10}  {}", entry.name, newest.number, may(newest), lifetime(newest.expires));
        }
        Ok(())
    }
}

impl Show {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let keys = match self.access.looked()? {
            Looked::Service(service) => return service::show(&service, &self.label, self.json),
            Looked::Keys(keys) => keys,
        };
        let entry = keys.ring().entry(&self.label)?;
        if self.json {
            let versions: Vec<_> = entry.versions().iter().map(|version| about(&entry.name, version)).collect();
            println!("{:#}", json!({ "store": keys.store(), "label": entry.name, "versions": versions }));
        } else {
            print_text(keys.store(), entry);
        }
        Ok(())
    }
}

fn print_text(store: &str, entry: &Entry) {
    println!("label          {}", entry.name);
    println!("store          {store}");
    for version in entry.versions().iter().rev() {
        println!();
        println!("version        {}, made on {}", version.number, date(version.created));
        println!("may            {}", may(version));
        println!("lifetime       {}", lifetime(version.expires));
        println!("verifying key  {}", hexadecimal(&version.verifying_key));
    }
}

fn may(version: &Version) -> &'static str {
    if version.may_write() { "read+write" } else { "read" }
}

fn about(label: &str, version: &Version) -> Value {
    json!({
        "label": label,
        "version": version.number,
        "created": date(version.created),
        "expires": version.expires.map(date),
        "expired": version.expires.is_some_and(|end| end <= now()),
        "may_write": version.may_write(),
        "verifying_key": hexadecimal(&version.verifying_key),
    })
}

impl Rotate {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let service = self.access.client()?;
        let version = match &service {
            Some(service) => service.rotate(&self.label, self.expires)?,
            None => self.access.open()?.change(|ring| ring.rotate(&self.label, self.expires))?,
        };
        println!("label \"{}\" has version {version} for new files, {}", self.label, lifetime(self.expires));
        match service {
            Some(_) => {
                println!("who may use the label gets it from the service; who has an export of it needs a new one")
            }
            None => println!("who has an export of it needs a new one to read them"),
        }
        Ok(())
    }
}

impl Expire {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let End(expires) = self.on;
        match self.access.client()? {
            Some(service) => service.expire(&self.label, self.version, expires)?,
            None => self.access.open()?.change(|ring| ring.expire(&self.label, self.version, expires))?,
        }
        let which = self.version.map_or("all versions".to_owned(), |version| format!("version {version}"));
        println!("{which} of label \"{}\": {}", self.label, lifetime(expires));
        Ok(())
    }
}

impl Delete {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let service = self.access.client()?;
        let mut store = None;
        match &service {
            Some(service) => drop(service.labels(Some(vec![self.label.clone()]))?),
            None => drop(store.insert(self.access.open()?).ring().entry(&self.label)?),
        }
        let question = format!("Remove label \"{}\"? What was sealed under it cannot be read any more.", self.label);
        if !self.yes
            && !confirm(&question)?.ok_or_else(|| Failure::usage("there is no terminal to ask on; say --yes"))?
        {
            println!("label \"{}\" stays", self.label);
            return Ok(());
        }
        match (service, store) {
            (Some(service), _) => service.delete(&self.label)?,
            (None, Some(mut store)) => store.change(|ring| ring.delete(&self.label))?,
            (None, None) => unreachable!("one of both was opened"),
        }
        println!("label \"{}\" is gone", self.label);
        Ok(())
    }
}
