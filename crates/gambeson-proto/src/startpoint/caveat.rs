//! Caveats: what narrows a startpoint.
//!
//! ```text
//! kind u8 | length u16 | content          (big endian)
//!  1 methods      handler numbers u32, ascending, none twice
//!  2 uses         u64
//!  3 expires      u64, seconds since 1970
//!  4 memory       windows { region u64 | offset u64 | length u64 | rights u8 }
//!  5 protection   u8
//!  6 copy         id 16 | holder 32 [ | holder's before: public key 32 | signature 64 ]
//! ```
//! All caveats of a startpoint hold together; where two speak of the same thing, what both allow is allowed.

use super::chain::Name;
use super::wire::{Reader, StartpointError};
use crate::key_schedule::{KeyHash, caveat_name};
use crate::suite::Protection;

/// Caveats of one startpoint.
pub const CAVEATS_MAX: usize = 16;
/// Bytes of them.
pub const CAVEAT_BYTES_MAX: usize = 1024;

/// One condition on the use of a startpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// Only these handlers: see [`Caveat::methods`].
    Methods(Vec<u32>),
    /// So many requests, counted over everything that descends from here. The endpoint keeps the count until the
    /// earliest expiry that stands before it, so there should be one.
    Uses(u64),
    /// Nothing from this second on (since 1970, by the endpoint's clock).
    Expires(u64),
    /// Memory inside one of these windows only. A startpoint without this caveat reaches no memory: its endpoint's
    /// owner puts one into each.
    Memory(Vec<Window>),
    /// Links at least so protected.
    Protection(Protection),
    /// From here on it is the holder's: made by [`super::Startpoint::copy_for`] alone.
    Copy(CopyCaveat),
}

/// Part of a memory region, with what may be done in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Number of the region at its owner.
    pub region: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes; not zero.
    pub length: u64,
    /// [`Window::READ`], [`Window::WRITE`] or both.
    pub rights: u8,
}

/// Who a copy is for, and who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyCaveat {
    /// Random; tells copies for the same holder apart.
    pub id: [u8; 16],
    /// The domain that may open links with it and copy it further.
    pub holder: KeyHash,
    /// The holder before says so. A startpoint that nobody holds yet is copied without.
    pub voucher: Option<Voucher>,
}

/// A holder's signature (Ed25519) under a copy: see [`super::Startpoint::copy_for`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voucher {
    /// The holder's public key.
    pub key: [u8; 32],
    /// Its signature.
    pub signature: [u8; 64],
}

impl Window {
    /// May be read from afar.
    pub const READ: u8 = 1;
    /// May be written from afar.
    pub const WRITE: u8 = 2;

    /// Reads what stands in a caveat.
    pub(super) fn from_bytes(bytes: &[u8; WINDOW]) -> Self {
        let number = |at: usize| u64::from_be_bytes(*bytes[8 * at..].first_chunk().expect("three numbers"));
        Window { region: number(0), offset: number(1), length: number(2), rights: bytes[24] }
    }

    /// Whether an access stays inside.
    pub(super) fn contains(&self, access: &Window) -> bool {
        // Our own end cannot overflow: windows are checked when they are made or read.
        self.region == access.region
            && access.rights & !self.rights == 0
            && access.offset >= self.offset
            && access.offset.checked_add(access.length).is_some_and(|end| end <= self.offset + self.length)
    }

    /// Whether it is one: not empty, its end a number, its rights known.
    pub(super) fn is_sound(&self) -> bool {
        self.length > 0
            && self.offset.checked_add(self.length).is_some()
            && self.rights != 0
            && self.rights & !(Window::READ | Window::WRITE) == 0
    }
}

impl Caveat {
    /// Only these handlers, in whatever order.
    pub fn methods(methods: impl IntoIterator<Item = u32>) -> Self {
        let mut methods: Vec<u32> = methods.into_iter().collect();
        methods.sort_unstable();
        methods.dedup();
        Caveat::Methods(methods)
    }

    /// Whether this could be read back: what [`Caveat::decode`] checks.
    pub(super) fn is_sound(&self) -> bool {
        match self {
            Caveat::Methods(methods) => methods.is_sorted_by(|one, next| one < next),
            Caveat::Memory(windows) => windows.iter().all(Window::is_sound),
            Caveat::Uses(_) | Caveat::Expires(_) | Caveat::Protection(_) | Caveat::Copy(_) => true,
        }
    }

