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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_schedule::JobKeys;
    use crate::suite::Suite;

    fn admission(secret: u8, job: u8) -> AdmissionKey {
        let job_secret = Secret32::from_bytes([secret; 32]);
        JobKeys { job_id: [job; 16], job_secret, policy_hash: [0; 32], suite: Suite::Aes256Gcm }.admission_key()
    }

    fn card(address: &str, rank: Option<u32>) -> Card {
        let address = address.parse().expect("an address");
        Card { address, public_key: [5; 32], rank, host: HostIndex(513) }
    }

    /// Bytes with a right MAC, whatever they say.
    fn vouched(mut bytes: [u8; CARD_LEN], key: &AdmissionKey) -> [u8; CARD_LEN] {
        let mac = key.mac(&bytes[..MAC_AT]);
        bytes[MAC_AT..].copy_from_slice(&mac);
        bytes
    }

    #[test]
    fn a_card_comes_back_as_it_was() {
        let key = admission(1, 1);
        for address in ["10.77.0.1:65535", "0.0.0.0:0", "[fe80::1]:9000", "[::]:1"] {
            for rank in [None, Some(0), Some(NO_RANK - 1)] {
                let card = card(address, rank);
                assert_eq!(Card::decode(&card.encode(&key), &key), Ok(card));
            }
        }
        let unlisted = Card { host: HostIndex::UNLISTED, ..card("127.0.0.1:1", None) };
        assert_eq!(Card::decode(&unlisted.encode(&key), &key), Ok(unlisted));
    }

    #[test]
    fn every_bit_of_a_card_is_vouched_for() {
        let key = admission(1, 1);
        let bytes = card("10.77.0.1:4000", Some(3)).encode(&key);
        for bit in 0..CARD_LEN * 8 {
            let mut altered = bytes;
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Card::decode(&altered, &key), Err(CardError::NotOfThisJob), "bit {bit}");
        }
    }

    #[test]
    fn cards_of_other_jobs_are_refused() {
        let bytes = card("10.77.0.1:4000", Some(3)).encode(&admission(1, 1));
        for other in [admission(2, 1), admission(1, 2)] {
            assert_eq!(Card::decode(&bytes, &other), Err(CardError::NotOfThisJob));
        }
    }

    #[test]
    fn a_card_of_another_length_is_refused() {
        let key = admission(1, 1);
        let bytes = card("10.77.0.1:4000", Some(3)).encode(&key);
        let longer = [&bytes[..], &[0]].concat();
        for len in (0..CARD_LEN).chain([CARD_LEN + 1]) {
            assert_eq!(Card::decode(&longer[..len], &key), Err(CardError::WrongLength), "{len} bytes");
        }
    }

    #[test]
    fn only_what_encode_writes_is_a_card() {
        let key = admission(1, 1);
        let good = card("10.77.0.1:4000", Some(3)).encode(&key);
        for first in (0..=255).filter(|first| ![VERSION << 4 | 4, VERSION << 4 | 6].contains(first)) {
            let mut bytes = good;
            bytes[0] = first;
            assert_eq!(Card::decode(&vouched(bytes, &key), &key), Err(CardError::Malformed), "first byte {first}");
        }
        for padding in 7..19 {
            let mut bytes = good;
            bytes[padding] = 1;
            assert_eq!(Card::decode(&vouched(bytes, &key), &key), Err(CardError::Malformed), "padding {padding}");
        }
    }

    #[test]
    fn whatever_decodes_encodes_to_the_same_bytes() {
        let key = admission(1, 1);
        let mut state = 1_u64;
        for _ in 0..2000 {
            let mut bytes: [u8; CARD_LEN] = std::array::from_fn(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            });
            bytes[0] = VERSION << 4 | [4, 6][usize::from(bytes[0] & 1)];
            if bytes[1] & 1 == 0 {
                bytes[7..19].fill(0);
            }
            let bytes = vouched(bytes, &key);
            match Card::decode(&bytes, &key) {
                Ok(card) => assert_eq!(card.encode(&key), bytes),
                Err(error) => assert_eq!((error, bytes[0] & 15), (CardError::Malformed, 4)),
            }
        }
    }

    #[test]
    fn an_identity_prints_no_private_key() {
        let identity = Identity::from_seed([0x5b; 32]);
        assert!(!format!("{identity:?}").contains("91, 91"));
        assert_ne!(identity.public, Identity::from_seed([0x5c; 32]).public);
    }
}
