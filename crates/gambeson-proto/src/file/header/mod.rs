//! The header: what a file says of itself, in two copies that are written in turn.
//!
//! ```text
//!  "GMBSNFIL" | version u16 | H u32 | body length u32 | body | SHA-256 of all before
//!  body = table length u32 | table | signatures u16 x { label u16 | Ed25519 64 } | state | label u16 | Ed25519 64
//! ```
//! Every label of the table signs the table; one of them, whoever opens or closes the file, signs the state. A reader
//! holds the verifying keys of the labels that it knows, and believes nothing of a file whose labels it does not.

use std::fmt;

use super::codec::Reader;
use super::geometry::{HEADER_LEN_MAX, HEADER_LEN_MIN, HeaderCopy};
use super::state::{STATE_LEN, State};
use super::table::{Fields, Label, Table, TableError};
use super::{Digest, context, tree};
use crate::primitives::ed25519_verifies;

/// How every header copy begins.
pub const MAGIC: &[u8; 8] = b"GMBSNFIL";
/// The version of the format.
pub const VERSION: u16 = 1;
/// The bytes of a copy that tell how long it is.
pub const PREFIX_LEN: usize = 18;
/// An Ed25519 signature.
pub type Signature = [u8; 64];

/// A header whose signatures were verified, or that was made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    table: Table,
    signed: Signed,
}

/// A header as it was found: nobody has looked at its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unverified {
    fields: Fields,
    /// Of the table's bytes.
    digest: Digest,
    signed: Signed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Signed {
    /// Of the table, by every label, in the order of the table.
    signatures: Vec<Signature>,
    state: State,
    /// The label that signed the state.
    signer: u16,
    signature: Signature,
}

/// Why bytes are no header copy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// They do not begin as one.
    Foreign,
    /// Of this version, which is not ours.
    Version(u16),
    /// Cut short, overwritten in part, or of a length that no header has.
    Damaged,
    /// Whole, but what stands in it makes no sense.
    Malformed,
    /// Its table is none.
    Table(TableError),
    /// Two copies of different files, or two that differ under one serial.
    Mixed,
}

/// Why a header is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distrust {
    /// None of its labels is known here.
    Unknown,
    /// This label has another verifying key here.
    OtherKey(Label),
    /// The table was not signed by this label.
    Table(Label),
    /// The state was not signed by this label.
    State(Label),
    /// What was signed is no table.
    Senseless(TableError),
}

/// A header is longer than its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Its bytes.
    pub len: usize,
    /// H.
    pub room: u32,
}

/// H, if bytes begin as a header copy does.
pub fn header_len(prefix: &[u8]) -> Option<u32> {
    let mut reader = Reader(prefix);
    let (magic, _, len) = (reader.array::<8>()?, reader.u16()?, reader.u32()?);
    (magic == *MAGIC && is_header_len(len)).then_some(len)
}

/// Every H there is: where copy B may stand when copy A does not tell.
pub fn header_lens() -> impl Iterator<Item = u32> {
    (HEADER_LEN_MIN.ilog2()..=HEADER_LEN_MAX.ilog2()).map(|log2| 1 << log2)
}

/// What counts of two copies: the valid one of the greater serial. The next one goes to the other place.
///
/// # Errors
/// Why copy A is none, if neither is valid; [`HeaderError::Mixed`] if both are, and not of one file.
pub fn choose(a: &[u8], b: &[u8]) -> Result<(Unverified, HeaderCopy), HeaderError> {
    match (Unverified::decode(a), Unverified::decode(b)) {
        (Ok(a), Ok(b)) => {
            let (serial_a, serial_b) = (a.state().serial, b.state().serial);
            if a.fields.file != b.fields.file || (serial_a == serial_b && a != b) {
                return Err(HeaderError::Mixed);
            }
            Ok(if serial_b > serial_a { (b, HeaderCopy::B) } else { (a, HeaderCopy::A) })
        }
        (Ok(a), Err(_)) => Ok((a, HeaderCopy::A)),
        (Err(_), Ok(b)) => Ok((b, HeaderCopy::B)),
        (Err(cause), Err(_)) => Err(cause),
    }
}

