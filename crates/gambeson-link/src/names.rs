//! Endpoints under names, by which a program that has no startpoint attaches to one that runs.
//!
//! ```text
//!  asker ── control link: NAME, the name ──────────────> owner: who is that, and has it a role that may?
//!        <─ control link: FOUND, a copy for its key ───
//! ```
//!
//! A session's control link is always sealed and both its ends are proved, so the answer needs no protection of its own. Of
//! each name one startpoint is kept here, and everybody who may have it gets a copy that is bound to his key: to be asked
//! costs the owner no memory. That nothing has a name and that it is for others are the same answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use gambeson_proto::startpoint::{Address, AddressKind, Startpoint as Capability, StartpointName, Voucher};
use zeroize::Zeroizing;

use crate::domain::random;
use crate::error::Error;
use crate::identity::{Expected, GUEST, Peer};
use crate::refusals;
use crate::shared::Shared;
use crate::startpoint::Startpoint;
use crate::state::State;

/// The longest name, in bytes.
const NAME_MAX: usize = 200;

/// Names of one domain's endpoints.
#[derive(Default)]
pub(crate) struct Names {
    published: BTreeMap<String, Published>,
    refused: u64,
}

struct Published {
    /// A bearer's, which nobody is given as it is.
    capability: Capability,
    roles: Vec<String>,
}

impl Names {
    /// Puts the endpoint of a startpoint under a name, for whoever has one of the roles.
    pub(crate) fn publish(&mut self, name: &str, capability: &Capability, roles: &[&str]) -> Result<(), Error> {
        // There is room for what binds the copies, or there will never be any.
        copy(capability, [0; 32], [0; 16])?;
        if self.published.contains_key(name) {
            let what = format!("this domain has something published as {name:?} already; withdraw that first");
            return Err(Error::Startpoint(what));
        }
        let roles = roles.iter().map(|&role| role.to_owned()).collect();
        self.published.insert(name.to_owned(), Published { capability: capability.clone(), roles });
        Ok(())
    }

    /// Takes a name away from an endpoint; the startpoint from which all descend that were given out under it.
    pub(crate) fn withdraw(&mut self, name: &str, endpoint: u64) -> Option<StartpointName> {
        self.published.get(name).filter(|published| published.capability.endpoint() == endpoint)?;
        self.published.remove(name).map(|published| published.capability.name())
    }

    /// An endpoint is gone.
    pub(crate) fn forget(&mut self, endpoint: u64) {
        self.published.retain(|_, published| published.capability.endpoint() != endpoint);
    }

    /// Whether guests may have something that this endpoint is published as.
    pub(crate) fn is_for_guests(&self, endpoint: u64) -> bool {
        let mut published = self.published.values().filter(|published| published.capability.endpoint() == endpoint);
        published.any(|published| published.roles.iter().any(|role| role == GUEST))
    }

    /// How often somebody asked for what he may not have, or is not there.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// A startpoint for somebody who asks for a name; nothing, if there is none that he may have.
    pub(crate) fn give(&mut self, peer: &Peer, name: &[u8]) -> Zeroizing<Vec<u8>> {
        self.find(peer, name).unwrap_or_else(|why| {
            self.refused += 1;
            refusals::say(self.refused, || {
                let name = String::from_utf8_lossy(&name[..name.len().min(NAME_MAX)]);
                format!(
                    "{} on {} asked for what is published as {name:?} and gets nothing: {why}",
                    peer.name, peer.host
                )
            });
            Zeroizing::default()
        })
    }

    fn find(&self, peer: &Peer, name: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
        let found = std::str::from_utf8(name).ok().and_then(|name| self.published.get(name));
        let Published { capability, roles } = found.ok_or("there is none")?;
        if !roles.iter().any(|role| peer.roles.contains(role)) {
            return Err(format!("it is for {}, and who asks has {}", some(roles), some(&peer.roles)));
        }
        let copy = random().and_then(|id| copy(capability, peer.key.0, id)).map_err(|cause| cause.to_string())?;
        Ok(copy.encode())
    }
}

/// Roles for people.
fn some(roles: &[String]) -> String {
    if roles.is_empty() { "no roles".into() } else { format!("the roles {}", roles.join(", ")) }
}

fn copy(capability: &Capability, holder: [u8; 32], id: [u8; 16]) -> Result<Capability, Error> {
    // Nobody has to vouch for copies of a bearer's.
    let nobody = |_: &[u8]| Voucher { key: [0; 32], signature: [0; 64] };
    capability.copy_for(holder, id, nobody).map_err(|cause| Error::Startpoint(cause.to_string()))
}

/// Whether that can be a name.
pub(crate) fn check(name: &str) -> Result<(), Error> {
    if (1..=NAME_MAX).contains(&name.len()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::Startpoint(format!("{name:?} is no name: that has 1 to {NAME_MAX} bytes, and no control characters")))
}

/// Where something is that listens on TCP.
pub(crate) fn over_tcp(addresses: &[SocketAddr]) -> Vec<Address> {
    let tcp = |address: &SocketAddr| Address { kind: AddressKind::Tcp, text: address.to_string() };
    addresses.iter().map(tcp).collect()
}

/// Asks who is expected at one of these addresses for the startpoint under a name, and binds it.
pub(crate) fn attach(
    shared: &Arc<Shared>,
    addresses: &[Address],
    expected: &Expected,
    name: &str,
    deadline: Instant,
) -> Result<Startpoint, Error> {
    check(name)?;
    let known = shared.lock()?.session_at(addresses, expected);
    let key = match known {
        Some(key) => key,
        None => shared.connect(expected, (addresses, None), deadline).map_err(|cause| match cause {
            Error::Lost(why) => Error::Lost(format!("{why}; start what is to be attached to, or ask where it listens")),
            cause => cause,
        })?,
    };
    let over = |why: &str| Error::Lost(format!("the session with who was asked for {name:?} is over: {why}"));
    let (question, peer) = {
        let mut state = shared.lock()?;
        let State { sessions, cache, .. } = &mut *state;
        let session = sessions.get_mut(key).ok_or_else(|| over("it has ended"))?;
        if let Some(why) = session.over() {
            return Err(over(why));
        }
        let question = session.ask(cache, name);
        (question, session.peer.clone())
    };
    let answer = shared.wait_until(Some(deadline), |state| {
        let Some(session) = state.sessions.get_mut(key) else { return Some(Err(over("it has ended"))) };
        let answer = session.answer(question).map(Ok);
        answer.or_else(|| session.over().map(|why| Err(over(why))))
    });
    if let Some(session) = shared.lock()?.sessions.get_mut(key) {
        session.forget(question);
    }
    let who = format!("{} on {}", peer.name, peer.host);
    let late = || Error::TimedOut(format!("{who} has not said in time what is published there as {name:?}"));
    let answer = answer?.ok_or_else(late)??;
    if answer.is_empty() {
        let what = format!("{who} has nothing published as {name:?} that is for this domain; its log says why");
        return Err(Error::Startpoint(what));
    }
    let capability = Capability::decode(&answer).map_err(|cause| Error::Startpoint(cause.to_string()))?;
    if *capability.owner() != peer.key.0 {
        // It could have anybody's; who was expected is whom the caller wants to talk to.
        return Err(Error::Refused(format!("{who} answers with a startpoint of somebody else for {name:?}")));
    }
    if let Some(session) = shared.lock()?.sessions.get_mut(key) {
        session.learn(capability.addresses());
    }
    Startpoint::open(shared, key, &capability)
}
