//! Anchors of a job's files where a key service keeps them, and labels that the job was not given: a rank asks the holder of
//! its job's secrets, which asks the service. Ranks have no TLS, and no identity of the site.
//!
//! ```text
//! of anchors:
//! request   0 | file 16                                                                  where was it last?
//!         | 1 or 2 | file 16 | generation u64 | root 32 | labels { length u8, bytes }    it is there now; 2: on purpose
//! answer    0 | nothing, or generation u64 | root 32
//!         | 1 | generation u64                                                           a later one is recorded
//!         | 2 | sentence                                                                 it is not anchored
//!         | 3 | sentence                                                                 the service cannot be asked
//!
//! of labels:
//! request   { 0 to read, 1 to write | version u32, 0: the newest | length u8 | label }
//! answer    0 | count u16 | { version u32, 0: all | length u8 | label | length u32 | sentence } | ring     refused, given
//!         | 3 | sentence
//! ```
//! Big endian.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gambeson_proto::policy::is_label;
use gambeson_site::holder;
use zeroize::Zeroizing;

use crate::anchorage::{Anchorage, Direction};
use crate::asked::{Given, Giver, Wanted};
use crate::ring::Ring;
use crate::{Anchor, KeyError};

/// What the holder of a job's secrets answers requests for anchors by.
pub const ANCHOR: &str = "anchor";
/// And requests for labels by their names.
pub const LABELS: &str = "labels";

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

impl Giver for Relayed {
    fn give(&self, wanted: &[Wanted]) -> Result<Option<Given>, KeyError> {
        let unreachable = |why: String| KeyError::Unreachable { store: self.store.clone(), why };
        let answer = holder::call(&self.job, LABELS, &encode_wanted(wanted)).map_err(unreachable)?;
        // Nobody answers on a host that has no way to where the job was started.
        let Some(answer) = answer.filter(|answer| !answer.is_empty()) else { return Ok(None) };
        match answer.split_first() {
            Some((&FOUND, given)) => decode_given(&self.store, given).map(Some),
            Some((_, why)) => Err(unreachable(String::from_utf8_lossy(why).into_owned())),
            None => Ok(None),
        }
    }
}

/// Answers ranks' requests for labels: what the holder of a job's secrets does. All ranks of a job ask for much the same, so
/// that an answer does for those who ask in the same moment.
#[derive(Debug)]
pub struct Labels {
    giver: Box<dyn Giver>,
    recent: Mutex<Vec<Recent>>,
}

/// When it was answered, what was asked, and the answer.
type Recent = (Instant, Vec<u8>, Zeroizing<Vec<u8>>);

impl Labels {
    /// Answers by what somebody gives.
    #[must_use]
    pub fn new(giver: Box<dyn Giver>) -> Self {
        Labels { giver, recent: Mutex::default() }
    }

    /// The answer to a request.
    #[must_use]
    pub fn answer(&self, request: &[u8]) -> Zeroizing<Vec<u8>> {
        // Held meanwhile: of many ranks one asks.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|(when, ..)| when.elapsed() < MOMENT);
        if let Some((.., answer)) = recent.iter().find(|(_, asked, _)| asked == request) {
            return answer.clone();
        }
        let answer = self.ask(request);
        recent.push((Instant::now(), request.to_vec(), answer.clone()));
        answer
    }

    fn ask(&self, request: &[u8]) -> Zeroizing<Vec<u8>> {
        let away = |why: &str| Zeroizing::new([&[AWAY][..], why.as_bytes()].concat());
        let Some(wanted) = decode_wanted(request) else { return away("the request for labels makes no sense") };
        match self.giver.give(&wanted) {
            Ok(Some(given)) => encode_given(&given),
            Ok(None) => Zeroizing::default(),
            Err(KeyError::Unreachable { why, .. }) => away(&why),
            Err(other) => away(&other.to_string()),
        }
    }
}

fn encode_wanted(wanted: &[Wanted]) -> Vec<u8> {
    let mut out = Vec::new();
    // One that is no label has nothing to say here, as of anchors.
    for one in wanted.iter().filter(|one| is_label(&one.label)) {
        out.push(u8::from(one.writing));
        out.extend(one.version.unwrap_or(0).to_be_bytes());
        put_label(&mut out, &one.label);
    }
    out
}

