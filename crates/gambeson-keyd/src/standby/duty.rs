//! What a service does at the moment: it makes changes, or follows, or does nothing since another took its place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use gambeson_launch::wire::Host;
use gambeson_link::{Attributes, Domain, Endpoint, Handlers, Peer, Protection, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::followers::{FollowerState, Followers, PATIENCE};
use super::message::{ASIDE, ENDPOINT, FOLLOW, Fed, Follow, GREET, Given, Greeting, HASH, LENGTH_MAX, SEED, Wanted};
use super::{following, peers, primary};
use crate::audit::events;
use crate::database::Role;
use crate::service::who;
use crate::wire::{self, Secret};
use crate::{Database, Error, Event, Row, Tail, Who};

/// What a service does, and whom it knows of those with the same labels.
pub struct Duty {
    pub(super) database: Database,
    /// The name of its host.
    pub(super) host: String,
    pub(super) domain: Weak<Domain>,
    pub(super) followers: Followers,
    known: Mutex<Known>,
}

/// What it has heard from others.
#[derive(Default)]
pub(super) struct Known {
    /// Whom it follows.
    pub(super) follows: Option<Host>,
    /// When that last answered.
    pub(super) heard: Option<Instant>,
    /// The number of its last row then.
    pub(super) end: u64,
    /// Why that cannot be followed now.
    pub(super) trouble: Option<String>,
    /// Why it never will be.
    pub(super) apart: Option<String>,
    /// Who took this one's place.
    pub(super) replaced_by: Option<String>,
    /// Whom this one has taken the place of.
    pub(super) former: Option<Host>,
    /// Who is the primary of the same term, too.
    pub(super) rival: Option<String>,
}

/// How a service stands among those with the same labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Standing {
    /// How often a standby was promoted.
    pub term: u64,
    /// What it does.
    pub doing: Doing,
}

/// What a service does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub enum Doing {
    /// It makes changes.
    Primary {
        /// Its standbys.
        standbys: Vec<FollowerState>,
        /// Who else does, with the same right.
        rival: Option<String>,
    },
    /// It follows another.
    Standby {
        /// Which.
        primary: String,
        /// How many seconds ago that answered.
        heard: Option<u64>,
        /// How many rows the primary had more then.
        behind: u64,
        /// Why it does not follow just now.
        trouble: Option<String>,
        /// Whether that stays so, and it gives nothing.
        apart: bool,
        /// How many rows of its own the primary has not got yet.
        aside: u64,
    },
    /// Another took its place, and it does nothing.
    Replaced {
        /// Who, if that is known.
        by: Option<String>,
    },
}

impl Duty {
    /// What a service begins to do: as its database says, unless one of its standbys was promoted meanwhile. `standbys`: as
    /// the rules name them, this host among them or not.
    ///
    /// # Errors
    /// When it cannot be found out whom it follows, or a thread not be started.
    pub(crate) fn open(
        database: Database,
        host: &str,
        domain: &Arc<Domain>,
        standbys: &[String],
    ) -> Result<Arc<Self>, Error> {
        let hosts = standbys.iter().map(|name| primary::host_of(name)).collect::<Result<Vec<_>, _>>();
        let mut hosts = hosts.map_err(|why| Error::Rules { why })?;
        // The same file serves on all of them.
        hosts.retain(|one| !one.name.eq_ignore_ascii_case(host));
        let follows = match database.role().0 {
            Role::Standby => primary::read(database.path())?,
            Role::Primary => {
                // It was promoted and then killed.
                primary::forget(database.path())?;
                None
            }
        };
        let follower = follows.is_some();
        let duty = Arc::new(Duty {
            followers: Followers::new(database.clone(), hosts),
            database,
            host: host.to_owned(),
            domain: Arc::downgrade(domain),
            known: Mutex::new(Known { follows, ..Known::default() }),
        });
        if follower {
            following::start(&duty)?;
        } else {
            duty.greet_all();
        }
        peers::start(&duty)?;
        Ok(duty)
    }

