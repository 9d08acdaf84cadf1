//! `gambeson keyd init --standby-of` and `gambeson keyd promote`: a second service with the same labels.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use gambeson_keyd::control::{self, Command, Reply};
use gambeson_keyd::standby::{self, Doing, FollowerState, Source, Standing};
use gambeson_keyd::{Database, Row};
use gambeson_master::Made;
use gambeson_site::directory::now;
use serde_json::{Value, json};

use super::{Files, Init, foreign, print_master, print_next, told, unmade};
use crate::commands::counted;
use crate::commands::key;
use crate::failure::{Failure, STATUSES};
use crate::machine;

/// Makes the standby on this host the primary
///
/// From here on it makes changes, too. It refuses while a primary still answers, of all hosts that keyd.toml names, as two that
/// make changes would part. A primary that comes back later hears of it and gives and changes nothing any more; `gambeson keyd
/// init --standby-of`, there, makes it a standby.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Promote {
    /// Also while a primary still answers: it hears of it at once, and makes no more changes. On one of two primaries that were
    /// promoted equally often: it is the one that stays
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

impl Promote {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let Some(reply) = control::command(&self.files.socket(), &Command::Promote { force: self.force }) else {
            let database = self.files.must_be_there()?;
            return Err(Failure::unavailable(format!(
                "no service runs with {}; start it first: gambeson keyd serve",
                database.display()
            )));
        };
        let Reply::Promoted(term, tail) = told(reply)? else { return Err(foreign()) };
        if self.json {
            println!("{:#}", json!({ "primary": machine::host_name(), "term": term, "tail": tail }));
            return Ok(());
        }
        println!("primary     {}, in term {term}; the log ends with {tail}", machine::host_name());
        println!("next        name its own standbys in keyd.toml, if it is to have some, and start it again");
        println!(
            "            the former primary, when it is back: gambeson keyd init --standby-of {}",
            machine::host_name()
        );
        Ok(())
    }
}

impl Init {
    /// Makes a standby: in the place of a database of the same service that is there, which is set aside with what it alone
    /// has.
    pub(super) fn follow(&self, primary: &str) -> Result<(), Failure> {
        let host = standby::host_of(primary).map_err(Failure::usage)?;
        let database = self.files.database();
        if control::command(&self.files.socket(), &Command::Status).is_some() {
            return Err(Failure::usage("a service runs with this database; end it first"));
        }
        let source = Source::open(&self.files.folder(), &host)?;
        let apart = if database.exists() { self.apart(&source)? } else { Vec::new() };
        let (master, made) = match (database.exists(), &self.master_key) {
            (true, None) => (self.files.master_key()?, Made::Before),
            _ => self.master()?,
        };
        let seed = source.seed(apart.len() as u64)?;
        let list = (!apart.is_empty()).then(|| write_down(&database, &apart)).transpose()?;
        let old = database.exists().then(|| set_aside(&database)).transpose()?;
        standby::remember(&database, primary)?;
        drop(Database::create_standby(&database, master.as_ref(), &seed)?);
        self.files.remember_master(&[&master.name()])?;
        println!("database    {}, a standby's of {}", database.display(), host.name);
        print_master(master.as_ref(), made);
        if let Some(old) = old {
            println!("before      {} is the database that was here", old.display());
        }
        if let Some(list) = list {
            println!(
                "not there   {} of its log not in that of {}: {} lists them. What they changed is only in the database that was \
                 here",
                counted(apart.len() as u64, "row is", "rows are"),
                host.name,
                list.display()
            );
        }
        let keys = format!("GAMBESON_KEYS=keyd://{},{}", host.name, machine::host_name());
        print_next(&[("gambeson keyd serve", "on this host"), (&keys, "for their users")]);
        Ok(())
    }

    /// What the database that is here has in its log and the primary has not.
    fn apart(&self, source: &Source) -> Result<Vec<Row>, Failure> {
        let own = self.files.open()?;
        source.takes_the_place_of(&own)?;
        Ok(source.apart(&own)?)
    }
}

/// Lists rows in a file, one in each line.
fn write_down(database: &Path, rows: &[Row]) -> Result<PathBuf, Failure> {
    let path = beside(database, "rows-apart");
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        for row in rows {
            writeln!(file, "{}", key::row_as_json(row))?;
        }
        file.sync_all()
    };
    write().map_err(|error| unmade(&path, &error))?;
    Ok(path)
}

/// Gives a database another name, with what SQLite has beside it.
fn set_aside(database: &Path) -> Result<PathBuf, Failure> {
    let to = beside(database, "before");
    // A journal is nothing without its database, but a database without its journal would open, as it was before.
    for ending in ["", "-wal", "-shm"] {
        let with = |path: &Path| {
            let mut path = path.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        let (from, to) = (with(database), with(&to));
        if from.exists() {
            fs::rename(&from, &to).map_err(|error| unmade(&to, &error))?;
        }
    }
    Ok(to)
}

fn beside(database: &Path, what: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(format!(".{what}-{}", now()));
    path.into()
}

/// What a service says of it when it begins.
pub(super) fn begun(standing: &Standing) -> String {
    match &standing.doing {
        Doing::Primary { .. } => String::new(),
        Doing::Standby { primary, .. } => format!("gambeson keyd: a standby of {primary}\n"),
        Doing::Replaced { .. } => "gambeson keyd: replaced by another, so it gives and changes nothing\n".to_owned(),
    }
}

/// For people.
pub(super) fn print(standing: &Standing) {
    let ago = |heard: &Option<u64>| heard.map_or("never".to_owned(), |seconds| format!("{seconds} s ago"));
    match &standing.doing {
        Doing::Primary { standbys, rival } => {
            println!("duty        primary, in term {}", standing.term);
            if let Some(rival) = rival {
                println!(
                    "            and {rival} is, too: neither makes changes; on the one that stays, whether the other runs"
                );
                println!(
                    "            or not: gambeson keyd promote --force; then, on the other: gambeson keyd init --standby-of"
                );
            }
            for FollowerState { name, in_step, has, heard } in standbys {
                let step = if *in_step { "in step" } else { "not in step: changes do not wait for it" };
                println!("standby     {name}, {step}; has all through row {has}, heard {}", ago(heard));
            }
        }
        Doing::Standby { primary, heard, behind, trouble, apart, aside } => {
            println!("duty        standby of {primary}, in term {}", standing.term);
            let (behind, aside) = (counted(*behind, "row", "rows"), counted(*aside, "row", "rows"));
            println!("            heard {}, {behind} behind then; {aside} of its own to hand on", ago(heard));
            if let Some(trouble) = trouble {
                let stays = if *apart { "gives nothing, and cannot follow" } else { "cannot follow just now" };
                println!("            {stays}: {trouble}");
            }
        }
        Doing::Replaced { by } => {
            let by = by.as_deref().unwrap_or("one of its standbys");
            println!("duty        none: {by} was promoted in its place (term {})", standing.term);
            println!("            gambeson keyd init --standby-of, here, makes it a standby");
        }
    }
}

/// For programs.
pub(super) fn as_json(standing: &Standing) -> Value {
    let mut about = match &standing.doing {
        Doing::Primary { standbys, rival } => json!({ "duty": "primary", "standbys": standbys, "rival": rival }),
        Doing::Standby { primary, heard, behind, trouble, apart, aside } => {
            json!({ "duty": "standby", "primary": primary, "heard": heard, "behind": behind, "trouble": trouble,
                    "apart": apart, "aside": aside })
        }
        Doing::Replaced { by } => json!({ "duty": "none", "replaced_by": by }),
    };
    about["term"] = standing.term.into();
    about
}
