//! A flattened filetype (MPI-4.1, 14.1.1): from a displacement on it tiles the file for ever.

use std::fmt;

use super::{PIECES_MAX, gcd};

/// A stretch of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// Where it begins in the tile, in bytes.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
}

/// Bytes displacement + t * extent + [offset, offset + len) for every t = 0, 1, ... and every piece.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    displacement: u64,
    extent: u64,
    /// In order, apart from each other, within the extent; a tile that is full is of one byte.
    pieces: Vec<Piece>,
}

/// Why pieces are no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartError {
    /// There is none, or one without bytes.
    Empty,
    /// They overlap or are out of order.
    Disordered,
    /// One ends behind the extent.
    Outside,
    /// There are too many.
    Many,
    /// Displacement or extent is above 2^63 - 1, where no file has bytes.
    Far,
}

/// Where two parts overlap.
pub(super) struct Overlapping {
    pub(super) offset: u128,
    pub(super) length: u64,
}

impl Part {
    /// Pieces that are in order and do not overlap; where two touch they become one.
    pub fn new(displacement: u64, extent: u64, pieces: impl IntoIterator<Item = Piece>) -> Result<Self, PartError> {
        if displacement > OFFSET_MAX || extent > OFFSET_MAX {
            return Err(PartError::Far);
        }
        let mut joined: Vec<Piece> = Vec::new();
        for piece in pieces {
            let end = piece.offset.checked_add(piece.len).filter(|&end| end <= extent).ok_or(PartError::Outside)?;
            if piece.len == 0 {
                return Err(PartError::Empty);
            }
            match joined.last_mut() {
                Some(last) if last.offset + last.len > piece.offset => return Err(PartError::Disordered),
                Some(last) if last.offset + last.len == piece.offset => last.len = end - last.offset,
                _ => joined.push(piece),
            }
            if joined.len() > PIECES_MAX {
                return Err(PartError::Many);
            }
        }
        match joined[..] {
            [] => Err(PartError::Empty),
            [piece] if piece.len == extent => Ok(Self::from(displacement)),
            _ => Ok(Part { displacement, extent, pieces: joined }),
        }
    }

    /// Everything from a displacement on.
    ///
    /// # Panics
    /// Above 2^63 - 1.
    pub fn from(displacement: u64) -> Self {
        assert!(displacement <= OFFSET_MAX, "no file has bytes there");
        Part { displacement, extent: 1, pieces: vec![Piece { offset: 0, len: 1 }] }
    }

    /// So many bytes from `offset` on, and no others: a tile so long that the next one is behind the end of all files.
    ///
    /// # Panics
    /// When they are none, or end above 2^63 - 1.
    pub fn once(offset: u64, len: u64) -> Self {
        let end = offset.checked_add(len).filter(|&end| len > 0 && end < OFFSET_MAX);
        end.expect("a stretch of a file has bytes, and ends where files can");
        Part { displacement: 0, extent: OFFSET_MAX, pieces: vec![Piece { offset, len }] }
    }

    /// The same bytes in as few parts as those that differ in displacement or extent; each byte once.
    pub fn merge(mut parts: Vec<Part>) -> Vec<Part> {
        parts.sort_by_key(|part| (part.displacement, part.extent));
        // What goes on for ever from the first byte on has everything behind it in it.
        if let Some(first) = parts.iter().filter(|part| part.is_everything()).map(|part| part.displacement).min() {
            parts.retain(|part| part.displacement < first);
            parts.push(Self::from(first));
        }
        let alike = |a: &Part, b: &Part| (a.displacement, a.extent) == (b.displacement, b.extent);
        let merge = |parts: &[Part]| match parts {
            [part] => part.clone(),
            _ => {
                let mut pieces: Vec<Piece> = parts.iter().flat_map(|part| &part.pieces).copied().collect();
                pieces.sort_unstable();
                let mut end = 0;
                let fresh = pieces.into_iter().filter_map(|Piece { offset, len }| {
                    let (from, to) = (offset.max(end), offset + len);
                    end = end.max(to);
                    (from < to).then(|| Piece { offset: from, len: to - from })
                });
                let merged = Self::new(parts[0].displacement, parts[0].extent, fresh);
                merged.expect("pieces of legal parts, in order and no more than those had")
            }
        };
        parts.chunk_by(alike).map(merge).collect()
    }

    /// Where the first tile begins.
    pub fn displacement(&self) -> u64 {
        self.displacement
    }

    /// How far the next tile is from a tile.
    pub fn extent(&self) -> u64 {
        self.extent
    }

    /// The pieces of a tile.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Its runs in `len` bytes from `start` on, as offsets from there, in order. Neighbours may touch.
    pub(super) fn runs(&self, start: u64, len: u32, mut run: impl FnMut(u32, u32)) {
        let (from, to) = (start.max(self.displacement), start.saturating_add(len.into()));
        if from >= to {
            return;
        }
        if self.is_everything() {
            return run((from - start) as u32, (to - from) as u32);
        }
        let (from, to) = (from - self.displacement, to - self.displacement);
        let mut tile = from / self.extent * self.extent;
        let mut next = self.pieces.partition_point(|piece| piece.offset + piece.len <= from - tile);
        while tile < to {
            for piece in &self.pieces[next..] {
                let (first, end) = (tile + piece.offset, tile + piece.offset + piece.len);
                if first >= to {
                    return;
                }
                let (first, end) = (first.max(from), end.min(to));
                run((first + self.displacement - start) as u32, (end - first) as u32);
            }
            next = 0;
            tile = tile.saturating_add(self.extent);
        }
    }

    fn is_everything(&self) -> bool {
        self.extent == 1
    }