    /// Begins to answer others.
    pub(crate) fn serve(self: &Arc<Self>, domain: &Domain) -> Result<Endpoint, Error> {
        let mut handlers = Handlers::new();
        for handler in [GREET, SEED, FOLLOW, ASIDE, HASH] {
            let duty = Arc::clone(self);
            handlers = handlers.threaded(handler, move |request| duty.attend(request));
        }
        let attributes = Attributes::default().protection(Protection::Privacy).message_max(LENGTH_MAX);
        let endpoint = domain.endpoint(attributes, handlers)?;
        endpoint.publish(ENDPOINT, &["host"], [])?;
        Ok(endpoint)
    }

    /// Refuses what only a primary does.
    pub(crate) fn changes(&self) -> Result<(), Error> {
        self.leads()?;
        let rival = self.known().rival.clone();
        match rival {
            None => Ok(()),
            Some(rival) => Err(Error::Rival { host: self.host.clone(), rival }),
        }
    }

    /// Refuses unless this is a primary.
    fn leads(&self) -> Result<(), Error> {
        if self.database.role().0 == Role::Primary {
            return Ok(());
        }
        let host = self.host.clone();
        let follows = self.known().follows.clone();
        match follows {
            Some(primary) => Err(Error::Follows { host, primary: primary.name }),
            None => self.gives(),
        }
    }

    /// Refuses to give keys where others may have taken them back: when another took its place, or its log went another way.
    pub(crate) fn gives(&self) -> Result<(), Error> {
        if self.database.role().0 == Role::Primary {
            return Ok(());
        }
        let (known, host) = (self.known(), self.host.clone());
        match (&known.follows, &known.apart) {
            (Some(_), None) => Ok(()),
            (Some(primary), Some(why)) => Err(Error::Apart { host, primary: primary.name.clone(), why: why.clone() }),
            (None, _) => Err(Error::Replaced { host, by: known.replaced_by.clone() }),
        }
    }

    /// Waits until the standbys that are in step have what was written. When one is late it is asked in the second half of
    /// the time whether it was promoted: then what was changed here is not acknowledged.
    pub(crate) fn confirm(&self, number: u64) -> Result<(), Error> {
        let begun = Instant::now();
        let late = self.followers.late(number, begun + PATIENCE / 2);
        if !late.is_empty() {
            let late: Vec<_> = late.into_iter().map(|at| self.followers.hosts()[at].clone()).collect();
            self.greet_each(&late, PATIENCE / 2);
            self.followers.confirm(number, begun + PATIENCE);
        }
        match self.database.role().0 {
            Role::Primary => Ok(()),
            Role::Standby => Err(Error::Replaced { host: self.host.clone(), by: self.known().replaced_by.clone() }),
        }
    }

    /// Goes on without the standbys: another database key was drawn, which they do not have. Those that are to be made anew.
    pub(crate) fn resealed(&self) -> Vec<String> {
        self.followers.lose_all();
        self.followers.hosts().iter().map(|host| host.name.clone()).collect()
    }

    /// Whether a change has to be confirmed by anybody.
    pub(crate) fn has_standbys(&self) -> bool {
        !self.followers.hosts().is_empty()
    }

    /// Makes a standby the primary: unless a primary still answers, or in any case, if it is forced to. One that has a rival
    /// becomes the only one, if it is forced to.
    ///
    /// # Errors
    /// When a primary answers, or another has taken this one's place, or this is the only one.
    pub fn promote(&self, force: bool, by: &Who) -> Result<Tail, Error> {
        let (role, term) = self.database.role();
        let rival = self.known().rival.clone();
        match (role, rival) {
            (Role::Standby, _) if force => {}
            (Role::Standby, _) => self.follows_one()?,
            // Of two that were promoted equally often it is the one that stays.
            (Role::Primary, Some(_)) if force => {}
            (Role::Primary, Some(rival)) => {
                let why = format!(
                    "{} is the primary of term {term} already, and {rival} is, too; --force begins another term here, and \
                     {rival} gives and changes nothing as soon as it hears of that: what was changed there alone is not here",
                    self.host
                );
                return Err(Error::Senseless { why });
            }
            (Role::Primary, None) => {
                let why = format!("{} is the primary already, in term {term}", self.host);
                return Err(Error::Senseless { why });
            }
        }
        let others = self.others();
        let answers = others.iter().zip(self.greet_each(&others, CERTAINTY));
        let answers = answers.filter_map(|(host, answer)| Some((host.name.as_str(), answer.ok()?)));
        let there: Vec<_> = answers.filter(|(_, there)| self.is_of_this(there)).collect();
        if !force {
            self.may_take_over(term, &there)?;
        }
        // Whoever is there as a primary has to hear of a higher term than his.
        let beyond = there.iter().map(|(_, there)| there.term).max().unwrap_or(0);
        let tail = self.database.begin_term(role, beyond, by)?;
        {
            let mut known = self.known();
            *known = Known { former: known.follows.take().or(known.former.take()), ..Known::default() };
        }
        primary::forget(self.database.path())?;
        // A former primary that is there makes no more changes from here on.
        self.greet_all();
        Ok(tail)
    }

