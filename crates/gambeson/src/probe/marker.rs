//! Markers: random bytes that fill the buffers of one operation, for a listener to look for.

use aws_lc_rs::hmac;

/// Length of a marker.
pub(crate) const MARKER: usize = 16;
/// Length of what an operation on a single 64-bit word can carry of a marker.
pub(crate) const WORD: usize = 8;

/// What the markers of one job are derived from. It travels in clear; the markers themselves are
/// nowhere but in the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed([u8; 16]);

impl Seed {
    /// A fresh seed.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub(crate) fn random() -> Result<Self, String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| format!("the kernel gave no random bytes: {error}"))?;
        Ok(Self(bytes))
    }

    /// The marker of one operation.
    pub(crate) fn marker(&self, operation: &str) -> Marker {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let tag = hmac::sign(&key, operation.as_bytes());
        Marker(tag.as_ref()[..MARKER].try_into().expect("HMAC-SHA256 is longer than a marker"))
    }
}

impl std::fmt::Display for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("a seed is 32 hexadecimal digits, not {text:?}");
        let value = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        if text.len() == 32 { Ok(Self(value.to_be_bytes())) } else { Err(wrong()) }
    }
}

/// The marker of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker([u8; MARKER]);

/// What tells one block of an operation from another, so that a swapped or stale block is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) from: i32,
    pub(crate) to: i32,
    pub(crate) round: u32,
}

impl Stamp {
    /// Everybody, in [`Stamp::to`].
    pub(crate) const ALL: i32 = -1;

    fn bytes(self) -> [u8; 8] {
        let mixed = (self.from as u32 as u64) << 42 ^ (self.to as u32 as u64 & 0xf_ffff) << 20 ^ u64::from(self.round);
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
    }
}

impl Marker {
    /// The bytes a listener looks for.
    pub(crate) fn bytes(&self) -> &[u8; MARKER] {
        &self.0
    }

    /// As much of the marker as a word holds.
    pub(crate) fn word(&self) -> [u8; WORD] {
        self.0[..WORD].try_into().expect("a marker is longer than a word")
    }

    /// The marker over and over; blocks of 32 bytes and more end in the stamp.
    pub(crate) fn fill(&self, block: &mut [u8], stamp: Stamp) {
        for piece in block.chunks_mut(MARKER) {
            piece.copy_from_slice(&self.0[..piece.len()]);
        }
        if block.len() >= 2 * MARKER {
            let end = block.len() - 8;
            block[end..].copy_from_slice(&stamp.bytes());
        }
    }

    /// A filled block.
    pub(crate) fn block(&self, length: usize, stamp: Stamp) -> Vec<u8> {
        let mut block = vec![0; length];
        self.fill(&mut block, stamp);
        block
    }

    /// Compares a received block with what was sent.
    ///
    /// # Errors
    /// Says at which byte the two first differ.
    pub(crate) fn check(&self, received: &[u8], stamp: Stamp) -> Result<(), String> {
        let expected = self.block(received.len(), stamp);
        match received.iter().zip(&expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => {
                Err(format!("what rank {} sent arrived changed: byte {at} of {} differs", stamp.from, received.len()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { from: 0, to: 1, round: 7 };

    #[test]
    fn a_seed_survives_the_command_line() {
        let seed = Seed::random().expect("the kernel has random bytes");
        assert_eq!(seed.to_string().parse(), Ok(seed));
        assert!("12".parse::<Seed>().is_err());
    }

    #[test]
    fn every_operation_has_its_own_marker() {
        let seed = Seed([1; 16]);
        assert_ne!(seed.marker("MPI_Send"), seed.marker("MPI_Isend"));
        assert_ne!(seed.marker("MPI_Send"), Seed([2; 16]).marker("MPI_Send"));
    }

    #[test]
    fn a_changed_or_misplaced_block_is_noticed() {
        let marker = Seed([1; 16]).marker("MPI_Send");
        let block = marker.block(1000, STAMP);
        assert_eq!(marker.check(&block, STAMP), Ok(()));
        assert!(marker.check(&block, Stamp { round: 8, ..STAMP }).is_err());
        assert!(marker.check(&block, Stamp { to: 2, ..STAMP }).is_err());
        for at in [0, 500, 999] {
            let mut changed = block.clone();
            changed[at] ^= 1;
            assert!(marker.check(&changed, STAMP).unwrap_err().contains(&format!("byte {at} ")));
        }
    }
}
