//! Who an endpoint is: a fresh X25519 key (RFC 7748) and the card that is its address.
//!
//! A card is what MPI passes around as the endpoint's address, 64 bytes, the most that every MPI
//! makes room for (FI_NAME_MAX):
//!
//! ```text
//!  0         1     3           19          51     54    56   64
//!  | ver|fam | port | IP address | public key | rank | host | MAC |
//! ```
//!
//! Integers are big-endian, as addresses are. The MAC is under a key that only this job has, so a
//! card cannot be made, mixed from parts or carried over from another job by whoever controls the
//! exchange of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use crate::key_schedule::AdmissionKey;
use crate::primitives;
use crate::secret::Secret32;

/// Bytes of a card.
pub const CARD_LEN: usize = 64;
/// An X25519 public key.
pub type PublicKey = [u8; 32];

const VERSION: u8 = 1;
const MAC_AT: usize = 56;
const NO_RANK: u32 = 0xff_ffff;

/// The private half of an endpoint's key, and the public half.
pub struct Identity {
    private: Secret32,
    /// The public key.
    pub public: PublicKey,
}

impl Identity {
    /// The identity of this seed, which must be random and used for one endpoint only.
    pub fn from_seed(mut seed: [u8; 32]) -> Self {
        let private = Secret32::from_bytes(seed);
        seed.zeroize();
        let public = primitives::x25519_public(&private);
        Identity { private, public }
    }

    /// X25519 with a peer. `None`: the peer's key is of low order, the secret all zero.
    pub(crate) fn agree(&self, peer: &PublicKey) -> Option<Secret32> {
        assert!(!self.private.is_wiped(), "a forked process has no endpoint");
        primitives::x25519(&self.private, peer)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("public", &self.public).finish_non_exhaustive()
    }
}

/// A host in the policy's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostIndex(pub u16);

impl HostIndex {
    /// A host that the policy does not name.
    pub const UNLISTED: HostIndex = HostIndex(u16::MAX);
}

/// An endpoint's address, key, rank and host, vouched for by the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Where the core provider listens.
    pub address: SocketAddr,
    /// The endpoint's public key.
    pub public_key: PublicKey,
    /// Rank in its MPI_COMM_WORLD, below 2^24 - 1; `None` when unknown.
    pub rank: Option<u32>,
    /// The host it runs on.
    pub host: HostIndex,
}

/// Why bytes are no card of this job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CardError {
    /// Not [`CARD_LEN`] bytes.
    WrongLength,
    /// The MAC is not under this job's key.
    NotOfThisJob,
    /// The MAC is right, the content is of another version.
    Malformed,
}

impl fmt::Display for CardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CardError::WrongLength => "the address has not the length of a Gambeson card",
            CardError::NotOfThisJob => {
                "the address does not carry this job's proof: it was altered on the way, or comes from another job or \
                 an earlier run"
            }
            CardError::Malformed => "the address was made by another version of Gambeson",
        })
    }
}

impl std::error::Error for CardError {}

impl Card {
    /// The card as bytes, with its MAC.
    pub fn encode(&self, admission: &AdmissionKey) -> [u8; CARD_LEN] {
        let mut card = [0; CARD_LEN];
        match self.address.ip() {
            IpAddr::V4(ip) => {
                card[0] = VERSION << 4 | 4;
                card[3..7].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                card[0] = VERSION << 4 | 6;
                card[3..19].copy_from_slice(&ip.octets());
            }
        }
        card[1..3].copy_from_slice(&self.address.port().to_be_bytes());
        card[19..51].copy_from_slice(&self.public_key);
        let rank = self.rank.filter(|rank| *rank < NO_RANK).unwrap_or(NO_RANK);
        card[51..54].copy_from_slice(&rank.to_be_bytes()[1..]);
        card[54..56].copy_from_slice(&self.host.0.to_be_bytes());
        let mac = admission.mac(&card[..MAC_AT]);
        card[MAC_AT..].copy_from_slice(&mac);
        card
    }

    /// Reads a card: the MAC first, then the content.
    pub fn decode(bytes: &[u8], admission: &AdmissionKey) -> Result<Card, CardError> {
        let card: &[u8; CARD_LEN] = bytes.try_into().map_err(|_| CardError::WrongLength)?;
        if !bool::from(admission.mac(&card[..MAC_AT]).ct_eq(&card[MAC_AT..])) {
            return Err(CardError::NotOfThisJob);
        }
        let octets: [u8; 16] = card[3..19].try_into().expect("16 bytes");
        let ip = match (card[0] >> 4, card[0] & 15) {
            (VERSION, 4) if octets[4..] == [0; 12] => {
                IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]))
            }
            (VERSION, 6) => IpAddr::V6(Ipv6Addr::from(octets)),
            _ => return Err(CardError::Malformed),
        };
        let port = u16::from_be_bytes([card[1], card[2]]);
        let rank = u32::from_be_bytes([0, card[51], card[52], card[53]]);
        Ok(Card {
            address: SocketAddr::new(ip, port),
            public_key: card[19..51].try_into().expect("32 bytes"),
            rank: (rank != NO_RANK).then_some(rank),
            host: HostIndex(u16::from_be_bytes([card[54], card[55]])),
        })
    }
}
