//! `gambeson keyd master-key`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use gambeson_keyd::control::{self, Command, Reply, administrator};
use gambeson_keyd::rules::Rules;
use gambeson_keyd::standby::host_of;
use gambeson_keyd::wire::Secret;
use gambeson_master::{Made, MasterKey, Place};
use zeroize::Zeroizing;

use super::files::{Files, asking, remember};
use super::{failed, foreign, told};
use crate::failure::{Failure, STATUSES};
use crate::machine;

/// Has another master key wrap the database's key, also while the service runs
///
/// Nothing else changes, and all goes on. A backup opens with what was the master key when it was made. --new-database-key
/// seals all records anew, for who fears that somebody has learned the old database key.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct ChangeMaster {
    /// The new one: as with `init`
    place: Place,
    /// A file with the passphrase of the new master key, mode 0600, instead of asking for it
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
    /// Draw another database key, too
    #[arg(long)]
    new_database_key: bool,
    #[command(flatten)]
    files: Files,
}

impl ChangeMaster {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        // Before another master key is made.
        self.files.must_be_there()?;
        let mut given = None;
        let new = asking(self.new_passphrase_file.as_deref(), "--new-passphrase-file", |ask| {
            let mut remember = |prompt: &str| {
                let passphrase = ask(prompt);
                given.clone_from(&passphrase);
                passphrase
            };
            gambeson_master::make(&self.place, &mut remember)
        });
        let (new, made) = new?;
        let old = self.files.masters()?;
        let command = Command::Master {
            place: new.name(),
            passphrase: given.map(|passphrase: Zeroizing<Vec<u8>>| Secret::from(passphrase.as_slice())),
            new_database_key: self.new_database_key,
        };
        let standbys = match control::command(&self.files.socket(), &command) {
            Some(reply) => match told(reply)? {
                Reply::Changed(standbys) => standbys,
                _ => return Err(foreign()),
            },
            None => {
                let database = self.files.open()?;
                self.files.remember_master(&both(&old, &new.name()))?;
                database.change_master(new.as_ref(), self.new_database_key, &administrator())?;
                // What it says is about this host's service, whether its rules can be read now or not.
                let rules = Rules::read(&self.files.folder().join("keyd.toml")).unwrap_or_default();
                rules.standbys.iter().filter_map(|name| host_of(name).ok()).map(|host| host.name).collect()
            }
        };
        self.files.remember_master(&[&new.name()])?;
        let when = if made == Made::Now { "made now" } else { "which was there" };
        println!("master key  {}, {when}", new.name());
        if old.iter().any(|name| *name == new.name()) {
            println!("            it was that already");
        } else {
            println!("            the last backups before this open with {}, and older ones with", old.join(", "));
            println!("            what was the master key when they were made");
        }
        if self.new_database_key {
            println!("records     sealed anew, under another database key");
            let here = machine::host_name();
            for standby in standbys.iter().filter(|standby| !standby.eq_ignore_ascii_case(&here)) {
                println!(
                    "standby     {standby} cannot follow any more, and is to be made anew: gambeson keyd init --standby-of {here}, \
                     there"
                );
            }
        }
        Ok(())
    }
}

/// What is written before the change, so that either opens the database whatever happens.
fn both<'n>(old: &'n [String], new: &'n str) -> Vec<&'n str> {
    [new].into_iter().chain(old.iter().map(String::as_str).filter(|name| *name != new)).collect()
}

/// Opens the master key that a running service is to change to, and remembers both until that is done.
pub(super) fn change_to(file: &Path, name: &str, passphrase: Option<Secret>) -> Result<Box<dyn MasterKey>, Failure> {
    let place: Place = name.parse().map_err(failed)?;
    let mut ask = |_: &str| passphrase.as_ref().map(|given| Zeroizing::new(given.as_bytes().to_vec()));
    let master = gambeson_master::open(&place, &mut ask).map_err(failed)?;
    let old = fs::read_to_string(file).unwrap_or_default();
    let old: Vec<String> = old.lines().map(str::to_owned).collect();
    // The old one first: until the change is made it is the one that opens.
    let names: Vec<_> = old.iter().map(String::as_str).filter(|one| *one != name).chain([name]).collect();
    remember(file, &names)?;
    Ok(master)
}
