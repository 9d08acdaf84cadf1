//! `gambeson keyd`: the key service of a site.

mod administer;
mod standby;

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use gambeson_keyd::Database;
use gambeson_keyd::control::{self, Command, Control, Controlled, Refusal, Reply, administrator};
use gambeson_keyd::database::master_of;
use gambeson_keyd::page::{self, Page};
use gambeson_keyd::rules::{PORT, Rules};
use gambeson_keyd::service::{Service, Setup};
use gambeson_keyd::standby::host_of;
use gambeson_keyd::wire::{Secret, Verification};
use gambeson_launch::authority::{Kind, Member, host_folder};
use gambeson_launch::partitions::Folder;
use gambeson_master::{Made, MasterError, MasterKey, Place};
use gambeson_proto::directory::date;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zeroize::Zeroizing;

use crate::commands::counted;
use crate::failure::{Failure, STATUSES, Status};
use crate::keys;
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
    Serve(Serve),
    Status(Report),
    Verify(Verify),
    Promote(standby::Promote),
    Administer(administer::Administer),
    Backup(Backup),
    Restore(Restore),
    MasterKey(ChangeMaster),
}

/// Where a service has its files.
#[derive(Args)]
struct Files {
    /// Where authority.pem, host.pem and keyd.toml are; /etc/gambeson for root, else ~/.config/gambeson
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The database, instead of keyd/keys.db in the folder
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    /// A file with the passphrase of the master key, mode 0600, instead of asking for it; - reads a line of stdin
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
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

/// Serves labels to the site's people, hosts and jobs
///
/// Who connects proves who he is by a certificate of the site's authority (TLS 1.3), and so does this host. What is given,
/// changed or refused stands in the log before it is answered.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Serve {
    /// Where to listen, instead of where keyd.toml says (port 7201)
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// The name of this host, if its certificate is for another than it calls itself
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
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

/// Copies the database into a file, also while the service runs
///
/// The copy is sealed as the database is: it is worth nothing without the master key, which has to be kept, too.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Backup {
    /// The file to make
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

/// Puts a backup into the place of a database that is not there
///
/// It is verified first. What was done after the backup is missing: the command says how far its log goes. The backup has to
/// be a file of who runs this, with mode 0600; and its master key has to be there again.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct Restore {
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

/// Has another master key wrap the database's key, also while the service runs
///
/// Nothing else changes, and all goes on. A backup opens with what was the master key when it was made. --new-database-key
/// seals all records anew, for who fears that somebody has learned the old database key.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
struct ChangeMaster {
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

impl Serve {
    fn execute(&self) -> Result<(), Failure> {
        let mut signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|cause| Failure::system(format!("signals cannot be waited for ({cause})")))?;
        more_descriptors();
        let folder = self.files.folder();
        self.files.is_there()?;
        let mut rules = Rules::read(&folder.join("keyd.toml"))?;
        if !self.listen.is_empty() {
            rules.listen.clone_from(&self.listen);
        }
        if let Some(host) = &self.host {
            is_certified(&folder, host)?;
        }
        let database = self.files.open()?;
        database.health().tell(|why| eprintln!("gambeson keyd: {why}"));
        let host = self.host.clone().unwrap_or_else(machine::host_name);
        let tail = database.tail();
        let setup =
            Setup { folder: folder.clone(), host: host.clone(), rules: rules.clone(), database: database.clone() };
        let service = Service::open(setup)?;
        let page = rules.page.map(|listen| {
            Page::open(page::Setup {
                database: database.clone(),
                path: self.files.database(),
                folder,
                host,
                listen,
                officers: rules.officers,
                metrics: rules.metrics,
                live: service.live(),
                say: Arc::new(|why| eprintln!("gambeson keyd: {why}")),
            })
        });
        let page = page.transpose()?;
        let listening: Vec<_> = service.listening().iter().map(ToString::to_string).collect();
        let place = self.files.master_file();
        let controlled = Controlled {
            database,
            listening: listening.clone(),
            since: service.since(),
            duty: service.duty(),
            open_master: Box::new(move |text, passphrase| change_to(&place, text, passphrase).map_err(refusal)),
            refuse: |error| refusal(error.into()),
        };
        let control = Control::open(&self.files.socket(), controlled)?;
        let mut begun = format!("gambeson keyd: listening on {}\n", listening.join(", "));
        if let Some(page) = &page {
            let _ = writeln!(begun, "gambeson keyd: the officers' page is at {}", page.listening());
        }
        let _ = writeln!(begun, "gambeson keyd: the log goes on from {tail}");
        begun.push_str(standby::begun(&service.duty().standing()?).as_str());
        // Whoever waits for the first line may not wait for more: a service is not ended by that.
        let _ = io::stdout().write_all(begun.as_bytes()).and_then(|()| io::stdout().flush());
        signals.forever().next();
        drop((control, page));
        drop(service);
        Ok(())
    }
}

/// Refuses a name by which nobody could know this host.
fn is_certified(folder: &Path, host: &str) -> Result<(), Failure> {
    let names = Member::read(folder, Kind::Host)?.names();
    if names.iter().any(|name| name.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    let names = names.join(", ");
    Err(Failure::usage(format!(
        "the certificate of this host is for {names} and not for {host}, so whoever asks keyd://{host} would refuse it; say one of \
         its names, or have the host enrolled with --alias {host}"
    )))
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

impl Backup {
    fn execute(&self) -> Result<(), Failure> {
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
    fn execute(&self) -> Result<(), Failure> {
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

impl ChangeMaster {
    fn execute(&self) -> Result<(), Failure> {
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

impl Files {
    fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(host_folder)
    }

    fn database(&self) -> PathBuf {
        self.database.clone().unwrap_or_else(|| self.folder().join("keyd").join("keys.db"))
    }

    fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.database().into_os_string();
        path.push(end);
        path.into()
    }

    /// Whether there is a database; nobody knows to whom its folder is closed.
    fn is_there(&self) -> Result<bool, Failure> {
        let database = self.database();
        database.try_exists().map_err(|error| closed(&database, &error))
    }

    fn must_be_there(&self) -> Result<PathBuf, Failure> {
        let database = self.database();
        if self.is_there()? {
            return Ok(database);
        }
        Err(gambeson_keyd::Error::NoDatabase { path: database.display().to_string() }.into())
    }

    /// Where the service that has the database open takes commands.
    fn socket(&self) -> PathBuf {
        self.beside(".control")
    }

    /// The file that says which master key it is.
    fn master_file(&self) -> PathBuf {
        self.beside(".master")
    }

    /// The places of master keys of which one opens the database: one, but for a change that was cut off.
    fn masters(&self) -> Result<Vec<String>, Failure> {
        let path = self.master_file();
        let text = fs::read_to_string(&path).map_err(|error| {
            Failure::unavailable(format!(
                "{} does not say which master key it is ({error}); write the place of the master key into that file, as \
                 `gambeson keyd init` had printed it",
                path.display()
            ))
        })?;
        Ok(text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect())
    }

    fn remember_master(&self, names: &[&str]) -> Result<(), Failure> {
        remember(&self.master_file(), names)
    }

    fn master_at(&self, place: &Place) -> Result<Box<dyn MasterKey>, Failure> {
        asking(self.passphrase_file.as_deref(), "--passphrase-file", |ask| gambeson_master::open(place, ask))
    }

    fn master_key(&self) -> Result<Box<dyn MasterKey>, Failure> {
        let names = self.masters()?;
        let place = names.first().ok_or_else(|| Failure::unavailable("no master key is named"))?;
        self.master_at(&place.parse().map_err(failed)?)
    }

    /// Opens the database by the first of its master keys that does.
    fn open(&self) -> Result<Database, Failure> {
        let database = self.must_be_there()?;
        let mut refused = None;
        for name in self.masters()? {
            let place: Place = name.parse().map_err(failed)?;
            let opened = self.master_at(&place).and_then(|master| Ok(Database::open(&database, master.as_ref())?));
            match opened {
                Ok(opened) => return Ok(opened),
                Err(failure) => drop(refused.get_or_insert(failure)),
            }
        }
        Err(refused.unwrap_or_else(|| Failure::unavailable("no master key is named")))
    }
}

/// Opens the master key that a running service is to change to, and remembers both until that is done.
fn change_to(file: &Path, name: &str, passphrase: Option<Secret>) -> Result<Box<dyn MasterKey>, Failure> {
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

fn remember(path: &Path, names: &[&str]) -> Result<(), Failure> {
    let beside = path.with_extension("master-new");
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    let written = fs::write(&beside, text)
        .and_then(|()| fs::File::open(&beside)?.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| unmade(path, &error))
}

/// Runs what may ask for a passphrase, which comes from a file, which an option names, or from who sits at the terminal.
fn asking<T>(
    file: Option<&Path>,
    option: &str,
    run: impl FnOnce(&mut gambeson_master::Ask<'_>) -> Result<T, MasterError>,
) -> Result<T, Failure> {
    let (mut failure, mut nobody) = (None, false);
    let outcome = run(&mut |prompt| match keys::secret(file, prompt) {
        Ok(secret) => {
            nobody = secret.is_none();
            secret
        }
        Err(cause) => {
            failure.get_or_insert(cause);
            None
        }
    });
    match (failure, outcome) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) if nobody => Err(Failure::new(
            Status::NotPermitted,
            format!("{error}; name a file with it ({option}), or start this again where somebody can be asked"),
        )),
        (None, outcome) => outcome.map_err(failed),
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

/// Says whose a folder is that hides a file from this user.
fn closed(path: &Path, error: &io::Error) -> Failure {
    let folder = path.ancestors().skip(1).find_map(|folder| Some((folder, fs::metadata(folder).ok()?.uid())));
    match folder {
        Some((folder, owner)) if error.kind() == io::ErrorKind::PermissionDenied => {
            let (folder, path) = (folder.display(), path.display());
            let (whose, who) = match owner {
                0 => ("root's".to_owned(), "root".to_owned()),
                uid => (format!("user {uid}'s"), "that user".to_owned()),
            };
            let what = format!(
                "the folder {folder} is {whose} and closed to you, so {path} cannot be seen; run this as {who}"
            );
            Failure::new(Status::NotPermitted, what)
        }
        _ => Failure::unavailable(format!("{} cannot be looked at ({error})", path.display())),
    }
}

/// Makes a folder that nobody else may enter, if it is not there.
fn make_folder(folder: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| unmade(folder, &error))
}

/// A connection is a descriptor, and a site has more than the thousand that a process gets by itself.
fn more_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

const _: () = assert!(PORT == 7201, "the texts of this command name it");
