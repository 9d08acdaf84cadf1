//! What a domain refused.

use std::mem::MaybeUninit;

use gambeson_link::Refusals;

use crate::domain::gambeson_link_domain;
use crate::failure::{done, gambeson_link_status};
use crate::raw::{given, hand_out};

/// Why an activation or a request is refused. The numbers go over the wire.
#[repr(C)]
pub enum gambeson_link_refusal {
    /// The bytes are no activation.
    Malformed = 1,
    /// The link's number was used before in the session, or is not the opener's to use.
    Replayed = 2,
    /// No such endpoint or startpoint, or no more.
    Unknown = 3,
    /// The opener lacks the startpoint's secret, or the two ends disagree on something.
    Unproven = 4,
    /// Bound to another domain's key than the session's.
    NotHolder = 5,
    /// Copied by somebody who did not hold it.
    Unvouched = 6,
    /// It, or what it was copied from, was revoked.
    Revoked = 7,
    /// Its time is over.
    Expired = 8,
    /// The link would be less protected than it must be.
    Unprotected = 9,
    /// All its uses are used up.
    UsedUp = 10,
    /// Not a handler that it may call.
    Method = 11,
    /// Not memory that it may reach so.
    Memory = 12,
    /// The endpoint keeps as much for this startpoint as it may.
    Full = 13,
    /// The memory region is not there, or not any more, or ends before the access does.
    Absent = 14,
    /// A message longer than the endpoint takes.
    TooLong = 15,
}

/// How often a domain refused something since it was opened.
#[repr(C)]
pub struct gambeson_link_refusals {
    /// Connections of those who did not prove that they may talk to it, spoke something else or nothing.
    pub connections: u64,
    /// Connections given up, or sessions ended, because of what came over them: somebody on the way altered it.
    pub tampered: u64,
    /// Names that somebody asked for and may not have, or under which nothing is published.
    pub names: u64,
    /// Startpoints and requests, by `gambeson_link_refusal`. Places of no reason have 0.
    pub startpoints: [u64; 32],
}

/// What it refused so far, by reason.
#[unsafe(no_mangle)]
pub extern "C" fn gambeson_link_domain_refusals(
    domain: Option<&gambeson_link_domain>,
    refusals: Option<&mut MaybeUninit<gambeson_link_refusals>>,
) -> gambeson_link_status {
    done(|| {
        let found = given(domain, "the domain")?.get().refusals()?;
        let Refusals { connections, tampered, names, .. } = found;
        let mut startpoints = [0; 32];
        for (reason, count) in found.startpoints {
            startpoints[reason as usize] = count;
        }
        hand_out(refusals, gambeson_link_refusals { connections, tampered, names, startpoints })
    })
}

#[cfg(test)]
mod tests {
    use gambeson_link::Refusal;

    use super::{gambeson_link_refusal as Here, gambeson_link_refusals};

    #[test]
    fn every_reason_has_its_number_and_a_place() {
        let numbers = [
            (Refusal::Malformed, Here::Malformed),
            (Refusal::Replayed, Here::Replayed),
            (Refusal::Unknown, Here::Unknown),
            (Refusal::Unproven, Here::Unproven),
            (Refusal::NotHolder, Here::NotHolder),
            (Refusal::Unvouched, Here::Unvouched),
            (Refusal::Revoked, Here::Revoked),
            (Refusal::Expired, Here::Expired),
            (Refusal::Unprotected, Here::Unprotected),
            (Refusal::UsedUp, Here::UsedUp),
            (Refusal::Method, Here::Method),
            (Refusal::Memory, Here::Memory),
            (Refusal::Full, Here::Full),
            (Refusal::Absent, Here::Absent),
            (Refusal::TooLong, Here::TooLong),
        ];
        assert_eq!(numbers.len(), Refusal::ALL.len());
        let places = size_of::<gambeson_link_refusals>() / size_of::<u64>() - 3;
        for (reason, here) in numbers {
            assert_eq!(reason as usize, here as usize);
            assert!((reason as usize) < places, "{reason:?} has no place");
        }
    }
}
