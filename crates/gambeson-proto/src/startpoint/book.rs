//! The startpoint book of a domain: its endpoints' keys, what they gave away, and who may open links.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use subtle::ConstantTimeEq;

use super::activation::{Activation, Revocation, Session};
use super::caveat::Caveat;
use super::chain::{Chain, EndpointKey, Origin, is_vouched};
use super::grant::{Grant, GrantTerms, Shared, Standing};
use super::refusal::Refusal;
use super::rules::{Rules, place};
use super::transforms::Transforms;
use super::wire::{StartpointError, printable};
use super::{Address, CLASS_MAX, Startpoint, StartpointName};
use crate::key_schedule::{End, KeyHash, LinkKeys, LinkTerms, PartitionKey, caveat_name, link_roots};
use crate::suite::Protection;

/// How much is kept for one root startpoint and its descendants, whatever their holders do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Links at a time.
    pub links: usize,
    /// Use counts, which outlive links, and revocations by holders.
    pub marks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { links: 65_536, marks: 65_536 }
    }
}

/// What a domain's policy says of a link that a peer wants to open.
pub struct Terms<'k> {
    /// The least protection.
    pub floor: Protection,
    /// The partition that both are in.
    pub partition: Option<&'k PartitionKey>,
}

/// A link that may be there.
#[derive(Debug)]
pub struct Admitted {
    /// What was asked for: the link's number and protection.
    pub activation: Activation,
    /// What the link may do.
    pub grant: Grant,
    /// The link's keys, and in them the answer to send.
    pub keys: LinkKeys,
}

/// What a domain knows of the startpoints of its endpoints.
pub struct StartpointBook {
    owner: KeyHash,
    limits: Limits,
    endpoints: BTreeMap<u64, Endpoint>,
    shared: Arc<Shared>,
}

struct Endpoint {
    key: EndpointKey,
    class: Box<str>,
    transforms: Transforms,
    roots: BTreeMap<[u8; 16], Arc<Standing>>,
}

impl Endpoint {
    fn origin(&self, owner: KeyHash, endpoint: u64, root: [u8; 16]) -> Origin {
        Origin { owner, endpoint, root, class: self.class.clone(), transforms: self.transforms.clone() }
    }
}

impl StartpointBook {
    /// The book of the domain of this key.
    pub fn new(owner: KeyHash, limits: Limits) -> Self {
        StartpointBook { owner, limits, endpoints: BTreeMap::new(), shared: Arc::default() }
    }

    /// Enters an endpoint, in place of the one of the same number if there was one.
    pub fn open_endpoint(
        &mut self,
        endpoint: u64,
        key: EndpointKey,
        class: &str,
        transforms: Transforms,
    ) -> Result<(), StartpointError> {
        if !printable(class, CLASS_MAX) {
            return Err(StartpointError::BadName);
        }
        self.close_endpoint(endpoint);
        self.endpoints.insert(endpoint, Endpoint { key, class: class.into(), transforms, roots: BTreeMap::new() });
        Ok(())
    }

    /// Takes an endpoint out: everything given away of it has ended.
    pub fn close_endpoint(&mut self, endpoint: u64) {
        if let Some(endpoint) = self.endpoints.remove(&endpoint) {
            endpoint.roots.values().for_each(|standing| standing.end());
        }
    }

    /// Makes a startpoint of an endpoint, which is a bearer's until it is copied; `root` is random. It reaches no memory
    /// but what `caveats` name.
    pub fn mint(
        &mut self,
        endpoint: u64,
        root: [u8; 16],
        addresses: Vec<Address>,
        caveats: impl IntoIterator<Item = Caveat>,
    ) -> Result<Startpoint, StartpointError> {
        let found = self.endpoints.get_mut(&endpoint).ok_or(StartpointError::NoEndpoint)?;
        let origin = found.origin(self.owner, endpoint, root);
        let mut startpoint = Startpoint::root(&found.key, origin, addresses)?;
        for caveat in caveats {
            startpoint.narrow(caveat)?;
        }
        if !startpoint.caveats().any(|caveat| matches!(caveat, Caveat::Memory(_))) {
            startpoint.narrow(Caveat::Memory(Vec::new()))?;
        }
        let expires = startpoint.caveats().fold(u64::MAX, |least, caveat| match caveat {
            Caveat::Expires(second) => least.min(*second),
            _ => least,
        });
        match found.roots.entry(root) {
            Entry::Occupied(_) => return Err(StartpointError::RootInUse),
            Entry::Vacant(place) => place.insert(Standing::new(Arc::clone(&self.shared), expires)),
        };
        Ok(startpoint)
    }

