//! How a session gets from one carrier to another: after a loss, by rule and by hand (secure-nexus paper, section 3.3).
//!
//! A change of transport is a loss on purpose: the side that connected gets another carrier, and with its consent there
//! ([`crate::resumption`]) both drop the one they have and send again what the other is without. So there is one way of
//! going on, whatever happens meanwhile. It takes senders that keep what they sent, and for shared memory, which loses
//! nothing, they do not. Before a session leaves it they begin to:
//!
//! ```text
//!  client ── KEEP n ──> server        from here on each keeps what it sends,
//!         <── KEPT n ──               and has all that the other does not keep
//!         ── offer, answer, consent over the other carrier ──
//!         <── STAY ──                 if that is shared memory: nobody needs to keep any more
//! ```

use std::time::{Duration, Instant};

use gambeson_proto::key_cache::KeyCache;
use gambeson_proto::key_schedule::{Resumption, Side};
use gambeson_proto::startpoint::{Address, AddressKind as Transport};

use super::{Session, word};
use crate::carrier::Carrier;
use crate::error::Error;
use crate::identity::KeyHash;
use crate::route;

/// A better transport is looked for so long after a session has begun, and then ever more seldom.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];

/// Where a session stands between its carriers.
pub(super) struct Change {
    /// Which transport its links wish for; without a wish, the rule decides.
    wish: Option<Transport>,
    /// What the site directory has the session go over, in the order to try; `None`: what the rule says.
    site: Option<Vec<Transport>>,
    /// Whether somebody looks for another carrier.
    sought: bool,
    keeping: Keeping,
    /// Times that the other end was asked to keep what it sends.
    asked: u64,
    /// How far the other end is was told to us, so what it says since is not thrown away yet: it may want it again.
    held: bool,
    /// Carriers so far. Who consents to go on after any but the last comes too late.
    carriers: u64,
    /// When a better transport is looked for, and how long after that again.
    due: (Instant, Duration),
    /// Why the last search came to nothing.
    failed: Option<String>,
}

/// Whether what a carrier took is kept even if it loses nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    No,
    /// The other end was asked to keep, too.
    Asked,
    /// Both ends do.
    Agreed,
    /// The other end may yet refuse the carrier that was gone over to. It says STAY if it does not.
    Unconfirmed,
}

impl Change {
    pub(super) fn new(wish: Option<Transport>) -> Self {
        Change {
            wish,
            site: None,
            sought: false,
            keeping: Keeping::No,
            asked: 0,
            held: false,
            carriers: 0,
            due: (Instant::now() + PAUSES[0], PAUSES[0]),
            failed: None,
        }
    }

    /// Whether what the peer has must stay here nevertheless.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }
}

/// What somebody who looks for another carrier goes by.
pub(crate) struct Search {
    /// Whose session it is.
    pub(crate) peer: KeyHash,
    pub(crate) ways: Vec<Address>,
    pub(crate) resumption: Resumption,
    /// Whether the present carrier may be left.
    pub(crate) ready: bool,
}

impl Session {
    pub(crate) fn wish(&self) -> Option<Transport> {
        self.change.wish
    }

    /// Goes over these transports from now on, in this order, instead of what the rule says.
    pub(crate) fn go_over(&mut self, transports: Option<Vec<Transport>>) {
        self.change.site = transports;
    }

    fn better(&self, present: Transport) -> Vec<Address> {
        route::better(&self.addresses, self.change.wish, self.change.site.as_deref(), present)
    }

    /// How many carriers there were before the present one.
    pub(crate) fn carriers(&self) -> u64 {
        self.change.carriers
    }

    /// Wishes for a transport, or for what the rule says.
    ///
    /// # Errors
    /// When it leads nowhere from here.
    pub(crate) fn prefer(&mut self, wish: Option<Transport>) -> Result<(), Error> {
        if self.addresses.is_empty() {
            let (name, host) = (&self.peer.name, &self.peer.host);
            let what = format!("{name} on {host} has connected to this process: the transport is chosen there");
            return Err(Error::Startpoint(what));
        }
        route::wished(&self.addresses, wish, self.change.site.as_deref())?;
        self.change.wish = wish;
        self.change.due = (Instant::now(), PAUSES[0]);
        self.change.failed = None;
        Ok(())
    }

    /// Whether a search is under way that could end with the present carrier left.
    pub(crate) fn is_changing(&self) -> bool {
        self.change.sought && self.lost.is_none()
    }

    /// Whether it goes over the best that is wished for; or why it does not.
    pub(crate) fn is_settled(&self) -> Option<Result<(), Error>> {
        if let Some(why) = &self.over {
            return Some(Err(Error::Lost(format!("the link is over: {why}"))));
        }
        if let Some(why) = &self.change.failed {
            return Some(Err(Error::Lost(format!("the link stays where it is: {why}"))));
        }
        let present = self.carrier.as_ref()?.kind().transport();
        self.better(present).is_empty().then_some(Ok(()))
    }

