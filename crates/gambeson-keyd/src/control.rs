//! A socket at which the administrator of a service, on its host, has it do what files do elsewhere: back up, change the
//! master key, say who administers a label, say how it is.
//!
//! ```text
//! command   length u32 | Command, in postcard
//! reply     length u32 | Result<Reply, Refusal>
//! ```
//! Who runs as the service does, or as root, may: he could read its memory as well.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gambeson_launch::wire::Text;
use gambeson_master::MasterKey;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Uid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::database::{Role, Trouble};
use crate::standby::{Duty, Standing};
use crate::wire::{self, Secret};
use crate::{Database, Error, Rights, Who, service};

/// What a service is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Command {
    /// To say how it is.
    Status,
    /// To copy its database into a file that is not there yet.
    Backup(Text),
    /// To have another master key wrap its database key.
    Master {
        /// Where that is.
        place: String,
        /// Its passphrase, if it has one.
        passphrase: Option<Secret>,
        /// Whether to seal all records anew, under another database key.
        new_database_key: bool,
    },
    /// To verify its database whole.
    Verify {
        /// What the log must go through.
        since: Option<String>,
    },
    /// To make changes from here on, in the place of the primary.
    Promote {
        /// Also if that still answers.
        force: bool,
    },
    /// To have somebody administer a label, when nobody can any more.
    Administer {
        /// Which.
        label: String,
        /// His role.
        whom: String,
    },
}

/// What it says to that.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// How it is.
    Status(State),
    /// It was copied, with a log that ends so.
    Copied(String),
    /// The master key is another one, and these standbys cannot follow any more.
    Changed(Vec<String>),
    /// All is as it was written.
    Verified(wire::Verification),
    /// It makes changes now, in this term, and its log ends so.
    Promoted(u64, String),
    /// He has these rights now, without end.
    Administers(Rights),
}

/// Why it does not.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// The status that a command ends with which does the same to files.
    pub status: u8,
    /// The sentence.
    pub sentence: String,
}

/// How a service is.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// Where it listens.
    pub listening: Vec<String>,
    /// Since when it serves.
    pub since: u64,
    /// Whether it follows another.
    pub standby: bool,
    /// What its log ends with.
    pub tail: String,
    /// How many labels there are.
    pub labels: u64,
    /// How it stands among those with the same labels.
    pub standing: Standing,
    /// Why what was to be written last was not.
    pub unwritten: Option<Trouble>,
}

/// Opens a master key at a place, with its passphrase.
pub type OpenMaster = dyn Fn(&str, Option<Secret>) -> Result<Box<dyn MasterKey>, Refusal> + Send + Sync;

/// What commands act on.
pub struct Controlled {
    /// The database.
    pub database: Database,
    /// Where the service listens.
    pub listening: Vec<String>,
    /// Since when.
    pub since: u64,
    /// What it does among those with the same labels.
    pub duty: Arc<Duty>,
    /// Opens master keys, and remembers which one is meant from here on.
    pub open_master: Box<OpenMaster>,
    /// What is told of an error.
    pub refuse: fn(Error) -> Refusal,
}

