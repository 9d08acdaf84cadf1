//! Whether another service was promoted: a primary asks its standbys when it starts and every few seconds, and hears it
//! from those that come. Terms are counted up by promotions, so the higher one is right.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use gambeson_launch::wire::Host;
use gambeson_link::Expected;

use super::duty::{Duty, ask};
use super::message::{ENDPOINT, GREET, Greeting};
use crate::audit::events;
use crate::database::Role;
use crate::{Error, Who};

/// Looks as long as the service is there.
pub(super) fn start(duty: &Arc<Duty>) -> Result<(), Error> {
    let duty: Weak<Duty> = Arc::downgrade(duty);
    let look = move || {
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
    /// Asks all whose word on terms counts, unless this is a standby: that asks its primary anyway.
    pub(super) fn greet_all(&self) {
        let former = {
            let known = self.known();
            if known.follows.is_some() {
                return;
            }
            known.former.clone()
        };
        let hosts = self.followers.hosts().iter();
        for host in
            hosts.chain(former.iter().filter(|one| self.followers.hosts().iter().all(|host| host.name != one.name)))
        {
            self.greet(host);
        }
    }

    /// What another says of itself; nothing, if it does not answer.
    pub(super) fn greet(&self, host: &Host) -> Option<Greeting> {
        let domain = self.domain.upgrade()?;
        let expected = Expected::Role(format!("dns:{}", host.name));
        let there = domain.attach(&*host.address, &expected, ENDPOINT, PATIENCE).ok()?;
        let greeting = ask(&there, GREET, &self.greeting(), PATIENCE).ok()?;
        self.judge(&host.name, &greeting);
        Some(greeting)
    }

    /// Draws the consequences of what somebody says whose word counts.
    pub(super) fn judge(&self, name: &str, greeting: &Greeting) {
        let (role, term) = self.database.role();
        if greeting.id != self.database.id() || greeting.term > TERM_MAX {
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
            self.step_down(name, greeting.term);
            return;
        }
        // Both were promoted from the same one, each without the other: none of them may go on as if it were alone.
        let is_rival = greeting.primary && greeting.term == term;
        let mut known = self.known();
        if is_rival && known.rival.as_deref() != Some(name) {
            eprintln!(
                "gambeson keyd: {name} is the primary of term {term}, too; end the service of one, and make it a standby of \
                 the other (gambeson keyd init --standby-of)"
            );
            known.rival = Some(name.to_owned());
        } else if !is_rival && known.rival.as_deref() == Some(name) {
            known.rival = None;
        }
    }

    fn step_down(&self, name: &str, term: u64) {
        let who = Who {
            name: name.to_owned(),
            roles: vec![format!("dns:{name}")],
            key: String::new(),
            from: name.to_owned(),
        };
        self.known().replaced_by = Some(name.to_owned());
        let why = match self.database.step_down(term, &who) {
            Ok(()) => Error::Replaced { host: self.host.clone(), by: Some(name.to_owned()) },
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
const PATIENCE: Duration = Duration::from_secs(2);
