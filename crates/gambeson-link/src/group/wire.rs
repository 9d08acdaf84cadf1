//! What is said to who passes messages on, and what he says.
//!
//! ```text
//! asked:     version u8 | work u8 | operation u8, text | number of its own request u64 | handler u32
//!            patience u32, milliseconds
//!            startpoints u32, { count u32 | { u32, startpoint } } | payload
//! answered:  0 | each member: kind of error u8, 0 for none | u32, answer or sentence
//!            1 | what all answers come to
//!            2 | member u32 | kind of error u8 | sentence                                        (little endian)
//! ```

use std::time::Duration;

use gambeson_proto::startpoint::Startpoint as Capability;
use zeroize::Zeroizing;

use super::operation::Operation;
use crate::error::Error;

const VERSION: u8 = 1;
pub(super) const SEND: u8 = 0;
pub(super) const CALL: u8 = 1;
pub(super) const REDUCE: u8 = 2;

/// What is done with a group.
#[derive(Clone, Copy)]
pub(super) enum Work<'m> {
    Send,
    Call,
    Reduce(&'m Operation),
}

/// What goes to all members.
pub(super) struct Message<'m> {
    pub(super) work: Work<'m>,
    pub(super) handler: u32,
    pub(super) payload: &'m [u8],
}

impl<'m> Message<'m> {
    pub(super) fn operation(&self) -> Option<&'m Operation> {
        match self.work {
            Work::Reduce(operation) => Some(operation),
            Work::Send | Work::Call => None,
        }
    }

    /// For who passes it on to these startpoints, and handles it under the number `own`.
    pub(super) fn encode(&self, own: u64, patience: Duration, list: &[u8]) -> Zeroizing<Vec<u8>> {
        let (work, name) = match self.work {
            Work::Send => (SEND, ""),
            Work::Call => (CALL, ""),
            Work::Reduce(operation) => (REDUCE, operation.name()),
        };
        // One allocation: a vector that grows leaves copies of the startpoints' secrets behind.
        let mut out = Zeroizing::new(Vec::with_capacity(23 + name.len() + list.len() + self.payload.len()));
        out.extend([VERSION, work, name.len() as u8]);
        out.extend(name.as_bytes());
        out.extend(own.to_le_bytes());
        out.extend(self.handler.to_le_bytes());
        out.extend(u32::try_from(patience.as_millis()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend((list.len() as u32).to_le_bytes());
        out.extend(list);
        out.extend(self.payload);
        out
    }
}

/// What was asked for, as it came.
pub(super) struct Asked<'b> {
    pub(super) work: u8,
    pub(super) operation: &'b str,
    pub(super) own: u64,
    pub(super) handler: u32,
    pub(super) patience: Duration,
    pub(super) list: &'b [u8],
    pub(super) payload: &'b [u8],
}

impl<'b> Asked<'b> {
    pub(super) fn decode(bytes: &'b [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [version, work, len] = *reader.take(3)?.first_chunk()?;
        if version != VERSION || work > REDUCE {
            return None;
        }
        let operation = std::str::from_utf8(reader.take(len.into())?).ok()?;
        let own = u64::from_le_bytes(*reader.take(8)?.first_chunk()?);
        let (handler, patience) = (reader.number()?, Duration::from_millis(reader.number()?.into()));
        let list = reader.counted()?;
        Some(Asked { work, operation, own, handler, patience, list, payload: reader.0 })
    }
}

/// Startpoints in a row.
pub(super) fn list(startpoints: &[Capability]) -> Zeroizing<Vec<u8>> {
    let encoded: Vec<_> = startpoints.iter().map(Capability::encode).collect();
    let bytes: usize = encoded.iter().map(|one| 4 + one.len()).sum();
    let mut out = Zeroizing::new(Vec::with_capacity(4 + bytes));
    out.extend((encoded.len() as u32).to_le_bytes());
    for one in &encoded {
        out.extend((one.len() as u32).to_le_bytes());
        out.extend(&one[..]);
    }
    out
}

/// Reads what [`list`] wrote.
pub(super) fn startpoints(list: &[u8]) -> Option<Vec<Capability>> {
    let mut reader = Reader(list);
    let count = reader.number()?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(Capability::decode(reader.counted()?).ok()?);
    }
    reader.0.is_empty().then_some(all)
}

/// What came of a message to some members, in their order.
pub(super) enum Outcome {
    Each(Vec<Result<Vec<u8>, Error>>),
    /// All answers, combined.
    Combined(Vec<u8>),
    /// They do not come together: why, and because of whom.
    Failed(usize, Error),
}

