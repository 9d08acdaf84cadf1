//! The service that a new standby is made from.

use std::path::Path;
use std::time::Duration;

use gambeson_launch::authority::{Kind, Member, renew};
use gambeson_launch::wire::Host;
use gambeson_link::{Config, Domain, Expected, Startpoint};
use gambeson_proto::secret::Secret32;
use gambeson_site::directory::now;

use super::duty::{Asked, ask};
use super::message::{ENDPOINT, GREET, Given, Greeting, HASH, SEED, Wanted};
use crate::database::Seed;
use crate::{Database, Error, Row};

/// A service with labels, connected.
pub struct Source {
    there: Startpoint,
    _domain: Domain,
    host: Host,
    greeting: Greeting,
}

impl Source {
    /// Connects to a service as the host whose identity is in a folder.
    ///
    /// # Errors
    /// When it does not answer, or makes no changes itself.
    pub fn open(folder: &Path, host: &Host) -> Result<Self, Error> {
        let member = Member::read(folder, Kind::Host)?;
        if member.validity.until < now() {
            renew(&member, false)?;
        }
        let member = Member::read(folder, Kind::Host)?;
        let mut config = Config::new(member.again()?, member.trust()?);
        config.shm = false;
        let domain = Domain::open(config)?;
        let expected = Expected::Role(format!("dns:{}", host.name));
        let unreached = |why: &dyn std::fmt::Display| Error::Site {
            why: format!("the key service of {} does not answer at {}: {why}", host.name, host.address),
        };
        let there = domain.attach(&*host.address, &expected, ENDPOINT, CONNECT).map_err(|why| unreached(&why))?;
        // It knows nothing of any database yet, and claims nothing.
        let stranger = Greeting { id: [0; 16], primary: false, term: 0 };
        let greeting: Greeting = ask(&there, GREET, &stranger, ANSWER).map_err(|why| unreached(&why.sentence()))?;
        if !greeting.primary {
            let why = format!(
                "{} makes no changes itself, so nothing can follow it; name the primary (gambeson keyd status, on {0}, says \
                 which that is)",
                host.name
            );
            return Err(Error::Senseless { why });
        }
        Ok(Source { there, _domain: domain, host: host.clone(), greeting })
    }

    /// Whether a database is the same one, so that a standby may take its place; and no later one than this.
    ///
    /// # Errors
    /// When it is not to be replaced.
    pub fn takes_the_place_of(&self, own: &Database) -> Result<(), Error> {
        if own.id() != self.greeting.id {
            return Err(Error::Exists { path: own.path().display().to_string() });
        }
        let (_, term) = own.role();
        if term > self.greeting.term {
            let why = format!(
                "{} was promoted, or has heard of a promotion, of which {} knows nothing (term {term}, and there term {}); so \
                 that is the one which is to follow",
                own.path().display(),
                self.host.name,
                self.greeting.term
            );
            return Err(Error::Senseless { why });
        }
        Ok(())
    }

    /// The rows of a database's log that this one has not: what was done there on another way.
    ///
    /// # Errors
    /// When one of both cannot be read.
    pub fn apart(&self, own: &Database) -> Result<Vec<Row>, Error> {
        let row = |number| own.read(|here| Ok(here.log(number, 1)?.pop()));
        let shared = |number| -> Result<bool, Error> {
            let here = row(number)?.filter(|row| row.number == number).map(|row| row.hash);
            let there: Option<[u8; 32]> = self.ask(HASH, &number)?;
            Ok(here.is_some() && here == there)
        };
        // Both begin alike, and never meet again once they have parted.
        let (mut same, mut other) = (0, own.tail().number + 1);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if shared(middle)? { same = middle } else { other = middle }
        }
        let mut rows = own.read(|here| here.log(same + 1, usize::MAX))?;
        // What it gave itself, and has handed on to nobody.
        rows.extend(own.aside(usize::MAX)?);
        Ok(rows)
    }

    /// What a standby begins with. The primary's log says who has it.
    ///
    /// # Errors
    /// When the primary does not name this host among its standbys.
    pub fn seed(&self, rows_apart: u64) -> Result<Seed, Error> {
        let Given { id, key }: Given = self.ask(SEED, &Wanted { rows_apart })?;
        if key.as_bytes().len() != 32 {
            return Err(self.refused("what it gives is no key"));
        }
        Ok(Seed { id, key: Secret32::filled(|bytes| bytes.copy_from_slice(key.as_bytes())) })
    }

    fn ask<Q: serde::Serialize, A: serde::de::DeserializeOwned>(&self, handler: u32, question: &Q) -> Result<A, Error> {
        ask(&self.there, handler, question, ANSWER).map_err(|why| self.refused(&why.sentence()))
    }

    fn refused(&self, why: &str) -> Error {
        Error::Site { why: format!("the key service of {} makes this host no standby: {why}", self.host.name) }
    }
}

impl Asked {
    pub(super) fn sentence(self) -> String {
        match self {
            Asked::Away(why) | Asked::Refused(why) => why,
        }
    }
}

const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(20);
