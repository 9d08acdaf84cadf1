//! A passphrase, and the key that Argon2id (RFC 9106) makes of it.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

/// What a person types. It is wiped when it goes.
pub struct Passphrase(Zeroizing<Vec<u8>>);

/// What one guess of a passphrase costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub(crate) memory_kib: u32,
    pub(crate) passes: u32,
    pub(crate) lanes: u32,
}

impl Passphrase {
    /// Takes the bytes as they are, without an end of line.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Passphrase(bytes)
    }

    /// Whether nothing was typed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is too short for anything to be protected by it.
    pub fn is_short(&self) -> bool {
        self.0.len() < SHORTEST
    }

    /// What was typed, for a program that is to protect something by it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key that it is with this salt, at this cost.
    pub fn key(&self, cost: &Cost, salt: &[u8; SALT]) -> Secret32 {
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).expect("a cost is within bounds");
        let mut memory = Zeroizing::new(vec![Block::new(); params.block_count()]);
        let function = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        Secret32::filled(|key| {
            let done = function.hash_password_into_with_memory(&self.0, salt, key, &mut **memory);
            done.expect("Argon2 takes every passphrase, and the memory is as large as it wants");
        })
    }
}

impl PartialEq for Passphrase {
    fn eq(&self, other: &Self) -> bool {
        // Both were typed by the same person, so time tells nobody anything.
        self.0 == other.0
    }
}

impl Cost {
    /// The second recommendation of RFC 9106, section 4: 64 MiB, three passes, four lanes.
    pub const DEFAULT: Cost = Cost { memory_kib: 64 << 10, passes: 3, lanes: 4 };

    /// `None`: it makes no sense, or would take longer than anybody waits: whoever writes a key file says what opening it
    /// costs.
    pub fn new(memory_kib: u32, passes: u32, lanes: u32) -> Option<Self> {
        let enough = (1..=64).contains(&lanes) && (1..=64).contains(&passes) && memory_kib >= 8 * lanes;
        (enough && memory_kib <= MEMORY_KIB_MAX).then_some(Cost { memory_kib, passes, lanes })
    }

    /// Memory in KiB, passes and lanes, big endian.
    #[must_use]
    pub fn encode(&self) -> [u8; 12] {
        let mut out = [0; 12];
        for (place, number) in out.chunks_exact_mut(4).zip([self.memory_kib, self.passes, self.lanes]) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        out
    }

    /// What was encoded; `None`: that is no cost, as for [`Cost::new`].
    #[must_use]
    pub fn decode(bytes: &[u8; 12]) -> Option<Self> {
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Cost::new(number(0), number(4), number(8))
    }
}

/// How long a salt is, in bytes.
pub const SALT: usize = 16;
/// Fewer bytes are guessed at any cost.
pub const SHORTEST: usize = 8;
const MEMORY_KIB_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_within_bounds() {
        let Cost { memory_kib, passes, lanes } = Cost::DEFAULT;
        assert_eq!(Cost::new(memory_kib, passes, lanes), Some(Cost::DEFAULT));
        for (memory, passes, lanes) in [
            (0, 1, 1),
            (7, 1, 1),
            (64, 0, 1),
            (64, 1, 0),
            (2 << 20, 1, 1),
            (u32::MAX, 1, 1),
            (64, 65, 1),
            (4096, 1, 65),
        ] {
            assert_eq!(Cost::new(memory, passes, lanes), None);
        }
        assert_eq!(Cost::DEFAULT.encode(), [0, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4]);
        assert_eq!(Cost::decode(&Cost::DEFAULT.encode()), Some(Cost::DEFAULT));
        assert_eq!(Cost::decode(&[0; 12]), None);
    }

    #[test]
    fn it_is_argon2id() {
        // From Python's cryptography: Argon2id(salt=b"0123456789abcdef", length=32, iterations=2, lanes=1, memory_cost=64)
        let passphrase = Passphrase::new(Zeroizing::new(b"correct horse".to_vec()));
        let key = passphrase.key(&Cost::new(64, 2, 1).unwrap(), b"0123456789abcdef");
        let digits: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, "74fb6b1d311ac0bb4c891f7efd79680245d9f84b72ad8f9bbe61c86e2b9f864d");
    }
}
