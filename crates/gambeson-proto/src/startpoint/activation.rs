//! Opening a link with a startpoint: what the opener sends, and the numbers that no two links of a session share.
//!
//! ```text
//! version u8 | number u64 | nonce 16 | protection u8
//! endpoint u64 | root id 16 | caveats u8 x { caveat } | proof 16          (big endian)
//! ```
//! It goes over the session's control link. No secret is in it, and nothing of it is good for another session or for
//! a second time in the same one.

use subtle::ConstantTimeEq;

use super::caveat::{Caveat, Caveats};
use super::wire::{Reader, StartpointError, VERSION};
use crate::key_schedule::{End, LinkKeys, SessionKeys};
use crate::suite::Protection;

/// A session as its links need it: its keys, and the numbers used in it.
///
/// The end that opened the session numbers the links that it opens 1, 3, 5 and so on, the other 2, 4, 6. Either
/// remembers one number for what it opened and one for what it let open. So no activation counts twice, however
/// long ago its link was closed, and no two links of a session have the same keys.
#[derive(Debug)]
pub struct Session {
    /// Its keys.
    pub keys: SessionKeys,
    /// The first number that is ours.
    first: u64,
    opened: u64,
    admitted: u64,
}

impl Session {
    /// A new session, which we opened if we are its [`End::Startpoint`].
    pub fn new(keys: SessionKeys, end: End) -> Self {
        let first = match end {
            End::Startpoint => 1,
            End::Endpoint => 2,
        };
        Session { keys, first, opened: 0, admitted: 0 }
    }

    /// The number of the next link that we open.
    pub(super) fn open(&mut self) -> u64 {
        self.opened = if self.opened == 0 { self.first } else { self.opened + 2 };
        self.opened
    }

    /// Whether the peer may open a link of this number, which is used up by it. Numbers may be left out.
    pub(super) fn admit(&mut self, number: u64) -> bool {
        let fresh = number % 2 != self.first % 2 && number > self.admitted;
        if fresh {
            self.admitted = number;
        }
        fresh
    }
}

/// What the opener of a link sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The link's number in its session, which its records carry.
    pub number: u64,
    /// Random bytes of the opener.
    pub nonce: [u8; 16],
    /// How the link is to be protected.
    pub protection: Protection,
    /// The endpoint.
    pub endpoint: u64,
    /// The startpoint's first ancestor.
    pub root: [u8; 16],
    pub(super) caveats: Caveats,
    pub(super) proof: [u8; 16],
}

impl Activation {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED + self.caveats.encoded_len());
        out.push(VERSION);
        out.extend(self.number.to_be_bytes());
        out.extend(self.nonce);
        out.push(self.protection as u8);
        out.extend(self.endpoint.to_be_bytes());
        out.extend(self.root);
        self.caveats.encode(&mut out);
        out.extend(self.proof);
        out
    }

    /// Reads what [`Activation::encode`] wrote. Nothing is known to be true of it yet.
    pub fn decode(bytes: &[u8]) -> Result<Self, StartpointError> {
        let mut reader = Reader(bytes);
        reader.version()?;
        let activation = Activation {
            number: reader.word()?,
            nonce: reader.array()?,
            protection: Protection::from_number(reader.byte()?).ok_or(StartpointError::Malformed)?,
            endpoint: reader.word()?,
            root: reader.array()?,
            caveats: Caveats::decode(&mut reader)?,
            proof: reader.array()?,
        };
        reader.end()?;
        Ok(activation)
    }
}

/// A copy that its maker wants revoked: the chain up to it, without any secret.
///
/// ```text
/// version u8 | endpoint u64 | root id 16 | caveats u8 x { caveat }          (big endian; the last is a copy)
/// ```
pub(super) struct Revocation {
    pub(super) endpoint: u64,
    pub(super) root: [u8; 16],
    pub(super) caveats: Caveats,
}

impl Revocation {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + 8 + 16 + 1 + self.caveats.encoded_len());
        out.push(VERSION);
        out.extend(self.endpoint.to_be_bytes());
        out.extend(self.root);
        self.caveats.encode(&mut out);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StartpointError> {
        let mut reader = Reader(bytes);
        reader.version()?;
        let (endpoint, root) = (reader.word()?, reader.array()?);
        let caveats = Caveats::decode(&mut reader)?;
        reader.end()?;
        match caveats.iter().next_back() {
            Some(Caveat::Copy(_)) => Ok(Revocation { endpoint, root, caveats }),
            _ => Err(StartpointError::Malformed),
        }
    }
}

/// A link that was opened here and that its endpoint has not answered yet.
///
/// Sealed records may follow the activation at once: only who has the startpoint's secret reads them, and they prove
/// themselves. What an unprotected link carries must wait for the answer.
#[derive(Debug)]
pub struct Opening {
    /// What to send.
    pub activation: Activation,
    /// The link's keys.
    pub keys: LinkKeys,
}

impl Opening {
    /// Whether an answer shows that the endpoint has the same keys, and so is the startpoint's.
    pub fn is_answered_by(&self, answer: &[u8; 16]) -> bool {
        self.keys.answer.ct_eq(answer).into()
    }
}

const FIXED: usize = 1 + 8 + 16 + 1 + 8 + 16 + 1 + 16;
