//! Opens key stores for commands: where they are, and where their passphrases come from.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use gambeson_keys::{KeyError, KeyRing, Passphrase, SHORTEST, State, Store};
use gambeson_site::job::read_secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::failure::Failure;

/// Where the key store is, and its passphrase.
#[derive(Args)]
pub(crate) struct Access {
    /// The key store, instead of the one in GAMBESON_KEYS or ~/.local/share/gambeson/keys
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
    /// A file with the store's passphrase, mode 0600, instead of asking for it; - reads a line of stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

impl Access {
    /// Where the store is.
    pub(crate) fn place(&self) -> Result<PathBuf, Failure> {
        Ok(self.store.clone().map_or_else(gambeson_keys::place, Ok)?)
    }

    /// Opens the store itself.
    pub(crate) fn open(&self) -> Result<Store, Failure> {
        let place = self.place()?;
        asking(self.passphrase_file.as_deref(), |ask| Store::open(&place, ask))
    }

    /// The keys that a process has here: of the store named, else as [`gambeson_keys::open`] finds them.
    pub(crate) fn keys(&self) -> Result<KeyRing, Failure> {
        match &self.store {
            Some(_) => Ok(self.open()?.into_keys()),
            None => asking(self.passphrase_file.as_deref(), |ask| gambeson_keys::open_asking(ask)),
        }
    }
}

impl Access {
    /// As [`Access::keys`], for one of several processes, of which none asks for a passphrase.
    pub(crate) fn keys_unasked(&self) -> Result<KeyRing, Failure> {
        if self.passphrase_file.is_some() {
            return self.keys();
        }
        let opened = match &self.store {
            Some(store) => Store::open(store, &mut |_| None).map(Store::into_keys),
            None => gambeson_keys::open_asking(&mut |_| None),
        };
        opened.map_err(|error| match error {
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
    /// There is none, and nobody named one.
    NoStore,
    /// There is one, and it stays shut, for this reason.
    Without(String),
}

/// Opens the user's key store once for all ranks of a job.
///
/// A job that touches no sealed files needs no keys, so a store that stays locked does not stop it: a rank that does
/// touch one gets none of its contents and says why.
pub(crate) fn for_job(passphrase_file: Option<&Path>) -> Result<ForJob, Failure> {
    let is_named = passphrase_file.is_some() || env::var_os("GAMBESON_KEYS").is_some_and(|named| !named.is_empty());
    let place = match gambeson_keys::place() {
        Ok(place) => place,
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

/// A passphrase that exists; `None`: there is nobody to ask.
pub(crate) fn passphrase(file: Option<&Path>, prompt: &str) -> Result<Option<Passphrase>, Failure> {
    match file {
        Some(file) => from_file(file).map(Some),
        None => from_terminal(prompt),
    }
}

/// A passphrase that does not exist yet: typed twice, and long enough.
pub(crate) fn new_passphrase(file: Option<&Path>, of: &str) -> Result<Passphrase, Failure> {
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

fn from_file(file: &Path) -> Result<Passphrase, Failure> {
    let mut bytes = if file.as_os_str() == "-" {
        line(&mut io::stdin().lock()).map_err(|error| Failure::system(format!("stdin cannot be read ({error})")))?
    } else {
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
    Ok(Passphrase::new(bytes))
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
fn nobody() -> Failure {
    Failure::usage("there is no terminal to ask for a passphrase on; name a file with it: --passphrase-file FILE")
}

fn locked(error: KeyError) -> Failure {
    let Failure { status, .. } = Failure::from(error.clone());
    Failure::new(status, format!("{error}; there is no terminal to ask on, and --passphrase-file names a file with it"))
}

const TRIES: usize = 3;
const LINE_MAX: usize = 4096;
