//! One thread makes all changes: as many as wait, in one commit.
//!
//! ```text
//! change, change, ... ──> queue ──> BEGIN, { SAVEPOINT, change, RELEASE } ..., state, COMMIT ──> each hears of it
//! ```
//! While one commit waits for the disk, the changes of the next gather. Nobody hears of a change before it is on the disk.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use rusqlite::Connection;

use super::envelope::{Envelope, State};
use super::file::{STATE, set_meta};
use super::{Shared, Snapshot, Transaction};
use crate::Error;

/// A change in the queue: makes it, and says who is to hear whether it was committed. It gets an error where there is
/// nothing to make it in.
pub(super) type Job = Box<dyn FnOnce(Result<&mut Transaction<'_>, Error>) -> Made + Send>;

/// A change that was made.
pub(super) struct Made {
    /// Whether it is to stay.
    pub(super) stays: bool,
    /// Why the disk or the system did not let it.
    pub(super) unwritten: Option<Error>,
    /// Tells who waits: an error if all of it was in vain.
    pub(super) tell: Box<dyn FnOnce(Option<Error>) + Send>,
}

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Connection,
}

impl Writer {
    /// Until nobody is left who could queue a change.
    pub(super) fn run(self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let mut tell = Vec::new();
            let queue = std::iter::once(first).chain(jobs.try_iter()).take(MOST);
            let started = Instant::now();
            let failed = self.commit(queue, &mut tell).err();
            self.shared.commits.took(started.elapsed());
            for tell in tell {
                let failed = failed.clone();
                // Who listens is somebody else's code, and the others are still to hear.
                let _ = panic::catch_unwind(AssertUnwindSafe(move || tell(failed)));
            }
        }
    }

    fn commit(
        &self,
        queue: impl Iterator<Item = Job>,
        tell: &mut Vec<Box<dyn FnOnce(Option<Error>) + Send>>,
    ) -> Result<(), Error> {
        let begun = self.execute("BEGIN IMMEDIATE");
        let before = *self.shared.state();
        let envelope = self.shared.envelope();
        let (failed, unwritten) = (begun.err(), None);
        let mut group = Group { writer: self, state: before, envelope: Arc::clone(&envelope), failed, unwritten };
        for job in queue {
            tell.push(group.make(job));
        }
        let Group { state, envelope: after, failed, unwritten, .. } = group;
        let done = match failed {
            Some(failed) => Err(failed),
            None => self.finish(&before, &state, &envelope, &after),
        };
        if done.is_err() && !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        match done.as_ref().err().or(unwritten.as_ref()) {
            Some(why) => self.shared.health.failed(why),
            // One that wrote nothing says nothing of the disk.
            None if state != before => self.shared.health.worked(),
            None => {}
        }
        done
    }

    fn finish(
        &self,
        before: &State,
        state: &State,
        envelope: &Arc<Envelope>,
        after: &Arc<Envelope>,
    ) -> Result<(), Error> {
        let place = &self.shared.place;
        let other_key = !Arc::ptr_eq(envelope, after);
        if state != before || other_key {
            let sealed = after.seal_state(state).map_err(|why| place.system("drawing random numbers", &why))?;
            set_meta(&self.connection, STATE, &sealed).map_err(place.sqlite("sealing the end of its log"))?;
        }
        if other_key {
            // Nobody is to see records under one key with the other in hand.
            let mut held = self.shared.envelope.write().expect(UNPOISONED);
            self.execute("COMMIT")?;
            *held = Arc::clone(after);
        } else {
            self.execute("COMMIT")?;
        }
        if state != before {
            *self.shared.state() = *state;
            self.shared.ended.notify_all();
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> Result<(), Error> {
        let done = self.connection.prepare_cached(sql).and_then(|mut sql| sql.execute([]));
        done.map(drop).map_err(self.shared.place.sqlite("writing it"))
    }
}

/// The changes of one commit.
struct Group<'w> {
    writer: &'w Writer,
    state: State,
    envelope: Arc<Envelope>,
    /// Why none of them will be committed.
    failed: Option<Error>,
    /// Why one of them could not be written, though others may be.
    unwritten: Option<Error>,
}

impl Group<'_> {
    fn make(&mut self, job: Job) -> Box<dyn FnOnce(Option<Error>) + Send> {
        let writer = self.writer;
        let snapshot = Snapshot {
            place: &writer.shared.place,
            connection: &writer.connection,
            envelope: Arc::clone(&self.envelope),
            unsealed: Some(self.state),
        };
        let mut transaction = Transaction::new(snapshot);
        if self.failed.is_none() {
            self.failed = writer.execute("SAVEPOINT change").err();
        }
        if let Some(why) = &self.failed {
            return job(Err(why.clone())).tell;
        }
        let mut made = job(Ok(&mut transaction));
        self.unwritten = self.unwritten.take().or(made.unwritten.take());
        if !made.stays {
            self.forget(&mut transaction);
            self.failed = writer.execute("ROLLBACK TO change").err();
        }
        if self.failed.is_none()
            && let Err(why) = transaction.log_refusals()
        {
            // What was refused is not told without its row, and what was changed does not stay without it.
            self.forget(&mut transaction);
            self.failed = writer.execute("ROLLBACK TO change").err();
            self.unwritten.get_or_insert_with(|| why.clone());
            let tell = made.tell;
            made.tell = Box::new(move |failed| tell(Some(failed.unwrap_or(why))));
        }
        self.failed = self.failed.take().or(writer.execute("RELEASE change").err());
        (self.state, self.envelope) = (*transaction.state(), Arc::clone(&transaction.snapshot.envelope));
        made.tell
    }

    /// What a change that is rolled back thought there would be.
    fn forget(&self, transaction: &mut Transaction<'_>) {
        *transaction.state_mut() = self.state;
        transaction.seal_with(Arc::clone(&self.envelope));
    }
}

pub(super) const UNPOISONED: &str = "nobody panics with it";
/// Changes in one commit: so many that the disk is waited for seldom, and so few that the first need not wait long.
const MOST: usize = 1024;
