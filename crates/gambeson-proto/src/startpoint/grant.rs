//! What a link may do: kept with the link and asked at every request.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::caveat::Window;
use super::refusal::{Refusal, Refusals};
use super::rules::{Place, Rule, Rules};
use crate::suite::Protection;

/// What all startpoints of a book share.
#[derive(Default)]
pub(super) struct Shared {
    /// The latest time that the book was told: for it, time never goes back.
    pub(super) clock: AtomicU64,
    pub(super) refusals: Refusals,
}

/// What an endpoint keeps of a startpoint that it made, and of all that descend from it.
pub(super) struct Standing {
    pub(super) shared: Arc<Shared>,
    /// When the last of them expires.
    pub(super) expires: u64,
    /// Counts revocations; [`ENDED`] once the root itself is revoked.
    revision: AtomicU64,
    marks: Mutex<Marks>,
}

/// Uses taken and copies revoked, by place: few, so a sorted list is small and quick.
#[derive(Default)]
pub(super) struct Marks(Vec<Mark>);

struct Mark {
    place: Place,
    /// Uses, or [`REVOKED`].
    taken: u64,
    /// When the last startpoint that it matters to expires.
    expires: u64,
}

const ENDED: u64 = u64::MAX;
const REVOKED: u64 = u64::MAX;

impl Marks {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Lets go of what nobody can come back to.
    pub(super) fn sweep(&mut self, now: u64) {
        self.0.retain(|mark| mark.expires > now);
    }

    fn find(&mut self, place: &Place) -> Option<&mut Mark> {
        let at = self.0.binary_search_by_key(place, |mark| mark.place).ok()?;
        Some(&mut self.0[at])
    }

    /// The mark at a place, new if need be.
    fn entry(&mut self, place: &Place, expires: u64) -> &mut Mark {
        let at = self.0.binary_search_by_key(place, |mark| mark.place).unwrap_or_else(|at| {
            if self.0.is_empty() {
                // Most have one at most.
                self.0.reserve_exact(1);
            }
            self.0.insert(at, Mark { place: *place, taken: 0, expires });
            at
        });
        &mut self.0[at]
    }

    fn is_revoked(&mut self, rules: &Rules) -> bool {
        let mut copies = rules.iter().filter_map(Rule::copy);
        copies.any(|copy| self.find(copy).is_some_and(|mark| mark.taken == REVOKED))
    }
}

impl Standing {
    pub(super) fn new(shared: Arc<Shared>, expires: u64) -> Arc<Self> {
        Arc::new(Standing { shared, expires, revision: AtomicU64::new(0), marks: Mutex::default() })
    }

    pub(super) fn marks(&self) -> MutexGuard<'_, Marks> {
        // Every change of a mark is a single store: a panic leaves nothing half.
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The root is revoked, and with it everything.
    pub(super) fn end(&self) {
        self.revision.store(ENDED, Ordering::Release);
    }

    /// The mark comes first: who sees the new revision sees it.
    pub(super) fn revoke(&self, copy: &Place) {
        self.marks().entry(copy, u64::MAX).taken = REVOKED;
        let next = |revision| (revision != ENDED).then(|| revision + 1);
        // An end is final, so there is nothing to count then.
        let _ = self.revision.fetch_update(Ordering::Release, Ordering::Relaxed, next);
    }

    /// Makes the grant of a link, and the counts that its uses are taken from. `most` marks are kept.
    pub(super) fn grant(self: &Arc<Self>, terms: GrantTerms, most: usize) -> Result<Grant, Refusal> {
        let mut marks = self.marks();
        if marks.is_revoked(&terms.rules) {
            return Err(Refusal::Revoked);
        }
        let mut new = 0;
        for (place, limit) in terms.rules.iter().filter_map(Rule::uses) {
            let taken = marks.find(place).map(|mark| mark.taken);
            new += usize::from(taken.is_none());
            if taken.unwrap_or(0) >= limit {
                return Err(Refusal::UsedUp);
            }
        }
        if new > 0 && marks.len() + new > most {
            return Err(Refusal::Full);
        }
        for ((place, _), expires) in terms.rules.iter().filter_map(Rule::uses).zip(&terms.counted_until) {
            marks.entry(place, *expires);
        }
        Ok(Grant {
            standing: Arc::clone(self),
            // Under the lock, so nothing that is revoked later is missed.
            seen: AtomicU64::new(self.revision.load(Ordering::Acquire)),
            place: terms.place,
            expires: terms.expires,
            floor: terms.floor,
            rules: terms.rules,
        })
    }
}

