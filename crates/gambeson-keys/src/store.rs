//! The `file:` key store: a folder that is its owner's alone.
//!
//! ```text
//! keys/             0700; $GAMBESON_KEYS, else $XDG_DATA_HOME/gambeson/keys, else ~/.local/share/gambeson/keys
//!   store           0600: all labels, sealed by the master key; see format.rs
//!   master-key      0600: the master key, in a store that was made so; it may lie elsewhere
//!   lock            who changes the store holds it
//!   anchors/        where files were last
//! ```
//! The store is written anew as a whole and put into its place at once, so that a crash leaves the old one or the new one.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gambeson_proto::secret::Secret32;
use gambeson_site::job::read_secret;
use zeroize::Zeroizing;

use crate::anchors::{Anchors, replace};
use crate::cipher::{self, draw};
use crate::format::{self, COUNT_MAX, Contents, Header, Kind, Lock};
use crate::keyring::{KeyRing, SERVICE};
use crate::passphrase::{Cost, Passphrase};
use crate::ring::Ring;
use crate::{KeyError, session};

/// An opened store.
#[derive(Debug)]
pub struct Store {
    place: PathBuf,
    header: Header,
    master: Secret32,
    anchor_key: Secret32,
    ring: Ring,
}

/// How a new store's master key is kept.
pub enum Protection {
    /// Wrapped by a passphrase.
    Passphrase(Passphrase, Cost),
    /// In a file of its own that must not be there yet; relative to the store's folder.
    KeyFile(PathBuf),
}

/// Whether a store opens without being asked for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It wants its passphrase.
    Locked,
    /// The session keyring remembers its master key.
    Unlocked,
    /// Its master key is in a file.
    KeyFile,
}

/// Where the store is that this process's own identity has: `$GAMBESON_KEYS`, else the default place.
///
/// # Errors
/// When there is no home to look in.
pub fn place() -> Result<PathBuf, KeyError> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = named() {
        return Ok(named);
    }
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
    data.map(|data| data.join("gambeson/keys")).ok_or_else(|| {
        let why = "this process has no HOME; name the store in GAMBESON_KEYS";
        KeyError::system("of this user", "finding it", &why)
    })
}

/// The store that the environment names: a folder, or a key service.
pub fn named() -> Option<PathBuf> {
    env::var_os("GAMBESON_KEYS").filter(|place| !place.is_empty()).map(PathBuf::from)
}

impl Store {
    /// Makes a store without labels.
    ///
    /// # Errors
    /// When there is one already, or the place or the key file cannot be made.
    pub fn create(place: &Path, protection: Protection) -> Result<Self, KeyError> {
        let store = place.display().to_string();
        let system = |doing: String| move |error: io::Error| KeyError::system(&store, doing, &error);
        let folder = DirBuilder::new().recursive(true).mode(0o700).create(place);
        folder.map_err(system(format!("making the folder {}", place.display())))?;
        private(place)?;
        let _held = lock(place)?;
        let store = place.display().to_string();
        if fs::symlink_metadata(place.join(STORE)).is_ok() {
            return Err(KeyError::StoreExists { store });
        }
        let no_random_numbers = |cause| KeyError::no_random_numbers(&store, &cause);
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(no_random_numbers)?;
        let (master, anchor_key) = (draw().map_err(no_random_numbers)?, draw().map_err(no_random_numbers)?);
        let lock = match protection {
            Protection::Passphrase(passphrase, cost) => {
                wrap_master(Kind::Store, &id, &master, &passphrase, cost).map_err(no_random_numbers)?
            }
            Protection::KeyFile(path) => {
                let file = place.join(&path);
                let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
                let written = made.and_then(|mut file| {
                    file.write_all(master.as_bytes())?;
                    file.sync_all()
                });
                let doing = format!("making the key file {}", file.display());
                written.map_err(|error| KeyError::system(&store, doing, &error))?;
                Lock::KeyFile(path)
            }
        };
        let header = Header { kind: Kind::Store, id, serial: 0, lock };
        let ring = Ring::empty(store);
        let mut made = Store { place: place.to_owned(), header, master, anchor_key, ring };
        if let Err(error) = made.write() {
            if let Lock::KeyFile(path) = &made.header.lock {
                // It opens nothing, and would be in the way of the next attempt.
                let _ = fs::remove_file(place.join(path));
            }
            return Err(error);
        }
        Ok(made)
    }

