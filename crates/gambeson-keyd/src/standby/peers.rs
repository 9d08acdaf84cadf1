//! Whether another service was promoted: a primary asks its standbys when it starts and every few seconds, and hears it
//! from those that come. Terms are counted up by promotions, so the higher one is right.

use std::sync::{Arc, Weak};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use gambeson_launch::wire::Host;
use gambeson_link::Expected;

use super::duty::{Asked, Duty, ask};
use super::message::{ENDPOINT, GREET, Greeting};
use crate::audit::events;
use crate::database::Role;
use crate::{Error, Who};

/// Looks as long as the service is there.
pub(super) fn start(duty: &Arc<Duty>) -> Result<(), Error> {
    let duty: Weak<Duty> = Arc::downgrade(duty);
    let look = move || {
        if let Some(duty) = duty.upgrade() {
            duty.say_who_is_silent();
        }
        loop {
            thread::sleep(INTERVAL);
            let Some(duty) = duty.upgrade() else { return };
            duty.greet_all();
        }
    };
    let started = thread::Builder::new().name("gambeson-peers".into()).spawn(look);
    started.map(drop).map_err(|why| Error::Site { why: format!("no thread can be started ({why})") })
}

impl Duty {
    /// A name that is misspelt, or a host that is down, is not noticed by what does not come from there.
    fn say_who_is_silent(&self) {
        let hosts = self.followers.hosts();
        for (host, answer) in hosts.iter().zip(self.greet_each(hosts, PATIENCE)) {
            if let Err(why) = answer {
                eprintln!("gambeson keyd: {}, which keyd.toml names in standbys, does not answer: {why}", host.name);
            }
        }
    }

    /// Asks all whose word on terms counts, unless this is a standby: that asks its primary anyway.
    pub(super) fn greet_all(&self) {
        if self.known().follows.is_none() {
            self.greet_each(&self.others(), PATIENCE);
        }
    }

    /// All whose word on terms counts.
    pub(super) fn others(&self) -> Vec<Host> {
        let mut others = self.followers.hosts().to_vec();
        let known = self.known();
        for host in known.follows.iter().chain(&known.former) {
            if others.iter().all(|other| other.name != host.name) {
                others.push(host.clone());
            }
        }
        others
    }

    /// What others say of themselves, asked all at once; or why one does not answer in time.
    pub(super) fn greet_each(&self, hosts: &[Host], patience: Duration) -> Vec<Result<Greeting, String>> {
        thread::scope(|scope| {
            let ask = |host| {
                let asked = thread::Builder::new().spawn_scoped(scope, move || self.greet(host, patience));
                // Without a thread more it is asked here: nobody counts as gone who was not asked.
                asked.map_err(|_| self.greet(host, patience))
            };
            let asked: Vec<_> = hosts.iter().map(ask).collect();
            let answer = |asked: Result<ScopedJoinHandle<'_, _>, _>| match asked {
                Ok(asked) => asked.join().unwrap_or_else(|_| Err("asking it panicked".to_owned())),
                Err(answer) => answer,
            };
            asked.into_iter().map(answer).collect()
        })
    }

    /// What another says of itself.
    fn greet(&self, host: &Host, patience: Duration) -> Result<Greeting, String> {
        let deadline = Instant::now() + patience;
        let domain = self.domain.upgrade().ok_or("the service is ending")?;
        let expected = Expected::Role(format!("dns:{}", host.name));
        let there = domain.attach(&*host.address, &expected, ENDPOINT, patience).map_err(|why| why.to_string())?;
        let left = deadline.saturating_duration_since(Instant::now());
        let greeting = ask(&there, GREET, &self.greeting(), left).map_err(Asked::sentence)?;
        self.judge(&host.name, &greeting);
        Ok(greeting)
    }

    /// Draws the consequences of what somebody says whose word counts.
    pub(super) fn judge(&self, name: &str, greeting: &Greeting) {
        let (role, term) = self.database.role();
        if !self.is_of_this(greeting) {
            return;
        }
        if role == Role::Standby {
            let mut known = self.known();
            if known.follows.is_none() && greeting.primary {
                known.replaced_by = Some(name.to_owned());
            }
            return;
        }
        if greeting.term > term {
            self.step_down(name, greeting);
            return;
        }
        // Both were promoted from the same one, each without the other: none of them may go on as if it were alone.
        let is_rival = greeting.primary && greeting.term == term;
        let mut known = self.known();
        if is_rival && known.rival.as_deref() != Some(name) {
            eprintln!(
                "gambeson keyd: {name} is the primary of term {term}, too, so neither makes changes; on the one that stays: \
                 gambeson keyd promote --force"
            );
            known.rival = Some(name.to_owned());
        } else if !is_rival && known.rival.as_deref() == Some(name) {
            known.rival = None;
        }
    }

    /// Whether it is about the same database, and can be true.
    pub(super) fn is_of_this(&self, greeting: &Greeting) -> bool {
        greeting.id == self.database.id() && greeting.term <= TERM_MAX
    }

    fn step_down(&self, name: &str, greeting: &Greeting) {
        let who = Who {
            name: name.to_owned(),
            roles: vec![format!("dns:{name}")],
            key: String::new(),
            from: name.to_owned(),
        };
        let term = greeting.term;
        // Another may only have heard of it.
        if greeting.primary {
            self.known().replaced_by = Some(name.to_owned());
        }
        let why = match self.database.step_down(term, &who) {
            Ok(()) => Error::Replaced { host: self.host.clone(), by: self.known().replaced_by.clone() },
            Err(why) => why,
        };
        eprintln!("gambeson keyd: {why} ({}, term {term})", events::DEMOTE);
    }
}

/// So often nobody was ever promoted: who says so lies, and there would be no term beyond it for long.
const TERM_MAX: u64 = 1 << 32;
/// How often others are asked.
const INTERVAL: Duration = Duration::from_secs(3);
/// So long another may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
