//! Looks for the markers of many operations at once in whatever passes by.
//!
//! Whole frames are searched at every offset, headers and all, whatever the protocol. Segments
//! are not put together again: a marker repeats all through its buffer, so a message that is cut
//! anywhere still has a whole one in a piece of at least two markers' length; only an occurrence
//! across a cut is not counted.

use crate::probe::marker::{MARKER, Marker, WORD};
use crate::probe::plan::Visible;

/// The markers to look for and how often each was seen.
pub(crate) struct Search {
    /// Sorted by the first word.
    patterns: Vec<Pattern>,
    /// A bit for each value of a hash of a marker's first four bytes.
    first_bytes: Vec<u64>,
    hits: Vec<u64>,
    bytes: u64,
}

struct Pattern {
    word: [u8; WORD],
    rest: Option<[u8; MARKER - WORD]>,
    operation: usize,
}

const HASH_BITS: u32 = 18;

impl Search {
    /// A search for the visible part of each operation's marker.
    pub(crate) fn new<'m>(markers: impl IntoIterator<Item = (&'m Marker, Visible)>) -> Self {
        let mut search =
            Self { patterns: Vec::new(), first_bytes: vec![0; 1 << (HASH_BITS - 6)], hits: Vec::new(), bytes: 0 };
        for (operation, (marker, visible)) in markers.into_iter().enumerate() {
            search.hits.push(0);
            let rest = match visible {
                Visible::Nothing => continue,
                Visible::Word => None,
                Visible::Marker => Some(marker.bytes()[WORD..].try_into().expect("a marker is two words")),
            };
            let hash = hash(marker.bytes());
            search.first_bytes[hash / 64] |= 1 << (hash % 64);
            search.patterns.push(Pattern { word: marker.word(), rest, operation });
        }
        search.patterns.sort_by_key(|pattern| pattern.word);
        search
    }

    /// Counts the markers in a frame.
    pub(crate) fn look(&mut self, frame: &[u8]) {
        self.bytes += frame.len() as u64;
        let mut at = 0;
        while at + WORD <= frame.len() {
            let hash = hash(&frame[at..]);
            let candidate = self.first_bytes[hash / 64] >> (hash % 64) & 1 == 1;
            at += if candidate { self.count(&frame[at..]) } else { 1 };
        }
    }

    /// Counts a marker at the start of `frame`; returns how far to go on.
    fn count(&mut self, frame: &[u8]) -> usize {
        let Ok(index) = self.patterns.binary_search_by(|pattern| pattern.word.as_slice().cmp(&frame[..WORD])) else {
            return 1;
        };
        let pattern = &self.patterns[index];
        let length = match pattern.rest {
            None => WORD,
            Some(rest) if frame[WORD..].starts_with(&rest) => MARKER,
            Some(_) => return 1,
        };
        self.hits[pattern.operation] += 1;
        length
    }

    /// Times each operation's marker was seen.
    pub(crate) fn hits(&self) -> &[u64] {
        &self.hits
    }

    /// Bytes searched.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn hash(bytes: &[u8]) -> usize {
    let first = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (first.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::marker::{Seed, Stamp};

    const STAMP: Stamp = Stamp { from: 0, to: 1, round: 0 };

    /// Hits of three operations that show all, a word and nothing of their markers.
    fn check(frame: impl FnOnce(&[Marker; 3]) -> Vec<u8>, expected: [u64; 3]) {
        let seed: Seed = "000102030405060708090a0b0c0d0e0f".parse().expect("a seed");
        let markers = ["all", "word", "nothing"].map(|name| seed.marker(name));
        let visible = [Visible::Marker, Visible::Word, Visible::Nothing];
        let mut search = Search::new(markers.iter().zip(visible));
        search.look(&frame(&markers));
        assert_eq!(search.hits(), expected);
    }

    #[test]
    fn markers_are_found_at_any_offset() {
        for lead in 0..20 {
            check(|markers| [vec![7; lead], markers[0].bytes().to_vec()].concat(), [1, 0, 0]);
        }
    }

    #[test]
    fn every_repetition_counts() {
        check(|markers| markers[0].block(1600, STAMP), [99, 0, 0]);
    }

    #[test]
    fn a_word_is_enough_where_no_more_fits() {
        check(|markers| markers[1].word().to_vec(), [0, 1, 0]);
        check(|markers| markers[0].word().to_vec(), [0, 0, 0]);
    }

    #[test]
    fn a_message_cut_anywhere_is_still_found() {
        for cut in 0..48 {
            check(|markers| markers[0].block(1000, STAMP)[cut..cut + 31].to_vec(), [1, 0, 0]);
        }
    }

    #[test]
    fn noise_is_no_hit() {
        let noise =
            |_: &[Marker; 3]| (0..100_000u32).flat_map(|value| value.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect();
        check(noise, [0, 0, 0]);
    }
}
