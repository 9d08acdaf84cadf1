//! A site's partitions in the database: a record for each, with its secret, and rows of the log for who got that and who
//! changed what.

use std::sync::Arc;

use gambeson_launch::Error as Told;
use gambeson_launch::partitions::{
    About, Cabinet, Change, Decision, Drawer, Epoch, Grant, Listed, Mark, Partition, Record, Shelf, change, list,
    take_in,
};
use gambeson_link::Peer;

use crate::audit::events;
use crate::database::{Snapshot, Transaction};
use crate::service::who;
use crate::{Database, Error, Event, Who};

/// The kind of their records.
pub const PARTITION: &str = "partition";

/// The partitions of a service, of which hosts and partner sites get secrets.
pub struct Vault {
    database: Database,
    gives: Arc<dyn Fn() -> Result<(), Error> + Send + Sync>,
}

impl Vault {
    /// Those of a database. `gives`: refuses where others may have taken secrets back meanwhile.
    pub fn new(database: Database, gives: impl Fn() -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Vault { database, gives: Arc::new(gives) }
    }
}

/// Those of one moment.
struct Seen<'s, 'c>(&'s Snapshot<'c>);

/// Those that a change is made to.
struct Open<'t, 'c> {
    change: &'t mut Transaction<'c>,
    who: &'t Who,
    /// Why the database says no, for who knows more of that than a sentence.
    failed: Option<Error>,
}

/// Changes a partition; the number of the epoch that began. What is refused is noted.
///
/// # Errors
/// What makes no sense of it, or cannot be written.
pub fn make(open: &mut Transaction<'_>, who: &Who, name: &str, what: &Change) -> Result<Option<u32>, Error> {
    with(open, who, |drawer| change(drawer, name, what), |event| event.about("partition", name))
}

/// Takes partitions in, with their epochs and secrets: names and encoded records.
///
/// # Errors
/// When one is none, or another of that name is there; then none is taken in.
pub fn take<'r>(
    open: &mut Transaction<'_>,
    who: &Who,
    records: impl IntoIterator<Item = (&'r str, &'r [u8])>,
) -> Result<(), Error> {
    let decoded = records.into_iter().map(|(name, bytes)| Some((name.to_owned(), Record::decode(bytes)?)));
    let records: Option<Vec<_>> = decoded.collect();
    let none =
        || Error::Senseless { why: "what was sent is no partition; install the same Gambeson on all hosts".into() };
    let records = records.ok_or_else(none)?;
    with(open, who, |drawer| take_in(drawer, &records), |event| event.about("did", "move")).map(drop)
}

/// All of them, for people.
///
/// # Errors
/// When one is not as it was written.
pub fn all(here: &Snapshot<'_>) -> Result<Vec<Listed>, Error> {
    list(&Seen(here)).map_err(untold)
}

fn with<T>(
    open: &mut Transaction<'_>,
    who: &Who,
    run: impl FnOnce(&mut dyn Drawer) -> Result<T, Told>,
    name: impl FnOnce(Event) -> Event,
) -> Result<T, Error> {
    let mut drawer = Open { change: open, who, failed: None };
    let made = run(&mut drawer);
    let failed = drawer.failed.take();
    made.map_err(|cause| match failed {
        Some(failed) => failed,
        None => {
            open.refuse(name(Event::refusal(who, PARTITION, &cause.to_string())));
            untold(cause)
        }
    })
}

impl Shelf for Seen<'_, '_> {
    fn names(&self) -> Result<Vec<String>, Told> {
        self.0.names(PARTITION).map_err(told)
    }

    fn partition(&self, name: &str) -> Result<Option<Partition>, Told> {
        Ok(record(self.0, name)?.map(|record| record.partition))
    }

    fn epoch(&self, name: &str) -> Result<Epoch, Told> {
        let epoch = record(self.0, name)?.and_then(|record| record.epoch);
        epoch.ok_or_else(|| Told::Refused(format!("the key service has no secret of a partition {name}")))
    }
}

impl Shelf for Open<'_, '_> {
    fn names(&self) -> Result<Vec<String>, Told> {
        Seen(self.change).names()
    }

    fn partition(&self, name: &str) -> Result<Option<Partition>, Told> {
        Seen(self.change).partition(name)
    }

    fn epoch(&self, name: &str) -> Result<Epoch, Told> {
        Seen(self.change).epoch(name)
    }
}

impl Drawer for Open<'_, '_> {
    fn put(&mut self, name: &str, partition: &Partition, epoch: Option<&Epoch>, about: &About) -> Result<(), Told> {
        let epoch = match epoch {
            Some(epoch) => Some(epoch.clone()),
            None => record(self.change, name)?.and_then(|held| held.epoch),
        };
        let bytes = Record { partition: partition.clone(), epoch }.encode();
        let event = with_about(Event::new(events::PARTITION_CHANGE, self.who), about);
        self.change.put_record(PARTITION, name, &bytes, &event).map_err(|failed| {
            let sentence = failed.to_string();
            self.failed = Some(failed);
            Told::Unavailable(sentence)
        })
    }
}

impl Shelf for Vault {
    fn names(&self) -> Result<Vec<String>, Told> {
        self.database.read(|here| Ok(Seen(here).names())).map_err(told)?
    }

    fn partition(&self, name: &str) -> Result<Option<Partition>, Told> {
        self.database.read(|here| Ok(Seen(here).partition(name))).map_err(told)?
    }

    fn epoch(&self, name: &str) -> Result<Epoch, Told> {
        self.database.read(|here| Ok(Seen(here).epoch(name))).map_err(told)?
    }
}

impl Cabinet for Vault {
    fn give(&self, asks: &Peer, decide: Decision) -> Result<Grant, Told> {
        let who = who(asks);
        let gives = self.gives.clone();
        let given = self.database.change(move |change| {
            gives()?;
            // In the transaction that its row is written in: in the order of the log nobody has a secret who was removed
            // before.
            let (about, outcome) = decide(&Seen(change));
            let event = match &outcome {
                Ok(_) => Event::new(events::PARTITION, &who),
                Err(cause) => Event::refusal(&who, PARTITION, &cause.to_string()),
            };
            change.log(&with_about(event, &about))?;
            Ok(outcome)
        });
        given.map_err(told)?
    }

    fn mark(&self) -> Mark {
        Mark { at: self.database.tail().number.into(), is_settled: true }
    }
}

fn with_about(event: Event, about: &About) -> Event {
    about.iter().fold(event, |event, (name, value)| event.about(name, value.clone()))
}

fn record(here: &Snapshot<'_>, name: &str) -> Result<Option<Record>, Told> {
    let Some(bytes) = here.record(PARTITION, name).map_err(told)? else { return Ok(None) };
    let none = || Told::Unavailable(format!("partition {name} is written in a way that this Gambeson does not know"));
    Record::decode(&bytes).map(Some).ok_or_else(none)
}

/// Who has the database cannot be asked now; what it gave before holds, as when it is away.
fn told(error: Error) -> Told {
    Told::Unavailable(error.to_string())
}

fn untold(cause: Told) -> Error {
    match cause {
        Told::Senseless(why) => Error::Senseless { why },
        Told::Refused(why) => Error::Declined { why },
        cause => Error::Site { why: cause.to_string() },
    }
}