/// What the caveats of one chain come to.
pub(super) struct GrantTerms {
    pub(super) place: Place,
    pub(super) expires: u64,
    pub(super) floor: Protection,
    pub(super) rules: Rules,
    /// For each limit of uses, how long its count matters.
    pub(super) counted_until: Vec<u64>,
}

/// What a link may do. Its endpoint asks it at every request. It takes a lock only to count uses that are limited, and
/// when something was revoked since; the lock is that of the root startpoint.
pub struct Grant {
    standing: Arc<Standing>,
    /// The revision in which it was last found in force.
    seen: AtomicU64,
    place: Place,
    expires: u64,
    floor: Protection,
    rules: Rules,
}

impl Grant {
    /// Takes one use for a request to a handler.
    pub fn permit(&self, method: u32, now: u64) -> Result<(), Refusal> {
        self.decide(now, self.rules.allow_method(method), Refusal::Method)
    }

    /// Takes one use for an access to memory, which must lie in one window of each list, with all its rights, and in
    /// the region, which has so many bytes; `None`: there is no such region.
    pub fn access(&self, access: &Window, region: Option<u64>, now: u64) -> Result<(), Refusal> {
        let allowed = self.rules.allow_access(access);
        let end = access.offset.checked_add(access.length);
        let inside = end.zip(region).is_some_and(|(end, length)| end <= length);
        // What regions there are is told only to who may reach there.
        self.decide(now, allowed && inside, if allowed { Refusal::Absent } else { Refusal::Memory })
    }

    /// Whether the link may still be there: to be asked now and then of links that are quiet. Not counted.
    pub fn is_in_force(&self, now: u64) -> Result<(), Refusal> {
        if self.expires <= now.max(self.standing.shared.clock.load(Ordering::Relaxed)) {
            return Err(Refusal::Expired);
        }
        let revision = self.standing.revision.load(Ordering::Acquire);
        if revision == self.seen.load(Ordering::Relaxed) {
            return Ok(());
        }
        if revision == ENDED || self.standing.marks().is_revoked(&self.rules) {
            return Err(Refusal::Revoked);
        }
        // What was revoked after the load above shows in a revision that is later still.
        self.seen.store(revision, Ordering::Relaxed);
        Ok(())
    }

    /// The least protection that its caveats allow, whatever the policy says later.
    pub fn floor(&self) -> Protection {
        self.floor
    }

    /// From when on nothing is permitted; `u64::MAX` is never.
    pub fn expires(&self) -> u64 {
        self.expires
    }

    pub(super) fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    fn decide(&self, now: u64, allowed: bool, otherwise: Refusal) -> Result<(), Refusal> {
        let allowed = if allowed { Ok(()) } else { Err(otherwise) };
        let verdict = self.is_in_force(now).and(allowed).and_then(|()| self.take());
        verdict.inspect_err(|refusal| self.standing.shared.refusals.count(*refusal))
    }

    /// One use of each limit, or none of any.
    fn take(&self) -> Result<(), Refusal> {
        let uses = || self.rules.iter().filter_map(Rule::uses);
        if uses().next().is_none() {
            return Ok(());
        }
        let mut marks = self.standing.marks();
        for (place, limit) in uses() {
            // A count that is gone was swept while we were here.
            let mark = marks.find(place).ok_or(Refusal::Expired)?;
            if mark.taken >= limit {
                return Err(Refusal::UsedUp);
            }
        }
        uses().for_each(|(place, _)| marks.find(place).expect("it was there").taken += 1);
        Ok(())
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("expires", &self.expires).field("floor", &self.floor).finish_non_exhaustive()
    }
}
