//! What a primary knows of its standbys, and how long it waits for them.
//!
//! A standby is in step once it had all there was at some moment. From then on a change is acknowledged when the standby
//! has it on its disk, too. If that takes longer than [`PATIENCE`], the standby is lost: the log says so, and the primary
//! goes on without it until it is in step again.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gambeson_launch::wire::Host;
use serde::{Deserialize, Serialize};

use super::message::{Fed, LENGTH_MAX};
use crate::audit::events;
use crate::{Database, Error, Event, Tail, Who};

/// The standbys that the rules name.
pub(super) struct Followers {
    database: Database,
    hosts: Vec<Host>,
    states: Mutex<Vec<Follower>>,
    changed: Condvar,
}

/// One of them.
#[derive(Clone, Default)]
struct Follower {
    /// Through which row it has all on its disk.
    has: u64,
    /// The end of what it was sent last, if that was all there was.
    whole: Option<u64>,
    in_step: bool,
    heard: Option<Instant>,
}

/// How a standby is, as its primary sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowerState {
    /// The name of its host.
    pub name: String,
    /// Whether changes wait for it.
    pub in_step: bool,
    /// Through which row it has all on its disk.
    pub has: u64,
    /// How many seconds ago it said so.
    pub heard: Option<u64>,
}

impl Followers {
    pub(super) fn new(database: Database, hosts: Vec<Host>) -> Self {
        let states = Mutex::new(vec![Follower::default(); hosts.len()]);
        Followers { database, hosts, states, changed: Condvar::new() }
    }

    pub(super) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Which of them has one of these roles.
    pub(super) fn find(&self, roles: &[String]) -> Option<usize> {
        let is = |host: &Host| roles.iter().any(|role| role.strip_prefix("dns:") == Some(&host.name));
        self.hosts.iter().position(is)
    }

    pub(super) fn list(&self) -> Vec<FollowerState> {
        let states = self.states();
        let states = self.hosts.iter().zip(states.iter()).map(|(host, state)| FollowerState {
            name: host.name.clone(),
            in_step: state.in_step,
            has: state.has,
            heard: state.heard.map(|heard| heard.elapsed().as_secs()),
        });
        states.collect()
    }

    /// Takes note of what one of them has, and gives it what comes next, as soon as there is something.
    pub(super) fn feed(&self, at: usize, after: &Tail) -> Result<Fed, Error> {
        let next = |size| match self.database.since(after.number, size) {
            Ok(batch) if batch.from == *after => Ok(Ok(batch)),
            Ok(_) => Ok(Err("its log went another way than that of the primary".to_owned())),
            Err(Error::NotNext { why, .. }) => Ok(Err(why)),
            Err(other) => Err(other),
        };
        // What was written before the look is in it.
        let mut end = self.database.tail().number;
        let mut batch = match next(BATCH)? {
            Ok(batch) => batch,
            Err(why) => return Ok(self.part(at, why)),
        };
        self.hear(at, after.number, batch.rows.is_empty());
        if batch.rows.is_empty() {
            end = self.database.wait_past(after.number, POLL).number;
            batch = match next(BATCH)? {
                Ok(batch) => batch,
                Err(why) => return Ok(self.part(at, why)),
            };
        }
        let mut size = BATCH;
        let mut bytes = batch.encode();
        while bytes.len() > LENGTH_MAX - MARGIN && batch.rows.len() > 1 {
            size /= 2;
            match next(size)? {
                Ok(less) => (bytes, batch) = (less.encode(), less),
                Err(why) => return Ok(self.part(at, why)),
            }
        }
        let Some(last) = batch.rows.last() else { return Ok(Fed::Nothing) };
        self.states()[at].whole = (last.number >= end).then_some(last.number);
        Ok(Fed::Batch { batch: bytes, end: end.max(last.number) })
    }

