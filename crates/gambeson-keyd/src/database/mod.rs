//! One SQLite file: labels and other records, sealed, and the log.
//!
//! What it guarantees, and how it is laid out, is in docs/key-service-format.md.

mod backup;
mod batch;
mod commits;
mod envelope;
mod file;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod rekey;
mod rows;
mod snapshot;
mod standby;
mod transaction;
mod verification;
mod writer;

use std::fmt;
use std::fs::File;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gambeson_master::{MasterError, MasterKey};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

pub use backup::master_of;
pub use batch::{Batch, SealedRecord};
pub use commits::{BOUNDS, Commits};
pub use health::{Health, Trouble};
pub use snapshot::{AnchorRow, Snapshot};
pub use standby::Seed;
pub use transaction::{Direction, Transaction};
pub use verification::Verified;

use crate::audit::events;
use crate::{Error, Event, Tail, Who};
use envelope::{Envelope, State};
use file::{Place, Purpose};
use writer::{Job, Made, UNPOISONED, Writer};

/// A key service's database, open. Clones are the same one.
#[derive(Clone)]
pub struct Database(Arc<Handle>);

/// What a database does about changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It makes them.
    Primary,
    /// It follows another.
    Standby,
}

/// What the last clone ends.
struct Handle {
    shared: Arc<Shared>,
    jobs: Option<Sender<Job>>,
    writer: Option<JoinHandle<()>>,
}

/// What the writer's thread and everybody else have.
struct Shared {
    place: Place,
    envelope: RwLock<Arc<Envelope>>,
    state: Mutex<State>,
    /// That the state is another.
    ended: Condvar,
    /// Connections that nobody looks through now.
    readers: Mutex<Vec<Connection>>,
    /// How long commits took.
    commits: Commits,
    /// Whether they did.
    health: Health,
    /// One change of the master key at a time.
    master: Mutex<()>,
    /// For this process alone as long as it is open.
    _lock: File,
}

impl Database {
    /// Makes a database without labels, whose key the master key wraps.
    ///
    /// # Errors
    /// When one is there already, or it cannot be made.
    pub fn create(path: &Path, master: &dyn MasterKey) -> Result<Database, Error> {
        let place = Place::new(path);
        let envelope = Envelope::draw().map_err(|why| place.system("drawing random numbers", &why))?;
        let made = Database::make(place, envelope, master, Role::Primary)?;
        let named = Event::new(events::INIT, &Who::service()).about("master", master.name());
        made.change(move |transaction| transaction.log(&named))?;
        Ok(made)
    }

    /// Opens a database, and verifies it whole: the log's chain, its tail, and each record against the log.
    ///
    /// # Errors
    /// When there is none, others can get at it, the master key is another, or anything in it is not as it was written.
    pub fn open(path: &Path, master: &dyn MasterKey) -> Result<Database, Error> {
        let place = Place::new(path);
        place.check()?;
        let lock = place.lock()?;
        let connection = place.connect(Purpose::Write)?;
        let envelope = Arc::new(unwrapped(&place, &connection, master)?);
        let (_, state) = verification::whole(&place, &connection, &envelope, None)?;
        Database::start(place, lock, connection, envelope, state)
    }

    fn make(place: Place, envelope: Envelope, master: &dyn MasterKey, role: Role) -> Result<Database, Error> {
        let lock = place.lock()?;
        let wrapped = wrapped(&place, &envelope, master)?;
        place.make()?;
        let state = State::new(&envelope, role);
        let furnish = || {
            let mut connection = place.connect(Purpose::Write)?;
            place.furnish(&mut connection, &envelope, &wrapped, &master.name(), &state)?;
            place.sync()?;
            Ok(connection)
        };
        match furnish() {
            Ok(connection) => Database::start(place, lock, connection, Arc::new(envelope), state),
            Err(why) => {
                place.remove();
                Err(why)
            }
        }
    }

    fn start(
        place: Place,
        lock: File,
        connection: Connection,
        envelope: Arc<Envelope>,
        state: State,
    ) -> Result<Database, Error> {
        let shared = Arc::new(Shared {
            place,
            envelope: RwLock::new(envelope),
            state: Mutex::new(state),
            ended: Condvar::new(),
            readers: Mutex::new(Vec::new()),
            commits: Commits::default(),
            health: Health::default(),
            master: Mutex::new(()),
            _lock: lock,
        });
        let (jobs, queue) = mpsc::channel();
        let writer = Writer { shared: Arc::clone(&shared), connection };
        let started = thread::Builder::new().name("key database".into()).spawn(move || writer.run(&queue));
        let writer = started.map_err(|why| shared.place.system("starting its thread", &why))?;
        Ok(Database(Arc::new(Handle { shared, jobs: Some(jobs), writer: Some(writer) })))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.shared.place.path
    }

    /// Which database: what copies and standbys of it have, too.
    pub fn id(&self) -> [u8; 16] {
        self.0.shared.envelope().id
    }

