//! The transform modules of an endpoint's links (secure-nexus paper, 3.4 and 7): by name, and in their order. Part of a
//! startpoint's name, as its class is, so no holder leaves one out, adds one or moves it.
//!
//! ```text
//! u8, names with commas between them: none for none
//! ```

use super::wire::{Reader, StartpointError, printable};

/// Characters of all names and the commas between them.
pub const TRANSFORMS_MAX: usize = 64;

/// Names of transform modules, in the order in which they are applied to what is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transforms(Box<str>);

impl Transforms {
    /// These, the first one first.
    ///
    /// # Errors
    /// When a name is empty, is not printable ASCII or has a comma in it, or all are longer than [`TRANSFORMS_MAX`].
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, StartpointError> {
        let names: Vec<&str> = names.into_iter().collect();
        if names.iter().any(|name| name.contains(',')) {
            return Err(StartpointError::BadName);
        }
        if names.is_empty() {
            return Ok(Transforms::default());
        }
        Transforms::parse(&names.join(",")).ok_or(StartpointError::BadName)
    }

    /// Each name.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split(',').filter(|name| !name.is_empty())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All names, with commas between them.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// At least one name, and no empty one.
    fn parse(text: &str) -> Option<Self> {
        let legal = printable(text, TRANSFORMS_MAX) && text.split(',').all(|name| !name.is_empty());
        legal.then(|| Transforms(text.into()))
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, StartpointError> {
        let len = usize::from(reader.byte()?);
        let text = std::str::from_utf8(reader.take(len)?).map_err(|_| StartpointError::Malformed)?;
        if text.is_empty() {
            Ok(Transforms::default())
        } else {
            Transforms::parse(text).ok_or(StartpointError::Malformed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_in_their_order_and_what_is_no_name_is_refused() {
        let stack = Transforms::new(["zstd", "mask", "zstd"]).expect("names");
        assert_eq!(stack.iter().collect::<Vec<_>>(), ["zstd", "mask", "zstd"]);
        assert!(Transforms::new([]).is_ok_and(|none| none.is_empty() && none.iter().next().is_none()));
        let long = "x".repeat(TRANSFORMS_MAX);
        assert!(Transforms::new([&*long]).is_ok());
        for names in [&[""][..], &["a b"], &["a,b"], &["ä"], &["a", ""], &[&long, "x"]] {
            assert_eq!(Transforms::new(names.iter().copied()), Err(StartpointError::BadName), "{names:?}");
        }
        for bytes in [&b"\x01,"[..], b"\x03a,,", b"\x02,a", b"\x02a,", b"\x03a b"] {
            assert_eq!(Transforms::decode(&mut Reader(bytes)), Err(StartpointError::Malformed), "{bytes:?}");
        }
        assert_eq!(Transforms::decode(&mut Reader(b"\x02a")), Err(StartpointError::CutShort));
    }
}
