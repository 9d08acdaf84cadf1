//! `gambeson keyd`: the key service of a site.

mod administer;
pub(crate) mod copies;
mod files;
mod master_key;
mod serve;
mod standby;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gambeson_keyd::Database;
use gambeson_keyd::control::{self, Command, Refusal, Reply};
use gambeson_keyd::wire::Verification;
use gambeson_launch::authority::{Kind, Member};
use gambeson_launch::partitions::Folder;
use gambeson_master::{Made, MasterError, MasterKey, Place};
use gambeson_proto::directory::date;
use serde_json::json;

use self::files::{Files, asking};
use crate::commands::counted;
use crate::failure::{Failure, STATUSES, Status};
use crate::machine;

/// Keeps a site's labels and their keys, and gives them to those who may have them
///
/// One host of the site runs it. People go on saying `gambeson key`, `gambeson file` and
/// `gambeson run`, with GAMBESON_KEYS=keyd://HOST, or nothing if site.toml names the service for all.
/// To begin:
///
///   gambeson keyd init                      as root on that host, or as one user
///   gambeson keyd serve                     listens on port 7201
///
/// All is in one file, sealed under a key that a master key wraps: in a file under a passphrase, in a
/// token or TPM (pkcs11:...), or in the site's key server (kmip://...). keyd.toml in the folder says
/// who may make labels, and who are the officers, who see everything but keys.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Init(Init),
    Serve(serve::Serve),
    Status(Report),
    Verify(Verify),
    Promote(standby::Promote),
    Administer(administer::Administer),
    Backup(copies::Backup),
    Restore(copies::Restore),
    MasterKey(master_key::ChangeMaster),
}

/// Makes the database of a key service
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Init {
    /// The master key: file:/PATH, pkcs11:token=...;object=...?module-path=..., or kmip://HOST/ID?...; made there if there is
    /// none. Without it a file beside the database, under a passphrase
    #[arg(long, value_name = "PLACE")]
    master_key: Option<Place>,
    /// Make it a standby of this service, which names this host in its keyd.toml: it gives the same keys, and takes its place
    /// when somebody says `gambeson keyd promote`. A database that is there is set aside, if it is the same service's
    #[arg(long, value_name = "HOST[:PORT]")]
    standby_of: Option<String>,
    #[command(flatten)]
    files: Files,
}

