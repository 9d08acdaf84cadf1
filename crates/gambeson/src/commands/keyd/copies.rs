//! `gambeson keyd backup` and `restore`.

use std::path::PathBuf;

use clap::Args;
use gambeson_keyd::Database;
use gambeson_keyd::control::{self, Command, Reply, administrator};
use gambeson_keyd::database::master_of;
use gambeson_master::{MasterKey, Place};
use gambeson_proto::directory::date;
use serde_json::json;

use super::files::Files;
use super::{failed, foreign, make_folder, told, unmade};
use crate::commands::counted;
use crate::failure::{Failure, STATUSES};

/// Copies a key service's database into a file, on its host, also while it runs
///
/// The copy is sealed as the database is: it is worth nothing without the master key, which has to be kept, too.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct Backup {
    /// The file to make
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

/// Puts a backup of a key service into the place of a database that is not there
///
/// It is verified first. What was done after the backup is missing: the command says how far its log goes. The backup has to
/// be a file of who runs this, with mode 0600; and its master key has to be there again.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct Restore {
    /// The backup
    file: PathBuf,
    /// The master key, if it is not the one that the backup names
    #[arg(long, value_name = "PLACE")]
    master_key: Option<Place>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

impl Backup {
    pub(crate) fn execute(&self) -> Result<(), Failure> {
        let to = std::path::absolute(&self.file).map_err(|error| unmade(&self.file, &error))?;
        let tail = match control::command(&self.files.socket(), &Command::Backup(control::path(&to))) {
            Some(reply) => match told(reply)? {
                Reply::Copied(tail) => tail,
                _ => return Err(foreign()),
            },
            None => self.files.open()?.backup(&to)?.to_string(),
        };
        if self.json {
            println!("{:#}", json!({ "file": to, "tail": tail, "master_key": self.files.masters()?.join(", ") }));
            return Ok(());
        }
        println!("{} is a copy of the database; its log ends with {tail}", to.display());
        println!("it opens with the master key {}", self.files.masters()?.join(", "));
        Ok(())
    }
}

impl Restore {
    pub(crate) fn execute(&self) -> Result<(), Failure> {
        let database = self.files.database();
        self.files.is_there()?;
        if let Some(beside) = database.parent().filter(|beside| !beside.as_os_str().is_empty()) {
            make_folder(beside)?;
        }
        let master = self.master()?;
        let found = Database::restore(&self.file, &database, master.as_ref(), &administrator())?;
        self.files.remember_master(&[&master.name()])?;
        if self.json {
            let about = json!({ "database": database, "master_key": master.name(), "tail": found.tail.to_string(),
                                "labels": found.labels, "files": found.files, "last": found.last.map(date) });
            println!("{about:#}");
            return Ok(());
        }
        println!(
            "database    {}, as it was written: {}, {} with anchors",
            database.display(),
            counted(found.labels, "label", "labels"),
            counted(found.files, "file", "files")
        );
        let last = found.last.map_or_else(|| "nothing".to_owned(), date);
        println!("log         ends with {}; what was done after {last} is missing", found.tail);
        println!("next        gambeson keyd serve");
        Ok(())
    }
}

impl Restore {
    /// The master key: the one that is named here, or else by the backup.
    fn master(&self) -> Result<Box<dyn MasterKey>, Failure> {
        if let Some(place) = &self.master_key {
            return self.files.master_at(place);
        }
        let (file, name) = (self.file.display(), master_of(&self.file)?);
        let place: Place = name.parse().map_err(failed)?;
        // Whoever has altered a backup must not choose the module that root loads, nor the server that is asked.
        let known = self.files.masters().is_ok_and(|known| known.contains(&name));
        if !known && !matches!(place, Place::File(_)) {
            return Err(Failure::usage(format!(
                "the backup {file} says that its master key is {name}; if that is so, say it: --master-key '{name}'"
            )));
        }
        self.files.master_at(&place).map_err(|why| {
            why.at(&format!("the backup {file} names its master key, and --master-key another place where that is now"))
        })
    }
}