    /// Makes a change, for good when this returns. Changes of many threads share a commit. If it says no, nothing of it
    /// stays but the rows of refusals.
    ///
    /// # Errors
    /// What the change says, or what writing does.
    pub fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (told, tells) = mpsc::sync_channel(1);
        self.submit(change, move |outcome| {
            // Whoever asked waits below.
            let _ = told.send(outcome);
        });
        tells.recv().unwrap_or_else(|_| Err(self.0.shared.place.system("writing it", &"its thread has ended")))
    }

    /// As [`Database::change`], and calls `then` with the outcome instead of waiting for it, in the database's own thread:
    /// it is to hand it on, and not to work.
    pub fn submit<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<T, Error> + Send + 'static,
        then: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) {
        let job: Job = Box::new(move |transaction| {
            let outcome = transaction.and_then(|transaction| {
                let made = panic::catch_unwind(AssertUnwindSafe(|| change(transaction)));
                // The others of the group are not to suffer.
                made.unwrap_or_else(|_| Err(transaction.place.system("making a change", &"it panicked")))
            });
            let stays = outcome.is_ok();
            let unwritten = outcome.as_ref().err().filter(|why| matches!(why, Error::System { .. })).cloned();
            Made { stays, unwritten, tell: Box::new(move |failed| then(failed.map_or(outcome, Err))) }
        });
        let jobs = self.0.jobs.as_ref().expect("it is open as long as there is a handle");
        // The thread ends only with the last handle.
        let _ = jobs.send(job);
    }

    /// Looks at the database as it is at one moment.
    ///
    /// # Errors
    /// What the look says, or what reading does.
    pub fn read<T>(&self, read: impl FnOnce(&Snapshot<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.0.shared.look(|connection, envelope| {
            let (place, envelope) = (&self.0.shared.place, Arc::clone(envelope));
            read(&Snapshot { place, connection, envelope, unsealed: None })
        })
    }

    /// How long commits took since it was opened.
    pub fn commits(&self) -> &Commits {
        &self.0.shared.commits
    }

    /// Whether it can be written.
    pub fn health(&self) -> &Health {
        &self.0.shared.health
    }

    /// What the log ends with now.
    pub fn tail(&self) -> Tail {
        self.0.shared.state().tail
    }

    /// Waits until the log ends beyond a row, or the time is up, and says what it ends with.
    pub fn wait_past(&self, number: u64, timeout: Duration) -> Tail {
        let shared = &self.0.shared;
        let waited = shared.ended.wait_timeout_while(shared.state(), timeout, |state| state.tail.number <= number);
        waited.unwrap_or_else(PoisonError::into_inner).0.tail
    }

    /// Verifies the database whole, as it is at one moment. `since`: what its log is to have ended with once.
    ///
    /// # Errors
    /// What is not as it was written.
    pub fn verify(&self, since: Option<&Tail>) -> Result<Verified, Error> {
        let shared = &self.0.shared;
        let look = |connection: &Connection, envelope: &Arc<Envelope>| {
            verification::whole(&shared.place, connection, envelope, since)
        };
        Ok(shared.look(look)?.0)
    }

    /// What it does about changes, and the term: how often a standby was promoted.
    pub fn role(&self) -> (Role, u64) {
        let state = self.0.shared.state();
        (state.role, state.term)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn envelope(&self) -> Arc<Envelope> {
        Arc::clone(&self.envelope.read().expect(UNPOISONED))
    }

    fn look<T>(&self, look: impl FnOnce(&Connection, &Arc<Envelope>) -> Result<T, Error>) -> Result<T, Error> {
        let free = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = free.map_or_else(|| self.place.connect(Purpose::Read), Ok)?;
        let run = |sql: &str| {
            let done = connection.prepare_cached(sql).and_then(|mut sql| sql.query([])?.next().map(drop));
            done.map_err(self.place.sqlite("reading it"))
        };
        let envelope = {
            // From the first query on it is one moment, at which this is the key.
            let envelope = self.envelope.read().expect(UNPOISONED);
            run("BEGIN")?;
            run("SELECT 1 FROM meta")?;
            Arc::clone(&envelope)
        };
        let seen = look(&connection, &envelope);
        run("ROLLBACK")?;
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS_MAX {
            readers.push(connection);
        }
        seen
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // A change's own listener may have had the last handle.
        if let Some(writer) = self.writer.take().filter(|writer| writer.thread().id() != thread::current().id()) {
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Database").field("path", &self.0.shared.place.path).finish_non_exhaustive()
    }
}

/// The database's key, if the master key gives it.
fn unwrapped(place: &Place, connection: &Connection, master: &dyn MasterKey) -> Result<Envelope, Error> {
    place.check_schema(connection)?;
    let meta = |name| {
        let value = file::meta(connection, name).map_err(place.sqlite("reading its key"))?;
        value.ok_or_else(|| place.altered("what it says of its key"))
    };
    let id = meta(file::ID)?.try_into().map_err(|_| place.altered("its id"))?;
    let (key, made_with) = (meta(file::KEY)?, meta(file::MASTER)?);
    Envelope::unwrap(id, &key, master).map_err(|why: MasterError| {
        let why = why.to_string();
        let made_with = String::from_utf8_lossy(&made_with).into_owned();
        let why = if made_with == master.name() { why } else { format!("{why} (its key is under {made_with})") };
        Error::Master { path: place.name.clone(), master: master.name(), why }
    })
}

/// The database's key, wrapped, and seen to come back: what is not got back is lost with all labels.
fn wrapped(place: &Place, envelope: &Envelope, master: &dyn MasterKey) -> Result<Vec<u8>, Error> {
    let refused =
        |why: MasterError| Error::Master { path: place.name.clone(), master: master.name(), why: why.to_string() };
    let wrapped = envelope.wrap(master).map_err(refused)?;
    let back = Envelope::unwrap(envelope.id, &wrapped, master).map_err(refused)?;
    if back.key != envelope.key {
        return Err(refused(MasterError::NotWrappedByIt("it unwraps another key than it wrapped".into())));
    }
    Ok(wrapped)
}

/// Connections that are kept for the next look.
const READERS_MAX: usize = 64;
