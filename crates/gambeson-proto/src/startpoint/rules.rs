//! What the caveats of one startpoint leave to be checked at every request, in as few bytes as may be: there are tens of
//! thousands of these.
//!
//! ```text
//! 1 methods   as the caveat
//! 2 uses      place 16 | limit u64
//! 4 memory    as the caveat
//! 6 copy      place 16
//! ```

use super::caveat::{Caveat, WINDOW, Window};
use super::chain::Name;

/// What revocations and use counts go by: the first half of a name. To find a chain with another's takes 2^128 attempts;
/// two of one's own take 2^64, and share their fate.
pub(super) type Place = [u8; 16];

pub(super) fn place(name: &Name) -> Place {
    *name.first_chunk().expect("a name is longer")
}

/// The rules of one link.
pub(super) struct Rules(Box<[u8]>);

/// One of them.
#[derive(Clone, Copy)]
pub(super) enum Rule<'r> {
    Methods(&'r [[u8; 4]]),
    Uses(&'r Place, u64),
    Memory(&'r [[u8; WINDOW]]),
    Copy(&'r Place),
}

impl<'r> Rule<'r> {
    pub(super) fn uses(self) -> Option<(&'r Place, u64)> {
        match self {
            Rule::Uses(place, limit) => Some((place, limit)),
            _ => None,
        }
    }

    pub(super) fn copy(self) -> Option<&'r Place> {
        match self {
            Rule::Copy(place) => Some(place),
            _ => None,
        }
    }
}

impl Rules {
    /// Appends to a list of rules what a caveat leaves, after which the chain has this name.
    pub(super) fn append(out: &mut Vec<u8>, caveat: &Caveat, encoded: &[u8], name: &Name) {
        match caveat {
            Caveat::Methods(_) | Caveat::Memory(_) => out.extend_from_slice(encoded),
            Caveat::Uses(limit) => {
                out.push(encoded[0]);
                out.extend(place(name));
                out.extend(limit.to_be_bytes());
            }
            Caveat::Copy(_) => {
                out.push(encoded[0]);
                out.extend(place(name));
            }
            Caveat::Expires(_) | Caveat::Protection(_) => {}
        }
    }

    /// The rules that were appended.
    pub(super) fn new(list: Vec<u8>) -> Self {
        Rules(list.into())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Rule<'_>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (kind, behind) = rest.split_first()?;
            let rule;
            (rule, rest) = match kind {
                2 => {
                    let (place, behind) = behind.split_first_chunk().expect(OWN);
                    let (limit, behind) = behind.split_first_chunk().expect(OWN);
                    (Rule::Uses(place, u64::from_be_bytes(*limit)), behind)
                }
                6 => {
                    let (place, behind) = behind.split_first_chunk().expect(OWN);
                    (Rule::Copy(place), behind)
                }
                _ => {
                    let (len, behind) = behind.split_first_chunk().expect(OWN);
                    let (list, behind) = behind.split_at(usize::from(u16::from_be_bytes(*len)));
                    let rule =
                        if *kind == 1 { Rule::Methods(list.as_chunks().0) } else { Rule::Memory(list.as_chunks().0) };
                    (rule, behind)
                }
            };
            Some(rule)
        })
    }

    pub(super) fn allow_method(&self, method: u32) -> bool {
        let method = method.to_be_bytes();
        self.iter().all(|rule| !matches!(rule, Rule::Methods(methods) if methods.binary_search(&method).is_err()))
    }

    /// Every list must have a window for it, and there must be a list.
    pub(super) fn allow_access(&self, access: &Window) -> bool {
        let mut lists = 0;
        let inside = self.iter().all(|rule| {
            let Rule::Memory(windows) = rule else { return true };
            lists += 1;
            windows.iter().any(|window| Window::from_bytes(window).contains(access))
        });
        inside && lists > 0 && access.is_sound()
    }
}

const OWN: &str = "rules are as they were appended";
