//! What passes between services with the same labels. All of it is postcard, over links.

use serde::{Deserialize, Serialize};

use crate::Tail;
use crate::wire::Secret;

/// The name under which a service publishes its endpoint for others.
pub(super) const ENDPOINT: &str = "keyd-standbys";
/// Handlers, each with what is asked there and what is answered, or a sentence: [`Greeting`], the same.
pub(super) const GREET: u32 = 0;
/// [`Wanted`], [`Given`].
pub(super) const SEED: u32 = 1;
/// [`Follow`], [`Fed`].
pub(super) const FOLLOW: u32 = 2;
/// Rows, nothing.
pub(super) const ASIDE: u32 = 3;
/// The number of a row, its hash if there is one.
pub(super) const HASH: u32 = 4;

/// Who a service is among those with the same labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// Which database it has.
    pub(super) id: [u8; 16],
    /// Whether it makes changes.
    pub(super) primary: bool,
    /// How often a standby was promoted, as far as it has heard.
    pub(super) term: u64,
}

/// That a host wants to be a standby.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Wanted {
    /// How many rows of its own log it gives up for that.
    pub(super) rows_apart: u64,
}

/// What a standby begins with.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Given {
    /// Which database.
    pub(super) id: [u8; 16],
    /// Its key.
    pub(super) key: Secret,
}

/// That a standby wants what comes next.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Follow {
    /// Who it is.
    pub(super) greeting: Greeting,
    /// What its log ends with: all of that is on its disk.
    pub(super) after: Tail,
}

/// What a standby gets.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Fed {
    /// What comes next, and how far the primary's log goes.
    Batch {
        /// As [`crate::database::Batch::encode`] writes it.
        batch: Vec<u8>,
        /// The number of the primary's last row.
        end: u64,
    },
    /// Nothing came for some time.
    Nothing,
    /// Whom it asks makes no changes, or does not count it among its standbys: so it does not hear who has which right.
    NotYours(String),
    /// Its log is not a part of the primary's.
    Apart(String),
}

/// No message is longer.
pub(super) const LENGTH_MAX: usize = 16 << 20;
