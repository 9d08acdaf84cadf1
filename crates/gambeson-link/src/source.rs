//! A message's bytes where the program has them: in one piece or in several.

use gambeson_proto::record::Origin;

pub(crate) trait Source {
    fn len(&self) -> usize;

    /// What goes into one record.
    fn part(&self, from: usize, len: usize) -> impl Origin;

    /// Copies all from there on.
    fn append(&self, from: usize, out: &mut Vec<u8>);
}

impl Source for [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn part(&self, from: usize, len: usize) -> impl Origin {
        &self[from..from + len]
    }

    fn append(&self, from: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self[from..]);
    }
}

impl Source for [&[u8]] {
    fn len(&self) -> usize {
        self.iter().map(|piece| piece.len()).sum()
    }

    fn part(&self, mut from: usize, len: usize) -> impl Origin {
        let mut pieces = self;
        while let Some((first, behind)) = pieces.split_first().filter(|(first, _)| first.len() <= from) {
            from -= first.len();
            pieces = behind;
        }
        Part { pieces, from, len }
    }

    fn append(&self, from: usize, out: &mut Vec<u8>) {
        let mut skip = from;
        for piece in self {
            out.extend_from_slice(&piece[skip.min(piece.len())..]);
            skip = skip.saturating_sub(piece.len());
        }
    }
}

/// So many bytes of some pieces, from a place in the first on.
struct Part<'p> {
    pieces: &'p [&'p [u8]],
    from: usize,
    len: usize,
}

impl Origin for Part<'_> {
    fn contiguous(&self) -> Option<&[u8]> {
        match self.pieces.first() {
            Some(first) => first.get(self.from..self.from + self.len),
            None => Some(&[]),
        }
    }

    fn copy(&self, into: &mut [u8]) {
        let (mut from, mut at) = (self.from, 0);
        for piece in self.pieces {
            let len = (piece.len() - from).min(into.len() - at);
            into[at..at + len].copy_from_slice(&piece[from..from + len]);
            (from, at) = (0, at + len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_as_one() {
        let whole: Vec<u8> = (0..100).collect();
        for cuts in [&[][..], &[0, 0], &[1], &[30, 30, 60], &[99, 100]] {
            let mut pieces: Vec<&[u8]> = Vec::new();
            let mut begun = 0;
            for &cut in cuts.iter().chain([&100]) {
                pieces.push(&whole[begun..cut]);
                begun = cut;
            }
            let pieces = &pieces[..];
            assert_eq!(Source::len(pieces), 100);
            for from in 0..=100 {
                for len in 0..=100 - from {
                    let (part, mut copied) = (pieces.part(from, len), vec![0; len]);
                    part.copy(&mut copied);
                    assert_eq!(copied, whole[from..from + len], "{cuts:?}");
                    assert!(part.contiguous().is_none_or(|bytes| *bytes == whole[from..from + len]));
                }
                let mut out = Vec::new();
                pieces.append(from, &mut out);
                assert_eq!(out, whole[from..], "{cuts:?}");
            }
        }
        let two: [&[u8]; 2] = [&whole[..40], &whole[40..]];
        assert!(two.part(0, 40).contiguous().is_some() && two.part(41, 59).contiguous().is_some());
        assert!(two.part(39, 2).contiguous().is_none());
        assert!(<[&[u8]]>::part(&[], 0, 0).contiguous().is_some());
    }
}
