//! Opens key stores for commands: where they are, and where their passphrases come from.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use clap::Args;
use gambeson_keyd::client::{Client, Place};
use gambeson_keyd::wire::{Purpose, Want};
use gambeson_keys::{KeyError, KeyRing, Passphrase, SERVICE, SHORTEST, State, Store, open_held};
use gambeson_launch::authority::{Site, user_folder};
use gambeson_site::directory::FOLDER;
use gambeson_site::job::read_secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::failure::{Failure, Status};

/// Where the key store is, and its passphrase.
#[derive(Args)]
pub(crate) struct Access {
    /// The key store, instead of the one in GAMBESON_KEYS, the site's key service or ~/.local/share/gambeson/keys: a
    /// folder, or a key service as keyd://HOST
    #[arg(long, value_name = "PLACE")]
    pub(crate) store: Option<PathBuf>,
    /// A file with the store's passphrase, mode 0600, instead of asking for it; - reads a line of stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

impl Access {
    /// Where the keys are: in the store named here or by the environment, else in the site's key service, else in the
    /// user's own folder.
    pub(crate) fn found(&self) -> Result<Found, Failure> {
        match &self.store {
            Some(store) => named(store),
            None => found(),
        }
    }

    /// Where the store is, for what is done to folders alone.
    pub(crate) fn place(&self) -> Result<PathBuf, Failure> {
        match self.found()? {
            Found::Folder(place) => Ok(place),
            Found::Service(place, _) => Err(Failure::usage(format!(
                "your keys are in the key service {place}, and this is for stores in folders; --store names a folder"
            ))),
        }
    }

    /// The key service, if the keys are in one.
    pub(crate) fn client(&self) -> Result<Option<Client>, Failure> {
        match self.found()? {
            Found::Folder(_) => Ok(None),
            Found::Service(place, _) => Ok(Some(client(&place)?)),
        }
    }

    /// What says which labels there are: the key service itself, or the keys that a process has here.
    pub(crate) fn looked(&self) -> Result<Looked, Failure> {
        if self.store.is_none()
            && let Some(held) = open_held()?
        {
            return Ok(Looked::Keys(held));
        }
        Ok(match self.client()? {
            Some(service) => Looked::Service(service),
            None => Looked::Keys(self.open()?.into_keys()),
        })
    }

    /// The key service; `what` is for key services alone.
    pub(crate) fn service(&self, what: &str) -> Result<Client, Failure> {
        match self.found()? {
            Found::Service(place, _) => Ok(client(&place)?),
            Found::Folder(place) => Err(Failure::usage(format!(
                "{what} is for labels in a key service, and your keys are in the folder {}, where `gambeson key export` hands a \
                 label to somebody; name a service in GAMBESON_KEYS or by --store, as keyd://HOST",
                place.display()
            ))),
        }
    }

    /// Opens the store itself.
    pub(crate) fn open(&self) -> Result<Store, Failure> {
        let place = self.place()?;
        asking(self.passphrase_file.as_deref(), |ask| Store::open(&place, ask))
    }

    /// The keys that a process has here: of the store named, else as [`gambeson_keys::open`] finds them.
    pub(crate) fn keys(&self) -> Result<KeyRing, Failure> {
        if self.store.is_none()
            && let Some(held) = open_held()?
        {
            return Ok(held);
        }
        match self.found()? {
            Found::Folder(place) => {
                asking(self.passphrase_file.as_deref(), |ask| Store::open(&place, ask)).map(Store::into_keys)
            }
            Found::Service(place, _) => Ok(client(&place)?.keys()),
        }
    }
}

/// Who says which labels there are.
pub(crate) enum Looked {
    /// A key service.
    Service(Client),
    /// A store, or what a job has.
    Keys(KeyRing),
}

/// Where keys were found to be.
pub(crate) enum Found {
    /// In a folder.
    Folder(PathBuf),
    /// In a key service, and whether its user named it, or his site.
    Service(Place, NamedBy),
}

/// Who says which key service it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// Who runs this.
    User,
    /// His site.
    Site,
}

fn named(store: &Path) -> Result<Found, Failure> {
    match store.to_str().filter(|text| text.starts_with(SERVICE)) {
        Some(text) => Ok(Found::Service(text.parse().map_err(Failure::usage)?, NamedBy::User)),
        None if meant_for_service(store) => Err(Failure::usage(format!(
            "{} is no key service and no folder; a service is named as keyd://h1, and a folder that is called so as ./{0}",
            store.display()
        ))),
        None => Ok(Found::Folder(store.to_owned())),
    }
}