    /// Refuses to promote who was replaced: it has nothing of what was changed since, wherever that one is now.
    fn follows_one(&self) -> Result<(), Error> {
        let known = self.known();
        if known.follows.is_some() {
            return Ok(());
        }
        let (by, of) = known.replaced_by.as_deref().map_or(("another", "HOST"), |by| (by, by));
        let host = &self.host;
        let why = format!(
            "{by} was promoted in the place of {host}, which has nothing of what was changed since, and would undo it; make \
             {host} a standby of that first: gambeson keyd init --standby-of {of}, there; or have it take that one's place as \
             it is with --force"
        );
        Err(Error::Senseless { why })
    }

    /// Refuses a promotion that would undo changes of another primary, by what others say of themselves.
    fn may_take_over(&self, term: u64, others: &[(&str, Greeting)]) -> Result<(), Error> {
        let is_before = |there: &Greeting| there.term > term || (there.primary && there.term == term);
        let Some((name, there)) = others.iter().find(|(_, there)| is_before(there)) else { return Ok(()) };
        let why = if there.primary {
            format!(
                "{name} answers, and makes changes; end its service first, or take its place in any case with --force: then it \
                 makes no more changes as soon as it hears of that"
            )
        } else {
            let (host, there) = (&self.host, there.term);
            format!(
                "{name} has heard of a promotion of which {host} has not (term {there}, and here term {term}), so another \
                 primary has changes that {host} would undo; make {host} a standby of that (gambeson keyd init --standby-of), \
                 or have it take that one's place in any case with --force"
            )
        };
        Err(Error::Senseless { why })
    }

