//! `gambeson key init|unlock|lock|passphrase`: the store itself.

use std::path::PathBuf;

use clap::Args;
use gambeson_keys::{Cost, Protection, State, Store, forget, state};

use crate::failure::{Failure, STATUSES};
use crate::keys::{Access, new_passphrase};

/// Makes a key store
///
/// What is in it is sealed by a master key, which is wrapped by a passphrase: who has the files and not the passphrase has
/// nothing. For batch jobs, where nobody types a passphrase, --key-file keeps the master key in a file instead, which you
/// alone may read (mode 0600). Then whoever gets at that file and the store has all keys: root, backups, a thief of the
/// disk. Put it on another disk than the store and the sealed files.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Init {
    /// Keep the master key in a file of its own instead of under a passphrase; beside the store unless FILE says where
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "master-key")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

/// Opens the store for all you do in this session, until you log out
///
/// The kernel's session keyring remembers the master key: no file has it, and other users do not get it. All programs of
/// yours in this session can use it, jobs on this host included.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Unlock {
    /// For how many hours, unless the session ends before
    #[arg(long = "for", value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..=8760))]
    hours: Option<u32>,
    #[command(flatten)]
    access: Access,
}

/// Makes this session forget the store's master key
///
/// What has the store open goes on; what opens it from now on asks for the passphrase.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Lock {
    #[command(flatten)]
    access: Access,
}

/// Gives the store another passphrase
///
/// The master key becomes another one, too, so that old copies of the store and their passphrase open nothing new. A
/// store with a key file gets a passphrase instead, and the key file is removed.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct ChangePassphrase {
    /// A file with the new passphrase, mode 0600, instead of asking for it
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

impl Init {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let place = self.access.place()?;
        if let Ok(_there) = state(&place) {
            return Err(gambeson_keys::KeyError::StoreExists { store: place.display().to_string() }.into());
        }
        let protection =
            match &self.key_file {
                // The store looks for it from its own folder, wherever it is opened.
                Some(file) if file.as_os_str() == "master-key" => Protection::KeyFile(file.clone()),
                Some(file) => Protection::KeyFile(std::path::absolute(file).map_err(|error| {
                    Failure::usage(format!("{} is no place for a key file ({error})", file.display()))
                })?),
                None => {
                    let of = format!("the key store {}", place.display());
                    let passphrase = new_passphrase(self.access.passphrase_file.as_deref(), "--passphrase-file", &of)?;
                    Protection::Passphrase(passphrase, Cost::DEFAULT)
                }
            };
        let store = Store::create(&place, protection)?;
        println!("made the key store {}", store.place().display());
        if store.has_key_file() {
            println!(
                "its master key is in a file: whoever can read that file and the store has all keys, root and backups \
                 included"
            );
        }
        println!("make a label in it with `gambeson key create LABEL`");
        Ok(())
    }
}

impl Unlock {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let place = self.access.place()?;
        if state(&place)? == State::KeyFile {
            println!("the key store {} has its master key in a file, so it is never locked", place.display());
            return Ok(());
        }
        let store = self.access.open()?;
        store.remember(self.hours.map(|hours| hours * 3600))?;
        let until = self.hours.map_or("the session ends".to_owned(), |hours| format!("{hours} h are over"));
        println!("the key store {} is open until {until}, or `gambeson key lock`", place.display());
        Ok(())
    }
}

impl Lock {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let place = self.access.place()?;
        let said = match (state(&place)?, forget(&place)?) {
            (State::KeyFile, _) => {
                return Err(Failure::usage(format!(
                    "the key store {} has its master key in a file, so it cannot be locked; `gambeson key passphrase` gives \
                     it a passphrase instead",
                    place.display()
                )));
            }
            (_, true) => "locked",
            (_, false) => "locked, as it was",
        };
        println!("the key store {} is {said}", place.display());
        Ok(())
    }
}

impl ChangePassphrase {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let mut store = self.access.open()?;
        let of = format!("the key store {}", store.place().display());
        let passphrase = new_passphrase(self.new_passphrase_file.as_deref(), "--new-passphrase-file", &of)?;
        store.change_passphrase(&passphrase, Cost::DEFAULT)?;
        println!("the key store {} has another passphrase", store.place().display());
        Ok(())
    }
}