fn decode_wanted(mut bytes: &[u8]) -> Option<Vec<Wanted>> {
    let mut wanted = Vec::new();
    while let Some((&mark, rest)) = bytes.split_first() {
        let (version, rest) = rest.split_first_chunk()?;
        let (label, rest) = take_label(rest)?;
        let version = Some(u32::from_be_bytes(*version)).filter(|&version| version != 0);
        let writing = [false, true].get(usize::from(mark)).copied()?;
        wanted.push(Wanted { label: label.to_owned(), version, writing });
        bytes = rest;
    }
    Some(wanted)
}

fn encode_given(given: &Given) -> Zeroizing<Vec<u8>> {
    let mut out = vec![FOUND];
    let refused = given.refused.iter().filter(|(label, ..)| is_label(label)).take(usize::from(u16::MAX));
    out.extend(u16::try_from(refused.clone().count()).expect("no more are taken").to_be_bytes());
    for (label, version, why) in refused {
        out.extend(version.unwrap_or(0).to_be_bytes());
        put_label(&mut out, label);
        out.extend(u32::try_from(why.len()).expect("a sentence is short").to_be_bytes());
        out.extend(why.as_bytes());
    }
    let ring = given.ring.carry();
    // In one allocation: a vector that grows leaves copies of keys behind.
    let mut whole = Zeroizing::new(Vec::with_capacity(out.len() + ring.len()));
    whole.extend(&out);
    whole.extend(ring.iter());
    whole
}

fn decode_given(store: &str, bytes: &[u8]) -> Result<Given, KeyError> {
    let refused = || {
        let (count, mut rest) = bytes.split_first_chunk()?;
        let mut refused = Vec::new();
        for _ in 0..u16::from_be_bytes(*count) {
            let (version, more) = rest.split_first_chunk()?;
            let (label, more) = take_label(more)?;
            let (length, more) = more.split_first_chunk()?;
            let (why, more) = more.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            let version = Some(u32::from_be_bytes(*version)).filter(|&version| version != 0);
            refused.push((label.to_owned(), version, str::from_utf8(why).ok()?.to_owned()));
            rest = more;
        }
        Some((refused, rest))
    };
    let (refused, ring) = refused().ok_or_else(|| KeyError::altered(store, "what it gave by name"))?;
    Ok(Given { ring: Ring::carried(store, ring)?, refused })
}

/// A label, behind its length.
fn put_label(out: &mut Vec<u8>, label: &str) {
    out.push(u8::try_from(label.len()).expect("a label's name is short"));
    out.extend(label.as_bytes());
}

fn take_label(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (label, rest) = rest.split_at_checked(length.into())?;
    Some((str::from_utf8(label).ok().filter(|label| is_label(label))?, rest))
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
                labels.iter().filter(|label| is_label(label)).for_each(|label| put_label(&mut out, label));
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
        while !rest.is_empty() {
            let (label, more) = take_label(rest)?;
            labels.push(label);
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
/// So long an answer about labels does for others who ask the same.
const MOMENT: Duration = Duration::from_secs(10);

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

    #[test]
    fn labels_arrive_with_what_was_refused() {
        let wanted = |label: &str, version, writing| Wanted { label: label.to_owned(), version, writing };
        let both = vec![wanted("clinical", Some(3), false), wanted("b", None, true)];
        let bytes = encode_wanted(&both);
        assert_eq!(decode_wanted(&bytes), Some(both));
        for length in 1..bytes.len() {
            assert!(decode_wanted(&bytes[..length]).is_none_or(|wanted| wanted.len() < 2), "{length}");
        }
        let mut ring = Ring::empty(String::new());
        ring.create("clinical", None).unwrap();
        let refused =
            vec![("b".to_owned(), None, "nobody granted it".to_owned()), ("c".to_owned(), Some(2), "no".into())];
        let bytes = encode_given(&Given { ring, refused: refused.clone() });
        let arrived = decode_given("there", &bytes[1..]).unwrap();
        assert_eq!((arrived.refused, arrived.ring.labels().len()), (refused, 1));
        for length in 1..bytes.len() {
            assert!(decode_given("there", &bytes[1..length]).is_err(), "{length}");
        }
    }
}