    /// How it stands.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn standing(&self) -> Result<Standing, Error> {
        let (role, term) = self.database.role();
        let aside = self.database.asides()?;
        let known = self.known();
        let doing = match (role, &known.follows) {
            (Role::Primary, _) => Doing::Primary { standbys: self.followers.list(), rival: known.rival.clone() },
            (Role::Standby, None) => Doing::Replaced { by: known.replaced_by.clone() },
            (Role::Standby, Some(primary)) => Doing::Standby {
                primary: primary.name.clone(),
                heard: known.heard.map(|heard| heard.elapsed().as_secs()),
                behind: known.end.saturating_sub(self.database.tail().number),
                trouble: known.apart.clone().or(known.trouble.clone()),
                apart: known.apart.is_some(),
                aside,
            },
        };
        Ok(Standing { term, doing })
    }

    /// What its log ends with.
    pub(crate) fn tail(&self) -> Tail {
        self.database.tail()
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn greeting(&self) -> Greeting {
        let (role, term) = self.database.role();
        Greeting { id: self.database.id(), primary: role == Role::Primary, term }
    }

    fn attend(&self, request: Request) {
        let peer = request.peer.clone();
        match request.handler {
            GREET => reply(request, |greeting| Ok(self.greeted(&peer, &greeting))),
            SEED => reply(request, |wanted| self.seed(&peer, &wanted)),
            FOLLOW => reply(request, |follow| self.feed(&peer, &follow)),
            ASIDE => reply(request, |rows| self.take_aside(&peer, rows)),
            _ => reply(request, |number| self.hash(&peer, number)),
        }
    }

    /// What anybody may know; what he says himself counts if the rules name him.
    fn greeted(&self, peer: &Peer, greeting: &Greeting) -> Greeting {
        if let Some(name) = self.knows(peer) {
            self.judge(&name, greeting);
        }
        self.greeting()
    }

    fn seed(&self, peer: &Peer, wanted: &Wanted) -> Result<Given, String> {
        let name = self.standby(peer, "standby-of")?;
        self.leads().map_err(|why| why.to_string())?;
        let event = Event::new(events::SEED, &who(peer)).about("standby", name.as_str());
        let event = event.about("rows_apart", wanted.rows_apart);
        // Nothing goes out that is not in the log.
        self.database.change(move |change| change.log(&event)).map_err(|why| why.to_string())?;
        let mut known = self.known();
        if known.rival.as_ref() == Some(&name) {
            // It gives up what it was. If it comes back as that, it is one again.
            known.rival = None;
        }
        drop(known);
        let seed = self.database.seed();
        Ok(Given { id: seed.id, key: Secret::from(seed.key.as_bytes().as_slice()) })
    }

    fn feed(&self, peer: &Peer, follow: &Follow) -> Result<Fed, String> {
        let name = match self.standby(peer, "follow") {
            Ok(name) => name,
            Err(why) => return Ok(Fed::NotYours(why)),
        };
        self.judge(&name, &follow.greeting);
        if follow.greeting.id != self.database.id() {
            return Ok(Fed::Apart(format!("{name} has another database than {}", self.host)));
        }
        if let Err(why) = self.leads() {
            return Ok(Fed::NotYours(why.to_string()));
        }
        let at = self.followers.find(&peer.roles).ok_or("the rules name it no more")?;
        self.followers.feed(at, &follow.after).map_err(|why| why.to_string())
    }

    fn take_aside(&self, peer: &Peer, rows: Vec<Row>) -> Result<(), String> {
        let name = self.standby(peer, "aside")?;
        self.leads().and_then(|()| self.database.take_aside(&name, rows)).map_err(|why| why.to_string())
    }

    fn hash(&self, peer: &Peer, number: u64) -> Result<Option<[u8; 32]>, String> {
        self.standby(peer, "standby-of")?;
        let row = self.database.read(|here| Ok(here.log(number, 1)?.pop())).map_err(|why| why.to_string())?;
        Ok(row.filter(|row| row.number == number).map(|row| row.hash))
    }

    /// The name of a standby, if the rules name whoever asks. The refusal stands in the log.
    fn standby(&self, peer: &Peer, wanted: &'static str) -> Result<String, String> {
        if let Some(at) = self.followers.find(&peer.roles) {
            return Ok(self.followers.hosts()[at].name.clone());
        }
        let who = who(peer);
        let name = who.principal().trim_start_matches("dns:").to_owned();
        let reason = "keyd.toml does not name it among the standbys";
        let event = Event::refusal(&who, wanted, reason);
        self.database.change(move |change| change.log(&event)).map_err(|why| why.to_string())?;
        Err(format!(
            "{name} is none of the standbys that keyd.toml names on {}; its administrator can add it, and start the service \
             again: standbys = [\"{name}\"]",
            self.host
        ))
    }

    /// The name of somebody whose word on terms counts.
    fn knows(&self, peer: &Peer) -> Option<String> {
        let known = self.known();
        let others = known.follows.iter().chain(&known.former);
        let is = |host: &&Host| peer.roles.iter().any(|role| role.strip_prefix("dns:") == Some(&host.name));
        self.followers.hosts().iter().chain(others).find(is).map(|host| host.name.clone())
    }
}

/// Decodes what is asked, and answers.
fn reply<Q: DeserializeOwned, A: Serialize>(mut request: Request, answer: impl FnOnce(Q) -> Result<A, String>) {
    let asked = std::mem::take(&mut request.payload);
    let outcome = wire::decode::<Q>(&asked).and_then(answer);
    request.answer(&wire::encode(&outcome));
}

/// Asks another service.
pub(super) fn ask<Q: Serialize, A: DeserializeOwned>(
    there: &gambeson_link::Startpoint,
    handler: u32,
    question: &Q,
    patience: Duration,
) -> Result<A, Asked> {
    let answer = there.call(handler, &wire::encode(question), patience).map_err(|why| Asked::Away(why.to_string()))?;
    let answer = zeroize::Zeroizing::new(answer);
    wire::decode::<Result<A, String>>(&answer).and_then(|answer| answer).map_err(Asked::Refused)
}

/// Why another service did not say what it was asked.
pub(super) enum Asked {
    /// It does not answer.
    Away(String),
    /// It says no.
    Refused(String),
}

/// So long a primary may take to answer before it counts as gone: it may be greeting a thousand others.
const CERTAINTY: Duration = Duration::from_secs(5);