    /// The first of its bytes from `from` to before `to`, and how many follow each other there.
    pub(super) fn first_in(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let from = from.max(self.displacement);
        if from >= to {
            return None;
        }
        if self.is_everything() {
            return Some((from, to - from));
        }
        let within = (from - self.displacement) % self.extent;
        let next = self.pieces.partition_point(|piece| piece.offset + piece.len <= within);
        let (first, end) = match self.pieces.get(next) {
            Some(piece) => (piece.offset.max(within), piece.offset + piece.len),
            None => (self.extent + self.pieces[0].offset, self.extent + self.pieces[0].offset + self.pieces[0].len),
        };
        let (first, end) = (first - within, end - within);
        (first < to - from).then(|| (from + first, end.min(to - from) - first))
    }

    /// Where the two claim the same byte.
    ///
    /// Two combs meet somewhere if and only if they meet modulo the greatest common divisor of their extents, since
    /// the distances between their tiles are all multiples of that. Where a comb has few teeth below the end of all
    /// files, they are looked at one by one, so that a long extent is as good as a part that is there once.
    pub(super) fn overlap(&self, other: &Part) -> Option<Overlapping> {
        if self.has_few_tiles() {
            return self.overlap_by_tile(other);
        }
        if other.has_few_tiles() {
            return other.overlap_by_tile(self);
        }
        let modulus = gcd(self.extent, other.extent);
        let (ours, theirs) = (self.arcs(modulus), other.arcs(modulus));
        let (mut our, mut their) = (0, 0);
        while let (Some(a), Some(b)) = (ours.get(our), theirs.get(their)) {
            if a.start.max(b.start) < a.end.min(b.end) {
                return Some(self.meeting(a.piece, other, b.piece, a.start.max(b.start), modulus));
            }
            if a.end <= b.end {
                our += 1;
            } else {
                their += 1;
            }
        }
        None
    }

    fn has_few_tiles(&self) -> bool {
        self.is_everything() || OFFSET_MAX / self.extent < 64
    }

    fn overlap_by_tile(&self, other: &Part) -> Option<Overlapping> {
        if self.is_everything() {
            let (offset, length) = other.first_in(self.displacement, OFFSET_MAX)?;
            return Some(Overlapping { offset: offset.into(), length });
        }
        let tiles = (0..64).map_while(|tile| self.extent.checked_mul(tile)?.checked_add(self.displacement));
        tiles.take_while(|&tile| tile < OFFSET_MAX).find_map(|tile| {
            self.pieces.iter().find_map(|piece| {
                let first = tile + piece.offset;
                let (offset, length) = other.first_in(first, (first + piece.len).min(OFFSET_MAX))?;
                Some(Overlapping { offset: offset.into(), length })
            })
        })
    }

    /// The pieces of all tiles on a circle of `modulus` bytes, in order.
    fn arcs(&self, modulus: u64) -> Vec<Arc> {
        let mut arcs = Vec::with_capacity(self.pieces.len() + 1);
        for (piece, Piece { offset, len }) in self.pieces.iter().enumerate() {
            if *len >= modulus {
                return vec![Arc { start: 0, end: modulus, piece }];
            }
            let start = (self.displacement + offset) % modulus;
            let end = start + len;
            arcs.push(Arc { start, end: end.min(modulus), piece });
            if end > modulus {
                arcs.push(Arc { start: 0, end: end - modulus, piece });
            }
        }
        arcs.sort_unstable_by_key(|arc| arc.start);
        // Pieces of several tiles may lie on each other here; for the sweep over them they must not.
        let mut reached = 0;
        arcs.retain_mut(|arc| {
            arc.start = arc.start.max(reached);
            reached = reached.max(arc.end);
            arc.start < arc.end
        });
        arcs
    }

    /// The first byte at which two pieces meet at a point of the circle.
    fn meeting(&self, ours: usize, other: &Part, theirs: usize, point: u64, modulus: u64) -> Overlapping {
        let first = |part: &Part, piece: usize| {
            let Piece { offset, len } = part.pieces[piece];
            let start = part.displacement + offset;
            let skipped = (point + modulus - start % modulus) % modulus;
            (i128::from(start + skipped), len - skipped)
        };
        let ((a, length), (b, other_length)) = (first(self, ours), first(other, theirs));
        // a + ours * t = b modulo theirs (the Chinese remainder theorem).
        let (ours, theirs, modulus) = (i128::from(self.extent), i128::from(other.extent), i128::from(modulus));
        let turns = theirs / modulus;
        let tile = ((b - a) / modulus).rem_euclid(turns) * inverse(ours / modulus, turns) % turns;
        let mut offset = a + ours * tile;
        let period = ours * turns;
        if offset < b {
            offset += (b - offset + period - 1) / period * period;
        }
        Overlapping { offset: offset as u128, length: length.min(other_length) }
    }
}

/// A stretch of a circle.
struct Arc {
    start: u64,
    end: u64,
    piece: usize,
}

/// The inverse of a number modulo another one that it has no divisor in common with.
fn inverse(number: i128, modulus: i128) -> i128 {
    let (mut old, mut new) = ((number, 1), (modulus, 0));
    while new.0 != 0 {
        let times = old.0 / new.0;
        (old, new) = (new, (old.0 - times * new.0, old.1 - times * new.1));
    }
    old.1.rem_euclid(modulus)
}

/// Offsets in files are signed (MPI_Offset), and so is their size: no file has a byte here.
pub(super) const OFFSET_MAX: u64 = i64::MAX as u64;

impl fmt::Display for PartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Empty => "a part without bytes",
            Self::Disordered => "pieces that overlap, touch or are out of order",
            Self::Outside => "a piece that ends behind its part's extent",
            Self::Many => "too many pieces",
            Self::Far => "a part behind the end of all files",
        })
    }
}

impl std::error::Error for PartError {}