    /// Bytes of its encoding.
    pub(super) fn encoded_len(&self) -> usize {
        3 + match self {
            Caveat::Methods(methods) => 4 * methods.len(),
            Caveat::Uses(_) | Caveat::Expires(_) => 8,
            Caveat::Memory(windows) => WINDOW * windows.len(),
            Caveat::Protection(_) => 1,
            Caveat::Copy(copy) => COPY + copy.voucher.as_ref().map_or(0, |_| VOUCHER),
        }
    }

    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.encode(&mut out);
        out
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind());
        let len = u16::try_from(self.encoded_len() - 3).expect("a caveat is bounded");
        out.extend(len.to_be_bytes());
        match self {
            Caveat::Methods(methods) => out.extend(methods.iter().flat_map(|method| method.to_be_bytes())),
            Caveat::Uses(number) | Caveat::Expires(number) => out.extend(number.to_be_bytes()),
            Caveat::Memory(windows) => {
                for window in windows {
                    for number in [window.region, window.offset, window.length] {
                        out.extend(number.to_be_bytes());
                    }
                    out.push(window.rights);
                }
            }
            Caveat::Protection(protection) => out.push(*protection as u8),
            Caveat::Copy(copy) => {
                out.extend(copy.id);
                out.extend(copy.holder);
                if let Some(voucher) = &copy.voucher {
                    out.extend(voucher.key);
                    out.extend(voucher.signature);
                }
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, StartpointError> {
        let kind = reader.byte()?;
        let len = usize::from(reader.short()?);
        let mut content = Reader(reader.take(len)?);
        let caveat = match kind {
            1 if len % 4 == 0 => {
                let methods = content.0.as_chunks().0.iter().map(|method| u32::from_be_bytes(*method));
                content.0 = &[];
                Caveat::Methods(methods.collect())
            }
            2 => Caveat::Uses(content.word()?),
            3 => Caveat::Expires(content.word()?),
            4 if len % WINDOW == 0 => {
                let mut windows = Vec::with_capacity(len / WINDOW);
                while !content.0.is_empty() {
                    windows.push(Window::from_bytes(&content.array()?));
                }
                Caveat::Memory(windows)
            }
            5 => Caveat::Protection(Protection::from_number(content.byte()?).ok_or(StartpointError::Malformed)?),
            6 => Caveat::Copy(CopyCaveat {
                id: content.array()?,
                holder: content.array()?,
                voucher: match content.0.len() {
                    0 => None,
                    _ => Some(Voucher { key: content.array()?, signature: content.array()? }),
                },
            }),
            _ => return Err(StartpointError::Malformed),
        };
        content.end().map_err(|_| StartpointError::Malformed)?;
        if caveat.is_sound() { Ok(caveat) } else { Err(StartpointError::Malformed) }
    }

    const fn kind(&self) -> u8 {
        match self {
            Caveat::Methods(_) => 1,
            Caveat::Uses(_) => 2,
            Caveat::Expires(_) => 3,
            Caveat::Memory(_) => 4,
            Caveat::Protection(_) => 5,
            Caveat::Copy(_) => 6,
        }
    }
}

/// The caveats of a startpoint, in their order, within bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Caveats(Vec<Caveat>);

impl Caveats {
    /// Appends one; returns its encoding.
    pub(super) fn push(&mut self, caveat: Caveat) -> Result<Vec<u8>, StartpointError> {
        let bytes = self.encoded_len() + caveat.encoded_len();
        if self.0.len() == CAVEATS_MAX || bytes > CAVEAT_BYTES_MAX {
            return Err(StartpointError::TooManyCaveats);
        }
        if !caveat.is_sound() {
            return Err(StartpointError::BadCaveat);
        }
        let encoded = caveat.encoded();
        self.0.push(caveat);
        Ok(encoded)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Caveat> {
        self.0.iter()
    }

    /// Those up to the last copy.
    pub(super) fn to_last_copy(&self) -> Option<Caveats> {
        let last = self.0.iter().rposition(|caveat| matches!(caveat, Caveat::Copy(_)))?;
        Some(Caveats(self.0[..=last].to_vec()))
    }

    /// The name that they lead to.
    pub(super) fn name(&self, root: Name) -> Name {
        self.iter().fold(root, |name, caveat| caveat_name(&name, &caveat.encoded()))
    }

    /// The domain that it is bound to: the last copy's.
    pub(super) fn holder(&self) -> Option<&KeyHash> {
        self.iter().rev().find_map(|caveat| match caveat {
            Caveat::Copy(copy) => Some(&copy.holder),
            _ => None,
        })
    }

    pub(super) fn encoded_len(&self) -> usize {
        self.0.iter().map(Caveat::encoded_len).sum()
    }

    /// Their number and then each.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        self.0.iter().for_each(|caveat| caveat.encode(out));
    }

    /// Reads them. What is over the bounds is refused before anything is kept.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, StartpointError> {
        let count = usize::from(reader.byte()?);
        if count > CAVEATS_MAX {
            return Err(StartpointError::TooManyCaveats);
        }
        let before = reader.0.len();
        let mut caveats = Vec::with_capacity(count);
        for _ in 0..count {
            caveats.push(Caveat::decode(reader)?);
            if before - reader.0.len() > CAVEAT_BYTES_MAX {
                return Err(StartpointError::TooManyCaveats);
            }
        }
        Ok(Caveats(caveats))
    }
}

/// Bytes of a window.
pub(super) const WINDOW: usize = 25;
const COPY: usize = 16 + 32;
const VOUCHER: usize = 32 + 64;
