//! The record: the one unit that Gambeson puts on the wire, sealed or authenticated as a whole.
//!
//! ```text
//!  0       16  17  18   20    24          32        40
//!  | tag   |ver|flg| 0  |epoch|connection |sequence | [card 64, policy 8] | sealed: envelope 40, payload
//! ```
//!
//! Integers are little-endian. Everything before the envelope but the tag is associated data. A
//! payload of more than [`INLINE_MAX`] bytes has a tag of its own in front of it and a nonce of its
//! own (the sequence with the top bit set), so that the envelope can be authenticated and matched
//! first and the payload then be opened out of place, straight into the receiver's buffer:
//!
//! ```text
//!  | ... | envelope 40 | payload tag 16 | payload |
//! ```
//!
//! Under [`Protection::Integrity`] the bytes stand in clear and the tags are GMACs over the same
//! spans; under [`Protection::None`] the tags are zero and are not looked at. Which of the three applies
//! the policy says, not the header (threat-model rule 8).
//!
//! A message on a communicator may have a protection of its own. Then the frame, which is all but the
//! payload, stays as the pair has it, and the payload, which has its own tag in front of it whatever
//! its size, is protected otherwise ([`Mode`]). The header states that, so that a record can be opened;
//! the receiver compares it with what it demands for the tag that it finds in the frame. So nobody
//! who lacks the frame's key begins a message, moves a sequence or takes a record away unnoticed,
//! even where payloads are in clear.

use std::ops::Range;

use crate::aead::{Context, TAG_LEN, Tag};
use crate::identity::CARD_LEN;
use crate::session::Stamp;
use crate::suite::Protection;

/// Version of the record format, the first byte after the tag.
pub const VERSION: u8 = 1;
/// Largest payload that shares the envelope's tag, in bytes.
pub const INLINE_MAX: usize = 4096;
/// Bytes of tag and header in front of every record.
pub const HEADER_LEN: usize = 40;
/// Bytes of an encoded [`Envelope`].
pub const ENVELOPE_LEN: usize = 40;
/// Bytes of an introduction: the sender's card and the first bytes of its policy's hash.
pub const INTRODUCTION_LEN: usize = CARD_LEN + POLICY_HINT_LEN;
/// Bytes of the policy hash that an introduction shows.
pub const POLICY_HINT_LEN: usize = 8;

const FLAG_INTRODUCTION: u8 = 1;
const FLAG_PAYLOAD: u8 = 2;
/// The frame has privacy, though the policy asks for less between the two.
const FLAG_RAISED: u8 = 4;
/// The payload has integrity alone.
const FLAG_PAYLOAD_INTEGRITY: u8 = 8;
/// The payload has no protection.
const FLAG_PAYLOAD_NONE: u8 = 16;
const FLAGS: u8 = FLAG_INTRODUCTION | FLAG_PAYLOAD | FLAG_RAISED | FLAG_PAYLOAD_INTEGRITY | FLAG_PAYLOAD_NONE;
/// Marks the nonce of a payload that has its own tag; sequences stay below it.
const PAYLOAD_NONCE: u64 = 1 << 63;

/// Bytes that a record with `payload` bytes can take at most: what a receive buffer must hold.
pub const fn capacity(payload: usize) -> usize {
    HEADER_LEN + INTRODUCTION_LEN + ENVELOPE_LEN + TAG_LEN + payload
}

/// How a record is protected, as far as that is not what its two ends have by the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// The frame has [`Protection::Privacy`], whatever the policy says of the pair.
    pub raised: bool,
    /// The payload has this protection, weaker than the frame's.
    pub apart: Option<Protection>,
}