impl Outcome {
    /// The same error of so many members.
    pub(super) fn all(count: usize, why: &Error) -> Self {
        Outcome::Each((0..count).map(|_| Err(why.again())).collect())
    }

    /// All in one, grouped as the members are.
    pub(super) fn combined(self, operation: &Operation) -> Result<Vec<u8>, (usize, Error)> {
        let all = match self {
            Outcome::Combined(bytes) => return Ok(bytes),
            Outcome::Failed(at, why) => return Err((at, why)),
            Outcome::Each(all) => all,
        };
        let mut answers = Vec::with_capacity(all.len());
        for (at, one) in all.into_iter().enumerate() {
            answers.push(one.map_err(|why| (at, why))?);
        }
        fold(&answers, 0, operation)
    }

    /// This and what came of the members behind it, which begin with number `at`; combined, if there is an operation.
    pub(super) fn and(self, other: Outcome, at: usize, operation: Option<&Operation>) -> Self {
        match (self, other, operation) {
            (Outcome::Each(none), other, Some(_)) if none.is_empty() => other,
            (this, Outcome::Each(none), Some(_)) if none.is_empty() => this,
            (this, other, Some(operation)) => {
                let both = this.combined(operation).and_then(|one| {
                    let other = other.combined(operation).map_err(|(behind, why)| (at + behind, why))?;
                    join(operation, &one, &other, at)
                });
                both.map_or_else(|(at, why)| Outcome::Failed(at, why), Outcome::Combined)
            }
            (Outcome::Each(mut all), Outcome::Each(behind), None) => {
                all.extend(behind);
                Outcome::Each(all)
            }
            (_, _, None) => unreachable!("nothing is combined without an operation"),
        }
    }

    /// With where it came from in its sentences.
    pub(super) fn within(self, place: &str) -> Self {
        match self {
            Outcome::Each(all) => {
                Outcome::Each(all.into_iter().map(|one| one.map_err(|why| why.within(place))).collect())
            }
            Outcome::Combined(bytes) => Outcome::Combined(bytes),
            Outcome::Failed(at, why) => Outcome::Failed(at, why.within(place)),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Outcome::Each(all) => {
                let mut out = vec![0];
                for one in all {
                    let (kind, text);
                    let bytes = match one {
                        Ok(bytes) => {
                            kind = 0;
                            &bytes[..]
                        }
                        Err(why) => {
                            (kind, text) = why.told();
                            text.as_bytes()
                        }
                    };
                    out.push(kind);
                    out.extend((bytes.len() as u32).to_le_bytes());
                    out.extend(bytes);
                }
                out
            }
            Outcome::Combined(bytes) => [&[1], &bytes[..]].concat(),
            Outcome::Failed(at, why) => {
                let (kind, text) = why.told();
                [&[2], &(*at as u32).to_le_bytes()[..], &[kind], text.as_bytes()].concat()
            }
        }
    }

    /// Reads what became of `count` members.
    pub(super) fn decode(bytes: &[u8], count: usize, operation: Option<&Operation>) -> Result<Self, Error> {
        let read = || {
            let mut reader = Reader(bytes);
            let form = reader.take(1)?[0];
            match form {
                0 => {
                    let mut all = Vec::new();
                    for _ in 0..count {
                        let kind = reader.take(1)?[0];
                        let bytes = reader.counted()?;
                        all.push(if kind == 0 { Ok(bytes.to_vec()) } else { Err(Error::heard(kind, bytes)) });
                    }
                    reader.0.is_empty().then_some(Outcome::Each(all))
                }
                1 if operation.is_some() => Some(Outcome::Combined(reader.0.to_vec())),
                2 if operation.is_some() => {
                    let at = reader.number()? as usize;
                    let kind = reader.take(1)?[0];
                    (at < count).then(|| Outcome::Failed(at, Error::heard(kind, reader.0)))
                }
                _ => None,
            }
        };
        read().ok_or_else(|| Error::Protocol("what it says of those behind it cannot be read".into()))
    }
}

/// Combines answers grouped as members are split.
fn fold(answers: &[Vec<u8>], first: usize, operation: &Operation) -> Result<Vec<u8>, (usize, Error)> {
    let mut whole: Option<Vec<u8>> = None;
    for part in super::parts(answers.len(), false) {
        let at = first + part.start;
        let (head, rest) = answers[part].split_first().expect("a part has a member");
        let value = match rest {
            [] => head.clone(),
            rest => join(operation, head, &fold(rest, at + 1, operation)?, at + 1)?,
        };
        whole = Some(match whole {
            Some(whole) => join(operation, &whole, &value, at)?,
            None => value,
        });
    }
    Ok(whole.unwrap_or_default())
}

