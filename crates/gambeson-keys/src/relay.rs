//! Anchors of a job's files where a key service keeps them: a rank asks the holder of its job's secrets, which asks the
//! service. Ranks have no TLS, and no identity of the site.
//!
//! ```text
//! request   0 | file 16                                                                  where was it last?
//!         | 1 or 2 | file 16 | generation u64 | root 32 | labels { length u8, bytes }    it is there now; 2: on purpose
//! answer    0 | nothing, or generation u64 | root 32
//!         | 1 | generation u64                                                           a later one is recorded
//!         | 2 | sentence                                                                 it is not anchored
//!         | 3 | sentence                                                                 the service cannot be asked
//! ```
//! Big endian.

use std::path::{Path, PathBuf};

use gambeson_proto::policy::is_label;
use gambeson_site::holder;

use crate::anchorage::{Anchorage, Direction};
use crate::{Anchor, KeyError};

/// What the holder of a job's secrets answers requests for anchors by.
pub const ANCHOR: &str = "anchor";

/// The anchors that a job's launcher asks a key service for.
#[derive(Debug)]
pub(crate) struct Relayed {
    job: PathBuf,
    store: String,
}

impl Relayed {
    pub(crate) fn new(job: &Path, store: &str) -> Self {
        Relayed { job: job.to_owned(), store: store.to_owned() }
    }

    fn ask(&self, request: &Request<'_>) -> Result<Option<Anchor>, KeyError> {
        let not_anchored =
            |why: String| KeyError::NotAnchored { store: self.store.clone(), file: *request.file(), why };
        let answer = holder::call(&self.job, ANCHOR, &request.encode()).map_err(not_anchored)?;
        // Nobody answers on a host that has no way to where the job was started.
        let answer = answer.filter(|answer| !answer.is_empty());
        let answer = answer
            .ok_or_else(|| not_anchored(format!("the job has no way to it on {}", gambeson_site::job::host_name())))?;
        let foreign = || not_anchored("who holds the job's keys answers nothing that makes sense".to_owned());
        match (answer.split_first().ok_or_else(foreign)?, request) {
            ((&FOUND, []), _) => Ok(None),
            ((&FOUND, anchor), _) => decode_anchor(anchor).map(Some).ok_or_else(foreign),
            ((&OLDER, held), Request::Set { file, anchor, .. }) => Err(KeyError::OlderAnchor {
                store: self.store.clone(),
                file: **file,
                held: held.try_into().map(u64::from_be_bytes).map_err(|_| foreign())?,
                given: anchor.generation,
            }),
            ((&NOT_ANCHORED, why), _) => Err(not_anchored(String::from_utf8_lossy(why).into_owned())),
            ((&AWAY, why), _) => {
                Err(KeyError::Unreachable { store: self.store.clone(), why: String::from_utf8_lossy(why).into_owned() })
            }
            _ => Err(foreign()),
        }
    }
}

impl Anchorage for Relayed {
    fn anchor(&self, file: &[u8; 16]) -> Result<Option<Anchor>, KeyError> {
        self.ask(&Request::Get { file })
    }

    fn set_anchor(
        &self,
        file: &[u8; 16],
        labels: &[&str],
        anchor: &Anchor,
        direction: Direction,
    ) -> Result<(), KeyError> {
        self.ask(&Request::Set { file, labels: labels.to_vec(), anchor: *anchor, direction }).map(drop)
    }
}

