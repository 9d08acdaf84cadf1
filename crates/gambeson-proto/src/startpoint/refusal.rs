//! Why an endpoint refuses a startpoint or a request, and how often it did.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why an activation or a request is refused. The numbers go over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Refusal {
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

impl Refusal {
    /// Every reason there is, by number.
    pub const ALL: [Refusal; 15] = [
        Refusal::Malformed,
        Refusal::Replayed,
        Refusal::Unknown,
        Refusal::Unproven,
        Refusal::NotHolder,
        Refusal::Unvouched,
        Refusal::Revoked,
        Refusal::Expired,
        Refusal::Unprotected,
        Refusal::UsedUp,
        Refusal::Method,
        Refusal::Memory,
        Refusal::Full,
        Refusal::Absent,
        Refusal::TooLong,
    ];

    /// The reason of this number in an answer.
    pub fn from_number(number: u8) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| *refusal as u8 == number)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Malformed => "the endpoint could not read the activation; use the same Gambeson at both ends",
            Refusal::Replayed => "the activation came a second time in its session, and opens nothing again",
            Refusal::Unknown => {
                "the endpoint knows no such startpoint: it was revoked, has expired, or is of an endpoint that is \
                 closed; ask its owner for another"
            }
            Refusal::Unproven => {
                "the opener could not prove the startpoint: it was forged or altered, is of another session, or the \
                 two ends follow different policies"
            }
            Refusal::NotHolder => {
                "the startpoint is bound to another process's key; let its holder make a copy for this process"
            }
            Refusal::Unvouched => "the startpoint was copied by somebody who did not hold it",
            Refusal::Revoked => {
                "the startpoint, or one that it was copied from, was revoked; ask the endpoint's owner for another"
            }
            Refusal::Expired => "the startpoint has expired by the endpoint's clock; ask for another",
            Refusal::Unprotected => {
                "the link would be less protected than the endpoint's policy or the startpoint demands; open it with \
                 more protection"
            }
            Refusal::UsedUp => "the startpoint's uses are used up, by it or by others copied from the same one",
            Refusal::Method => "the startpoint does not allow this handler",
            Refusal::Memory => "the startpoint does not allow this access to memory",
            Refusal::Full => {
                "the endpoint keeps as many links, use counts or revocations for this startpoint as it may; close \
                 links, or ask its owner for another startpoint"
            }
            Refusal::Absent => "the memory region is not there any more, or ends before this access does",
            Refusal::TooLong => "the message is longer than the endpoint takes",
        })
    }
}

impl std::error::Error for Refusal {}

/// How often each reason applied.
#[derive(Default)]
pub(super) struct Refusals([AtomicU64; Refusal::ALL.len()]);

impl Refusals {
    pub(super) fn count(&self, refusal: Refusal) {
        self.0[refusal as usize - 1].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn of(&self, refusal: Refusal) -> u64 {
        self.0[refusal as usize - 1].load(Ordering::Relaxed)
    }
}