impl Mode {
    fn flags(self) -> u8 {
        let raised = if self.raised { FLAG_RAISED } else { 0 };
        raised
            | match self.apart {
                None => 0,
                Some(Protection::Integrity) => FLAG_PAYLOAD_INTEGRITY,
                Some(Protection::None) => FLAG_PAYLOAD_NONE,
                Some(Protection::Privacy) => unreachable!("no frame is stronger"),
            }
    }
}

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Begins a message: tag, size, data, the sender's id; carries its first bytes.
    Message = 1,
    /// The next bytes of the message that this sender began last.
    More = 2,
    /// The receiver asks for the rest: id = the sender's id, data = the receiver's id, size = end.
    Grant = 3,
    /// Bytes of a granted message: id = the receiver's id, tag = offset.
    Data = 4,
    /// A message was delivered: id = the sender's id.
    Delivered = 5,
    /// size bytes of room for unexpected messages are free again; of a link, of what tag says.
    Credit = 6,
    /// Asks the peer for its position.
    Query = 7,
    /// Answers a query: size = the sequence expected next from the asker.
    Position = 8,
    /// The sender's last record: size = the sequence expected next from the peer.
    Final = 9,
    /// Begins a remote service request of a link: tag = handler, size, data = the request's number.
    Request = 16,
    /// Begins an answer to one: size, data = the request's number.
    Answer = 17,
    /// Nobody waits for the answers to request data any more.
    Cancel = 18,
    /// What the ends of a session say to each other beside their links.
    Control = 19,
    /// Begins a write into a memory region: id = region, tag = offset, size, data = the request's number.
    Put = 20,
    /// Asks for size bytes of a memory region: id = region, tag = offset, data = the request's number. No payload.
    Get = 21,
    /// Ends a request that was left open ([`request::OPEN`]), or gives it up; data = the request's number. No payload.
    End = 22,
}

/// Flags of a [`Kind::Message`].
pub mod message {
    /// The message is matched by tag (fi_tsend); otherwise by source alone (fi_send).
    pub const TAGGED: u8 = 1;
    /// The message carries remote completion data.
    pub const DATA: u8 = 2;
    /// The rest of the message waits for a grant.
    pub const GRANT: u8 = 4;
    /// The sender waits for [`super::Kind::Delivered`].
    pub const DELIVERY: u8 = 8;
    /// The message is of the endpoints' own, not of their programs; matched by tag.
    pub const SERVICE: u8 = 16;
    /// Every flag that there is.
    pub const ALL: u8 = 31;
}

/// Flags of a [`Kind::Request`]; of [`Kind::Put`] and [`Kind::Get`] the first.
pub mod request {
    /// An answer is wanted; otherwise the request is one-way.
    pub const ANSWER: u8 = 1;
    /// A stream of answers is wanted.
    pub const STREAM: u8 = 2;
    /// More follows, and an [`super::Kind::End`] that says how the request is answered.
    pub const OPEN: u8 = 4;
    /// Every flag that there is.
    pub const ALL: u8 = 7;
}

/// Flags of a [`Kind::End`]: those of the request, or the one here.
pub mod end {
    /// The request was given up, and is not to be handled.
    pub const ABANDONED: u8 = 8;
    /// Every flag that there is.
    pub const ALL: u8 = super::request::ANSWER | super::request::STREAM | ABANDONED;
}

/// Tags of a link's [`Kind::Credit`].
pub mod credit {
    /// The link's own window.
    pub const LINK: u64 = 0;
    /// That of the stream which answers request data.
    pub const STREAM: u64 = 1;
}

/// Flags of a [`Kind::Answer`].
pub mod answer {
    /// No further answer follows.
    pub const LAST: u8 = 1;
    /// The request was refused; the payload says why, in UTF-8.
    pub const REFUSED: u8 = 2;
    /// This is no answer itself, but the end of a stream of them.
    pub const END: u8 = 4;
    /// Every flag that there is.
    pub const ALL: u8 = 7;
}

/// The sealed header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// What the record does.
    pub kind: Kind,
    /// Flags of the kind.
    pub flags: u8,
    /// Match tag, or offset in bytes.
    pub tag: u64,
    /// Message size in bytes, or another length of the kind.
    pub size: u64,
    /// Remote completion data, or an id.
    pub data: u64,
    /// Id of the message at the end that the kind names.
    pub id: u64,
}

impl Envelope {
    /// An envelope of `kind` with all else zero.
    pub fn new(kind: Kind) -> Self {
        Envelope { kind, flags: 0, tag: 0, size: 0, data: 0, id: 0 }
    }

    fn encode(&self, into: &mut [u8]) {
        into[..8].copy_from_slice(&[self.kind as u8, self.flags, 0, 0, 0, 0, 0, 0]);
        into[8..16].copy_from_slice(&self.tag.to_le_bytes());
        into[16..24].copy_from_slice(&self.size.to_le_bytes());
        into[24..32].copy_from_slice(&self.data.to_le_bytes());
        into[32..40].copy_from_slice(&self.id.to_le_bytes());
    }