/// The answers before member `at` and those from there on in one.
fn join(operation: &Operation, one: &[u8], other: &[u8], at: usize) -> Result<Vec<u8>, (usize, Error)> {
    let failed = |why| (at, Error::Handler(format!("its answer and those before cannot be combined: {why}")));
    operation.combine(one, other).map_err(failed)
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    /// So many bytes as a number before them says.
    fn counted(&mut self) -> Option<&'b [u8]> {
        let len = self.number()? as usize;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn each() -> Outcome {
        Outcome::Each(vec![Ok(b"one".to_vec()), Err(Error::Lost("it is gone".into())), Ok(Vec::new())])
    }

    #[test]
    fn what_was_written_is_read() {
        for work in [Work::Send, Work::Call, Work::Reduce(&Operation::SUM_F64)] {
            let message = Message { work, handler: 7, payload: b"payload" };
            let bytes = message.encode(1 << 40, Duration::from_secs(3), b"list");
            let asked = Asked::decode(&bytes).expect("it was written so");
            assert_eq!((asked.own, asked.handler, asked.patience), (1 << 40, 7, Duration::from_secs(3)));
            assert_eq!((asked.list, asked.payload), (&b"list"[..], &b"payload"[..]));
            assert_eq!(asked.operation, message.operation().map_or("", Operation::name));
        }
        let read = Outcome::decode(&each().encode(), 3, None).expect("it was written so");
        let Outcome::Each(all) = read else { panic!("each") };
        assert_eq!(all[0].as_ref().expect("an answer"), b"one");
        assert!(matches!(&all[1], Err(Error::Lost(why)) if why == "it is gone"));
        let sum = Some(&Operation::SUM_F64);
        for (outcome, expected) in
            [(Outcome::Combined(vec![3; 8]), true), (Outcome::Failed(2, Error::Lost("gone".into())), false)]
        {
            let bytes = outcome.encode();
            assert!(Outcome::decode(&bytes, 3, None).is_err(), "nobody asked for that");
            let came = Outcome::decode(&bytes, 3, sum).expect("it was written so").combined(&Operation::SUM_F64);
            assert_eq!(came.is_ok(), expected);
        }
        assert!(Outcome::decode(&Outcome::Failed(3, Error::Lost("gone".into())).encode(), 3, sum).is_err());
    }

    #[test]
    fn nonsense_is_refused_and_nothing_else_happens() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let message = Message { work: Work::Reduce(&Operation::CONCATENATE), handler: 7, payload: b"payload" };
        let seeds =
            [message.encode(5, Duration::from_secs(3), &list(&[])).to_vec(), each().encode(), list(&[]).to_vec()];
        for turn in 0..30_000 {
            let mut bytes = seeds[turn % 3].clone();
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            if let Some(asked) = Asked::decode(&bytes) {
                startpoints(asked.list);
            }
            startpoints(&bytes);
            for operation in [None, Some(&Operation::CONCATENATE)] {
                if let Ok(Outcome::Each(all)) = Outcome::decode(&bytes, 3, operation) {
                    assert_eq!(all.len(), 3);
                }
            }
        }
    }

    #[test]
    fn the_grouping_depends_on_the_number_of_members_alone() {
        let numbers: Vec<Vec<u8>> = (0..100).map(|at| (1.0 / f64::from(at + 3)).to_le_bytes().to_vec()).collect();
        let sum = Operation::SUM_F64;
        let whole = fold(&numbers, 0, &sum).expect("numbers");
        // As it comes together when each part is combined elsewhere.
        let mut other = Outcome::Each(Vec::new());
        for part in super::super::parts(100, false) {
            let (before, (head, rest)) = (part.start, numbers[part].split_first().expect("a member"));
            let rest = Outcome::Combined(fold(rest, 0, &sum).expect("numbers"));
            other = other.and(Outcome::Each(vec![Ok(head.clone())]).and(rest, 1, Some(&sum)), before, Some(&sum));
        }
        assert_eq!(other.combined(&sum).ok(), Some(whole.clone()));
        let one_by_one =
            numbers.iter().skip(1).fold(numbers[0].clone(), |one, other| sum.combine(&one, other).expect("numbers"));
        assert_ne!(whole, one_by_one, "or it would not matter");
    }
}
