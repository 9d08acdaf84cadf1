//! `gambeson key`: labels and their keys, by which files are sealed.

mod audit;
mod grants;
mod labels;
mod recipient;
mod service;
mod store;
mod transfer;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gambeson_proto::directory::{date, seconds};
use gambeson_site::directory::now;

pub(crate) use audit::as_json as row_as_json;
pub(crate) use grants::role;
pub(crate) use service::rights;

use crate::commands::keyd::copies;
use crate::failure::Failure;
use crate::machine;

/// Keeps the keys that files are sealed with
///
/// Files are sealed under labels, such as "clinical". A key store holds the keys of labels: what
/// opens files, and what signs them, which only those have who may write. To begin:
///
///   gambeson key init                       makes your key store, under a passphrase
///   gambeson key create clinical            makes a label
///   gambeson key unlock                     opens the store until you log out
///
/// To let a collaborator read what is sealed under a label, and not write it, until the end of June:
///
///   gambeson key export --read-only --expires 2027-06-30 for-ann.keys clinical
///   gambeson key import for-ann.keys        as Ann
///
/// Where your site has a key service (`gambeson keyd`), which GAMBESON_KEYS, --store or the site itself
/// names as keyd://HOST, labels are there instead, and nobody needs a file:
///
///   gambeson key create clinical
///   gambeson key grant clinical ann --read --until 2027-06-30
///   gambeson key audit clinical             who had it, and who was refused
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Init(store::Init),
    Create(labels::Create),
    List(labels::List),
    Show(labels::Show),
    Rotate(labels::Rotate),
    Expire(labels::Expire),
    Delete(labels::Delete),
    Export(transfer::Export),
    Import(transfer::Import),
    ExportWrapped(transfer::ExportWrapped),
    Recipient(recipient::Recipient),
    Grant(grants::Grant),
    Revoke(grants::Revoke),
    Audit(audit::Audit),
    Backup(copies::Backup),
    Restore(copies::Restore),
    Unlock(store::Unlock),
    Lock(store::Lock),
    Passphrase(store::ChangePassphrase),
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Keys and passphrases pass through this process: no other may look into it, and no core file hold them.
    machine::close_to_others()?;
    match &arguments.action {
        Action::Init(init) => init.execute()?,
        Action::Create(create) => create.execute()?,
        Action::List(list) => list.execute()?,
        Action::Show(show) => show.execute()?,
        Action::Rotate(rotate) => rotate.execute()?,
        Action::Expire(expire) => expire.execute()?,
        Action::Delete(delete) => delete.execute()?,
        Action::Export(export) => export.execute()?,
        Action::Import(import) => import.execute()?,
        Action::ExportWrapped(export) => export.execute()?,
        Action::Recipient(recipient) => recipient.execute()?,
        Action::Grant(grant) => grant.execute()?,
        Action::Revoke(revoke) => revoke.execute()?,
        Action::Audit(audit) => audit.execute()?,
        Action::Backup(backup) => backup.execute()?,
        Action::Restore(restore) => restore.execute()?,
        Action::Unlock(unlock) => unlock.execute()?,
        Action::Lock(lock) => lock.execute()?,
        Action::Passphrase(change) => change.execute()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The end of a day, `2027-06-30`, or a moment, `2027-06-30T12:00:00Z`, in seconds since 1970.
fn moment(text: &str) -> Result<u64, String> {
    let end_of_day = || Some(seconds(&format!("{text}T00:00:00Z"))? + DAY);
    seconds(text).or_else(end_of_day).ok_or_else(|| {
        "a date is written as 2027-06-30, which is until the end of that day (UTC), or as 2027-06-30T12:00:00Z"
            .to_owned()
    })
}

/// As [`moment`], and not over yet.
fn future(text: &str) -> Result<u64, String> {
    let moment = moment(text)?;
    if moment > now() { Ok(moment) } else { Err("this date is over".to_owned()) }
}

/// `until 2027-07-01T00:00:00Z`, or what there is to say instead.
fn lifetime(expires: Option<u64>) -> String {
    match expires {
        None => "without end".to_owned(),
        Some(end) if end <= now() => format!("expired on {}", date(end)),
        Some(end) => format!("until {}", date(end)),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const DAY: u64 = 86_400;