    /// Reads an authenticated envelope. `None`: the peer speaks another dialect.
    pub fn decode(from: &[u8]) -> Option<Self> {
        let kind = match from[0] {
            1 => Kind::Message,
            2 => Kind::More,
            3 => Kind::Grant,
            4 => Kind::Data,
            5 => Kind::Delivered,
            6 => Kind::Credit,
            7 => Kind::Query,
            8 => Kind::Position,
            9 => Kind::Final,
            16 => Kind::Request,
            17 => Kind::Answer,
            18 => Kind::Cancel,
            19 => Kind::Control,
            20 => Kind::Put,
            21 => Kind::Get,
            22 => Kind::End,
            _ => return None,
        };
        let flags = from[1];
        let known = match kind {
            Kind::Message => message::ALL,
            Kind::Request => request::ALL,
            Kind::Answer => answer::ALL,
            Kind::Put | Kind::Get => request::ANSWER,
            Kind::End => end::ALL,
            _ => 0,
        };
        if flags & !known != 0 || from[2..8] != [0; 6] {
            return None;
        }
        let word = |at: usize| u64_at(from, at);
        Some(Envelope { kind, flags, tag: word(8), size: word(16), data: word(24), id: word(32) })
    }
}

/// The header of a record as it came off the wire: not yet authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Epoch and sequence that the sender claims.
    pub stamp: Stamp,
    /// Connection id: which pair and direction the sender claims.
    pub connection: u64,
    /// Whether an introduction follows the header.
    pub introduced: bool,
    /// How it is protected.
    pub mode: Mode,
    split: bool,
    len: usize,
}

impl Header {
    /// Reads the header of a record of any length. `None`: this is no record.
    pub fn parse(record: &[u8]) -> Option<Self> {
        if record.len() < HEADER_LEN + ENVELOPE_LEN || record[16] != VERSION || record[18..20] != [0, 0] {
            return None;
        }
        let flags = record[17];
        let epoch = u32::from_le_bytes(record[20..24].try_into().expect("4 bytes"));
        let sequence = u64_at(record, 32);
        if flags & !FLAGS != 0 || sequence & PAYLOAD_NONCE != 0 {
            return None;
        }
        let apart = match flags & (FLAG_PAYLOAD_INTEGRITY | FLAG_PAYLOAD_NONE) {
            0 => None,
            FLAG_PAYLOAD_INTEGRITY => Some(Protection::Integrity),
            FLAG_PAYLOAD_NONE => Some(Protection::None),
            _ => return None,
        };
        if apart.is_some() && flags & FLAG_PAYLOAD == 0 {
            return None;
        }
        let introduced = flags & FLAG_INTRODUCTION != 0;
        let split = flags & FLAG_PAYLOAD != 0;
        let header = Header {
            stamp: Stamp { epoch, sequence },
            connection: u64_at(record, 24),
            introduced,
            mode: Mode { raised: flags & FLAG_RAISED != 0, apart },
            split,
            len: record.len(),
        };
        let least = header.envelope().end + if split { TAG_LEN } else { 0 };
        (record.len() >= least).then_some(header)
    }

