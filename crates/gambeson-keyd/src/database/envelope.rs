//! What seals: a master key wraps the database key, and that seals records and what the log ends with.
//!
//! ```text
//! meta "key"    MasterKey::wrap("gambeson keyd database key v1" | id, database key)
//! record        AES-256-GCM-SIV, bound to "gambeson keyd record v1" | id | kind | name | serial
//! meta "state"  AES-256-GCM-SIV, bound to "gambeson keyd state v1" | id
//! a batch's end AES-256-GCM-SIV, bound to "gambeson keyd batch v1" | id
//! ```
//! Kind and name are each a u32 length and their bytes. So a record opens in its own place alone, and with the serial that
//! the log has for it.

use gambeson_keys::cipher;
use gambeson_master::{MasterError, MasterKey};
use gambeson_proto::secret::Secret32;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Role;
use crate::Tail;

/// The database's id and key.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) id: [u8; 16],
    pub(super) key: Secret32,
}

/// What nobody who can write in the file may choose; sealed at every commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) tail: Tail,
    pub(super) role: Role,
    pub(super) term: u64,
    /// Records of a standby that are newer than its log.
    pub(super) ahead: u64,
    /// Records that the standby's log has, and the primary had no more when it sent that.
    pub(super) missing: u64,
    /// What the log aside ends with.
    pub(super) aside: Tail,
    /// Through which of its rows the log aside was handed on.
    pub(super) given: u64,
}

/// What a batch ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) tail: Tail,
    pub(super) term: u64,
}

impl Envelope {
    pub(super) fn draw() -> Result<Self, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        Ok(Envelope { id, key: cipher::draw()? })
    }

    pub(super) fn wrap(&self, master: &dyn MasterKey) -> Result<Vec<u8>, MasterError> {
        master.wrap(&context(DATABASE_KEY, &self.id), &self.key)
    }

    pub(super) fn unwrap(id: [u8; 16], wrapped: &[u8], master: &dyn MasterKey) -> Result<Self, MasterError> {
        Ok(Envelope { id, key: master.unwrap(&context(DATABASE_KEY, &id), wrapped)? })
    }

    pub(super) fn seal_record(
        &self,
        kind: &str,
        name: &str,
        serial: u64,
        plain: &[u8],
    ) -> Result<Vec<u8>, getrandom::Error> {
        cipher::seal(&self.key, &self.record_ad(kind, name, serial), plain)
    }

    pub(super) fn open_record(&self, kind: &str, name: &str, serial: u64, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        cipher::open(&self.key, &self.record_ad(kind, name, serial), sealed)
    }

    pub(super) fn seal_state(&self, state: &State) -> Result<Vec<u8>, getrandom::Error> {
        cipher::seal(&self.key, &context(STATE, &self.id), &plain(state))
    }

    pub(super) fn open_state(&self, sealed: &[u8]) -> Option<State> {
        postcard::from_bytes(&cipher::open(&self.key, &context(STATE, &self.id), sealed)?).ok()
    }

    pub(super) fn seal_end(&self, end: &End) -> Result<Vec<u8>, getrandom::Error> {
        cipher::seal(&self.key, &context(BATCH, &self.id), &plain(end))
    }

    pub(super) fn open_end(&self, sealed: &[u8]) -> Option<End> {
        postcard::from_bytes(&cipher::open(&self.key, &context(BATCH, &self.id), sealed)?).ok()
    }

    /// What the log ends with when it is empty.
    pub(super) fn log_start(&self) -> Tail {
        Tail::start(LOG, &self.id)
    }

    /// What the log aside ends with when it is empty.
    pub(super) fn aside_start(&self) -> Tail {
        Tail::start(ASIDE, &self.id)
    }

    fn record_ad(&self, kind: &str, name: &str, serial: u64) -> Vec<u8> {
        let mut ad = context(RECORD, &self.id);
        for text in [kind, name] {
            ad.extend(u32::try_from(text.len()).expect("names are short").to_be_bytes());
            ad.extend(text.as_bytes());
        }
        ad.extend(serial.to_be_bytes());
        ad
    }
}

impl State {
    pub(super) fn new(envelope: &Envelope, role: Role) -> Self {
        let (tail, aside) = (envelope.log_start(), envelope.aside_start());
        State { tail, role, term: 0, ahead: 0, missing: 0, aside, given: 0 }
    }
}

fn context(what: &[u8], id: &[u8; 16]) -> Vec<u8> {
    [what, id].concat()
}

fn plain(numbers: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(numbers).expect("numbers and hashes are written")
}

const DATABASE_KEY: &[u8] = b"gambeson keyd database key v1";
const RECORD: &[u8] = b"gambeson keyd record v1";
const STATE: &[u8] = b"gambeson keyd state v1";
const BATCH: &[u8] = b"gambeson keyd batch v1";
const LOG: &[u8] = b"gambeson keyd log v1";
const ASIDE: &[u8] = b"gambeson keyd aside v1";