/// Answers a rank's request: what the holder of a job's secrets does where a key service keeps the anchors.
#[must_use]
pub fn answer(anchors: &dyn Anchorage, request: &[u8]) -> Vec<u8> {
    let outcome = match Request::decode(request) {
        Some(Request::Get { file }) => anchors.anchor(file),
        Some(Request::Set { file, labels, anchor, direction }) => {
            anchors.set_anchor(file, &labels, &anchor, direction).map(|()| None)
        }
        None => return [&[NOT_ANCHORED][..], b"the request for it makes no sense"].concat(),
    };
    match outcome {
        Ok(None) => vec![FOUND],
        Ok(Some(anchor)) => [&[FOUND][..], &encode_anchor(&anchor)].concat(),
        Err(KeyError::OlderAnchor { held, .. }) => [&[OLDER][..], &held.to_be_bytes()].concat(),
        Err(KeyError::NotAnchored { why, .. }) => [&[NOT_ANCHORED][..], why.as_bytes()].concat(),
        Err(KeyError::Unreachable { why, .. }) => [&[AWAY][..], why.as_bytes()].concat(),
        Err(other) => [&[NOT_ANCHORED][..], other.to_string().as_bytes()].concat(),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Request<'r> {
    Get { file: &'r [u8; 16] },
    Set { file: &'r [u8; 16], labels: Vec<&'r str>, anchor: Anchor, direction: Direction },
}

impl<'r> Request<'r> {
    fn file(&self) -> &'r [u8; 16] {
        match self {
            Request::Get { file } | Request::Set { file, .. } => file,
        }
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Request::Get { file } => [&[GET][..], &file[..]].concat(),
            Request::Set { file, labels, anchor, direction } => {
                let mark = if *direction == Direction::Forward { SET } else { PUT_BACK };
                let mut out = [&[mark][..], &file[..], &encode_anchor(anchor)].concat();
                // A file's labels are shorter than the byte says; one that is no label has nothing to say here.
                for label in labels.iter().filter(|label| is_label(label)) {
                    out.push(u8::try_from(label.len()).expect("a label's name is short"));
                    out.extend(label.as_bytes());
                }
                out
            }
        }
    }

    fn decode(bytes: &'r [u8]) -> Option<Self> {
        let (&mark, rest) = bytes.split_first()?;
        let (file, rest) = rest.split_first_chunk()?;
        let direction = match mark {
            GET => return rest.is_empty().then_some(Request::Get { file }),
            SET => Direction::Forward,
            PUT_BACK => Direction::Any,
            _ => return None,
        };
        let (anchor, mut rest) = rest.split_at_checked(ANCHOR_LENGTH)?;
        let mut labels = Vec::new();
        while let Some((&length, more)) = rest.split_first() {
            let (label, more) = more.split_at_checked(length.into())?;
            labels.push(str::from_utf8(label).ok().filter(|label| is_label(label))?);
            rest = more;
        }
        Some(Request::Set { file, labels, anchor: decode_anchor(anchor)?, direction })
    }
}

fn encode_anchor(anchor: &Anchor) -> Vec<u8> {
    [&anchor.generation.to_be_bytes()[..], &anchor.root].concat()
}

fn decode_anchor(bytes: &[u8]) -> Option<Anchor> {
    let (generation, root) = bytes.split_first_chunk()?;
    Some(Anchor { generation: u64::from_be_bytes(*generation), root: root.try_into().ok()? })
}

const GET: u8 = 0;
const SET: u8 = 1;
const PUT_BACK: u8 = 2;
const FOUND: u8 = 0;
const OLDER: u8 = 1;
const NOT_ANCHORED: u8 = 2;
const AWAY: u8 = 3;
const ANCHOR_LENGTH: usize = 8 + 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written_and_nothing_else_is() {
        let anchor = Anchor { generation: 7, root: [9; 32] };
        for direction in [Direction::Forward, Direction::Any] {
            let set = Request::Set { file: &[1; 16], labels: vec!["clinical", "b"], anchor, direction };
            let bytes = set.encode();
            assert_eq!(Request::decode(&bytes), Some(set));
            assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), None);
        }
        let get = Request::Get { file: &[2; 16] };
        let bytes = get.encode();
        assert_eq!(Request::decode(&bytes), Some(get));
        for length in 0..bytes.len() {
            assert_eq!(Request::decode(&bytes[..length]), None);
        }
    }
}
