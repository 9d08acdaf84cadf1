//! What is in the files: words that depend on the work, on who wrote them and on where they are.

/// Bytes between two stamps, which are all that changes from transfer to transfer.
pub(super) const PAGE: usize = 4096;
const WORD: usize = 8;

/// The data of one work.
pub(super) struct Pattern {
    seed: u64,
    page: Vec<u8>,
}

impl Pattern {
    pub(super) fn new(seed: u64) -> Self {
        let words = (0..(PAGE / WORD) as u64).flat_map(|word| mixed(seed ^ word << 40).to_le_bytes());
        Self { seed, page: words.collect() }
    }

    /// A buffer of whole pages, before its stamps.
    pub(super) fn buffer(&self, length: usize) -> Vec<u8> {
        self.page.iter().copied().cycle().take(length).collect()
    }

    /// Makes a buffer that of a rank and of a place in the file: one word of each page. It takes next to no time.
    pub(super) fn stamp(&self, buffer: &mut [u8], rank: usize, at: u64) {
        for (page, place) in buffer.chunks_exact_mut(PAGE).zip((at..).step_by(PAGE)) {
            page[..WORD].copy_from_slice(&self.word(rank, place).to_le_bytes());
        }
    }

    /// Looks at the stamps alone.
    pub(super) fn glance(&self, buffer: &[u8], rank: usize, at: u64) -> Result<(), String> {
        for (page, place) in buffer.chunks_exact(PAGE).zip((at..).step_by(PAGE)) {
            if page[..WORD] != self.word(rank, place).to_le_bytes() {
                return Err(format!("byte {place} of the data of rank {rank} is not what was written"));
            }
        }
        Ok(())
    }

    /// Looks at every byte.
    pub(super) fn check(&self, buffer: &[u8], rank: usize, at: u64) -> Result<(), String> {
        self.glance(buffer, rank, at)?;
        for (page, place) in buffer.chunks_exact(PAGE).zip((at..).step_by(PAGE)) {
            if page[WORD..] != self.page[WORD..] {
                return Err(format!("something within the 4096 bytes from {place} on is not what rank {rank} wrote"));
            }
        }
        Ok(())
    }

    /// A number that belongs to a rank and a place.
    pub(super) fn word(&self, rank: usize, place: u64) -> u64 {
        mixed(self.seed ^ place ^ (rank as u64) << 48)
    }

    /// From 0 to 15, so that sums and products of many are exact.
    pub(super) fn small(&self, place: u64) -> f64 {
        (self.word(0, place) >> 60) as f64
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The bytes of numbers, as files have them.
pub(super) fn bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Numbers of a file's bytes.
pub(super) fn numbers(bytes: &[u8]) -> Vec<f64> {
    let words = bytes.chunks_exact(WORD);
    words.map(|word| f64::from_le_bytes(word.try_into().expect("a word has 8 bytes"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_elsewhere_or_of_others_or_changed_is_noticed() {
        let pattern = Pattern::new(7);
        let mut data = pattern.buffer(3 * PAGE);
        pattern.stamp(&mut data, 2, 8192);
        assert_eq!(pattern.check(&data, 2, 8192), Ok(()));
        assert!(pattern.glance(&data, 1, 8192).is_err() && pattern.glance(&data, 2, 4096).is_err());
        assert!(Pattern::new(8).glance(&data, 2, 8192).is_err());
        data[2 * PAGE + 100] ^= 1;
        assert!(pattern.glance(&data, 2, 8192).is_ok() && pattern.check(&data, 2, 8192).is_err());
    }
}