    /// Decides on an activation that came over a session's control link. `terms` are the policy's for a link of that
    /// class with this peer. What is refused is counted.
    pub fn admit<'k>(
        &mut self,
        session: &mut Session,
        activation: &[u8],
        now: u64,
        terms: impl FnOnce(&str) -> Terms<'k>,
    ) -> Result<Admitted, Refusal> {
        let now = self.advance(now);
        self.decide(session, activation, now, terms).inspect_err(|refusal| self.shared.refusals.count(*refusal))
    }

    /// What costs least is checked first; what follows the proof is told only to who has the startpoint, and nothing
    /// before it leaves a trace but the number.
    fn decide<'k>(
        &self,
        session: &mut Session,
        activation: &[u8],
        now: u64,
        terms: impl FnOnce(&str) -> Terms<'k>,
    ) -> Result<Admitted, Refusal> {
        let activation = Activation::decode(activation).map_err(|_| Refusal::Malformed)?;
        if !session.admit(activation.number) {
            return Err(Refusal::Replayed);
        }
        let endpoint = self.endpoints.get(&activation.endpoint).ok_or(Refusal::Unknown)?;
        let standing = endpoint.roots.get(&activation.root).ok_or(Refusal::Unknown)?;
        let terms = terms(&endpoint.class);

        let origin = endpoint.origin(self.owner, activation.endpoint, activation.root);
        let mut chain = Chain::root(&endpoint.key, &origin);
        let (mut holder, mut copies) = (None, Vec::new());
        let (mut expires, mut floor) = (u64::MAX, Protection::None);
        let (mut rules, mut counted_until) = (Vec::new(), Vec::new());
        for caveat in activation.caveats.iter() {
            match caveat {
                Caveat::Expires(second) => expires = expires.min(*second),
                // Stronger protections are smaller.
                Caveat::Protection(least) => floor = floor.min(*least),
                Caveat::Copy(copy) => copies.push((chain.name, holder.replace(copy.holder), copy)),
                // An expiry behind the limit bounds but part of what descends from it.
                Caveat::Uses(_) => counted_until.push(expires),
                Caveat::Methods(_) | Caveat::Memory(_) => {}
            }
            let encoded = caveat.encoded();
            chain.append(&encoded);
            Rules::append(&mut rules, caveat, &encoded, &chain.name);
        }
        let link = LinkTerms {
            number: activation.number,
            nonce: activation.nonce,
            name: chain.name,
            protection: activation.protection,
            partition: terms.partition,
        };
        let keys = link_roots(&session.keys, End::Endpoint, Some(&chain.secret), &link);
        if !bool::from(keys.proof.ct_eq(&activation.proof)) {
            return Err(Refusal::Unproven);
        }

        if holder.is_some_and(|holder| holder != session.keys.peer) {
            return Err(Refusal::NotHolder);
        }
        if expires <= now {
            return Err(Refusal::Expired);
        }
        if activation.protection > floor.min(terms.floor) {
            return Err(Refusal::Unprotected);
        }
        // One reference is the book's.
        if Arc::strong_count(standing) > self.limits.links {
            return Err(Refusal::Full);
        }
        if !copies.iter().all(|(name, holder, copy)| is_vouched(name, holder.as_ref(), copy)) {
            return Err(Refusal::Unvouched);
        }
        let terms = GrantTerms { place: place(&chain.name), expires, floor, rules: Rules::new(rules), counted_until };
        let grant = standing.grant(terms, self.limits.marks)?;
        Ok(Admitted { activation, grant, keys })
    }

    /// Revokes a copy or a root, and all that descends from it; open links find out with their next request. `false`:
    /// there is no such root any more.
    pub fn revoke(&mut self, name: &StartpointName) -> bool {
        let Some(endpoint) = self.endpoints.get_mut(&name.endpoint) else { return false };
        match name.copy {
            Some(copy) => endpoint.roots.get(&name.root).map(|standing| standing.revoke(&copy)).is_some(),
            None => endpoint.roots.remove(&name.root).map(|standing| standing.end()).is_some(),
        }
    }

    /// Revokes for a holder, whose link has this grant, a copy that it made or that was made of one: `copy` is what
    /// [`Startpoint::revocation`] gives. Nothing above or beside the holder's own can be revoked so.
    pub fn revoke_for(&mut self, grant: &Grant, copy: &[u8], now: u64) -> Result<(), Refusal> {
        let now = self.advance(now);
        self.descendant(grant, copy, now).inspect_err(|refusal| self.shared.refusals.count(*refusal))
    }

    fn descendant(&self, grant: &Grant, copy: &[u8], now: u64) -> Result<(), Refusal> {
        grant.is_in_force(now)?;
        let revocation = Revocation::decode(copy).map_err(|_| Refusal::Malformed)?;
        let endpoint = self.endpoints.get(&revocation.endpoint).ok_or(Refusal::Unknown)?;
        let mut name = endpoint.origin(self.owner, revocation.endpoint, revocation.root).name();
        // A name has the root's in it, so what passes through the grant's descends from the same root.
        let mut is_below = false;
        for caveat in revocation.caveats.iter() {
            is_below |= place(&name) == *grant.place();
            name = caveat_name(&name, &caveat.encoded());
        }
        if !is_below {
            return Err(Refusal::NotHolder);
        }
        let standing = grant.standing();
        if standing.marks().len() >= self.limits.marks {
            return Err(Refusal::Full);
        }
        standing.revoke(&place(&name));
        Ok(())
    }

    /// Lets go of everything that has expired; its bearers are refused as unknown from now on.
    pub fn sweep(&mut self, now: u64) {
        let now = self.advance(now);
        for endpoint in self.endpoints.values_mut() {
            endpoint.roots.retain(|_, standing| {
                standing.marks().sweep(now);
                standing.expires > now
            });
        }
    }

    /// Counts what was refused elsewhere than here.
    pub fn count(&self, refusal: Refusal) {
        self.shared.refusals.count(refusal);
    }

    /// How often something was refused for this reason.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.shared.refusals.of(refusal)
    }

    /// Startpoints made and neither revoked nor swept.
    pub fn roots(&self) -> usize {
        self.endpoints.values().map(|endpoint| endpoint.roots.len()).sum()
    }

    /// Use counts and revocations kept.
    pub fn marks(&self) -> usize {
        let roots = self.endpoints.values().flat_map(|endpoint| endpoint.roots.values());
        roots.map(|standing| standing.marks().len()).sum()
    }

    /// The latest time heard of. A clock that is set back revives nothing whose count was forgotten.
    fn advance(&self, now: u64) -> u64 {
        self.shared.clock.fetch_max(now, Ordering::Relaxed).max(now)
    }
}