    /// Opens the store at a place. `ask` is called for the passphrase when it is needed; `None`: nobody gives it.
    ///
    /// # Errors
    /// When there is none, it stays locked, others can get at it, or it was altered.
    pub fn open(place: &Path, ask: &mut dyn FnMut(&Path) -> Option<Passphrase>) -> Result<Self, KeyError> {
        let store = place.display().to_string();
        let bytes = read(place)?;
        let (header, length) = header(place, &bytes)?;
        let tried = |master: Secret32| {
            let contents = format::open(&bytes, length, &master).ok()?;
            Some((master, contents))
        };
        let altered = || KeyError::altered(&store, format!("{} of it", place.join(STORE).display()));
        let (master, contents) = match &header.lock {
            Lock::Open | Lock::Recipient { .. } => unreachable!("a store is under a passphrase or has a key file"),
            Lock::KeyFile(path) => tried(key_file(place, path)?).ok_or_else(altered)?,
            Lock::Passphrase { .. } => match session::recall(&header.id).and_then(tried) {
                Some(opened) => opened,
                None => {
                    let passphrase = ask(place).ok_or_else(|| KeyError::Locked { store: store.clone() })?;
                    let wrong = || KeyError::WrongPassphrase { store: format!("the key store {store}") };
                    tried(unwrap_master(&header, &passphrase).ok_or_else(wrong)?).ok_or_else(altered)?
                }
            },
        };
        let ring = Ring { store, labels: contents.labels };
        Ok(Store { place: place.to_owned(), header, master, anchor_key: contents.anchor_key, ring })
    }

    /// Where it is.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Its labels.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Whether its master key is in a file.
    pub fn has_key_file(&self) -> bool {
        matches!(self.header.lock, Lock::KeyFile(_))
    }

    /// Changes its labels, all or nothing, whoever else is about to.
    ///
    /// # Errors
    /// What the change says, or what writing does; then the store is as it was.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Ring) -> Result<T, KeyError>) -> Result<T, KeyError> {
        let _held = lock(&self.place)?;
        let mut current = self.current()?;
        let outcome = change(&mut current.ring)?;
        current.write()?;
        *self = current;
        Ok(outcome)
    }

    /// Gives the store another passphrase and another master key, so that who knew the old ones has nothing of it.
    ///
    /// # Errors
    /// When the store cannot be written; then it is as it was.
    pub fn change_passphrase(&mut self, passphrase: &Passphrase, cost: Cost) -> Result<(), KeyError> {
        let _held = lock(&self.place)?;
        let mut current = self.current()?;
        let no_random_numbers = |cause| KeyError::no_random_numbers(&self.ring.store, &cause);
        current.master = draw().map_err(no_random_numbers)?;
        let lock = wrap_master(Kind::Store, &current.header.id, &current.master, passphrase, cost);
        let before = std::mem::replace(&mut current.header.lock, lock.map_err(no_random_numbers)?);
        current.write()?;
        *self = current;
        if let Lock::KeyFile(path) = before {
            // Nothing opens with it any more.
            let _ = fs::remove_file(self.place.join(path));
        }
        let _ = session::forget(&self.header.id);
        Ok(())
    }

    /// The store as it is now: somebody may have changed it since it was opened here.
    fn current(&self) -> Result<Self, KeyError> {
        let bytes = read(&self.place)?;
        let (header, length) = header(&self.place, &bytes)?;
        let contents = format::open(&bytes, length, &self.master).map_err(|_| {
            let what = "since it was opened here it got another passphrase, or what is there now";
            KeyError::altered(&self.ring.store, what)
        })?;
        let ring = Ring { store: self.ring.store.clone(), labels: contents.labels };
        let (place, master) = (self.place.clone(), self.master.clone());
        Ok(Store { place, header, master, anchor_key: contents.anchor_key, ring })
    }

    /// Has the session keyring remember the master key, for so many seconds or until the session ends.
    ///
    /// # Errors
    /// When the kernel has no keyring for this process.
    pub fn remember(&self, seconds: Option<u32>) -> Result<(), KeyError> {
        let done = session::remember(&self.header.id, &self.master, seconds);
        done.map_err(|error| KeyError::system(&self.ring.store, "unlocking it for this session", &error))
    }

    /// What serves keys of it from here on.
    pub fn into_keys(self) -> KeyRing {
        let anchors = Anchors::new(&self.place, self.anchor_key);
        KeyRing::new(self.ring, Ok(Box::new(anchors)))
    }

    /// The key file for the ranks of a job, who find it in the job's directory, which is in memory and their user's alone.
    pub fn for_job(&self) -> Zeroizing<Vec<u8>> {
        let header = Header { kind: Kind::Job, lock: Lock::Open, ..self.header.clone() };
        let home = fs::canonicalize(&self.place).unwrap_or_else(|_| self.place.clone());
        let contents = Contents { anchor_key: self.anchor_key.clone(), home, labels: self.ring.labels.clone() };
        format::lay_open(&header, &contents)
    }

    fn write(&mut self) -> Result<(), KeyError> {
        let store = self.ring.store.clone();
        let too_many =
            self.ring.labels.len() > COUNT_MAX || self.ring.labels.iter().any(|entry| entry.versions.len() > COUNT_MAX);
        if too_many {
            return Err(KeyError::system(&store, "writing it", &"it would have more labels than a store holds"));
        }
        self.header.serial += 1;
        let contents =
            Contents { anchor_key: self.anchor_key.clone(), home: PathBuf::new(), labels: self.ring.labels.clone() };
        let file = format::seal(&self.header, &self.master, &contents)
            .map_err(|cause| KeyError::no_random_numbers(&store, &cause))?;
        let path = self.place.join(STORE);
        replace(&path, &file).map_err(|error| KeyError::system(&store, format!("writing {}", path.display()), &error))
    }
}

