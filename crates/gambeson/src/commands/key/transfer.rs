//! `gambeson key export|import`: labels for other people, and from them.

use std::path::PathBuf;

use clap::Args;
use gambeson_keys::{Cost, Effect, Entry, Rights, read_export, write_export};

use super::{future, lifetime};
use crate::failure::{Failure, STATUSES};
use crate::keys::{Access, asking, confirm, new_passphrase};

/// Writes labels into a file for somebody else
///
/// The file is under a passphrase of its own: send the file one way, and say the passphrase another way. Without
/// --read-only who gets it can do all that you can: write, rotate, and pass the label on.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Export {
    /// The file to make
    file: PathBuf,
    /// Which labels, all versions of them
    #[arg(required = true, value_name = "LABEL")]
    labels: Vec<String>,
    /// Leave the signing keys out, so that who gets the file can read what is sealed, and not write it
    #[arg(long)]
    read_only: bool,
    /// Until when they may use it, if that is sooner than yours: 2027-06-30 is until the end of that day (UTC)
    #[arg(long, value_name = "DATE", value_parser = future)]
    expires: Option<u64>,
    /// A file with the export's passphrase, mode 0600, instead of asking for it
    #[arg(long, value_name = "FILE")]
    export_passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

/// Takes labels in that somebody exported
///
/// Labels that are new here are added. About those that are here already it asks first: what is newer comes to what is
/// here, and nothing that is newer here goes.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Import {
    /// The file
    file: PathBuf,
    /// Do not ask about labels that are here already
    #[arg(long)]
    yes: bool,
    /// A file with the export's passphrase, mode 0600, instead of asking for it
    #[arg(long, value_name = "FILE")]
    export_passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

impl Export {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let store = self.access.open()?;
        let rights = if self.read_only { Rights::Read } else { Rights::ReadAndWrite };
        let chosen = store.ring().extract(&self.labels, rights, self.expires)?;
        if self.file.exists() {
            let file = self.file.display();
            return Err(Failure::usage(format!("{file} is there already, and stays as it is; name another file")));
        }
        let of = format!("the export {}", self.file.display());
        let passphrase = new_passphrase(self.export_passphrase_file.as_deref(), &of)?;
        write_export(&self.file, &chosen, &passphrase, Cost::DEFAULT)?;
        for entry in chosen.labels() {
            println!("{}: {}", self.file.display(), describe(entry));
        }
        println!("send the file one way and its passphrase another");
        Ok(())
    }
}

impl Import {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let mut store = self.access.open()?;
        let given = asking(self.export_passphrase_file.as_deref(), |ask| read_export(&self.file, || ask(&self.file)))?;
        let mut agreed = Vec::new();
        for (label, effect) in store.ring().compare(&given) {
            let entry = given.entry(&label)?;
            let question = match effect {
                Effect::Adds | Effect::Refuses => None,
                Effect::Keeps => {
                    println!("label \"{label}\" is here already, with all that the file has of it");
                    continue;
                }
                Effect::Extends => Some(format!(
                    "Label \"{label}\" is here already. Take in what is newer in the file ({})?",
                    describe(entry)
                )),
                Effect::Replaces => Some(format!(
                    "Label \"{label}\" is here already with OTHER keys. Replace them with those of the file ({})? What \
                     was sealed under the label here cannot be read any more.",
                    describe(entry)
                )),
            };
            let taken = match question.filter(|_| !self.yes) {
                Some(question) => confirm(&question)?.ok_or_else(|| {
                    Failure::usage(format!(
                        "label \"{label}\" is here already, and there is no terminal to ask on; nothing was taken in. \
                         --yes takes it in"
                    ))
                })?,
                None => true,
            };
            if taken {
                agreed.push((label, effect));
            } else {
                println!("label \"{label}\" stays as it is");
            }
        }
        store.change(|ring| ring.adopt(&given, &agreed))?;
        for (label, _) in &agreed {
            println!("took in {}", describe(store.ring().entry(label)?));
        }
        Ok(())
    }
}

/// `"clinical" up to version 2, for reading, until ...`
fn describe(entry: &Entry) -> String {
    let newest = entry.newest();
    let rights = if newest.may_write() { "reading and writing" } else { "reading" };
    format!("\"{}\" up to version {}, for {rights}, {}", entry.name, newest.number, lifetime(newest.expires))
}