    /// Whether somebody should look for another carrier now: said once for each search.
    pub(crate) fn wants_search(&mut self) -> bool {
        if self.addresses.is_empty() || self.change.sought || self.over.is_some() {
            return false;
        }
        if let Some(carrier) = &self.carrier {
            let (due, pause) = self.change.due;
            if Instant::now() < due {
                return false;
            }
            self.change.due = (Instant::now() + pause, (2 * pause).min(PAUSES[1]));
            if self.better(carrier.kind().transport()).is_empty() {
                return false;
            }
        }
        self.change.sought = true;
        true
    }

    /// What there is to look for. `None`: nothing any more.
    pub(crate) fn search(&mut self, cache: &mut KeyCache) -> Option<Search> {
        if self.over.is_some() {
            return None;
        }
        let ways = match &self.carrier {
            None => route::ways(&self.addresses, self.change.wish, self.change.site.as_deref()),
            Some(carrier) => self.better(carrier.kind().transport()),
        };
        if ways.is_empty() && self.carrier.is_some() {
            self.change.sought = false;
            return None;
        }
        if self.is_lossless() && self.change.keeping == Keeping::No {
            self.change.keeping = Keeping::Asked;
            self.change.asked += 1;
            self.say(cache, word::KEEP, self.change.asked, &[]);
            self.flush();
        }
        let ready = !self.is_lossless() || self.change.keeping == Keeping::Agreed;
        Some(Search { peer: self.peer.key, ways, resumption: self.resumption.clone(), ready })
    }

    /// Another carrier is there, and its other end will say how far it is.
    pub(crate) fn hold(&mut self) {
        self.change.held = true;
    }

    /// The search came to nothing. Whether it has to go on, since the carrier was lost meanwhile.
    pub(crate) fn stay(&mut self, cache: &mut KeyCache, why: &str) -> bool {
        if self.lost.is_some() {
            return true;
        }
        (self.change.sought, self.change.held, self.stirred) = (false, false, true);
        self.change.failed = Some(why.to_owned());
        if self.over.is_none() && self.change.keeping != Keeping::No {
            self.change.keeping = Keeping::No;
            self.say(cache, word::STAY, 0, &[]);
            self.flush();
        }
        false
    }

    /// The other end looks for another carrier, or has not found one.
    pub(super) fn asked_to_keep(&mut self, cache: &mut KeyCache, asked: Option<u64>) {
        self.change.keeping = if asked.is_some() { Keeping::Agreed } else { Keeping::No };
        if let Some(asked) = asked {
            self.reply(cache, word::KEPT, asked, &[]);
        }
    }

    /// The other end keeps what it sends.
    pub(super) fn kept(&mut self, asked: u64) {
        if self.change.keeping == Keeping::Asked && asked == self.change.asked {
            self.change.keeping = Keeping::Agreed;
        }
    }

    /// Whether the carrier loses nothing as long as both processes live.
    pub(super) fn is_lossless(&self) -> bool {
        self.carrier.as_ref().is_some_and(|carrier| carrier.kind().is_lossless())
    }

    /// Whether what a carrier took is gone from here.
    pub(super) fn forgets(&self) -> bool {
        self.is_lossless() && self.change.keeping == Keeping::No
    }

    /// The carrier is gone; the session waits for another.
    pub(crate) fn lose(&mut self, why: &str) {
        if self.over.is_none() && self.lost.is_none() {
            // Shared memory is lost with the process behind it, or for good: what was in it is not kept here.
            if self.is_lossless() && matches!(self.change.keeping, Keeping::No | Keeping::Asked) {
                return self.end(&format!("{} on {} is gone: {why}", self.peer.name, self.peer.host));
            }
            self.carrier = None;
            self.incoming.begin_with(&[], 0);
            self.lost = Some((why.to_owned(), Instant::now()));
        }
    }

    /// Goes on over another carrier, of which `rest` has come, and at whose other end the peer has all before `arrived`.
    /// That end was told that `told` bytes have come here. False: it cannot have that, and the session is over.
    pub(crate) fn resume(
        &mut self,
        cache: &mut KeyCache,
        carrier: Box<dyn Carrier>,
        (told, arrived): (u64, u64),
        rest: &[u8],
    ) -> bool {
        self.incoming.begin_with(rest, self.received() - told);
        if !self.out.rewind(arrived) {
            self.end("the other end has lost what it had received: it was restored from an older state");
            return false;
        }
        self.out.arrived(arrived);
        (self.carrier, self.lost, self.stirred) = (Some(carrier), None, true);
        (self.change.sought, self.change.held) = (false, false);
        self.change.carriers += 1;
        self.change.keeping = match (self.is_lossless(), self.side) {
            (true, Side::Client) => Keeping::Unconfirmed,
            _ => Keeping::No,
        };
        if self.is_lossless() && self.side == Side::Server {
            self.say(cache, word::STAY, 0, &[]);
        }
        self.flush();
        true
    }
}