    /// One of them has all through a row on its disk.
    fn hear(&self, at: usize, number: u64, is_all: bool) {
        let mut states = self.states();
        let state = &mut states[at];
        let went_back = number < state.has;
        (state.has, state.heard) = (number, Some(Instant::now()));
        let was = state.in_step;
        state.in_step = !went_back && (was || is_all || state.whole.is_some_and(|whole| number >= whole));
        let name = &self.hosts[at].name;
        match (was, state.in_step) {
            (false, true) => self.tell(events::STANDBY, name, number),
            (true, false) => self.tell(events::STANDBY_LOST, name, number),
            _ => {}
        }
        drop(states);
        self.changed.notify_all();
    }

    /// Waits until all that are in step have a row on their disks, and says which of them do not when the time is up.
    pub(super) fn late(&self, number: u64, deadline: Instant) -> Vec<usize> {
        self.wait(number, deadline).1
    }

    /// Waits likewise. Those that take too long are lost from then on.
    pub(super) fn confirm(&self, number: u64, deadline: Instant) -> Vec<usize> {
        let (mut states, late) = self.wait(number, deadline);
        late.iter().for_each(|&at| self.lose(at, &mut states[at]));
        late
    }

    fn wait(&self, number: u64, deadline: Instant) -> (MutexGuard<'_, Vec<Follower>>, Vec<usize>) {
        let is_late = |state: &Follower| state.in_step && state.has < number;
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.states(), left, |states| states.iter().any(is_late));
        let states = waited.unwrap_or_else(PoisonError::into_inner).0;
        let late = states.iter().enumerate().filter(|(_, state)| is_late(state)).map(|(at, _)| at).collect();
        (states, late)
    }

    /// Goes on without all of them: records are sealed by another key now, which none of them has.
    pub(super) fn lose_all(&self) {
        let mut states = self.states();
        states.iter_mut().enumerate().for_each(|(at, state)| self.lose(at, state));
        drop(states);
        self.changed.notify_all();
    }

    /// One of them has a log that is no part of the primary's.
    fn part(&self, at: usize, why: String) -> Fed {
        self.lose(at, &mut self.states()[at]);
        self.changed.notify_all();
        Fed::Apart(why)
    }

    fn lose(&self, at: usize, state: &mut Follower) {
        // What it was sent long ago does not count: it has to have all once more.
        state.whole = None;
        if std::mem::take(&mut state.in_step) {
            self.tell(events::STANDBY_LOST, &self.hosts[at].name, state.has);
        }
    }

    /// Has it stand in the log, and says so to who looks at the service's own output.
    fn tell(&self, event: &'static str, name: &str, has: u64) {
        if event == events::STANDBY_LOST {
            eprintln!(
                "gambeson keyd: the standby {name} does not confirm what is beyond row {has}; changes are acknowledged \
                 without it"
            );
        } else {
            eprintln!("gambeson keyd: the standby {name} has all through row {has}; changes wait for it from here on");
        }
        let event = Event::new(event, &Who::service()).about("standby", name).about("has", has);
        self.database.submit(move |change| change.log(&event), |_| ());
    }

    fn states(&self) -> MutexGuard<'_, Vec<Follower>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So long a change waits for the standbys that are in step.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// So long a standby that has all waits for more before it is told that there is nothing.