impl Header {
    /// A header with its signatures: every label's of [`Table::message`], in the table's order, and one label's, by its
    /// place in the table, of [`State::message`].
    ///
    /// # Panics
    /// When the numbers do not fit the table, or the state is not legal.
    pub fn new(table: Table, signatures: Vec<Signature>, state: State, signer: u16, signature: Signature) -> Self {
        assert_eq!(signatures.len(), table.labels().len(), "every label signs the table");
        let is_legal = state.is_legal() && table.geometry().holds(state.size);
        assert!(usize::from(signer) < signatures.len() && is_legal, "a label of the table signs a legal state");
        Header { table, signed: Signed { signatures, state, signer, signature } }
    }

    /// The same table in another state.
    pub fn with_state(&self, state: State, signer: u16, signature: Signature) -> Self {
        Self::new(self.table.clone(), self.signed.signatures.clone(), state, signer, signature)
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The labels' signatures of the table, in its order.
    pub fn signatures(&self) -> &[Signature] {
        &self.signed.signatures
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.signed.state
    }

    /// The label that signed the state.
    pub fn signer(&self) -> &Label {
        &self.table.labels()[usize::from(self.signed.signer)]
    }

    /// The bytes of a copy, at most H.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let Header { table, signed: Signed { signatures, state, signer, signature } } = self;
        let room = table.geometry().header_len;
        let body = 4 + table.encode().len() + 2 + 66 * signatures.len() + STATE_LEN + 66;
        let len = PREFIX_LEN + body + 32;
        if len > room as usize {
            return Err(TooLong { len, room });
        }
        let mut out = Vec::with_capacity(len);
        out.extend(MAGIC);
        out.extend(VERSION.to_be_bytes());
        out.extend(room.to_be_bytes());
        out.extend((body as u32).to_be_bytes());
        out.extend((table.encode().len() as u32).to_be_bytes());
        out.extend(table.encode());
        out.extend((signatures.len() as u16).to_be_bytes());
        for (label, signature) in (0_u16..).zip(signatures) {
            out.extend(label.to_be_bytes());
            out.extend(signature);
        }
        out.extend(state.encode());
        out.extend(signer.to_be_bytes());
        out.extend(signature);
        out.extend(tree::sha256(&out));
        Ok(out)
    }
}

impl Unverified {
    /// Reads a copy; what follows it up to H does not count.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut reader = Reader(bytes);
        let magic = reader.array::<8>();
        if magic != Some(*MAGIC) {
            return Err(HeaderError::Foreign);
        }
        // What follows is another version's business.
        let version = reader.u16().ok_or(HeaderError::Damaged)?;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let sizes = reader.u32().zip(reader.u32()).filter(|&(header, _)| is_header_len(header));
        let (header_len, body_len) = sizes.ok_or(HeaderError::Damaged)?;
        let end = (body_len as usize).saturating_add(PREFIX_LEN);
        let (copy, digest) = bytes.split_at_checked(end).ok_or(HeaderError::Damaged)?;
        if end + 32 > header_len as usize || digest.first_chunk() != Some(&tree::sha256(copy)) {
            return Err(HeaderError::Damaged);
        }
        let unverified = Self::body(&copy[PREFIX_LEN..])?;
        let Fields { geometry, .. } = &unverified.fields;
        if geometry.header_len != header_len || !geometry.holds(unverified.state().size) {
            return Err(HeaderError::Malformed);
        }
        Ok(unverified)
    }

    fn body(body: &[u8]) -> Result<Self, HeaderError> {
        let mut reader = Reader(body);
        let table = reader.u32().and_then(|len| reader.bytes(len as usize)).ok_or(HeaderError::Malformed)?;
        let fields = Fields::decode(table).map_err(HeaderError::Table)?;
        let signed = Signed::decode(&mut reader, fields.labels.len()).ok_or(HeaderError::Malformed)?;
        Ok(Unverified { fields, digest: tree::sha256(table), signed })
    }

    /// The SHA-256 of the table's bytes, by which somebody who verified it may vouch for it.
    pub fn table_digest(&self) -> &Digest {
        &self.digest
    }

    /// What should be a table, which somebody may have made up. Its measures and the state's size are some that a file
    /// can have.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The state, which somebody may have made up.
    pub fn state(&self) -> &State {
        &self.signed.state
    }

    /// The header, if every label that is known here has signed the table, and the label that it names has signed the
    /// state. `pinned` is the verifying key of a label at its version, as far as it is known here.
    pub fn verify(self, mut pinned: impl FnMut(&Label) -> Option<[u8; 32]>) -> Result<Header, Distrust> {
        let Unverified { fields, digest, signed } = self;
        let message = context::table(&digest);
        let mut known = false;
        for (label, signature) in fields.labels.iter().zip(&signed.signatures) {
            let Some(key) = pinned(label) else { continue };
            if key != label.verifying_key {
                return Err(Distrust::OtherKey(label.clone()));
            }
            if !ed25519_verifies(&key, &message, signature) {
                return Err(Distrust::Table(label.clone()));
            }
            known = true;
        }
        if !known {
            return Err(Distrust::Unknown);
        }
        let label = &fields.labels[usize::from(signed.signer)];
        if !ed25519_verifies(&label.verifying_key, &signed.state.message(&digest), &signed.signature) {
            return Err(Distrust::State(label.clone()));
        }
        let table = Table::new(fields).map_err(Distrust::Senseless)?;
        assert_eq!(*table.digest(), digest, "there is one way to write a table");
        Ok(Header { table, signed })
    }
}