/// Says how the service of this host is
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Report {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

/// Looks whether the log and all records are as they were written
///
/// It does so also while the service runs. Keep what it prints elsewhere, and give it with --since the next time: that the
/// whole database of some earlier day was put back shows to nobody else.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Verify {
    /// What the log must go through: NUMBER:HASH, as an earlier call printed it
    #[arg(long, value_name = "NUMBER:HASH")]
    since: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // All of the site's keys pass through this process: no other may look into it, and no core file hold them.
    machine::close_to_others()?;
    match &arguments.action {
        Action::Init(init) => init.execute()?,
        Action::Serve(serve) => serve.execute()?,
        Action::Status(report) => report.execute()?,
        Action::Verify(verify) => verify.execute()?,
        Action::Promote(promote) => promote.execute()?,
        Action::Administer(administer) => administer.execute()?,
        Action::Backup(backup) => backup.execute()?,
        Action::Restore(restore) => restore.execute()?,
        Action::MasterKey(change) => change.execute()?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Init {
    fn execute(&self) -> Result<(), Failure> {
        let folder = self.files.folder();
        // Who cannot serve later need not begin.
        Member::read(&folder, Kind::Host)?;
        if let Some(primary) = &self.standby_of {
            return self.follow(primary);
        }
        let database = self.files.database();
        if self.files.is_there()? {
            return Err(gambeson_keyd::Error::Exists { path: database.display().to_string() }.into());
        }
        let (master, made) = self.master()?;
        let tail = Database::create(&database, master.as_ref())?.tail();
        self.files.remember_master(&[&master.name()])?;
        println!("database    {}, whose log begins with {tail}", database.display());
        print_master(master.as_ref(), made);
        println!("            back both up, on different media: none is worth anything without the other");
        let rules = folder.join("keyd.toml");
        if !rules.exists() {
            println!(
                "rules       none in {}: everybody of the site may make labels, and there are no officers",
                rules.display()
            );
        }
        if Folder::of(&folder).is_empty().is_ok_and(|empty| !empty) {
            println!("partitions  in files of this host: `gambeson partition move` takes them here, once it serves");
        }
        let service = format!("keyd://{}", machine::host_name());
        let keys = format!("GAMBESON_KEYS={service}");
        print_next(&[
            ("gambeson keyd serve", "on this host"),
            (&keys, &format!("for its users; or keys = \"{service}\" in site.toml")),
            ("gambeson key create LABEL", "makes a label"),
        ]);
        Ok(())
    }

    /// The master key of a database that is made, in whose folder it is unless it is somewhere else.
    fn master(&self) -> Result<(Box<dyn MasterKey>, Made), Failure> {
        let database = self.files.database();
        let beside = database.parent().filter(|beside| !beside.as_os_str().is_empty()).unwrap_or(Path::new("."));
        make_folder(beside)?;
        let place = match &self.master_key {
            Some(place) => place.clone(),
            None => {
                let beside = std::path::absolute(beside).map_err(|error| unmade(beside, &error))?;
                format!("file:{}", beside.join("master-key").display()).parse().map_err(failed)?
            }
        };
        asking(self.files.passphrase_file.as_deref(), "--passphrase-file", |ask| gambeson_master::make(&place, ask))
    }
}

/// What to do now, each with what it does.
fn print_next(steps: &[(&str, &str)]) {
    let width = steps.iter().map(|(step, _)| step.len()).max().unwrap_or(0);
    for (at, (step, what)) in steps.iter().enumerate() {
        println!("{:12}{step:width$}  {what}", if at == 0 { "next" } else { "" });
    }
}

fn print_master(master: &dyn MasterKey, made: Made) {
    let when = if made == Made::Now { "made now" } else { "which was there" };
    println!("master key  {}, {when}", master.name());
}

impl Report {
    fn execute(&self) -> Result<(), Failure> {
        let Some(reply) = control::command(&self.files.socket(), &Command::Status) else {
            let database = self.files.database();
            let what = if self.files.is_there()? {
                format!("no service runs with {}; start it: gambeson keyd serve", database.display())
            } else {
                format!("there is no database {}; make one: gambeson keyd init", database.display())
            };
            return Err(Failure::unavailable(what));
        };
        let Reply::Status(state) = told(reply)? else { return Err(foreign()) };
        let master = self.files.masters().unwrap_or_default().join(", ");
        let unwritten = state.unwritten;
        if self.json {
            let unwritten = unwritten
                .map(|trouble| json!({ "since": date(trouble.since), "last": date(trouble.last), "why": trouble.why }));
            let report = json!({ "listening": state.listening, "since": date(state.since), "standby": state.standby,
                                 "labels": state.labels, "tail": state.tail, "master_key": master,
                                 "database": self.files.database(), "unwritten": unwritten,
                                 "standing": standby::as_json(&state.standing) });
            println!("{report:#}");
            return Ok(());
        }
        println!("listening   {}, since {}", state.listening.join(", "), date(state.since));
        println!("database    {}", self.files.database().display());
        if let Some(trouble) = unwritten {
            let (since, last) = (date(trouble.since), date(trouble.last));
            println!("            could not be written since {since}, and last at {last}: {}", trouble.why);
        }
        standby::print(&state.standing);
        println!("labels      {}", state.labels);
        println!("log         ends with {}", state.tail);
        println!("master key  {master}");
        Ok(())
    }
}

impl Verify {
    fn execute(&self) -> Result<(), Failure> {
        let found = match control::command(&self.files.socket(), &Command::Verify { since: self.since.clone() }) {
            Some(reply) => match told(reply)? {
                Reply::Verified(found) => found,
                _ => return Err(foreign()),
            },
            None => {
                let since = self.since.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
                let found = self.files.open()?.verify(since.as_ref())?;
                let (tail, last) = (found.tail.to_string(), found.last);
                Verification { tail, labels: found.labels, files: found.files, last }
            }
        };
        if self.json {
            let Verification { tail, labels, files, last } = found;
            println!("{:#}", json!({ "tail": tail, "labels": labels, "files": files, "last": last.map(date) }));
            return Ok(());
        }
        println!(
            "the log and {} as they were written; the log ends with {}",
            counted(found.labels, "label are", "labels are"),
            found.tail
        );
        println!("keep that elsewhere, and give it with --since the next time");
        Ok(())
    }
}

fn failed(error: MasterError) -> Failure {
    let status = match &error {
        MasterError::Place(_) => Status::Usage,
        MasterError::Unavailable(_) => Status::Unavailable,
        _ => Status::NotPermitted,
    };
    Failure::new(status, error.to_string())
}

/// What the service says, which ends this as it would without one.
fn told(reply: io::Result<Result<Reply, Refusal>>) -> Result<Reply, Failure> {
    let reply = reply.map_err(|cause| {
        Failure::unavailable(format!(
            "the service of this host does not answer at its socket ({cause}); start it again"
        ))
    })?;
    reply.map_err(|Refusal { status, sentence }| Failure::new(Status::of_number(status), sentence))
}

fn refusal(failure: Failure) -> Refusal {
    Refusal { status: failure.status as u8, sentence: failure.to_string() }
}

fn foreign() -> Failure {
    Failure::refused("the service answers something else than was asked; start it again with this Gambeson")
}

fn unmade(path: &Path, error: &std::io::Error) -> Failure {
    Failure::unavailable(format!("{} cannot be written ({error})", path.display()))
}

/// Makes a folder that nobody else may enter, if it is not there.
fn make_folder(folder: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| unmade(folder, &error))
}