/// Whether somebody has slipped who meant `keyd://HOST`.
fn meant_for_service(store: &Path) -> bool {
    let text = store.to_string_lossy().to_ascii_lowercase();
    let word = text.split_once(':').map_or("", |(word, _)| word);
    word == "keyd" || (!word.is_empty() && !word.contains('/') && text[word.len()..].starts_with("://"))
}

fn found() -> Result<Found, Failure> {
    if let Some(store) = gambeson_keys::named() {
        return named(&store);
    }
    let of_site = [user_folder(), FOLDER.into()].iter().find_map(|folder| Site::read(folder).ok()?.keys);
    match of_site {
        Some(text) => {
            let place = text.parse().map_err(|why| {
                Failure::new(Status::Policy, format!("the site's key service, which site.toml names: {why}"))
            })?;
            Ok(Found::Service(place, NamedBy::Site))
        }
        None => Ok(Found::Folder(gambeson_keys::place()?)),
    }
}

/// Asks a key service as who this is: by the identity in the folder that `GAMBESON_IDENTITY` names, or by his own.
pub(crate) fn client(place: &Place) -> Result<Client, KeyError> {
    Client::open(place, &identity())
}

/// The folder of this process's identity.
pub(crate) fn identity() -> PathBuf {
    let named = env::var_os("GAMBESON_IDENTITY").filter(|folder| !folder.is_empty());
    named.map_or_else(user_folder, PathBuf::from)
}

impl Access {
    /// As [`Access::keys`], for one of several processes, of which none asks for a passphrase.
    pub(crate) fn keys_unasked(&self) -> Result<KeyRing, Failure> {
        if self.passphrase_file.is_some() {
            return self.keys();
        }
        if self.store.is_none()
            && let Some(held) = open_held()?
        {
            return Ok(held);
        }
        let Found::Folder(place) = self.found()? else { return self.keys() };
        Store::open(&place, &mut |_| None).map(Store::into_keys).map_err(|error| match error {
            KeyError::Locked { .. } => {
                let Failure { status, .. } = Failure::from(error.clone());
                Failure::new(
                    status,
                    format!("{error}; processes that mpiexec has started do not ask: `gambeson key unlock` before, or --passphrase-file"),
                )
            }
            error => error.into(),
        })
    }
}

/// What a job gets of its user's key store.
pub(crate) enum ForJob {
    /// The key file for its ranks.
    Opened(Zeroizing<Vec<u8>>),
    /// The same from a key service, which keeps the anchors.
    Given(Zeroizing<Vec<u8>>, Client),
    /// There is none, and nobody named one.
    NoStore,
    /// There is one, and it stays shut, for this reason.
    Without(String),
}

/// Opens the user's key store once for all ranks of a job.
///
/// A job that touches no sealed files needs no keys, so a store that stays locked does not stop it: a rank that does
/// touch one gets none of its contents and says why.
pub(crate) fn for_job(passphrase_file: Option<&Path>, given: Option<Given>) -> Result<ForJob, Failure> {
    let is_named = passphrase_file.is_some() || env::var_os("GAMBESON_KEYS").is_some_and(|named| !named.is_empty());
    let place = match found() {
        Ok(Found::Folder(place)) => place,
        Ok(Found::Service(place, by)) => return Given::wait(given, &place, by),
        Err(failure) if is_named => return Err(failure),
        Err(_no_home) => return Ok(ForJob::NoStore),
    };
    match gambeson_keys::state(&place) {
        Err(KeyError::NoStore { .. }) if !is_named => return Ok(ForJob::NoStore),
        Err(error) if is_named => return Err(error.into()),
        Err(error) => return Ok(ForJob::Without(error.to_string())),
        Ok(State::Locked) if passphrase_file.is_none() && terminal().is_none() => {
            return Ok(ForJob::Without(locked(KeyError::Locked { store: place.display().to_string() }).to_string()));
        }
        Ok(_) => {}
    }
    let mut declined = false;
    let opened = asking_for(passphrase_file, "or Enter to go on without keys", |ask| {
        Store::open(&place, &mut |place| {
            ask(place).filter(|passphrase| {
                declined = passphrase.is_empty() && passphrase_file.is_none();
                !declined
            })
        })
    });
    match opened {
        Ok(store) => Ok(ForJob::Opened(store.for_job())),
        Err(_) if declined => Ok(ForJob::Without("no passphrase was given".to_owned())),
        Err(failure) => Err(failure),
    }
}

