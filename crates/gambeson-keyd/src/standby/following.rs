//! A standby's thread: it asks the primary for what comes next, for ever, and hands it what it has written aside.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use gambeson_launch::wire::Host;
use gambeson_link::{Expected, Startpoint};

use super::duty::{Asked, Duty, Known, ask};
use super::followers::POLL;
use super::message::{ASIDE, ENDPOINT, FOLLOW, Fed, Follow, Greeting};
use super::{peers, primary};
use crate::Error;
use crate::database::{Batch, Role};

/// Why a standby does not go on just now.
enum Trouble {
    /// The connection, or the disk: it is tried again soon.
    Passing(String),
    /// The primary does not take what it is given.
    Refused(String),
    /// The one that it follows is no primary any more, or not its.
    Abandoned(String),
    /// Its log is of another history.
    Apart(String),
}

pub(super) fn start(duty: &Arc<Duty>) -> Result<(), Error> {
    let duty = Arc::downgrade(duty);
    let started = thread::Builder::new().name("gambeson-standby".into()).spawn(move || follow(&duty));
    started.map(drop).map_err(|why| Error::Site { why: format!("no thread can be started ({why})") })
}

fn follow(duty: &Weak<Duty>) {
    let mut there: Option<Startpoint> = None;
    let mut pause = PAUSE_FIRST;
    loop {
        let Some(duty) = duty.upgrade() else { return };
        // Since it was promoted it follows nobody.
        let Some(primary) = duty.known().follows.clone() else { return };
        match duty.follow_on(&primary, &mut there) {
            Ok(()) => pause = PAUSE_FIRST,
            Err(_) if duty.database.role().0 == Role::Primary => return,
            Err(trouble) => {
                there = None;
                let may_be_promoted = !matches!(trouble, Trouble::Apart(_));
                duty.say(&primary.name, trouble);
                if may_be_promoted {
                    duty.follow_who_was_promoted(&primary);
                }
                drop(duty);
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_LAST);
            }
        }
    }
}

impl Duty {
    /// One batch, or the news that there is none.
    fn follow_on(&self, primary: &Host, there: &mut Option<Startpoint>) -> Result<(), Trouble> {
        let there = match there {
            Some(there) => there,
            None => there.insert(self.attach(primary)?),
        };
        let rows = self.database.aside(ROWS).map_err(passing)?;
        let mut not_taken = None;
        if let Some(last) = rows.last().map(|row| row.number) {
            match ask::<_, ()>(there, ASIDE, &rows, ANSWER) {
                Ok(()) => self.database.aside_given(last).map_err(passing)?,
                // What it is told all the same: who has no right any more has to get nothing here.
                Err(Asked::Refused(why)) => not_taken = Some(why),
                Err(away) => return Err(away.into()),
            }
        }
        let after = self.database.tail();
        let fed = ask(there, FOLLOW, &Follow { greeting: self.greeting(), after }, POLL + ANSWER)?;
        let end = match fed {
            Fed::Nothing => after.number,
            Fed::NotYours(why) => return Err(Trouble::Abandoned(why)),
            Fed::Apart(why) => return Err(Trouble::Apart(why)),
            Fed::Batch { batch, end } => {
                let batch = Batch::decode(&batch);
                let batch = batch.ok_or_else(|| {
                    Trouble::Refused("what it sends is no batch; install the same Gambeson on both hosts".into())
                })?;
                self.database.apply(batch).map_err(|why| match why {
                    Error::NotNext { why, .. } => Trouble::Apart(why),
                    other => passing(other),
                })?;
                end
            }
        };
        if let Some(why) = not_taken {
            let mut known = self.known();
            (known.heard, known.end, known.apart) = (Some(Instant::now()), end, None);
            return Err(Trouble::Refused(why));
        }
        let mut known = self.known();
        if known.trouble.take().is_some() || known.apart.take().is_some() || known.heard.is_none() {
            eprintln!("gambeson keyd: follows {}", primary.name);
        }
        (known.heard, known.end, known.apart) = (Some(Instant::now()), end, None);
        Ok(())
    }

    /// When its primary is away, or none any more, another standby may have been promoted: who is named by the rules, and a
    /// primary of a higher term, is followed from here on.
    fn follow_who_was_promoted(&self, former: &Host) {
        let hosts = self.followers.hosts();
        let (_, term) = self.database.role();
        let is_later = |there: &Greeting| there.primary && self.is_of_this(there) && there.term > term;
        let answers = self.greet_each(hosts, peers::PATIENCE).into_iter().map(|answer| answer.ok().filter(is_later));
        let promoted = hosts.iter().zip(answers).filter_map(|(host, later)| Some((later?.term, host)));
        let Some((_, new)) = promoted.max_by_key(|(term, _)| *term) else { return };
        let mut known = self.known();
        // It may have been promoted itself meanwhile.
        if known.follows.as_ref() != Some(former) || self.database.role().0 == Role::Primary {
            return;
        }
        if let Err(why) = primary::remember(self.database.path(), &format!("{}={}", new.name, new.address)) {
            eprintln!("gambeson keyd: {} was promoted, and cannot be followed: {why}", new.name);
            return;
        }
        eprintln!("gambeson keyd: {} was promoted in the place of {}", new.name, former.name);
        *known = Known { follows: Some(new.clone()), former: Some(former.clone()), ..Known::default() };
    }

    fn attach(&self, primary: &Host) -> Result<Startpoint, Trouble> {
        let domain = self.domain.upgrade().ok_or_else(|| Trouble::Passing("the service is ending".into()))?;
        let expected = Expected::Role(format!("dns:{}", primary.name));
        domain.attach(&*primary.address, &expected, ENDPOINT, CONNECT).map_err(|why| Trouble::Passing(why.to_string()))
    }

    /// Says once why it does not follow.
    fn say(&self, primary: &str, trouble: Trouble) {
        let mut known = self.known();
        let (why, apart) = match trouble {
            Trouble::Passing(why) | Trouble::Refused(why) => (why, false),
            // Others may be told by now who has which right.
            Trouble::Apart(why) | Trouble::Abandoned(why) => (why, true),
        };
        let is_new = if apart { known.apart.is_none() } else { known.trouble.is_none() };
        if is_new {
            let until = if apart { "gives nothing" } else { "gives what it has" };
            eprintln!("gambeson keyd: cannot follow {primary}, tries again, and {until} until then: {why}");
        }
        if apart {
            known.apart = Some(why);
        } else {
            known.trouble = Some(why);
        }
    }
}

impl From<Asked> for Trouble {
    fn from(asked: Asked) -> Self {
        match asked {
            Asked::Away(why) => Trouble::Passing(why),
            Asked::Refused(why) => Trouble::Refused(why),
        }
    }
}

fn passing(why: Error) -> Trouble {
    Trouble::Passing(why.to_string())
}

/// Rows of the log aside that go at a time.
const ROWS: usize = 200;
/// So long the primary may take to be reached, and to answer.
const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(10);
/// Between attempts, at first and at last.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_LAST: Duration = Duration::from_secs(3);
