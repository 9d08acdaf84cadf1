//! Bytes of startpoints and activations: reading without trust, and what can be wrong with them.

use std::fmt;

use zeroize::Zeroizing;

use crate::secret::Secret32;

/// Version of both layouts.
pub(super) const VERSION: u8 = 1;

/// Why bytes are no startpoint, or a startpoint cannot be made so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartpointError {
    /// Written by another version of Gambeson.
    Version(u8),
    /// The bytes end too early.
    CutShort,
    /// More bytes than belong to it.
    TooLong,
    /// A field says what no encoder writes.
    Malformed,
    /// More than 16 caveats, or more than 1 KiB of them.
    TooManyCaveats,
    /// A caveat whose content nobody may write: an empty or overflowing region, an endless list.
    BadCaveat,
    /// A class or an address is empty, too long or not printable ASCII, or there are too many addresses.
    BadName,
    /// The endpoint is not in the book.
    NoEndpoint,
    /// The id of the root was used before.
    RootInUse,
    /// Bound to another domain's key than ours.
    NotOurs,
    /// The session leads to another domain than the endpoint's.
    OtherOwner,
}

impl fmt::Display for StartpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version(version) => {
                return write!(
                    f,
                    "the startpoint is of version {version}, and this build knows version {VERSION}; use the same \
                     Gambeson at both ends"
                );
            }
            Self::CutShort => "the startpoint is cut short; pass all its bytes on",
            Self::TooLong => "there are bytes behind the startpoint; pass its own alone",
            Self::Malformed => "the bytes are no startpoint, or were altered on the way",
            Self::TooManyCaveats => {
                "a startpoint carries at most 16 caveats in 1024 bytes; ask its endpoint's owner for one that is \
                 narrow from the start"
            }
            Self::BadCaveat => {
                "the caveat is not one: a region is empty, passes 2^64 or has no rights, or a list is too long"
            }
            Self::BadName => {
                "a class or an address is empty, too long or not printable ASCII, or there are more than 8"
            }
            Self::NoEndpoint => "there is no such endpoint here; make it before its startpoints",
            Self::RootInUse => "this endpoint has a startpoint of that id; draw 16 random bytes for each",
            Self::NotOurs => {
                "the startpoint is bound to another process's key; let its holder make a copy for this process"
            }
            Self::OtherOwner => "the session does not lead to the process that owns the startpoint's endpoint",
        })
    }
}

impl std::error::Error for StartpointError {}

/// What is left of bytes that are read.
pub(super) struct Reader<'b>(pub(super) &'b [u8]);

impl<'b> Reader<'b> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'b [u8], StartpointError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(StartpointError::CutShort)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], StartpointError> {
        Ok(self.take(LEN)?.try_into().expect("as many as were taken"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, StartpointError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn short(&mut self) -> Result<u16, StartpointError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn word(&mut self) -> Result<u64, StartpointError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn secret(&mut self) -> Result<Secret32, StartpointError> {
        let bytes = Zeroizing::new(self.array()?);
        Ok(Secret32::from_bytes(*bytes))
    }

    /// Text behind its length, as [`printable`] has it.
    pub(super) fn text(&mut self, most: usize) -> Result<&'b str, StartpointError> {
        let len = usize::from(self.byte()?);
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| StartpointError::Malformed)?;
        if printable(text, most) { Ok(text) } else { Err(StartpointError::Malformed) }
    }

    pub(super) fn version(&mut self) -> Result<(), StartpointError> {
        match self.byte()? {
            VERSION => Ok(()),
            other => Err(StartpointError::Version(other)),
        }
    }

    pub(super) fn end(self) -> Result<(), StartpointError> {
        if self.0.is_empty() { Ok(()) } else { Err(StartpointError::TooLong) }
    }
}

/// Whether text can stand in a startpoint: 1 to `most` printable ASCII characters without spaces, so that it
/// can be shown and has one spelling.
pub(super) fn printable(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Appends text behind its length.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).expect("text of a startpoint is short"));
    out.extend(text.as_bytes());
}