    /// Where the introduction (card and policy hint) stands, if there is one.
    pub fn introduction<'r>(&self, record: &'r [u8]) -> Option<(&'r [u8], &'r [u8])> {
        self.introduced.then(|| record[HEADER_LEN..HEADER_LEN + INTRODUCTION_LEN].split_at(CARD_LEN))
    }

    fn envelope(&self) -> Range<usize> {
        let at = HEADER_LEN + if self.introduced { INTRODUCTION_LEN } else { 0 };
        at..at + ENVELOPE_LEN
    }

    /// Bytes of payload in the record.
    pub fn payload_len(&self) -> usize {
        self.len - self.envelope().end - if self.split { TAG_LEN } else { 0 }
    }

    /// Opens a record all of which has one protection: [`Header::open_frame`] and [`Header::payload`].
    pub fn open<'r>(
        &self,
        context: &'r Context,
        protection: Protection,
        record: &'r mut [u8],
    ) -> Option<(Option<Envelope>, Payload<'r>)> {
        if self.mode != Mode::default() {
            return None;
        }
        let envelope = self.open_frame(context, protection, record)?;
        Some((envelope, self.payload(context, protection, record)))
    }

    /// Authenticates the record's header and envelope, and with them a payload that shares their
    /// tag. `None`: the record is not from the holder of this key, or was altered.
    pub fn open_frame(&self, context: &Context, protection: Protection, record: &mut [u8]) -> Option<Option<Envelope>> {
        let tag: Tag = record[..TAG_LEN].try_into().expect("16 bytes");
        let at = self.envelope();
        let covered = if self.split { at.end } else { record.len() };
        match protection {
            Protection::Privacy => {
                let (before, sealed) = record[..covered].split_at_mut(at.start);
                context.open_in_place(self.stamp.sequence, &before[TAG_LEN..], sealed, &tag).ok()?;
            }
            Protection::Integrity => {
                context.verify(self.stamp.sequence, &record[TAG_LEN..covered], &tag).ok()?;
            }
            Protection::None => {}
        }
        Some(Envelope::decode(&record[at]))
    }

    /// The payload of a record whose frame is open, with the key of the protection that it has.
    pub fn payload<'r>(&self, context: &'r Context, protection: Protection, record: &'r mut [u8]) -> Payload<'r> {
        let payload = &mut record[self.envelope().end..];
        if !self.split {
            return Payload::Open(payload);
        }
        let (tag, bytes) = payload.split_at_mut(TAG_LEN);
        let tag: Tag = (&*tag).try_into().expect("16 bytes");
        let sequence = self.stamp.sequence | PAYLOAD_NONCE;
        match protection {
            Protection::Privacy => Payload::Sealed { context, sequence, tag, bytes },
            Protection::Integrity => Payload::Tagged { context, sequence, tag, bytes },
            Protection::None => Payload::Open(bytes),
        }
    }
}

/// The payload of a record whose envelope is authentic.
pub enum Payload<'r> {
    /// Already authenticated with the envelope (or the policy asks for no authentication).
    Open(&'r [u8]),
    /// Sealed under a tag of its own.
    Sealed {
        /// Key and IV.
        context: &'r Context,
        /// Nonce of the payload.
        sequence: u64,
        /// Tag of the payload.
        tag: Tag,
        /// The sealed bytes.
        bytes: &'r mut [u8],
    },
    /// In clear, under a GMAC of its own.
    Tagged {
        /// Key and IV.
        context: &'r Context,
        /// Nonce of the payload.
        sequence: u64,
        /// Tag of the payload.
        tag: Tag,
        /// The bytes.
        bytes: &'r [u8],
    },
}

/// Where an opened payload goes.
pub trait Destination {
    /// `len` contiguous bytes to open straight into; `None`: there is no such place, or less room.
    fn contiguous(&mut self, len: usize) -> Option<&mut [u8]>;
    /// Takes opened bytes; more than there is room for are dropped.
    fn copy(&mut self, from: &[u8]);
}

impl Payload<'_> {
    /// Bytes of payload.
    pub fn len(&self) -> usize {
        match self {
            Payload::Open(bytes) | Payload::Tagged { bytes, .. } => bytes.len(),
            Payload::Sealed { bytes, .. } => bytes.len(),
        }
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Authenticates the payload and hands it over. `None`: it was altered; what the destination
    /// lent is wiped and nothing was copied.
    pub fn deliver(self, into: &mut impl Destination) -> Option<()> {
        match self {
            Payload::Open(bytes) => into.copy(bytes),
            Payload::Tagged { context, sequence, tag, bytes } => {
                context.verify(sequence, bytes, &tag).ok()?;
                into.copy(bytes);
            }
            Payload::Sealed { context, sequence, tag, bytes } => match into.contiguous(bytes.len()) {
                Some(plain) => context.open(sequence, &[], bytes, &tag, plain).ok()?,
                None => {
                    context.open_in_place(sequence, &[], bytes, &tag).ok()?;
                    into.copy(bytes);
                }
            },
        }
        Some(())
    }
}

/// Where the payload of a record to be sealed comes from.
pub trait Origin {
    /// The payload as one slice, if it is contiguous.
    fn contiguous(&self) -> Option<&[u8]>;
    /// Copies the payload out.
    fn copy(&self, into: &mut [u8]);
}