impl Signed {
    fn decode(reader: &mut Reader, labels: usize) -> Option<Self> {
        let count = reader.u16()?;
        let mut next = 0;
        let signatures = reader.list(count.into(), 66, |reader| {
            let label = reader.u16()?;
            let in_turn = label == next;
            next = label.wrapping_add(1);
            reader.array().filter(|_| in_turn)
        })?;
        let state = State::decode(&reader.array()?)?;
        let (signer, signature) = (reader.u16()?, reader.array()?);
        reader.end()?;
        let complete = signatures.len() == labels && usize::from(signer) < labels;
        complete.then_some(Signed { signatures, state, signer, signature })
    }
}

fn is_header_len(len: u32) -> bool {
    len.is_power_of_two() && (HEADER_LEN_MIN..=HEADER_LEN_MAX).contains(&len)
}

impl fmt::Display for HeaderError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(out, "it does not begin as a sealed file does"),
            Self::Version(version) => {
                write!(
                    out,
                    "it has version {version} of the format, and this program reads version {VERSION}; take a newer one"
                )
            }
            Self::Damaged => write!(out, "its header is cut short or was overwritten in part; get the file again"),
            Self::Malformed => write!(out, "its header makes no sense; get the file again"),
            Self::Table(cause) => write!(out, "the table in its header makes no sense: {cause}"),
            Self::Mixed => write!(
                out,
                "the two copies of its header do not belong together: one was put there from another file or another time; get \
                 the file again"
            ),
        }
    }
}

impl std::error::Error for HeaderError {}

impl fmt::Display for Distrust {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                write!(out, "no label of it is known here; ask its owner for one of them (`gambeson key import`)")
            }
            Self::OtherKey(Label { name, version, .. }) => write!(
                out,
                "it was made under another label that is also called {name} version {version}: the verifying keys differ"
            ),
            Self::Table(Label { name, version, .. }) => write!(
                out,
                "its table of regions and keys was not signed by label {name} version {version}: it was altered, or made up"
            ),
            Self::State(Label { name, version, .. }) => write!(
                out,
                "its size and root were not signed by label {name} version {version}: they were altered, or made up"
            ),
            Self::Senseless(cause) => write!(out, "the table in its header was signed, but makes no sense: {cause}"),
        }
    }
}

impl std::error::Error for Distrust {}

impl fmt::Display for TooLong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "the maps and keys take {} bytes, and the file's header has room for {}; make the file with a longer header",
            self.len, self.room
        )
    }
}

impl std::error::Error for TooLong {}

#[cfg(test)]
mod tests;