/// Whether the store at a place opens without being asked for anything.
///
/// # Errors
/// As [`Store::open`].
pub fn state(place: &Path) -> Result<State, KeyError> {
    let (header, _) = header(place, &read(place)?)?;
    Ok(match header.lock {
        Lock::KeyFile(_) => State::KeyFile,
        _ if session::recall(&header.id).is_some() => State::Unlocked,
        _ => State::Locked,
    })
}

/// Has the session keyring forget the store at a place, and says whether it was remembered.
///
/// # Errors
/// When there is no store, or the kernel refuses.
pub fn forget(place: &Path) -> Result<bool, KeyError> {
    let (header, _) = header(place, &read(place)?)?;
    let store = place.display().to_string();
    session::forget(&header.id).map_err(|error| KeyError::system(&store, "locking it", &error))
}

/// Which store is at a place, if one is.
pub(crate) fn id(place: &Path) -> Result<[u8; 16], KeyError> {
    Ok(header(place, &read(place)?)?.0.id)
}

pub(crate) fn wrap_master(
    kind: Kind,
    id: &[u8; 16],
    master: &Secret32,
    passphrase: &Passphrase,
    cost: Cost,
) -> Result<Lock, getrandom::Error> {
    let mut salt = [0; crate::passphrase::SALT];
    getrandom::fill(&mut salt)?;
    let ad = Header::master_ad(kind, id, &cost, &salt);
    let wrapped = cipher::seal(&passphrase.key(&cost, &salt), &ad, master.as_bytes())?;
    Ok(Lock::Passphrase { cost, salt, wrapped: wrapped.try_into().expect("a wrapped key has its length") })
}

/// `None`: it is another passphrase's.
pub(crate) fn unwrap_master(header: &Header, passphrase: &Passphrase) -> Option<Secret32> {
    let Lock::Passphrase { cost, salt, wrapped } = &header.lock else {
        unreachable!("whoever asks for a passphrase has seen that one is needed");
    };
    let ad = Header::master_ad(header.kind, &header.id, cost, salt);
    let opened = cipher::open(&passphrase.key(cost, salt), &ad, wrapped)?;
    Some(Secret32::filled(|master| master.copy_from_slice(&opened)))
}

fn header(place: &Path, bytes: &[u8]) -> Result<(Header, usize), KeyError> {
    let decoded = Header::decode(bytes).ok().filter(|(header, _)| header.kind == Kind::Store);
    decoded.ok_or_else(|| {
        let path = place.join(STORE);
        KeyError::altered(
            &place.display().to_string(),
            format!("{}, which is no store of this Gambeson's,", path.display()),
        )
    })
}

fn read(place: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let (store, path) = (place.display().to_string(), place.join(STORE));
    if store.starts_with(SERVICE) {
        let why = "this program cannot; start it with `gambeson run` under the same GAMBESON_KEYS, which asks for all processes of \
                   the job";
        return Err(KeyError::Unreachable { store, why: why.to_owned() });
    }
    match fs::symlink_metadata(&path) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(KeyError::NoStore { store });
        }
        Err(error) => return Err(KeyError::system(&store, format!("reading {}", path.display()), &error)),
    }
    private(place)?;
    read_secret(&path).map_err(|why| exposed(place, &path, &why))
}

fn key_file(place: &Path, path: &Path) -> Result<Secret32, KeyError> {
    let path = place.join(path);
    let bytes = read_secret(&path).map_err(|why| exposed(place, &path, &why))?;
    let bytes: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| exposed(place, &path, "it has not 32 bytes"))?;
    Ok(Secret32::filled(|master| master.copy_from_slice(bytes)))
}

/// Refuses a folder in which others could put a store of theirs.
fn private(place: &Path) -> Result<(), KeyError> {
    let store = place.display().to_string();
    let metadata = fs::metadata(place)
        .map_err(|error| KeyError::system(&store, format!("looking at the folder {store}"), &error))?;
    let user = rustix::process::geteuid().as_raw();
    let why = if !metadata.is_dir() {
        format!("{store} is no folder; name one in GAMBESON_KEYS")
    } else if metadata.uid() != user {
        format!(
            "the folder belongs to user {} and this process runs as user {user}; use a store of your own",
            metadata.uid()
        )
    } else if metadata.mode() & 0o077 != 0 {
        format!("others may enter its folder (mode {:04o}); chmod 700 {store}", metadata.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(KeyError::Exposed { store, why })
}

fn exposed(place: &Path, path: &Path, why: &str) -> KeyError {
    let path = path.display();
    let why = format!(
        "{path} can't be used: {why}; it has to be yours alone (chmod 600), and what others could read of it is \
                       no secret any more"
    );
    KeyError::Exposed { store: place.display().to_string(), why }
}

fn lock(place: &Path) -> Result<File, KeyError> {
    let path = place.join(LOCK);
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    opened
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| KeyError::system(&place.display().to_string(), format!("locking {}", path.display()), &error))
}

const STORE: &str = "store";
const LOCK: &str = "lock";