pub(super) const POLL: Duration = Duration::from_secs(3);
/// About so many bytes of rows go at a time; the records come on top.
const BATCH: usize = 512 << 10;
/// What a message has around its batch.
const MARGIN: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use gambeson_keys::cipher;
    use gambeson_master::{MasterError, MasterKey};
    use gambeson_proto::secret::Secret32;

    use super::*;
    use crate::database::Batch;

    struct Master;

    impl MasterKey for Master {
        fn name(&self) -> String {
            "a master key in memory".into()
        }

        fn wrap(&self, context: &[u8], key: &Secret32) -> Result<Vec<u8>, MasterError> {
            let sealed = cipher::seal(&Secret32::from_bytes([7; 32]), context, key.as_bytes());
            sealed.map_err(|why| MasterError::Unavailable(why.to_string()))
        }

        fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Result<Secret32, MasterError> {
            let key = cipher::open(&Secret32::from_bytes([7; 32]), context, wrapped);
            let key = key.ok_or(MasterError::NotWrappedByIt("it is not the key".into()))?;
            Ok(Secret32::filled(|secret| secret.copy_from_slice(&key)))
        }
    }

    /// A primary that knows h2, and h2's database, in a folder that goes when it goes.
    struct Pair {
        folder: PathBuf,
        primary: Database,
        standby: Database,
        followers: Followers,
    }

    impl Pair {
        fn new(name: &str) -> Self {
            use std::os::unix::fs::DirBuilderExt;
            let folder = std::env::temp_dir().join(format!("gambeson-followers-{}-{name}", std::process::id()));
            std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
            let primary = Database::create(&folder.join("primary.db"), &Master).unwrap();
            let standby = Database::create_standby(&folder.join("standby.db"), &Master, &primary.seed()).unwrap();
            let followers = Followers::new(primary.clone(), vec![super::super::host_of("h2").unwrap()]);
            Pair { folder, primary, standby, followers }
        }

        /// A row of the primary's, and its number.
        fn change(&self) -> u64 {
            let event = Event::new(events::GET, &Who::service());
            self.primary.change(move |change| change.log(&event)).unwrap();
            self.primary.tail().number
        }

        /// One step of the standby's.
        fn follow(&self) {
            match self.followers.feed(0, &self.standby.tail()).unwrap() {
                Fed::Batch { batch, .. } => drop(self.standby.apply(Batch::decode(&batch).unwrap()).unwrap()),
                Fed::Nothing => {}
                other => panic!("{other:?}"),
            }
        }

        fn confirm(&self, number: u64) -> Vec<usize> {
            self.followers.confirm(number, Instant::now() + PATIENCE)
        }

        fn is_in_step(&self) -> bool {
            self.followers.list()[0].in_step
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn a_change_waits_for_who_is_in_step_and_for_nobody_else() {
        let pair = Pair::new("waits");
        let begun = Instant::now();
        assert!(pair.confirm(pair.change()).is_empty(), "it never was in step");
        pair.follow();
        // That it got all is known when it asks for more.
        assert!(!pair.is_in_step());
        pair.follow();
        assert!(pair.is_in_step() && begun.elapsed() < PATIENCE);

        let number = pair.change();
        std::thread::scope(|scope| {
            let confirmed = scope.spawn(|| pair.confirm(number));
            while pair.followers.list()[0].has < number {
                pair.follow();
            }
            assert!(confirmed.join().unwrap().is_empty());
        });
        assert!(pair.standby.tail().number >= number);

        let (number, begun) = (pair.change(), Instant::now());
        assert_eq!(pair.confirm(number), [0]);
        assert!(begun.elapsed() >= PATIENCE && !pair.is_in_step());
        let begun = Instant::now();
        assert!(pair.confirm(pair.change()).is_empty());
        assert!(begun.elapsed() < PATIENCE);
        // An old batch does not bring it back in step; all that is there does.
        while pair.standby.tail() != pair.primary.tail() {
            pair.follow();
        }
        pair.follow();
        assert!(pair.is_in_step());
        let rows = pair.primary.read(|here| here.log(1, 100)).unwrap();
        let told: Vec<_> =
            rows.iter().map(|row| row.event.as_str()).filter(|event| event.starts_with("standby")).collect();
        assert_eq!(told, [events::STANDBY, events::STANDBY_LOST, events::STANDBY]);
    }

    #[test]
    fn what_another_history_ends_with_confirms_nothing() {
        let pair = Pair::new("history");
        let number = pair.change();
        for tail in [Tail { number, hash: [1; 32] }, Tail { number: number + 5, ..pair.primary.tail() }] {
            assert!(matches!(pair.followers.feed(0, &tail).unwrap(), Fed::Apart(_)));
            assert_eq!((pair.followers.list()[0].has, pair.is_in_step()), (0, false));
        }
    }
}