/// What a key service is being asked for a job, while the job is made.
pub(crate) struct Given(JoinHandle<Result<RingAndClient, KeyError>>);

/// A ring, as ranks get it, and who is told of their anchors.
type RingAndClient = (Zeroizing<Vec<u8>>, Client);

/// Begins to ask the key service, if the user's keys are in one, once for all that a job's ranks may use.
pub(crate) fn ask_for_job(job: [u8; 16]) -> Option<Given> {
    let Ok(Found::Service(place, _)) = found() else { return None };
    let ask = move || {
        let client = client(&place)?;
        let ring = client.ring(None, Want::Most, Purpose::Job(job))?;
        Ok((ring.carry(), client))
    };
    thread::Builder::new().name("keys".into()).spawn(ask).ok().map(Given)
}

impl Given {
    /// A service that only the site names stops no job, which may need no keys.
    fn wait(given: Option<Self>, place: &Place, by: NamedBy) -> Result<ForJob, Failure> {
        let none =
            || KeyError::Unreachable { store: place.to_string(), why: "nobody could be made to ask it".to_owned() };
        let asked = given.and_then(|Given(asked)| asked.join().ok()).unwrap_or_else(|| Err(none()));
        match asked {
            Ok((ring, client)) => Ok(ForJob::Given(ring, client)),
            Err(error) if by == NamedBy::Site => Ok(ForJob::Without(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens something with a passphrase from a file, or from who sits at the terminal, who may try three times.
pub(crate) fn asking<T>(
    file: Option<&Path>,
    open: impl FnMut(&mut dyn FnMut(&Path) -> Option<Passphrase>) -> Result<T, KeyError>,
) -> Result<T, Failure> {
    asking_for(file, "", open)
}

fn asking_for<T>(
    file: Option<&Path>,
    hint: &str,
    mut open: impl FnMut(&mut dyn FnMut(&Path) -> Option<Passphrase>) -> Result<T, KeyError>,
) -> Result<T, Failure> {
    let prompt = |place: &Path| match hint {
        "" => format!("Passphrase of {}: ", place.display()),
        hint => format!("Passphrase of {}, {hint}: ", place.display()),
    };
    let mut tries = if file.is_some() { 1 } else { TRIES };
    loop {
        tries -= 1;
        let mut failed = None;
        let opened = open(&mut |place| match passphrase(file, &prompt(place)) {
            Ok(passphrase) => passphrase,
            Err(failure) => {
                failed = Some(failure);
                None
            }
        });
        match (opened, failed) {
            (_, Some(failure)) => return Err(failure),
            (Err(error @ KeyError::WrongPassphrase { .. }), _) if tries > 0 => eprintln!("gambeson: {error}"),
            (Err(error @ KeyError::Locked { .. }), _) => return Err(locked(error)),
            (opened, _) => return Ok(opened?),
        }
    }
}

/// Opens an export with its passphrase.
pub(crate) fn asking_of_export<T>(
    export: &Path,
    file: Option<&Path>,
    mut open: impl FnMut(&mut dyn FnMut(&Path) -> Option<Passphrase>) -> Result<T, KeyError>,
) -> Result<T, Failure> {
    let mut last = None;
    let opened = asking(file, |ask| open(ask).inspect_err(|error| last = Some(error.clone())));
    opened.map_err(|failure| match last {
        // Else a passphrase's file or the terminal failed.
        Some(error @ (KeyError::Locked { .. } | KeyError::Altered { .. })) => of_export(export, error),
        _ => failure,
    })
}

/// What is said of an export: it is no store, so nothing unlocks it, and no backup has it.
pub(crate) fn of_export(export: &Path, error: KeyError) -> Failure {
    let name = export.display();
    match error {
        KeyError::Locked { .. } => Failure::new(
            Status::NotPermitted,
            format!(
                "the export {name} is under a passphrase of its own, and there is no terminal to ask on; name a file with it: \
                 --export-passphrase-file FILE"
            ),
        ),
        KeyError::Altered { what, .. } => Failure::refused(format!(
            "the export {name} was altered or is damaged: {what} is not what was written there; ask who sent it for another"
        )),
        KeyError::NoExport { .. } if matches!(export.try_exists(), Ok(false)) => {
            Failure::unavailable(format!("there is no file {name}; name the export that was sent to you"))
        }
        error => error.into(),
    }
}

/// A passphrase that exists; `None`: there is nobody to ask.
pub(crate) fn passphrase(file: Option<&Path>, prompt: &str) -> Result<Option<Passphrase>, Failure> {
    match file {
        Some(file) => from_file(file).map(Some),
        None => from_terminal(prompt),
    }
}

/// A passphrase that does not exist yet: typed twice, and long enough; or from the file that an option names.
pub(crate) fn new_passphrase(file: Option<&Path>, option: &str, of: &str) -> Result<Passphrase, Failure> {
    let nobody = || nobody(option);
    let first = passphrase(file, &format!("New passphrase of {of}: "))?.ok_or_else(nobody)?;
    if first.is_short() {
        return Err(Failure::usage(format!(
            "a passphrase of fewer than {SHORTEST} bytes is guessed whatever it is made into; take several words"
        )));
    }
    if file.is_none() && from_terminal("The same again: ")?.ok_or_else(nobody)? != first {
        return Err(Failure::usage("the two passphrases are not the same, so nothing was done; try again"));
    }
    Ok(first)
}

/// Asks who sits at the terminal a question; `None`: nobody does.
pub(crate) fn confirm(question: &str) -> Result<Option<bool>, Failure> {
    let Some(mut terminal) = terminal() else { return Ok(None) };
    let asked = terminal.write_all(format!("{question} [y/N] ").as_bytes()).and_then(|()| line(&mut terminal));
    let answer = asked.map_err(|error| Failure::system(format!("the terminal cannot be read ({error})")))?;
    Ok(Some(matches!(answer.trim_ascii(), b"y" | b"Y" | b"yes")))
}

/// A secret from a file, or from who sits at the terminal; `None`: there is nobody to ask.
pub(crate) fn secret(file: Option<&Path>, prompt: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    match file {
        Some(file) => bytes_of(file).map(Some),
        None => hidden_line(prompt).map_err(|error| Failure::system(format!("the terminal cannot be read ({error})"))),
    }
}

fn from_file(file: &Path) -> Result<Passphrase, Failure> {
    bytes_of(file).map(Passphrase::new)
}

fn bytes_of(file: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut bytes = if file.as_os_str() == "-" {
        line(&mut io::stdin().lock()).map_err(|error| Failure::system(format!("stdin cannot be read ({error})")))?
    } else {
        if matches!(file.try_exists(), Ok(false)) {
            return Err(Failure::unavailable(format!("there is no passphrase file {}", file.display())));
        }
        read_secret(file).map_err(|why| {
            Failure::refused(format!(
                "the passphrase file {} can't be used: {why}; it has to be a file of yours that nobody else may read \
                 (chmod 600)",
                file.display()
            ))
        })?
    };
    let length = bytes.trim_ascii_end().len();
    bytes.truncate(length);
    Ok(bytes)
}

fn from_terminal(prompt: &str) -> Result<Option<Passphrase>, Failure> {
    let line = hidden_line(prompt);
    let line = line.map_err(|error| Failure::system(format!("the terminal cannot be read ({error})")))?;
    Ok(line.map(Passphrase::new))
}

/// The PIN of a token, from who sits at the terminal.
pub(crate) fn pin(prompt: &str) -> Option<Zeroizing<Vec<u8>>> {
    hidden_line(prompt).ok().flatten()
}

/// A line that is not shown; `None`: there is no terminal.
fn hidden_line(prompt: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let Some(terminal) = terminal() else { return Ok(None) };
    // Hidden before it is asked for, since who has seen the question may type at once.
    let hidden = Hidden::begin(&terminal)?;
    let mut shown = hidden.terminal;
    shown.write_all(prompt.as_bytes())?;
    let line = line(&mut shown);
    shown.write_all(b"\n").and(line).map(Some)
}

fn terminal() -> Option<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty").ok()
}

/// A line without its end. One allocation: a vector that grows leaves copies of a passphrase behind.
fn line(from: &mut impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_MAX));
    let mut byte = Zeroizing::new([0]);
    while line.len() < LINE_MAX && from.read(&mut *byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(line)
}

/// A terminal that does not show what is typed, until this goes.
struct Hidden<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Hidden<'t> {
    fn begin(terminal: &'t File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &modes)?;
        Ok(Hidden { terminal, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// What is said when a passphrase is wanted and there is no terminal.
fn nobody(option: &str) -> Failure {
    Failure::usage(format!("there is no terminal to ask for a passphrase on; name a file with it: {option} FILE"))
}

fn locked(error: KeyError) -> Failure {
    let Failure { status, .. } = Failure::from(error.clone());
    Failure::new(status, format!("{error}; there is no terminal to ask on, and --passphrase-file names a file with it"))
}

const TRIES: usize = 3;
const LINE_MAX: usize = 4096;