/// A socket that is served until it is dropped.
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Begins to serve commands.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn open(path: &Path, controlled: Controlled) -> Result<Self, Error> {
        let cannot = |cause: io::Error| Error::Site { why: format!("{} cannot be made ({cause})", path.display()) };
        // One that is left is of a service that was killed: who has the database open is the only one.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(cannot)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        let controlled = Arc::new(controlled);
        let serve = move || {
            for stream in listener.incoming().flatten() {
                let controlled = controlled.clone();
                let _ = thread::Builder::new().spawn(move || controlled.attend(stream));
            }
        };
        thread::Builder::new().name("gambeson-control".into()).spawn(serve).map_err(cannot)?;
        Ok(Control { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Controlled {
    fn attend(&self, mut stream: UnixStream) {
        let _ = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        let peer = socket_peercred(&stream).map(|peer| peer.uid);
        let Some(uid) = peer.ok().filter(|uid| uid.is_root() || *uid == rustix::process::geteuid()) else { return };
        let Ok(command) = receive(&mut stream) else { return };
        let reply = self.obey(command, &user(uid));
        // Who is gone needs no answer.
        let _ = send(&mut stream, &reply);
    }

    fn obey(&self, command: Command, by: &Who) -> Result<Reply, Refusal> {
        if let Command::Master { place, passphrase, new_database_key } = command {
            let new = (self.open_master)(&place, passphrase)?;
            let done = self.database.change_master(new.as_ref(), new_database_key, by);
            // Also when it failed: then those that still can are soon in step again.
            let standbys = if new_database_key { self.duty.resealed() } else { Vec::new() };
            return done.map(|()| Reply::Changed(standbys)).map_err(self.refuse);
        }
        self.answer(command, by).map_err(self.refuse)
    }

    fn answer(&self, command: Command, by: &Who) -> Result<Reply, Error> {
        let database = &self.database;
        match command {
            Command::Status => Ok(Reply::Status(State {
                listening: self.listening.clone(),
                since: self.since,
                standby: database.role().0 == Role::Standby,
                tail: database.tail().to_string(),
                labels: database.read(|here| here.labels())?.len() as u64,
                standing: self.duty.standing()?,
                unwritten: database.health().trouble(),
            })),
            Command::Promote { force } => {
                // It was asked rightly, and is not to be.
                let refused = |why| match why {
                    Error::Senseless { why } => Error::Declined { why },
                    why => why,
                };
                let tail = self.duty.promote(force, by).map_err(refused)?;
                Ok(Reply::Promoted(database.role().1, tail.to_string()))
            }
            Command::Backup(to) => Ok(Reply::Copied(database.backup(Path::new(to.as_os()))?.to_string())),
            Command::Master { .. } => Err(Error::Senseless { why: "it takes a master key that is open".to_owned() }),
            Command::Administer { label, whom } => {
                self.duty.changes()?;
                administer(database, by, &label, &whom).map(Reply::Administers)
            }
            Command::Verify { since } => {
                let since = since.map(|since| since.parse()).transpose().map_err(|why| Error::Senseless { why })?;
                let found = database.verify(since.as_ref())?;
                let (tail, last) = (found.tail.to_string(), found.last);
                Ok(Reply::Verified(wire::Verification { tail, labels: found.labels, files: found.files, last }))
            }
        }
    }
}

/// Has somebody administer a label of a database; all that he may now.
///
/// # Errors
/// When there is no such label, that is nobody, or the database is a standby's.
pub fn administer(database: &Database, by: &Who, label: &str, whom: &str) -> Result<Rights, Error> {
    let (by, label, whom) = (by.clone(), label.to_owned(), whom.to_owned());
    database.change(move |change| service::administer(change, &by, &label, &whom))
}

/// Who acts on the service's own host, for its log.
#[must_use]
pub fn administrator() -> Who {
    user(rustix::process::geteuid())
}

fn user(uid: Uid) -> Who {
    Who {
        name: format!("uid {}", uid.as_raw()),
        roles: vec!["administrator".to_owned()],
        key: String::new(),
        from: gambeson_site::job::host_name(),
    }
}

/// Has the service whose socket this is do something. Nothing: none serves there.
///
/// # Errors
/// What it says, or why it says nothing.
pub fn command(path: &Path, command: &Command) -> Option<io::Result<Result<Reply, Refusal>>> {
    let mut stream = UnixStream::connect(path).ok()?;
    Some(send(&mut stream, command).and_then(|()| receive(&mut stream)))
}

/// A path, as a command carries it.
#[must_use]
pub fn path(path: &Path) -> Text {
    Text::from(std::ffi::OsStr::from_bytes(path.as_os_str().as_bytes()))
}

fn send<T: Serialize>(stream: &mut UnixStream, message: &T) -> io::Result<()> {
    let bytes = wire::encode(message);
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).and_then(|()| stream.write_all(&bytes))
}

fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LENGTH_MAX {
        return Err(io::Error::other("longer than any command"));
    }
    let mut bytes = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut bytes)?;
    wire::decode(&bytes).map_err(io::Error::other)
}

const LENGTH_MAX: usize = 1 << 20;
/// For who has connected and says nothing.
const PATIENCE: Duration = Duration::from_secs(60);