impl Origin for &[u8] {
    fn contiguous(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn copy(&self, into: &mut [u8]) {
        into.copy_from_slice(self);
    }
}

/// What goes into a record besides its payload.
pub struct Plan<'p> {
    /// Epoch and sequence, taken from the session for this record alone.
    pub stamp: Stamp,
    /// Connection id of the direction.
    pub connection: u64,
    /// Card and policy hint, in a sender's first record to a peer.
    pub introduction: Option<&'p [u8; INTRODUCTION_LEN]>,
    /// The sealed header.
    pub envelope: Envelope,
    /// Bytes of payload.
    pub payload: usize,
    /// How it is protected otherwise than by the policy.
    pub mode: Mode,
}

impl Plan<'_> {
    /// Bytes that the sealed record takes.
    pub fn len(&self) -> usize {
        let introduction = if self.introduction.is_some() { INTRODUCTION_LEN } else { 0 };
        let tag = if self.is_split() { TAG_LEN } else { 0 };
        HEADER_LEN + introduction + ENVELOPE_LEN + tag + self.payload
    }

    fn is_split(&self) -> bool {
        self.payload > INLINE_MAX || (self.mode.apart.is_some() && self.payload > 0)
    }

    /// Where the envelope begins.
    fn envelope_at(&self) -> usize {
        HEADER_LEN + if self.introduction.is_some() { INTRODUCTION_LEN } else { 0 }
    }

    /// Whether the record is empty: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Seals the record into `record`, which must have room for [`Plan::len`] bytes.
    pub fn seal(&self, context: &Context, protection: Protection, payload: impl Origin, record: &mut [u8]) {
        self.seal_payload(context, protection, payload, record);
        self.seal_frame(context, protection, record);
    }

    /// Puts the payload into its place in `record`, protected if it has a tag of its own.
    pub fn seal_payload(&self, context: &Context, protection: Protection, payload: impl Origin, record: &mut [u8]) {
        let place = &mut record[self.envelope_at() + ENVELOPE_LEN..self.len()];
        if self.is_split() {
            let (tag, bytes) = place.split_at_mut(TAG_LEN);
            let sequence = self.stamp.sequence | PAYLOAD_NONCE;
            tag.copy_from_slice(&seal_payload(context, protection, sequence, payload, bytes));
        } else {
            payload.copy(place);
        }
    }

    /// Seals the rest of a record that has its payload.
    pub fn seal_frame(&self, context: &Context, protection: Protection, record: &mut [u8]) {
        let record = &mut record[..self.len()];
        let split = self.is_split();
        let sequence = self.stamp.sequence;
        record[..TAG_LEN].fill(0);
        record[16] = VERSION;
        record[17] = if split { FLAG_PAYLOAD | self.mode.flags() } else { Mode { apart: None, ..self.mode }.flags() };
        record[18..20].fill(0);
        record[20..24].copy_from_slice(&self.stamp.epoch.to_le_bytes());
        record[24..32].copy_from_slice(&self.connection.to_le_bytes());
        record[32..40].copy_from_slice(&sequence.to_le_bytes());
        let mut at = HEADER_LEN;
        if let Some(introduction) = self.introduction {
            record[17] |= FLAG_INTRODUCTION;
            record[at..at + INTRODUCTION_LEN].copy_from_slice(introduction);
            at += INTRODUCTION_LEN;
        }
        self.envelope.encode(&mut record[at..at + ENVELOPE_LEN]);
        let covered = if split { at + ENVELOPE_LEN } else { record.len() };
        let (before, open) = record[..covered].split_at_mut(at);
        let tag = match protection {
            Protection::Privacy => context.seal_in_place(sequence, &before[TAG_LEN..], open),
            Protection::Integrity => context.mac(sequence, &record[TAG_LEN..covered]),
            Protection::None => return,
        };
        record[..TAG_LEN].copy_from_slice(&tag);
    }
}

fn seal_payload(
    context: &Context,
    protection: Protection,
    sequence: u64,
    payload: impl Origin,
    bytes: &mut [u8],
) -> Tag {
    match (protection, payload.contiguous()) {
        (Protection::Privacy, Some(plain)) => context.seal(sequence, &[], plain, bytes),
        (Protection::Privacy, None) => {
            payload.copy(bytes);
            context.seal_in_place(sequence, &[], bytes)
        }
        // Integrity copies first and authenticates the copy, so that a program that writes to its
        // buffer meanwhile cannot make the two differ (threat-model rule 9).
        (Protection::Integrity, _) => {
            payload.copy(bytes);
            context.mac(sequence, bytes)
        }
        (Protection::None, _) => {
            payload.copy(bytes);
            [0; TAG_LEN]
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}
