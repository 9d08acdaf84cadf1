//! What has to be read before anything else of a sealed file: both copies of its header, and its digest tables.
//!
//! One process can read it for many: it is checked by whoever takes it.

use std::io;

use gambeson_proto::file::Geometry;
use gambeson_proto::file::header::{MAGIC, PREFIX_LEN, Unverified, header_len, header_lens};

use crate::body::{Body, Piece};

/// The bytes, as they are on the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Both copies of the header.
    pub copies: [Vec<u8>; 2],
    /// Digest tables of all chapters, one after the other.
    pub digests: Vec<u8>,
}

impl Head {
    /// Reads it; nothing if the file is empty or no sealed one.
    ///
    /// # Errors
    /// As the body has them.
    pub fn read(body: &impl Body) -> io::Result<Option<Self>> {
        let Some(copies) = read_copies(body)? else { return Ok(None) };
        // As many as either copy speaks of; which one counts is decided by whoever takes the head.
        let speaks = copies.iter().filter_map(|copy| Unverified::decode(copy).ok());
        let chapters = speaks.map(|header| {
            let geometry = header.fields().geometry;
            (geometry.chapters_of(geometry.blocks(header.state().size)), geometry)
        });
        let digests = match chapters.max_by_key(|(chapters, _)| *chapters) {
            Some((chapters, geometry)) => read_digests(body, &geometry, chapters)?,
            None => Vec::new(),
        };
        Ok(Some(Head { copies, digests }))
    }

    /// As one message between processes.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(8 + self.copies[0].len() * 2 + self.digests.len());
        message.extend((self.copies[0].len() as u64).to_be_bytes());
        for part in [&self.copies[0], &self.copies[1], &self.digests] {
            message.extend_from_slice(part);
        }
        message
    }

    /// The head of a message; nothing if it is none.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let (length, rest) = message.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
        let (one, rest) = rest.split_at_checked(length)?;
        let (other, digests) = rest.split_at_checked(length)?;
        Some(Head { copies: [one.to_vec(), other.to_vec()], digests: digests.to_vec() })
    }
}

/// Whether this is how a sealed file begins.
pub fn is_sealed(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

fn read_copies(body: &impl Body) -> io::Result<Option<[Vec<u8>; 2]>> {
    let first = header_len(&read(body, 0, PREFIX_LEN)?);
    // Without the first copy's word, the second is where one of the lengths would have it.
    for length in first.into_iter().chain(header_lens()) {
        if first == Some(length) || header_len(&read(body, length.into(), PREFIX_LEN)?) == Some(length) {
            let whole = |copy: u64| read(body, copy * u64::from(length), length as usize);
            return Ok(Some([whole(0)?, whole(1)?]));
        }
    }
    Ok(None)
}

fn read_digests(body: &impl Body, geometry: &Geometry, chapters: u64) -> io::Result<Vec<u8>> {
    let length = geometry.digest_table_len();
    // A header that somebody made up may speak of any size: there are no more tables than the file has room for.
    let chapters = chapters.min(body.length()?.div_ceil(length as u64));
    let pieces: Vec<Piece> =
        (0..chapters).map(|chapter| Piece { offset: geometry.digest_table(chapter), length }).collect();
    let mut digests = vec![0; length * pieces.len()];
    body.read(&pieces, &mut digests)?;
    Ok(digests)
}

fn read(body: &impl Body, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    body.read(&[Piece { offset, length }], &mut bytes)?;
    Ok(bytes)
}
