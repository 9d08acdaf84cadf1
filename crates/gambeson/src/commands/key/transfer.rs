//! `gambeson key export|export-wrapped|import`: labels for other people, and from them.

use std::path::{Path, PathBuf};

use clap::Args;
use data_encoding::HEXLOWER;
use gambeson_keyd::client::Client;
use gambeson_keyd::wire::{Purpose, Want};
use gambeson_keys::recipient::{open, seal};
use gambeson_keys::{
    Cost, Effect, Entry, Rights, Ring, Store, read_export, read_export_to, recipient_of, write_export, write_export_to,
};

use super::{future, lifetime, recipient};
use crate::failure::{Failure, STATUSES, Status};
use crate::keys::{Access, asking_of_export, confirm, new_passphrase, of_export};

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

/// Writes labels into a file that one recipient alone can open
///
/// As `export`, without a passphrase: the labels are wrapped to a public key, which the recipient has from `gambeson key
/// recipient` (HPKE, RFC 9180, with X25519). Be sure that it is theirs. They open the file with `gambeson key import`.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct ExportWrapped {
    /// The file to make
    file: PathBuf,
    /// Which labels, all versions of them
    #[arg(required = true, value_name = "LABEL")]
    labels: Vec<String>,
    /// The recipient's public key
    #[arg(long, required = true, value_name = "KEY", value_parser = recipient::public)]
    to: [u8; 32],
    /// Leave the signing keys out, so that who gets the file can read what is sealed, and not write it
    #[arg(long)]
    read_only: bool,
    /// Until when they may use it, if that is sooner than yours: 2027-06-30 is until the end of that day (UTC)
    #[arg(long, value_name = "DATE", value_parser = future)]
    expires: Option<u64>,
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
    /// Your private key as a recipient, for a file that is wrapped to you, instead of ~/.config/gambeson/recipient.key
    #[arg(long, value_name = "FILE")]
    recipient_key: Option<PathBuf>,
    /// A file with the export's passphrase, mode 0600, instead of asking for it
    #[arg(long, value_name = "FILE")]
    export_passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

impl Export {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let source = Source::open(&self.access, &self.file)?;
        let of = format!("the export {}", self.file.display());
        // A service notes what it has given: it is asked when nothing else is missing.
        let passphrase = new_passphrase(self.export_passphrase_file.as_deref(), "--export-passphrase-file", &of)?;
        let chosen = source.chosen(&self.labels, self.read_only, self.expires, Purpose::Export)?;
        write_export(&self.file, &chosen, &passphrase, Cost::DEFAULT)?;
        for entry in chosen.labels() {
            println!("{}: {}", self.file.display(), describe(entry));
        }
        println!("send the file one way and its passphrase another");
        Ok(())
    }
}

impl ExportWrapped {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let source = Source::open(&self.access, &self.file)?;
        // Before anything is asked for: not every 32 bytes are a key.
        seal(&self.to, b"", &gambeson_proto::secret::Secret32::from_bytes([1; 32])).map_err(Failure::usage)?;
        let purpose = Purpose::ExportTo(HEXLOWER.encode(&self.to));
        let chosen = source.chosen(&self.labels, self.read_only, self.expires, purpose)?;
        write_export_to(&self.file, &chosen, &self.to, |info, master| {
            seal(&self.to, info, master).expect("it was sealed to before")
        })?;
        for entry in chosen.labels() {
            println!("{}: {}", self.file.display(), describe(entry));
        }
        println!("the owner of {} alone can open it", HEXLOWER.encode(&self.to));
        Ok(())
    }
}

/// Where labels for somebody else are from.
enum Source {
    Service(Client),
    Store(Box<Store>),
}

impl Source {
    /// For a file that is not there yet. A service is not asked for anything.
    fn open(access: &Access, file: &Path) -> Result<Self, Failure> {
        if file.exists() {
            let file = file.display();
            return Err(Failure::usage(format!("{file} is there already, and stays as it is; name another file")));
        }
        Ok(match access.client()? {
            Some(service) => Source::Service(service),
            None => Source::Store(Box::new(access.open()?)),
        })
    }

    fn chosen(
        &self,
        labels: &[String],
        read_only: bool,
        expires: Option<u64>,
        purpose: Purpose,
    ) -> Result<Ring, Failure> {
        let rights = if read_only { Rights::Read } else { Rights::ReadAndWrite };
        let want = if read_only { Want::Read } else { Want::Write };
        Ok(match self {
            Source::Service(service) => {
                service.ring(Some(labels.to_vec()), want, purpose)?.extract(labels, rights, expires)?
            }
            Source::Store(store) => store.ring().extract(labels, rights, expires)?,
        })
    }
}

impl Import {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let service = self.access.client()?;
        let mut store = if service.is_none() { Some(self.access.open()?) } else { None };
        let given = self.given()?;
        let effects = match (&service, &store) {
            (Some(service), _) => service.compare(&given)?,
            (None, Some(store)) => store.ring().compare(&given),
            (None, None) => unreachable!("one of both was opened"),
        };
        let mut agreed = Vec::new();
        for (label, effect) in effects {
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
        match (&service, &mut store) {
            (Some(service), _) => service.import(&given, &agreed)?,
            (None, Some(store)) => store.change(|ring| ring.adopt(&given, &agreed))?,
            (None, None) => unreachable!("one of both was opened"),
        }
        for (label, _) in &agreed {
            let taken = store.as_ref().map_or(&given, |store| store.ring());
            println!("took in {}", describe(taken.entry(label)?));
        }
        Ok(())
    }

    /// What is in the file.
    fn given(&self) -> Result<Ring, Failure> {
        let Some(public) = recipient_of(&self.file).map_err(|error| of_export(&self.file, error))? else {
            let file = self.export_passphrase_file.as_deref();
            return asking_of_export(&self.file, file, |ask| read_export(&self.file, || ask(&self.file)));
        };
        let path = recipient::place(self.recipient_key.as_deref());
        let (own, private) = recipient::read(&path)?;
        if own != public {
            return Err(Failure::new(
                Status::NotPermitted,
                format!(
                    "{} is wrapped to {}, and {} is the private key of {}; --recipient-key names another",
                    self.file.display(),
                    HEXLOWER.encode(&public),
                    path.display(),
                    HEXLOWER.encode(&own)
                ),
            ));
        }
        read_export_to(&self.file, |info, sealed| open(&private, info, sealed))
            .map_err(|error| of_export(&self.file, error))
    }
}

/// `"clinical" up to version 2, for reading, until ...`
fn describe(entry: &Entry) -> String {
    let newest = entry.newest();
    let rights = if newest.may_write() { "reading and writing" } else { "reading" };
    format!("\"{}\" up to version {}, for {rights}, {}", entry.name, newest.number, lifetime(newest.expires))
}
